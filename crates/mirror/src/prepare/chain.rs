//! Comparing two chains of leader epochs by asking the other side, one epoch at a time (KIP-101,
//! KIP-279). Pure.
//!
//! The question is OffsetForLeaderEpoch: "for the largest epoch you have that is not above E, where
//! does it end?". Walking down our own epochs finds the offset up to which both logs can agree *as
//! far as epochs tell*. Epochs are local to a cluster: what both sides wrote on their own after
//! they parted may carry equal numbers, so callers bound the walk to what was mirrored.

/// Our side: epochs with the offset of their first record, ascending in both.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EpochChain {
    entries: Vec<(i32, i64)>,
    end: i64,
}

impl EpochChain {
    /// A chain with its log end. Entries at or beyond the end are left out.
    pub fn new(entries: &[(i32, i64)], end: i64) -> Self {
        EpochChain {
            entries: entries
                .iter()
                .copied()
                .filter(|&(_, start)| start < end)
                .collect(),
            end,
        }
    }

    /// The part below `offset`.
    pub fn cut_at(&self, offset: i64) -> Self {
        Self::new(&self.entries, offset.min(self.end))
    }

    /// Where the records of epochs up to `epoch` end; `None` when all our epochs are above it.
    pub fn end_of(&self, epoch: i32) -> Option<i64> {
        let above = self.entries.partition_point(|&(e, _)| e <= epoch);
        (above > 0).then(|| {
            self.entries
                .get(above)
                .map_or(self.end, |&(_, start)| start)
        })
    }

    /// Log end.
    pub fn end(&self) -> i64 {
        self.end
    }

    fn floor(&self, epoch: i32) -> Option<i32> {
        let above = self.entries.partition_point(|&(e, _)| e <= epoch);
        above
            .checked_sub(1)
            .and_then(|i| self.entries.get(i))
            .map(|&(e, _)| e)
    }
}

/// What the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainMatch {
    /// The chains agree up to this offset, at most our end.
    UpTo(i64),
    /// The other side knows none of our epochs. No proof of anything: it may be too old to keep
    /// epochs.
    Nothing,
    /// The other side cannot be asked (release, permission).
    NotAskable,
}

/// Next step of a walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChainStep {
    /// Ask the other side about this epoch and give the answer to [`ChainWalk::answered`].
    Ask(i32),
    /// The walk is over.
    Done(ChainMatch),
}

/// A walk down our chain.
#[derive(Clone, Debug)]
pub struct ChainWalk {
    chain: EpochChain,
    asking: Option<i32>,
}

impl ChainWalk {
    /// A walk that starts at our latest epoch.
    pub fn new(chain: EpochChain) -> Self {
        let asking = chain.entries.last().map(|&(epoch, _)| epoch);
        ChainWalk { chain, asking }
    }

    /// What to do first.
    pub fn begin(&self) -> ChainStep {
        self.asking
            .map_or(ChainStep::Done(ChainMatch::Nothing), ChainStep::Ask)
    }

    /// Takes the answer to the epoch that was asked: the epoch found (−1 = none) and its end offset
    /// (−1 = unknown).
    ///
    /// # Errors
    /// A text when the answer cannot be: an epoch above the one that was asked.
    pub fn answered(&mut self, epoch: i32, end_offset: i64) -> Result<ChainStep, String> {
        let Some(asked) = self.asking else {
            return Ok(ChainStep::Done(ChainMatch::Nothing));
        };
        if epoch > asked {
            return Err(format!(
                "the source answered epoch {epoch} when asked for epoch {asked} or lower"
            ));
        }
        if epoch < 0 || end_offset < 0 {
            // It has no epoch that low, or none at all.
            return Ok(self.go_below(asked));
        }
        match (self.chain.end_of(epoch), self.chain.floor(epoch)) {
            (Some(ours), Some(floor)) if floor == epoch => {
                Ok(ChainStep::Done(ChainMatch::UpTo(ours.min(end_offset))))
            }
            (_, Some(floor)) => {
                // We lack that epoch: nothing of ours above its predecessor is shared.
                self.asking = Some(floor);
                Ok(ChainStep::Ask(floor))
            }
            (_, None) => {
                let first = self
                    .chain
                    .entries
                    .first()
                    .map_or(self.chain.end, |&(_, start)| start);
                Ok(ChainStep::Done(ChainMatch::UpTo(first.min(end_offset))))
            }
        }
    }

