//! Batches: header rules, patches, records, codecs, control records; and that no bytes whatever
//! make the crate panic.

use bytes::Bytes;
use proptest::prelude::*;
use tarn_records::*;

const CAP: usize = 64 << 20;
const CODECS: [Compression; 5] = [
    Compression::None,
    Compression::Gzip,
    Compression::Snappy,
    Compression::Lz4,
    Compression::Zstd,
];

fn sample(codec: Compression, values: usize) -> Vec<u8> {
    let mut b = BatchBuilder::new()
        .base_offset(100)
        .leader_epoch(3)
        .compression(codec)
        .producer(7, 1, 10);
    for i in 0..values {
        let headers = [
            Header {
                key: Bytes::from_static(b"k"),
                value: None,
            },
            Header {
                key: Bytes::from_static(b"k"),
                value: Some(Bytes::from_static(b"\xff\xfe")),
            },
        ];
        b.add(1000 + i as i64, None, Some(&vec![i as u8; 700]), &headers);
    }
    b.build().unwrap()
}

#[test]
fn every_codec_round_trips_with_repeated_and_null_headers() {
    for codec in CODECS {
        let bytes = Bytes::from(sample(codec, 200));
        let view = BatchView::first(&bytes).unwrap();
        view.check_crc().unwrap();
        assert_eq!(view.header.compression().unwrap(), codec);
        assert_eq!(
            (view.header.last_offset(), view.header.last_sequence()),
            (299, 209)
        );
        let all: Vec<Record> = records(&bytes, CAP)
            .unwrap()
            .collect::<Result<_, _>>()
            .unwrap();
        assert_eq!(all.len(), 200);
        assert_eq!((all[5].offset, all[5].timestamp), (105, 1005));
        assert_eq!(all[5].key, None);
        assert_eq!(all[5].headers.len(), 2);
        assert_eq!(
            all[5].headers[0],
            Header {
                key: Bytes::from_static(b"k"),
                value: None
            }
        );
        assert_eq!(view.records(CAP).unwrap().count(), 200);
    }
}

#[test]
fn decompression_stops_at_the_cap() {
    for codec in &CODECS[1..] {
        let packed = codec.compress(&vec![0u8; 8 << 20]).unwrap();
        assert_eq!(
            codec.decompress(&packed, 1 << 20),
            Err(RecordsError::TooLarge { limit: 1 << 20 })
        );
        assert_eq!(codec.decompress(&packed, 8 << 20).unwrap().len(), 8 << 20);
    }
}

#[test]
fn a_snappy_length_field_reserves_nothing() {
    // Claims 4 GiB − 1 in a five-byte varint with nothing behind it.
    let bomb = [0xff, 0xff, 0xff, 0xff, 0x0f];
    assert!(Compression::Snappy.decompress(&bomb, usize::MAX).is_err());
}

#[test]
fn gzip_members_and_xerial_streams_may_be_concatenated() {
    for codec in [
        Compression::Gzip,
        Compression::Snappy,
        Compression::Zstd,
        Compression::Lz4,
    ] {
        let mut two = codec.compress(b"one ").unwrap();
        two.extend(codec.compress(b"two").unwrap());
        if codec != Compression::Lz4 {
            assert_eq!(
                codec.decompress(&two, 100).unwrap(),
                b"one two",
                "{codec:?}"
            );
        }
    }
    let raw = snap::raw::Encoder::new()
        .compress_vec(b"raw block")
        .unwrap();
    assert_eq!(
        Compression::Snappy.decompress(&raw, 100).unwrap(),
        b"raw block"
    );
}

#[test]
fn lz4_is_framed_as_the_java_client_does() {
    let packed = Compression::Lz4.compress(&vec![1u8; 300_000]).unwrap();
    assert_eq!(packed[0..6], [0x04, 0x22, 0x4d, 0x18, 0x60, 0x40]);
}

