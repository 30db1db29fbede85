//! The event loop: one thread in which every decision is made, written and published.
//!
//! Decisions that queued up while the disk was busy share one batch and one sync (group commit).
//! The quorum core decides what is committed; this file carries out what it asks for.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tarn_log::LogError;
use tarn_metadata::{Delta, Image, METADATA_VERSION, Record, Replay};
use tarn_raft::{Action, Core, Election, Event, NodeId, Status};
use tarn_wire::messages::{
    AbortTransactionRecord, FeatureLevelRecord, LeaderChangeMessage, leader_change_message::Voter,
};
use tarn_wire::{Str, Uuid};
use tokio::sync::oneshot;
use tracing::{error, info, warn};

use crate::controller::Shared;
use crate::journal::{Batches, EncodedDecision, Journal};
use crate::plan::METADATA_VERSION_LEVEL;
use crate::quorum_state::QuorumStateFile;
use crate::snapshot::{self, control_value};
use crate::{ControllerError, Ctx, Rules, Settings};

/// Decisions that share one sync at most.
const GROUP_DECISIONS_MAX: usize = 1_024;
/// Bytes that share one sync at most.
const GROUP_BYTES_MAX: usize = 32 << 20;
/// How often a sync is tried again that failed for want of a descriptor …
const SHORT_TRIES_MAX: usize = 300;
/// … and the pause before each.
const SHORT_PAUSE: Duration = Duration::from_millis(100);
/// Records one decision may write.
const DECISION_RECORDS_MAX: usize = 1_000_000;
/// After so long without a commit the synced end of the log is made durable.
const SYNCED_END_AFTER: Duration = Duration::from_millis(500);
/// Snapshots kept: the newest, and the one before it should the newest turn out unreadable.
const SNAPSHOTS_KEPT: usize = 2;

/// One queued decision, whatever its types.
pub(crate) trait Decision: Send {
    /// Its name, for the log.
    fn name(&self) -> &'static str;
    /// Decides; keeps the answer until [`Decision::finish`]. A refusal writes nothing.
    fn decide(&mut self, image: &Image, ctx: &mut Ctx) -> Vec<Record>;
    /// Answers the caller: with what was decided, or with why that did not become true.
    fn finish(self: Box<Self>, committed: Result<(), ControllerError>);
}

/// What the loop is asked to do.
pub(crate) enum Command {
    /// Decide.
    Decide(Box<dyn Decision>),
    /// Say how the quorum is.
    Describe(oneshot::Sender<Status>),
    /// Take a snapshot now.
    Snapshot(oneshot::Sender<Result<(), ControllerError>>),
    /// Stop cleanly.
    ShutDown(oneshot::Sender<Result<(), ControllerError>>),
}

/// The loop's own state.
pub(crate) struct EventLoop {
    settings: Settings,
    rules: Arc<Rules>,
    shared: Arc<Shared>,
    journal: Journal,
    /// The space kept back may be used: at a start, and for decisions that create nothing.
    may_use_ballast: bool,
    quorum_state: QuorumStateFile,
    core: Core,
    /// The image with every decision made so far; equals the published one between groups.
    image: Image,
    bytes_since_snapshot: u64,
    records_since_snapshot: u64,
}

/// Decisions of one group, on their way to disk.
#[derive(Default)]
struct Group {
    batches: Batches,
    accepted: Vec<(Vec<Record>, i64)>,
    delta: Delta,
    waiting: Vec<Box<dyn Decision>>,
}

