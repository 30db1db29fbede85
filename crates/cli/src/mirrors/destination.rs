//! The destination cluster as the tools talk to it: finds out which dialect it speaks, sends mirror
//! calls in it, gives plain rows back.
//!
//! Not here: what is printed, and which topics a pattern means at a foreign cluster.

use std::time::Duration;

use bytes::Bytes;
use tarn_client::{Cluster, ClusterOptions, ConnectionOptions, Handle, HostPort, MetadataTopics};
use tarn_wire::messages as m;
use tarn_wire::{Message, Request, Str, decode_exact, encode_body};

use super::failure::{self, Dialect};
use super::report::{Beyond, MirrorRow, NoticeRow, PartitionRow};
use crate::CliError;

/// Config resource type of mirrors.
pub(crate) const MIRROR_RESOURCE: i8 = 64;
/// Config resource type of brokers.
const BROKER_RESOURCE: i8 = 4;
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
const CONNECT_LIMIT: Duration = Duration::from_secs(15);
/// What the late prototype's tool takes when the broker does not say.
const RETRY_MAX_UNKNOWN: i64 = 10;

/// Who answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    /// This product: early bodies with our tags.
    Tarn,
    /// Another implementation.
    Foreign(Dialect),
}

/// One topic in the answer to add, remove, pause or resume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TopicResult {
    pub(crate) topic: String,
    /// `None` = done.
    pub(crate) error: Option<String>,
}

/// A connected destination.
pub(crate) struct Destination {
    cluster: Cluster,
    pub(crate) server: Server,
    /// The dialect that a server which speaks both is spoken to in.
    own_dialect: Dialect,
}

/// One key in the configuration of a mirror.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConfigRow {
    pub(crate) mirror: String,
    pub(crate) key: String,
    /// `None` = there is none, or the cluster keeps it to itself.
    pub(crate) value: Option<String>,
    /// Set for this mirror; otherwise the default.
    pub(crate) is_set: bool,
    /// The cluster keeps the value to itself.
    pub(crate) is_secret: bool,
}

fn failed(text: impl Into<String>) -> CliError {
    CliError::Failed(text.into())
}

/// Addresses of `--bootstrap-server`; an empty host is this machine.
pub(crate) fn addresses(text: &str) -> Result<Vec<HostPort>, CliError> {
    let here = |part: &str| {
        if part.starts_with(':') {
            format!("localhost{part}")
        } else {
            part.to_owned()
        }
    };
    let full: Vec<String> = text.split(',').map(|part| here(part.trim())).collect();
    HostPort::parse_list(&full.join(","))
        .map_err(|e| failed(format!("Invalid --bootstrap-server: {e}")))
}

/// A client of the cluster at `addresses`.
pub(crate) fn cluster(addresses: Vec<HostPort>) -> Cluster {
    let connection = ConnectionOptions {
        client_id: Str::from("tarn-mirrors"),
        connect_timeout: CONNECT_LIMIT,
        request_timeout: ANSWER_LIMIT,
        ..ConnectionOptions::default()
    };
    Cluster::new(ClusterOptions {
        connection,
        ..ClusterOptions::new(addresses)
    })
}

/// Sends a request whose answer may come in another dialect: gives the body behind the header.
async fn raw<R: Request>(handle: &Handle, request: &R) -> Result<Bytes, CliError> {
    let version = R::VERSIONS.max;
    let unsendable = || failed(format!("cannot encode {}", R::NAME));
    let body = encode_body(request, version)
        .map_err(|_| unsendable())?
        .to_bytes()
        .ok_or_else(unsendable)?;
    handle
        .call_raw(R::KEY, version, version >= R::FLEXIBLE_FROM, body)
        .await
        .map_err(|e| failed(e.to_string()))
}

/// Decodes an answer that must be in the dialect spoken.
fn strict<M: Message>(body: Bytes) -> Result<M, CliError> {
    decode_exact::<M>(body, M::VERSIONS.max).map_err(|e| {
        failed(format!(
            "the cluster answered in an unknown form of {}: {e}",
            M::NAME
        ))
    })
}

