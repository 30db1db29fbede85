//! The table: which API is implemented, and by which handler. What is not here is not announced.

use std::sync::Arc;

use bytes::Bytes;
use tarn_wire::{ApiKey, Request, messages};

use super::{Answer, BoxFuture, Call, Refusal, Route, Run};
use crate::handlers as h;
use crate::node::Node;

/// A row whose handler takes a decoded request and gives a response.
macro_rules! route {
    ($request:ident, $handler:path) => {
        route!($request, $handler, None)
    };
    ($request:ident, $handler:path, $accepted_max:expr) => {
        Route {
            key: messages::$request::KEY,
            accepted_max: $accepted_max,
            run: Run::Waiting(
                |node: Arc<Node>, call: Call, body: Bytes| -> BoxFuture<Result<Answer, Refusal>> {
                    Box::pin(async move {
                        let request = call.decode::<messages::$request>(body)?;
                        let response = $handler(&node, &call, request).await;
                        call.encode(&response).map(Answer::Ready)
                    })
                },
            ),
        }
    };
}

/// A row whose handler does its own decoding.
macro_rules! raw_route {
    ($key:expr, $handler:path) => {
        Route {
            key: $key,
            accepted_max: None,
            run: Run::Waiting(|node, call, body| Box::pin($handler(node, call, body))),
        }
    };
}

/// All APIs that are implemented, ascending by key.
pub(crate) static ROUTES: &[Route] = &[
    Route {
        key: ApiKey::PRODUCE,
        accepted_max: None,
        run: Run::Now(h::produce::handle),
    },
    route!(FetchRequest, h::fetch::handle, Some(19)),
    route!(ListOffsetsRequest, h::list_offsets::handle),
    route!(MetadataRequest, h::metadata::handle),
    route!(OffsetCommitRequest, h::groups::offset_commit),
    route!(OffsetFetchRequest, h::groups::offset_fetch),
    route!(FindCoordinatorRequest, h::groups::find_coordinator),
    route!(JoinGroupRequest, h::groups::join_group),
    route!(HeartbeatRequest, h::groups::heartbeat),
    route!(LeaveGroupRequest, h::groups::leave_group),
    route!(SyncGroupRequest, h::groups::sync_group),
    route!(DescribeGroupsRequest, h::groups::describe_groups),
    route!(ListGroupsRequest, h::groups::list_groups),
    route!(ApiVersionsRequest, h::api_versions::handle),
    route!(
        CreateTopicsRequest,
        h::create_topics::handle,
        Some(super::CREATE_TOPICS_WITH_MIRROR)
    ),
    route!(DeleteTopicsRequest, h::admin::delete_topics),
    route!(DeleteRecordsRequest, h::delete_records::handle),
    route!(InitProducerIdRequest, h::init_producer_id::handle),
    route!(
        OffsetForLeaderEpochRequest,
        h::offset_for_leader_epoch::handle
    ),
    route!(DescribeAclsRequest, h::absent::describe_acls),
    route!(CreateAclsRequest, h::absent::create_acls),
    route!(DeleteAclsRequest, h::absent::delete_acls),
    route!(DescribeConfigsRequest, h::describe_configs::handle),
    route!(AlterConfigsRequest, h::admin::alter_configs),
    route!(DescribeLogDirsRequest, h::describe_log_dirs::handle),
    route!(CreatePartitionsRequest, h::admin::create_partitions),
    route!(DeleteGroupsRequest, h::groups::delete_groups),
    route!(ElectLeadersRequest, h::admin::elect_leaders),
    route!(
        IncrementalAlterConfigsRequest,
        h::admin::incremental_alter_configs
    ),
    route!(
        ListPartitionReassignmentsRequest,
        h::absent::list_partition_reassignments
    ),
    route!(OffsetDeleteRequest, h::groups::offset_delete),
    route!(
        DescribeClientQuotasRequest,
        h::absent::describe_client_quotas
    ),
    route!(
        DescribeUserScramCredentialsRequest,
        h::absent::describe_user_scram_credentials
    ),
    route!(DescribeQuorumRequest, h::admin::describe_quorum),
    route!(UpdateFeaturesRequest, h::admin::update_features),
    route!(DescribeClusterRequest, h::describe_cluster::handle),
    route!(DescribeProducersRequest, h::describe_producers::handle),
    route!(UnregisterBrokerRequest, h::admin::unregister_broker),
    route!(ListTransactionsRequest, h::absent::list_transactions),
    route!(
        ConsumerGroupHeartbeatRequest,
        h::absent::consumer_group_heartbeat
    ),
    route!(ListConfigResourcesRequest, h::list_config_resources::handle),
    route!(
        DescribeTopicPartitionsRequest,
        h::describe_topic_partitions::handle
    ),
    raw_route!(ApiKey::CREATE_MIRROR, h::mirrors::handle),
    raw_route!(ApiKey::ADD_TOPICS_TO_MIRROR, h::mirrors::handle),
    raw_route!(ApiKey::REMOVE_TOPICS_FROM_MIRROR, h::mirrors::handle),
    raw_route!(ApiKey::LIST_MIRRORS, h::mirrors::handle),
    raw_route!(ApiKey::DESCRIBE_MIRRORS, h::mirrors::handle),
    raw_route!(ApiKey::READ_MIRROR_STATES, h::mirrors::handle),
    raw_route!(ApiKey::WRITE_MIRROR_STATES, h::mirrors::handle),
    raw_route!(ApiKey::PAUSE_MIRROR_TOPICS, h::mirrors::handle),
    raw_route!(ApiKey::RESUME_MIRROR_TOPICS, h::mirrors::handle),
    raw_route!(ApiKey::DELETE_MIRROR, h::mirrors::handle),
    raw_route!(ApiKey::BUMP_LEADER_EPOCHS, h::mirrors::handle),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ascending_and_every_row_is_a_known_api() {
        assert!(ROUTES.windows(2).all(|pair| pair[0].key < pair[1].key));
        assert!(ROUTES.iter().all(|route| route.key.api().is_some()));
    }
}
