//! ListGroups, DescribeGroups, DeleteGroups.

use tarn_wire::messages::delete_groups_response::DeletableGroupResult;
use tarn_wire::messages::describe_groups_response::{DescribedGroup, DescribedGroupMember};
use tarn_wire::messages::list_groups_response::ListedGroup;
use tarn_wire::messages::{
    DeleteGroupsRequest, DeleteGroupsResponse, DescribeGroupsRequest, DescribeGroupsResponse,
    ListGroupsRequest, ListGroupsResponse,
};
use tarn_wire::{ErrorCode, Str};

use crate::classic::GroupState;
use crate::coordinator::{AnswerRoom, GroupCoordinator, Refused};
use crate::shard::{Group, GroupShard, shown_metadata};

/// The only kind of group here.
const GROUP_TYPE: &str = "classic";
/// First version that has an error for a group that does not exist.
const NOT_FOUND_FROM: i16 = 6;

impl GroupCoordinator {
    /// ListGroups v0–5: the groups this broker coordinates.
    pub async fn list_groups(&self, request: ListGroupsRequest) -> ListGroupsResponse {
        let wanted = |filter: &[Str], value: &str| {
            filter.is_empty() || filter.iter().any(|one| one.eq_ignore_ascii_case(value))
        };
        if !wanted(&request.types_filter, GROUP_TYPE) {
            return ListGroupsResponse::default();
        }
        let mut response = ListGroupsResponse::default();
        for partition in self.runtime.led() {
            let look = |shard: &GroupShard, _: i64| {
                let list = |(id, group): (&Str, &Group)| ListedGroup {
                    group_id: id.clone(),
                    protocol_type: group.classic.protocol_type().cloned().unwrap_or_default(),
                    group_state: Str::from_static(group.classic.state().name()),
                    group_type: Str::from_static(GROUP_TYPE),
                    ..Default::default()
                };
                shard.groups.iter().map(list).collect::<Vec<_>>()
            };
            match self.runtime.read(partition, look).await {
                Ok(groups) => response.groups.extend(
                    groups
                        .into_iter()
                        .filter(|group| wanted(&request.states_filter, &group.group_state)),
                ),
                // A part of the groups is no answer; the caller asks again.
                Err(error) => {
                    return ListGroupsResponse {
                        error_code: error.code().0,
                        ..Default::default()
                    };
                }
            }
        }
        response
    }

    /// DescribeGroups v0–6. A group named again is described again, as Kafka does, as long as there
    /// is room.
    pub async fn describe_groups(
        &self,
        request: DescribeGroupsRequest,
        version: i16,
        room: AnswerRoom<'_>,
    ) -> DescribeGroupsResponse {
        let mut groups = Vec::with_capacity(request.groups.len());
        for id in request.groups {
            let described = match self.describe_group(&id).await {
                Ok(Some(group)) => room(described_bytes(&group))
                    .map(|()| Some(group))
                    .map_err(Refused),
                other => other,
            };
            groups.push(match described {
                Ok(Some(group)) => group,
                Ok(None) if version >= NOT_FOUND_FROM => DescribedGroup {
                    error_code: ErrorCode::GROUP_ID_NOT_FOUND.0,
                    error_message: Some(Str::from(format!("Group {id} not found."))),
                    group_id: id,
                    group_state: Str::from_static("Dead"),
                    ..Default::default()
                },
                Ok(None) => DescribedGroup {
                    group_id: id,
                    group_state: Str::from_static("Dead"),
                    ..Default::default()
                },
                Err(Refused(error)) => DescribedGroup {
                    error_code: error.0,
                    group_id: id,
                    ..Default::default()
                },
            });
        }
        DescribeGroupsResponse {
            groups,
            ..Default::default()
        }
    }

    async fn describe_group(&self, id: &Str) -> Result<Option<DescribedGroup>, Refused> {
        let partition = self.partition_of(id)?;
        let id = id.clone();
        Ok(self
            .runtime
            .read(partition, move |shard: &GroupShard, _| {
                shard.groups.get(&id).map(|group| describe(&id, group))
            })
            .await?)
    }

    /// DeleteGroups v0–2.
    pub async fn delete_groups(&self, request: DeleteGroupsRequest) -> DeleteGroupsResponse {
        let mut results = Vec::with_capacity(request.groups_names.len());
        for group_id in request.groups_names {
            let error = self
                .delete_group(&group_id)
                .await
                .err()
                .map_or(ErrorCode::NONE, |Refused(error)| error);
            results.push(DeletableGroupResult {
                group_id,
                error_code: error.0,
                ..Default::default()
            });
        }
        DeleteGroupsResponse {
            results,
            ..Default::default()
        }
    }

    async fn delete_group(&self, id: &Str) -> Result<(), Refused> {
        let partition = self.partition_of(id)?;
        let id = id.detach();
        let delete = move |shard: &mut GroupShard, _: i64| {
            shard
                .delete(&id)
                .map(|tombstones| (tombstones, ()))
                .map_err(Refused)
        };
        self.runtime.write(partition, delete).await
    }
}

/// About how long a group is in an answer.
fn described_bytes(group: &DescribedGroup) -> usize {
    const MEMBER_BYTES: usize = 64;
    let member = |member: &DescribedGroupMember| {
        MEMBER_BYTES
            + member.member_id.len()
            + member.client_id.len()
            + member.member_metadata.len()
            + member.member_assignment.len()
    };
    group.group_id.len() + group.members.iter().map(member).sum::<usize>()
}

fn describe(id: &Str, group: &Group) -> DescribedGroup {
    let classic = &group.classic;
    let members = classic
        .members()
        .iter()
        .map(|(member_id, member)| DescribedGroupMember {
            member_id: member_id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            member_metadata: shown_metadata(classic, |protocol| member.metadata(protocol)),
            member_assignment: shown_metadata(classic, |_| member.assignment.clone()),
            ..Default::default()
        });
    DescribedGroup {
        group_id: id.clone(),
        group_state: Str::from_static(classic.state().name()),
        protocol_type: classic.protocol_type().cloned().unwrap_or_default(),
        protocol_data: if classic.state() == GroupState::Stable {
            classic.protocol().cloned().unwrap_or_default()
        } else {
            Str::EMPTY
        },
        members: members.collect(),
        ..Default::default()
    }
}
