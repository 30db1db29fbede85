//! Guards: an image built by replay equals one built from its snapshot plus the rest of the log,
//! byte forms included.
#![allow(clippy::manual_is_multiple_of, reason = "dice, not arithmetic")]

use proptest::prelude::*;
use tarn_metadata::{Delta, DesiredState, Image, NO_LEADER, Record, Replay};
use tarn_wire::messages::*;
use tarn_wire::{Str, Uuid};

/// One step of a random history: what to do, and on what.
type Step = (u8, u8, u8, u8);

fn id(n: u8) -> Uuid {
    Uuid::from_halves(7, u64::from(n) + 1)
}

fn name(n: u8) -> Str {
    Str::from(format!("topic-{n}"))
}

/// The records of a step, or none where it makes no sense at this image.
fn records_of(image: &Image, (kind, a, b, c): Step) -> Vec<Record> {
    let (a, b) = (a % 6, b % 4);
    let topic = image.topic(&name(a)).cloned();
    match kind % 14 {
        0 | 1 => match topic {
            Some(_) => Vec::new(),
            None => create(image, a, b, c),
        },
        2 => topic
            .iter()
            .map(|t| {
                RemoveTopicRecord {
                    topic_id: t.id,
                    ..Default::default()
                }
                .into()
            })
            .collect(),
        3 => topic
            .iter()
            .flat_map(|t| change(t.id, t.partition_count(), b, c))
            .collect(),
        4 => topic.iter().flat_map(|t| jump(t, b, c)).collect(),
        5 => vec![config(2, name(a), b, (c % 3 > 0).then_some(c))],
        6 => vec![config(
            64,
            Str::from(format!("mirror-{a}")),
            b,
            (c % 3 > 0).then_some(c),
        )],
        7 | 8 => vec![membership(a, b, c, topic.map_or(Uuid::ZERO, |t| t.id))],
        9 => vec![
            FeatureLevelRecord {
                name: Str::from(format!("feature.{a}")),
                feature_level: i16::from(c % 3),
                ..Default::default()
            }
            .into(),
        ],
        10 => {
            let next_producer_id = image.producer_ids().next + 1000;
            vec![
                ProducerIdsRecord {
                    broker_id: i32::from(b),
                    broker_epoch: i64::from(c),
                    next_producer_id,
                    ..Default::default()
                }
                .into(),
            ]
        }
        11 => broker(image, b, c),
        12 => vec![quota(a, b, c)],
        _ => acl(image, a, c),
    }
}

fn create(image: &Image, a: u8, b: u8, c: u8) -> Vec<Record> {
    let topic_id = Uuid::from_halves(u64::from(a) + 100, image.offset() as u64);
    let mut records = vec![
        TopicRecord {
            name: name(a),
            topic_id,
            ..Default::default()
        }
        .into(),
    ];
    for partition_id in 0..i32::from(b) {
        let record = PartitionRecord {
            partition_id,
            topic_id,
            replicas: vec![1, 2],
            isr: vec![1],
            leader: 1,
            leader_epoch: i32::from(c),
            partition_epoch: 3,
            directories: vec![id(b), id(c)],
            eligible_leader_replicas: (c % 5 == 0).then(|| vec![2]),
            last_known_elr: None,
            ..Default::default()
        };
        records.push(record.into());
    }
    records
}

fn change(topic_id: Uuid, partitions: i32, b: u8, c: u8) -> Vec<Record> {
    if partitions == 0 {
        return Vec::new();
    }
    let record = PartitionChangeRecord {
        partition_id: i32::from(b) % partitions,
        topic_id,
        isr: (c % 2 == 0).then(|| vec![2]),
        leader: [-2, NO_LEADER, 1, 2][usize::from(c % 4)],
        replicas: (c % 7 == 0).then(|| vec![2, 3]),
        removing_replicas: None,
        adding_replicas: None,
        directories: None,
        eligible_leader_replicas: None,
        last_known_elr: None,
        ..Default::default()
    };
    vec![record.into()]
}

fn jump(topic: &tarn_metadata::TopicImage, b: u8, c: u8) -> Vec<Record> {
    let Some(partition) = topic.partition(i32::from(b)) else {
        return Vec::new();
    };
    let record = PartitionEpochRecord {
        topic_id: topic.id,
        partition_id: i32::from(b),
        leader_epoch: partition.leader_epoch + 1 + i32::from(c),
        partition_epoch: partition.partition_epoch + 1,
        ..Default::default()
    };
    vec![record.into()]
}

fn config(resource_type: i8, resource_name: Str, key: u8, value: Option<u8>) -> Record {
    let value = value.map(|value| Str::from(value.to_string()));
    ConfigRecord {
        resource_type,
        resource_name,
        name: Str::from(format!("key.{key}")),
        value,
        ..Default::default()
    }
    .into()
}

