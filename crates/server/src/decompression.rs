//! Reading compressed records away from the async workers: a few threads at a time take turns in
//! pieces, so that a long job holds up a short one for a piece only, and what the codecs hold in
//! memory comes out of one budget.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tarn_records::StreamPace;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Jobs that are begun; more wait for one to end. Each holds a thread, most of the time without a
/// turn.
const JOBS_MAX: usize = 64;
/// Bytes one permit of the memory budget stands for.
const UNIT_BYTES: usize = 4096;

/// What all jobs of a server share.
#[derive(Debug, Clone)]
pub(crate) struct Decompression {
    jobs: Arc<Semaphore>,
    turns: Arc<Semaphore>,
    memory: Arc<Semaphore>,
    memory_units: u32,
}

/// The server stops, or a job died.
#[derive(Debug, thiserror::Error)]
#[error("reading of compressed records was stopped")]
pub(crate) struct Stopped;

impl Decompression {
    /// `threads` work at the same time; their codecs hold at most `memory_bytes` together, but
    /// always one of them may run.
    pub(crate) fn new(threads: usize, memory_bytes: usize) -> Decompression {
        let memory_units =
            (memory_bytes / UNIT_BYTES).clamp(1, Semaphore::MAX_PERMITS >> 32) as u32;
        Decompression {
            jobs: Arc::new(Semaphore::new(JOBS_MAX)),
            turns: Arc::new(Semaphore::new(threads.max(1))),
            memory: Arc::new(Semaphore::new(memory_units as usize)),
            memory_units,
        }
    }

    /// Runs `work` on a thread that may block. It ends at its next pause when nobody waits for this
    /// any more.
    pub(crate) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut dyn StreamPace) -> T + Send + 'static,
    ) -> Result<T, Stopped> {
        let job = self
            .jobs
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| Stopped)?;
        let wanted = Wanted(Arc::new(AtomicBool::new(true)));
        let mut turn = Turn {
            pool: self.clone(),
            wanted: wanted.0.clone(),
            handle: Handle::current(),
            turn: None,
            memory: None,
        };
        let done = tokio::task::spawn_blocking(move || {
            let _job = job;
            if !turn.take() {
                return None;
            }
            Some(work(&mut turn))
        });
        done.await.ok().flatten().ok_or(Stopped)
    }
}

/// Tells a job, when dropped, that nobody waits for it.
struct Wanted(Arc<AtomicBool>);

impl Drop for Wanted {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// A job's place among the others.
struct Turn {
    pool: Decompression,
    wanted: Arc<AtomicBool>,
    handle: Handle,
    turn: Option<OwnedSemaphorePermit>,
    memory: Option<OwnedSemaphorePermit>,
}

impl Turn {
    fn take(&mut self) -> bool {
        let turns = self.pool.turns.clone();
        self.turn = self.handle.block_on(turns.acquire_owned()).ok();
        self.turn.is_some() && self.wanted.load(Ordering::Relaxed)
    }
}

impl StreamPace for Turn {
    fn begin(&mut self, bytes: usize) -> bool {
        // Nothing is held while memory is waited for, so that whoever holds some can end.
        self.turn = None;
        self.memory = None;
        let units = bytes
            .div_ceil(UNIT_BYTES)
            .min(self.pool.memory_units as usize) as u32;
        let memory = self.pool.memory.clone();
        self.memory = self.handle.block_on(memory.acquire_many_owned(units)).ok();
        self.memory.is_some() && self.take()
    }

    fn pause(&mut self) -> bool {
        // Semaphores are fair: whoever waits comes first.
        self.turn = None;
        self.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn a_short_job_passes_a_long_one_between_two_pieces() {
        let pool = Decompression::new(1, 1 << 20);
        let over = Arc::new(AtomicBool::new(false));
        let (begun, started) = tokio::sync::oneshot::channel();
        let long = tokio::spawn({
            let (pool, over) = (pool.clone(), over.clone());
            async move {
                pool.run(move |pace| {
                    let _ = begun.send(());
                    while !over.load(Ordering::Relaxed) {
                        std::thread::sleep(Duration::from_millis(1));
                        assert!(pace.pause());
                    }
                })
                .await
            }
        });
        started.await.unwrap();
        assert_eq!(pool.run(|_| 7).await.unwrap(), 7);
        over.store(true, Ordering::Relaxed);
        long.await.unwrap().unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn memory_is_shared_and_a_claim_above_all_of_it_runs_alone() {
        let pool = Decompression::new(4, 1 << 20);
        let (inside, most) = (Arc::new(Semaphore::new(1)), usize::MAX);
        let jobs: Vec<_> = (0..4)
            .map(|_| {
                let (pool, inside) = (pool.clone(), inside.clone());
                tokio::spawn(async move {
                    pool.run(move |pace| {
                        assert!(pace.begin(most));
                        let _alone = inside.try_acquire().expect("alone");
                        std::thread::sleep(Duration::from_millis(5));
                    })
                    .await
                })
            })
            .collect();
        for job in jobs {
            job.await.unwrap().unwrap();
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_job_nobody_waits_for_ends_at_its_next_pause() {
        let pool = Decompression::new(1, 1 << 20);
        let (ended, end) = tokio::sync::oneshot::channel();
        let run = pool.run(move |pace| {
            while pace.pause() {
                std::thread::sleep(Duration::from_millis(1));
            }
            let _ = ended.send(());
        });
        assert!(
            tokio::time::timeout(Duration::from_millis(20), run)
                .await
                .is_err()
        );
        end.await.unwrap();
    }
}
