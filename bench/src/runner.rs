//! Runs scenarios: which rounds are left, in which order, whether the machine is quiet enough, what
//! becomes of a disturbed or failed round.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, anyhow, bail};

use crate::busy::{Others, PERCENT_MAX, Snapshot};
use crate::machine::{self, Machine};
use crate::pages;
use crate::scenario::{Ctx, ROUNDS, Rounds, Sample, Scenario, Side};
use crate::store::{Record, Round, Store};

/// How long the machine is watched before each round.
const WATCH: Duration = Duration::from_millis(1_500);
/// How often a busy machine is watched again before the run is refused. What a round leaves behind
/// (a JVM that ends) settles meanwhile.
const WATCHES_MAX: u32 = 5;
/// Most rounds that one scenario can be asked for.
pub const ROUNDS_MAX: u32 = 50;

/// What the caller asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whom to measure against, where the scenario has that rival.
    pub against: Vec<Side>,
    /// Rounds of each side; `None`: what the scenario says.
    pub rounds: Option<u32>,
    /// Run on a busy machine too.
    pub force: bool,
    /// Forget rounds that are there already.
    pub again: bool,
}

/// Runs one scenario to the number of rounds wanted and gives its record. Every round is stored at
/// once.
///
/// # Errors
/// What is missing or went wrong, in a sentence. Rounds that ran before stay stored, and when one
/// side fails the other's rounds run all the same.
pub fn run(
    scenario: &dyn Scenario,
    ctx: &Ctx,
    options: &Options,
    store: &Store,
    repository: &Path,
) -> Result<Record> {
    let known = if options.again {
        None
    } else {
        store.load(scenario.name())?
    };
    let fresh = Record::new(scenario);
    let mut record = Record {
        rows: fresh.rows.clone(),
        about: fresh.about.clone(),
        ..known.unwrap_or(fresh)
    };
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let plan = plan(rounds, &sides(scenario, options), &record);
    if plan.is_empty() {
        ctx.progress(format!(
            "{rounds} rounds are there already; --again measures anew"
        ));
        return Ok(record);
    }
    if !record.rounds.is_empty() {
        ctx.progress(format!(
            "{} rounds are there already, going on with the others",
            record.counted().count()
        ));
    }
    check(scenario, ctx)?;
    quiet_machine(ctx, options)?;
    ctx.set_rival_settings(scenario.rival_settings());
    let mut setup = guarded(|| scenario.setup(ctx))?;
    record.remarks = ctx.take_remarks();
    record.machine = Machine::look();
    let run = Run {
        ctx,
        options,
        store,
        commit: machine::commit(repository),
    };
    let mut failed: Vec<(Side, String)> = Vec::new();
    for (number, side) in plan {
        if failed.iter().any(|(out, _)| *out == side) {
            continue;
        }
        ctx.progress(format!("round {number} of {rounds}: {}", side.title()));
        if let Some(said) = run.round(setup.as_mut(), &mut record, (number, side))? {
            ctx.progress(format!("{said}; the other side goes on"));
            record.remarks.extend(ctx.take_remarks());
            record.remarks.push(for_the_page(&said));
            store.save(&record)?;
            failed.push((side, said));
        }
    }
    // A side that failed once is left out, or each of its rounds would wait for its limits; the
    // next run tries it again.
    match failed.into_iter().next() {
        None => Ok(record),
        Some((_, said)) => Err(anyhow!(said)),
    }
}

/// What the rounds of a scenario have in common.
struct Run<'a> {
    ctx: &'a Ctx,
    options: &'a Options,
    store: &'a Store,
    commit: String,
}

impl Run<'_> {
    /// Runs a round, once more when it was disturbed, and stores it; gives what the side said when
    /// it failed. An error ends the scenario: the machine is busy, or the disk takes no record.
    fn round(
        &self,
        setup: &mut dyn Rounds,
        record: &mut Record,
        (number, side): (u32, Side),
    ) -> Result<Option<String>> {
        let mut is_second = false;
        loop {
            let before = quiet_machine(self.ctx, self.options)?;
            let taken = one_round(setup, self.ctx, (number, side), before, &self.commit);
            let mut round = match taken {
                Ok(round) => round,
                Err(error) => {
                    let side = side.title();
                    return Ok(Some(format!("round {number} of {side} failed: {error:#}")));
                }
            };
            round.forced = self.options.force && round.disturbed();
            let again = round.others_during.disturb() && !self.options.force && !is_second;
            if is_second && let Some(first) = record.rounds.last_mut() {
                first.replaced = true;
            }
            record.rounds.push(round);
            self.store.save(record)?;
            if !again {
                return Ok(None);
            }
            self.ctx
                .progress("disturbed by others; the round runs once more");
            is_second = true;
        }
    }
}

