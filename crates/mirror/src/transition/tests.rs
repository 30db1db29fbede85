//! The table against the documented one, and the properties that must hold for every history.

use proptest::prelude::*;

use super::*;

const POLICY: RetryPolicy = RetryPolicy {
    initial_backoff_ms: 1_000,
    backoff_ms_max: 300_000,
    attempts_max: 100,
};

fn record(state: MirrorState) -> PartitionRecord {
    PartitionRecord {
        state,
        ..Default::default()
    }
}

/// The table of docs/mirroring.md, parsed from the document itself.
fn documented() -> Vec<(MirrorState, Vec<MirrorState>)> {
    let text = include_str!("../../../../docs/mirroring.md");
    let begin = text
        .find("<!-- transitions -->")
        .expect("marker in the document");
    let by_name = |n: &str| {
        MirrorState::ALL
            .into_iter()
            .find(|s| s.name() == n.trim())
            .expect("a state name")
    };
    text[begin..]
        .lines()
        .skip(3)
        .take_while(|l| l.starts_with('|'))
        .map(|l| {
            let cells: Vec<&str> = l.trim_matches('|').split('|').collect();
            (
                by_name(cells[0]),
                cells[1].split(',').map(by_name).collect(),
            )
        })
        .collect()
}

#[test]
fn the_table_is_the_documented_one() {
    let documented = documented();
    assert_eq!(
        documented.len(),
        TRANSITIONS.len() - 1,
        "UNKNOWN is entered from nowhere"
    );
    for (to, froms) in documented {
        for from in MirrorState::ALL {
            assert_eq!(
                allowed(from, to),
                from == to || froms.contains(&from),
                "{from} -> {to}"
            );
        }
    }
}

#[test]
fn stopped_never_becomes_failed() {
    assert!(!allowed(MirrorState::Stopped, MirrorState::Failed));
    for desired in crate::state::WISHES {
        let failed = Event::Failed {
            kind: FailureKind::Permanent,
            text: "source topic is gone".into(),
        };
        let step = step(&record(MirrorState::Stopped), desired, &failed, 5, POLICY);
        assert_ne!(step.record.state, MirrorState::Failed);
    }
}

#[test]
fn stop_works_from_every_state() {
    for state in MirrorState::ALL
        .into_iter()
        .filter(|s| *s != MirrorState::Stopped)
    {
        let step = step(
            &record(state),
            Desired::Stopped,
            &Event::Reconcile,
            5,
            POLICY,
        );
        assert_eq!(
            (step.record.state, step.action),
            (MirrorState::Stopping, Action::Stop),
            "from {state}"
        );
    }
    let failed = PartitionRecord {
        retry_attempt: NOT_RETRYABLE,
        ..record(MirrorState::Failed)
    };
    assert_eq!(
        step(&failed, Desired::Stopped, &Event::Reconcile, 5, POLICY).action,
        Action::Stop
    );
}

#[test]
fn an_unknown_partition_with_a_last_mirror_epoch_is_stopped_at_once() {
    let known = PartitionRecord {
        last_mirror_epoch: Some(3),
        ..Default::default()
    };
    assert_eq!(
        step(&known, Desired::Stopped, &Event::Reconcile, 5, POLICY)
            .record
            .state,
        MirrorState::Stopped
    );
}

#[test]
fn a_pause_during_preparation_prepares_again_on_resume() {
    let pausing = step(
        &record(MirrorState::Preparing),
        Desired::Paused,
        &Event::Reconcile,
        1,
        POLICY,
    );
    assert_eq!(pausing.action, Action::StopFetching);
    let paused = step(
        &pausing.record,
        Desired::Paused,
        &Event::FetchEnded,
        2,
        POLICY,
    );
    assert_eq!(
        (paused.record.state, paused.persist),
        (MirrorState::Paused, true)
    );
    let resumed = step(
        &paused.record,
        Desired::Mirroring,
        &Event::Reconcile,
        3,
        POLICY,
    );
    assert_eq!(resumed.action, Action::Prepare(PrepareReason::Start));
}

