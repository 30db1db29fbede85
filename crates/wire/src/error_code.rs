//! Kafka's error codes, as of Kafka 4.3, with their names and our own sentences.
//!
//! The numbers of the mirror dialects (134 and up) are not here: they mean different things to
//! different callers and are mapped at the edge of a connection by the mirror room.

use std::fmt;

/// An error code on the wire. Any number is allowed; the constants are the ones Kafka 4.3 knows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ErrorCode(pub i16);

macro_rules! error_codes {
    ($($code:literal $name:ident $retriable:ident $message:literal;)*) => {
        impl ErrorCode {
            $(#[doc = concat!("`", stringify!($code), "`: ", $message, ".")]
            pub const $name: ErrorCode = ErrorCode($code);)*

            /// All codes Kafka 4.3 knows, ascending.
            pub const ALL: &[ErrorCode] = &[$(ErrorCode($code)),*];

            fn row(self) -> Option<(&'static str, bool, &'static str)> {
                match self.0 {
                    $($code => Some((stringify!($name), $retriable, $message)),)*
                    _ => None,
                }
            }
        }
    };
}

impl ErrorCode {
    /// Kafka's name, `UNKNOWN` for a number that has none.
    pub fn name(self) -> &'static str {
        self.row().map_or("UNKNOWN", |(name, _, _)| name)
    }

    /// What is wrong, in a few words.
    pub fn message(self) -> &'static str {
        self.row().map_or(
            "an error code this version does not know",
            |(_, _, message)| message,
        )
    }

    /// Whether Kafka's clients try again by themselves after this error.
    pub fn is_retriable(self) -> bool {
        self.row().is_some_and(|(_, retriable, _)| retriable)
    }

    /// True for [`ErrorCode::NONE`].
    pub fn is_none(self) -> bool {
        self == ErrorCode::NONE
    }
}

impl Default for ErrorCode {
    fn default() -> ErrorCode {
        ErrorCode::NONE
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.name(), self.0)
    }
}

impl fmt::Debug for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<ErrorCode> for i16 {
    fn from(code: ErrorCode) -> i16 {
        code.0
    }
}

