//! Keys 98–101: what only looks (101 writes states, for other brokers).

use std::collections::HashSet;

use tarn_client::text_cut;
use tarn_metadata::{DesiredState, Membership};
use tarn_wire::messages as m;
use tarn_wire::messages::{
    describe_cluster_mirrors_response as late, describe_mirrors_response as early,
    list_cluster_mirrors_response, list_mirrors_response,
};
use tarn_wire::{ApiKey, Str, Uuid};

use super::forms::MirrorRequest;
use super::{MirrorReply, MirrorService, reply, states};
use crate::config::MirrorConfig;
use crate::describe::{self, DescribedPartition, DescribedTopic, Notice};
use crate::dialect::{Dialect, MirrorError};
use crate::lookup::LookupAnswer;
use crate::state::MirrorState;
use crate::store::table::{Entry, StateKey};

/// Partitions, by topic id, of which the last mirror epoch is asked.
type Lookups = Vec<(Uuid, Vec<i32>)>;

/// What a describe asks of mirrors.
struct AskedMirrors {
    /// Empty = all.
    names: Vec<Str>,
    /// With the authorised operations.
    operations: bool,
    /// None is asked for, only look-ups are.
    none: bool,
}

/// One mirror of a describe: its topics, or why it cannot be described.
struct Described {
    name: Str,
    topics: Result<Vec<DescribedTopic>, MirrorError>,
    notices: Vec<Notice>,
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
                lookups_only,
            } => {
                let asked = AskedMirrors {
                    names: mirrors,
                    operations,
                    none: lookups_only,
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
        lookups: Lookups,
    ) -> MirrorReply {
        let image = self.tools.metadata.image();
        let AskedMirrors {
            names,
            operations,
            none,
        } = asked;
        let names = if none {
            Vec::new()
        } else if names.is_empty() {
            image.mirrors().map(|(n, _)| n.clone()).collect()
        } else {
            // Named again, a mirror is described once: each description costs what the mirror has
            // partitions.
            let mut seen = HashSet::new();
            let is_new = |name: &Str| seen.insert(name.clone());
            names.into_iter().filter(is_new).collect()
        };
        let mut mirrors = Vec::with_capacity(names.len());
        for name in names {
            let topics = match image.mirror(&name).filter(|c| !c.is_empty()) {
                Some(_) => {
                    Ok(describe::topics(&self.tools, &self.life, &self.refresher, &name).await)
                }
                None => Err(MirrorError::UnknownMirror(name.to_string())),
            };
            let notices = match &topics {
                Ok(_) => describe::notices(&self.tools, &self.refresher, &name),
                Err(_) => Vec::new(),
            };
            mirrors.push(Described {
                name,
                topics,
                notices,
            });
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

    /// Last mirror epochs for a cluster that we mirror(ed) from, with one read of the store for
    /// all. Nothing if no mirror of ours has it as its source.
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
        let each = |(topic_id, partitions): &(Uuid, Vec<i32>)| {
            let topic_id = *topic_id;
            let of_topic = partitions.iter().flat_map(|partition| {
                mirrors.iter().map(move |mirror| StateKey {
                    mirror: mirror.clone(),
                    topic_id,
                    partition: *partition,
                })
            });
            of_topic.collect::<Vec<_>>()
        };
        let keys: Vec<StateKey> = lookups.iter().flat_map(each).collect();
        let mut stored = self.tools.store.read(keys).await.into_iter();
        let mut results = Vec::with_capacity(lookups.len());
        for (topic_id, partitions) in lookups {
            let member = image
                .topic_by_id(&topic_id)
                .and_then(|topic| image.membership(&topic.name));
            let answer = |partition: i32| {
                let one = |mirror: &Str| {
                    let wished = member.filter(|m| m.mirror == *mirror);
                    answer_of(wished.map(|m| &**m), stored.next())
                };
                let answer = mirrors.iter().map(one).fold(LookupAnswer::None, worse);
                late::LookupPartition {
                    partition_index: partition,
                    last_mirror_epoch: answer.epoch(),
                    answer: answer.byte(),
                    ..Default::default()
                }
            };
            results.push(late::LookupResult {
                topic_id,
                partitions: partitions.into_iter().map(answer).collect(),
                ..Default::default()
            });
        }
        results
    }
}

/// What one mirror says of one partition: its membership if it is a member, and what the store
/// answered.
fn answer_of(
    member: Option<&Membership>,
    stored: Option<Result<Option<Entry>, MirrorError>>,
) -> LookupAnswer {
    let Some(Ok(entry)) = stored else {
        return LookupAnswer::Unknown;
    };
    let record = entry.map(|e| e.record);
    match (member, record) {
        (Some(m), _) if m.desired != DesiredState::Stopped => LookupAnswer::Mirrored,
        (_, Some(record)) if record.state == MirrorState::Stopped => record
            .last_mirror_epoch
            .map_or(LookupAnswer::None, LookupAnswer::Known),
        // On its way to STOPPED, or a state that was lost: not none.
        (_, Some(_)) | (Some(_), None) => LookupAnswer::Unknown,
        (None, None) => LookupAnswer::None,
    }
}

/// Of the answers of two mirrors, the one that decides.
fn worse(a: LookupAnswer, b: LookupAnswer) -> LookupAnswer {
    use LookupAnswer::{Known, Mirrored, None, Unknown};
    match (a, b) {
        (Mirrored, _) | (_, Mirrored) => Mirrored,
        (Unknown, _) | (_, Unknown) => Unknown,
        (Known(a), Known(b)) => Known(a.max(b)),
        (Known(epoch), None) | (None, Known(epoch)) => Known(epoch),
        (None, None) => None,
    }
}

/// An early caller takes an error for "not yet" and asks for ever: a mirror that does not exist, or
/// has nothing to show, is left out.
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
    let notice = |n: Notice| early::MirrorNotice {
        kind: Str::from(n.kind),
        item: n.item,
        text: Str::from(n.text),
        since_ms: n.since_ms,
        ..Default::default()
    };
    let notices: Vec<_> = mirror.notices.into_iter().map(notice).collect();
    (!topics.is_empty() || !notices.is_empty()).then(|| early::DescribedMirror {
        notices,
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
        error_message: p.error.map(|e| Str::from(text_cut(&e))),
        last_fetch_age_ms: p.last_fetch_age_ms,
        durable_offset: p.durable_offset,
        skipped_offsets: p.skipped_offsets,
        truncated_offsets: p.truncated_offsets,
        error_since_ms: p.error_since_ms,
        ..Default::default()
    }
}

/// Operations of a mirror by their ACL code (CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8,
/// DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11). Without an authoriser all of them are allowed.
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
        error_message: p.error.map(|e| Str::from(text_cut(&e))),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition::PartitionRecord;

    fn member(desired: DesiredState) -> Membership {
        Membership {
            topic: Str::from("t"),
            topic_id: Uuid([1; 16]),
            mirror: Str::from("m"),
            desired,
            source_topic_id: Uuid::ZERO,
            stopped: desired == DesiredState::Stopped,
            change_offset: 1,
        }
    }

    fn stored(
        state: MirrorState,
        epoch: Option<i32>,
    ) -> Option<Result<Option<Entry>, MirrorError>> {
        let record = PartitionRecord {
            state,
            last_mirror_epoch: epoch,
            ..Default::default()
        };
        Some(Ok(Some(Entry {
            record,
            ..Default::default()
        })))
    }

    /// "nothing was mirrored" is an answer, "cannot say" is another one.
    #[test]
    fn known_none_and_unknown_are_three_answers() {
        use LookupAnswer::{Known, Mirrored, None as Nothing, Unknown};
        let (gone, stopped) = (None, Some(member(DesiredState::Stopped)));
        let active = Some(member(DesiredState::Mirroring));
        let loading = Some(Err(MirrorError::CoordinatorLoading));
        assert_eq!(answer_of(gone.as_ref(), Some(Ok(None))), Nothing);
        assert_eq!(answer_of(gone.as_ref(), loading.clone()), Unknown);
        assert_eq!(answer_of(active.as_ref(), loading), Unknown);
        let of = |m: &Option<Membership>, s| answer_of(m.as_ref(), s);
        assert_eq!(
            of(&stopped, stored(MirrorState::Stopped, Some(4))),
            Known(4)
        );
        assert_eq!(of(&stopped, stored(MirrorState::Stopped, None)), Nothing);
        assert_eq!(
            of(&stopped, stored(MirrorState::Stopping, Some(4))),
            Unknown
        );
        assert_eq!(of(&stopped, Some(Ok(None))), Unknown);
        assert_eq!(of(&active, Some(Ok(None))), Mirrored);
        assert_eq!(worse(Known(3), worse(Nothing, Known(5))), Known(5));
        assert_eq!(worse(Known(3), Unknown), Unknown);
    }
}
