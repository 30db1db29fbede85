//! Data plane: what the source remembers of mirroring from us (mirroring.md §11), over the mirror RPCs 98 and 99 of a foreign cluster.
//!
//! Asks in the late form, which an early server reads too, and decodes the answer strictly as late, then as early. The result is
//! three-valued: only a source that certainly has no mirror from us, or no mirroring at all, is "no record".

use std::collections::BTreeMap;

use bytes::Bytes;
use tarn_client::{Handle, MetadataTopics, Versions};
use tarn_wire::messages::describe_cluster_mirrors_request::LastMirrorEpochLookup;
use tarn_wire::messages::{
    DescribeClusterMirrorsRequest, DescribeClusterMirrorsResponse, DescribeMirrorsResponse,
    ListClusterMirrorsRequest, ListClusterMirrorsResponse, ListMirrorsResponse,
};
use tarn_wire::{ApiKey, ErrorCode, Message, Str, Uuid, decode_exact, encode_body};

use crate::prepare::decide::Lookup;
use crate::seam::{ForeignMirror, SourceError};
use crate::source::SourceClient;

const LIST: ApiKey = ApiKey(98);
const DESCRIBE: ApiKey = ApiKey(99);
/// The control keys of mirroring; a stock Kafka may use single ones of these numbers for something else.
const MIRROR_KEYS: [i16; 4] = [95, 96, 98, 99];
/// State name of a partition that is not mirrored any more, the same in all dialects.
const STOPPED: &str = "STOPPED";

/// Whether a broker has mirroring.
fn has_mirroring(versions: &Versions) -> bool {
    MIRROR_KEYS.iter().all(|&key| {
        versions
            .range(ApiKey(key))
            .is_some_and(|r| r.min == 0 && r.max == 0)
    })
}

/// One mirror of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Listed {
    name: Str,
    source_cluster_id: Str,
    /// Topics that are not stopped; `None` = this dialect does not list them.
    active_topics: Option<Vec<Str>>,
}

/// What a broker of the source says of its mirrors' partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Described {
    /// Mirror, topic, partition, state name, last mirror epoch (early) or −1.
    partitions: Vec<(Str, Str, i32, Str, i32)>,
    /// Answers to the look-ups (late).
    lookups: Vec<(Uuid, i32, i32)>,
}

/// Mirrors the source runs from `cluster_id`, with the topics that are not stopped. Empty when it has no mirroring.
pub(crate) async fn mirrors_from(
    client: &SourceClient,
    cluster_id: Str,
) -> Result<Vec<ForeignMirror>, SourceError> {
    let Some(handles) = capable_brokers(client).await? else {
        return Ok(Vec::new());
    };
    let Some(first) = handles.first() else {
        return Ok(Vec::new());
    };
    let listed = list(client, first).await?;
    let mut found: BTreeMap<Str, ForeignMirror> = BTreeMap::new();
    let mut ask_topics = false;
    for mirror in listed
        .into_iter()
        .filter(|m| m.source_cluster_id == cluster_id)
    {
        ask_topics |= mirror.active_topics.is_none();
        let foreign = ForeignMirror {
            name: mirror.name.clone(),
            source_cluster_id: mirror.source_cluster_id,
            active_topics: mirror.active_topics.unwrap_or_default(),
        };
        found.insert(mirror.name, foreign);
    }
    if ask_topics {
        let names: Vec<Str> = found.keys().cloned().collect();
        for handle in &handles {
            let described = describe(client, handle, &names, None, &[]).await?;
            for (mirror, topic, _, state, _) in described.partitions {
                let Some(foreign) = found.get_mut(&mirror).filter(|_| state != STOPPED) else {
                    continue;
                };
                if !foreign.active_topics.contains(&topic) {
                    foreign.active_topics.push(topic);
                }
            }
        }
    }
    Ok(found.into_values().collect())
}

/// What the look-up of one partition gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum LookupOutcome {
    /// As far as the decision is concerned.
    Found(Lookup),
    /// The source still mirrors the partition from us.
    Loop(String),
}

/// Asks every broker of the source for the last epoch it mirrored of this partition from us.
pub(crate) async fn last_mirror_epoch(
    client: &SourceClient,
    own_cluster_id: &Str,
    (topic_id, topic, partition): (Uuid, &Str, i32),
) -> LookupOutcome {
    let unknown = |e: SourceError| LookupOutcome::Found(Lookup::Unknown(e.to_string()));
    let handles = match capable_brokers(client).await {
        Ok(Some(handles)) => handles,
        Ok(None) => return LookupOutcome::Found(Lookup::NoRecord),
        Err(e) => return unknown(e),
    };
    let Some(first) = handles.first() else {
        return LookupOutcome::Found(Lookup::NoRecord);
    };
    let listed = match list(client, first).await {
        Ok(listed) => listed,
        Err(e) => return unknown(e),
    };
    // A mirror that does not know its source yet may be one from us.
    let may_be_ours =
        |m: &&Listed| m.source_cluster_id == *own_cluster_id || m.source_cluster_id.is_empty();
    let names: Vec<Str> = listed
        .iter()
        .filter(may_be_ours)
        .map(|m| m.name.clone())
        .collect();
    let certain = listed
        .iter()
        .any(|m| m.source_cluster_id == *own_cluster_id);
    if names.is_empty() {
        return LookupOutcome::Found(Lookup::NoRecord);
    }
    let mut answers = Vec::new();
    for handle in &handles {
        match describe(
            client,
            handle,
            &names,
            Some(own_cluster_id),
            &[(topic_id, partition)],
        )
        .await
        {
            Ok(described) => answers.push(described),
            Err(e) => return unknown(e),
        }
    }
    judge(&answers, (topic_id, topic, partition), certain)
}

