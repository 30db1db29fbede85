//! One task that fetches some partitions from one broker over one connection.
//!
//! Every round: build a Fetch for the partitions, send it, hand the records on while they arrive,
//! then send the next one before the progress of the last is recorded. Over a WAN link the next one
//! goes out while the response still arrives ([`crate::pipelining`]). A round never holds more than
//! one piece of records, and its work grows with the partitions that changed: all are scanned every
//! few seconds only ([`SCAN_EVERY`]).

mod bounds;
mod request;
mod response;

use std::sync::Arc;
use std::time::Duration;

use tarn_client::{ClientError, Connection};
use tarn_wire::VersionRange;
use tarn_wire::fetch_stream::{FetchEvent, FetchLimits};
use tarn_wire::messages::FetchRequest;
use tokio::time::Instant;

use crate::assignment::{Assignment, SharedAssignment};
use crate::held_back::HeldBack;
use crate::pipelining::Pipelining;
use crate::sizing::Sizing;
use crate::{FetchPolicy, FetchSession, FetcherKey, Wants};
use bounds::BoundsWanted;
use response::ResponseState;

/// Versions of Fetch that the engine speaks.
const FETCH_VERSIONS: VersionRange = VersionRange::new(4, 18);
/// Last version that names topics by name.
const FETCH_BY_NAME_MAX: i16 = 12;
/// First version with fetch sessions.
const FETCH_SESSIONS_FROM: i16 = 7;
/// First version in which the leader compares the leader epoch that we know with its own.
const FETCH_FENCED_FROM: i16 = 9;
/// A waiting Fetch is given up for new partitions at most once in this time, by connecting again.
const INTERRUPT_EVERY: Duration = Duration::from_millis(250);
/// Longest time a fetcher sleeps when no partition may be asked for.
const IDLE_WAIT_MAX: Duration = Duration::from_secs(30);
/// All partitions are scanned after this time for each [`SCAN_PARTITIONS`] of them, within these
/// bounds; between two scans only those that a response spoke of.
const SCAN_EVERY: Duration = Duration::from_secs(1);
const SCAN_EVERY_MAX: Duration = Duration::from_secs(5);
const SCAN_PARTITIONS: usize = 500;

/// How a fetcher ended.
#[derive(Debug)]
pub struct FetcherEnd<E> {
    /// `None` = it had no partitions any more.
    pub error: Option<E>,
    /// At least one response was good.
    pub answered: bool,
}

type Result<T, P> = std::result::Result<T, <P as FetchPolicy>::Error>;

/// How often all of so many partitions are scanned.
fn scan_every(partitions: usize) -> Duration {
    let parts = u32::try_from(partitions / SCAN_PARTITIONS).unwrap_or(u32::MAX);
    SCAN_EVERY
        .saturating_mul(parts)
        .clamp(SCAN_EVERY, SCAN_EVERY_MAX)
}

/// What the broker was told, and what it shall be told.
#[derive(Default)]
struct Told {
    session: FetchSession,
    wants: Wants,
    /// Partitions whose ask may be another one now.
    touched: Vec<usize>,
    /// Topics are named by their ids.
    by_id: bool,
    /// Sessions refused in a row.
    losses: u32,
}

/// Which partitions have records for us, as far as we know.
#[derive(Default)]
struct Lagging {
    by_index: Vec<bool>,
    count: usize,
}

impl Lagging {
    /// Of so many partitions all, until they are known.
    fn all(count: usize) -> Lagging {
        Lagging {
            by_index: vec![true; count],
            count,
        }
    }

    fn set(&mut self, index: usize, lags: bool) {
        self.count = self.count + usize::from(lags) - usize::from(self.by_index[index]);
        self.by_index[index] = lags;
    }

    fn is_only(&self, index: usize) -> bool {
        self.count == 1 && self.by_index[index]
    }
}

/// When all partitions are scanned.
struct Scan {
    at: Instant,
    /// The nudges seen at the last one.
    nudges_seen: u64,
    /// A response was complete since the last one.
    has_complete_response: bool,
}

/// The last Fetch.
struct Sent {
    at: Instant,
    /// Most bytes of its response.
    bytes_max: i32,
    /// Its version carries the leader epoch that fences it.
    fences: bool,
    /// It went out while an earlier response arrived, whose end was not read yet.
    is_pipelined: bool,
    /// The partition that it asks for from an estimated offset.
    estimated: Option<usize>,
}

