//! The parser against hand-made bytes, garbage, every cut, and the generated codec of FetchResponse
//! as oracle.

use bytes::Bytes;
use proptest::prelude::*;

use super::*;

fn all_events(
    version: i16,
    body: &[u8],
    cuts: &[usize],
    limits: FetchLimits,
) -> Result<Vec<FetchEvent>> {
    let mut parser = FetchStream::new(version, body.len() as u64, limits)?;
    let mut events = Vec::new();
    let mut points: Vec<usize> = cuts.iter().map(|c| c % (body.len() + 1)).collect();
    points.push(body.len());
    points.sort_unstable();
    let mut from = 0;
    for to in points {
        parser.push(Bytes::copy_from_slice(&body[from..to]))?;
        while let Some(event) = parser.next_event()? {
            events.push(event);
        }
        from = to;
    }
    Ok(join_records(events))
}

/// Record pieces depend on the cuts; joined they must not.
fn join_records(events: Vec<FetchEvent>) -> Vec<FetchEvent> {
    let mut joined: Vec<FetchEvent> = Vec::new();
    for event in events {
        match (joined.last_mut(), event) {
            (Some(FetchEvent::Records(before)), FetchEvent::Records(piece)) => {
                *before = [&before[..], &piece[..]].concat().into();
            }
            (_, event) => joined.push(event),
        }
    }
    joined
}

fn varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// A version 12 response of one topic and one partition with the given tagged section at its end.
fn response_12(tags: &[u8], records: &[u8]) -> Vec<u8> {
    let mut out = vec![0, 0, 0, 7, 0, 0, 0, 0, 0, 9, 2, 2, b't', 2];
    out.extend([0, 0, 0, 3, 0, 0]);
    out.extend(42i64.to_be_bytes());
    out.extend(41i64.to_be_bytes());
    out.extend(5i64.to_be_bytes());
    out.extend([1, 0xff, 0xff, 0xff, 0xff]);
    varint(&mut out, records.len() as u32 + 1);
    out.extend(records);
    out.extend(tags);
    out.extend([0, 0]);
    out
}

#[test]
fn a_response_is_told_in_wire_order() {
    let events = all_events(12, &response_12(&[0], b"abc"), &[], FetchLimits::default()).unwrap();
    assert_eq!(events.len(), 6);
    assert_eq!(
        events[0],
        FetchEvent::Header(FetchHeader {
            throttle_time_ms: 7,
            error_code: 0,
            session_id: 9,
            topic_count: 1
        })
    );
    let FetchEvent::PartitionStart(start) = &events[2] else {
        panic!("{:?}", events[2])
    };
    assert_eq!(
        (
            &*start.topic,
            start.partition_index,
            start.high_watermark,
            start.log_start_offset
        ),
        ("t", 3, 42, 5)
    );
    assert_eq!(
        (start.records_len, start.aborted_transactions.as_deref()),
        (Some(3), Some(&[][..]))
    );
    assert_eq!(events[3], FetchEvent::Records(Bytes::from_static(b"abc")));
    assert_eq!(
        events[5],
        FetchEvent::End {
            node_endpoints: vec![]
        }
    );
}

#[test]
fn the_diverging_epoch_comes_with_the_end_of_the_partition() {
    let mut tags = vec![1, 0, 13];
    tags.extend(4i32.to_be_bytes());
    tags.extend(100i64.to_be_bytes());
    tags.push(0);
    let events = all_events(12, &response_12(&tags, b""), &[], FetchLimits::default()).unwrap();
    let expected = FetchPartitionEnd {
        diverging_epoch: Some(DivergingEpoch {
            epoch: 4,
            end_offset: 100,
        }),
        ..FetchPartitionEnd::default()
    };
    assert_eq!(events[3], FetchEvent::PartitionEnd(expected));
}

#[test]
fn more_than_was_asked_for_is_refused() {
    let body = response_12(&[0], b"");
    let none = FetchLimits {
        partitions_max: 0,
        ..FetchLimits::default()
    };
    assert!(matches!(
        all_events(12, &body, &[], none),
        Err(FetchStreamError::TooMany {
            what: "partitions",
            ..
        })
    ));
    let none = FetchLimits {
        topics_max: 0,
        ..FetchLimits::default()
    };
    assert!(matches!(
        all_events(12, &body, &[], none),
        Err(FetchStreamError::TooMany { what: "topics", .. })
    ));
    let mut tags = vec![1, 50];
    varint(&mut tags, 1 << 27);
    let body = response_12(&tags, b"");
    assert!(matches!(
        all_events(12, &body, &[], FetchLimits::default()),
        Err(FetchStreamError::TooMany { .. })
    ));
}

