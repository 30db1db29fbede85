//! CreateTopics, DeleteTopics, CreatePartitions, ElectLeaders, BumpLeaderEpochs.

use std::collections::BTreeMap;

use tarn_metadata::config::topic::TOPIC_CONFIGS;
use tarn_metadata::{Image, Record, TopicImage};
use tarn_wire::messages::bump_leader_epochs_response::{BumpPartitionResult, BumpTopicResult};
use tarn_wire::messages::create_partitions_response::CreatePartitionsTopicResult;
use tarn_wire::messages::create_topics_request::CreatableTopic;
use tarn_wire::messages::create_topics_response::{CreatableTopicConfigs, CreatableTopicResult};
use tarn_wire::messages::delete_topics_request::DeleteTopicState;
use tarn_wire::messages::delete_topics_response::DeletableTopicResult;
use tarn_wire::messages::elect_leaders_request::TopicPartitions;
use tarn_wire::messages::elect_leaders_response::{PartitionResult, ReplicaElectionResult};
use tarn_wire::messages::{
    BumpLeaderEpochsRequest, BumpLeaderEpochsResponse, CreatePartitionsRequest,
    CreatePartitionsResponse, CreateTopicsRequest, CreateTopicsResponse, DeleteTopicsRequest,
    DeleteTopicsResponse, ElectLeadersRequest, ElectLeadersResponse, PartitionRecord,
};
use tarn_wire::{ErrorCode, Str, Uuid};

use crate::plan::{
    Bump, Draft, ElectionType, NewTopic, Rules, plan_deletion, plan_election, plan_epoch_bumps,
    plan_partitions, plan_topic, read_only_refusal,
};
use crate::{ApiError, Controller, Ctx};

/// Config source codes of DescribeConfigs.
const SOURCE_TOPIC: i8 = 1;
const SOURCE_STATIC_BROKER: i8 = 4;
const SOURCE_DEFAULT: i8 = 5;

impl Controller {
    /// CreateTopics, with or without the mirror extension. One bad topic spoils only itself.
    pub async fn create_topics(&self, request: CreateTopicsRequest) -> CreateTopicsResponse {
        let names: Vec<Str> = request
            .topics
            .iter()
            .map(|topic| topic.name.clone())
            .collect();
        let created = self
            .submit("create topics", move |image, ctx| {
                create_topics(image, ctx, &request)
            })
            .await;
        let topics = created.unwrap_or_else(|error: ApiError| {
            names
                .into_iter()
                .map(|name| creation_refused(name, &error))
                .collect()
        });
        CreateTopicsResponse {
            topics,
            ..CreateTopicsResponse::default()
        }
    }

    /// DeleteTopics by name or by id.
    pub async fn delete_topics(&self, request: DeleteTopicsRequest) -> DeleteTopicsResponse {
        let by_name = request.topic_names.iter().map(|name| DeleteTopicState {
            name: Some(name.clone()),
            ..DeleteTopicState::default()
        });
        let wanted: Vec<DeleteTopicState> = request.topics.iter().cloned().chain(by_name).collect();
        let asked = wanted.clone();
        let deleted = self
            .submit("delete topics", move |image, _| {
                delete_topics(image, &wanted)
            })
            .await;
        let refused = |error: ApiError| {
            asked
                .iter()
                .map(|topic| deletion_result(topic, Err(error.clone())))
                .collect()
        };
        let responses = deleted.unwrap_or_else(refused);
        DeleteTopicsResponse {
            responses,
            ..DeleteTopicsResponse::default()
        }
    }

    /// CreatePartitions. A mirror's topic that is not failed over is refused (44).
    pub async fn create_partitions(
        &self,
        request: CreatePartitionsRequest,
    ) -> CreatePartitionsResponse {
        let names: Vec<Str> = request
            .topics
            .iter()
            .map(|topic| topic.name.clone())
            .collect();
        let grown = self
            .submit("create partitions", move |image, ctx| {
                create_partitions(image, ctx, &request)
            })
            .await;
        let refused = |error: ApiError| {
            names
                .into_iter()
                .map(|name| growth_result(name, Err(error.clone())))
                .collect()
        };
        let results = grown.unwrap_or_else(refused);
        CreatePartitionsResponse {
            results,
            ..CreatePartitionsResponse::default()
        }
    }

