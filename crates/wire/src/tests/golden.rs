//! Bytes of the mirror messages, taken from the public prototypes of both dialects
//! (docs/mirror-protocol.md §9).

use bytes::Bytes;

use crate::messages::*;
use crate::{Message, RecordMessage, Str, Uuid, decode_exact, encode_body};

const ID: Uuid = Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);

fn mirror() -> Str {
    Str::from_static("my-mirror")
}

fn foo() -> Str {
    Str::from_static("foo")
}

fn bytes(hex: &str) -> Bytes {
    (0..hex.len() / 2)
        .map(|at| u8::from_str_radix(&hex[at * 2..at * 2 + 2], 16).unwrap())
        .collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[track_caller]
fn golden<M: Message>(message: &M, expected: &str) {
    let encoded = encode_body(message, 0).unwrap().to_bytes().unwrap();
    assert_eq!(hex(&encoded), expected, "{}", M::NAME);
    assert_eq!(decode_exact::<M>(bytes(expected), 0).as_ref(), Ok(message));
    assert!(M::MIN_SIZE <= encoded.len());
}

/// A record of a coordinator topic: the int16 in front of it belongs to the framing.
#[track_caller]
fn golden_record<M: Message>(message: &M, prefix: i16, expected: &str) {
    assert_eq!(
        bytes(&expected[..4]),
        prefix.to_be_bytes()[..],
        "prefix of {}",
        M::NAME
    );
    golden(message, &expected[4..]);
}

#[track_caller]
fn golden_key<M: RecordMessage>(message: &M, expected: &str) {
    golden_record(message, M::TYPE, expected);
}

#[test]
fn create_mirror() {
    let config = create_mirror_request::MirrorConfig {
        name: "bootstrap.servers".into(),
        value: Some("src:9092".into()),
        ..Default::default()
    };
    golden(
        &CreateMirrorRequest {
            mirror_name: mirror(),
            config: vec![config],
            ..Default::default()
        },
        "0a6d792d6d6972726f720212626f6f7473747261702e73657276657273097372633a393039320000",
    );
    golden(&CreateMirrorResponse::default(), "0000000000000000");
}

#[test]
fn add_topics_early_and_start_late() {
    let topic = add_topics_to_mirror_request::MirrorTopic {
        topic_id: ID,
        topic_name: foo(),
        ..Default::default()
    };
    golden(
        &AddTopicsToMirrorRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            ..Default::default()
        },
        "0a6d792d6d6972726f7202000102030405060708090a0b0c0d0e0f04666f6f0000",
    );
    let topic = start_mirror_topics_request::MirrorTopic {
        topic_id: ID,
        topic_name: foo(),
        num_partitions: 3,
        ..Default::default()
    };
    golden(
        &StartMirrorTopicsRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            include_patterns: vec![foo()],
            ..Default::default()
        },
        "0a6d792d6d6972726f7202000102030405060708090a0b0c0d0e0f04666f6f0000000300ffffffffffffffff0100050204666f6f",
    );
    let result = add_topics_to_mirror_response::MirrorTopicResult {
        name: foo(),
        ..Default::default()
    };
    golden(
        &AddTopicsToMirrorResponse {
            mirror_name: mirror(),
            topics: vec![result],
            ..Default::default()
        },
        "000000000000000a6d792d6d6972726f720204666f6f00000000",
    );
    let result = start_mirror_topics_response::MirrorTopicResult {
        name: foo(),
        ..Default::default()
    };
    golden(
        &StartMirrorTopicsResponse {
            topics: vec![result],
            ..Default::default()
        },
        "000000000000000204666f6f0000000000",
    );
}

#[test]
fn remove_stop_and_pause() {
    let topic = remove_topics_from_mirror_request::MirrorTopic {
        topic_id: ID,
        topic_name: foo(),
        ..Default::default()
    };
    golden(
        &RemoveTopicsFromMirrorRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            ..Default::default()
        },
        "0a6d792d6d6972726f7202000102030405060708090a0b0c0d0e0f04666f6f0000",
    );
    let topic = stop_mirror_topics_request::MirrorTopic {
        topic_name: foo(),
        ..Default::default()
    };
    golden(
        &StopMirrorTopicsRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            patterns: vec![foo()],
            ..Default::default()
        },
        "0a6d792d6d6972726f720204666f6f00ffffffffffffffff0100050204666f6f",
    );
    let topic = late_pause_mirror_topics_request::MirrorTopic {
        topic_name: foo(),
        ..Default::default()
    };
    golden(
        &LatePauseMirrorTopicsRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            ..Default::default()
        },
        "0a6d792d6d6972726f720204666f6f00ffffffffffffffff00",
    );
}

