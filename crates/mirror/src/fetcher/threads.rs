//! The threads that fetch and append. Apart from those that serve clients, and behind them where
//! the processor is short: thousands of partitions that catch up must not be felt by who produces
//! to other topics. What runs on them is for the fetcher managers to say.

use std::sync::OnceLock;

use tarn_replica::SpareWorkers;
use tokio::runtime::{Builder, Handle, Runtime};
use tracing::{debug, warn};

/// Niceness of the threads: about a third of the processor where clients want all of it, everything
/// where nobody does.
const NICENESS: i32 = 5;
const NAME: &str = "mirror-fetch";

/// Started with the first mirror.
#[derive(Debug, Default)]
pub(super) struct Threads {
    /// `None`: they could not be started.
    runtime: OnceLock<Option<Runtime>>,
    /// Stand in for those whose disk does not answer.
    spares: OnceLock<SpareWorkers>,
}

impl Threads {
    /// Where to run. Must be called within a runtime, which stands in when threads of its own
    /// cannot be had.
    pub(super) fn handle(&self) -> Handle {
        let spares = self.spares.get_or_init(SpareWorkers::new);
        let runtime = self.runtime.get_or_init(|| match start(spares) {
            Ok(runtime) => Some(runtime),
            Err(error) => {
                warn!(%error, "mirrors fetch on the threads that serve clients: theirs could not be started");
                None
            }
        });
        runtime
            .as_ref()
            .map_or_else(Handle::current, |r| r.handle().clone())
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if let Some(spares) = self.spares.get() {
            spares.close();
        }
        if let Some(runtime) = self.runtime.take().flatten() {
            runtime.shutdown_background();
        }
    }
}

fn start(spares: &SpareWorkers) -> std::io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    spares.prepare(&mut builder, || {
        // Without a process id the kernel takes the calling thread.
        if let Err(error) = rustix::process::setpriority_process(None, NICENESS) {
            debug!(%error, "a mirror thread keeps its priority");
        }
    });
    let runtime = builder.thread_name(NAME).enable_all().build()?;
    spares.start(runtime.handle());
    Ok(runtime)
}
