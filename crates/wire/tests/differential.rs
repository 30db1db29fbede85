//! Byte equality with the `kafka-protocol` crate for every message and version both know: ours is
//! encoded, theirs decodes and encodes it again. It was generated from Kafka 4.1, so newer versions
//! are left to the golden tests and to real clients.

mod sample;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};
use sample::{Gen, Sample, sample};
use tarn_wire::{Message, decode_exact, encode_body, messages as ours};

/// Samples of each message and version.
const ROUNDS: u64 = 12;

fn compare<O, T>() -> usize
where
    O: Message + Sample,
    T: TheirMessage + Encodable + Decodable + Default,
{
    compare_with::<O, T>(|_, _| {})
}

fn compare_with<O, T>(adjust: impl Fn(&mut O, i16)) -> usize
where
    O: Message + Sample,
    T: TheirMessage + Encodable + Decodable + Default,
{
    let min = O::VERSIONS.min.max(T::VERSIONS.min);
    let max = O::VERSIONS.max.min(T::VERSIONS.max);
    for version in min..=max {
        for seed in 0..ROUNDS {
            let mut message: O = sample(&mut Gen::new(seed), version);
            adjust(&mut message, version);
            let body = encode_body(&message, version).unwrap().to_bytes().unwrap();
            assert_eq!(
                through_theirs::<T>(&body, version, O::NAME),
                body,
                "{} v{version}",
                O::NAME
            );
        }
        compare_defaults::<O, T>(version);
    }
    (max - min + 1).max(0) as usize
}

fn through_theirs<T: Encodable + Decodable>(body: &Bytes, version: i16, name: &str) -> Bytes {
    let mut input = body.clone();
    let read = T::decode(&mut input, version)
        .unwrap_or_else(|e| panic!("{name} v{version}: {e} in {body:02x?}"));
    assert!(
        input.is_empty(),
        "{name} v{version}: {} bytes were not read",
        input.len()
    );
    let mut output = BytesMut::new();
    read.encode(&mut output, version)
        .unwrap_or_else(|e| panic!("{name} v{version}: {e}"));
    output.freeze()
}

fn compare_defaults<O: Message, T: Encodable + Default>(version: i16) {
    let mut expected = BytesMut::new();
    let (Ok(()), Ok(body)) = (
        T::default().encode(&mut expected, version),
        encode_body(&O::default(), version),
    ) else {
        return;
    };
    assert_eq!(
        body.to_bytes().unwrap(),
        expected,
        "default of {} v{version}",
        O::NAME
    );
    let read = decode_exact::<O>(expected.freeze(), version);
    assert!(read.is_ok(), "{} v{version}: {read:?}", O::NAME);
}

macro_rules! compare_all {
    ($($name:ident)*) => { 0 $(+ compare::<ours::$name, theirs::$name>())* };
}