fn membership(a: u8, b: u8, c: u8, topic_id: Uuid) -> Record {
    let desired = [
        DesiredState::Mirroring,
        DesiredState::Paused,
        DesiredState::Stopped,
    ][usize::from(b % 3)];
    let record = MirrorMembershipRecord {
        topic_id,
        topic_name: name(a),
        mirror_name: (c % 3 > 0).then(|| Str::from("m")),
        desired_state: desired.code(),
        source_topic_id: id(c),
        stopped: c % 2 == 0,
        change_offset: if c % 5 == 0 { 17 } else { -1 },
        ..Default::default()
    };
    record.into()
}

fn broker(image: &Image, b: u8, c: u8) -> Vec<Record> {
    let broker_id = i32::from(b);
    let Some(known) = image.broker(broker_id).filter(|_| c % 4 > 0) else {
        let record = RegisterBrokerRecord {
            broker_id,
            incarnation_id: id(c),
            broker_epoch: image.offset() + 1,
            end_points: vec![register_broker_record::BrokerEndpoint {
                name: "L".into(),
                host: "h".into(),
                port: 9,
                ..Default::default()
            }],
            features: vec![register_broker_record::BrokerFeature {
                name: "f".into(),
                max_supported_version: 3,
                ..Default::default()
            }],
            rack: (c % 8 == 0).then(|| Str::from("r")),
            log_dirs: vec![id(b)],
            cordoned_log_dirs: None,
            ..Default::default()
        };
        return vec![record.into()];
    };
    if c % 11 == 0 {
        return vec![
            UnregisterBrokerRecord {
                broker_id,
                broker_epoch: known.epoch,
                ..Default::default()
            }
            .into(),
        ];
    }
    let fenced = [-1, 0, 1][usize::from(c % 3)];
    let record = BrokerRegistrationChangeRecord {
        broker_id,
        broker_epoch: known.epoch,
        fenced,
        cordoned_log_dirs: None,
        ..Default::default()
    };
    vec![record.into()]
}

fn quota(a: u8, b: u8, c: u8) -> Record {
    let part = client_quota_record::EntityData {
        entity_type: "user".into(),
        entity_name: (a > 0).then(|| name(a)),
        ..Default::default()
    };
    ClientQuotaRecord {
        entity: vec![part],
        key: name(b),
        value: f64::from(c),
        remove: c % 3 == 0,
        ..Default::default()
    }
    .into()
}

fn acl(image: &Image, a: u8, c: u8) -> Vec<Record> {
    if c % 3 == 0 {
        return image
            .acls()
            .keys()
            .next()
            .map(|id| {
                RemoveAccessControlEntryRecord {
                    id: *id,
                    ..Default::default()
                }
                .into()
            })
            .into_iter()
            .collect();
    }
    vec![
        AccessControlEntryRecord {
            id: id(c),
            resource_name: name(a),
            principal: "User:x".into(),
            host: "*".into(),
            ..Default::default()
        }
        .into(),
    ]
}

/// A history as batches that apply one after the other, with the image after all of them.
fn history(steps: &[Step]) -> (Vec<(Vec<Record>, i64)>, Image) {
    let mut image = Image::default();
    let mut log = Vec::new();
    let mut offset = -1;
    for step in steps {
        let records = records_of(&image, *step);
        if records.is_empty() {
            continue;
        }
        offset += records.len() as i64;
        image = image
            .apply(&records, offset, 1)
            .expect("history must be valid")
            .0;
        log.push((records, offset));
    }
    (log, image)
}

fn through_bytes(records: Vec<Record>) -> Vec<Record> {
    let again = |record: Record| Record::decode(record.encode().unwrap()).unwrap();
    records.into_iter().map(again).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn replaying_everything_equals_snapshot_plus_rest(steps in prop::collection::vec(any::<Step>(), 1..80), cut in any::<prop::sample::Index>()) {
        let (log, whole) = history(&steps);
        prop_assume!(!log.is_empty());
        let cut = cut.index(log.len());
        let mut image = Image::default();
        for (records, offset) in &log[..cut] {
            image = image.apply(records, *offset, 1).unwrap().0;
        }
        let snapshot = through_bytes(image.to_records());
        let mut from_snapshot = Image::default().apply(&snapshot, image.offset(), 1).unwrap().0;
        if cut > 0 {
            prop_assert_eq!(&from_snapshot, &image);
        }
        for (records, offset) in &log[cut..] {
            from_snapshot = from_snapshot.apply(&through_bytes(records.clone()), *offset, 1).unwrap().0;
        }
        prop_assert_eq!(from_snapshot, whole);
    }

    #[test]
    fn merged_deltas_name_every_difference(steps in prop::collection::vec(any::<Step>(), 1..60)) {
        let (log, whole) = history(&steps);
        let mut image = Image::default();
        let mut merged = Delta::default();
        for (records, offset) in &log {
            let (next, delta) = image.apply(records, *offset, 1).unwrap();
            merged.merge(delta);
            image = next;
        }
        for topic in whole.topics().iter() {
            prop_assert!(merged.topics.contains_key(&topic.id));
        }
        for name in whole.memberships().keys() {
            prop_assert!(merged.memberships.contains(name));
        }
        for (id, change) in &merged.topics {
            prop_assert_eq!(change.change == tarn_metadata::Change::Deleted, whole.topic_by_id(id).is_none());
        }
    }

    #[test]
    fn a_transaction_applies_as_one_at_its_end(steps in prop::collection::vec(any::<Step>(), 1..40)) {
        // Memberships are left out: their change offset is that of the batch that applies them,
        // here another one by design.
        let steps: Vec<Step> = steps.into_iter().filter(|(kind, ..)| !matches!(kind % 14, 7 | 8)).collect();
        let (log, whole) = history(&steps);
        prop_assume!(!log.is_empty());
        let last = log.last().unwrap().1;
        let mut replay = Replay::default();
        replay.batch(vec![BeginTransactionRecord::default().into()], 0, 1).unwrap();
        for (records, offset) in &log {
            replay.batch(records.clone(), *offset, 1).unwrap();
            prop_assert!(replay.image().topics().is_empty() && replay.in_transaction());
        }
        replay.batch(vec![EndTransactionRecord::default().into()], last, 1).unwrap();
        prop_assert_eq!(replay.finish().0, whole);
    }

    #[test]
    fn no_bytes_make_decoding_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Record::decode(bytes.into());
    }
}

