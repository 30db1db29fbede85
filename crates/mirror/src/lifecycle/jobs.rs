//! The jobs of the keeper: what takes longer than a look.

use std::sync::Arc;

use tarn_wire::{Str, Uuid};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::info;

use super::cell::JobKind;
use super::{LifeCycle, PREPARATIONS_MAX};
use crate::config::MirrorConfig;
use crate::seam::{MirrorPartition, PersistIntent, PrepareOutcome, PrepareReason, PrepareRequest};
use crate::stop::{self, StopRequest};
use crate::transition::{Event, PartitionRecord};

type Place = (Uuid, i32);

/// Frees a partition whose job panics, with a word: without it the job would count as running for
/// ever.
struct PanicWord<'a> {
    life: &'a LifeCycle,
    place: Place,
    generation: u64,
}

impl Drop for PanicWord<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let text = "its work panicked, which is a defect of this broker (its log says where); it is tried again";
            self.life.finish(self.place, self.generation, |cell, at| {
                cell.again(text.to_owned(), at);
            });
            self.life.wake.notify_one();
        }
    }
}

impl LifeCycle {
    /// Runs a job to its end or its cancellation. A cancelled job leaves no result.
    pub(super) async fn run_job(
        self: Arc<Self>,
        place: Place,
        generation: u64,
        kind: JobKind,
        cancel: CancellationToken,
    ) {
        let Some(partition) = self.cells.lock().get(&place).map(|c| c.partition.clone()) else {
            return;
        };
        let _word = PanicWord {
            life: &self,
            place,
            generation,
        };
        let work = async {
            match kind {
                JobKind::Quiesce => self.quiesce(place, generation, &partition).await,
                JobKind::StopFetching => self.stop_fetching(place, generation, &partition).await,
                JobKind::Prepare(reason) => {
                    self.prepare(place, generation, &partition, reason).await
                }
                JobKind::Stop => self.stop(place, generation, &partition).await,
                // Reads and writes go out in batches, not as jobs.
                JobKind::Read | JobKind::Write => {}
            }
        };
        tokio::select! {
            () = cancel.cancelled() => {}
            () = work => {}
        }
        self.wake.notify_one();
    }

    fn finish(
        &self,
        place: Place,
        generation: u64,
        act: impl FnOnce(&mut super::cell::Cell, super::cell::Now),
    ) {
        let at = self.at();
        if let Some(cell) = self.cells.lock().get_mut(&place)
            && cell.finish_job(generation)
        {
            act(cell, at);
        }
    }

    /// Ends fetching, then looks at the log: from here on nothing is mirrored, so the sync point is
    /// final.
    async fn quiesce(&self, place: Place, generation: u64, partition: &MirrorPartition) {
        // Before its turn: a disk that does not answer keeps no turns of others.
        self.tools.data.remove_partition(partition).await;
        let Ok(_permit) = self.stops.acquire().await else {
            return;
        };
        let found = self
            .tools
            .replicas
            .partition_by_id(&partition.topic_id, partition.partition);
        let log = match found {
            Ok(p) if stop::cut_unusable_tail(&p).await.is_ok() => {
                Some((p.log().latest_epoch(), p.log().log_end_offset()))
            }
            _ => None,
        };
        self.ask_for_epoch(partition);
        self.finish(place, generation, |cell, at| cell.quiesced(log, at));
    }

    /// Asks for the epoch that the stop sequence needs, before its turn: what many partitions ask
    /// for goes into one decision, while those that ask in their turn wait for one decision after
    /// the other.
    fn ask_for_epoch(&self, partition: &MirrorPartition) {
        let (topic_id, index) = (partition.topic_id, partition.partition);
        let Ok(found) = self.tools.replicas.partition_by_id(&topic_id, index) else {
            return;
        };
        if let Some(latest) = found.log().latest_epoch()
            && found.leader_epoch() <= latest
        {
            self.tools.bumper.request(topic_id, index, latest);
        }
    }

    async fn stop_fetching(&self, place: Place, generation: u64, partition: &MirrorPartition) {
        self.tools.data.remove_partition(partition).await;
        self.finish(place, generation, |cell, at| cell.on(Event::FetchEnded, at));
    }

    async fn stop(&self, place: Place, generation: u64, partition: &MirrorPartition) {
        self.ask_for_epoch(partition);
        // Again after a restart or a leader change: cheap when nothing is fetched.
        self.tools.data.remove_partition(partition).await;
        let Ok(_permit) = self.stops.acquire().await else {
            return;
        };
        let result = self.run_stop(place, partition).await;
        self.finish(place, generation, |cell, at| match result {
            Ok(()) => cell.on(Event::StopDone, at),
            Err(text) => cell.again(format!("stopping: {text}"), at),
        });
    }