impl EventLoop {
    /// Opens what is on disk, takes leadership, replays, and writes the first records of a new
    /// cluster.
    pub(crate) fn open(settings: Settings, shared: Arc<Shared>) -> Result<Self, ControllerError> {
        let now = now_ms();
        let journal = Journal::open(&settings, now)?;
        let quorum_state = QuorumStateFile::new(journal.dir());
        if settings.voters != [settings.node_id] {
            let reason = format!(
                "controller.quorum.voters must name node {} alone: quorums of several are not served yet",
                settings.node_id
            );
            return Err(journal.bad(reason));
        }
        let base = snapshot::load_newest(journal.dir())?;
        if let Some((end, _)) = &base
            && journal.end_offset() < end.offset
        {
            warn!(
                log_end = journal.end_offset(),
                snapshot_end = end.offset,
                "the metadata log ends before its snapshot does, starting it there"
            );
            journal.start_at(*end)?;
        }
        let replay_from = base.as_ref().map_or(0, |(end, _)| end.offset);
        if journal.start_offset() > replay_from {
            let reason = format!(
                "the log starts at offset {}, but no usable snapshot reaches it: restore the .checkpoint file",
                journal.start_offset()
            );
            return Err(journal.bad(reason));
        }
        let me = NodeId(settings.node_id);
        let quorum =
            tarn_raft::Settings::new(me, settings.voters.iter().copied().map(NodeId).collect());
        let stored = stored_election(&quorum_state, &journal, base.is_some())?;
        let core = Core::new(
            quorum,
            stored,
            journal.history(),
            base.as_ref().map(|(end, _)| end.offset),
        )?;
        let rules = Arc::new(settings.rules.clone());
        let image = base.map(|(_, image)| image).unwrap_or_default();
        let mut this = Self {
            settings,
            rules,
            shared,
            may_use_ballast: true,
            journal,
            quorum_state,
            core,
            image,
            bytes_since_snapshot: 0,
            records_since_snapshot: 0,
        };
        this.step(Event::Start)?;
        this.catch_up(replay_from)?;
        this.journal.ballast.refill();
        Ok(this)
    }

    /// The image after start.
    pub(crate) fn image(&self) -> &Image {
        &self.image
    }

    /// Serves until told to stop, or until a write fails.
    pub(crate) fn run(mut self, commands: &Receiver<Command>) {
        while let Some(next) = self.next_command(commands) {
            match next.and_then(|command| self.serve(command, commands)) {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => {
                    error!(%error, "the controller halts");
                    self.shared.halt(&error);
                    break;
                }
            }
        }
        // Halted: every caller still gets an answer, for as long as there are callers.
        while let Ok(command) = commands.recv() {
            let halted = || self.shared.halted().unwrap_or(ControllerError::ShutDown);
            match command {
                Command::Decide(decision) => decision.finish(Err(halted())),
                Command::Describe(reply) => drop(reply.send(self.core.status(now_ms()))),
                Command::Snapshot(reply) => drop(reply.send(Err(halted()))),
                Command::ShutDown(reply) => {
                    drop(reply.send(Err(halted())));
                    return;
                }
            }
        }
    }

