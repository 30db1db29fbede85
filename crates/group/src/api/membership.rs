//! JoinGroup, SyncGroup, Heartbeat, LeaveGroup.

use bytes::Bytes;
use tarn_wire::messages::join_group_response::JoinGroupResponseMember;
use tarn_wire::messages::leave_group_response::MemberResponse;
use tarn_wire::messages::{
    HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse, LeaveGroupRequest,
    LeaveGroupResponse, SyncGroupRequest, SyncGroupResponse,
};
use tarn_wire::{ErrorCode, Str, Uuid};
use tokio::sync::oneshot;

use crate::classic::{JoinReply, JoinRequest, LeaveRequest, SyncReply, SyncRequest};
use crate::coordinator::{GroupCoordinator, Refused, RequestContext};

impl GroupCoordinator {
    /// JoinGroup v0–9. Waits for the end of the join phase.
    pub async fn join(
        &self,
        request: JoinGroupRequest,
        version: i16,
        context: &RequestContext,
    ) -> JoinGroupResponse {
        let member_id = request.member_id.clone();
        let reply = match self.join_reply(request, version, context).await {
            Ok(reply) => reply,
            Err(Refused(error)) => JoinReply::error(error, &member_id),
        };
        let members = reply
            .members
            .into_iter()
            .map(
                |(member_id, group_instance_id, metadata)| JoinGroupResponseMember {
                    member_id,
                    group_instance_id: if version >= 5 {
                        group_instance_id
                    } else {
                        None
                    },
                    metadata,
                    ..Default::default()
                },
            );
        JoinGroupResponse {
            error_code: reply.error.0,
            generation_id: reply.generation,
            protocol_type: reply.protocol_type,
            // Nullable from v7 on only.
            protocol_name: if version >= 7 {
                reply.protocol
            } else {
                Some(reply.protocol.unwrap_or_default())
            },
            leader: reply.leader,
            skip_assignment: version >= 9 && reply.skip_assignment,
            member_id: reply.member_id,
            members: members.collect(),
            ..Default::default()
        }
    }

    async fn join_reply(
        &self,
        request: JoinGroupRequest,
        version: i16,
        context: &RequestContext,
    ) -> Result<JoinReply, Refused> {
        if request.group_id.is_empty() {
            return Err(Refused(ErrorCode::INVALID_GROUP_ID));
        }
        let partition = self.partition_of(&request.group_id)?;
        let group = request.group_id.detach();
        let instance_id = request.group_instance_id.as_ref().map(Str::detach);
        let stem = instance_id.as_ref().unwrap_or(&context.client_id);
        let join = JoinRequest {
            member_id: request.member_id.detach(),
            fresh_member_id: Str::from(format!("{stem}-{}", random_id())),
            instance_id: instance_id.clone(),
            client_id: context.client_id.detach(),
            client_host: context.client_host.detach(),
            session_timeout_ms: request.session_timeout_ms,
            rebalance_timeout_ms: if version >= 1 {
                request.rebalance_timeout_ms
            } else {
                request.session_timeout_ms
            },
            protocol_type: request.protocol_type.detach(),
            protocols: request
                .protocols
                .iter()
                .map(|p| (p.name.detach(), Bytes::copy_from_slice(&p.metadata)))
                .collect(),
            requires_known_id: version >= 4,
            supports_skip_assignment: version >= 9,
        };
        let (sender, receiver) = oneshot::channel();
        self.runtime.submit(partition, move |shard, now_ms| {
            shard.join(group, join, sender, now_ms)
        })?;
        receiver
            .await
            .map_err(|_| Refused(ErrorCode::NOT_COORDINATOR))
    }

    /// SyncGroup v0–5. Waits for the leader's assignment.
    pub async fn sync(&self, request: SyncGroupRequest, version: i16) -> SyncGroupResponse {
        let reply = match self.sync_reply(request, version).await {
            Ok(reply) => reply,
            Err(Refused(error)) => SyncReply::error(error),
        };
        SyncGroupResponse {
            error_code: reply.error.0,
            protocol_type: reply.protocol_type,
            protocol_name: reply.protocol,
            assignment: reply.assignment,
            ..Default::default()
        }
    }