#[test]
fn a_zstd_window_above_the_limit_is_refused() {
    // Frame header: magic, descriptor without single segment, window descriptor of 2^28, then an
    // empty last raw block.
    let frame = [
        0x28,
        0xb5,
        0x2f,
        0xfd,
        0x00,
        ((28 - 10) << 3) as u8,
        0x01,
        0x00,
        0x00,
    ];
    assert!(matches!(
        Compression::Zstd.decompress(&frame, CAP),
        Err(RecordsError::Decompress { .. })
    ));
    let ok = [
        0x28,
        0xb5,
        0x2f,
        0xfd,
        0x00,
        ((20 - 10) << 3) as u8,
        0x01,
        0x00,
        0x00,
    ];
    assert_eq!(Compression::Zstd.decompress(&ok, CAP).unwrap(), b"");
}

#[test]
fn offset_and_epoch_are_outside_the_crc_and_append_time_is_inside() {
    let mut bytes = sample(Compression::None, 3);
    patch_base_offset_and_leader_epoch(&mut bytes, 5_000_000_000, 9).unwrap();
    let view = BatchView::first(&bytes).unwrap();
    view.check_crc().unwrap();
    assert_eq!(
        (view.header.base_offset, view.header.leader_epoch),
        (5_000_000_000, 9)
    );
    patch_log_append_time(&mut bytes, 77).unwrap();
    let view = BatchView::first(&bytes).unwrap();
    view.check_crc().unwrap();
    assert!(view.header.is_log_append_time());
    assert!(
        view.records(CAP)
            .unwrap()
            .all(|r| r.unwrap().timestamp == 77)
    );
    bytes[80] ^= 1;
    assert!(matches!(
        BatchView::first(&bytes).unwrap().check_crc(),
        Err(RecordsError::CrcMismatch { .. })
    ));
}

#[test]
fn bad_headers_have_their_own_errors() {
    let good = sample(Compression::None, 2);
    let with = |at: usize, v: &[u8]| {
        let mut b = good.clone();
        b[at..at + v.len()].copy_from_slice(v);
        BatchHeader::parse(&b)
    };
    assert!(matches!(
        BatchHeader::parse(&[0u8; 200]),
        Err(RecordsError::InvalidLength { length: 0, .. })
    ));
    assert!(matches!(
        with(16, &[0]),
        Err(RecordsError::OldFormat { magic: 0, .. })
    ));
    assert!(matches!(
        with(16, &[1]),
        Err(RecordsError::OldFormat { magic: 1, .. })
    ));
    assert!(matches!(
        with(16, &[3]),
        Err(RecordsError::UnknownMagic { magic: 3, .. })
    ));
    assert!(matches!(
        with(8, &(-5i32).to_be_bytes()),
        Err(RecordsError::InvalidLength { .. })
    ));
    assert!(matches!(
        with(8, &48i32.to_be_bytes()),
        Err(RecordsError::InvalidLength { .. })
    ));
    assert!(matches!(
        with(0, &(-1i64).to_be_bytes()),
        Err(RecordsError::InvalidOffsets { .. })
    ));
    assert!(matches!(
        with(0, &(i64::MAX - 1).to_be_bytes()),
        Err(RecordsError::InvalidOffsets { .. })
    ));
    assert!(matches!(
        with(23, &(-1i32).to_be_bytes()),
        Err(RecordsError::InvalidOffsets { .. })
    ));
    assert!(matches!(
        with(57, &(-1i32).to_be_bytes()),
        Err(RecordsError::InvalidOffsets { .. })
    ));
    assert!(matches!(
        with(12, &(-2i32).to_be_bytes()),
        Err(RecordsError::InvalidLeaderEpoch { .. })
    ));
    assert!(matches!(
        BatchHeader::parse(&good[..40]),
        Err(RecordsError::Truncated { .. })
    ));
}

#[test]
fn a_cut_off_last_batch_ends_the_walk_quietly() {
    let one = sample(Compression::Lz4, 4);
    for cut in 0..one.len() {
        let mut bytes = one.clone();
        bytes.extend_from_slice(&one[..cut]);
        let mut walk = batches(&bytes);
        assert!(walk.next().unwrap().is_ok());
        assert!(walk.next().is_none());
        assert_eq!(walk.rest(), cut);
        assert_eq!(whole_batches_len(&bytes), one.len());
    }
}