    /// Waits for a command, and uses the first pause to make the synced end durable. `None` when
    /// nobody can send one any more.
    fn next_command(
        &mut self,
        commands: &Receiver<Command>,
    ) -> Option<Result<Command, ControllerError>> {
        if self.journal.synced_end_is_unkept() || self.journal.ballast.is_short() {
            match commands.recv_timeout(SYNCED_END_AFTER) {
                Ok(command) => return Some(Ok(command)),
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) => {
                    if let Err(error) = self.journal.keep_synced_end() {
                        return Some(Err(error));
                    }
                    self.journal.ballast.refill();
                }
            }
        }
        commands.recv().ok().map(Ok)
    }

    fn serve(
        &mut self,
        command: Command,
        commands: &Receiver<Command>,
    ) -> Result<bool, ControllerError> {
        let mut next = Some(command);
        while let Some(command) = next.take() {
            match command {
                Command::Decide(decision) => next = self.decide_group(decision, commands)?,
                Command::Describe(reply) => drop(reply.send(self.core.status(now_ms()))),
                Command::Snapshot(reply) => drop(reply.send(self.take_snapshot())),
                Command::ShutDown(reply) => {
                    drop(reply.send(self.close()));
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    /// Decides as much as is queued, then commits it all with one sync. Gives back the command that
    /// ended the group, if one did.
    fn decide_group(
        &mut self,
        first: Box<dyn Decision>,
        commands: &Receiver<Command>,
    ) -> Result<Option<Command>, ControllerError> {
        let mut group = Group::default();
        self.decide(first, &mut group);
        let mut next = None;
        while group.waiting.len() < GROUP_DECISIONS_MAX && group.batches.bytes() < GROUP_BYTES_MAX {
            match commands.try_recv() {
                Ok(Command::Decide(decision)) => self.decide(decision, &mut group),
                Ok(other) => {
                    next = Some(other);
                    break;
                }
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        self.commit(group)?;
        if self.bytes_since_snapshot >= self.settings.snapshot_after_bytes
            || self.records_since_snapshot >= self.settings.snapshot_after_records
        {
            // The log holds everything, so a failed snapshot is tried again later; meanwhile
            // nothing of the log is deleted.
            if let Err(error) = self.take_snapshot() {
                error!(%error, "no metadata snapshot could be taken");
            }
            self.bytes_since_snapshot = 0;
            self.records_since_snapshot = 0;
        }
        Ok(next)
    }

    fn decide(&mut self, mut decision: Box<dyn Decision>, group: &mut Group) {
        let now = now_ms();
        let next_offset = self.journal.end_offset() + group.batches.offsets();
        let mut ctx = Ctx::new(now, next_offset, self.rules.clone(), Uuid::random);
        let name = decision.name();
        let records = decision.decide(&self.image, &mut ctx);
        if records.is_empty() {
            group.waiting.push(decision);
            return;
        }
        match self.accept(name, records, group) {
            Ok(()) => group.waiting.push(decision),
            Err(error) => {
                warn!(decision = name, %error, "decision refused");
                decision.finish(Err(error));
            }
        }
    }

    fn accept(
        &mut self,
        name: &'static str,
        records: Vec<Record>,
        group: &mut Group,
    ) -> Result<(), ControllerError> {
        if records.len() > DECISION_RECORDS_MAX {
            return Err(ControllerError::TooManyRecords {
                name,
                records: records.len(),
                max: DECISION_RECORDS_MAX,
            });
        }
        let encoded = EncodedDecision::new(name, &records)?;
        let last_offset =
            self.journal.end_offset() + group.batches.offsets() + encoded.offsets() - 1;
        let epoch = self.core.epoch();
        if let Err(error) =
            self.image
                .apply_in_place(&records, last_offset, epoch, &mut group.delta)
        {
            // Part of the records may be in: start over from what is published and what this group
            // accepted before.
            self.image = (*self.shared.image()).clone();
            group.delta = Delta::default();
            for (records, offset) in &group.accepted {
                self.image
                    .apply_in_place(records, *offset, epoch, &mut group.delta)?;
            }
            return Err(error.into());
        }
        group.batches.add(encoded);
        group.accepted.push((records, last_offset));
        Ok(())
    }

    fn commit(&mut self, group: Group) -> Result<(), ControllerError> {
        let end_before = self.journal.end_offset();
        let mut records = group.accepted.iter().flat_map(|(records, _)| records);
        self.may_use_ballast = !records.any(creates);
        let committed = self.write_all(&group.batches);
        if committed.is_ok() && group.batches.offsets() > 0 {
            self.bytes_since_snapshot += group.batches.bytes() as u64;
            self.records_since_snapshot += group.batches.offsets() as u64;
            self.shared.publish(self.image.clone(), &group.delta);
        }
        let short = matches!(&committed, Err(ControllerError::Log(error)) if error.is_shortage());
        if let Err(error) = &committed
            && short
            && self.journal.end_offset() == end_before
        {
            // Nothing was kept: once there is room again (or a descriptor), decisions go on from
            // what is published.
            error!(%error, "metadata could not be written");
            self.image = (*self.shared.image()).clone();
            group
                .waiting
                .into_iter()
                .for_each(|decision| decision.finish(Err(error.clone())));
            return Ok(());
        }
        for decision in group.waiting {
            decision.finish(
                committed
                    .clone()
                    .map_err(|error| ControllerError::Halted(error.to_string().into())),
            );
        }
        committed
    }

    fn write_all(&mut self, batches: &Batches) -> Result<(), ControllerError> {
        batches
            .build(now_ms())?
            .into_iter()
            .try_for_each(|batch| self.write(batch))
    }

    /// Appends one batch, syncs it, and lets the core commit it.
    fn write(&mut self, batch: Vec<u8>) -> Result<(), ControllerError> {
        let epoch = self.core.epoch();
        let end_offset = self.with_room(self.may_use_ballast, |this| {
            this.journal.append(batch.clone(), epoch, now_ms())
        })?;
        self.step(Event::Appended { end_offset })?;
        let end_offset = self.sync()?;
        self.step(Event::Durable { end_offset })?;
        match self.core.high_watermark() {
            Some(committed) if committed >= end_offset => Ok(()),
            _ => Err(ControllerError::NotLeader {
                epoch: self.core.epoch(),
                leader: -1,
            }),
        }
    }

    /// Syncs what was appended. It cannot be taken back any more, so a shortage of descriptors is
    /// waited for.
    fn sync(&mut self) -> Result<i64, ControllerError> {
        for _ in 0..SHORT_TRIES_MAX {
            match self.with_room(true, |this| this.journal.sync()) {
                Err(ControllerError::Log(error @ LogError::Shortage { .. })) => {
                    warn!(%error, "the metadata log waits for its sync");
                    std::thread::sleep(SHORT_PAUSE);
                }
                done => return done,
            }
        }
        self.journal.sync()
    }

    /// Does what needs room on the disk, if need be with the space kept back.
    fn with_room<T>(
        &mut self,
        allowed: bool,
        mut work: impl FnMut(&mut Self) -> Result<T, ControllerError>,
    ) -> Result<T, ControllerError> {
        loop {
            match work(self) {
                Err(error) if allowed && error.is_no_space() && self.journal.ballast.release() => {}
                done => return done,
            }
        }
    }

    fn step(&mut self, event: Event) -> Result<(), ControllerError> {
        for action in self.core.step(event, now_ms()) {
            match action {
                Action::Persist(election) => {
                    self.with_room(true, |this| {
                        this.quorum_state.write(&election, &this.settings.voters)
                    })?;
                }
                Action::AppendLeaderChange {
                    epoch,
                    voters,
                    granting,
                } => self.open_epoch(epoch, &voters, &granting)?,
                Action::HighWatermark(offset) => self.journal.commit(offset),
                Action::LeaderChanged { epoch, leader } => info!(
                    epoch,
                    leader = leader.map_or(-1, |id| id.0),
                    "metadata quorum leader"
                ),
                Action::Halt(reason) => return Err(self.journal.bad(reason)),
                // A quorum of one has nobody to talk to and nobody to fetch from.
                Action::Send(..)
                | Action::AppendFetched(_)
                | Action::TruncateTo(_)
                | Action::FetchSnapshot(..) => {}
            }
        }
        Ok(())
    }

    fn open_epoch(
        &mut self,
        epoch: i32,
        voters: &[NodeId],
        granting: &[NodeId],
    ) -> Result<(), ControllerError> {
        let voter = |id: &NodeId| Voter {
            voter_id: id.0,
            ..Voter::default()
        };
        let message = LeaderChangeMessage {
            version: 0,
            leader_id: self.settings.node_id,
            voters: voters.iter().map(voter).collect(),
            granting_voters: granting.iter().map(voter).collect(),
            ..LeaderChangeMessage::default()
        };
        let batch = tarn_records::leader_change(&control_value(&message)?, 0, epoch, now_ms())?;
        self.write(batch)
    }

    /// Replays what is committed, ends what a crash left open, and writes a new cluster's first
    /// records.
    fn catch_up(&mut self, from: i64) -> Result<(), ControllerError> {
        let end = self.journal.end_offset();
        let mut replay = Replay::new(std::mem::take(&mut self.image));
        self.journal.replay(from, end, &mut replay)?;
        let in_transaction = replay.in_transaction();
        let (image, _) = replay.finish();
        self.image = image;
        self.records_since_snapshot = (end - from).max(0) as u64;
        self.shared.publish(self.image.clone(), &Delta::default());
        if in_transaction {
            warn!("the metadata log ends inside a transaction, aborting it");
            let reason = Some(Str::from_static("the controller stopped before its end"));
            let abort = AbortTransactionRecord {
                reason,
                ..AbortTransactionRecord::default()
            };
            let mut batches = Batches::default();
            batches.add(EncodedDecision::new("abort transaction", &[abort.into()])?);
            self.write_all(&batches)?;
        }
        if self.image.feature(METADATA_VERSION) == 0 {
            self.bootstrap()?;
        }
        Ok(())
    }

    fn bootstrap(&mut self) -> Result<(), ControllerError> {
        let level = |name: Str, feature_level: i16| {
            Record::from(FeatureLevelRecord {
                name,
                feature_level,
                ..FeatureLevelRecord::default()
            })
        };
        let mut records = vec![level(
            Str::from_static(METADATA_VERSION),
            METADATA_VERSION_LEVEL,
        )];
        records.extend(
            self.settings
                .bootstrap_features
                .iter()
                .map(|(name, feature_level)| level(name.clone(), *feature_level)),
        );
        let mut group = Group::default();
        self.accept("bootstrap", records, &mut group)?;
        self.commit(group)
    }

    /// Writes a snapshot of what is committed, and deletes what two snapshots make superfluous.
    fn take_snapshot(&mut self) -> Result<(), ControllerError> {
        if self.records_since_snapshot == 0 {
            return Ok(());
        }
        let end = snapshot::write(self.journal.dir(), &self.image, now_ms())?;
        info!(
            offset = end.offset,
            epoch = end.epoch,
            "metadata snapshot taken"
        );
        self.bytes_since_snapshot = 0;
        self.records_since_snapshot = 0;
        let covered = match snapshot::delete_old(self.journal.dir(), SNAPSHOTS_KEPT)? {
            Some(oldest) if snapshot::list(self.journal.dir())?.len() == SNAPSHOTS_KEPT => oldest,
            _ => return Ok(()),
        };
        self.journal.delete_below(covered.offset)
    }

    fn close(&mut self) -> Result<(), ControllerError> {
        let snapshot = self.take_snapshot();
        self.step(Event::Resign)?;
        self.journal.close()?;
        snapshot
    }
}

/// Whether a record makes something new, which a full disk may refuse.
fn creates(record: &Record) -> bool {
    matches!(
        record,
        Record::Topic(_) | Record::Partition(_) | Record::ProducerIds(_)
    )
}

/// The stored election. It stands on disk before the first record of the log does, so a log without
/// it has lost it: it may hold a vote.
fn stored_election(
    file: &QuorumStateFile,
    journal: &Journal,
    has_snapshot: bool,
) -> Result<Election, ControllerError> {
    let begun = has_snapshot || journal.end_offset() > 0;
    let remedy = || QuorumStateFile::remedy(journal.history().end().epoch);
    match file.read() {
        Ok(Some(stored)) => Ok(stored),
        Ok(None) if begun => {
            let reason = format!(
                "the election state is missing although the log has begun: {}",
                remedy()
            );
            let path = file.path().to_owned();
            Err(ControllerError::BadFile { path, reason })
        }
        Ok(None) => Ok(Election::default()),
        Err(ControllerError::BadFile { path, reason }) => {
            let reason = format!("{reason}: {}", remedy());
            Err(ControllerError::BadFile { path, reason })
        }
        Err(error) => Err(error),
    }
}

fn now_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}