/// The partitions of mirrors as all brokers describe them.
pub(crate) struct Described {
    /// Merged and sorted.
    pub(crate) rows: Vec<PartitionRow>,
    /// What else the brokers say.
    pub(crate) notices: Vec<NoticeRow>,
    /// One text for each broker that did not answer.
    pub(crate) silent: Vec<String>,
}

impl Destination {
    /// Connects and finds out who answers: a late question with an answer in either form, see the
    /// wire specification. `own_dialect`: what to speak to this product, which knows both.
    pub(crate) async fn connect(bootstrap: &str, own_dialect: Dialect) -> Result<Self, CliError> {
        let addresses = addresses(bootstrap)?;
        let probe = cluster(addresses.clone())
            .any()
            .await
            .map_err(|e| failed(format!("Cannot reach the cluster at {bootstrap}: {e}")))?;
        if probe.versions().range(m::ListMirrorsRequest::KEY).is_none() {
            return Err(failed(format!(
                "The cluster at {bootstrap} does not know mirrors; --bootstrap-server names the destination, not the source"
            )));
        }
        let body = raw(&probe, &m::ListClusterMirrorsRequest::default()).await?;
        let server = match decode_exact::<m::ListClusterMirrorsResponse>(body.clone(), 0) {
            Ok(answer) if !answer.product.is_empty() => Server::Tarn,
            // An empty list has the same bytes in both dialects.
            Ok(answer) if answer.mirrors.is_empty() => {
                let find_coordinator = probe.versions().range(m::FindCoordinatorRequest::KEY);
                Server::Foreign(dialect_of(find_coordinator.map(|range| range.max)))
            }
            Ok(_) => Server::Foreign(Dialect::Late),
            Err(_) => match strict::<m::ListMirrorsResponse>(body)?.product.is_empty() {
                true => Server::Foreign(Dialect::Early),
                false => Server::Tarn,
            },
        };
        // The probe has proven the late dialect on its connection: start afresh.
        Ok(Self {
            cluster: cluster(addresses),
            server,
            own_dialect,
        })
    }

    /// The dialect of codes and bodies.
    pub(crate) fn dialect(&self) -> Dialect {
        match self.server {
            Server::Tarn => self.own_dialect,
            Server::Foreign(dialect) => dialect,
        }
    }

    async fn any(&self) -> Result<Handle, CliError> {
        let handle = self
            .cluster
            .any()
            .await
            .map_err(|e| failed(e.to_string()))?;
        self.prove(&handle).await?;
        Ok(handle)
    }

    /// Makes the dialect of a connection known before an ambiguous question.
    async fn prove(&self, handle: &Handle) -> Result<(), CliError> {
        match self.dialect() {
            Dialect::Early => raw(handle, &m::ListMirrorsRequest::default()).await?,
            Dialect::Late => raw(handle, &m::ListClusterMirrorsRequest::default()).await?,
        };
        Ok(())
    }

    fn check(&self, code: i16, text: Option<&Str>) -> Result<(), CliError> {
        if code == 0 {
            Ok(())
        } else {
            Err(failed(failure::line(self.dialect(), code, text)))
        }
    }

    /// As [`Destination::check`] for calls about one mirror.
    fn check_mirror(&self, mirror: &str, code: i16, text: Option<&Str>) -> Result<(), CliError> {
        if failure::is_unknown_mirror_code(self.dialect(), code) {
            return Err(failed(failure::unknown_mirror(mirror)));
        }
        self.check(code, text)
    }

    /// Sends any request to any broker and decodes its answer.
    pub(crate) async fn call<R: Request>(&self, request: &R) -> Result<R::Response, CliError> {
        self.any()
            .await?
            .call(request)
            .await
            .map_err(|e| failed(e.to_string()))
    }

    /// CreateMirror.
    pub(crate) async fn create(
        &self,
        mirror: &str,
        config: &[(String, String)],
        allow_unreachable: bool,
    ) -> Result<(), CliError> {
        let config = config
            .iter()
            .map(|(name, value)| m::create_mirror_request::MirrorConfig {
                name: name.as_str().into(),
                value: Some(value.as_str().into()),
                ..Default::default()
            });
        let request = m::CreateMirrorRequest {
            mirror_name: mirror.into(),
            config: config.collect(),
            allow_unreachable: allow_unreachable && self.server == Server::Tarn,
            ..Default::default()
        };
        let answer = self.call(&request).await?;
        self.check(answer.error_code, answer.error_message.as_ref())
    }