    /// ElectLeaders, preferred or unclean, of named partitions or of all that need one.
    pub async fn elect_leaders(&self, request: ElectLeadersRequest) -> ElectLeadersResponse {
        let named = request.topic_partitions.clone().unwrap_or_default();
        let elected = self
            .submit("elect leaders", move |image, _| {
                elect_leaders(image, &request)
            })
            .await;
        match elected {
            Ok(replica_election_results) => ElectLeadersResponse {
                replica_election_results,
                ..ElectLeadersResponse::default()
            },
            Err::<_, ApiError>(error) => ElectLeadersResponse {
                error_code: error.code.0,
                replica_election_results: named
                    .iter()
                    .map(|topic| election_refused(topic, &error))
                    .collect(),
                ..ElectLeadersResponse::default()
            },
        }
    }

    /// BumpLeaderEpochs: each partition named ends with an epoch above the asked minimum, keeping
    /// its leader.
    pub async fn bump_leader_epochs(
        &self,
        request: BumpLeaderEpochsRequest,
    ) -> BumpLeaderEpochsResponse {
        let bump =
            |topic_id, p: &tarn_wire::messages::bump_leader_epochs_request::BumpPartition| Bump {
                topic_id,
                partition: p.partition_index,
                min_leader_epoch: p.min_leader_epoch,
            };
        let bumps: Vec<Bump> = request
            .topics
            .iter()
            .flat_map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(move |p| bump(topic.topic_id, p))
            })
            .collect();
        let asked = bumps.clone();
        let bumped = self.submit("bump leader epochs", move |image, _| {
            let (records, outcomes) = plan_epoch_bumps(image, &bumps);
            let named = outcomes.into_iter().zip(&bumps).map(|(outcome, bump)| {
                let name = image
                    .topic_by_id(&bump.topic_id)
                    .map_or(Str::EMPTY, |topic| topic.name.clone());
                (name, outcome)
            });
            Ok::<_, ApiError>((records, named.collect::<Vec<_>>()))
        });
        let outcomes = match bumped.await {
            Ok(outcomes) => outcomes,
            Err(error) => {
                return BumpLeaderEpochsResponse {
                    error_code: error.code.0,
                    ..BumpLeaderEpochsResponse::default()
                };
            }
        };
        let mut topics: Vec<(Uuid, BumpTopicResult)> = Vec::new();
        for (bump, (topic_name, outcome)) in asked.iter().zip(outcomes) {
            let error_code = outcome.map_or_else(|error| error.code.0, |_| ErrorCode::NONE.0);
            let result = BumpPartitionResult {
                partition_index: bump.partition,
                error_code,
                ..BumpPartitionResult::default()
            };
            match topics.last_mut().filter(|(id, _)| *id == bump.topic_id) {
                Some((_, topic)) => topic.partitions.push(result),
                None => topics.push((
                    bump.topic_id,
                    BumpTopicResult {
                        topic_name,
                        partitions: vec![result],
                        ..BumpTopicResult::default()
                    },
                )),
            }
        }
        BumpLeaderEpochsResponse {
            topics: topics.into_iter().map(|(_, topic)| topic).collect(),
            ..BumpLeaderEpochsResponse::default()
        }
    }
}

/// New partitions that a request may still ask for (`request.partitions.max`), as Kafka bounds
/// them.
struct RequestRoom {
    left: i32,
    max: i32,
}

impl RequestRoom {
    fn of(rules: &Rules) -> RequestRoom {
        let max = rules.request_partitions_max;
        RequestRoom { left: max, max }
    }

    /// Refuses what has no room before it is planned.
    fn check(&self, partitions: i32) -> Result<(), ApiError> {
        if partitions <= self.left {
            return Ok(());
        }
        let message = format!(
            "more than {} new partitions in one request (request.partitions.max): ask for fewer at a time",
            self.max
        );
        Err(ApiError::new(ErrorCode::POLICY_VIOLATION, message))
    }