#[test]
fn list_and_describe_requests() {
    golden(&ListMirrorsRequest::default(), "00");
    golden(
        &ListClusterMirrorsRequest {
            include_topic_names: true,
            ..Default::default()
        },
        "0100",
    );
    golden(&DescribeMirrorsRequest::default(), "010000");
    let lookup = describe_cluster_mirrors_request::LastMirrorEpochLookup {
        topic_id: ID,
        partitions: vec![0],
        ..Default::default()
    };
    golden(
        &DescribeClusterMirrorsRequest {
            cluster_id: Some("abc".into()),
            last_mirror_epoch_lookups: vec![lookup],
            ..Default::default()
        },
        "010002000404616263011702000102030405060708090a0b0c0d0e0f020000000000",
    );
}

#[test]
fn describe_early() {
    use describe_mirrors_response::{
        DescribedMirror, DescribedMirrorPartition, DescribedMirrorTopic,
    };
    let partition = DescribedMirrorPartition {
        source_offset: 69,
        destination_offset: 66,
        lag: 3,
        state: "MIRRORING".into(),
        ..Default::default()
    };
    let topic = DescribedMirrorTopic {
        topic_name: foo(),
        partitions: vec![partition],
        ..Default::default()
    };
    let described = DescribedMirror {
        mirror_name: mirror(),
        topics: vec![topic],
        ..Default::default()
    };
    golden(
        &DescribeMirrorsResponse {
            mirrors: vec![described],
            ..Default::default()
        },
        "000000000000000200000a6d792d6d6972726f720204666f6f02000000000000000000000045000000000000004200000000000000030a4d49\
         52524f52494e47ffffffff00000000",
    );
}

#[test]
fn describe_late() {
    use describe_cluster_mirrors_response::{
        DescribedMirror, DescribedMirrorPartition, DescribedMirrorTopic,
    };
    let partition = DescribedMirrorPartition {
        source_offset: 69,
        destination_offset: 66,
        lag: 3,
        state_value: "MIRRORING".into(),
        ..Default::default()
    };
    let topic = DescribedMirrorTopic {
        topic_name: foo(),
        partitions: vec![partition],
        ..Default::default()
    };
    let described = DescribedMirror {
        mirror_name: mirror(),
        topics: vec![topic],
        ..Default::default()
    };
    golden(
        &DescribeClusterMirrorsResponse {
            mirrors: vec![described],
            ..Default::default()
        },
        "000000000000000200000a6d792d6d6972726f72800000000204666f6f02000000000000000000000045000000000000004200000000000000\
         030a4d4952524f52494e4700000000000000",
    );
}

#[test]
fn state_requests() {
    use read_mirror_states_request::{ReadMirrorPartition, ReadMirrorTopic};
    use write_mirror_states_request::{WriteMirrorPartition, WriteMirrorTopic};
    let topic = ReadMirrorTopic {
        name: foo(),
        partitions: vec![ReadMirrorPartition::default()],
        ..Default::default()
    };
    golden(
        &ReadMirrorStatesRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            ..Default::default()
        },
        "0a6d792d6d6972726f720204666f6f0200000000000000",
    );
    let partition = WriteMirrorPartition {
        state: 1,
        ..Default::default()
    };
    let topic = WriteMirrorTopic {
        name: foo(),
        partitions: vec![partition],
        ..Default::default()
    };
    golden(
        &WriteMirrorStatesRequest {
            mirror_name: mirror(),
            topics: vec![topic],
            ..Default::default()
        },
        "0a6d792d6d6972726f720204666f6f0200000000ffffffff0100000100",
    );
}

