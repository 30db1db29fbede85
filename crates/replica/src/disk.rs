//! Where work runs that writes to a log: on the calling thread, which is nearly always quicker than
//! any hand-over, unless its disk is late or a file has to be synced first. Then the thread is
//! taken out of its runtime for so long. Also the threads in reserve of a runtime, which stand in
//! for those that were already inside a write when the disk stopped answering.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

use tarn_log::{LogError, PartitionLog, WorkerGroup};
use tokio::runtime::{Builder, Handle, RuntimeFlavor};

use crate::error::ReplicaError;

/// How often a thread that stands in looks whether it is still needed.
const STAND_IN_LOOK: Duration = Duration::from_millis(100);

/// Runs `work`, which reads or writes files of `log`. Refuses it when the disk has not answered for
/// long.
pub(crate) fn run<T>(
    log: &PartitionLog,
    work: impl FnOnce() -> Result<T, ReplicaError>,
) -> Result<T, ReplicaError> {
    if !log.may_wait() {
        return work();
    }
    let _place = log.wait_place()?;
    out_of_the_runtime(work)
}

/// As [`run`], for work that can be begun again: with too few descriptors it syncs and closes other
/// files, and tries once more.
pub(crate) fn run_again<T>(
    log: &PartitionLog,
    mut work: impl FnMut() -> Result<T, ReplicaError>,
) -> Result<T, ReplicaError> {
    match run(log, &mut work) {
        Err(ReplicaError::Log(LogError::Shortage { .. })) => out_of_the_runtime(|| {
            log.make_room();
            work()
        }),
        done => done,
    }
}

/// Runs `work`, which looks something up in indexes of `log`. Where one is wrong it is rebuilt
/// first, which may take long.
pub(crate) fn look_up<T>(
    log: &PartitionLog,
    mut work: impl FnMut() -> Result<T, LogError>,
) -> Result<T, LogError> {
    match work() {
        Err(LogError::WrongIndex { .. }) => {
            out_of_the_runtime(|| log.with_right_indexes(&mut work))
        }
        done => done,
    }
}

fn out_of_the_runtime<T>(work: impl FnOnce() -> T) -> T {
    match Handle::try_current() {
        Ok(handle) if handle.runtime_flavor() == RuntimeFlavor::MultiThread => {
            tokio::task::block_in_place(work)
        }
        _ => work(),
    }
}

/// Has another worker wait for sockets and timers while this one blocks. The worker that runs the
/// calling task may be the one that waited for them last, and tokio wakes no other until a task is
/// spawned from outside of the runtime: with all others asleep nobody would ever hear of a socket
/// again. False when no thread could be started to do that.
fn hand_the_driver_on() -> bool {
    let runtime = Handle::current();
    let outside = std::thread::Builder::new().name("driver-handover".to_owned());
    outside.spawn(move || drop(runtime.spawn(async {}))).is_ok()
}

/// Worker threads of a runtime, as many as there are processors, and as many again in reserve.
#[derive(Debug, Clone)]
pub struct SpareWorkers {
    group: Arc<WorkerGroup>,
    cores: usize,
}

impl Default for SpareWorkers {
    fn default() -> Self {
        SpareWorkers::new()
    }
}

impl SpareWorkers {
    /// For one runtime.
    pub fn new() -> SpareWorkers {
        SpareWorkers {
            group: WorkerGroup::new(),
            cores: available_parallelism().map_or(1, NonZeroUsize::get),
        }
    }

    /// Sets the number of worker threads; `at_start` runs on each thread of the runtime.
    pub fn prepare(&self, builder: &mut Builder, at_start: impl Fn() + Send + Sync + 'static) {
        let group = self.group.clone();
        builder
            .worker_threads(2 * self.cores)
            .on_thread_start(move || {
                group.enrol();
                at_start();
            });
    }

    /// Puts the reserve to sleep. Call it once the runtime is there; [`SpareWorkers::close`] must
    /// come before the runtime ends.
    pub fn start(&self, runtime: &Handle) {
        for _ in 0..self.cores {
            let group = self.group.clone();
            runtime.spawn(async move {
                loop {
                    while !hand_the_driver_on() {
                        tokio::time::sleep(STAND_IN_LOOK).await;
                    }
                    // Blocks the thread on purpose: that is what keeps it in reserve.
                    if !group.stand_by() {
                        return;
                    }
                    while group.is_needed() {
                        tokio::time::sleep(STAND_IN_LOOK).await;
                    }
                }
            });
        }
    }

    /// Lets the threads in reserve go.
    pub fn close(&self) {
        self.group.close();
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// The broker answered nobody any more once a spare worker had gone back into the reserve from
    /// the worker that waited for sockets.
    #[test]
    fn sockets_are_heard_whatever_the_reserve_does() {
        let spares = SpareWorkers::new();
        let mut builder = Builder::new_multi_thread();
        spares.prepare(&mut builder, || ());
        let runtime = builder.enable_all().build().unwrap();
        spares.start(runtime.handle());
        let listener = runtime
            .block_on(tokio::net::TcpListener::bind("127.0.0.1:0"))
            .unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(async move {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut byte = [0];
            while socket.read_exact(&mut byte).await.is_ok() {
                socket.write_all(&byte).await.unwrap();
            }
        });
        let mut client = TcpStream::connect(address).unwrap();
        client
            .set_read_timeout(Some(Duration::from_secs(3)))
            .unwrap();
        let unanswered = (0..12).find(|round| {
            // Some of the reserve stand in and go back, as on a disk that is late now and then.
            spares.group.set_stuck(1 + round % spares.cores);
            std::thread::sleep(Duration::from_millis(20));
            spares.group.set_stuck(0);
            std::thread::sleep(STAND_IN_LOOK + Duration::from_millis(50));
            client.write_all(&[1]).unwrap();
            client.read_exact(&mut [0]).is_err()
        });
        spares.close();
        assert_eq!(unanswered, None, "the round whose byte nobody heard");
    }
}