/// What is kept of what was said: its first line, as the rest is the log of a process, and of paths
/// of this machine only their last part.
fn for_the_page(said: &str) -> String {
    let words = said.lines().next().unwrap_or_default().split(' ');
    let shortened = words.map(|word| {
        let path = word.find('/').filter(|&at| word[at + 1..].contains('/'));
        let name = word.rsplit('/').next();
        path.zip(name).map_or_else(
            || word.to_owned(),
            |(at, name)| format!("{}…/{name}", &word[..at]),
        )
    });
    shortened.collect::<Vec<_>>().join(" ")
}

/// The sides that a scenario runs with.
fn sides(scenario: &dyn Scenario, options: &Options) -> Vec<Side> {
    let rival = scenario
        .rival()
        .filter(|rival| options.against.contains(rival));
    [Some(Side::Tarn), rival].into_iter().flatten().collect()
}

/// The rounds that are left, alternating A B B A so that what drifts over time hits both sides
/// alike.
fn plan(rounds: u32, sides: &[Side], record: &Record) -> Vec<(u32, Side)> {
    let mut plan = Vec::new();
    for number in 1..=rounds.min(ROUNDS_MAX) {
        let mut order = sides.to_vec();
        if number % 2 == 0 {
            order.reverse();
        }
        plan.extend(
            order
                .into_iter()
                .map(|side| (number, side))
                .filter(|(n, side)| !record.has(*n, *side)),
        );
    }
    plan
}

/// Checks what `scenario` needs of this machine.
pub(crate) fn check(scenario: &dyn Scenario, ctx: &Ctx) -> Result<()> {
    if scenario.runs_systems() {
        machine::check_product()?;
        machine::check_java()?;
    }
    machine::check_disk(scenario.disk_bytes(ctx))
}

/// Watches the machine until it is quiet.
pub(crate) fn quiet_machine(ctx: &Ctx, options: &Options) -> Result<Others> {
    let mut watched = 0;
    loop {
        let before = Snapshot::take();
        thread::sleep(WATCH.mul_f64(ctx.scale()));
        let others = before.others_since(std::process::id());
        watched += 1;
        if !others.disturb() {
            return Ok(others);
        }
        if options.force {
            ctx.progress(format!(
                "the machine is busy: others use {}; running anyway, marked",
                others.describe()
            ));
            return Ok(others);
        }
        if watched >= WATCHES_MAX {
            bail!(
                "the machine is busy: others use {}, at most {PERCENT_MAX} % are allowed. End them and run this again, it goes on with the \
                 rounds that are left; --force runs anyway and marks the figures",
                others.describe()
            );
        }
        ctx.progress(format!(
            "waiting for the machine: others use {}",
            others.describe()
        ));
    }
}

/// Runs one round and describes its circumstances.
pub(crate) fn one_round(
    rounds: &mut dyn Rounds,
    ctx: &Ctx,
    (number, side): (u32, Side),
    others_before: Others,
    commit: &str,
) -> Result<Round> {
    if ctx.scale() == 1.0 {
        pages::warm(ctx)?;
    }
    let (before, started_unix_s) = (Snapshot::take(), unix_s());
    let load_average = load_average();
    let samples = guarded(|| rounds.round(ctx, side))?;
    let others_during = before.others_since(std::process::id());
    if let Some(bad) = samples.iter().find(|s| !s.value.is_finite()) {
        bail!(
            "the round of {} gave no number for {} {} {}",
            side.title(),
            bad.row,
            bad.cell,
            bad.measure
        );
    }
    Ok(Round {
        round: number,
        side,
        started_unix_s,
        ended_unix_s: unix_s(),
        commit: commit.to_owned(),
        scale: ctx.scale(),
        forced: false,
        load_average,
        others_before,
        others_during,
        replaced: false,
        remarks: ctx.take_remarks(),
        samples: samples.into_iter().map(Sample::into).collect(),
    })
}

