//! The one table of APIs: key, name, versions, listeners. Servers pick from it what they implement;
//! docs/protocol.md is made of it.
//!
//! "Versions" are the ones to announce: stable ones only. The codec may know more
//! (`Message::VERSIONS`), for example the mirror's CreateTopics v8; [`Api::codec`] says so.

use std::fmt;

use crate::VersionRange;
use crate::messages;

/// The number of an API on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct ApiKey(pub i16);

impl ApiKey {
    /// The row of the table, if the key is known.
    pub fn api(self) -> Option<&'static Api> {
        APIS.binary_search_by_key(&self, |api| api.key)
            .ok()
            .and_then(|at| APIS.get(at))
    }

    /// Kafka's name, `Unknown` for a key without a row.
    pub fn name(self) -> &'static str {
        self.api().map_or("Unknown", |api| api.name)
    }
}

impl fmt::Display for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Which kinds of listeners an API belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Listeners {
    /// Listeners of brokers.
    pub broker: bool,
    /// Listeners of controllers.
    pub controller: bool,
}

/// Properties of an API beyond its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ApiFlags {
    /// A broker hands the request on to the active controller.
    pub forwarded: bool,
    /// Belongs to cluster mirroring: announced only while the mirror feature is on.
    pub mirror: bool,
}

/// One row of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Api {
    /// Number on the wire.
    pub key: ApiKey,
    /// Kafka's name, without `Request`.
    pub name: &'static str,
    /// Versions to announce.
    pub versions: VersionRange,
    /// Where it is served.
    pub listeners: Listeners,
    /// Other properties.
    pub flags: ApiFlags,
}

impl Api {
    /// Versions the request codec knows. Narrower than announced for Produce (see the table), wider
    /// for unstable versions.
    pub fn codec(&self) -> VersionRange {
        messages::request_versions(self.key).unwrap_or(self.versions)
    }
}

/// First flexible version of the request with this key, `i16::MAX` if the key is unknown or never
/// flexible.
pub fn request_flexible_from(key: ApiKey) -> i16 {
    messages::request_flexible_from(key)
}

const BROKER: Listeners = Listeners {
    broker: true,
    controller: false,
};
const CONTROLLER: Listeners = Listeners {
    broker: false,
    controller: true,
};
const BOTH: Listeners = Listeners {
    broker: true,
    controller: true,
};
const PLAIN: ApiFlags = ApiFlags {
    forwarded: false,
    mirror: false,
};
const FORWARDED: ApiFlags = ApiFlags {
    forwarded: true,
    mirror: false,
};
const MIRROR: ApiFlags = ApiFlags {
    forwarded: false,
    mirror: true,
};
const MIRROR_FORWARDED: ApiFlags = ApiFlags {
    forwarded: true,
    mirror: true,
};

macro_rules! apis {
    ($($key:literal $constant:ident $name:ident $min:literal $max:literal $listeners:ident $flags:ident;)*) => {
        impl ApiKey {
            $(#[doc = concat!("`", stringify!($key), "`: ", stringify!($name), ".")]
            pub const $constant: ApiKey = ApiKey($key);)*
        }

        /// All APIs, ascending by key.
        pub static APIS: &[Api] = &[$(Api {
            key: ApiKey($key),
            name: stringify!($name),
            versions: VersionRange::new($min, $max),
            listeners: $listeners,
            flags: $flags,
        }),*];
    };
}

