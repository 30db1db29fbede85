//! Questions about topics: which exist, how they are made up, how they are configured.

use std::collections::{HashMap, HashSet};

use tarn_client::{ClientError, MetadataTopics, text_cut};
use tarn_metadata::check_topic_name;
use tarn_wire::messages::describe_configs_request::DescribeConfigsResource;
use tarn_wire::messages::describe_configs_response::DescribeConfigsResult;
use tarn_wire::messages::metadata_response::MetadataResponseTopic;
use tarn_wire::messages::{DescribeConfigsRequest, MetadataRequest, MetadataResponse};
use tarn_wire::{ErrorCode, Message, Str, VersionRange};

use super::{SourceClient, SourceError, is_denial};
use crate::config::CARRIED;
use crate::seam::{
    SourceCluster, SourceEntries, SourcePartition, SourceTopic, SourceTopicConfigs, TopicAnswer,
};

/// Topics in one DescribeConfigs.
const CONFIGS_CHUNK: usize = 200;
/// Topics in one Metadata by name.
const NAMES_CHUNK: usize = 1_000;
/// Most partitions of one topic that are believed.
const PARTITIONS_MAX: usize = 100_000;
/// `DescribeConfigsResponse` source of an entry that was set on the topic itself.
const DYNAMIC_TOPIC_CONFIG: i8 = 1;
/// `DescribeConfigsRequest` resource type of a topic.
const TOPIC_RESOURCE: i8 = 2;
/// Longest cluster id that is believed; Kafka's own have 22 characters.
const CLUSTER_ID_BYTES_MAX: usize = 255;
/// Longest name of a topic config that is taken over.
const NAME_BYTES_MAX: usize = 255;
/// Longest value of a topic config that is taken over, in bytes; lists of replicas are the longest.
const VALUE_BYTES_MAX: usize = 16 * 1024;
/// Oldest Fetch with record batches; an older source cannot be mirrored.
const FETCH_MIN: i16 = 4;

/// Who the source is. Also tells a source that is too old to be fetched from.
pub(super) async fn cluster(client: &SourceClient) -> Result<SourceCluster, SourceError> {
    // The id is what is asked for here, so another cluster's is an answer too; nothing else of what
    // it says is.
    let cluster = client.cluster()?;
    let outcome = cluster.metadata(&MetadataTopics::None).await;
    if let Err(ClientError::WrongCluster { found, .. }) = outcome {
        return Ok(SourceCluster {
            cluster_id: Some(found),
            brokers: 0,
            has_topic_ids: false,
        });
    }
    let response = client.note(outcome)?;
    let any = client.note(cluster.any().await)?;
    let fetch = VersionRange::new(FETCH_MIN, 18);
    client.note(
        any.versions()
            .require::<tarn_wire::messages::FetchRequest>(any.peer(), fetch)
            .map(|_| ()),
    )?;
    let metadata = any
        .versions()
        .common::<MetadataRequest>(MetadataRequest::VERSIONS);
    let cluster_id = response.cluster_id.as_ref().filter(|id| !id.is_empty());
    if cluster_id.is_some_and(|id| id.len() > CLUSTER_ID_BYTES_MAX) {
        return Err(SourceError::Other(format!(
            "the cluster id of the source is longer than {CLUSTER_ID_BYTES_MAX} bytes"
        )));
    }
    Ok(SourceCluster {
        cluster_id: cluster_id.map(Str::detach),
        brokers: response.brokers.len(),
        has_topic_ids: metadata.is_some_and(|v| v >= 10),
    })
}

/// All topics that are neither internal nor ill-named nor broken.
pub(super) async fn all(client: &SourceClient) -> Result<Vec<SourceTopic>, SourceError> {
    let response = client.metadata(&MetadataTopics::All).await?;
    let usable = |t: &&MetadataResponseTopic| !t.is_internal;
    Ok(response
        .topics
        .iter()
        .filter(usable)
        .filter_map(|t| source_topic(t).ok())
        .collect())
}