/// Pure: the answers of all brokers to one look-up. `certain` = a mirror from us exists.
fn judge(
    answers: &[Described],
    (topic_id, topic, partition): (Uuid, &Str, i32),
    certain: bool,
) -> LookupOutcome {
    let mut epoch = -1;
    let mut listed = false;
    for answer in answers {
        for (mirror, name, index, state, last_epoch) in &answer.partitions {
            if name != topic || *index != partition {
                continue;
            }
            listed = true;
            if state != STOPPED && certain {
                let text = format!(
                    "the source still mirrors {topic}-{partition} from here in its mirror {mirror} ({state}): stop it there first"
                );
                return LookupOutcome::Loop(text);
            }
            epoch = epoch.max(*last_epoch);
        }
        let mine = answer
            .lookups
            .iter()
            .filter(|(id, index, _)| *id == topic_id && *index == partition);
        epoch = mine.map(|&(_, _, found)| found).fold(epoch, i32::max);
    }
    LookupOutcome::Found(match epoch {
        0.. => Lookup::Epoch(epoch),
        _ if certain || listed => Lookup::Unknown(format!(
            "the source has a mirror from here but does not tell the last mirror epoch of {topic}-{partition} (its coordinator may be loading)"
        )),
        _ => Lookup::NoRecord,
    })
}

/// Connections to all brokers when they have mirroring; `None` when none of them has.
async fn capable_brokers(client: &SourceClient) -> Result<Option<Vec<Handle>>, SourceError> {
    let cluster = client.cluster()?;
    client.metadata(&MetadataTopics::None).await?;
    let ids: Vec<i32> = cluster.view().brokers.keys().copied().collect();
    let mut handles = Vec::new();
    for id in ids {
        let handle = client.note(cluster.broker(id).await)?;
        if has_mirroring(handle.versions()) {
            handles.push(handle);
        }
    }
    Ok((!handles.is_empty()).then_some(handles))
}

async fn list(client: &SourceClient, handle: &Handle) -> Result<Vec<Listed>, SourceError> {
    let mut answer = ask_list(client, handle, false).await?;
    if answer.iter().any(|m| m.active_topics.is_some()) {
        // Proven late: only now may the body say so, an early server would misread it.
        answer = ask_list(client, handle, true).await?;
    }
    Ok(answer)
}

async fn ask_list(
    client: &SourceClient,
    handle: &Handle,
    include_topic_names: bool,
) -> Result<Vec<Listed>, SourceError> {
    let request = ListClusterMirrorsRequest {
        include_topic_names,
        ..Default::default()
    };
    let body = ask(client, handle, LIST, &request).await?;
    if let Ok(late) = decode_exact::<ListClusterMirrorsResponse>(body.clone(), 0) {
        check(late.error_code, late.error_message.as_deref())?;
        let listed =
            |m: &tarn_wire::messages::list_cluster_mirrors_response::ListedMirror| Listed {
                name: m.mirror_name.detach(),
                source_cluster_id: m.source_cluster_id.detach(),
                active_topics: Some(m.topic_names.iter().map(Str::detach).collect()),
            };
        return Ok(late.mirrors.iter().map(listed).collect());
    }
    let early = decode_exact::<ListMirrorsResponse>(body, 0)
        .map_err(|e| unreadable("ListMirrors", &e.to_string()))?;
    check(early.error_code, early.error_message.as_deref())?;
    let listed = |m: &tarn_wire::messages::list_mirrors_response::ListedMirror| Listed {
        name: m.mirror_name.detach(),
        source_cluster_id: m.source_cluster_id.detach(),
        active_topics: None,
    };
    Ok(early.mirrors.iter().map(listed).collect())
}

