//! End to end: a paced load with stamps on one side, a reader that follows on the other, which may
//! be another cluster.
//!
//! The time of a batch runs from when its request was due to when a reader outside the systems
//! under test saw it.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};

use super::clock::now_ns;
use super::cluster::{Cluster, End, Topic};
use super::consume::{Consume, Consumed};
use super::produce::{Produce, Produced};

/// Longest time until the reader has asked for the first time.
const ASKING_LIMIT: Duration = Duration::from_secs(30);
/// Longest time after the last answer until the reader has seen everything.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(5);
/// The reader's first question reaches the broker in this time.
const ASKED: Duration = Duration::from_millis(200);

/// Both halves of a run.
#[derive(Clone, Debug, Default)]
pub struct EndToEnd {
    /// What the producers saw.
    pub produced: Produced,
    /// What the reader saw; its latency is from due to seen.
    pub consumed: Consumed,
}

/// Runs `produce` (made stamped) against `source` while a reader follows `topic` of `destination`,
/// from its end at the start. `connections` are those of the reader.
///
/// # Errors
/// Either half fails, or records do not arrive.
pub fn run(
    source: &Cluster,
    produce: &Produce,
    destination: &Cluster,
    topic: &Topic,
    connections: usize,
) -> Result<EndToEnd> {
    let produce = Produce {
        stamped: true,
        ..produce.clone()
    };
    let from = destination.offsets(topic, End::Latest)?;
    let consume = Consume {
        connections,
        stamp_at: Some(produce.shape.build(0, true)?.stamp_at),
        limit: produce.limit + ARRIVAL_LIMIT,
        ..Consume::following(topic.clone(), from)
    };
    let gauge = &consume.gauge;
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| consume.run(destination));
        let produced: Result<Produced> = (|| {
            await_that(ASKING_LIMIT, "the reader does not start", || {
                gauge.asking.load(Ordering::Relaxed) > 0 || gauge.stop.load(Ordering::Relaxed)
            })?;
            std::thread::sleep(ASKED);
            gauge.count_from_ns.store(
                now_ns() + produce.settle.as_nanos() as u64,
                Ordering::Relaxed,
            );
            let produced = produce.run(source)?;
            await_that(ARRIVAL_LIMIT, "records do not arrive", || {
                gauge.records.load(Ordering::Relaxed) >= produced.records
                    || gauge.stop.load(Ordering::Relaxed)
            })?;
            Ok(produced)
        })();
        gauge.stop.store(true, Ordering::Relaxed);
        let consumed = reader
            .join()
            .unwrap_or_else(|_| Err(anyhow!("the reader panicked")))?;
        Ok(EndToEnd {
            produced: produced?,
            consumed,
        })
    })
}

fn await_that(limit: Duration, complaint: &str, done: impl Fn() -> bool) -> Result<()> {
    let deadline = Instant::now() + limit;
    while !done() {
        if Instant::now() > deadline {
            bail!("{complaint} within {limit:?}");
        }
        std::thread::sleep(PAUSE);
    }
    Ok(())
}