/// Runs `step` and turns a panic of the test harness (its way to say that a system did not come up)
/// into an error.
pub(crate) fn guarded<T>(step: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(step)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied());
        Err(anyhow!(
            "{}",
            text.unwrap_or("it ended for a reason it could not say")
        ))
    })
}

fn unix_s() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| d.as_secs())
}

fn load_average() -> f64 {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ')
        .next()
        .and_then(|first| first.parse().ok())
        .unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::tests::round;

    const BOTH: [Side; 2] = [Side::Tarn, Side::Kafka];

    #[test]
    fn sides_alternate() {
        use Side::{Kafka, Tarn};
        let order = [
            (1, Tarn),
            (1, Kafka),
            (2, Kafka),
            (2, Tarn),
            (3, Tarn),
            (3, Kafka),
        ];
        assert_eq!(plan(3, &BOTH, &Record::default()), order);
    }

    #[test]
    fn a_run_that_was_cut_short_goes_on_with_what_is_left() {
        let record = Record {
            rounds: vec![
                round(1, Side::Tarn, "P1", "s", 1.0),
                round(1, Side::Kafka, "P1", "s", 1.0),
                round(2, Side::Kafka, "P1", "s", 1.0),
            ],
            ..Record::default()
        };
        assert_eq!(plan(2, &BOTH, &record), [(2, Side::Tarn)]);
        assert!(plan(1, &BOTH, &record).is_empty());
    }

    #[test]
    fn a_panic_becomes_a_sentence() {
        let said = guarded::<()>(|| panic!("kafka does not come up")).unwrap_err();
        assert_eq!(said.to_string(), "kafka does not come up");
    }

    /// A scenario whose rival may fail.
    struct Double {
        rival_fails: bool,
    }

    impl Scenario for Double {
        fn name(&self) -> &'static str {
            "double"
        }
        fn rows(&self) -> &'static [&'static str] {
            &["P1"]
        }
        fn rival(&self) -> Option<Side> {
            Some(Side::Kafka)
        }
        fn runs_systems(&self) -> bool {
            false
        }
        fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
            Ok(Box::new(Self { ..*self }))
        }
    }

    impl Rounds for Double {
        fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
            if side == Side::Kafka && self.rival_fails {
                bail!("it is still behind, see /tmp/it/its.log:\nits log");
            }
            ctx.remark("said");
            let value = if side == Side::Tarn { 1.0 } else { 5.0 };
            Ok(vec![Sample::new(
                "P1",
                "",
                crate::rows::measure::PROCESSOR_S_PER_GB,
                value,
            )])
        }
    }

    #[test]
    fn a_side_that_fails_leaves_the_rounds_of_the_other_alone() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let options = Options {
            against: vec![Side::Kafka],
            rounds: Some(3),
            force: true,
            again: false,
        };
        let said = run(
            &Double { rival_fails: true },
            &Ctx::new(0.01, |_| {}),
            &options,
            &store,
            folder.path(),
        );
        let said = said.unwrap_err().to_string();
        assert!(
            said.starts_with("round 1 of Kafka failed: it is still behind"),
            "{said}"
        );
        let record = store.load("double").unwrap().unwrap();
        assert_eq!(
            record
                .values(
                    Side::Tarn,
                    "P1",
                    "",
                    crate::rows::measure::PROCESSOR_S_PER_GB
                )
                .len(),
            3
        );
        assert_eq!(
            record.remarks,
            ["round 1 of Kafka failed: it is still behind, see …/its.log:"]
        );
    }

    #[test]
    fn rounds_are_stored_and_not_run_twice() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::at(folder.path());
        let ctx = Ctx::new(0.01, |_| {});
        let options = Options {
            against: vec![Side::Kafka],
            rounds: Some(1),
            force: true,
            again: false,
        };
        let steady = Double { rival_fails: false };
        let first = run(&steady, &ctx, &options, &store, folder.path()).unwrap();
        assert_eq!((first.rounds.len(), first.rounds[0].remarks.len()), (2, 1));
        let second = run(&steady, &ctx, &options, &store, folder.path()).unwrap();
        let times = |r: &Record| r.rounds.iter().map(|r| r.ended_unix_s).collect::<Vec<_>>();
        assert_eq!(times(&second), times(&first));
        assert_eq!(store.load("double").unwrap().unwrap().rounds.len(), 2);
    }
}
