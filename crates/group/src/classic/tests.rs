//! The protocol of classic groups, event by event: who is answered, with what, and when the group
//! is written.

use super::*;

const LIMITS: Limits = Limits {
    session_timeout_ms_min: 6_000,
    session_timeout_ms_max: 1_800_000,
    initial_rebalance_delay_ms: 3_000,
    members_max: 10,
    id_bytes_max: 100,
    protocols_max: 4,
    group_bytes_max: 16 << 20,
    rebalance_timeout_ms_max: i32::MAX,
};

fn request(member_id: &str, fresh: &str) -> JoinRequest {
    JoinRequest {
        member_id: Str::from(member_id),
        fresh_member_id: Str::from(fresh),
        client_id: Str::from("client"),
        client_host: Str::from("/127.0.0.1"),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        protocol_type: Str::from("consumer"),
        protocols: vec![
            (Str::from("range"), Bytes::from_static(b"r")),
            (Str::from("sticky"), Bytes::from_static(b"s")),
        ],
        ..JoinRequest::default()
    }
}

fn static_request(instance: &str, member_id: &str, fresh: &str) -> JoinRequest {
    JoinRequest {
        instance_id: Some(Str::from(instance)),
        ..request(member_id, fresh)
    }
}

fn sync_request(
    member_id: &str,
    generation: i32,
    assignments: &[(&str, &'static [u8])],
) -> SyncRequest {
    SyncRequest {
        member_id: Str::from(member_id),
        generation,
        assignments: assignments
            .iter()
            .map(|(id, bytes)| (Str::from(*id), Bytes::from_static(bytes)))
            .collect(),
        ..SyncRequest::default()
    }
}

/// Join answers by token.
fn joins(effects: &[Effect]) -> Vec<(Token, ErrorCode, i32)> {
    let join = |effect: &Effect| match effect {
        Effect::Join(token, reply) => Some((*token, reply.error, reply.generation)),
        _ => None,
    };
    effects.iter().filter_map(join).collect()
}

fn syncs(effects: &[Effect]) -> Vec<(Token, ErrorCode, Bytes)> {
    let sync = |effect: &Effect| match effect {
        Effect::Sync(token, reply) => Some((*token, reply.error, reply.assignment.clone())),
        _ => None,
    };
    effects.iter().filter_map(sync).collect()
}

fn join_reply(effects: &[Effect], token: Token) -> JoinReply {
    let found = effects.iter().find_map(|effect| match effect {
        Effect::Join(of, reply) if *of == token => Some(reply.clone()),
        _ => None,
    });
    found.expect("an answer for the token")
}

/// A stable group of members a (leader), b, c in generation 1 at time 10 000.
fn stable_group() -> ClassicGroup {
    let mut group = ClassicGroup::new(0);
    for (token, id) in [(1, "a"), (2, "b"), (3, "c")] {
        assert!(group.join(request("", id), token, &LIMITS, 0).is_empty());
    }
    // Members came during the first delay, so it is given once more.
    assert!(group.expire(&LIMITS, 3_000).is_empty());
    assert_eq!(joins(&group.expire(&LIMITS, 6_000)).len(), 3);
    group.sync(sync_request("b", 1, &[]), 12, &LIMITS, 7_000);
    group.sync(sync_request("c", 1, &[]), 13, &LIMITS, 7_000);
    let effects = group.sync(
        sync_request("a", 1, &[("a", b"A"), ("b", b"B"), ("c", b"C")]),
        11,
        &LIMITS,
        10_000,
    );
    assert_eq!(syncs(&effects).len(), 3);
    assert_eq!(group.state(), GroupState::Stable);
    group
}

#[test]
fn three_members_join_sync_and_get_their_assignments() {
    let mut group = ClassicGroup::new(0);
    group.join(request("", "a"), 1, &LIMITS, 0);
    group.join(request("", "b"), 2, &LIMITS, 100);
    group.join(request("", "c"), 3, &LIMITS, 200);
    assert_eq!(group.next_deadline_ms(), Some(3_000));
    assert!(group.expire(&LIMITS, 3_000).is_empty());
    let effects = group.expire(&LIMITS, 6_000);
    assert_eq!(
        joins(&effects),
        [
            (1, ErrorCode::NONE, 1),
            (2, ErrorCode::NONE, 1),
            (3, ErrorCode::NONE, 1)
        ]
    );
    let leader = join_reply(&effects, 1);
    assert_eq!(
        (
            &*leader.leader,
            leader.members.len(),
            leader.protocol.as_deref()
        ),
        ("a", 3, Some("range"))
    );
    assert!(join_reply(&effects, 2).members.is_empty());
    assert_eq!(group.state(), GroupState::CompletingRebalance);
    assert!(
        group
            .sync(sync_request("b", 1, &[]), 12, &LIMITS, 7_000)
            .is_empty()
    );
    let effects = group.sync(
        sync_request("a", 1, &[("a", b"A"), ("b", b"B")]),
        11,
        &LIMITS,
        7_100,
    );
    assert_eq!(effects[0], Effect::Persist);
    assert_eq!(
        syncs(&effects),
        [
            (11, ErrorCode::NONE, Bytes::from_static(b"A")),
            (12, ErrorCode::NONE, Bytes::from_static(b"B"))
        ]
    );
    // A member the leader forgot gets an empty assignment, not an error.
    assert_eq!(
        syncs(&group.sync(sync_request("c", 1, &[]), 13, &LIMITS, 7_200)),
        [(13, ErrorCode::NONE, Bytes::new())]
    );
}

#[test]
fn a_new_member_rebalances_the_group_and_everyone_comes_back() {
    let mut group = stable_group();
    assert!(group.join(request("", "d"), 4, &LIMITS, 11_000).is_empty());
    assert_eq!(
        group.heartbeat(&Str::from("b"), None, 1, 11_100),
        ErrorCode::REBALANCE_IN_PROGRESS
    );
    group.join(request("a", ""), 21, &LIMITS, 11_200);
    group.join(request("b", ""), 22, &LIMITS, 11_300);
    let effects = group.join(request("c", ""), 23, &LIMITS, 11_400);
    assert_eq!(joins(&effects).len(), 4);
    assert!(
        joins(&effects)
            .iter()
            .all(|(_, error, generation)| error.is_none() && *generation == 2)
    );
    assert_eq!(join_reply(&effects, 21).members.len(), 4);
}

#[test]
fn who_does_not_come_back_is_left_out_when_the_time_is_up() {
    let mut group = stable_group();
    group.join(request("", "d"), 4, &LIMITS, 11_000);
    group.join(request("b", ""), 22, &LIMITS, 11_100);
    // a and c go silent; their sessions end before the join phase does.
    let effects = group.expire(&LIMITS, 20_500);
    assert_eq!(
        joins(&effects),
        [(22, ErrorCode::NONE, 2), (4, ErrorCode::NONE, 2)]
    );
    assert_eq!(&*join_reply(&effects, 22).leader, "b");
    assert_eq!(group.members().len(), 2);
}

#[test]
fn a_session_that_ends_rebalances_the_rest() {
    let mut group = stable_group();
    for (member, at) in [("a", 15_000), ("b", 15_000)] {
        assert_eq!(
            group.heartbeat(&Str::from(member), None, 1, at),
            ErrorCode::NONE
        );
    }
    assert_eq!(group.next_deadline_ms(), Some(20_000));
    group.expire(&LIMITS, 20_000);
    assert_eq!(group.members().len(), 2);
    assert_eq!(group.state(), GroupState::PreparingRebalance);
}

#[test]
fn members_that_do_not_sync_in_time_are_removed() {
    let mut group = ClassicGroup::new(0);
    group.join(request("", "a"), 1, &LIMITS, 0);
    group.join(request("", "b"), 2, &LIMITS, 0);
    group.expire(&LIMITS, 3_000);
    group.expire(&LIMITS, 6_000);
    group.sync(sync_request("a", 1, &[("a", b"A")]), 11, &LIMITS, 6_100);
    for at in [15_000, 24_000, 33_000, 42_000, 51_000, 60_000] {
        group.heartbeat(&Str::from("a"), None, 1, at);
        group.heartbeat(&Str::from("b"), None, 1, at);
    }
    group.expire(&LIMITS, 66_000);
    assert_eq!(
        group
            .members()
            .keys()
            .map(|id| id.to_string())
            .collect::<Vec<_>>(),
        ["a"]
    );
    assert_eq!(group.state(), GroupState::PreparingRebalance);
}

#[test]
fn a_rebalance_tells_members_that_wait_for_their_assignment() {
    let mut group = ClassicGroup::new(0);
    group.join(request("", "a"), 1, &LIMITS, 0);
    group.join(request("", "b"), 2, &LIMITS, 0);
    group.expire(&LIMITS, 3_000);
    group.expire(&LIMITS, 6_000);
    group.sync(sync_request("b", 1, &[]), 12, &LIMITS, 6_100);
    let effects = group.join(request("", "c"), 3, &LIMITS, 6_200);
    assert_eq!(
        syncs(&effects),
        [(12, ErrorCode::REBALANCE_IN_PROGRESS, Bytes::new())]
    );
    assert_eq!(
        syncs(&group.sync(sync_request("a", 1, &[]), 11, &LIMITS, 6_300)),
        [(11, ErrorCode::REBALANCE_IN_PROGRESS, Bytes::new())]
    );
}

#[test]
fn the_last_member_leaving_empties_the_group_and_writes_it() {
    let mut group = stable_group();
    let leave = |id: &str| LeaveRequest {
        member_id: Str::from(id),
        instance_id: None,
    };
    let (codes, effects) = group.leave(&[leave("a"), leave("b"), leave("x")], &LIMITS, 11_000);
    assert_eq!(
        codes,
        [
            ErrorCode::NONE,
            ErrorCode::NONE,
            ErrorCode::UNKNOWN_MEMBER_ID
        ]
    );
    assert!(effects.is_empty());
    let (codes, effects) = group.leave(&[leave("c")], &LIMITS, 12_000);
    assert_eq!(
        (codes, effects),
        (vec![ErrorCode::NONE], vec![Effect::Persist])
    );
    assert_eq!((group.state(), group.generation), (GroupState::Empty, 2));
    assert_eq!(group.next_deadline_ms(), None);
}

#[test]
fn a_client_without_an_id_is_sent_back_with_one_and_then_admitted() {
    let mut group = ClassicGroup::new(0);
    let first = JoinRequest {
        requires_known_id: true,
        ..request("", "a")
    };
    let effects = group.join(first, 1, &LIMITS, 0);
    let reply = join_reply(&effects, 1);
    assert_eq!(
        (reply.error, &*reply.member_id),
        (ErrorCode::MEMBER_ID_REQUIRED, "a")
    );
    assert!(!group.is_empty());
    group.join(request("a", ""), 2, &LIMITS, 100);
    assert_eq!(
        joins(&group.expire(&LIMITS, 3_200)).len(),
        1,
        "one member alone waits for one delay only"
    );
}

#[test]
fn an_announced_member_that_never_joins_is_forgotten() {
    let mut group = ClassicGroup::new(0);
    group.join(
        JoinRequest {
            requires_known_id: true,
            ..request("", "a")
        },
        1,
        &LIMITS,
        0,
    );
    assert_eq!(group.next_deadline_ms(), Some(10_000));
    group.expire(&LIMITS, 10_000);
    assert!(group.is_empty());
}

#[test]
fn join_requests_that_break_a_rule_are_refused() {
    let table = [
        (
            JoinRequest {
                session_timeout_ms: 5_999,
                ..request("", "x")
            },
            ErrorCode::INVALID_SESSION_TIMEOUT,
        ),
        (
            JoinRequest {
                session_timeout_ms: 1_800_001,
                ..request("", "x")
            },
            ErrorCode::INVALID_SESSION_TIMEOUT,
        ),
        (
            JoinRequest {
                protocol_type: Str::from("connect"),
                ..request("", "x")
            },
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            JoinRequest {
                protocols: Vec::new(),
                ..request("", "x")
            },
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ),
        (
            JoinRequest {
                protocols: vec![(Str::from("other"), Bytes::new())],
                ..request("", "x")
            },
            ErrorCode::INCONSISTENT_GROUP_PROTOCOL,
        ),
        (request("ghost", ""), ErrorCode::UNKNOWN_MEMBER_ID),
        (
            static_request("i", "ghost", ""),
            ErrorCode::UNKNOWN_MEMBER_ID,
        ),
    ];
    for (request, error) in table {
        let mut group = stable_group();
        assert_eq!(
            joins(&group.join(request, 9, &LIMITS, 11_000)),
            [(9, error, -1)]
        );
        assert_eq!(group.state(), GroupState::Stable);
    }
    let mut group = stable_group();
    let full = Limits {
        members_max: 3,
        ..LIMITS
    };
    assert_eq!(
        joins(&group.join(request("", "d"), 9, &full, 11_000)),
        [(9, ErrorCode::GROUP_MAX_SIZE_REACHED, -1)]
    );
}

#[test]
fn a_lost_join_answer_is_repeated_without_a_rebalance() {
    let mut group = stable_group();
    let effects = group.join(request("b", ""), 30, &LIMITS, 11_000);
    assert_eq!(joins(&effects), [(30, ErrorCode::NONE, 1)]);
    assert_eq!(group.state(), GroupState::Stable);
    // The leader joining again asks for a rebalance.
    assert!(group.join(request("a", ""), 31, &LIMITS, 11_000).is_empty());
    assert_eq!(group.state(), GroupState::PreparingRebalance);
}

#[test]
fn heartbeats_and_commits_of_a_wrong_member_or_generation_are_refused() {
    let mut group = stable_group();
    let (a, ghost) = (Str::from("a"), Str::from("ghost"));
    assert_eq!(
        group.heartbeat(&ghost, None, 1, 0),
        ErrorCode::UNKNOWN_MEMBER_ID
    );
    assert_eq!(
        group.heartbeat(&a, None, 2, 0),
        ErrorCode::ILLEGAL_GENERATION
    );
    assert_eq!(group.check_commit(&a, None, 1, 0), Ok(()));
    assert_eq!(
        group.check_commit(&a, None, 0, 0),
        Err(ErrorCode::ILLEGAL_GENERATION)
    );
    assert_eq!(
        group.check_commit(&ghost, None, 1, 0),
        Err(ErrorCode::UNKNOWN_MEMBER_ID)
    );
    assert_eq!(
        group.check_commit(&Str::EMPTY, None, -1, 0),
        Err(ErrorCode::UNKNOWN_MEMBER_ID)
    );
    assert_eq!(
        ClassicGroup::new(0).check_commit(&Str::EMPTY, None, -1, 0),
        Ok(())
    );
}

/// A stable group of two static members: i1 = a (leader), i2 = b.
fn static_group() -> ClassicGroup {
    let mut group = ClassicGroup::new(0);
    group.join(static_request("i1", "", "a"), 1, &LIMITS, 0);
    group.join(static_request("i2", "", "b"), 2, &LIMITS, 0);
    group.expire(&LIMITS, 3_000);
    assert_eq!(joins(&group.expire(&LIMITS, 6_000)).len(), 2);
    group.sync(sync_request("b", 1, &[]), 12, &LIMITS, 6_000);
    group.sync(
        sync_request("a", 1, &[("a", b"A"), ("b", b"B")]),
        11,
        &LIMITS,
        6_000,
    );
    group
}

#[test]
fn a_static_member_that_restarts_takes_its_place_without_a_rebalance() {
    let mut group = static_group();
    let effects = group.join(static_request("i2", "", "b2"), 20, &LIMITS, 7_000);
    assert_eq!(effects[0], Effect::Persist);
    assert_eq!(joins(&effects), [(20, ErrorCode::NONE, 1)]);
    assert_eq!(group.state(), GroupState::Stable);
    let assigned = group.sync(sync_request("b2", 1, &[]), 21, &LIMITS, 7_100);
    assert_eq!(
        syncs(&assigned),
        [(21, ErrorCode::NONE, Bytes::from_static(b"B"))]
    );
    // The older life is fenced wherever it shows up.
    let (old, instance) = (Str::from("b"), Str::from("i2"));
    assert_eq!(
        group.heartbeat(&old, Some(&instance), 1, 7_200),
        ErrorCode::FENCED_INSTANCE_ID
    );
    assert_eq!(
        group.check_commit(&old, Some(&instance), 1, 7_200),
        Err(ErrorCode::FENCED_INSTANCE_ID)
    );
    assert_eq!(
        joins(&group.join(static_request("i2", "b", ""), 22, &LIMITS, 7_200)),
        [(22, ErrorCode::FENCED_INSTANCE_ID, -1)]
    );
    let stale = SyncRequest {
        instance_id: Some(instance),
        ..sync_request("b", 1, &[])
    };
    assert_eq!(
        syncs(&group.sync(stale, 23, &LIMITS, 7_200)),
        [(23, ErrorCode::FENCED_INSTANCE_ID, Bytes::new())]
    );
}

#[test]
fn a_static_leader_that_restarts_keeps_its_role_but_computes_nothing() {
    let mut group = static_group();
    let newer = JoinRequest {
        supports_skip_assignment: true,
        ..static_request("i1", "", "a2")
    };
    let reply = join_reply(&group.join(newer, 20, &LIMITS, 7_000), 20);
    assert_eq!(
        (reply.skip_assignment, &*reply.leader, reply.members.len()),
        (true, "a2", 2)
    );
    let reply = join_reply(
        &group.join(static_request("i1", "", "a3"), 21, &LIMITS, 7_000),
        21,
    );
    assert_eq!(
        (reply.skip_assignment, &*reply.leader, reply.members.len()),
        (false, "a2", 0)
    );
}

#[test]
fn a_waiting_older_life_of_a_static_member_is_answered_as_fenced() {
    let mut group = ClassicGroup::new(0);
    group.join(static_request("i1", "", "a"), 1, &LIMITS, 0);
    let effects = group.join(static_request("i1", "", "a2"), 2, &LIMITS, 100);
    assert_eq!(joins(&effects), [(1, ErrorCode::FENCED_INSTANCE_ID, -1)]);
    assert_eq!(group.members().len(), 1);
}

#[test]
fn a_static_member_survives_a_rebalance_it_misses_until_its_session_ends() {
    let mut group = static_group();
    group.join(request("", "c"), 3, &LIMITS, 7_000);
    group.join(static_request("i1", "a", ""), 20, &LIMITS, 7_100);
    group.heartbeat(&Str::from("b"), Some(&Str::from("i2")), 1, 12_000);
    let effects = group.expire(&LIMITS, 21_999);
    assert!(joins(&effects).is_empty(), "its session still runs");
    let effects = group.expire(&LIMITS, 22_000);
    assert_eq!(joins(&effects).len(), 2);
    assert_eq!(group.members().len(), 2);
}

#[test]
fn an_operator_removes_a_static_member_by_its_instance_id() {
    let mut group = static_group();
    let leave = |member: &str| LeaveRequest {
        member_id: Str::from(member),
        instance_id: Some(Str::from("i2")),
    };
    assert_eq!(
        group.leave(&[leave("other")], &LIMITS, 7_000).0,
        [ErrorCode::FENCED_INSTANCE_ID]
    );
    assert_eq!(
        group.leave(&[leave("")], &LIMITS, 7_000).0,
        [ErrorCode::NONE]
    );
    assert_eq!(group.members().len(), 1);
}

#[test]
fn a_restored_group_goes_on_where_it_was() {
    let before = stable_group();
    let mut group = ClassicGroup::restore(before.persisted());
    assert_eq!(group.next_deadline_ms(), Some(i64::MAX));
    group.start_sessions(100_000);
    assert_eq!(
        group.heartbeat(&Str::from("a"), None, 1, 100_100),
        ErrorCode::NONE
    );
    assert_eq!(
        syncs(&group.sync(sync_request("c", 1, &[]), 40, &LIMITS, 100_200)),
        [(40, ErrorCode::NONE, Bytes::from_static(b"C"))]
    );
    group.expire(&LIMITS, 110_000);
    assert_eq!(
        group.members().len(),
        2,
        "a beat and c synced after the start, b did not"
    );
}

#[test]
fn every_token_is_answered_exactly_once() {
    // A deterministic storm of joins, syncs, leaves and time.
    let mut group = ClassicGroup::new(0);
    let (mut open, mut token, mut seed, mut now) = (BTreeSet::new(), 0u64, 7u64, 0i64);
    for _ in 0..20_000 {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let kind = (seed >> 33) % 8;
        let ids: Vec<&Str> = group.members().keys().collect();
        let member = ids
            .get((seed >> 40) as usize % 6)
            .map_or("ghost".to_owned(), |id| id.to_string());
        now += ((seed >> 50) % 400) as i64;
        let generation = group.generation;
        let effects = match kind {
            0 | 1 => {
                token += 1;
                open.insert(token);
                group.join(request("", &format!("m{token}")), token, &LIMITS, now)
            }
            2 | 3 => {
                token += 1;
                open.insert(token);
                group.join(request(&member, ""), token, &LIMITS, now)
            }
            4 | 5 => {
                token += 1;
                open.insert(token);
                group.sync(sync_request(&member, generation, &[]), token, &LIMITS, now)
            }
            6 => {
                group
                    .leave(
                        &[LeaveRequest {
                            member_id: Str::from(member),
                            instance_id: None,
                        }],
                        &LIMITS,
                        now,
                    )
                    .1
            }
            _ => group.expire(&LIMITS, now),
        };
        for effect in &effects {
            match effect {
                Effect::Join(token, _) | Effect::Sync(token, _) => {
                    assert!(open.remove(token), "token {token} was answered twice")
                }
                Effect::Persist => {}
            }
        }
    }
    now += 400_000;
    for _ in 0..10 {
        now += 400_000;
        for effect in group.expire(&LIMITS, now) {
            if let Effect::Join(token, _) | Effect::Sync(token, _) = effect {
                assert!(open.remove(&token));
            }
        }
    }
    assert_eq!(open.len(), 0, "tokens were never answered");
    assert_eq!(group.state(), GroupState::Empty);
}

/// What the group's record has no room for, and lists no client sends, are refused before anything
/// is stored.
#[test]
fn oversized_members_are_refused_and_change_nothing() {
    let mut group = ClassicGroup::new(0);
    let refused = |group: &mut ClassicGroup, request: JoinRequest| {
        let effects = group.join(request, 1, &LIMITS, 0);
        assert_eq!(joins(&effects), [(1, ErrorCode::INVALID_REQUEST, -1)]);
        assert!(group.is_empty());
    };
    let long = Str::from("x".repeat(LIMITS.id_bytes_max + 1));
    let mut client = request("", "m");
    client.client_id = long.clone();
    refused(&mut group, client);
    let mut instance = request("", "m");
    instance.instance_id = Some(long.clone());
    refused(&mut group, instance);
    let mut name = request("", "m");
    name.protocols = vec![(long, Bytes::new())];
    refused(&mut group, name);
    let mut many = request("", "m");
    many.protocols = vec![(Str::from("p"), Bytes::new()); LIMITS.protocols_max + 1];
    refused(&mut group, many);
}

/// Empty protocols count, so that a group is full at some point.
#[test]
fn empty_elements_count_as_bytes() {
    let mut group = ClassicGroup::new(0);
    let small = Limits {
        group_bytes_max: 2_000,
        ..LIMITS
    };
    let mut full = false;
    for token in 0..10 {
        let mut joining = request("", &format!("m{token}"));
        joining.protocols = (0..4)
            .map(|n| (Str::from(format!("{n}")), Bytes::new()))
            .collect();
        let answers = joins(&group.join(joining, token, &small, 0));
        full |= answers
            .iter()
            .any(|(_, error, _)| *error == ErrorCode::GROUP_MAX_SIZE_REACHED);
    }
    assert!(full && group.members().len() < 8);
}

/// A wait for members is capped, whatever a member asks for.
#[test]
fn the_rebalance_timeout_is_capped() {
    let limits = Limits {
        rebalance_timeout_ms_max: 7_000,
        ..LIMITS
    };
    let mut group = ClassicGroup::new(0);
    let mut joining = request("", "m");
    joining.rebalance_timeout_ms = i32::MAX;
    group.join(joining, 1, &limits, 0);
    let member = group.members().values().next().expect("a member");
    assert_eq!(member.rebalance_timeout_ms, 7_000);
}

/// The common protocol of many members with many protocols is found in one walk.
#[test]
fn the_common_protocol_is_what_every_member_names() {
    let mut group = ClassicGroup::new(0);
    for (token, names) in [["a", "b", "c"], ["c", "b", "x"], ["b", "c", "b"]]
        .iter()
        .enumerate()
    {
        let mut joining = request("", &format!("m{token}"));
        joining.protocols = names
            .iter()
            .map(|n| (Str::from(*n), Bytes::new()))
            .collect();
        group.join(joining, token as Token, &LIMITS, 0);
    }
    let mut common: Vec<&Str> = group.common_protocols().into_iter().collect();
    common.sort();
    assert_eq!(common, ["b", "c"]);
    // "b" has the votes of the first and the third member.
    assert_eq!(group.select_protocol(), Some(Str::from("b")));
}