    /// DeleteMirror.
    pub(crate) async fn delete(&self, mirror: &str) -> Result<(), CliError> {
        let (code, text) = match self.dialect() {
            Dialect::Early => {
                let answer = self
                    .call(&m::DeleteMirrorRequest {
                        mirror_name: mirror.into(),
                        ..Default::default()
                    })
                    .await?;
                (answer.error_code, answer.error_message)
            }
            Dialect::Late => {
                let answer = self
                    .call(&m::DeleteClusterMirrorRequest {
                        mirror_name: mirror.into(),
                        ..Default::default()
                    })
                    .await?;
                (answer.error_code, answer.error_message)
            }
        };
        self.check_mirror(mirror, code, text.as_ref())
    }

    /// IncrementalAlterConfigs on the mirror; operations are Kafka's (0 set, 1 delete, 2 append, 3
    /// subtract).
    pub(crate) async fn alter(
        &self,
        mirror: &str,
        changes: Vec<(String, i8, Option<String>)>,
    ) -> Result<(), CliError> {
        use m::incremental_alter_configs_request::{AlterConfigsResource, AlterableConfig};
        let configs = changes
            .into_iter()
            .map(|(name, config_operation, value)| AlterableConfig {
                name: name.into(),
                config_operation,
                value: value.map(Str::from),
                ..Default::default()
            });
        let resource = AlterConfigsResource {
            resource_type: MIRROR_RESOURCE,
            resource_name: mirror.into(),
            configs: configs.collect(),
            ..Default::default()
        };
        let request = m::IncrementalAlterConfigsRequest {
            resources: vec![resource],
            ..Default::default()
        };
        for result in self.call(&request).await?.responses {
            self.check_mirror(mirror, result.error_code, result.error_message.as_ref())?;
        }
        Ok(())
    }

    /// The set configuration of the mirror, without values that the cluster keeps to itself.
    pub(crate) async fn mirror_config(
        &self,
        mirror: &str,
    ) -> Result<Vec<(String, String)>, CliError> {
        self.configs(MIRROR_RESOURCE, mirror, None).await
    }

    /// The whole configuration of a mirror, defaults and hidden keys included where the cluster
    /// tells them; sorted by key.
    pub(crate) async fn config_rows(&self, mirror: &str) -> Result<Vec<ConfigRow>, CliError> {
        /// `config_source` of a default.
        const DEFAULT: i8 = 5;
        let resource = m::describe_configs_request::DescribeConfigsResource {
            resource_type: MIRROR_RESOURCE,
            resource_name: mirror.into(),
            configuration_keys: None,
            ..Default::default()
        };
        let request = m::DescribeConfigsRequest {
            resources: vec![resource],
            include_mirror_defaults: true,
            ..Default::default()
        };
        let mut rows = Vec::new();
        for result in self.call(&request).await?.results {
            self.check(result.error_code, result.error_message.as_ref())?;
            rows.extend(result.configs.into_iter().map(|c| ConfigRow {
                mirror: mirror.to_owned(),
                key: c.name.to_string(),
                value: c.value.map(|v| v.to_string()),
                is_set: c.config_source != DEFAULT,
                is_secret: c.is_sensitive,
            }));
        }
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        Ok(rows)
    }

    async fn configs(
        &self,
        resource_type: i8,
        name: &str,
        keys: Option<Vec<Str>>,
    ) -> Result<Vec<(String, String)>, CliError> {
        let resource = m::describe_configs_request::DescribeConfigsResource {
            resource_type,
            resource_name: name.into(),
            configuration_keys: keys,
            ..Default::default()
        };
        let answer = self
            .call(&m::DescribeConfigsRequest {
                resources: vec![resource],
                ..Default::default()
            })
            .await?;
        let mut out = Vec::new();
        for result in answer.results {
            self.check(result.error_code, result.error_message.as_ref())?;
            out.extend(
                result
                    .configs
                    .into_iter()
                    .filter_map(|c| Some((c.name.to_string(), c.value?.to_string()))),
            );
        }
        Ok(out)
    }