#[test]
fn a_response_that_ends_early_or_late_is_refused() {
    let body = response_12(&[0], b"abcdef");
    for cut in 0..body.len() {
        assert!(
            all_events(12, &body[..cut], &[], FetchLimits::default()).is_err(),
            "{cut}"
        );
    }
    let mut long = body.clone();
    long.push(0);
    let error = all_events(12, &long, &[], FetchLimits::default()).unwrap_err();
    assert_eq!(error, FetchStreamError::Trailing(1));
    let error = all_events(12, &long, &[long.len() - 1], FetchLimits::default()).unwrap_err();
    assert_eq!(error, FetchStreamError::Trailing(1));
}

proptest! {
    #[test]
    fn garbage_never_panics_and_never_ends_as_complete_before_its_end(
        version in 4i16..=18, body in proptest::collection::vec(any::<u8>(), 0..300), cuts in proptest::collection::vec(0usize..400, 0..6)
    ) {
        let _ = all_events(version, &body, &cuts, FetchLimits::default());
    }

    #[test]
    fn changed_bytes_never_panic(at in 0usize..200, to in any::<u8>(), cuts in proptest::collection::vec(0usize..400, 0..6)) {
        let mut body = response_12(&[0], &[7; 100]);
        let at = at % body.len();
        body[at] = to;
        let _ = all_events(12, &body, &cuts, FetchLimits::default());
    }

    #[test]
    fn any_cut_gives_the_same_events(cuts in proptest::collection::vec(0usize..400, 0..30), records in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut tags = vec![1, 0, 13];
        tags.extend(4i32.to_be_bytes());
        tags.extend(100i64.to_be_bytes());
        tags.push(0);
        let body = response_12(&tags, &records);
        let whole = all_events(12, &body, &[], FetchLimits::default()).unwrap();
        prop_assert_eq!(all_events(12, &body, &cuts, FetchLimits::default()).unwrap(), whole);
    }
}

mod oracle {
    //! The same bytes read by the generated codec must say the same.

    use super::*;
    use crate::messages::FetchResponse;
    use crate::messages::fetch_response as whole;
    use crate::{Records, encode_body};

    fn rebuild(events: Vec<FetchEvent>) -> FetchResponse {
        let mut response = FetchResponse::default();
        let mut records = Vec::new();
        for event in events {
            match event {
                FetchEvent::Header(h) => {
                    response.throttle_time_ms = h.throttle_time_ms;
                    response.error_code = h.error_code;
                    response.session_id = h.session_id;
                }
                FetchEvent::Topic { name, id, .. } => {
                    response.responses.push(whole::FetchableTopicResponse {
                        topic: name,
                        topic_id: id,
                        ..Default::default()
                    });
                }
                FetchEvent::PartitionStart(start) => {
                    records.clear();
                    let topic = response.responses.last_mut().unwrap();
                    topic.partitions.push(partition_data(&start));
                }
                FetchEvent::Records(piece) => records.extend_from_slice(&piece),
                FetchEvent::PartitionEnd(end) => {
                    let topic = response.responses.last_mut().unwrap();
                    finish(topic.partitions.last_mut().unwrap(), end, &records);
                }
                FetchEvent::End { node_endpoints } => {
                    let endpoint = |n: NodeEndpoint| whole::NodeEndpoint {
                        node_id: n.node_id,
                        host: n.host,
                        port: n.port,
                        rack: n.rack,
                        ..Default::default()
                    };
                    response.node_endpoints = node_endpoints.into_iter().map(endpoint).collect();
                }
            }
        }
        response
    }

    fn partition_data(start: &FetchPartitionStart) -> whole::PartitionData {
        let aborted = |t: &AbortedTransaction| whole::AbortedTransaction {
            producer_id: t.producer_id,
            first_offset: t.first_offset,
            ..Default::default()
        };
        let list = start.aborted_transactions.as_ref();
        whole::PartitionData {
            partition_index: start.partition_index,
            error_code: start.error_code,
            high_watermark: start.high_watermark,
            last_stable_offset: start.last_stable_offset,
            log_start_offset: start.log_start_offset,
            aborted_transactions: list.map(|l| l.iter().map(aborted).collect()),
            preferred_read_replica: start.preferred_read_replica,
            records: start.records_len.map(|_| Records::from(Bytes::new())),
            ..Default::default()
        }
    }

