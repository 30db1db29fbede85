//! Keys 98–101: what only looks (101 writes states, for other brokers).

use tarn_wire::messages as m;
use tarn_wire::messages::{
    describe_cluster_mirrors_response as late, describe_mirrors_response as early,
    list_cluster_mirrors_response, list_mirrors_response,
};
use tarn_wire::{ApiKey, Str, Uuid};

use super::forms::MirrorRequest;
use super::{MirrorReply, MirrorService, reply, states};
use crate::config::MirrorConfig;
use crate::describe::{self, DescribedPartition, DescribedTopic};
use crate::dialect::{Dialect, MirrorError};

/// What a describe asks of mirrors.
struct AskedMirrors {
    /// Empty = all.
    names: Vec<Str>,
    /// With the authorised operations.
    operations: bool,
}

/// One mirror of a describe: its topics, or why it cannot be described.
struct Described {
    name: Str,
    topics: Result<Vec<DescribedTopic>, MirrorError>,
}

impl MirrorService {
    pub(super) async fn answer(
        &self,
        key: ApiKey,
        dialect: Dialect,
        request: MirrorRequest,
    ) -> MirrorReply {
        let image = self.tools.metadata.image();
        match request {
            MirrorRequest::List { names } => self.list(dialect, names),
            MirrorRequest::Describe {
                mirrors,
                operations,
                cluster_id,
                lookups,
            } => {
                let asked = AskedMirrors {
                    names: mirrors,
                    operations,
                };
                self.describe(dialect, asked, cluster_id, lookups).await
            }
            MirrorRequest::ReadStates(request) => {
                states::read(&self.tools.store, &image, request, dialect).await
            }
            MirrorRequest::WriteStates(request) => {
                let now_ms = (self.tools.clock)();
                states::write(&self.tools.store, &image, request, dialect, now_ms).await
            }
            _ => reply::refusal(
                key,
                dialect,
                &MirrorError::InvalidRequest("this request is not served here".into()),
            ),
        }
    }

    fn list(&self, dialect: Dialect, with_names: bool) -> MirrorReply {
        let image = self.tools.metadata.image();
        let product = self.tools.settings.product.clone();
        let mirrors = describe::list(&image, &self.tools);
        if dialect == Dialect::Early {
            let mirrors = mirrors
                .into_iter()
                .map(|l| list_mirrors_response::ListedMirror {
                    mirror_name: l.name,
                    source_bootstrap: l.bootstrap,
                    source_cluster_id: l.cluster_id,
                    topic_count: l.topics.len() as i32,
                    ..Default::default()
                })
                .collect();
            let response = m::ListMirrorsResponse {
                mirrors,
                product,
                error_message: None,
                ..Default::default()
            };
            return MirrorReply::new(ApiKey::LIST_MIRRORS, response);
        }
        let mirrors = mirrors
            .into_iter()
            .map(|l| list_cluster_mirrors_response::ListedMirror {
                mirror_name: l.name,
                source_bootstrap: l.bootstrap,
                source_cluster_id: l.cluster_id,
                topic_count: l.topics.len() as i32,
                topic_names: if with_names { l.topics } else { Vec::new() },
                ..Default::default()
            })
            .collect();
        let response = m::ListClusterMirrorsResponse {
            mirrors,
            product,
            error_message: None,
            ..Default::default()
        };
        MirrorReply::new(ApiKey::LIST_MIRRORS, response)
    }

    async fn describe(
        &self,
        dialect: Dialect,
        asked: AskedMirrors,
        cluster_id: Option<Str>,
        lookups: Vec<(Uuid, Vec<i32>)>,
    ) -> MirrorReply {
        let image = self.tools.metadata.image();
        let AskedMirrors { names, operations } = asked;
        let names = if names.is_empty() {
            image.mirrors().map(|(n, _)| n.clone()).collect()
        } else {
            names
        };
        let mut mirrors = Vec::with_capacity(names.len());
        for name in names {
            let topics = match image.mirror(&name).filter(|c| !c.is_empty()) {
                Some(_) => {
                    Ok(describe::topics(&self.tools, &self.life, &self.refresher, &name).await)
                }
                None => Err(MirrorError::UnknownMirror(name.to_string())),
            };
            mirrors.push(Described { name, topics });
        }
        if dialect == Dialect::Early {
            let mirrors = mirrors.into_iter().filter_map(early_mirror).collect();
            let response = m::DescribeMirrorsResponse {
                mirrors,
                error_message: None,
                ..Default::default()
            };
            return MirrorReply::new(ApiKey::DESCRIBE_MIRRORS, response);
        }
        let lookup_results = match cluster_id {
            Some(cluster) => self.look_up(&cluster, lookups).await,
            None => Vec::new(),
        };
        let mirrors = mirrors
            .into_iter()
            .map(|mirror| late_mirror(mirror, dialect, operations))
            .collect();
        let response = m::DescribeClusterMirrorsResponse {
            mirrors,
            lookup_results,
            error_message: None,
            ..Default::default()
        };
        MirrorReply::new(ApiKey::DESCRIBE_MIRRORS, response)
    }