#[test]
fn an_aborted_transaction_leaves_nothing() {
    let mut replay = Replay::default();
    replay
        .batch(
            vec![
                BeginTransactionRecord::default().into(),
                config(2, name(1), 1, Some(1)),
            ],
            1,
            1,
        )
        .unwrap();
    replay
        .batch(vec![AbortTransactionRecord::default().into()], 2, 1)
        .unwrap();
    assert!(!replay.in_transaction());
    assert_eq!(
        replay
            .image()
            .configured(tarn_metadata::ResourceType::TOPIC)
            .count(),
        0
    );
}

#[test]
fn clearing_a_membership_clears_it_in_replay_and_in_the_snapshot() {
    let set: Record = MirrorMembershipRecord {
        topic_name: name(1),
        mirror_name: Some("m".into()),
        desired_state: 5,
        ..Default::default()
    }
    .into();
    let (image, _) = Image::default().apply(&[set], 3, 1).unwrap();
    let membership = image.membership("topic-1").unwrap();
    assert_eq!(
        (membership.is_wanted(), membership.change_offset),
        (true, 3)
    );
    let clear = membership.to_clearing_record().into();
    let (cleared, delta) = image.apply(&[clear], 4, 1).unwrap();
    assert!(cleared.membership("topic-1").is_none() && cleared.to_records().is_empty());
    assert!(delta.memberships.contains(&name(1)));
}

#[test]
fn deleting_a_topic_takes_its_configuration_and_membership_along() {
    let mut records = create(&Image::default(), 1, 2, 1);
    records.push(config(2, name(1), 1, Some(1)));
    let Record::Topic(topic) = &records[0] else {
        unreachable!()
    };
    let topic_id = topic.topic_id;
    records.push(membership(1, 0, 1, topic_id));
    let (image, _) = Image::default().apply(&records, 9, 1).unwrap();
    let (image, delta) = image
        .apply(
            &[RemoveTopicRecord {
                topic_id,
                ..Default::default()
            }
            .into()],
            10,
            1,
        )
        .unwrap();
    assert!(image.to_records().is_empty());
    let change = &delta.topics[&topic_id];
    assert_eq!(
        (
            change.partitions.len(),
            change.before.as_ref().unwrap().partition_count()
        ),
        (2, 2)
    );
}

#[test]
fn an_unknown_record_type_is_an_error_that_names_it() {
    let error = Record::decode(bytes::Bytes::from_static(&[1, 0xb8, 0x17, 0]))
        .unwrap_err()
        .to_string();
    assert!(error.contains("type 3000"), "{error}");
}

#[test]
fn a_record_is_framed_as_kafka_frames_it() {
    let record: Record = FeatureLevelRecord {
        name: "metadata.version".into(),
        feature_level: 30,
        ..Default::default()
    }
    .into();
    assert_eq!(
        &record.encode().unwrap()[..],
        b"\x01\x0c\x00\x11metadata.version\x00\x1e\x00"
    );
}

#[test]
fn a_record_that_does_not_fit_leaves_the_image_alone() {
    let (image, _) = Image::default()
        .apply(&create(&Image::default(), 1, 1, 1), 1, 1)
        .unwrap();
    let bad = [
        config(2, name(1), 1, Some(1)),
        RemoveTopicRecord {
            topic_id: id(200),
            ..Default::default()
        }
        .into(),
    ];
    assert!(image.apply(&bad, 5, 1).is_err());
    assert_eq!(
        image.configured(tarn_metadata::ResourceType::TOPIC).count(),
        0
    );
}