#[test]
fn a_resume_after_mirroring_needs_no_preparation() {
    let mut r = record(MirrorState::Mirroring);
    r = step(&r, Desired::Paused, &Event::Reconcile, 1, POLICY).record;
    r = step(&r, Desired::Paused, &Event::FetchEnded, 2, POLICY).record;
    let resumed = step(&r, Desired::Mirroring, &Event::Reconcile, 3, POLICY);
    assert_eq!(
        (resumed.record.state, resumed.action),
        (MirrorState::Mirroring, Action::Fetch)
    );
}

#[test]
fn attempts_count_failures_only_and_an_operator_resets_them() {
    let fail = Event::Failed {
        kind: FailureKind::Limited,
        text: "corrupt batch".into(),
    };
    let mut r = record(MirrorState::Mirroring);
    for attempt in 1..=100 {
        r = step(&r, Desired::Mirroring, &fail, 1, POLICY).record;
        assert_eq!(r.retry_attempt, attempt);
        for _ in 0..3 {
            r = step(&r, Desired::Mirroring, &Event::Reconcile, 1, POLICY).record;
        }
        let again = step(&r, Desired::Mirroring, &Event::RetryDue, 2, POLICY);
        assert_eq!(again.action, Action::Fetch);
        if attempt < 100 {
            r = again.record;
        }
    }
    assert!(retries_exhausted(&r, POLICY));
    assert_eq!(
        step(&r, Desired::Mirroring, &Event::Reconcile, 3, POLICY).action,
        Action::Nothing
    );
    let reset = step(&r, Desired::Mirroring, &Event::OperatorReset, 3, POLICY);
    assert_eq!(
        (reset.record.retry_attempt, reset.action),
        (0, Action::Fetch)
    );
}

/// What may be stored over what is the table of transitions, whoever writes.
#[test]
fn a_stored_state_never_skips_one_that_has_to_be_stored() {
    use MirrorState::*;
    for (from, to) in [
        (Mirroring, Stopped),
        (Mirroring, Preparing),
        (Stopped, Mirroring),
        (Stopped, Failed),
        (Paused, Stopped),
        (Stopping, Mirroring),
        (Stopping, Preparing),
        (Unknown, Mirroring),
        (Mirroring, Unknown),
    ] {
        assert!(!storable(from, to), "{to} over {from}");
    }
    for (from, to) in [
        (Mirroring, Paused),
        (Unknown, Paused),
        (Unknown, Stopping),
        (UleRecovery, Pausing),
        (Mirroring, UleRecovery),
        (Stopping, Stopped),
        (Mirroring, Mirroring),
    ] {
        assert!(storable(from, to), "{to} over {from}");
    }
}

#[test]
fn connectivity_is_retried_without_limit() {
    let fail = Event::Failed {
        kind: FailureKind::Connectivity,
        text: "away".into(),
    };
    let mut r = record(MirrorState::Mirroring);
    for _ in 0..1_000 {
        let failed = step(&r, Desired::Mirroring, &fail, 1, POLICY);
        assert_eq!(failed.action, Action::AwaitRetry);
        r = step(
            &failed.record,
            Desired::Mirroring,
            &Event::RetryDue,
            2,
            POLICY,
        )
        .record;
    }
}

#[test]
fn backoff_doubles_up_to_its_maximum() {
    let waits: Vec<i64> = [1, 2, 3, 9, 10, i16::MAX]
        .iter()
        .map(|a| POLICY.backoff_ms(*a))
        .collect();
    assert_eq!(waits, [1_000, 2_000, 4_000, 256_000, 300_000, 300_000]);
    assert!(POLICY.delay_ms(3, 0.999) <= 4_000 && POLICY.delay_ms(3, 0.0) == 0);
}

#[test]
fn mirroring_forgets_the_epoch_of_the_last_stop() {
    let mut r = record(MirrorState::Preparing);
    r.last_mirror_epoch = Some(4);
    r.last_mirror_offset = Some(100);
    let step = step(&r, Desired::Mirroring, &Event::Prepared, 9, POLICY);
    assert_eq!(
        (
            step.record.last_mirror_epoch,
            step.record.last_mirror_offset
        ),
        (None, None)
    );
}

