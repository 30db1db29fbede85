//! Tests of the log against its rules; each submodule takes one family. Batches are made with the
//! builder of `records`.

mod aborted;
mod append;
mod cleaning;
mod directory;
mod identity;
mod mirroring;
mod model;
mod recovery;
mod reserving;
mod rot;
mod shortage;
mod stalling;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tarn_records::{BatchBuilder, BatchView, EndTxnMarker, end_transaction_marker};

use crate::*;

pub(crate) const NOW: i64 = 1_700_000_000_000;

/// How often a test repeats a step, or how large it makes a log: `usual`, or `under_memcheck` when
/// `bin/test.sh` runs it under valgrind, where each step takes about fifty times as long.
pub(crate) fn sized(usual: usize, under_memcheck: usize) -> usize {
    match std::env::var_os("TARN_MEMCHECK") {
        Some(_) => under_memcheck,
        None => usual,
    }
}

/// A log directory that goes away with the test, and how logs in it are opened.
pub(crate) struct Home {
    root: tempfile::TempDir,
}

impl Home {
    pub(crate) fn new() -> Home {
        Home {
            root: tempfile::tempdir().unwrap(),
        }
    }
    pub(crate) fn root(&self) -> &Path {
        self.root.path()
    }
    pub(crate) fn dir(&self) -> PathBuf {
        self.root.path().join("t-0")
    }
    pub(crate) fn open(&self, config: &LogConfig) -> Arc<PartitionLog> {
        self.open_with(config, true, None).unwrap()
    }
    pub(crate) fn open_with(
        &self,
        config: &LogConfig,
        clean: bool,
        recovery_point: Option<i64>,
    ) -> Result<Arc<PartitionLog>, LogError> {
        PartitionLog::open(
            &self.dir(),
            config.clone(),
            options(self.root(), clean, recovery_point),
        )
    }
    pub(crate) fn segment(&self, base: i64, extension: &str) -> PathBuf {
        self.dir().join(format!("{base:020}.{extension}"))
    }
}

pub(crate) fn options(root: &Path, clean: bool, recovery_point: Option<i64>) -> OpenOptions {
    OpenOptions {
        clean_shutdown: clean,
        recovery_point,
        log_start_offset: 0,
        high_watermark: i64::MAX,
        topic_id: Some("MkU3OEVBNTcwNTJENDM2Qg".into()),
        now_ms: NOW,
        dir_state: LogDirState::detached(root),
    }
}

/// `count` records at `base` under `epoch`.
pub(crate) fn batch(base: i64, epoch: i32, count: i32, value_bytes: usize) -> Vec<u8> {
    let mut b = BatchBuilder::new().base_offset(base).leader_epoch(epoch);
    for i in 0..count {
        b.add(
            NOW + base + i64::from(i),
            Some(b"k"),
            Some(&vec![(base as u8) ^ (i as u8); value_bytes]),
            &[],
        );
    }
    b.build().unwrap()
}

pub(crate) fn idempotent(
    pid: i64,
    epoch: i16,
    sequence: i32,
    count: i32,
    transactional: bool,
) -> Vec<u8> {
    let mut b = BatchBuilder::new().producer(pid, epoch, sequence);
    if transactional {
        b = b.transactional();
    }
    for _ in 0..count {
        b.add(NOW, None, Some(b"v"), &[]);
    }
    b.build().unwrap()
}

pub(crate) fn marker(pid: i64, epoch: i16, committed: bool, coordinator_epoch: i32) -> Vec<u8> {
    end_transaction_marker(
        EndTxnMarker {
            committed,
            coordinator_epoch,
        },
        pid,
        epoch,
        NOW,
    )
    .unwrap()
}

pub(crate) fn client(log: &PartitionLog, mut bytes: Vec<u8>) -> Result<AppendInfo, LogError> {
    log.append_as_leader(&mut bytes, 1, AppendOrigin::Client, NOW)
}

pub(crate) fn coordinator(log: &PartitionLog, mut bytes: Vec<u8>) -> Result<AppendInfo, LogError> {
    log.append_as_leader(&mut bytes, 1, AppendOrigin::Coordinator, NOW)
}

/// Every byte of the log from its first batch on, read slice by slice.
pub(crate) fn all_bytes(log: &PartitionLog) -> Vec<u8> {
    let (mut out, mut offset) = (Vec::new(), log.log_start_offset());
    while let Some(slice) = log.read(offset, 1 << 20, i64::MAX, true).unwrap() {
        let bytes = slice.read().unwrap();
        assert_eq!(bytes.len() as u64, slice.len);
        let mut taken = 0;
        for b in tarn_records::batches(&bytes) {
            let b = b.unwrap();
            b.check_crc().unwrap();
            offset = b.header.next_offset();
            taken += b.bytes.len();
        }
        assert!(taken > 0);
        out.extend_from_slice(&bytes[..taken]);
    }
    out
}

pub(crate) fn first_of(slice: &Slice) -> (i64, i64) {
    let bytes = slice.read().unwrap();
    let h = BatchView::first(&bytes).unwrap().header;
    assert_eq!(h.base_offset, slice.first_batch_base_offset);
    (h.base_offset, h.last_offset())
}