    async fn run_stop(&self, place: Place, partition: &MirrorPartition) -> Result<(), String> {
        let found = self
            .tools
            .replicas
            .partition_by_id(&partition.topic_id, partition.partition)
            .map_err(|e| e.to_string())?;
        let image = self.tools.metadata.image();
        let source =
            MirrorConfig::of(&image, &partition.mirror, &self.tools.settings).source_cluster_id();
        let (change_offset, last_mirror_epoch) = match self.cells.lock().get(&place) {
            Some(cell) => (cell.change_offset, cell.now.last_mirror_epoch),
            None => return Err("this broker does not lead the partition any more".into()),
        };
        let request = StopRequest {
            mirror: partition.mirror.clone(),
            change_offset,
            source_cluster_id: source.unwrap_or(Str::EMPTY),
            last_mirror_epoch,
        };
        let clock = self.tools.clock.clone();
        stop::run(&found, &self.tools.bumper, &request, move || clock()).await?;
        info!(%partition, last_mirror_epoch, "failed over");
        Ok(())
    }

    async fn prepare(
        self: &Arc<Self>,
        place: Place,
        generation: u64,
        partition: &MirrorPartition,
        reason: PrepareReason,
    ) {
        let semaphore = self.preparations_of(&partition.mirror);
        if semaphore.available_permits() == 0 {
            self.with_cell(partition, |cell, at| {
                let text =
                    format!("waits for its turn to be prepared, {PREPARATIONS_MAX} at a time");
                cell.delayed(text, at.ms);
            });
        }
        let Ok(_permit) = semaphore.acquire().await else {
            return;
        };
        let config = MirrorConfig::of(
            &self.tools.metadata.image(),
            &partition.mirror,
            &self.tools.settings,
        );
        let request = match self.cells.lock().get(&place) {
            Some(cell) => PrepareRequest {
                assignment: cell.assignment(),
                reason,
                own_cluster_id: self.tools.settings.cluster_id.clone(),
                pending_truncation: cell.now.truncate_to,
                origin: cell.origin(reason),
                allow_full_truncation: config.may_truncate_fully(),
            },
            None => return,
        };
        let life = self.clone();
        let intent: PersistIntent = Arc::new(move |offset| {
            let life = life.clone();
            Box::pin(async move { life.persist_intent(place, generation, offset).await })
        });
        // A fetcher that was told to go on just before the divergence was reported must not run
        // beside the preparation.
        self.tools.data.remove_partition(partition).await;
        let outcome = self.tools.data.prepare(request, intent).await;
        self.finish(place, generation, |cell, at| match outcome {
            PrepareOutcome::Ready { truncated_to } => {
                info!(partition = %cell.partition, ?truncated_to, "the local log is a prefix of the source's");
                cell.on(Event::Prepared, at);
            }
            PrepareOutcome::Retry { reason } => cell.again(reason, at),
            PrepareOutcome::Undecided { reason } => {
                cell.undecided(reason, config.lookup_timeout_ms(), at);
            }
            PrepareOutcome::Fail(failure) => cell.fail(failure, at),
        });
    }

    /// Stores "about to cut to this offset" before anything is cut. Refused when the preparation it
    /// belongs to is of the past.
    async fn persist_intent(
        &self,
        place: Place,
        generation: u64,
        offset: i64,
    ) -> Result<(), String> {
        let write = {
            let cells = self.cells.lock();
            let cell = cells
                .get(&place)
                .filter(|c| c.job.as_ref().is_some_and(|j| j.generation == generation));
            let cell = cell.ok_or("this preparation was given up")?;
            let facts = cell.facts.as_ref().ok_or("the state is not known")?;
            let record = PartitionRecord {
                truncate_to: Some(offset),
                ..cell.now.clone()
            };
            cell.write_of(record, facts.state_epoch)
        };
        let answer = self.tools.store.write(vec![write]).await.pop();
        let entry = answer
            .ok_or("the store did not answer")?
            .map_err(|e| e.to_string())?;
        let mut cells = self.cells.lock();
        let cell = cells
            .get_mut(&place)
            .filter(|c| c.job.as_ref().is_some_and(|j| j.generation == generation));
        let cell = cell.ok_or("this preparation was given up")?;
        cell.now = entry.record.clone();
        cell.facts = Some(entry);
        Ok(())
    }

    fn preparations_of(&self, mirror: &Str) -> Arc<Semaphore> {
        let mut all = self.preparations.lock();
        all.entry(mirror.clone())
            .or_insert_with(|| Arc::new(Semaphore::new(PREPARATIONS_MAX)))
            .clone()
    }
}
