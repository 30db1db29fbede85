//! The table of decisions, by example and as properties.

use proptest::prelude::*;

use super::*;

fn local(entries: &[(i32, i64)], end: i64) -> LocalFacts {
    LocalFacts {
        occasion: Occasion::Start,
        log_start: 0,
        chain: EpochChain::new(entries, end),
        written_by_this_mirror: false,
        last_mirror_offset: None,
        consent: false,
    }
}

fn evidence(matched: ChainMatch) -> Evidence {
    Evidence {
        matched,
        source_end: Some(1_000),
        only_markers_behind: false,
        tail_is_same: None,
        is_same_topic: true,
    }
}

#[test]
fn failback_cuts_what_the_source_never_mirrored() {
    // 10 records mirrored from here, then 5 of our own in a later epoch.
    let ours = local(&[(0, 0), (1, 10)], 15);
    let got = decide(&ours, &Lookup::Epoch(0), &evidence(ChainMatch::UpTo(10)));
    assert!(
        matches!(got, Decision::TruncateTo { offset: 10, .. }),
        "{got:?}"
    );
}

#[test]
fn failback_cuts_inside_the_last_mirrored_epoch_too() {
    let ours = local(&[(0, 0), (1, 6)], 8);
    let got = decide(&ours, &Lookup::Epoch(1), &evidence(ChainMatch::UpTo(6)));
    assert!(
        matches!(got, Decision::TruncateTo { offset: 6, .. }),
        "{got:?}"
    );
}

#[test]
fn equal_epoch_numbers_of_two_clusters_are_not_taken_for_agreement() {
    // Epoch 11 exists on both sides, written apart: only the look-up knows, so the walk is bounded
    // by it.
    let ours = local(&[(0, 0), (11, 10)], 20);
    assert_eq!(shared_at_most(&ours, &Lookup::Epoch(0)), Some(10));
}

#[test]
fn adding_a_removed_but_unchanged_topic_again_cuts_only_our_markers() {
    let ours = LocalFacts {
        written_by_this_mirror: true,
        last_mirror_offset: Some(100),
        ..local(&[(0, 0), (11, 100)], 102)
    };
    let facts = Evidence {
        only_markers_behind: true,
        ..evidence(ChainMatch::UpTo(100))
    };
    let got = decide(&ours, &Lookup::NoRecord, &facts);
    assert!(
        matches!(got, Decision::TruncateTo { offset: 100, .. }),
        "{got:?}"
    );
}

#[test]
fn records_written_after_a_failover_are_not_cut_without_consent() {
    let ours = LocalFacts {
        written_by_this_mirror: true,
        last_mirror_offset: Some(100),
        ..local(&[(0, 0), (11, 100)], 150)
    };
    let Decision::Refuse(text) = decide(&ours, &Lookup::NoRecord, &evidence(ChainMatch::UpTo(100)))
    else {
        panic!()
    };
    assert!(text.contains("offsets 100 to 149"), "{text}");
    let ours = LocalFacts {
        consent: true,
        ..ours
    };
    let got = decide(&ours, &Lookup::NoRecord, &evidence(ChainMatch::UpTo(100)));
    assert!(
        matches!(got, Decision::TruncateTo { offset: 100, .. }),
        "{got:?}"
    );
}

#[test]
fn a_log_of_unknown_origin_is_kept_only_when_its_end_is_the_same_at_the_source() {
    let ours = local(&[(0, 0)], 50);
    let same = Evidence {
        tail_is_same: Some(true),
        ..evidence(ChainMatch::UpTo(50))
    };
    assert_eq!(
        decide(&ours, &Lookup::NoRecord, &same),
        Decision::NoTruncation
    );
    for tail_is_same in [None, Some(false)] {
        let facts = Evidence {
            tail_is_same,
            ..evidence(ChainMatch::UpTo(50))
        };
        let Decision::Refuse(text) = decide(&ours, &Lookup::NoRecord, &facts) else {
            panic!()
        };
        assert!(text.contains("offsets 0 to 49"), "{text}");
    }
    let consenting = LocalFacts {
        consent: true,
        ..ours
    };
    let got = decide(
        &consenting,
        &Lookup::NoRecord,
        &evidence(ChainMatch::Nothing),
    );
    assert!(matches!(got, Decision::DiscardAll { .. }), "{got:?}");
}

#[test]
fn a_source_that_lost_its_data_does_not_take_ours_with_it() {
    let ours = LocalFacts {
        written_by_this_mirror: true,
        ..local(&[(0, 0)], 50)
    };
    let facts = Evidence {
        source_end: Some(0),
        ..evidence(ChainMatch::UpTo(0))
    };
    assert!(matches!(
        decide(&ours, &Lookup::NoRecord, &facts),
        Decision::Refuse(_)
    ));
}