#[test]
fn bytes_equal_those_of_kafka_protocol() {
    let mut pairs = compare_all! {
    AddOffsetsToTxnRequest
    AddOffsetsToTxnResponse
    AddPartitionsToTxnRequest
    AddPartitionsToTxnResponse
    AddRaftVoterRequest
    AddRaftVoterResponse
    AllocateProducerIdsRequest
    AllocateProducerIdsResponse
    AlterClientQuotasRequest
    AlterClientQuotasResponse
    AlterConfigsRequest
    AlterConfigsResponse
    AlterPartitionReassignmentsRequest
    AlterPartitionReassignmentsResponse
    AlterPartitionRequest
    AlterPartitionResponse
    AlterReplicaLogDirsRequest
    AlterReplicaLogDirsResponse
    AlterShareGroupOffsetsRequest
    AlterShareGroupOffsetsResponse
    AlterUserScramCredentialsRequest
    AlterUserScramCredentialsResponse
    ApiVersionsRequest
    ApiVersionsResponse
    AssignReplicasToDirsRequest
    AssignReplicasToDirsResponse
    BeginQuorumEpochRequest
    BeginQuorumEpochResponse
    BrokerHeartbeatRequest
    BrokerHeartbeatResponse
    BrokerRegistrationRequest
    BrokerRegistrationResponse
    ConsumerGroupDescribeRequest
    ConsumerGroupDescribeResponse
    ConsumerGroupHeartbeatRequest
    ConsumerGroupHeartbeatResponse
    ConsumerProtocolAssignment
    ConsumerProtocolSubscription
    ControllerRegistrationRequest
    ControllerRegistrationResponse
    CreateAclsRequest
    CreateAclsResponse
    CreateDelegationTokenRequest
    CreateDelegationTokenResponse
    CreatePartitionsRequest
    CreatePartitionsResponse
    CreateTopicsRequest
    CreateTopicsResponse
    DefaultPrincipalData
    DeleteAclsRequest
    DeleteAclsResponse
    DeleteGroupsRequest
    DeleteGroupsResponse
    DeleteRecordsRequest
    DeleteRecordsResponse
    DeleteShareGroupOffsetsRequest
    DeleteShareGroupOffsetsResponse
    DeleteShareGroupStateRequest
    DeleteShareGroupStateResponse
    DeleteTopicsRequest
    DeleteTopicsResponse
    DescribeAclsRequest
    DescribeAclsResponse
    DescribeClientQuotasRequest
    DescribeClientQuotasResponse
    DescribeClusterRequest
    DescribeClusterResponse
    DescribeConfigsRequest
    DescribeConfigsResponse
    DescribeDelegationTokenRequest
    DescribeDelegationTokenResponse
    DescribeGroupsRequest
    DescribeGroupsResponse
    DescribeLogDirsRequest
    DescribeLogDirsResponse
    DescribeProducersRequest
    DescribeProducersResponse
    DescribeQuorumRequest
    DescribeQuorumResponse
    DescribeShareGroupOffsetsRequest
    DescribeShareGroupOffsetsResponse
    DescribeTopicPartitionsRequest
    DescribeTopicPartitionsResponse
    DescribeTransactionsRequest
    DescribeTransactionsResponse
    DescribeUserScramCredentialsRequest
    DescribeUserScramCredentialsResponse
    ElectLeadersRequest
    ElectLeadersResponse
    EndQuorumEpochRequest
    EndQuorumEpochResponse
    EndTxnMarker
    EndTxnRequest
    EndTxnResponse
    EnvelopeRequest
    EnvelopeResponse
    ExpireDelegationTokenRequest
    ExpireDelegationTokenResponse
    FetchRequest
    FetchResponse
    FetchSnapshotRequest
    FetchSnapshotResponse
    FindCoordinatorRequest
    FindCoordinatorResponse
    GetTelemetrySubscriptionsRequest
    GetTelemetrySubscriptionsResponse
    HeartbeatRequest
    HeartbeatResponse
    IncrementalAlterConfigsRequest
    IncrementalAlterConfigsResponse
    InitProducerIdRequest
    InitProducerIdResponse
    InitializeShareGroupStateRequest
    InitializeShareGroupStateResponse
    JoinGroupRequest
    JoinGroupResponse
    KRaftVersionRecord
    LeaveGroupRequest
    LeaveGroupResponse
    ListConfigResourcesRequest
    ListConfigResourcesResponse
    ListGroupsRequest
    ListGroupsResponse
    ListOffsetsRequest
    ListOffsetsResponse
    ListPartitionReassignmentsRequest
    ListPartitionReassignmentsResponse
    ListTransactionsRequest
    ListTransactionsResponse
    MetadataRequest
    MetadataResponse
    OffsetCommitRequest
    OffsetCommitResponse
    OffsetDeleteRequest
    OffsetDeleteResponse
    OffsetFetchRequest
    OffsetFetchResponse
    OffsetForLeaderEpochRequest
    OffsetForLeaderEpochResponse
    ProduceRequest
    ProduceResponse
    PushTelemetryRequest
    PushTelemetryResponse
    ReadShareGroupStateRequest
    ReadShareGroupStateResponse
    ReadShareGroupStateSummaryRequest
    ReadShareGroupStateSummaryResponse
    RemoveRaftVoterRequest
    RemoveRaftVoterResponse
    RenewDelegationTokenRequest
    RenewDelegationTokenResponse
    SaslAuthenticateRequest
    SaslAuthenticateResponse
    SaslHandshakeRequest
    SaslHandshakeResponse
    ShareAcknowledgeRequest
    ShareAcknowledgeResponse
    ShareFetchRequest
    ShareFetchResponse
    ShareGroupDescribeRequest
    ShareGroupDescribeResponse
    ShareGroupHeartbeatRequest
    ShareGroupHeartbeatResponse
    SnapshotFooterRecord
    SnapshotHeaderRecord
    SyncGroupRequest
    SyncGroupResponse
    TxnOffsetCommitRequest
    TxnOffsetCommitResponse
    UnregisterBrokerRequest
    UnregisterBrokerResponse
    UpdateFeaturesRequest
    UpdateFeaturesResponse
    UpdateRaftVoterRequest
    UpdateRaftVoterResponse
    VoteRequest
    VoteResponse
    WriteShareGroupStateRequest
    WriteShareGroupStateResponse
    WriteTxnMarkersRequest
    WriteTxnMarkersResponse
    };
    // Theirs takes the field `Version` for the version of what follows.
    pairs += compare_with::<ours::LeaderChangeMessage, theirs::LeaderChangeMessage>(|m, v| {
        m.version = v
    });
    pairs += compare_with::<ours::VotersRecord, theirs::VotersRecord>(|m, v| m.version = v);
    println!("{pairs} pairs of message and version");
    assert!(pairs > 500, "only {pairs} pairs were compared");
}