    fn finish(data: &mut whole::PartitionData, end: FetchPartitionEnd, records: &[u8]) {
        if data.records.is_some() {
            data.records = Some(Records::from(Bytes::copy_from_slice(records)));
        }
        if let Some(d) = end.diverging_epoch {
            data.diverging_epoch.epoch = d.epoch;
            data.diverging_epoch.end_offset = d.end_offset;
        }
        if let Some(c) = end.current_leader {
            data.current_leader.leader_id = c.leader_id;
            data.current_leader.leader_epoch = c.leader_epoch;
        }
        if let Some(s) = end.snapshot_id {
            data.snapshot_id.end_offset = s.end_offset;
            data.snapshot_id.epoch = s.epoch;
        }
    }

    fn any_partition(version: i16) -> impl Strategy<Value = whole::PartitionData> {
        let numbers = (
            any::<i32>(),
            any::<i16>(),
            any::<i64>(),
            any::<i64>(),
            any::<i64>(),
        );
        let lists = (
            proptest::option::of(proptest::collection::vec(
                (any::<i64>(), any::<i64>()),
                0..4,
            )),
            proptest::collection::vec(any::<u8>(), 0..300),
            proptest::option::of((0i32..9, 0i64..99)),
            proptest::option::of((0i32..9, 0i32..99)),
        );
        (numbers, lists).prop_map(
            move |((index, error, hw, lso, start), (aborted, records, diverging, leader))| {
                let mut data = whole::PartitionData {
                    partition_index: index,
                    error_code: error,
                    high_watermark: hw,
                    last_stable_offset: lso,
                    log_start_offset: if version >= 5 { start } else { -1 },
                    records: Some(Records::from(Bytes::from(records))),
                    ..Default::default()
                };
                data.aborted_transactions = aborted.map(|list| {
                    let item = |(producer_id, first_offset)| whole::AbortedTransaction {
                        producer_id,
                        first_offset,
                        ..Default::default()
                    };
                    list.into_iter().map(item).collect()
                });
                if version >= 11 {
                    data.preferred_read_replica = index;
                }
                if let (true, Some((epoch, end_offset))) = (version >= 12, diverging) {
                    data.diverging_epoch.epoch = epoch;
                    data.diverging_epoch.end_offset = end_offset;
                }
                if let (true, Some((leader_id, leader_epoch))) = (version >= 12, leader) {
                    data.current_leader.leader_id = leader_id;
                    data.current_leader.leader_epoch = leader_epoch;
                }
                data
            },
        )
    }

    fn any_response() -> impl Strategy<Value = (i16, FetchResponse)> {
        (4i16..=18).prop_flat_map(|version| {
            let topics = proptest::collection::vec(
                (
                    "[a-z]{1,9}",
                    any::<[u8; 16]>(),
                    proptest::collection::vec(any_partition(version), 0..3),
                ),
                0..3,
            );
            (Just(version), topics, any::<i32>(), any::<bool>()).prop_map(
                |(version, topics, number, endpoints)| {
                    let mut response = FetchResponse {
                        throttle_time_ms: number,
                        ..Default::default()
                    };
                    if version >= 7 {
                        response.session_id = number;
                    }
                    for (name, id, partitions) in topics {
                        let mut topic = whole::FetchableTopicResponse {
                            partitions,
                            ..Default::default()
                        };
                        if version >= 13 {
                            topic.topic_id = Uuid(id);
                        } else {
                            topic.topic = Str::from(name);
                        }
                        response.responses.push(topic);
                    }
                    if version >= 16 && endpoints {
                        response.node_endpoints.push(whole::NodeEndpoint {
                            node_id: 3,
                            host: Str::from("h"),
                            port: 9092,
                            rack: Some(Str::from("r")),
                            ..Default::default()
                        });
                    }
                    (version, response)
                },
            )
        })
    }

    proptest! {
        #[test]
        fn the_generated_codec_reads_the_same(
            (version, response) in any_response(),
            cuts in proptest::collection::vec(0usize..2000, 0..20),
        ) {
            let body = encode_body(&response, version).unwrap().to_bytes().unwrap();
            let events = all_events(version, &body, &cuts, FetchLimits::default()).unwrap();
            let decoded = crate::decode_exact::<FetchResponse>(body, version).unwrap();
            prop_assert_eq!(rebuild(events), decoded);
        }
    }
}
