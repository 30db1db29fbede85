//! Garbage on every announced request: it is answered or the connection is closed, and a witness on
//! another connection notices nothing.

mod support;

use std::net::SocketAddr;

use support::*;
use tarn_wire::messages::*;
use tarn_wire::{Request, Str, request_frame};
use tokio::io::AsyncWriteExt;

/// Frames of one request in every version, without the length.
fn frames<R: Request>(min: i16, max: i16, request: &R) -> Vec<Vec<u8>> {
    (min..=max)
        .filter_map(|version| request_frame(1, Some("x"), version, request).ok())
        .filter_map(|frame| frame.to_bytes())
        .map(|bytes| bytes[4..].to_vec())
        .collect()
}

macro_rules! defaults {
    ($all:ident, $($request:ident $min:literal $max:literal;)*) => { $( $all.extend(frames::<$request>($min, $max, &$request::default())); )* };
}

fn corpus() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    defaults!(all,
        MetadataRequest 0 13; OffsetCommitRequest 2 9; OffsetFetchRequest 1 9; FindCoordinatorRequest 0 6; JoinGroupRequest 0 9;
        HeartbeatRequest 0 4; LeaveGroupRequest 0 5; SyncGroupRequest 0 5; DescribeGroupsRequest 0 6; ListGroupsRequest 0 5;
        ApiVersionsRequest 0 4; DeleteTopicsRequest 1 6; DeleteRecordsRequest 0 2; InitProducerIdRequest 0 5;
        OffsetForLeaderEpochRequest 2 4; DescribeConfigsRequest 1 4; AlterConfigsRequest 0 2; DescribeLogDirsRequest 1 5;
        CreatePartitionsRequest 0 3; DeleteGroupsRequest 0 2; IncrementalAlterConfigsRequest 0 1; OffsetDeleteRequest 0 0;
        DescribeQuorumRequest 0 2; UpdateFeaturesRequest 0 2; DescribeClusterRequest 0 2; DescribeProducersRequest 0 0;
        ListConfigResourcesRequest 0 1; DescribeTopicPartitionsRequest 0 0; ListOffsetsRequest 1 11;
        CreateMirrorRequest 0 0; AddTopicsToMirrorRequest 0 0; RemoveTopicsFromMirrorRequest 0 0; ListMirrorsRequest 0 0;
        DescribeMirrorsRequest 0 0; ReadMirrorStatesRequest 0 0; WriteMirrorStatesRequest 0 0; PauseMirrorTopicsRequest 0 0;
        ResumeMirrorTopicsRequest 0 0; DeleteMirrorRequest 0 0; BumpLeaderEpochsRequest 0 0;
    );
    all.extend(frames(3, 12, &produce_request("t", 0, batch(&[b"x"]), -1)));
    all.extend(frames(4, 12, &fetch_request("t", 0, 1000, 0)));
    all.extend(frames(
        2,
        7,
        &create_request("g", 1, &[("retention.ms", "1")]),
    ));
    let join = JoinGroupRequest {
        group_id: Str::from("g"),
        session_timeout_ms: 6000,
        protocol_type: Str::from("consumer"),
        ..Default::default()
    };
    all.extend(frames(0, 9, &join));
    all
}

/// Sends a frame and waits for an answer or a close; gives whether the connection can be used
/// again.
async fn poke(client: &mut Client, frame: &[u8]) -> bool {
    if client.send_frame(frame).await.is_err() {
        return false;
    }
    // What became a long poll is given up: the connection goes, the server must not mind.
    let answer =
        tokio::time::timeout(std::time::Duration::from_millis(300), client.read_frame()).await;
    answer.is_ok_and(|answer| answer.is_some())
}

async fn storm(address: SocketAddr, frames: Vec<Vec<u8>>) -> usize {
    let mut client = Client::connect(address).await;
    let mut sent = 0;
    for frame in frames {
        sent += 1;
        if !poke(&mut client, &frame).await {
            client = Client::connect(address).await;
        }
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn truncated_and_mutilated_requests_disturb_nobody() {
    let node = start().await;
    let address = node.server.address();
    let mut witness = Client::connect(address).await;
    witness.create("t", 1, &[]).await;
    let mut cases: Vec<Vec<u8>> = Vec::new();
    for frame in corpus() {
        // Header: key, version, correlation id; from there on every position.
        for at in 8..frame.len() {
            cases.push(frame[..at].to_vec());
            let left = (frame.len() - at) as i32 + 1;
            for length in [-2i32, i32::MAX, left] {
                let mut bad = frame.clone();
                for (to, byte) in bad[at..].iter_mut().zip(length.to_be_bytes()) {
                    *to = byte;
                }
                cases.push(bad);
            }
            let mut varint = frame.clone();
            for (to, byte) in varint[at..].iter_mut().zip([0xff, 0xff, 0xff, 0xff, 0x0f]) {
                *to = byte;
            }
            cases.push(varint);
        }
    }
    let total = cases.len();
    let mut workers = tokio::task::JoinSet::new();
    let share = total.div_ceil(8).max(1);
    for part in cases.chunks(share) {
        workers.spawn(storm(address, part.to_vec()));
    }
    let mut sent = 0;
    while let Some(done) = workers.join_next().await {
        sent += done.unwrap();
    }
    assert_eq!(sent, total);
    assert_eq!(
        witness.produce("t", 0, batch(&[b"still here"]), -1).await.0,
        0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn bad_frame_lengths_close_the_connection() {
    let node = start().await;
    for length in [-1i32, -2, 0, 1, 7, i32::MAX, 104_857_601] {
        let mut client = Client::connect(node.server.address()).await;
        client
            .stream
            .write_all(&length.to_be_bytes())
            .await
            .unwrap();
        assert!(client.read_frame().await.is_none(), "length {length}");
    }
    let mut client = Client::connect(node.server.address()).await;
    assert_eq!(
        client
            .call(
                9,
                &MetadataRequest {
                    topics: None,
                    ..Default::default()
                }
            )
            .await
            .brokers
            .len(),
        1
    );
}