#[test]
fn an_emptied_batch_still_moves_the_offset() {
    let b = BatchBuilder::new()
        .base_offset(10)
        .last_offset_delta(9)
        .build()
        .unwrap();
    let view = BatchView::first(&b).unwrap();
    view.check_crc().unwrap();
    assert_eq!(
        (view.header.next_offset(), view.header.record_count, b.len()),
        (20, 0, HEADER_BYTES)
    );
}

#[test]
fn markers_and_pid_reset_read_back() {
    for committed in [true, false] {
        let marker = EndTxnMarker {
            committed,
            coordinator_epoch: 12,
        };
        let bytes = end_transaction_marker(marker, 55, 3, 1).unwrap();
        let view = BatchView::first(&bytes).unwrap();
        view.check_crc().unwrap();
        assert!(view.header.is_control() && view.header.is_transactional());
        assert_eq!(
            (
                view.header.producer_id,
                view.header.producer_epoch,
                view.header.base_sequence
            ),
            (55, 3, -1)
        );
        let record = view.records(CAP).unwrap().next().unwrap().unwrap();
        let control = parse_control_record(&record).unwrap();
        assert_eq!(control.end_txn_marker().unwrap(), Some(marker));
    }
    let bytes = mirror_pid_reset("MkU3OEVBNTcwNTJENDM2Qk", 1).unwrap();
    assert_eq!(bytes.len(), 98);
    let view = BatchView::first(&bytes).unwrap();
    assert!(
        view.header.is_control()
            && !view.header.is_transactional()
            && !view.header.has_producer_id()
    );
    let record = view.records(CAP).unwrap().next().unwrap().unwrap();
    let control = parse_control_record(&record).unwrap();
    assert_eq!(control.kind, ControlType::MirrorPidReset);
    assert_eq!(
        parse_mirror_pid_reset(&control.value.unwrap()).unwrap(),
        "MkU3OEVBNTcwNTJENDM2Qk"
    );
    assert!(parse_mirror_pid_reset(&[0, 0, 200]).is_err());
}

#[test]
fn sequences_wrap_to_zero() {
    let mut b = BatchBuilder::new().producer(1, 0, i32::MAX);
    b.add(0, None, None, &[]).add(0, None, None, &[]);
    let bytes = b.build().unwrap();
    assert_eq!(BatchHeader::parse(&bytes).unwrap().last_sequence(), 0);
}

fn exercise(bytes: &[u8]) {
    for b in batches(bytes) {
        let Ok(b) = b else { break };
        let _ = b.check_crc();
        if let Ok(iter) = b.records(1 << 20) {
            for r in iter {
                let Ok(r) = r else { break };
                let _ = parse_control_record(&r).map(|c| c.end_txn_marker());
            }
        }
    }
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        exercise(&bytes);
        for codec in CODECS {
            let _ = codec.decompress(&bytes, 1 << 20);
        }
    }

    #[test]
    fn no_damage_makes_it_panic(codec in 0usize..5, hits in proptest::collection::vec((any::<usize>(), any::<u8>()), 1..6)) {
        let mut bytes = sample(CODECS[codec], 5);
        for (at, v) in hits {
            let n = bytes.len();
            bytes[at % n] = v;
        }
        exercise(&bytes);
    }

    #[test]
    fn crc_equals_the_oracle_in_any_cut(bytes in proptest::collection::vec(any::<u8>(), 0..5000), cut in any::<usize>()) {
        let want = ::crc32c::crc32c(&bytes);
        prop_assert_eq!(tarn_records::crc32c(&bytes), want);
        let cut = if bytes.is_empty() { 0 } else { cut % bytes.len() };
        let mut c = Crc32c::new();
        c.update(&bytes[..cut]);
        c.update(&bytes[cut..]);
        prop_assert_eq!(c.value(), want);
    }
}
