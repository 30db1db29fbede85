//! Produce and fetch over raw frames: bytes, limits, long polls, sessions.

mod support;

use std::time::{Duration, Instant};

use support::*;
use tarn_records::BatchBuilder;
use tarn_wire::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use tarn_wire::messages::{
    FetchRequest, InitProducerIdRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
    metadata_request,
};
use tarn_wire::{Records, Str, Uuid};

#[tokio::test(flavor = "multi_thread")]
async fn produced_bytes_come_back_with_offsets_and_nothing_else_changed() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let sent = batch(&[b"one", b"two"]);
    for version in 3..=12 {
        for acks in [1, -1] {
            let response = client
                .call(version, &produce_request("t", 0, sent.clone(), acks))
                .await;
            assert_eq!(
                response.responses[0].partition_responses[0].error_code, 0,
                "version {version}"
            );
        }
    }
    for version in 4..=12 {
        let response = client
            .call(version, &fetch_request("t", 2, 1 << 20, 100))
            .await;
        let data = &response.responses[0].partitions[0];
        assert_eq!(
            (data.error_code, data.high_watermark, data.log_start_offset),
            (0, 40, if version < 5 { -1 } else { 0 })
        );
        let bytes = data.records.as_ref().and_then(Records::as_bytes).unwrap();
        let first = tarn_records::batches(bytes).next().unwrap().unwrap();
        assert_eq!(first.header.base_offset, 2);
        first.check_crc().unwrap();
        assert_eq!(
            bytes[21..sent.len()],
            sent[21..],
            "everything behind the two patched fields is as it was sent"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_are_produced_and_fetched_by_id() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let topic = metadata_request::MetadataRequestTopic {
        name: Some(Str::from("t")),
        ..Default::default()
    };
    let metadata = client
        .call(
            12,
            &MetadataRequest {
                topics: Some(vec![topic]),
                ..Default::default()
            },
        )
        .await;
    let id = metadata.topics[0].topic_id;
    let mut request = produce_request("", 0, batch(&[b"x"]), -1);
    request.topic_data[0].topic_id = id;
    assert_eq!(
        client.call(13, &request).await.responses[0].partition_responses[0].error_code,
        0
    );
    for version in 13..=18 {
        let mut request = fetch_request("", 0, 1 << 20, 100);
        request.topics[0].topic_id = id;
        request.cluster_id = None;
        let response = client.call(version, &request).await;
        assert_eq!(
            batch_offsets(&response.responses[0].partitions[0].records),
            vec![(0, 0)],
            "version {version}"
        );
        request.topics[0].topic_id = Uuid::random();
        assert_eq!(
            client.call(version, &request).await.responses[0].partitions[0].error_code,
            100
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fetch_from_the_middle_of_a_batch_gives_that_batch() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    for values in [[b"a", b"b"], [b"c", b"d"]] {
        client
            .produce("t", 0, batch(&[values[0], values[1]]), -1)
            .await;
    }
    assert_eq!(
        batch_offsets(&client.fetch("t", 1, 1 << 20, 100).await.records),
        vec![(0, 1), (2, 3)]
    );
    assert_eq!(
        batch_offsets(&client.fetch("t", 3, 1 << 20, 100).await.records),
        vec![(2, 3)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_poll_ends_by_time_or_by_a_produce() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let begin = Instant::now();
    let data = client.fetch("t", 0, 1 << 20, 500).await;
    let waited = begin.elapsed();
    assert!(data.records.is_none_or(|records| records.is_empty()));
    assert!(
        waited >= Duration::from_millis(495) && waited < Duration::from_millis(1500),
        "{waited:?}"
    );
    let begin = Instant::now();
    let request = fetch_request("t", 0, 1 << 20, 10_000);
    let id = client.send(12, &request).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    let mut producer = Client::connect(node.server.address()).await;
    producer.produce("t", 0, batch(&[b"x"]), 1).await;
    let response = client.answer::<FetchRequest>(12, id).await.unwrap();
    assert_eq!(
        batch_offsets(&response.responses[0].partitions[0].records),
        vec![(0, 0)]
    );
    assert!(
        begin.elapsed() < Duration::from_secs(2),
        "{:?}",
        begin.elapsed()
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_above_the_limits_of_a_fetch_still_arrives_whole() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client
        .create("t", 1, &[("max.message.bytes", "4000000")])
        .await;
    let big = vec![7u8; 2 << 20];
    assert_eq!(client.produce("t", 0, batch(&[&big]), -1).await, (0, 0));
    assert_eq!(client.produce("t", 0, batch(&[b"next"]), -1).await, (0, 1));
    assert_eq!(
        batch_offsets(&client.fetch("t", 0, 1, 100).await.records),
        vec![(0, 0)]
    );
    assert_eq!(
        batch_offsets(&client.fetch("t", 1, 1, 100).await.records),
        vec![(1, 1)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_holds_several_partitions_within_its_limit() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 2, &[]).await;
    let value = vec![1u8; 10_000];
    for partition in [0, 1] {
        client.produce("t", partition, batch(&[&value]), -1).await;
    }
    let mut request = fetch_request("t", 0, 15_000, 100);
    let mut second = request.topics[0].partitions[0].clone();
    second.partition = 1;
    request.topics[0].partitions.push(second);
    let response = client.call(12, &request).await;
    let sizes: Vec<u64> = response.responses[0]
        .partitions
        .iter()
        .map(|p| p.records.as_ref().map_or(0, Records::len))
        .collect();
    assert!(
        sizes[0] > 10_000 && sizes.iter().sum::<u64>() <= 15_000,
        "{sizes:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unknown_tagged_fields_are_ignored() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let mut produce = produce_request("t", 0, batch(&[b"x"]), -1);
    produce
        .unknown_tagged
        .push((77, bytes::Bytes::from_static(b"abc")));
    produce.topic_data[0]
        .unknown_tagged
        .push((77, bytes::Bytes::from_static(b"abc")));
    let answer: tarn_wire::messages::ProduceResponse =
        client.call::<ProduceRequest>(9, &produce).await;
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    let mut fetch = fetch_request("t", 0, 1000, 100);
    fetch
        .unknown_tagged
        .push((77, bytes::Bytes::from_static(b"abc")));
    assert_eq!(
        batch_offsets(&client.call(12, &fetch).await.responses[0].partitions[0].records),
        vec![(0, 0)]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn acks_0_gets_no_answer_and_a_refusal_closes() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    client
        .send(9, &produce_request("t", 0, batch(&[b"x"]), 0))
        .await;
    assert_eq!(
        batch_offsets(&client.fetch("t", 0, 1000, 1000).await.records),
        vec![(0, 0)]
    );
    client
        .send(9, &produce_request("nope", 0, batch(&[b"x"]), 0))
        .await;
    assert!(client.read_frame().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn produce_requests_that_arrive_together_are_answered_in_order_also_in_front_of_one_without_an_answer()
 {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let mut together = Vec::new();
    for (id, acks) in [(101, 1), (102, 1), (103, -1), (104, 1), (105, 0)] {
        let request = produce_request("t", 0, batch(&[b"x"]), acks);
        let frame = tarn_wire::request_frame(id, Some("test"), 9, &request).unwrap();
        together.extend_from_slice(&frame.to_bytes().unwrap());
    }
    tokio::io::AsyncWriteExt::write_all(&mut client.stream, &together)
        .await
        .unwrap();
    for (offset, id) in (101..=104).enumerate() {
        let answer = client.answer::<ProduceRequest>(9, id).await.unwrap();
        let partition = &answer.responses[0].partition_responses[0];
        assert_eq!(
            (partition.error_code, partition.base_offset),
            (0, offset as i64)
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_produce_requests_have_their_own_errors_and_store_nothing() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client
        .create("t", 1, &[("max.message.bytes", "1000")])
        .await;
    client
        .create("c", 1, &[("cleanup.policy", "compact")])
        .await;
    let mut corrupt = batch(&[b"x"]);
    *corrupt.last_mut().unwrap() ^= 1;
    assert_eq!(client.produce("t", 0, corrupt, -1).await.0, 2);
    assert_eq!(
        client.produce("t", 0, batch(&[&[0u8; 2000]]), -1).await.0,
        10
    );
    assert_eq!(client.produce("c", 0, batch(&[b"no key"]), -1).await.0, 87);
    assert_eq!(client.produce("t", 0, Vec::new(), -1).await.0, 87);
    assert_eq!(client.produce("t", 0, batch(&[b"x"]), 2).await.0, 21);
    assert_eq!(client.produce("t", 9, batch(&[b"x"]), -1).await.0, 3);
    let data = client.fetch("t", 0, 1000, 0).await;
    assert_eq!(data.high_watermark, 0);
    let answer = client
        .call(12, &produce_request("t", 0, batch(&[&[0u8; 2000]]), -1))
        .await;
    assert!(
        answer.responses[0].partition_responses[0]
            .error_message
            .as_ref()
            .is_some_and(|text| text.contains("max.message.bytes"))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idempotent_retry_gets_the_first_offset_again() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let id = client
        .call(
            4,
            &InitProducerIdRequest {
                transactional_id: None,
                ..Default::default()
            },
        )
        .await;
    assert_eq!((id.error_code, id.producer_epoch), (0, 0));
    let make = |sequence: i32| {
        let mut builder = BatchBuilder::new().producer(id.producer_id, 0, sequence);
        builder.add(now_ms(), None, Some(b"x"), &[]);
        builder.build().unwrap()
    };
    assert_eq!(client.produce("t", 0, make(0), -1).await, (0, 0));
    assert_eq!(client.produce("t", 0, make(1), -1).await, (0, 1));
    assert_eq!(client.produce("t", 0, make(0), -1).await, (0, 0));
    assert_eq!(client.produce("t", 0, make(5), -1).await.0, 45);
}

#[tokio::test(flavor = "multi_thread")]
async fn pipelined_produces_are_answered_in_order() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    let mut ids = Vec::new();
    for _ in 0..50 {
        ids.push(
            client
                .send(9, &produce_request("t", 0, batch(&[b"x"]), -1))
                .await,
        );
    }
    for (at, id) in ids.into_iter().enumerate() {
        let response = client.answer::<ProduceRequest>(9, id).await.unwrap();
        assert_eq!(
            response.responses[0].partition_responses[0].base_offset,
            at as i64
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn special_timestamps_are_answered_like_kafka() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 1, &[]).await;
    for timestamp in [10i64, 20, 20, 30] {
        let mut builder = BatchBuilder::new();
        builder.add(timestamp, None, Some(b"x"), &[]);
        client.produce("t", 0, builder.build().unwrap(), -1).await;
    }
    for (asked, offset) in [
        (-1, 4),
        (-2, 0),
        (-3, 3),
        (-4, 0),
        (-5, -1),
        (0, 0),
        (15, 1),
        (20, 1),
        (31, -1),
    ] {
        let partition = ListOffsetsPartition {
            partition_index: 0,
            current_leader_epoch: -1,
            timestamp: asked,
            ..Default::default()
        };
        let topic = ListOffsetsTopic {
            name: Str::from("t"),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = ListOffsetsRequest {
            replica_id: -1,
            topics: vec![topic],
            ..Default::default()
        };
        let answer = client.call(9, &request).await.topics[0].partitions[0].clone();
        assert_eq!(
            (answer.error_code, answer.offset),
            (0, offset),
            "timestamp {asked}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incremental_session_names_only_what_changed() {
    let node = start().await;
    let mut client = Client::connect(node.server.address()).await;
    client.create("t", 2, &[]).await;
    let mut full = fetch_request("t", 0, 1 << 20, 0);
    let mut second = full.topics[0].partitions[0].clone();
    second.partition = 1;
    full.topics[0].partitions.push(second);
    full.session_epoch = 0;
    let first = client.call(12, &full).await;
    assert!(first.session_id != 0);
    assert_eq!(first.responses[0].partitions.len(), 2);
    client.produce("t", 1, batch(&[b"x"]), -1).await;
    let next = FetchRequest {
        session_id: first.session_id,
        session_epoch: 1,
        topics: Vec::new(),
        ..full.clone()
    };
    let answer = client.call(12, &next).await;
    assert_eq!(answer.responses.len(), 1);
    assert_eq!(
        answer.responses[0]
            .partitions
            .iter()
            .map(|p| p.partition_index)
            .collect::<Vec<_>>(),
        vec![1]
    );
    assert_eq!(
        client.call(12, &next).await.error_code,
        71,
        "the epoch was used"
    );
    let unknown = FetchRequest {
        session_id: 1,
        session_epoch: 5,
        ..next
    };
    assert_eq!(client.call(12, &unknown).await.error_code, 70);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_topics_and_records() {
    let dir = tempfile::tempdir().unwrap();
    let server = start_in(dir.path(), &[]).await;
    let cluster_id = server.cluster_id().to_owned();
    let mut client = Client::connect(server.address()).await;
    client.create("t", 3, &[("retention.ms", "1000000")]).await;
    for _ in 0..10 {
        client.produce("t", 2, batch(&[b"x"]), -1).await;
    }
    let begin = Instant::now();
    assert!(server.shutdown().await.clean);
    assert!(begin.elapsed() < Duration::from_secs(5));
    let server = start_in(dir.path(), &[]).await;
    assert_eq!(server.cluster_id(), cluster_id);
    let mut client = Client::connect(server.address()).await;
    assert_eq!(client.produce("t", 2, batch(&[b"y"]), -1).await, (0, 10));
    server.shutdown().await;
}