error_codes! {
    -1 UNKNOWN_SERVER_ERROR false "the server failed in a way it did not expect";
    0 NONE false "no error";
    1 OFFSET_OUT_OF_RANGE false "the log does not hold this offset";
    2 CORRUPT_MESSAGE true "the batch is damaged: wrong checksum, wrong size, or a null key for a compacted topic";
    3 UNKNOWN_TOPIC_OR_PARTITION true "this broker does not host the topic or partition";
    4 INVALID_FETCH_SIZE false "the fetch size is not possible";
    5 LEADER_NOT_AVAILABLE true "the partition has no leader now, try again";
    6 NOT_LEADER_OR_FOLLOWER true "this broker is not the leader, or for a read not even a replica, of the partition";
    7 REQUEST_TIMED_OUT true "the time allowed for the request is over";
    8 BROKER_NOT_AVAILABLE false "the broker is not available";
    9 REPLICA_NOT_AVAILABLE true "the replica is not available";
    10 MESSAGE_TOO_LARGE false "the batch is larger than the topic allows";
    11 STALE_CONTROLLER_EPOCH false "the controller has been replaced by a newer one";
    12 OFFSET_METADATA_TOO_LARGE false "the text committed with the offset is too long";
    13 NETWORK_EXCEPTION true "the connection ended before the answer came";
    14 COORDINATOR_LOAD_IN_PROGRESS true "the coordinator is still reading its log, try again";
    15 COORDINATOR_NOT_AVAILABLE true "there is no coordinator now, try again";
    16 NOT_COORDINATOR true "this broker is not the coordinator, look it up again";
    17 INVALID_TOPIC_EXCEPTION false "the topic name is not allowed or must not be used this way";
    18 RECORD_LIST_TOO_LARGE false "the batches are larger than a segment of the log";
    19 NOT_ENOUGH_REPLICAS true "fewer replicas are in sync than min.insync.replicas asks for";
    20 NOT_ENOUGH_REPLICAS_AFTER_APPEND true "written, but to fewer in-sync replicas than asked for";
    21 INVALID_REQUIRED_ACKS false "acks must be 0, 1 or -1";
    22 ILLEGAL_GENERATION false "the group has another generation now, join again";
    23 INCONSISTENT_GROUP_PROTOCOL false "the member shares no protocol with the group";
    24 INVALID_GROUP_ID false "the group id is not allowed";
    25 UNKNOWN_MEMBER_ID false "the coordinator does not know this member";
    26 INVALID_SESSION_TIMEOUT false "the session timeout is outside of what the broker allows";
    27 REBALANCE_IN_PROGRESS false "the group is rebalancing, join again";
    28 INVALID_COMMIT_OFFSET_SIZE false "the offset to commit is too large";
    29 TOPIC_AUTHORIZATION_FAILED false "not allowed for this topic";
    30 GROUP_AUTHORIZATION_FAILED false "not allowed for this group";
    31 CLUSTER_AUTHORIZATION_FAILED false "not allowed for this cluster";
    32 INVALID_TIMESTAMP false "the record time is outside of what the topic allows";
    33 UNSUPPORTED_SASL_MECHANISM false "the server does not have this SASL mechanism";
    34 ILLEGAL_SASL_STATE false "this request does not belong here in the SASL exchange";
    35 UNSUPPORTED_VERSION false "this version of the API is not supported";
    36 TOPIC_ALREADY_EXISTS false "a topic of this name exists";
    37 INVALID_PARTITIONS false "the number of partitions is not possible";
    38 INVALID_REPLICATION_FACTOR false "the replication factor is below 1 or above the number of brokers";
    39 INVALID_REPLICA_ASSIGNMENT false "the replica assignment is not possible";
    40 INVALID_CONFIG false "a configuration is not possible";
    41 NOT_CONTROLLER true "this node is not the active controller";
    42 INVALID_REQUEST false "the request contradicts itself or lacks something, see the server log";
    43 UNSUPPORTED_FOR_MESSAGE_FORMAT false "the batch format of the topic is too old for this";
    44 POLICY_VIOLATION false "a policy of the cluster forbids this";
    45 OUT_OF_ORDER_SEQUENCE_NUMBER false "the sequence number does not follow the last one of the producer";
    46 DUPLICATE_SEQUENCE_NUMBER false "the broker has this sequence number already";
    47 INVALID_PRODUCER_EPOCH false "the producer epoch is older than the current one";
    48 INVALID_TXN_STATE false "the transaction is in no state for this";
    49 INVALID_PRODUCER_ID_MAPPING false "the transactional id belongs to another producer id";
    50 INVALID_TRANSACTION_TIMEOUT false "the transaction timeout is above transaction.max.timeout.ms";
    51 CONCURRENT_TRANSACTIONS true "another change of this transaction is under way, try again";
    52 TRANSACTION_COORDINATOR_FENCED false "a newer transaction coordinator has taken over";
    53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED false "not allowed for this transactional id";
    54 SECURITY_DISABLED false "security is not switched on";
    55 OPERATION_NOT_ATTEMPTED false "not tried, because an earlier operation of the same request failed";
    56 KAFKA_STORAGE_ERROR true "the disk of the log failed";
    57 LOG_DIR_NOT_FOUND false "the broker has no such log directory";
    58 SASL_AUTHENTICATION_FAILED false "the credentials were not accepted";
    59 UNKNOWN_PRODUCER_ID false "the broker has no state of this producer any more";
    60 REASSIGNMENT_IN_PROGRESS false "the replicas of the partition are being moved";
    61 DELEGATION_TOKEN_AUTH_DISABLED false "delegation tokens are not switched on";
    62 DELEGATION_TOKEN_NOT_FOUND false "no such delegation token";
    63 DELEGATION_TOKEN_OWNER_MISMATCH false "neither owner nor renewer of the delegation token";
    64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED false "delegation tokens cannot be managed over this connection";
    65 DELEGATION_TOKEN_AUTHORIZATION_FAILED false "not allowed for this delegation token";
    66 DELEGATION_TOKEN_EXPIRED false "the delegation token is too old";
    67 INVALID_PRINCIPAL_TYPE false "this type of principal is not supported";
    68 NON_EMPTY_GROUP false "the group still has members";
    69 GROUP_ID_NOT_FOUND false "no such group";
    70 FETCH_SESSION_ID_NOT_FOUND true "the broker has no such fetch session";
    71 INVALID_FETCH_SESSION_EPOCH true "the fetch session has moved on";
    72 LISTENER_NOT_FOUND true "the leader has no listener of the name this request came in by";
    73 TOPIC_DELETION_DISABLED false "deleting topics is switched off";
    74 FENCED_LEADER_EPOCH true "the leader epoch of the request is older than that of the broker";
    75 UNKNOWN_LEADER_EPOCH true "the leader epoch of the request is newer than that of the broker";
    76 UNSUPPORTED_COMPRESSION_TYPE false "the client cannot read the compression of this partition";
    77 STALE_BROKER_EPOCH false "the broker has registered again since";
    78 OFFSET_NOT_AVAILABLE true "a new leader does not know its high watermark yet, try again";
    79 MEMBER_ID_REQUIRED false "join again with the member id of this answer";
    80 PREFERRED_LEADER_NOT_AVAILABLE true "the preferred leader is not available";
    81 GROUP_MAX_SIZE_REACHED false "the group is full";
    82 FENCED_INSTANCE_ID false "another member has taken over this group.instance.id";
    83 ELIGIBLE_LEADERS_NOT_AVAILABLE true "no replica that may lead is available";
    84 ELECTION_NOT_NEEDED true "the leader is the right one already";
    85 NO_REASSIGNMENT_IN_PROGRESS false "no move of replicas is under way";
    86 GROUP_SUBSCRIBED_TO_TOPIC false "the group is subscribed to the topic, its offsets cannot be deleted";
    87 INVALID_RECORD false "a record breaks a rule of the topic";
    88 UNSTABLE_OFFSET_COMMIT true "an open transaction still holds offsets back";
    89 THROTTLING_QUOTA_EXCEEDED true "the quota is used up";
    90 PRODUCER_FENCED false "a newer producer uses the same transactional id";
    91 RESOURCE_NOT_FOUND false "no such resource";
    92 DUPLICATE_RESOURCE false "the same resource stands twice in the request";
    93 UNACCEPTABLE_CREDENTIAL false "the credential does not meet the rules";
    94 INCONSISTENT_VOTER_SET false "sender or receiver is not a voter of the quorum";
    95 INVALID_UPDATE_VERSION false "the version to update to is not possible";
    96 FEATURE_UPDATE_FAILED false "the feature levels could not be changed";
    97 PRINCIPAL_DESERIALIZATION_FAILURE false "the forwarded principal cannot be read";
    98 SNAPSHOT_NOT_FOUND false "no such snapshot";
    99 POSITION_OUT_OF_RANGE false "the position lies outside of the snapshot";
    100 UNKNOWN_TOPIC_ID true "this server does not know the topic id";
    101 DUPLICATE_BROKER_REGISTRATION false "a living broker has this id";
    102 BROKER_ID_NOT_REGISTERED false "no broker with this id is registered";
    103 INCONSISTENT_TOPIC_ID true "the topic of this name has another id";
    104 INCONSISTENT_CLUSTER_ID false "the request is meant for another cluster";
    105 TRANSACTIONAL_ID_NOT_FOUND false "no such transactional id";
    106 FETCH_SESSION_TOPIC_ID_ERROR true "the fetch session mixes topic names and topic ids";
    107 INELIGIBLE_REPLICA false "the new in-sync set holds a replica that must not be in it";
    108 NEW_LEADER_ELECTED false "the change was made, but the partition has another leader now";
    109 OFFSET_MOVED_TO_TIERED_STORAGE false "the offset is only in the remote tier";
    110 FENCED_MEMBER_EPOCH false "the member epoch is fenced, give up all partitions and join again";
    111 UNRELEASED_INSTANCE_ID false "another member still holds this instance id";
    112 UNSUPPORTED_ASSIGNOR false "the group cannot use this assignor";
    113 STALE_MEMBER_EPOCH false "the member epoch is old, take the next heartbeat's and try again";
    114 MISMATCHED_ENDPOINT_TYPE false "the request went to the wrong kind of listener";
    115 UNSUPPORTED_ENDPOINT_TYPE false "this kind of endpoint is not supported";
    116 UNKNOWN_CONTROLLER_ID false "no such controller";
    117 UNKNOWN_SUBSCRIPTION_ID false "the telemetry subscription is not known or out of date";
    118 TELEMETRY_TOO_LARGE false "more telemetry than the broker accepts";
    119 INVALID_REGISTRATION false "the controller refuses the registration";
    120 TRANSACTION_ABORTABLE false "the transaction must be aborted, then the producer can go on";
    121 INVALID_RECORD_STATE false "the record cannot be acknowledged in its state";
    122 SHARE_SESSION_NOT_FOUND true "the broker has no such share session";
    123 INVALID_SHARE_SESSION_EPOCH true "the share session has moved on";
    124 FENCED_STATE_EPOCH false "the state has changed since it was read";
    125 INVALID_VOTER_KEY false "the voter key is that of another replica";
    126 DUPLICATE_VOTER false "the voter is already part of the set";
    127 VOTER_NOT_FOUND false "no such voter";
    128 INVALID_REGULAR_EXPRESSION false "the regular expression cannot be read";
    129 REBOOTSTRAP_REQUIRED false "the client's view is too old, start from the bootstrap servers again";
    130 STREAMS_INVALID_TOPOLOGY false "the topology is not possible";
    131 STREAMS_INVALID_TOPOLOGY_EPOCH false "the topology epoch is not possible";
    132 STREAMS_TOPOLOGY_FENCED false "a newer topology is in force";
    133 SHARE_SESSION_LIMIT_REACHED true "the broker has no room for another share session";
}