    fn take(&mut self, planned: &[Record]) -> Result<(), ApiError> {
        let new = |record: &&Record| matches!(record, Record::Partition(_));
        let partitions = i32::try_from(planned.iter().filter(new).count()).unwrap_or(i32::MAX);
        self.check(partitions)?;
        self.left -= partitions;
        Ok(())
    }
}

type Planned<T> = Result<(Vec<Record>, Vec<T>), ApiError>;

fn create_topics(
    image: &Image,
    ctx: &mut Ctx,
    request: &CreateTopicsRequest,
) -> Planned<CreatableTopicResult> {
    let mut draft = Draft::new(image);
    let mut results = Vec::with_capacity(request.topics.len());
    let mut left = RequestRoom::of(&ctx.rules);
    let mut names: BTreeMap<&Str, u32> = BTreeMap::new();
    for topic in &request.topics {
        *names.entry(&topic.name).or_default() += 1;
    }
    for topic in &request.topics {
        if names.get(&topic.name).is_some_and(|times| *times > 1) {
            let error = ApiError::new(
                ErrorCode::INVALID_REQUEST,
                format!("topic {} is named twice in one request", topic.name),
            );
            results.push(creation_refused(topic.name.clone(), &error));
            continue;
        }
        let planned = left
            .check(topic.num_partitions)
            .and_then(|()| new_topic(topic))
            .and_then(|wanted| plan_topic(draft.image(), ctx, &wanted))
            .and_then(|records| {
                left.take(&records)?;
                let result = created(&topic.name, &records, &ctx.rules);
                draft.add(records).map(|()| result)
            });
        results.push(planned.unwrap_or_else(|error| creation_refused(topic.name.clone(), &error)));
    }
    let records = if request.validate_only {
        Vec::new()
    } else {
        draft.into_records()
    };
    if request.validate_only {
        // Nothing was made, so there is no id to tell.
        results
            .iter_mut()
            .for_each(|result| result.topic_id = Uuid::ZERO);
    }
    Ok((records, results))
}

fn new_topic(topic: &CreatableTopic) -> Result<NewTopic, ApiError> {
    let mut assignments = Vec::with_capacity(topic.assignments.len());
    let mut sorted: Vec<_> = topic.assignments.iter().collect();
    sorted.sort_by_key(|assignment| assignment.partition_index);
    for (index, assignment) in sorted.into_iter().enumerate() {
        if assignment.partition_index != index as i32 {
            let message = "assignments must name every partition from 0 on exactly once";
            return Err(ApiError::new(
                ErrorCode::INVALID_REPLICA_ASSIGNMENT,
                message,
            ));
        }
        assignments.push(assignment.broker_ids.clone());
    }
    let mut configs = Vec::with_capacity(topic.configs.len());
    for config in &topic.configs {
        match &config.value {
            Some(value) => configs.push((config.name.clone(), value.clone())),
            None => {
                return Err(ApiError::new(
                    ErrorCode::INVALID_CONFIG,
                    format!("configuration {} has no value", config.name),
                ));
            }
        }
    }
    Ok(NewTopic {
        name: topic.name.clone(),
        id: topic.mirror_info.as_ref().map(|info| info.topic_id),
        partitions: topic.num_partitions,
        replication_factor: topic.replication_factor,
        assignments,
        configs,
    })
}