/// One answer per name; only what two questions agree on is an absence.
pub(super) async fn named(
    client: &SourceClient,
    names: Vec<Str>,
) -> Result<Vec<TopicAnswer>, SourceError> {
    let mut answers: HashMap<Str, TopicAnswer> = HashMap::new();
    let mut missing = false;
    for chunk in names.chunks(NAMES_CHUNK) {
        let response = client
            .metadata(&MetadataTopics::Names(chunk.to_vec()))
            .await?;
        for topic in &response.topics {
            let Some(name) = topic.name.as_ref().map(Str::detach) else {
                continue;
            };
            missing |= topic.error_code == ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
            let answer = match source_topic(topic) {
                Ok(present) => TopicAnswer::Present(present),
                Err(why) => TopicAnswer::Unknown(why),
            };
            answers.insert(name, answer);
        }
    }
    if missing {
        confirm_absences(client, &mut answers).await?;
    }
    let unanswered =
        || TopicAnswer::Unknown("the source did not answer for this topic".to_string());
    Ok(names
        .iter()
        .map(|name| answers.remove(name).unwrap_or_else(unanswered))
        .collect())
}

async fn confirm_absences(
    client: &SourceClient,
    answers: &mut HashMap<Str, TopicAnswer>,
) -> Result<(), SourceError> {
    let response = client.metadata(&MetadataTopics::All).await?;
    if !knows_its_cluster(&response) {
        return Ok(());
    }
    let listed: HashSet<&str> = response
        .topics
        .iter()
        .filter_map(|t| t.name.as_deref())
        .collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.name();
    for (name, answer) in answers.iter_mut() {
        if matches!(answer, TopicAnswer::Unknown(why) if why.contains(unknown))
            && !listed.contains(&**name)
        {
            *answer = TopicAnswer::Absent;
        }
    }
    Ok(())
}

/// A broker that has just started answers with nothing; that is not a cluster without topics.
fn knows_its_cluster(response: &MetadataResponse) -> bool {
    !response.brokers.is_empty()
        && response.controller_id >= 0
        && response.error_code == ErrorCode::NONE.0
}

/// A topic of a metadata answer, checked; the error says what is wrong with it.
pub(crate) fn source_topic(topic: &MetadataResponseTopic) -> Result<SourceTopic, String> {
    let name = topic
        .name
        .as_ref()
        .map(|name| Str::from(text_cut(name)))
        .ok_or("the source named no topic")?;
    let code = ErrorCode(topic.error_code);
    if ![ErrorCode::NONE, ErrorCode::LEADER_NOT_AVAILABLE].contains(&code) {
        let what = if is_denial(code) {
            "not authorized at the source: "
        } else {
            ""
        };
        return Err(format!("{what}{} for topic {name}", code.name()));
    }
    check_topic_name(&name).map_err(|e| format!("topic name of the source refused: {e}"))?;
    if topic.partitions.is_empty() || topic.partitions.len() > PARTITIONS_MAX {
        return Err(format!(
            "the source names {} partitions of topic {name}",
            topic.partitions.len()
        ));
    }
    let mut partitions: Vec<SourcePartition> = topic
        .partitions
        .iter()
        .map(|p| SourcePartition {
            partition: p.partition_index,
            leader: (p.leader_id >= 0).then_some(p.leader_id),
            leader_epoch: (p.leader_epoch >= 0).then_some(p.leader_epoch),
        })
        .collect();
    partitions.sort_by_key(|p| p.partition);
    let contiguous = partitions
        .iter()
        .zip(0..)
        .all(|(p, index)| p.partition == index);
    if !contiguous {
        return Err(format!(
            "the source names partitions of topic {name} with gaps"
        ));
    }
    Ok(SourceTopic {
        name,
        id: (!topic.topic_id.is_zero()).then_some(topic.topic_id),
        partitions,
    })
}