/// A fetcher.
pub(crate) struct Fetcher<P: FetchPolicy> {
    policy: Arc<P>,
    key: FetcherKey,
    shared: Arc<SharedAssignment<P::Partition>>,
    assignment: Arc<Assignment<P::Partition>>,
    told: Told,
    lagging: Lagging,
    scan: Scan,
    sizing: Sizing,
    pipelining: Pipelining,
    sent: Sent,
    response: ResponseState,
    bounds: BoundsWanted,
    held_back: HeldBack,
    /// Good responses that are not recorded yet.
    progress: Vec<(Arc<P::Partition>, P::Progress)>,
    /// At least one response was good.
    answered: bool,
}

impl<P: FetchPolicy> Fetcher<P> {
    pub(crate) fn new(
        policy: Arc<P>,
        shared: Arc<SharedAssignment<P::Partition>>,
        key: FetcherKey,
    ) -> Fetcher<P> {
        let now = Instant::now();
        let mut fetcher = Fetcher {
            sizing: Sizing::new(policy.options().response_bytes_max),
            policy,
            key,
            shared,
            assignment: Arc::default(),
            told: Told::default(),
            lagging: Lagging::default(),
            scan: Scan {
                at: now,
                nudges_seen: 0,
                has_complete_response: false,
            },
            pipelining: Pipelining::default(),
            sent: Sent {
                at: now,
                bytes_max: 0,
                fences: false,
                is_pipelined: false,
                estimated: None,
            },
            response: ResponseState::new(now),
            bounds: BoundsWanted::default(),
            held_back: HeldBack::default(),
            progress: Vec::new(),
            answered: false,
        };
        fetcher.take_assignment();
        fetcher
    }

    /// Fetches until there is nothing to fetch or the connection breaks.
    pub(crate) async fn run(mut self) -> FetcherEnd<P::Error> {
        let error = self.serve().await.err();
        if let Some(error) = &error {
            self.policy.failed(error);
        }
        FetcherEnd {
            error,
            answered: self.answered,
        }
    }

    async fn serve(&mut self) -> Result<(), P> {
        let mut connection = self.policy.connect(self.key).await?;
        let mut connected_at = Instant::now();
        let negotiated = negotiate(&connection)?;
        loop {
            let assignment = Arc::clone(&self.assignment);
            if !self.take_assignment() {
                return Ok(());
            }
            if self.sent.is_pipelined && !Arc::ptr_eq(&assignment, &self.assignment) {
                // The response that is due speaks of the old assignment.
                connection = self.connect_again().await?;
                connected_at = Instant::now();
            }
            let is_pipelined = std::mem::take(&mut self.sent.is_pipelined);
            if is_pipelined {
                self.scan(None).await?;
            } else if !self.ask(&mut connection, negotiated).await? {
                self.record_progress();
                self.idle_wait().await;
                continue;
            }
            // While the broker works on the next response.
            self.record_progress();
            let Some(first) = self
                .first_event(&mut connection, connected_at + INTERRUPT_EVERY)
                .await?
            else {
                connection = self.connect_again().await?;
                connected_at = Instant::now();
                continue;
            };
            self.read(&mut connection, first, is_pipelined, negotiated)
                .await?;
            self.pause().await;
        }
    }

    /// Sends the next Fetch on a connection without open requests; false when there is nothing to
    /// ask for.
    async fn ask(&mut self, connection: &mut Connection, negotiated: i16) -> Result<bool, P> {
        self.scan(Some(connection)).await?;
        self.ask_bounds(connection).await?;
        let (by_id, version) = self.version(negotiated);
        if by_id != self.told.by_id {
            self.told.session.reset();
            self.told.by_id = by_id;
        }
        self.renew_wants(version);
        if self.told.wants.is_empty() {
            return Ok(false);
        }
        self.sent.estimated = None;
        self.send(connection, version).await?;
        Ok(true)
    }

    /// After a response that brought nothing, or little to a fetcher of many partitions.
    async fn pause(&mut self) {
        if let Some(pause) = self.held_back.take_pause() {
            self.record_progress();
            if let Some(reason) = self.held_back.reason() {
                self.policy.held_back(&self.assignment.partitions, reason);
            }
            tokio::time::sleep(pause).await;
        }
        if self.lagging.count == 0
            && let Some(rest) = self.sizing.rest(self.assignment.partitions.len())
        {
            self.record_progress();
            tokio::time::sleep(rest).await;
        }
    }

    /// The begin of the response that is due; `None` when partitions came that must not wait for
    /// the end of a long poll.
    async fn first_event(
        &self,
        connection: &mut Connection,
        not_before: Instant,
    ) -> Result<Option<FetchEvent>, P> {
        tokio::select! {
            biased;
            event = connection.next_fetch_event(self.limits()) => Ok(Some(event?)),
            () = self.new_partitions(not_before) => Ok(None),
        }
    }

