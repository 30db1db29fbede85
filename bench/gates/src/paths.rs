//! Owns the table of measured paths. Each file below prepares one path with everything it needs, so
//! that the counted part is the path alone.
//!
//! A path is prepared in one of two shapes with the same batches and bytes; only the number of
//! records in a batch differs. What a path allocates must not differ between them: nothing may be
//! allocated for a record.

mod append;
mod fetch;
mod mirror;
mod produce;
mod sessions;

use tarn_records::BatchBuilder;
use tempfile::TempDir;

/// How many records the batches have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// The usual: records of about 1 KB.
    Few,
    /// The same bytes in small records.
    Many,
}

/// A path ready to run once.
pub(crate) struct Prepared {
    /// What is counted.
    pub(crate) work: Box<dyn FnMut()>,
    /// How often the unit of the path happens in it.
    pub(crate) units: u64,
    /// Files it works on; they go away with it.
    _scratch: Option<TempDir>,
}

/// One measured path.
pub(crate) struct Path {
    /// Its name in the baseline.
    pub(crate) name: &'static str,
    /// What one unit is.
    pub(crate) unit: &'static str,
    /// Makes it ready.
    pub(crate) prepare: fn(Shape) -> Prepared,
}

/// Every measured path.
pub(crate) const PATHS: &[Path] = &[
    Path {
        name: "decode-produce",
        unit: "request of 8 batches",
        prepare: produce::prepare,
    },
    Path {
        name: "append",
        unit: "batch of 20 KiB",
        prepare: append::prepare,
    },
    Path {
        name: "build-fetch",
        unit: "answer of 8 partitions",
        prepare: fetch::prepare,
    },
    Path {
        name: "mirror-append",
        unit: "piece of 256 KiB",
        prepare: mirror::prepare_append,
    },
    Path {
        name: "mirror-stream",
        unit: "piece of 256 KiB, parsed out of a Fetch answer",
        prepare: mirror::prepare_stream,
    },
    Path {
        name: "session-serve",
        unit: "request in a session of 1,000 partitions, 10 moved",
        prepare: sessions::prepare_serve,
    },
    Path {
        name: "session-follow",
        unit: "request in a session of 1,000 partitions, 10 moved",
        prepare: sessions::prepare_follow,
    },
];

/// Time stamped into everything, epoch milliseconds.
const NOW_MS: i64 = 1_700_000_000_000;
/// Size of every batch, whatever its shape.
const BATCH_BYTES: usize = 20 * 1024;

/// A batch of [`BATCH_BYTES`] at `base_offset` and the number of its records.
fn batch(base_offset: i64, shape: Shape) -> (Vec<u8>, i64) {
    let records: usize = match shape {
        Shape::Few => 16,
        Shape::Many => 160,
    };
    let build = |last_value: usize| {
        let mut builder = BatchBuilder::new().base_offset(base_offset).leader_epoch(0);
        let value = vec![b'v'; 16_000 / records];
        for _ in 1..records {
            builder.add(NOW_MS, Some(b"key"), Some(&value), &[]);
        }
        builder.add(NOW_MS, Some(b"key"), Some(&vec![b'v'; last_value]), &[]);
        builder.build().expect("a batch within all limits")
    };
    // The last value fills what the overhead of the others leaves.
    let without = build(BATCH_BYTES / records).len() - BATCH_BYTES / records;
    let bytes = build(BATCH_BYTES.saturating_sub(without));
    assert_eq!(bytes.len(), BATCH_BYTES, "the same bytes in every shape");
    (bytes, records as i64)
}