fn created(name: &Str, records: &[Record], rules: &Rules) -> CreatableTopicResult {
    let mut result = CreatableTopicResult {
        name: name.clone(),
        error_message: None,
        num_partitions: 0,
        ..CreatableTopicResult::default()
    };
    let mut set: BTreeMap<&Str, &Str> = BTreeMap::new();
    for record in records {
        match record {
            Record::Topic(topic) => result.topic_id = topic.topic_id,
            Record::Partition(PartitionRecord { replicas, .. }) => {
                result.num_partitions += 1;
                result.replication_factor = replicas.len() as i16;
            }
            Record::Config(config) => {
                set.extend(config.value.as_ref().map(|value| (&config.name, value)));
            }
            _ => {}
        }
    }
    let effective = TOPIC_CONFIGS.iter().map(|def| {
        let (value, config_source) = match set.get(&Str::from_static(def.name)) {
            Some(value) => (Some((*value).clone()), SOURCE_TOPIC),
            None => {
                let from_broker = def.synonyms.iter().find_map(|synonym| {
                    rules
                        .broker_values
                        .get(synonym.name)
                        .map(|value| synonym.to_topic_value(value))
                });
                match from_broker {
                    Some(value) => (Some(Str::from(value)), SOURCE_STATIC_BROKER),
                    None => (def.default.map(Str::from_static), SOURCE_DEFAULT),
                }
            }
        };
        CreatableTopicConfigs {
            name: Str::from_static(def.name),
            value,
            read_only: false,
            config_source,
            is_sensitive: def.sensitive,
            ..CreatableTopicConfigs::default()
        }
    });
    result.configs = Some(effective.collect());
    result
}

fn creation_refused(name: Str, error: &ApiError) -> CreatableTopicResult {
    CreatableTopicResult {
        name,
        error_code: error.code.0,
        error_message: error.text(),
        configs: None,
        ..CreatableTopicResult::default()
    }
}

fn delete_topics(image: &Image, wanted: &[DeleteTopicState]) -> Planned<DeletableTopicResult> {
    let mut records = Vec::new();
    let mut results: Vec<DeletableTopicResult> = Vec::with_capacity(wanted.len());
    let mut gone: std::collections::BTreeSet<Uuid> = std::collections::BTreeSet::new();
    for topic in wanted {
        let found = find_topic(image, topic).and_then(|found| match gone.insert(found.id) {
            true => Ok(found),
            false => Err(ApiError::new(
                ErrorCode::INVALID_REQUEST,
                format!("topic {} is named twice in one request", found.name),
            )),
        });
        if let Ok(found) = &found {
            records.extend(plan_deletion(found));
        }
        results.push(deletion_result(topic, found));
    }
    Ok((records, results))
}

fn find_topic<'a>(image: &'a Image, wanted: &DeleteTopicState) -> Result<&'a TopicImage, ApiError> {
    match &wanted.name {
        Some(name) if wanted.topic_id.is_zero() => {
            image.topic(name).map(AsRef::as_ref).ok_or_else(|| {
                ApiError::new(
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("topic {name} does not exist"),
                )
            })
        }
        None if !wanted.topic_id.is_zero() => image
            .topic_by_id(&wanted.topic_id)
            .map(AsRef::as_ref)
            .ok_or_else(|| {
                ApiError::new(
                    ErrorCode::UNKNOWN_TOPIC_ID,
                    format!("topic id {} does not exist", wanted.topic_id),
                )
            }),
        _ => Err(ApiError::new(
            ErrorCode::INVALID_REQUEST,
            "a topic must be named either by name or by id",
        )),
    }
}

fn deletion_result(
    asked: &DeleteTopicState,
    outcome: Result<&TopicImage, ApiError>,
) -> DeletableTopicResult {
    match outcome {
        Ok(topic) => DeletableTopicResult {
            name: Some(topic.name.clone()),
            topic_id: topic.id,
            error_message: None,
            ..DeletableTopicResult::default()
        },
        Err(error) => DeletableTopicResult {
            name: asked.name.clone(),
            topic_id: asked.topic_id,
            error_code: error.code.0,
            error_message: error.text(),
            ..DeletableTopicResult::default()
        },
    }
}

