//! Group requests: everything is decided in the group room; here stands only what it needs to know
//! of the connection.

use std::sync::Arc;

use tarn_group::RequestContext;
use tarn_wire::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    FindCoordinatorRequest, FindCoordinatorResponse, HeartbeatRequest, HeartbeatResponse,
    JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest, LeaveGroupResponse, ListGroupsRequest,
    ListGroupsResponse, OffsetCommitRequest, OffsetCommitResponse, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequest, OffsetFetchResponse, SyncGroupRequest,
    SyncGroupResponse,
};
use tarn_wire::{ErrorCode, Str};

use super::authorized;
use crate::dispatch::Call;
use crate::node::Node;

/// Key type of a transactional id.
const TRANSACTION_KEY: i8 = 1;
/// First version of FindCoordinator with a list of keys, each with its own error.
const SEVERAL_KEYS_FROM: i16 = 4;

/// FindCoordinator (10).
pub(crate) async fn find_coordinator(
    node: &Arc<Node>,
    call: &Call,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let listener = &call.connection.listener;
    let resolve = |id: i32| node.endpoint(&node.image(), id, listener);
    let of_transaction = request.key_type == TRANSACTION_KEY;
    let mut response = node
        .groups
        .find_coordinator(request, call.version, resolve)
        .await;
    if of_transaction {
        // "Not available" would be tried again for ever, and any other code by librdkafka and
        // franz-go until their own time-outs: this is the one that every client takes for final.
        // The text says why.
        let fatal = ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED.0;
        if call.version < SEVERAL_KEYS_FROM {
            response.error_code = fatal;
        }
        response
            .coordinators
            .iter_mut()
            .for_each(|coordinator| coordinator.error_code = fatal);
    }
    node.wait_applied().await;
    response
}

/// JoinGroup (11).
pub(crate) async fn join_group(
    node: &Arc<Node>,
    call: &Call,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let context = RequestContext {
        client_id: Str::from(call.client_id()),
        client_host: Str::from(format!("/{}", call.connection.peer.ip().to_canonical())),
    };
    node.groups.join(request, call.version, &context).await
}

/// Heartbeat (12).
pub(crate) async fn heartbeat(
    node: &Arc<Node>,
    _call: &Call,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    node.groups.heartbeat(request).await
}

/// LeaveGroup (13).
pub(crate) async fn leave_group(
    node: &Arc<Node>,
    call: &Call,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    node.groups.leave(request, call.version).await
}

/// SyncGroup (14).
pub(crate) async fn sync_group(
    node: &Arc<Node>,
    call: &Call,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    node.groups.sync(request, call.version).await
}

/// DescribeGroups (15).
pub(crate) async fn describe_groups(
    node: &Arc<Node>,
    call: &Call,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let asked = request.include_authorized_operations;
    let room = |bytes: usize| call.room(bytes);
    let described = node.groups.describe_groups(request, call.version, &room);
    let mut response = described.await;
    for group in &mut response.groups {
        if asked && group.error_code == ErrorCode::NONE.0 {
            group.authorized_operations = authorized::GROUP;
        }
    }
    response
}

/// ListGroups (16).
pub(crate) async fn list_groups(
    node: &Arc<Node>,
    _call: &Call,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    node.groups.list_groups(request).await
}

/// DeleteGroups (42).
pub(crate) async fn delete_groups(
    node: &Arc<Node>,
    _call: &Call,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    node.groups.delete_groups(request).await
}

/// OffsetCommit (8).
pub(crate) async fn offset_commit(
    node: &Arc<Node>,
    call: &Call,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    node.groups.offset_commit(request, call.version).await
}

/// OffsetFetch (9).
pub(crate) async fn offset_fetch(
    node: &Arc<Node>,
    call: &Call,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let room = |bytes: usize| call.room(bytes);
    node.groups.offset_fetch(request, call.version, &room).await
}

/// OffsetDelete (47).
pub(crate) async fn offset_delete(
    node: &Arc<Node>,
    _call: &Call,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    node.groups.offset_delete(request).await
}
