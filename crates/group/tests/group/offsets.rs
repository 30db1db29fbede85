//! Offsets over the wire: commit, fetch, delete, in every version and every shape of error.

use tarn_wire::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use tarn_wire::messages::offset_delete_request::{
    OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
};
use tarn_wire::messages::offset_fetch_request::{
    OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
};
use tarn_wire::messages::{OffsetCommitRequest, OffsetDeleteRequest, OffsetFetchRequest};
use tarn_wire::{ErrorCode, Str, Uuid};

use crate::world::{World, checked, id, join_request, sync_request};

fn commit_request(
    version: i16,
    group: &str,
    topic: &str,
    partitions: &[(i32, i64)],
) -> OffsetCommitRequest {
    let by_id = version >= 10;
    OffsetCommitRequest {
        group_id: Str::from(group),
        topics: vec![OffsetCommitRequestTopic {
            name: if by_id { Str::EMPTY } else { Str::from(topic) },
            topic_id: if by_id { id(topic) } else { Uuid::ZERO },
            partitions: partitions
                .iter()
                .map(
                    |&(partition_index, committed_offset)| OffsetCommitRequestPartition {
                        partition_index,
                        committed_offset,
                        committed_leader_epoch: if version >= 6 { 4 } else { -1 },
                        committed_metadata: Some(Str::from("xyz")),
                        ..Default::default()
                    },
                )
                .collect(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

async fn commit(world: &World, request: OffsetCommitRequest, version: i16) -> Vec<i16> {
    let response = checked(world.groups.offset_commit(request, version).await, version);
    response
        .topics
        .iter()
        .flat_map(|topic| topic.partitions.iter().map(|p| p.error_code))
        .collect()
}

/// Error above the partitions, and (index, offset, epoch, metadata, error) of each.
type Fetched = (i16, Vec<(i32, i64, i32, String, i16)>);

async fn fetch(
    world: &World,
    version: i16,
    group: &str,
    topics: Option<&[(&str, &[i32])]>,
) -> Fetched {
    let group = Str::from(group);
    let request = if version >= 8 {
        let topic = |(name, partitions): &(&str, &[i32])| OffsetFetchRequestTopics {
            name: if version >= 10 {
                Str::EMPTY
            } else {
                Str::from(*name)
            },
            topic_id: if version >= 10 { id(name) } else { Uuid::ZERO },
            partition_indexes: partitions.to_vec(),
            ..Default::default()
        };
        let topics = topics.map(|topics| topics.iter().map(topic).collect());
        let group = OffsetFetchRequestGroup {
            group_id: group,
            topics,
            ..Default::default()
        };
        OffsetFetchRequest {
            groups: vec![group],
            ..Default::default()
        }
    } else {
        let topic = |(name, partitions): &(&str, &[i32])| OffsetFetchRequestTopic {
            name: Str::from(*name),
            partition_indexes: partitions.to_vec(),
            ..Default::default()
        };
        let topics = topics.map(|topics| topics.iter().map(topic).collect());
        OffsetFetchRequest {
            group_id: group,
            topics,
            ..Default::default()
        }
    };
    let fetched = world.groups.offset_fetch(request, version, &|_| Ok(()));
    let response = checked(fetched.await, version);
    if let Some(group) = response.groups.first() {
        let partitions = group
            .topics
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|p| {
                let metadata = p.metadata.clone().unwrap_or_default().to_string();
                (
                    p.partition_index,
                    p.committed_offset,
                    p.committed_leader_epoch,
                    metadata,
                    p.error_code,
                )
            });
        return (group.error_code, partitions.collect());
    }
    let partitions = response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|p| {
            let metadata = p.metadata.clone().unwrap_or_default().to_string();
            (
                p.partition_index,
                p.committed_offset,
                p.committed_leader_epoch,
                metadata,
                p.error_code,
            )
        });
    (response.error_code, partitions.collect())
}

#[tokio::test]
async fn what_was_committed_is_fetched_in_every_version_and_after_a_reload() {
    let mut world = World::new().await;
    for version in 2..=10 {
        let group = format!("g{version}");
        let request = commit_request(
            version,
            &group,
            "t",
            &[(0, 40 + i64::from(version)), (1, 7)],
        );
        assert_eq!(
            commit(&world, request, version).await,
            [0, 0],
            "version {version}"
        );
    }
    for reload in [false, true] {
        if reload {
            world.reload().await;
        }
        for version in 1..=10 {
            let (error, partitions) =
                fetch(&world, version, "g6", Some(&[("t", &[0, 1, 5])])).await;
            assert_eq!(error, 0);
            assert_eq!(
                partitions[0],
                (0, 46, 4, "xyz".to_owned(), 0),
                "version {version}"
            );
            assert_eq!(
                partitions[2],
                (5, -1, -1, String::new(), 0),
                "version {version}"
            );
        }
        for version in [2, 8, 10] {
            let (_, partitions) = fetch(&world, version, "g6", None).await;
            assert_eq!(partitions.len(), 2, "all offsets of the group");
        }
    }
}

#[tokio::test]
async fn an_unknown_group_has_no_offsets_and_no_error() {
    let world = World::new().await;
    for version in 1..=10 {
        let fetched = fetch(&world, version, "none", Some(&[("t", &[0])])).await;
        assert_eq!(
            fetched,
            (0, vec![(0, -1, -1, String::new(), 0)]),
            "version {version}"
        );
    }
}

#[tokio::test]
async fn a_coordinator_that_cannot_answer_says_so_where_the_version_looks_for_it() {
    let mut world = World::new().await;
    world.without_coordinator().await;
    let code = ErrorCode::COORDINATOR_NOT_AVAILABLE.0;
    let ask = Some(&[("t", &[0][..])][..]);
    assert_eq!(
        fetch(&world, 1, "g", ask).await,
        (0, vec![(0, -1, -1, String::new(), code)])
    );
    for version in 2..=10 {
        assert_eq!(
            fetch(&world, version, "g", ask).await,
            (code, vec![]),
            "version {version}"
        );
    }
}

#[tokio::test]
async fn each_offset_is_accepted_or_refused_by_itself() {
    let world = World::new().await;
    let mut request = commit_request(9, "g", "t", &[(0, 1), (9, 1)]);
    request
        .topics
        .push(commit_request(9, "g", "nosuch", &[(0, 1)]).topics.remove(0));
    let long = Str::from("x".repeat(5000));
    request.topics[0]
        .partitions
        .push(OffsetCommitRequestPartition {
            partition_index: 1,
            committed_offset: 3,
            committed_metadata: Some(long),
            ..Default::default()
        });
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
    let too_large = ErrorCode::OFFSET_METADATA_TOO_LARGE.0;
    assert_eq!(
        commit(&world, request, 9).await,
        [0, unknown, too_large, unknown]
    );
    let mut by_id = commit_request(10, "g", "t", &[(0, 2)]);
    by_id.topics[0].topic_id = Uuid([3; 16]);
    assert_eq!(
        commit(&world, by_id, 10).await,
        [ErrorCode::UNKNOWN_TOPIC_ID.0]
    );
    let (_, partitions) = fetch(&world, 9, "g", None).await;
    assert_eq!(partitions, [(0, 1, 4, "xyz".to_owned(), 0)]);
}

#[tokio::test]
async fn commits_of_members_are_checked_against_the_group() {
    let world = World::new().await;
    let stranger = OffsetCommitRequest {
        generation_id_or_member_epoch: 3,
        member_id: Str::from("ghost"),
        ..commit_request(8, "g", "t", &[(0, 1)])
    };
    assert_eq!(
        commit(&world, stranger.clone(), 8).await,
        [ErrorCode::ILLEGAL_GENERATION.0]
    );
    let newer = OffsetCommitRequest {
        ..commit_request(9, "g", "t", &[(0, 1)])
    };
    let newer = OffsetCommitRequest {
        generation_id_or_member_epoch: 3,
        member_id: Str::from("ghost"),
        ..newer
    };
    assert_eq!(
        commit(&world, newer, 9).await,
        [ErrorCode::GROUP_ID_NOT_FOUND.0]
    );
    let joined = world.join(join_request("g", ""), 3).await;
    world.sync(sync_request("g", &joined, true), 5).await;
    assert_eq!(
        commit(&world, stranger, 8).await,
        [ErrorCode::UNKNOWN_MEMBER_ID.0]
    );
    let member = OffsetCommitRequest {
        generation_id_or_member_epoch: 1,
        member_id: joined.member_id.clone(),
        ..commit_request(8, "g", "t", &[(0, 11)])
    };
    assert_eq!(commit(&world, member, 8).await, [0]);
    let outsider = commit_request(8, "g", "t", &[(0, 1)]);
    assert_eq!(
        commit(&world, outsider, 8).await,
        [ErrorCode::UNKNOWN_MEMBER_ID.0]
    );
}

#[tokio::test]
async fn offsets_a_member_reads_are_not_deleted_others_are() {
    let mut world = World::new().await;
    let joined = world.join(join_request("g", ""), 3).await;
    world.sync(sync_request("g", &joined, true), 5).await;
    for topic in ["t", "u"] {
        let member = OffsetCommitRequest {
            generation_id_or_member_epoch: 1,
            member_id: joined.member_id.clone(),
            ..commit_request(8, "g", topic, &[(0, 11)])
        };
        assert_eq!(commit(&world, member, 8).await, [0]);
    }
    let topic = |name: &str| OffsetDeleteRequestTopic {
        name: Str::from(name),
        partitions: vec![OffsetDeleteRequestPartition {
            partition_index: 0,
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = OffsetDeleteRequest {
        group_id: Str::from("g"),
        topics: vec![topic("t"), topic("u"), topic("nosuch")],
        ..Default::default()
    };
    let response = checked(world.groups.offset_delete(request.clone()).await, 0);
    let codes: Vec<i16> = response
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|p| p.error_code)
        .collect();
    let unknown = ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0;
    assert_eq!(codes, [ErrorCode::GROUP_SUBSCRIBED_TO_TOPIC.0, 0, unknown]);
    world.reload().await;
    assert_eq!(
        fetch(&world, 9, "g", Some(&[("t", &[0]), ("u", &[0])]))
            .await
            .1[1]
            .1,
        -1
    );
    let none = OffsetDeleteRequest {
        group_id: Str::from("none"),
        ..request
    };
    let response = checked(world.groups.offset_delete(none).await, 0);
    assert_eq!(response.error_code, ErrorCode::GROUP_ID_NOT_FOUND.0);
}

#[tokio::test]
async fn offsets_of_a_deleted_topic_are_forgotten() {
    let world = World::new().await;
    assert_eq!(
        commit(&world, commit_request(9, "g", "t", &[(0, 5)]), 9).await,
        [0]
    );
    assert_eq!(
        commit(&world, commit_request(9, "g", "u", &[(0, 6)]), 9).await,
        [0]
    );
    world.remove_topic("t").await;
    let (_, partitions) = fetch(&world, 9, "g", None).await;
    assert_eq!(partitions.len(), 1);
}