fn any_event() -> impl Strategy<Value = Event> {
    prop_oneof![
        Just(Event::Reconcile),
        Just(Event::Prepared),
        Just(Event::EpochBehind),
        Just(Event::EpochRaised),
        Just(Event::Diverged),
        Just(Event::FetchEnded),
        Just(Event::StopDone),
        Just(Event::RetryDue),
        Just(Event::OperatorReset),
        prop_oneof![
            Just(FailureKind::Connectivity),
            Just(FailureKind::Limited),
            Just(FailureKind::Permanent)
        ]
        .prop_map(|kind| Event::Failed {
            kind,
            text: "x".into()
        }),
    ]
}

fn any_desired() -> impl Strategy<Value = Desired> {
    (0_usize..3).prop_map(|i| crate::state::WISHES[i])
}

/// A path of allowed transitions that touches neither STOPPED nor FAILED between its ends.
fn reachable(from: MirrorState, to: MirrorState) -> bool {
    let between = |s: &MirrorState| !matches!(s, MirrorState::Stopped | MirrorState::Failed);
    allowed(from, to)
        || MirrorState::ALL.into_iter().filter(between).any(|a| {
            allowed(from, a)
                && (allowed(a, to)
                    || MirrorState::ALL
                        .into_iter()
                        .filter(between)
                        .any(|b| allowed(a, b) && allowed(b, to)))
        })
}

proptest! {
    #[test]
    fn every_history_stays_inside_the_table(history in prop::collection::vec((any_desired(), any_event()), 1..60)) {
        let mut r = PartitionRecord::default();
        for (now, (desired, event)) in history.into_iter().enumerate() {
            let next = step(&r, desired, &event, now as i64, POLICY);
            prop_assert!(reachable(r.state, next.record.state), "{} -> {} on {:?}", r.state, next.record.state, event);
            if r.state == MirrorState::Stopped && next.record.state != MirrorState::Stopped {
                prop_assert!(desired != Desired::Stopped, "left STOPPED by itself on {:?}", event);
            }
            r = next.record;
        }
    }

    #[test]
    fn what_a_history_stores_may_be_stored(history in prop::collection::vec((any_desired(), any_event()), 1..60)) {
        let mut stored = MirrorState::Unknown;
        let mut r = PartitionRecord::default();
        for (now, (desired, event)) in history.into_iter().enumerate() {
            let next = step(&r, desired, &event, now as i64, POLICY);
            if next.persist {
                prop_assert!(storable(stored, next.record.state), "{} over {} on {:?}", next.record.state, stored, event);
                stored = next.record.state;
            }
            r = next.record;
        }
    }

    #[test]
    fn an_unsettled_partition_always_has_a_pending_action(history in prop::collection::vec((any_desired(), any_event()), 0..60), desired in any_desired()) {
        let mut r = PartitionRecord::default();
        for (d, e) in history {
            r = step(&r, d, &e, 1, POLICY).record;
        }
        let next = step(&r, desired, &Event::Reconcile, 2, POLICY);
        let settled = next.record.state == crate::state::target(desired);
        let given_up = retries_exhausted(&next.record, POLICY);
        prop_assert!(settled || given_up || next.action != Action::Nothing, "{:?} wants {:?}", next, desired);
    }

    #[test]
    fn answering_every_action_reaches_the_wish(history in prop::collection::vec((any_desired(), any_event()), 0..60), desired in any_desired()) {
        let mut r = PartitionRecord::default();
        for (d, e) in history {
            r = step(&r, d, &e, 1, POLICY).record;
        }
        let mut event = Event::OperatorReset;
        for _ in 0..12 {
            let next = step(&r, desired, &event, 2, POLICY);
            r = next.record;
            event = match next.action {
                Action::Prepare(_) => Event::Prepared,
                Action::StopFetching => Event::FetchEnded,
                Action::Stop => Event::StopDone,
                Action::AwaitRetry => Event::RetryDue,
                Action::Fetch => Event::EpochRaised,
                Action::Nothing => Event::Reconcile,
            };
        }
        prop_assert_eq!(r.state, crate::state::target(desired));
    }

    #[test]
    fn transient_states_are_never_stored_alone(history in prop::collection::vec((any_desired(), any_event()), 0..60)) {
        let mut r = PartitionRecord::default();
        for (d, e) in history {
            let next = step(&r, d, &e, 1, POLICY);
            if next.record.state == MirrorState::Stopped && r.state != MirrorState::Stopped {
                prop_assert!(next.persist);
            }
            r = next.record;
        }
    }
}