#[test]
fn divergence_while_mirroring_cuts_to_the_common_point() {
    let ours = LocalFacts {
        occasion: Occasion::Divergence,
        written_by_this_mirror: true,
        ..local(&[(0, 0), (3, 50)], 100)
    };
    let got = decide(&ours, &Lookup::NoRecord, &evidence(ChainMatch::UpTo(90)));
    assert!(
        matches!(got, Decision::TruncateTo { offset: 90, .. }),
        "{got:?}"
    );
    assert!(matches!(
        decide(&ours, &Lookup::NoRecord, &evidence(ChainMatch::Nothing)),
        Decision::Refuse(_)
    ));
}

fn any_match() -> impl Strategy<Value = ChainMatch> {
    prop_oneof![
        Just(ChainMatch::Nothing),
        Just(ChainMatch::NotAskable),
        (0i64..60).prop_map(ChainMatch::UpTo)
    ]
}

proptest! {
    #[test]
    fn an_unknown_look_up_never_cuts(
        own in any::<bool>(), consent in any::<bool>(), lmo in proptest::option::of(0i64..60), matched in any_match(), markers in any::<bool>()
    ) {
        let ours = LocalFacts { written_by_this_mirror: own, consent, last_mirror_offset: lmo, ..local(&[(0, 0), (4, 20)], 50) };
        let facts = Evidence { only_markers_behind: markers, ..evidence(matched) };
        let got = decide(&ours, &Lookup::Unknown("loading".into()), &facts);
        prop_assert_eq!(got, Decision::RetryLater("loading".into()));
    }

    #[test]
    fn without_consent_no_record_of_unknown_origin_is_cut(matched in any_match(), markers in any::<bool>(), tail in proptest::option::of(any::<bool>())) {
        let facts = Evidence { only_markers_behind: markers, tail_is_same: tail, ..evidence(matched) };
        let got = decide(&local(&[(0, 0), (4, 20)], 50), &Lookup::NoRecord, &facts);
        prop_assert!(matches!(got, Decision::NoTruncation | Decision::Refuse(_)), "{:?}", got);
    }

    #[test]
    fn a_prefix_of_the_source_is_never_cut(own in any::<bool>(), consent in any::<bool>(), epoch in 4i32..9) {
        let ours = LocalFacts { written_by_this_mirror: own, consent, ..local(&[(0, 0), (4, 20)], 50) };
        let facts = Evidence { tail_is_same: Some(true), ..evidence(ChainMatch::UpTo(50)) };
        prop_assert_eq!(decide(&ours, &Lookup::Epoch(epoch), &facts), Decision::NoTruncation);
        prop_assert_eq!(decide(&ours, &Lookup::NoRecord, &facts), Decision::NoTruncation);
    }

    #[test]
    fn a_chain_that_proves_nothing_cuts_nothing_this_mirror_wrote(consent in any::<bool>()) {
        let ours = LocalFacts { written_by_this_mirror: true, consent, ..local(&[(0, 0), (4, 20)], 50) };
        prop_assert_eq!(decide(&ours, &Lookup::NoRecord, &evidence(ChainMatch::Nothing)), Decision::NoTruncation);
        prop_assert_eq!(decide(&ours, &Lookup::NoRecord, &evidence(ChainMatch::NotAskable)), Decision::NoTruncation);
    }

    #[test]
    fn an_empty_log_needs_no_decision(at in 0i64..100, matched in any_match()) {
        let ours = LocalFacts { log_start: at, ..local(&[], at) };
        prop_assert_eq!(decide(&ours, &Lookup::Unknown("x".into()), &evidence(matched)), Decision::NoTruncation);
    }
}

/// A log that shares nothing with ours is given up only where topic ids say that it is the same
/// topic.
#[test]
fn without_topic_ids_nothing_is_given_up_for_a_log_that_shares_nothing() {
    let ours = LocalFacts {
        occasion: Occasion::Divergence,
        written_by_this_mirror: true,
        ..local(&[(3, 0)], 60)
    };
    for (is_same_topic, gives_up) in [(true, true), (false, false)] {
        let facts = Evidence {
            is_same_topic,
            ..evidence(ChainMatch::UpTo(0))
        };
        let got = decide(&ours, &Lookup::NoRecord, &facts);
        assert_eq!(
            matches!(got, Decision::DiscardAll { .. }),
            gives_up,
            "{got:?}"
        );
        assert_eq!(matches!(got, Decision::Refuse(_)), !gives_up, "{got:?}");
    }
}