    async fn new_partitions(&self, not_before: Instant) {
        loop {
            self.shared.changed().await;
            if self.shared.assignment().adds_to(&self.assignment) {
                tokio::time::sleep_until(not_before).await;
                return;
            }
        }
    }

    fn limits(&self) -> FetchLimits {
        let count = self.assignment.partitions.len();
        FetchLimits {
            topics_max: count,
            partitions_max: count,
            ..FetchLimits::default()
        }
    }

    async fn connect_again(&mut self) -> Result<Connection, P> {
        self.told.session.reset();
        self.sent.is_pipelined = false;
        self.sent.estimated = None;
        // What was asked for and will not be answered.
        self.scan.at = Instant::now();
        self.policy.connect(self.key).await
    }

    /// Takes the newest assignment; false when there is nothing to fetch any more.
    fn take_assignment(&mut self) -> bool {
        let assignment = self.shared.assignment();
        if !Arc::ptr_eq(&assignment, &self.assignment) {
            self.record_progress();
            let count = assignment.partitions.len();
            self.assignment = assignment;
            self.bounds.out_of_range.clear();
            self.told.session.reset();
            self.told.wants = Wants::new(count);
            self.told.touched.clear();
            self.lagging = Lagging::all(count);
            self.response.forget(count);
            self.scan.has_complete_response = false;
            self.scan.at = Instant::now();
        }
        !self.assignment.partitions.is_empty()
    }

    /// Whether topics are named by their ids, and the version for that.
    fn version(&self, negotiated: i16) -> (bool, i16) {
        let by_id = negotiated > FETCH_BY_NAME_MAX && self.assignment.all_have_ids;
        let version = if by_id {
            negotiated
        } else {
            negotiated.min(FETCH_BY_NAME_MAX)
        };
        (by_id, version)
    }

    /// Scans all partitions when that is due: what waits for its start, what may be asked for
    /// again, what changed without a response. Without a connection nothing can be asked.
    async fn scan(&mut self, connection: Option<&mut Connection>) -> Result<(), P> {
        let (now, nudges) = (Instant::now(), self.shared.nudges());
        let asks = self.bounds.has_starts && connection.is_some();
        if now < self.scan.at && nudges == self.scan.nudges_seen && !asks {
            return Ok(());
        }
        self.scan.at = now + scan_every(self.assignment.partitions.len());
        self.scan.nudges_seen = nudges;
        self.find_starts(connection).await?;
        self.sizing
            .configure(self.policy.options().response_bytes_max);
        if std::mem::take(&mut self.scan.has_complete_response) {
            // What complete responses left out had nothing new.
            let session = &self.told.session;
            let is_asked = |index| session.asked(index).is_some_and(|a| a.fetch_offset >= 0);
            let all = self.assignment.partitions.iter().enumerate();
            let asked = all.filter(|(index, _)| is_asked(*index));
            self.policy
                .nothing_new(asked.map(|(_, partition)| partition));
        }
        self.told.touched.clear();
        self.told
            .touched
            .extend(0..self.assignment.partitions.len());
        Ok(())
    }

    /// What is left to do after responses that nothing waits for.
    fn record_progress(&mut self) {
        if !self.progress.is_empty() {
            self.policy
                .record_progress(std::mem::take(&mut self.progress));
        }
    }

    /// Sleeps until a partition may be asked for again or the assignment changes.
    async fn idle_wait(&mut self) {
        let latest = Instant::now() + IDLE_WAIT_MAX;
        let next = self.policy.next_try(&self.assignment.partitions);
        let until = next.unwrap_or(latest).min(latest);
        let _ = tokio::time::timeout_at(until, self.shared.changed()).await;
        self.scan.at = Instant::now();
    }
}

fn negotiate(connection: &Connection) -> std::result::Result<i16, ClientError> {
    connection
        .versions()
        .require::<FetchRequest>(connection.peer(), FETCH_VERSIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_more_partitions_the_seldomer_all_are_scanned() {
        assert_eq!(scan_every(1), SCAN_EVERY);
        assert_eq!(scan_every(1_500), SCAN_EVERY * 3);
        assert_eq!(scan_every(1_000_000), SCAN_EVERY_MAX);
    }

    #[test]
    fn partitions_that_lag_are_counted_and_lag_until_they_are_known() {
        let mut lagging = Lagging::all(2);
        assert!(!lagging.is_only(0));
        lagging.set(1, false);
        lagging.set(1, false);
        assert!(lagging.is_only(0) && !lagging.is_only(1));
        lagging.set(0, false);
        assert_eq!(lagging.count, 0);
    }
}
