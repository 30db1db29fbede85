//! The budget of request bytes in memory over all connections (`queued.max.request.bytes`). Back-pressure is not reading the socket.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Bytes one permit stands for.
const UNIT: u64 = 1024;

/// Shared by all connections of a server.
#[derive(Debug, Clone)]
pub(crate) struct ByteBudget {
    permits: Arc<Semaphore>,
    total: u32,
}

impl ByteBudget {
    /// A budget of `bytes`; anything below one largest request is raised to it, or that request could never be read.
    pub(crate) fn new(bytes: u64, request_bytes_max: u64) -> ByteBudget {
        let units = (bytes.max(request_bytes_max) / UNIT + 1).min(u64::from(u32::MAX >> 4)) as u32;
        ByteBudget {
            permits: Arc::new(Semaphore::new(units as usize)),
            total: units,
        }
    }

    /// Waits until `len` bytes are free. The permit gives them back.
    pub(crate) async fn take(&self, len: usize) -> Option<OwnedSemaphorePermit> {
        let units = (len as u64 / UNIT + 1).min(u64::from(self.total)) as u32;
        self.permits.clone().acquire_many_owned(units).await.ok()
    }

    /// A quarter of the machine's memory, at least 64 MiB.
    pub(crate) fn default_bytes() -> u64 {
        const FLOOR: u64 = 64 << 20;
        let total = std::fs::read_to_string("/proc/meminfo")
            .ok()
            .and_then(|text| {
                let line = text.lines().find(|line| line.starts_with("MemTotal:"))?;
                line.split_whitespace().nth(1)?.parse::<u64>().ok()
            });
        total.map_or(FLOOR, |kib| (kib * 1024 / 4).max(FLOOR))
    }
}
