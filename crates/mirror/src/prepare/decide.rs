//! How much of a local log must go before it can be mirrored on top of (docs/mirroring.md §2.4).
//! Pure: facts in, decision out.
//!
//! Rules, in order of weight: an absence never cuts; what this mirror wrote may be cut to what the
//! source has; what anybody else wrote is given up only with consent; everything is given up only
//! when the source has something to put in its place, or with consent.

use super::chain::{ChainMatch, EpochChain};

/// What the source remembers of having mirrored this partition from us. Three-valued on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Lookup {
    /// The last epoch it mirrored from us.
    Epoch(i32),
    /// It certainly never did (or has no such feature).
    NoRecord,
    /// Not known right now: a coordinator loads or moves, a broker is away.
    Unknown(String),
}

/// Why a partition is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// It joins the mirror.
    Start,
    /// The source's log turned out to differ from ours while mirroring.
    Divergence,
}

/// The local log and what is on record about it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalFacts {
    /// Why we ask.
    pub occasion: Occasion,
    /// First offset.
    pub log_start: i64,
    /// Epochs and log end.
    pub chain: EpochChain,
    /// This mirror mirrored this topic id before.
    pub written_by_this_mirror: bool,
    /// Log end when this mirror last stopped here, before our own markers.
    pub last_mirror_offset: Option<i64>,
    /// The operator's consent to lose local records (`mirror.allow.full.truncation`).
    pub consent: bool,
}

/// What was found out beyond the local log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// Result of the epoch walk over the chain cut at [`shared_at_most`].
    pub matched: ChainMatch,
    /// Log end at the source.
    pub source_end: Option<i64>,
    /// Behind [`shared_at_most`] our log holds nothing but control records (our own stop markers).
    pub only_markers_behind: bool,
    /// The last batch of our log is the very same at the source; `None` = not compared.
    pub tail_is_same: Option<bool>,
    /// Topic ids on both sides prove that it is the same topic.
    pub is_same_topic: bool,
}

/// What to do with the local log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// It is a prefix of the source's log.
    NoTruncation,
    /// Cut from this offset on.
    TruncateTo {
        /// First offset that goes.
        offset: i64,
        /// For the log and for describe.
        reason: String,
    },
    /// Everything goes; the consent that needs is there.
    DiscardAll {
        /// For the log and for describe.
        reason: String,
    },
    /// Not without the operator.
    Refuse(String),
    /// Ask again later.
    RetryLater(String),
}

/// The offset above which our log cannot be shared with the source, whatever epochs say. `None` =
/// the look-up has no answer yet.
pub fn shared_at_most(local: &LocalFacts, lookup: &Lookup) -> Option<i64> {
    let end = local.chain.end();
    if local.occasion == Occasion::Divergence {
        return Some(end);
    }
    match lookup {
        Lookup::Unknown(_) => None,
        Lookup::Epoch(epoch) => Some(local.chain.end_of(*epoch).unwrap_or(local.log_start)),
        Lookup::NoRecord if local.written_by_this_mirror => Some(
            local
                .last_mirror_offset
                .unwrap_or(end)
                .clamp(local.log_start, end),
        ),
        Lookup::NoRecord => Some(end),
    }
}

/// The decision. See the module text for the rules.
pub fn decide(local: &LocalFacts, lookup: &Lookup, evidence: &Evidence) -> Decision {
    let (start, end) = (local.log_start, local.chain.end());
    if start >= end {
        return Decision::NoTruncation;
    }
    let Some(bound) = shared_at_most(local, lookup) else {
        let Lookup::Unknown(why) = lookup else {
            return Decision::RetryLater(String::new());
        };
        return Decision::RetryLater(why.clone());
    };
    let shared = match evidence.matched {
        ChainMatch::UpTo(offset) => bound.min(offset),
        ChainMatch::Nothing | ChainMatch::NotAskable => bound,
    };
    let foreign = local.occasion == Occasion::Start
        && *lookup == Lookup::NoRecord
        && !local.written_by_this_mirror;
    if foreign {
        return decide_foreign(local, evidence, shared);
    }
    if local.occasion == Occasion::Divergence && !matches!(evidence.matched, ChainMatch::UpTo(_)) {
        return Decision::Refuse(format!(
            "the source's log differs from ours, but it cannot tell from which offset on (no leader epochs); \
             offsets {start} to {} stay as they are: compare both logs, then remove and add the topic",
            end - 1
        ));
    }
    if shared >= end {
        return Decision::NoTruncation;
    }
    let own_records_go =
        *lookup == Lookup::NoRecord && bound < end && !evidence.only_markers_behind;
    if local.occasion == Occasion::Start && own_records_go && !local.consent {
        return Decision::Refuse(needs_consent(&format!(
            "offsets {bound} to {} were written here after mirroring stopped and would be lost",
            end - 1
        )));
    }
    let reason = cut_reason(local, lookup, bound, shared);
    if shared > start {
        return Decision::TruncateTo {
            offset: shared,
            reason,
        };
    }
    let replaced = evidence
        .source_end
        .is_some_and(|source_end| source_end >= end);
    // Without topic ids a log that shares nothing with ours may be that of a topic made anew.
    let is_ours = local.written_by_this_mirror && evidence.is_same_topic;
    if local.consent || (is_ours && replaced) {
        return Decision::DiscardAll { reason };
    }
    Decision::Refuse(needs_consent(&format!(
        "the whole local log, offsets {start} to {}, would be lost: {reason}",
        end - 1
    )))
}

/// A log nobody can vouch for: only identical content makes it ours.
fn decide_foreign(local: &LocalFacts, evidence: &Evidence, shared: i64) -> Decision {
    let (start, end) = (local.log_start, local.chain.end());
    let is_prefix = matches!(evidence.matched, ChainMatch::UpTo(_)) && shared >= end;
    if is_prefix && evidence.tail_is_same == Some(true) {
        return Decision::NoTruncation;
    }
    let what = "the local log was not written by this mirror and is not known to be a part of the source's";
    if local.consent {
        return Decision::DiscardAll {
            reason: what.to_string(),
        };
    }
    Decision::Refuse(needs_consent(&format!(
        "{what}; offsets {start} to {} would be lost",
        end - 1
    )))
}

fn cut_reason(local: &LocalFacts, lookup: &Lookup, bound: i64, shared: i64) -> String {
    let end = local.chain.end();
    if shared < bound {
        return format!("the source's log differs from offset {shared} on (ours ended at {end})");
    }
    match lookup {
        Lookup::Epoch(epoch) => format!(
            "the source mirrored from here up to leader epoch {epoch}, which ends at offset {bound}"
        ),
        _ => format!("mirroring stopped at offset {bound}; what follows was written here"),
    }
}

fn needs_consent(what: &str) -> String {
    format!(
        "{what}; set mirror.allow.full.truncation=true on the mirror to accept that, or keep the topic out of it"
    )
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