/// Entries that were set on the topics themselves, and what else decides how their records are
/// kept. A topic that fails spoils only itself.
pub(super) async fn configs(
    client: &SourceClient,
    names: Vec<Str>,
) -> Result<Vec<SourceTopicConfigs>, SourceError> {
    let mut found: HashMap<Str, Result<SourceEntries, String>> = HashMap::new();
    // Version 1 is the first that says where an entry comes from.
    let wanted = VersionRange::new(1, DescribeConfigsRequest::VERSIONS.max);
    for chunk in names.chunks(CONFIGS_CHUNK) {
        let resource = |name: &Str| DescribeConfigsResource {
            resource_type: TOPIC_RESOURCE,
            resource_name: name.clone(),
            configuration_keys: None,
            ..Default::default()
        };
        let request = DescribeConfigsRequest {
            resources: chunk.iter().map(resource).collect(),
            ..Default::default()
        };
        let response = client.note(client.cluster()?.ask_any(&request, wanted).await)?;
        for result in &response.results {
            found.insert(result.resource_name.detach(), entries_of(result));
        }
    }
    let unanswered = || Err("the source did not answer for this topic".to_string());
    let answer = |name: Str| SourceTopicConfigs {
        entries: found.remove(&name).unwrap_or_else(unanswered),
        name,
    };
    Ok(names.into_iter().map(answer).collect())
}

fn entries_of(result: &DescribeConfigsResult) -> Result<SourceEntries, String> {
    let code = ErrorCode(result.error_code);
    if code != ErrorCode::NONE {
        let text = result
            .error_message
            .as_deref()
            .filter(|text| !text.is_empty())
            .unwrap_or_else(|| code.message());
        return Err(format!("{}: {}", code.name(), text_cut(text)));
    }
    let mut entries = SourceEntries::default();
    for entry in &result.configs {
        let Some(value) = &entry.value else { continue };
        if entry.name.len() > NAME_BYTES_MAX || value.len() > VALUE_BYTES_MAX {
            continue;
        }
        let pair = (entry.name.detach(), value.detach());
        if entry.config_source == DYNAMIC_TOPIC_CONFIG {
            entries.own.push(pair);
        } else if CARRIED.contains(&&*pair.0) {
            entries.inherited.push(pair);
        }
    }
    Ok(entries)
}

#[cfg(test)]
mod tests {
    //! What is believed of a metadata answer.

    use tarn_wire::Uuid;
    use tarn_wire::messages::metadata_response::MetadataResponsePartition;

    use super::*;

    fn topic(name: &str, partitions: &[i32]) -> MetadataResponseTopic {
        let partition = |&p: &i32| MetadataResponsePartition {
            partition_index: p,
            leader_id: 1,
            ..Default::default()
        };
        MetadataResponseTopic {
            name: Some(Str::from(name)),
            topic_id: Uuid([7; 16]),
            partitions: partitions.iter().map(partition).collect(),
            ..Default::default()
        }
    }

    #[test]
    fn a_hostile_name_or_a_gap_is_refused() {
        assert!(source_topic(&topic("../x", &[0])).is_err());
        assert!(source_topic(&topic(".", &[0])).is_err());
        assert!(source_topic(&topic(&"a".repeat(250), &[0])).is_err());
        assert!(source_topic(&topic("t", &[0, 2])).is_err());
        assert!(source_topic(&topic("t", &[])).is_err());
        let good = source_topic(&topic("t", &[1, 0])).unwrap();
        assert_eq!(
            good.partitions
                .iter()
                .map(|p| p.partition)
                .collect::<Vec<_>>(),
            [0, 1]
        );
    }

    #[test]
    fn an_error_is_not_an_absence() {
        let denied = MetadataResponseTopic {
            error_code: ErrorCode::TOPIC_AUTHORIZATION_FAILED.0,
            ..topic("t", &[])
        };
        assert!(
            source_topic(&denied)
                .unwrap_err()
                .starts_with("not authorized")
        );
        let starting = MetadataResponse {
            controller_id: -1,
            ..Default::default()
        };
        assert!(!knows_its_cluster(&starting));
    }
}