    /// `mirror.failed.retry.max.attempts` of the first broker.
    pub(crate) async fn retry_attempts_max(&self) -> i64 {
        const KEY: &str = "mirror.failed.retry.max.attempts";
        let Some(broker) = self.cluster.view().brokers.keys().next().copied() else {
            return RETRY_MAX_UNKNOWN;
        };
        let found = self
            .configs(BROKER_RESOURCE, &broker.to_string(), Some(vec![KEY.into()]))
            .await;
        found
            .ok()
            .and_then(|list| list.into_iter().find(|(k, _)| k == KEY)?.1.parse().ok())
            .unwrap_or(RETRY_MAX_UNKNOWN)
    }

    /// ListMirrors, sorted by name.
    pub(crate) async fn list(&self) -> Result<Vec<MirrorRow>, CliError> {
        let handle = self
            .cluster
            .any()
            .await
            .map_err(|e| failed(e.to_string()))?;
        let row = |mirror: Str, bootstrap: Str, id: Str, topics: i32| MirrorRow {
            mirror: mirror.to_string(),
            topics,
            source_cluster_id: id.to_string(),
            source_bootstrap: bootstrap.to_string(),
        };
        let mut rows: Vec<MirrorRow> = match self.dialect() {
            Dialect::Early => {
                let answer = strict::<m::ListMirrorsResponse>(
                    raw(&handle, &m::ListMirrorsRequest::default()).await?,
                )?;
                self.check(answer.error_code, answer.error_message.as_ref())?;
                answer
                    .mirrors
                    .into_iter()
                    .map(|x| {
                        row(
                            x.mirror_name,
                            x.source_bootstrap,
                            x.source_cluster_id,
                            x.topic_count,
                        )
                    })
                    .collect()
            }
            Dialect::Late => {
                let answer = strict::<m::ListClusterMirrorsResponse>(
                    raw(&handle, &m::ListClusterMirrorsRequest::default()).await?,
                )?;
                self.check(answer.error_code, answer.error_message.as_ref())?;
                answer
                    .mirrors
                    .into_iter()
                    .map(|x| {
                        row(
                            x.mirror_name,
                            x.source_bootstrap,
                            x.source_cluster_id,
                            x.topic_count,
                        )
                    })
                    .collect()
            }
        };
        rows.sort_by(|a, b| a.mirror.cmp(&b.mirror));
        Ok(rows)
    }

    /// DescribeMirrors at every broker, merged and sorted. Also gives one text for each broker that
    /// did not answer.
    pub(crate) async fn describe(&self, mirror: Option<&str>) -> Result<Described, CliError> {
        self.cluster
            .metadata(&MetadataTopics::None)
            .await
            .map_err(|e| failed(e.to_string()))?;
        let (mut rows, mut silent, mut notices) = (Vec::new(), Vec::new(), Vec::new());
        for (id, node) in self.cluster.view().brokers {
            let handle = match self.cluster.broker(id).await {
                Ok(handle) => handle,
                Err(e) => {
                    silent.push(format!(
                        "Broker {id} at {} did not answer: {e}",
                        node.address
                    ));
                    continue;
                }
            };
            self.prove(&handle).await?;
            let names: Vec<Str> = mirror.into_iter().map(Str::from).collect();
            let answered = match self.dialect() {
                Dialect::Early => {
                    let request = m::DescribeMirrorsRequest {
                        mirror_names: names,
                        ..Default::default()
                    };
                    self.early_rows(strict(raw(&handle, &request).await?)?, mirror, &mut notices)?
                }
                Dialect::Late => {
                    let request = m::DescribeClusterMirrorsRequest {
                        mirror_names: names,
                        ..Default::default()
                    };
                    self.late_rows(strict(raw(&handle, &request).await?)?, mirror)?
                }
            };
            merge(&mut rows, answered);
        }
        super::report::sort(&mut rows);
        Ok(Described {
            rows,
            notices,
            silent,
        })
    }