// Produce is announced from 0 although bodies exist from 3 only: old librdkafka takes a higher
// minimum for "no compression supported" (KIP-896), and Kafka does the same. A request below 3 is
// answered UNSUPPORTED_VERSION.
apis! {
    0 PRODUCE Produce 0 13 BROKER PLAIN;
    1 FETCH Fetch 4 18 BOTH PLAIN;
    2 LIST_OFFSETS ListOffsets 1 11 BROKER PLAIN;
    3 METADATA Metadata 0 13 BROKER PLAIN;
    8 OFFSET_COMMIT OffsetCommit 2 10 BROKER PLAIN;
    9 OFFSET_FETCH OffsetFetch 1 10 BROKER PLAIN;
    10 FIND_COORDINATOR FindCoordinator 0 6 BROKER PLAIN;
    11 JOIN_GROUP JoinGroup 0 9 BROKER PLAIN;
    12 HEARTBEAT Heartbeat 0 4 BROKER PLAIN;
    13 LEAVE_GROUP LeaveGroup 0 5 BROKER PLAIN;
    14 SYNC_GROUP SyncGroup 0 5 BROKER PLAIN;
    15 DESCRIBE_GROUPS DescribeGroups 0 6 BROKER PLAIN;
    16 LIST_GROUPS ListGroups 0 5 BROKER PLAIN;
    17 SASL_HANDSHAKE SaslHandshake 0 1 BOTH PLAIN;
    18 API_VERSIONS ApiVersions 0 4 BOTH PLAIN;
    19 CREATE_TOPICS CreateTopics 2 7 BOTH FORWARDED;
    20 DELETE_TOPICS DeleteTopics 1 6 BOTH FORWARDED;
    21 DELETE_RECORDS DeleteRecords 0 2 BROKER PLAIN;
    22 INIT_PRODUCER_ID InitProducerId 0 5 BROKER PLAIN;
    23 OFFSET_FOR_LEADER_EPOCH OffsetForLeaderEpoch 2 4 BROKER PLAIN;
    24 ADD_PARTITIONS_TO_TXN AddPartitionsToTxn 0 5 BROKER PLAIN;
    25 ADD_OFFSETS_TO_TXN AddOffsetsToTxn 0 4 BROKER PLAIN;
    26 END_TXN EndTxn 0 5 BROKER PLAIN;
    27 WRITE_TXN_MARKERS WriteTxnMarkers 1 2 BROKER PLAIN;
    28 TXN_OFFSET_COMMIT TxnOffsetCommit 0 5 BROKER PLAIN;
    29 DESCRIBE_ACLS DescribeAcls 1 3 BOTH PLAIN;
    30 CREATE_ACLS CreateAcls 1 3 BOTH FORWARDED;
    31 DELETE_ACLS DeleteAcls 1 3 BOTH FORWARDED;
    32 DESCRIBE_CONFIGS DescribeConfigs 1 4 BOTH PLAIN;
    33 ALTER_CONFIGS AlterConfigs 0 2 BOTH FORWARDED;
    34 ALTER_REPLICA_LOG_DIRS AlterReplicaLogDirs 1 2 BROKER PLAIN;
    35 DESCRIBE_LOG_DIRS DescribeLogDirs 1 5 BROKER PLAIN;
    36 SASL_AUTHENTICATE SaslAuthenticate 0 2 BOTH PLAIN;
    37 CREATE_PARTITIONS CreatePartitions 0 3 BOTH FORWARDED;
    38 CREATE_DELEGATION_TOKEN CreateDelegationToken 1 3 BOTH FORWARDED;
    39 RENEW_DELEGATION_TOKEN RenewDelegationToken 1 2 BOTH FORWARDED;
    40 EXPIRE_DELEGATION_TOKEN ExpireDelegationToken 1 2 BOTH FORWARDED;
    41 DESCRIBE_DELEGATION_TOKEN DescribeDelegationToken 1 3 BOTH PLAIN;
    42 DELETE_GROUPS DeleteGroups 0 2 BROKER PLAIN;
    43 ELECT_LEADERS ElectLeaders 0 2 BOTH FORWARDED;
    44 INCREMENTAL_ALTER_CONFIGS IncrementalAlterConfigs 0 1 BOTH FORWARDED;
    45 ALTER_PARTITION_REASSIGNMENTS AlterPartitionReassignments 0 1 BOTH FORWARDED;
    46 LIST_PARTITION_REASSIGNMENTS ListPartitionReassignments 0 0 BOTH FORWARDED;
    47 OFFSET_DELETE OffsetDelete 0 0 BROKER PLAIN;
    48 DESCRIBE_CLIENT_QUOTAS DescribeClientQuotas 0 1 BROKER PLAIN;
    49 ALTER_CLIENT_QUOTAS AlterClientQuotas 0 1 BOTH FORWARDED;
    50 DESCRIBE_USER_SCRAM_CREDENTIALS DescribeUserScramCredentials 0 0 BOTH PLAIN;
    51 ALTER_USER_SCRAM_CREDENTIALS AlterUserScramCredentials 0 0 BOTH FORWARDED;
    52 VOTE Vote 0 2 CONTROLLER PLAIN;
    53 BEGIN_QUORUM_EPOCH BeginQuorumEpoch 0 1 CONTROLLER PLAIN;
    54 END_QUORUM_EPOCH EndQuorumEpoch 0 1 CONTROLLER PLAIN;
    55 DESCRIBE_QUORUM DescribeQuorum 0 2 BOTH FORWARDED;
    56 ALTER_PARTITION AlterPartition 2 3 CONTROLLER PLAIN;
    57 UPDATE_FEATURES UpdateFeatures 0 2 BOTH FORWARDED;
    58 ENVELOPE Envelope 0 0 CONTROLLER PLAIN;
    59 FETCH_SNAPSHOT FetchSnapshot 0 1 CONTROLLER PLAIN;
    60 DESCRIBE_CLUSTER DescribeCluster 0 2 BOTH PLAIN;
    61 DESCRIBE_PRODUCERS DescribeProducers 0 0 BROKER PLAIN;
    62 BROKER_REGISTRATION BrokerRegistration 0 4 CONTROLLER PLAIN;
    63 BROKER_HEARTBEAT BrokerHeartbeat 0 2 CONTROLLER PLAIN;
    64 UNREGISTER_BROKER UnregisterBroker 0 0 BOTH FORWARDED;
    65 DESCRIBE_TRANSACTIONS DescribeTransactions 0 0 BROKER PLAIN;
    66 LIST_TRANSACTIONS ListTransactions 0 2 BROKER PLAIN;
    67 ALLOCATE_PRODUCER_IDS AllocateProducerIds 0 0 CONTROLLER FORWARDED;
    68 CONSUMER_GROUP_HEARTBEAT ConsumerGroupHeartbeat 0 1 BROKER PLAIN;
    69 CONSUMER_GROUP_DESCRIBE ConsumerGroupDescribe 0 1 BROKER PLAIN;
    70 CONTROLLER_REGISTRATION ControllerRegistration 0 0 CONTROLLER PLAIN;
    71 GET_TELEMETRY_SUBSCRIPTIONS GetTelemetrySubscriptions 0 0 BROKER PLAIN;
    72 PUSH_TELEMETRY PushTelemetry 0 0 BROKER PLAIN;
    73 ASSIGN_REPLICAS_TO_DIRS AssignReplicasToDirs 0 0 CONTROLLER PLAIN;
    74 LIST_CONFIG_RESOURCES ListConfigResources 0 1 BROKER PLAIN;
    75 DESCRIBE_TOPIC_PARTITIONS DescribeTopicPartitions 0 0 BROKER PLAIN;
    76 SHARE_GROUP_HEARTBEAT ShareGroupHeartbeat 1 1 BROKER PLAIN;
    77 SHARE_GROUP_DESCRIBE ShareGroupDescribe 1 1 BROKER PLAIN;
    78 SHARE_FETCH ShareFetch 1 2 BROKER PLAIN;
    79 SHARE_ACKNOWLEDGE ShareAcknowledge 1 2 BROKER PLAIN;
    80 ADD_RAFT_VOTER AddRaftVoter 0 1 BOTH FORWARDED;
    81 REMOVE_RAFT_VOTER RemoveRaftVoter 0 0 BOTH FORWARDED;
    82 UPDATE_RAFT_VOTER UpdateRaftVoter 0 0 CONTROLLER PLAIN;
    83 INITIALIZE_SHARE_GROUP_STATE InitializeShareGroupState 0 0 BROKER PLAIN;
    84 READ_SHARE_GROUP_STATE ReadShareGroupState 0 0 BROKER PLAIN;
    85 WRITE_SHARE_GROUP_STATE WriteShareGroupState 0 1 BROKER PLAIN;
    86 DELETE_SHARE_GROUP_STATE DeleteShareGroupState 0 0 BROKER PLAIN;
    87 READ_SHARE_GROUP_STATE_SUMMARY ReadShareGroupStateSummary 0 1 BROKER PLAIN;
    88 STREAMS_GROUP_HEARTBEAT StreamsGroupHeartbeat 0 0 BROKER PLAIN;
    89 STREAMS_GROUP_DESCRIBE StreamsGroupDescribe 0 0 BROKER PLAIN;
    90 DESCRIBE_SHARE_GROUP_OFFSETS DescribeShareGroupOffsets 0 1 BROKER PLAIN;
    91 ALTER_SHARE_GROUP_OFFSETS AlterShareGroupOffsets 0 0 BROKER PLAIN;
    92 DELETE_SHARE_GROUP_OFFSETS DeleteShareGroupOffsets 0 0 BROKER PLAIN;
    94 CREATE_MIRROR CreateMirror 0 0 BOTH MIRROR_FORWARDED;
    95 ADD_TOPICS_TO_MIRROR AddTopicsToMirror 0 0 BOTH MIRROR_FORWARDED;
    96 REMOVE_TOPICS_FROM_MIRROR RemoveTopicsFromMirror 0 0 BOTH MIRROR_FORWARDED;
    98 LIST_MIRRORS ListMirrors 0 0 BROKER MIRROR;
    99 DESCRIBE_MIRRORS DescribeMirrors 0 0 BROKER MIRROR;
    100 READ_MIRROR_STATES ReadMirrorStates 0 0 BROKER MIRROR;
    101 WRITE_MIRROR_STATES WriteMirrorStates 0 0 BROKER MIRROR;
    102 PAUSE_MIRROR_TOPICS PauseMirrorTopics 0 0 BOTH MIRROR_FORWARDED;
    103 RESUME_MIRROR_TOPICS ResumeMirrorTopics 0 0 BOTH MIRROR_FORWARDED;
    104 DELETE_MIRROR DeleteMirror 0 0 BOTH MIRROR_FORWARDED;
    105 BUMP_LEADER_EPOCHS BumpLeaderEpochs 0 0 BOTH MIRROR_FORWARDED;
}
