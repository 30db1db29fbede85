//! Groups over the wire: members, lists, descriptions, deletion, reload.

use tarn_wire::messages::leave_group_request::MemberIdentity;
use tarn_wire::messages::{
    DeleteGroupsRequest, DescribeGroupsRequest, FindCoordinatorRequest, HeartbeatRequest,
    JoinGroupResponse, LeaveGroupRequest, ListGroupsRequest,
};
use tarn_wire::{ErrorCode, Str};

use crate::world::{World, checked, find_request, join_request, sync_request};

/// Joins with the newest version: once to get an id, once with it.
async fn join_newest(world: &World, group: &str) -> JoinGroupResponse {
    let first = world.join(join_request(group, ""), 9).await;
    assert_eq!(first.error_code, ErrorCode::MEMBER_ID_REQUIRED.0);
    assert!(first.member_id.starts_with("client-"));
    world.join(join_request(group, &first.member_id), 9).await
}

async fn heartbeat(world: &World, group: &str, joined: &JoinGroupResponse) -> i16 {
    let request = HeartbeatRequest {
        group_id: Str::from(group),
        generation_id: joined.generation_id,
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    checked(world.groups.heartbeat(request).await, 4).error_code
}

async fn describe(world: &World, group: &str, version: i16) -> (i16, String, usize) {
    let request = DescribeGroupsRequest {
        groups: vec![Str::from(group)],
        ..Default::default()
    };
    let response = checked(
        world
            .groups
            .describe_groups(request, version, &|_| Ok(()))
            .await,
        version,
    );
    let group = &response.groups[0];
    (
        group.error_code,
        group.group_state.to_string(),
        group.members.len(),
    )
}

#[tokio::test]
async fn a_consumer_joins_in_every_version() {
    let world = World::new().await;
    for version in 0..=9 {
        let group = format!("g{version}");
        let joined = if version < 4 {
            world.join(join_request(&group, ""), version).await
        } else {
            let first = world.join(join_request(&group, ""), version).await;
            world
                .join(join_request(&group, &first.member_id), version)
                .await
        };
        assert_eq!(joined.error_code, 0, "version {version}");
        assert_eq!((joined.generation_id, joined.members.len()), (1, 1));
        let synced = world
            .sync(sync_request(&group, &joined, true), version.min(5))
            .await;
        assert_eq!(synced.error_code, 0, "version {version}");
        assert_eq!(synced.assignment, joined.member_id.as_bytes());
        assert_eq!(heartbeat(&world, &group, &joined).await, 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_members_share_a_group_and_a_leave_rebalances_the_others() {
    let world = World::new().await;
    let (a, b, c) = tokio::join!(
        join_newest(&world, "g"),
        join_newest(&world, "g"),
        join_newest(&world, "g")
    );
    let all = [a, b, c];
    assert!(
        all.iter()
            .all(|joined| joined.error_code == 0 && joined.generation_id == 1)
    );
    let leader = all
        .iter()
        .find(|joined| joined.leader == joined.member_id)
        .expect("a leader");
    assert_eq!(leader.members.len(), 3);
    let sync = |joined: &JoinGroupResponse| {
        let request = sync_request("g", joined, joined.leader == joined.member_id);
        let world = &world;
        async move { world.sync(request, 5).await }
    };
    let (one, two, three) = tokio::join!(sync(&all[0]), sync(&all[1]), sync(&all[2]));
    for (joined, synced) in all.iter().zip([one, two, three]) {
        assert_eq!(synced.assignment, joined.member_id.as_bytes());
    }
    assert_eq!(describe(&world, "g", 6).await, (0, "Stable".to_owned(), 3));

    let leaving = LeaveGroupRequest {
        group_id: Str::from("g"),
        members: vec![MemberIdentity {
            member_id: all[0].member_id.clone(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let left = checked(world.groups.leave(leaving, 5).await, 5);
    assert_eq!((left.error_code, left.members[0].error_code), (0, 0));
    assert_eq!(
        heartbeat(&world, "g", &all[1]).await,
        ErrorCode::REBALANCE_IN_PROGRESS.0
    );
    let rejoin = |joined: &JoinGroupResponse| join_request("g", &joined.member_id);
    let (one, two) = tokio::join!(
        world.join(rejoin(&all[1]), 9),
        world.join(rejoin(&all[2]), 9)
    );
    assert_eq!((one.generation_id, two.generation_id), (2, 2));
}

#[tokio::test]
async fn a_group_goes_on_after_the_coordinator_loaded_it_again() {
    let mut world = World::new().await;
    let joined = join_newest(&world, "g").await;
    world.sync(sync_request("g", &joined, true), 5).await;
    world.reload().await;
    assert_eq!(describe(&world, "g", 6).await, (0, "Stable".to_owned(), 1));
    assert_eq!(heartbeat(&world, "g", &joined).await, 0);
    let synced = world.sync(sync_request("g", &joined, false), 5).await;
    assert_eq!(synced.assignment, joined.member_id.as_bytes());
}

#[tokio::test]
async fn groups_are_listed_by_state_and_type() {
    let world = World::new().await;
    let joined = join_newest(&world, "g").await;
    world.sync(sync_request("g", &joined, true), 5).await;
    let list = async |states: &[&str], types: &[&str]| {
        let strs = |names: &[&str]| names.iter().map(|name| Str::from(*name)).collect();
        let request = ListGroupsRequest {
            states_filter: strs(states),
            types_filter: strs(types),
            ..Default::default()
        };
        let response = world.groups.list_groups(request).await;
        for version in 0..=5 {
            checked(response.clone(), version);
        }
        response.groups.len()
    };
    assert_eq!(list(&[], &[]).await, 1);
    assert_eq!(list(&["stable"], &["Classic"]).await, 1);
    assert_eq!(list(&["Empty"], &[]).await, 0);
    assert_eq!(list(&[], &["consumer"]).await, 0);
}

#[tokio::test]
async fn a_group_that_does_not_exist_is_dead_or_not_found_by_version() {
    let world = World::new().await;
    for version in 0..=5 {
        assert_eq!(
            describe(&world, "none", version).await,
            (0, "Dead".to_owned(), 0)
        );
    }
    let not_found = ErrorCode::GROUP_ID_NOT_FOUND.0;
    assert_eq!(
        describe(&world, "none", 6).await,
        (not_found, "Dead".to_owned(), 0)
    );
}

#[tokio::test]
async fn only_an_empty_group_is_deleted_and_it_stays_deleted() {
    let mut world = World::new().await;
    let joined = join_newest(&world, "g").await;
    world.sync(sync_request("g", &joined, true), 5).await;
    let delete = async |world: &World| {
        let names = vec![Str::from("g"), Str::from("none")];
        let request = DeleteGroupsRequest {
            groups_names: names,
            ..Default::default()
        };
        let response = checked(world.groups.delete_groups(request).await, 2);
        response
            .results
            .iter()
            .map(|result| result.error_code)
            .collect::<Vec<_>>()
    };
    let not_found = ErrorCode::GROUP_ID_NOT_FOUND.0;
    assert_eq!(
        delete(&world).await,
        [ErrorCode::NON_EMPTY_GROUP.0, not_found]
    );
    let leaving = LeaveGroupRequest {
        group_id: Str::from("g"),
        member_id: joined.member_id.clone(),
        ..Default::default()
    };
    assert_eq!(
        checked(world.groups.leave(leaving, 2).await, 2).error_code,
        0
    );
    assert_eq!(delete(&world).await, [0, not_found]);
    assert_eq!(delete(&world).await, [not_found, not_found]);
    world.reload().await;
    assert_eq!(describe(&world, "g", 6).await.0, not_found);
}

#[tokio::test]
async fn looking_for_a_coordinator_creates_the_topic_and_answers_in_every_version() {
    let world = World::bare().await;
    let resolve = |node: i32| (node == 1).then(|| (Str::from("localhost"), 9092));
    for version in 0..=6 {
        let request = find_request("g", version);
        let found = checked(
            world
                .groups
                .find_coordinator(request, version, resolve)
                .await,
            version,
        );
        let (error, node, port) = match found.coordinators.first() {
            Some(one) => (one.error_code, one.node_id, one.port),
            None => (found.error_code, found.node_id, found.port),
        };
        assert_eq!((error, node, port), (0, 1, 9092), "version {version}");
    }
    let other = FindCoordinatorRequest {
        key: Str::from("x"),
        key_type: 9,
        ..Default::default()
    };
    let refused = checked(world.groups.find_coordinator(other, 3, resolve).await, 3);
    assert_eq!(refused.error_code, ErrorCode::INVALID_REQUEST.0);
}

#[tokio::test]
async fn requests_without_a_coordinator_say_which_error() {
    let world = World::bare().await;
    let refused = world.join(join_request("g", ""), 9).await;
    assert_eq!(refused.error_code, ErrorCode::COORDINATOR_NOT_AVAILABLE.0);
    let mut world = World::new().await;
    world.without_coordinator().await;
    assert_eq!(
        describe(&world, "g", 6).await.0,
        ErrorCode::COORDINATOR_NOT_AVAILABLE.0
    );
    let nameless = world.join(join_request("", ""), 9).await;
    assert_eq!(nameless.error_code, ErrorCode::INVALID_GROUP_ID.0);
}

/// A member whose client id leaves no room for the group's record is refused, also in front of the
/// log, and the partition loads again.
#[tokio::test]
async fn a_client_id_that_no_record_has_room_for_is_refused_and_harms_nobody() {
    let mut world = World::new().await;
    let joined = join_newest(&world, "good").await;
    world.sync(sync_request("good", &joined, true), 5).await;
    let context = tarn_group::RequestContext {
        client_id: Str::from("c".repeat(32_731)),
        ..crate::world::context()
    };
    for version in [0, 3, 9] {
        let request = join_request("bad", "");
        let answer = checked(world.groups.join(request, version, &context).await, version);
        assert_eq!(
            answer.error_code,
            ErrorCode::INVALID_REQUEST.0,
            "v{version}"
        );
    }
    let mut long = join_request("bad", "");
    long.group_id = Str::from("g".repeat(32_767));
    let answer = world.join(long, 9).await;
    assert_eq!(answer.error_code, ErrorCode::INVALID_GROUP_ID.0);
    world.reload().await;
    assert_eq!(heartbeat(&world, "good", &joined).await, 0);
}

/// A group that is named again and again fills an answer only as far as there is room.
#[tokio::test]
async fn descriptions_stop_where_the_answer_has_no_room() {
    let world = World::new().await;
    let joined = join_newest(&world, "g").await;
    world.sync(sync_request("g", &joined, true), 5).await;
    let used = std::sync::atomic::AtomicUsize::new(0);
    let room = |bytes: usize| {
        let before = used.fetch_add(bytes, std::sync::atomic::Ordering::Relaxed);
        if before + bytes > 1_000 {
            return Err(ErrorCode::POLICY_VIOLATION);
        }
        Ok(())
    };
    let request = DescribeGroupsRequest {
        groups: vec![Str::from("g"); 50],
        ..Default::default()
    };
    let groups = world.groups.describe_groups(request, 5, &room).await.groups;
    let full = groups.iter().filter(|group| group.error_code == 0).count();
    assert!((1..20).contains(&full), "{full}");
    let refused = &groups[49];
    assert_eq!(refused.error_code, ErrorCode::POLICY_VIOLATION.0);
    assert!(refused.members.is_empty());
}