fn create_partitions(
    image: &Image,
    ctx: &mut Ctx,
    request: &CreatePartitionsRequest,
) -> Planned<CreatePartitionsTopicResult> {
    let mut draft = Draft::new(image);
    let mut left = RequestRoom::of(&ctx.rules);
    let mut results = Vec::with_capacity(request.topics.len());
    let mut seen = std::collections::BTreeSet::new();
    for topic in &request.topics {
        let outcome = match seen.insert(&topic.name) {
            false => Err(ApiError::new(
                ErrorCode::INVALID_REQUEST,
                format!("topic {} is named twice in one request", topic.name),
            )),
            true => read_only_refusal(image, &topic.name).and_then(|()| {
                let manual: Option<Vec<Vec<i32>>> = topic
                    .assignments
                    .as_ref()
                    .map(|list| list.iter().map(|a| a.broker_ids.clone()).collect());
                let present = draft
                    .image()
                    .topic(&topic.name)
                    .map(|t| t.partition_count());
                left.check(topic.count.saturating_sub(present.unwrap_or(0)))?;
                let records =
                    plan_partitions(draft.image(), &topic.name, topic.count, manual.as_deref())?;
                left.take(&records)?;
                draft.add(records)
            }),
        };
        results.push(growth_result(topic.name.clone(), outcome));
    }
    let records = if request.validate_only {
        Vec::new()
    } else {
        draft.into_records()
    };
    Ok((records, results))
}

fn growth_result(name: Str, outcome: Result<(), ApiError>) -> CreatePartitionsTopicResult {
    let (error_code, error_message) = outcome.map_or_else(
        |error| (error.code.0, error.text()),
        |()| (ErrorCode::NONE.0, None),
    );
    CreatePartitionsTopicResult {
        name,
        error_code,
        error_message,
        ..CreatePartitionsTopicResult::default()
    }
}

fn elect_leaders(image: &Image, request: &ElectLeadersRequest) -> Planned<ReplicaElectionResult> {
    let kind = match request.election_type {
        0 => ElectionType::Preferred,
        1 => ElectionType::Unclean,
        other => {
            return Err(ApiError::new(
                ErrorCode::INVALID_REQUEST,
                format!("election type {other} is not known"),
            ));
        }
    };
    let mut records = Vec::new();
    let mut results = Vec::new();
    let Some(named) = &request.topic_partitions else {
        for topic in image.topics().iter() {
            // Every topic is named, with the partitions whose leader changed or could not be
            // elected.
            let partition_result = (0..topic.partition_count())
                .map(|index| (index, plan_election(image, topic, index, kind)))
                .filter(|(_, outcome)| {
                    !matches!(outcome, Err(e) if e.code == ErrorCode::ELECTION_NOT_NEEDED)
                })
                .map(|(index, outcome)| {
                    election_result(index, outcome.map(|record| records.push(record)))
                })
                .collect();
            results.push(ReplicaElectionResult {
                topic: topic.name.clone(),
                partition_result,
                ..ReplicaElectionResult::default()
            });
        }
        return Ok((records, results));
    };
    for wanted in named {
        let elect = |index: &i32| {
            let unknown = || {
                ApiError::new(
                    ErrorCode::UNKNOWN_TOPIC_OR_PARTITION,
                    format!("topic {} does not exist", wanted.topic),
                )
            };
            let outcome = image
                .topic(&wanted.topic)
                .ok_or_else(unknown)
                .and_then(|topic| plan_election(image, topic, *index, kind));
            (*index, outcome)
        };
        let mut partition_result = Vec::with_capacity(wanted.partitions.len());
        for (index, outcome) in wanted.partitions.iter().map(elect) {
            partition_result.push(election_result(
                index,
                outcome.map(|record| records.push(record)),
            ));
        }
        results.push(ReplicaElectionResult {
            topic: wanted.topic.clone(),
            partition_result,
            ..ReplicaElectionResult::default()
        });
    }
    Ok((records, results))
}

/// A whole request that was refused: its partitions carry the error, too, since the first version
/// has no other place for it.
fn election_refused(topic: &TopicPartitions, error: &ApiError) -> ReplicaElectionResult {
    ReplicaElectionResult {
        topic: topic.topic.clone(),
        partition_result: topic
            .partitions
            .iter()
            .map(|index| election_result(*index, Err(error.clone())))
            .collect(),
        ..ReplicaElectionResult::default()
    }
}

fn election_result(partition_id: i32, outcome: Result<(), ApiError>) -> PartitionResult {
    let (error_code, error_message) = outcome.map_or_else(
        |error| (error.code.0, error.text()),
        |()| (ErrorCode::NONE.0, None),
    );
    PartitionResult {
        partition_id,
        error_code,
        error_message,
        ..PartitionResult::default()
    }
}