async fn describe(
    client: &SourceClient,
    handle: &Handle,
    mirrors: &[Str],
    own_cluster_id: Option<&Str>,
    wanted: &[(Uuid, i32)],
) -> Result<Described, SourceError> {
    let lookup = |&(topic_id, p): &(Uuid, i32)| LastMirrorEpochLookup {
        topic_id,
        partitions: vec![p],
        ..Default::default()
    };
    let request = DescribeClusterMirrorsRequest {
        mirror_names: mirrors.to_vec(),
        cluster_id: own_cluster_id.cloned(),
        last_mirror_epoch_lookups: wanted.iter().map(lookup).collect(),
        ..Default::default()
    };
    let body = ask(client, handle, DESCRIBE, &request).await?;
    if let Ok(late) = decode_exact::<DescribeClusterMirrorsResponse>(body.clone(), 0) {
        check(late.error_code, late.error_message.as_deref())?;
        return Ok(described_late(&late));
    }
    let early = decode_exact::<DescribeMirrorsResponse>(body, 0)
        .map_err(|e| unreadable("DescribeMirrors", &e.to_string()))?;
    check(early.error_code, early.error_message.as_deref())?;
    Ok(described_early(&early))
}

fn described_late(response: &DescribeClusterMirrorsResponse) -> Described {
    let mut described = Described::default();
    for mirror in &response.mirrors {
        for topic in &mirror.topics {
            for p in &topic.partitions {
                let entry = (
                    mirror.mirror_name.detach(),
                    topic.topic_name.detach(),
                    p.partition_index,
                    p.state_value.detach(),
                    -1,
                );
                described.partitions.push(entry);
            }
        }
    }
    for result in &response.lookup_results {
        let of = |p: &tarn_wire::messages::describe_cluster_mirrors_response::LookupPartition| {
            (result.topic_id, p.partition_index, p.last_mirror_epoch)
        };
        described.lookups.extend(result.partitions.iter().map(of));
    }
    described
}

fn described_early(response: &DescribeMirrorsResponse) -> Described {
    let mut described = Described::default();
    for mirror in &response.mirrors {
        for topic in &mirror.topics {
            for p in &topic.partitions {
                described.partitions.push((
                    mirror.mirror_name.detach(),
                    topic.topic_name.detach(),
                    p.partition_index,
                    p.state.detach(),
                    p.last_mirror_epoch,
                ));
            }
        }
    }
    described
}

async fn ask<M: Message>(
    client: &SourceClient,
    handle: &Handle,
    key: ApiKey,
    request: &M,
) -> Result<Bytes, SourceError> {
    let body = encode_body(request, 0)
        .ok()
        .and_then(|frame| frame.to_bytes());
    let body = body.ok_or_else(|| SourceError::Other(format!("cannot encode {}", M::NAME)))?;
    client.note(handle.call_raw(key, 0, true, body).await)
}

fn unreadable(api: &str, detail: &str) -> SourceError {
    SourceError::Other(format!(
        "the source's answer to {api} fits no known form: {detail}"
    ))
}

fn check(code: i16, message: Option<&str>) -> Result<(), SourceError> {
    match ErrorCode(code) {
        ErrorCode::NONE => Ok(()),
        // The feature is announced but switched off.
        ErrorCode::UNSUPPORTED_VERSION => Ok(()),
        code => Err(SourceError::Other(format!(
            "the source refused: {}",
            message.unwrap_or_else(|| code.message())
        ))),
    }
}

#[cfg(test)]
mod tests {
    //! How the answers of all brokers become one of three values.

    use super::*;

    const ID: Uuid = Uuid([9; 16]);

    fn t() -> Str {
        Str::from("t")
    }

    fn early(state: &str, epoch: i32) -> Described {
        Described {
            partitions: vec![(Str::from("m"), t(), 0, Str::from(state), epoch)],
            lookups: vec![],
        }
    }

    fn judged(answers: &[Described], certain: bool) -> LookupOutcome {
        judge(answers, (ID, &t(), 0), certain)
    }

    #[test]
    fn the_highest_epoch_any_broker_tells_counts() {
        let late = Described {
            partitions: vec![],
            lookups: vec![(ID, 0, 4), (ID, 1, 9)],
        };
        let none = Described {
            partitions: vec![],
            lookups: vec![(ID, 0, -1)],
        };
        assert_eq!(
            judged(&[none, late], true),
            LookupOutcome::Found(Lookup::Epoch(4))
        );
        assert_eq!(
            judged(&[early(STOPPED, 2)], true),
            LookupOutcome::Found(Lookup::Epoch(2))
        );
    }

    #[test]
    fn minus_one_from_a_source_that_mirrors_from_us_is_not_an_absence() {
        let none = Described {
            partitions: vec![],
            lookups: vec![(ID, 0, -1)],
        };
        assert!(matches!(
            judged(&[none], true),
            LookupOutcome::Found(Lookup::Unknown(_))
        ));
        assert!(matches!(
            judged(&[early(STOPPED, -1)], false),
            LookupOutcome::Found(Lookup::Unknown(_))
        ));
        assert_eq!(
            judged(&[Described::default()], false),
            LookupOutcome::Found(Lookup::NoRecord)
        );
    }

    #[test]
    fn a_partition_the_source_still_mirrors_from_us_is_a_loop() {
        assert!(matches!(
            judged(&[early("PAUSED", 3)], true),
            LookupOutcome::Loop(_)
        ));
        assert!(matches!(
            judged(&[early("MIRRORING", -1)], true),
            LookupOutcome::Loop(_)
        ));
    }
}
