//! What a producer may send, and that reading compressed records is bounded in memory and can be
//! stopped.

use proptest::prelude::*;
use tarn_records::{
    BatchBuilder, Compression, Compressor, PIECE_BYTES, RecordRules, RecordsError, StreamPace,
    Unpaced, one_batch,
};

const NOW: i64 = 1_700_000_000_000;
const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn rules() -> RecordRules {
    RecordRules {
        keys_required: false,
        create_time: true,
        before_max_ms: i64::MAX,
        after_max_ms: 3_600_000,
        now_ms: NOW,
    }
}

fn batch(codec: Compression, values: &[usize]) -> Vec<u8> {
    let mut builder = BatchBuilder::new().compression(codec);
    for (i, bytes) in values.iter().enumerate() {
        builder.add(NOW + i as i64, Some(b"k"), Some(&vec![7; *bytes]), &[]);
    }
    builder.build().unwrap()
}

/// Counts, and stops after some pieces.
struct Counting {
    memory: usize,
    pieces: usize,
    pieces_max: usize,
}

impl StreamPace for Counting {
    fn begin(&mut self, bytes: usize) -> bool {
        self.memory = bytes;
        true
    }
    fn pause(&mut self) -> bool {
        self.pieces += 1;
        self.pieces <= self.pieces_max
    }
}

#[test]
fn every_codec_is_read_in_pieces_and_tells_its_memory_before() {
    for codec in CODECS {
        let bytes = batch(codec, &[9 << 20, 3]);
        let view = one_batch(&bytes).unwrap();
        let mut pace = Counting {
            memory: 0,
            pieces: 0,
            pieces_max: usize::MAX,
        };
        let largest = view.check_produced(&rules(), 10 << 20, &mut pace).unwrap();
        assert_eq!(largest, NOW + 1);
        if codec == Compression::None {
            continue;
        }
        assert!(pace.pieces >= (9 << 20) / (2 * PIECE_BYTES), "{codec:?}");
        assert!(pace.memory <= 16 << 20, "{codec:?} claims {}", pace.memory);
        pace.pieces_max = pace.pieces + 2;
        let stopped = view.check_produced(&rules(), 10 << 20, &mut pace);
        assert_eq!(stopped, Err(RecordsError::Stopped), "{codec:?}");
        let above = view.check_produced(&rules(), 9 << 20, &mut Unpaced);
        assert!(
            matches!(above, Err(RecordsError::TooLarge { .. })),
            "{codec:?}"
        );
    }
}

#[test]
fn a_batch_keeps_its_records_in_every_other_codec() {
    for from in CODECS {
        for to in CODECS {
            let bytes = batch(from, &[40_000, 0, 5]);
            let view = one_batch(&bytes).unwrap();
            let turned = view
                .recompressed(Compressor::new(to), 1 << 20, 1 << 20, &mut Unpaced)
                .unwrap();
            let turned = one_batch(&turned).unwrap();
            turned
                .check_produced(&rules(), 1 << 20, &mut Unpaced)
                .unwrap();
            assert_eq!(turned.header.compression(), Ok(to));
            let all = |view: &tarn_records::BatchView<'_>| -> Vec<_> {
                view.records(1 << 20).unwrap().map(Result::unwrap).collect()
            };
            assert_eq!(all(&view), all(&turned), "{from:?} to {to:?}");
            let small = view.recompressed(Compressor::new(to), 70, 1 << 20, &mut Unpaced);
            assert!(matches!(small, Err(RecordsError::TooLarge { limit: 70 })));
        }
    }
}

proptest! {
    /// Whatever is flipped, nothing panics; and what the walk takes, the reader of records takes
    /// too.
    #[test]
    fn damage_is_refused_or_readable(
        codec in 0..5usize,
        flips in proptest::collection::vec((61..400usize, any::<u8>()), 1..4),
    ) {
        let mut bytes = batch(CODECS[codec], &[200, 0, 30, 100]);
        for (at, with) in flips {
            let at = 61 + at % (bytes.len() - 61);
            bytes[at] ^= with;
        }
        let crc = tarn_records::crc32c(&bytes[21..]);
        bytes[17..21].copy_from_slice(&crc.to_be_bytes());
        let view = one_batch(&bytes).unwrap();
        let rules = RecordRules { create_time: false, ..rules() };
        if view.check_produced(&rules, 1 << 20, &mut Unpaced).is_ok() && codec > 0 {
            prop_assert!(view.records(1 << 20).unwrap().all(|r| r.is_ok()));
        }
    }
}