    /// Last mirror epochs for a cluster that we mirror(ed) from. Nothing if no mirror of ours has it as its source.
    async fn look_up(
        &self,
        cluster: &str,
        lookups: Vec<(Uuid, Vec<i32>)>,
    ) -> Vec<late::LookupResult> {
        let image = self.tools.metadata.image();
        let from_there = |name: &Str| {
            let config = MirrorConfig::of(&image, name, &self.tools.settings);
            config.source_cluster_id().is_some_and(|id| *id == *cluster)
        };
        let mirrors: Vec<Str> = image
            .mirrors()
            .map(|(n, _)| n.clone())
            .filter(from_there)
            .collect();
        if mirrors.is_empty() {
            return Vec::new();
        }
        let mut results = Vec::with_capacity(lookups.len());
        for (topic_id, partitions) in lookups {
            let mut found = Vec::with_capacity(partitions.len());
            for partition in partitions {
                let epoch = self
                    .tools
                    .store
                    .last_mirror_epoch(&mirrors, topic_id, partition)
                    .await;
                found.push(late::LookupPartition {
                    partition_index: partition,
                    last_mirror_epoch: epoch.unwrap_or(-1),
                    ..Default::default()
                });
            }
            results.push(late::LookupResult {
                topic_id,
                partitions: found,
                ..Default::default()
            });
        }
        results
    }
}

/// An early caller takes an error for "not yet" and asks for ever: a mirror that does not exist, or has nothing to show, is left out.
fn early_mirror(mirror: Described) -> Option<early::DescribedMirror> {
    let topic = |t: DescribedTopic| early::DescribedMirrorTopic {
        topic_name: t.name,
        partitions: t.partitions.into_iter().map(early_partition).collect(),
        ..Default::default()
    };
    let topics: Vec<_> = mirror
        .topics
        .ok()?
        .into_iter()
        .filter(|t| !t.partitions.is_empty())
        .map(topic)
        .collect();
    (!topics.is_empty()).then(|| early::DescribedMirror {
        mirror_name: mirror.name,
        topics,
        ..Default::default()
    })
}

fn early_partition(p: DescribedPartition) -> early::DescribedMirrorPartition {
    early::DescribedMirrorPartition {
        partition_index: p.partition,
        source_offset: p.source_offset,
        destination_offset: p.destination_offset,
        lag: p.lag,
        state: Str::from(p.state.name_for(Dialect::Early)),
        last_mirror_epoch: p.last_mirror_epoch,
        lag_ms: p.lag_ms,
        leader: p.leader,
        desired_state: Str::from(p.desired.name()),
        retry_attempt: p.retry_attempt,
        error_message: p.error.map(Str::from),
        last_fetch_age_ms: p.last_fetch_age_ms,
        durable_offset: p.durable_offset,
        ..Default::default()
    }
}

/// Operations of a mirror by their ACL code (CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11). Without an
/// authoriser all of them are allowed.
const OPERATIONS: i32 = 1 << 5 | 1 << 6 | 1 << 7 | 1 << 8 | 1 << 10 | 1 << 11;

fn late_mirror(mirror: Described, dialect: Dialect, operations: bool) -> late::DescribedMirror {
    let exists = mirror.topics.is_ok();
    let (error_code, topics) = match mirror.topics {
        Ok(topics) => (0, topics),
        Err(error) => (error.code(dialect), Vec::new()),
    };
    let partition = |p: DescribedPartition| late::DescribedMirrorPartition {
        partition_index: p.partition,
        source_offset: p.source_offset,
        destination_offset: p.destination_offset,
        lag: p.lag,
        state_value: Str::from(p.state.name_for(dialect)),
        retry_attempt: p.retry_attempt,
        error_message: p.error.map(Str::from),
        ..Default::default()
    };
    let topic = |t: DescribedTopic| late::DescribedMirrorTopic {
        topic_name: t.name,
        partitions: t.partitions.into_iter().map(partition).collect(),
        ..Default::default()
    };
    late::DescribedMirror {
        error_code,
        mirror_name: mirror.name,
        authorized_operations: if operations && exists {
            OPERATIONS
        } else {
            late::DescribedMirror::default().authorized_operations
        },
        topics: topics
            .into_iter()
            .filter(|t| !t.partitions.is_empty())
            .map(topic)
            .collect(),
        ..Default::default()
    }
}
