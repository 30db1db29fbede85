//! Writes a directory with every kind of file, for a real Kafka's `DumpLogSegments` (run by hand: set TARN_DUMP_DIR).

use super::*;

#[test]
#[ignore = "writes to TARN_DUMP_DIR for a look with Kafka's own tool"]
fn write_every_kind_of_file() {
    let root = PathBuf::from(std::env::var("TARN_DUMP_DIR").unwrap());
    let dir = LogDir::open(&root).unwrap();
    let config = LogConfig {
        segment_bytes: 100_000,
        ..LogConfig::default()
    };
    let log = dir
        .open_log("t", 0, Some("MkU3OEVBNTcwNTJENDM2Qg"), config, NOW)
        .unwrap();
    for n in 0..300 {
        let codec = tarn_records::Compression::from_bits((n % 5) as u8).unwrap();
        let mut b = BatchBuilder::new().compression(codec);
        for i in 0..20 {
            b.add(
                NOW - 10_000 + n * 20 + i,
                Some(b"key"),
                Some(format!("value {n} {i} {}", "x".repeat(60)).as_bytes()),
                &[],
            );
        }
        log.append_as_leader(
            &mut b.build().unwrap(),
            1 + (n / 100) as i32,
            AppendOrigin::Client,
            NOW,
        )
        .unwrap();
        let mut t = idempotent(7, 0, n as i32, 1, true);
        log.append_as_leader(&mut t, 1 + (n / 100) as i32, AppendOrigin::Client, NOW)
            .unwrap();
        if n % 10 == 9 {
            let mut m = marker(7, 0, n % 20 == 9, 3);
            log.append_as_leader(&mut m, 1 + (n / 100) as i32, AppendOrigin::Coordinator, NOW)
                .unwrap();
        }
    }
    let mut reset = tarn_records::mirror_pid_reset("MkU3OEVBNTcwNTJENDM2Qg", NOW).unwrap();
    log.append_as_leader(&mut reset, 4, AppendOrigin::Internal, NOW)
        .unwrap();
    client(&log, idempotent(9, 0, 0, 3, false)).unwrap();
    log.set_high_watermark(i64::MAX);
    log.retention(NOW).unwrap();
    log.advance_log_start(50).unwrap();
    dir.close_clean(1).unwrap();
}