    fn early_rows(
        &self,
        answer: m::DescribeMirrorsResponse,
        asked: Option<&str>,
        notices: &mut Vec<NoticeRow>,
    ) -> Result<Vec<PartitionRow>, CliError> {
        self.check(answer.error_code, answer.error_message.as_ref())?;
        let mut rows = Vec::new();
        for mirror in answer.mirrors {
            self.check_mirror(
                asked.unwrap_or(&mirror.mirror_name),
                mirror.error_code,
                None,
            )?;
            notices.extend(mirror.notices.iter().map(|n| NoticeRow {
                mirror: mirror.mirror_name.to_string(),
                kind: n.kind.to_string(),
                item: n.item.to_string(),
                text: n.text.to_string(),
                since_ms: n.since_ms,
            }));
            for topic in mirror.topics {
                rows.extend(topic.partitions.into_iter().map(|p| PartitionRow {
                    mirror: mirror.mirror_name.to_string(),
                    topic: topic.topic_name.to_string(),
                    partition: p.partition_index,
                    source_offset: p.source_offset,
                    destination_offset: p.destination_offset,
                    lag: p.lag,
                    state: p.state.to_string(),
                    last_mirror_epoch: p.last_mirror_epoch,
                    retry_attempt: p.retry_attempt,
                    error_message: p.error_message.map(|t| t.to_string()),
                    lag_ms: p.lag_ms,
                    leader: p.leader,
                    desired_state: Some(p.desired_state.to_string()).filter(|s| !s.is_empty()),
                    last_fetch_age_ms: p.last_fetch_age_ms,
                    beyond: Beyond {
                        error_since_ms: p.error_since_ms,
                        skipped_offsets: p.skipped_offsets,
                        truncated_offsets: p.truncated_offsets,
                    },
                }));
            }
        }
        Ok(rows)
    }

    fn late_rows(
        &self,
        answer: m::DescribeClusterMirrorsResponse,
        asked: Option<&str>,
    ) -> Result<Vec<PartitionRow>, CliError> {
        self.check(answer.error_code, answer.error_message.as_ref())?;
        let mut rows = Vec::new();
        for mirror in answer.mirrors {
            self.check_mirror(
                asked.unwrap_or(&mirror.mirror_name),
                mirror.error_code,
                None,
            )?;
            for topic in mirror.topics {
                rows.extend(topic.partitions.into_iter().map(|p| PartitionRow {
                    mirror: mirror.mirror_name.to_string(),
                    topic: topic.topic_name.to_string(),
                    partition: p.partition_index,
                    source_offset: p.source_offset,
                    destination_offset: p.destination_offset,
                    lag: p.lag,
                    state: p.state_value.to_string(),
                    last_mirror_epoch: -1,
                    retry_attempt: p.retry_attempt,
                    error_message: p.error_message.map(|t| t.to_string()),
                    lag_ms: -1,
                    leader: -1,
                    desired_state: None,
                    last_fetch_age_ms: -1,
                    beyond: Beyond::default(),
                }));
            }
        }
        Ok(rows)
    }
}

/// Which prototype announces this highest version of FindCoordinator: the early one has a version
/// more, for its own coordinators.
fn dialect_of(find_coordinator_max: Option<i16>) -> Dialect {
    const EARLY_MAX: i16 = 7;
    match find_coordinator_max {
        Some(max) if max >= EARLY_MAX => Dialect::Early,
        _ => Dialect::Late,
    }
}

/// Several brokers may know a partition; the one that has offsets leads it.
fn merge(rows: &mut Vec<PartitionRow>, more: Vec<PartitionRow>) {
    for row in more {
        let same = |r: &&mut PartitionRow| {
            (&r.mirror, &r.topic, r.partition) == (&row.mirror, &row.topic, row.partition)
        };
        match rows.iter_mut().find(same) {
            Some(known) if known.destination_offset < 0 && known.source_offset < 0 => *known = row,
            Some(_) => {}
            None => rows.push(row),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The answer of a list without mirrors does not tell.
    #[test]
    fn an_empty_list_is_told_apart_by_find_coordinator() {
        assert_eq!(dialect_of(Some(7)), Dialect::Early);
        assert_eq!(dialect_of(Some(6)), Dialect::Late);
        assert_eq!(dialect_of(None), Dialect::Late);
    }

    #[test]
    fn an_empty_host_is_this_machine() {
        let list: Vec<String> = addresses(":9094, b:1")
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(list, ["localhost:9094", "b:1"]);
        assert!(addresses("nonsense").is_err());
    }
}