    fn go_below(&mut self, epoch: i32) -> ChainStep {
        self.asking = epoch
            .checked_sub(1)
            .and_then(|below| self.chain.floor(below));
        self.asking
            .map_or(ChainStep::Done(ChainMatch::Nothing), ChainStep::Ask)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// How a Kafka leader answers (an epoch above its latest is unknown; one below its first ends
    /// where that begins).
    fn answer(theirs: &EpochChain, asked: i32) -> (i32, i64) {
        let latest = theirs.entries.last().map_or(-1, |&(e, _)| e);
        if asked > latest {
            return (-1, -1);
        }
        match theirs.floor(asked) {
            Some(floor) => (floor, theirs.end_of(floor).unwrap_or(theirs.end)),
            None => (
                asked,
                theirs.entries.first().map_or(theirs.end, |&(_, s)| s),
            ),
        }
    }

    fn walk(ours: &EpochChain, theirs: &EpochChain) -> ChainMatch {
        let mut walk = ChainWalk::new(ours.clone());
        let mut step = walk.begin();
        loop {
            match step {
                ChainStep::Done(found) => return found,
                ChainStep::Ask(epoch) => {
                    let (e, end) = answer(theirs, epoch);
                    step = walk.answered(e, end).unwrap();
                }
            }
        }
    }

    fn chain(entries: &[(i32, i64)], end: i64) -> EpochChain {
        EpochChain::new(entries, end)
    }

    #[test]
    fn divergence_inside_an_epoch_is_found() {
        let found = walk(
            &chain(&[(0, 0), (3, 50)], 100),
            &chain(&[(0, 0), (3, 50), (4, 90)], 120),
        );
        assert_eq!(found, ChainMatch::UpTo(90));
    }

    #[test]
    fn an_epoch_the_source_never_had_is_walked_past() {
        let found = walk(
            &chain(&[(0, 0), (2, 40), (11, 60)], 70),
            &chain(&[(0, 0), (2, 40)], 100),
        );
        assert_eq!(found, ChainMatch::UpTo(60));
        let found = walk(
            &chain(&[(0, 0), (5, 40)], 70),
            &chain(&[(0, 0), (3, 30), (9, 60)], 100),
        );
        assert_eq!(found, ChainMatch::UpTo(30));
    }

    #[test]
    fn a_source_without_epochs_proves_nothing() {
        assert_eq!(
            walk(&chain(&[(0, 0), (2, 40)], 70), &chain(&[], 100)),
            ChainMatch::Nothing
        );
        assert_eq!(
            walk(&chain(&[], 0), &chain(&[(0, 0)], 100)),
            ChainMatch::Nothing
        );
    }

    #[test]
    fn retention_at_the_source_is_not_divergence() {
        let found = walk(&chain(&[(0, 0), (1, 50)], 100), &chain(&[(7, 300)], 400));
        assert_eq!(found, ChainMatch::UpTo(100));
    }

    #[test]
    fn an_impossible_answer_is_an_error() {
        let mut walk = ChainWalk::new(chain(&[(3, 0)], 10));
        assert!(walk.answered(4, 10).is_err());
    }

    fn any_chain() -> impl Strategy<Value = (Vec<(i32, i64)>, i64)> {
        (
            proptest::collection::vec((1i32..4, 1i64..20), 1..8),
            1i64..20,
        )
            .prop_map(|(steps, tail)| {
                let (mut epoch, mut offset) = (-1, 0);
                let mut entries = Vec::new();
                for (de, len) in steps {
                    epoch += de;
                    entries.push((epoch, offset));
                    offset += len;
                }
                (entries, offset + tail)
            })
    }

    proptest! {
        #[test]
        fn a_prefix_is_never_cut((entries, end) in any_chain(), at in 1i64..200) {
            let theirs = chain(&entries, end);
            let ours = theirs.cut_at(at);
            prop_assert_eq!(walk(&ours, &theirs), ChainMatch::UpTo(ours.end()));
        }

        #[test]
        fn what_agrees_is_found_exactly((entries, end) in any_chain(), at in 1i64..100, (tail, tail_end) in any_chain()) {
            // Both share a chain up to `at`; ours goes on with epochs the source does not have.
            let shared = chain(&entries, end).cut_at(at);
            let top = 100;
            let ours: Vec<(i32, i64)> = shared.entries.iter().copied()
                .chain(tail.iter().map(|&(e, s)| (e + top, s + shared.end()))).collect();
            let ours = chain(&ours, shared.end() + tail_end);
            let theirs = chain(&entries, end);
            let ChainMatch::UpTo(found) = walk(&ours, &theirs) else { panic!("nothing in common") };
            prop_assert_eq!(found, shared.end());
        }

        #[test]
        fn the_walk_ends_for_any_answers((entries, end) in any_chain(), answers in proptest::collection::vec((-1i32..30, -1i64..200), 40)) {
            let mut walk = ChainWalk::new(chain(&entries, end));
            let mut step = walk.begin();
            let mut asked = 0;
            for (epoch, offset) in answers {
                match step {
                    ChainStep::Done(_) => break,
                    ChainStep::Ask(_) => match walk.answered(epoch, offset) {
                        Ok(next) => step = next,
                        Err(_) => break,
                    },
                }
                asked += 1;
            }
            prop_assert!(asked <= entries.len() + 1);
        }
    }
}