#[test]
fn bump_leader_epochs() {
    use bump_leader_epochs_request::{BumpPartition, BumpTopic};
    let partition = BumpPartition {
        min_leader_epoch: 7,
        ..Default::default()
    };
    let topic = BumpTopic {
        topic_id: ID,
        partitions: vec![partition],
        ..Default::default()
    };
    golden(
        &BumpLeaderEpochsRequest {
            topics: vec![topic],
            ..Default::default()
        },
        "02000102030405060708090a0b0c0d0e0f020000000000000007000000",
    );
}

#[test]
fn state_topic_early() {
    golden_key(
        &EarlyMirrorPartitionStateKey {
            mirror_name: mirror(),
            ..Default::default()
        },
        "000200096d792d6d6972726f72",
    );
    golden_record(
        &EarlyMirrorPartitionStateValue {
            topic_name: foo(),
            state: 1,
            ..Default::default()
        },
        0,
        "000004666f6f000000000100",
    );
    golden_key(
        &EarlyLastMirrorEpochsKey {
            mirror_name: mirror(),
            ..Default::default()
        },
        "000100096d792d6d6972726f72",
    );
    let partition = early_last_mirror_epochs_value::EpochsPartition {
        last_mirror_epoch: 5,
        ..Default::default()
    };
    let topic = early_last_mirror_epochs_value::EpochsTopic {
        name: foo(),
        partitions: vec![partition],
        ..Default::default()
    };
    golden_record(
        &EarlyLastMirrorEpochsValue {
            topics: vec![topic],
            ..Default::default()
        },
        0,
        "00000204666f6f020000000000000005000000",
    );
}

#[test]
fn state_topic_late() {
    golden_key(
        &MirrorPartitionStateKey {
            mirror_name: mirror(),
            topic_id: ID,
            ..Default::default()
        },
        "000200096d792d6d6972726f72000102030405060708090a0b0c0d0e0f00000000",
    );
    golden_record(
        &MirrorPartitionStateValue {
            state: 2,
            previous_state: -1,
            ..Default::default()
        },
        0,
        "000002ff00000000",
    );
    golden_key(
        &LastMirrorEpochsKey {
            mirror_name: mirror(),
            topic_id: ID,
            ..Default::default()
        },
        "000100096d792d6d6972726f72000102030405060708090a0b0c0d0e0f00000000",
    );
    golden_record(
        &LastMirrorEpochsValue {
            last_mirror_epoch: 5,
            ..Default::default()
        },
        0,
        "00000000000500",
    );
}

#[test]
fn other_records() {
    golden(
        &MirrorPidResetRecord {
            source_cluster_id: "abc".into(),
            ..Default::default()
        },
        "00000461626300",
    );
    golden(
        &MirrorTopicStateChangeRecord {
            topic_id: ID,
            mirror_name: Some(mirror()),
            desired_state: 2,
            ..Default::default()
        },
        "000102030405060708090a0b0c0d0e0f0a6d792d6d6972726f720200",
    );
}

#[test]
fn dialects_are_told_apart_by_exact_decoding() {
    let early = bytes("0a6d792d6d6972726f7202000102030405060708090a0b0c0d0e0f04666f6f0000");
    let late = bytes("0a6d792d6d6972726f720204666f6f00ffffffffffffffff0100050204666f6f");
    assert!(decode_exact::<RemoveTopicsFromMirrorRequest>(early.clone(), 0).is_ok());
    assert!(decode_exact::<StopMirrorTopicsRequest>(early, 0).is_err());
    assert!(decode_exact::<StopMirrorTopicsRequest>(late.clone(), 0).is_ok());
    assert!(decode_exact::<RemoveTopicsFromMirrorRequest>(late, 0).is_err());
    // An early server reads the late form of 98 as its own body and ignores the rest.
    assert!(decode_exact::<ListMirrorsRequest>(bytes("0000"), 0).is_err());
    assert!(ListMirrorsRequest::decode(&mut crate::Reader::new(bytes("0000")), 0).is_ok());
}

#[test]
fn unregister_controller_of_kafka_4_4_is_not_a_create_mirror() {
    assert!(decode_exact::<CreateMirrorRequest>(bytes("0000000500"), 0).is_err());
}