    async fn sync_reply(
        &self,
        request: SyncGroupRequest,
        version: i16,
    ) -> Result<SyncReply, Refused> {
        if request.group_id.is_empty() {
            return Err(Refused(ErrorCode::INVALID_GROUP_ID));
        }
        if version >= 5 && (request.protocol_type.is_none() || request.protocol_name.is_none()) {
            return Err(Refused(ErrorCode::INCONSISTENT_GROUP_PROTOCOL));
        }
        let partition = self.partition_of(&request.group_id)?;
        let group = request.group_id.detach();
        let sync = SyncRequest {
            member_id: request.member_id.detach(),
            instance_id: request.group_instance_id.as_ref().map(Str::detach),
            generation: request.generation_id,
            protocol_type: request.protocol_type.as_ref().map(Str::detach),
            protocol: request.protocol_name.as_ref().map(Str::detach),
            assignments: request
                .assignments
                .iter()
                .map(|a| (a.member_id.detach(), Bytes::copy_from_slice(&a.assignment)))
                .collect(),
        };
        let (sender, receiver) = oneshot::channel();
        self.runtime.submit(partition, move |shard, now_ms| {
            shard.sync(group, sync, sender, now_ms)
        })?;
        receiver
            .await
            .map_err(|_| Refused(ErrorCode::NOT_COORDINATOR))
    }

    /// Heartbeat v0–4.
    pub async fn heartbeat(&self, request: HeartbeatRequest) -> HeartbeatResponse {
        let error = match self.heartbeat_code(request).await {
            Ok(error) | Err(Refused(error)) => error,
        };
        HeartbeatResponse {
            error_code: error.0,
            ..Default::default()
        }
    }

    async fn heartbeat_code(&self, request: HeartbeatRequest) -> Result<ErrorCode, Refused> {
        if request.group_id.is_empty() {
            return Err(Refused(ErrorCode::INVALID_GROUP_ID));
        }
        let partition = self.partition_of(&request.group_id)?;
        let beat = move |shard: &mut crate::shard::GroupShard, now_ms: i64| {
            let (group, member, instance) = (
                &request.group_id,
                &request.member_id,
                request.group_instance_id.as_ref(),
            );
            Ok::<_, Refused>((
                Vec::new(),
                shard.heartbeat(group, member, instance, request.generation_id, now_ms),
            ))
        };
        self.runtime.write(partition, beat).await
    }

    /// LeaveGroup v0–5.
    pub async fn leave(&self, request: LeaveGroupRequest, version: i16) -> LeaveGroupResponse {
        let leaving: Vec<LeaveRequest> = if version >= 3 {
            let one =
                |member: &tarn_wire::messages::leave_group_request::MemberIdentity| LeaveRequest {
                    member_id: member.member_id.clone(),
                    instance_id: member.group_instance_id.clone(),
                };
            request.members.iter().map(one).collect()
        } else {
            vec![LeaveRequest {
                member_id: request.member_id.clone(),
                instance_id: None,
            }]
        };
        let codes = match self.leave_codes(&request.group_id, leaving.clone()).await {
            Ok(codes) => codes,
            Err(Refused(error)) => {
                return LeaveGroupResponse {
                    error_code: error.0,
                    ..Default::default()
                };
            }
        };
        if version < 3 {
            let error = codes.first().copied().unwrap_or(ErrorCode::NONE);
            return LeaveGroupResponse {
                error_code: error.0,
                ..Default::default()
            };
        }
        let member = |(member, code): (&LeaveRequest, &ErrorCode)| MemberResponse {
            member_id: member.member_id.clone(),
            group_instance_id: member.instance_id.clone(),
            error_code: code.0,
            ..Default::default()
        };
        LeaveGroupResponse {
            members: leaving.iter().zip(&codes).map(member).collect(),
            ..Default::default()
        }
    }

    async fn leave_codes(
        &self,
        group: &Str,
        leaving: Vec<LeaveRequest>,
    ) -> Result<Vec<ErrorCode>, Refused> {
        if group.is_empty() {
            return Err(Refused(ErrorCode::INVALID_GROUP_ID));
        }
        let partition = self.partition_of(group)?;
        let (group, (sender, receiver)) = (group.detach(), oneshot::channel());
        self.runtime.submit(partition, move |shard, now_ms| {
            let unknown = vec![ErrorCode::UNKNOWN_MEMBER_ID; leaving.len()];
            let left = shard.change(&group, |classic, limits| {
                classic.leave(&leaving, limits, now_ms)
            });
            let (codes, mut outcome) = left.unwrap_or_else(|| (unknown, Default::default()));
            // The members that wait are answered in any case; who leaves may have gone already.
            let others = outcome.after.take();
            outcome.after = Some(Box::new(move || {
                if let Some(others) = others {
                    others();
                }
                let _ = sender.send(codes);
            }));
            outcome
        })?;
        receiver
            .await
            .map_err(|_| Refused(ErrorCode::NOT_COORDINATOR))
    }
}

/// A random id in the 8-4-4-4-12 form Kafka's member ids end with.
fn random_id() -> String {
    let hex: String = Uuid::random()
        .0
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!(
        "{}-{}-{}-{}-{}",
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..]
    )
}
