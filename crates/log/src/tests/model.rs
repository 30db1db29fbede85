//! The log against a model that is a plain list of batches, under random operations, crashes and
//! clean restarts.

use proptest::prelude::*;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Leader {
        count: i32,
        bytes: usize,
    },
    Mirror {
        gap: i64,
        count: i32,
        delta_more: i32,
        epoch_step: i32,
        cut: usize,
        tail: usize,
    },
    Truncate {
        back: i64,
    },
    Restart {
        offset: i64,
    },
    LogStart {
        part: u8,
    },
    Retention {
        keep_bytes: u64,
    },
    Watermark {
        part: u8,
    },
    Flush,
    Crash,
    CloseAndOpen,
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => (1..6i32, 0..200usize).prop_map(|(count, bytes)| Op::Leader { count, bytes }),
        6 => (prop_oneof![3 => Just(0i64), 1 => 1..50i64, 1 => Just(3_000_000_000)], 0..5i32, 0..4i32, 0..2i32, any::<usize>(), 0..120usize)
            .prop_map(|(gap, count, delta_more, epoch_step, cut, tail)| Op::Mirror { gap, count, delta_more, epoch_step, cut, tail }),
        2 => (0..20i64).prop_map(|back| Op::Truncate { back }),
        1 => (0..100i64).prop_map(|offset| Op::Restart { offset }),
        1 => any::<u8>().prop_map(|part| Op::LogStart { part }),
        1 => (0..1500u64).prop_map(|keep_bytes| Op::Retention { keep_bytes }),
        2 => any::<u8>().prop_map(|part| Op::Watermark { part }),
        1 => Just(Op::Flush),
        1 => Just(Op::Crash),
        1 => Just(Op::CloseAndOpen),
    ]
}

/// What the log must hold: whole batches with (first, last, epoch), and the three offsets.
#[derive(Debug, Default)]
struct Model {
    batches: Vec<(i64, i64, i32, Vec<u8>)>,
    start: i64,
    end: i64,
    watermark: i64,
}

impl Model {
    fn push(&mut self, bytes: &[u8]) {
        let h = BatchView::first(bytes).unwrap().header;
        self.batches.push((
            h.base_offset,
            h.last_offset(),
            h.leader_epoch,
            bytes.to_vec(),
        ));
        self.end = h.next_offset();
    }
    fn epoch(&self) -> i32 {
        self.batches.last().map_or(0, |b| b.2)
    }
    fn visible(&self) -> Vec<u8> {
        self.batches
            .iter()
            .filter(|b| b.1 >= self.start)
            .flat_map(|b| b.3.clone())
            .collect()
    }
    fn truncate(&mut self, offset: i64) {
        if offset >= self.end {
            return;
        }
        if offset <= self.start {
            return self.restart(offset);
        }
        self.batches.retain(|b| b.1 < offset);
        let end = self.batches.last().map_or(self.start, |b| b.1 + 1);
        if end < self.start {
            let start = self.start;
            return self.restart(start);
        }
        self.end = end;
        self.watermark = self.watermark.min(self.end);
    }
    fn restart(&mut self, offset: i64) {
        *self = Model {
            start: offset,
            end: offset,
            watermark: offset,
            ..Model::default()
        };
    }
}

fn apply(
    log: &mut Arc<PartitionLog>,
    dir: &mut Arc<LogDir>,
    home: &Home,
    config: &LogConfig,
    m: &mut Model,
    op: &Op,
) {
    match *op {
        Op::Leader { count, bytes } => {
            let mut b = batch(0, 0, count, bytes);
            let epoch = m.epoch();
            let info = log
                .append_as_leader(&mut b, epoch, AppendOrigin::Client, NOW + (1 << 40))
                .unwrap();
            assert_eq!(info.first_offset, m.end);
            m.push(&b);
        }
        Op::Mirror {
            gap,
            count,
            delta_more,
            epoch_step,
            cut,
            tail,
        } => {
            let mut builder = BatchBuilder::new()
                .base_offset(m.end + gap)
                .leader_epoch(m.epoch() + epoch_step)
                .last_offset_delta(count + delta_more);
            for i in 0..count {
                builder.add_at(i, NOW, None, Some(&[i as u8; 30]), &[]);
            }
            let good = builder.build().unwrap();
            let sent = [good.clone(), good[..tail.min(good.len() - 1)].to_vec()].concat();
            let cut = cut % sent.len();
            let mut append = log.mirror_append(m.end, NOW).unwrap();
            // A tail that is long enough to be looked at does not continue the log.
            let pushed = append
                .push(&sent[..cut])
                .and_then(|()| append.push(&sent[cut..]));
            match pushed {
                Ok(()) => assert_eq!(append.finish().unwrap().batches, 1),
                Err(e) => assert!(
                    tail >= 61 && matches!(e, LogError::NotContinuous { .. }),
                    "{e}"
                ),
            }
            m.push(&good);
        }
        Op::Truncate { back } => {
            let offset = (m.end - back).max(0);
            m.truncate(offset);
            log.truncate_to(offset).unwrap();
        }
        Op::Restart { offset } => {
            m.restart(offset);
            log.truncate_fully_and_start_at(offset).unwrap();
        }
        Op::LogStart { part } => {
            let offset = m.start + (m.end - m.start) / 256 * i64::from(part);
            m.start = m.start.max(offset.min(m.watermark));
            assert_eq!(log.advance_log_start(offset).unwrap(), m.start);
        }
        Op::Retention { keep_bytes } => {
            log.update_config(LogConfig {
                retention_bytes: keep_bytes as i64,
                ..config.clone()
            });
            let before = log.size_bytes();
            let outcome = log.retention(NOW).unwrap();
            log.update_config(config.clone());
            assert_eq!(before - outcome.bytes, log.size_bytes());
            assert!(outcome.bytes == 0 || log.size_bytes() >= keep_bytes.min(before));
            assert!(log.log_start_offset() <= m.watermark);
            m.start = log.log_start_offset();
        }
        Op::Watermark { part } => {
            m.watermark = m.start + (m.end - m.start) / 255 * i64::from(part);
            assert_eq!(log.set_high_watermark(m.watermark).0, m.watermark);
        }
        Op::Flush => {
            assert_eq!(log.flush().unwrap(), m.end);
            dir.write_checkpoints().unwrap();
        }
        Op::Crash | Op::CloseAndOpen => {
            if matches!(op, Op::CloseAndOpen) {
                dir.close_clean(1).unwrap();
            } else {
                dir.write_checkpoints().unwrap();
            }
            reopen(log, dir, home, config);
        }
    }
    m.batches.retain(|b| b.1 >= m.start);
}

fn reopen(log: &mut Arc<PartitionLog>, dir: &mut Arc<LogDir>, home: &Home, config: &LogConfig) {
    // The lock must be free before the directory can be opened again.
    let elsewhere = tempfile::tempdir().unwrap();
    *dir = LogDir::open(elsewhere.path()).unwrap();
    *dir = LogDir::open(home.root()).unwrap();
    *log = dir
        .open_log("t", 0, topic_id(config), config.clone(), NOW)
        .unwrap();
}

/// With an id, what only the log itself may say is kept beside it; without one, as in a directory
/// of an older version, it is not.
fn topic_id(config: &LogConfig) -> Option<&'static str> {
    (config.segment_bytes == 300).then_some("id")
}

fn compare(log: &PartitionLog, m: &Model) {
    assert_eq!(
        (
            log.log_start_offset(),
            log.high_watermark(),
            log.log_end_offset()
        ),
        (m.start, m.watermark, m.end)
    );
    assert_eq!(all_bytes(log), m.visible());
    let mut offsets: Vec<i64> = m
        .batches
        .iter()
        .flat_map(|b| [b.0 - 1, b.0, (b.0 + b.1) / 2, b.1, b.1 + 1])
        .collect();
    offsets.extend([m.start, m.end]);
    for o in offsets.into_iter().filter(|o| *o >= m.start && *o <= m.end) {
        let expected = m.batches.iter().find(|b| b.1 >= o).map(|b| (b.0, b.1));
        let got = log
            .read(o, 1, i64::MAX, true)
            .unwrap()
            .map(|s| first_of(&s));
        assert_eq!(got, expected, "read at {o}");
        let bounded = log.read(m.start, u64::MAX, o, true).unwrap();
        let end = bounded.map_or(m.start, |s| {
            tarn_records::batches(&s.read().unwrap())
                .map(|b| b.unwrap().header.next_offset())
                .last()
                .unwrap()
        });
        assert!(end <= o.max(m.start), "bounded by {o}, but reads to {end}");
    }
    let epochs = log.epochs();
    assert!(
        epochs
            .windows(2)
            .all(|w| w[0].epoch < w[1].epoch && w[0].start_offset < w[1].start_offset)
    );
    for b in &m.batches {
        assert_eq!(
            log.epoch_for_offset(b.0.max(m.start)),
            Some(b.2),
            "epoch at {}",
            b.0
        );
    }
}

fn cases() -> u32 {
    let asked = std::env::var("TARN_MODEL_CASES").ok();
    let asked = asked.and_then(|n| n.parse().ok());
    asked.unwrap_or(sized(96, 16) as u32)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), ..ProptestConfig::default() })]

    #[test]
    fn the_log_is_its_model(ops in proptest::collection::vec(op(), 1..40), small in any::<bool>()) {
        let home = Home::new();
        let config = LogConfig {
            segment_bytes: if small { 300 } else { 2000 },
            index_interval_bytes: 100,
            retention_ms: -1,
            ..LogConfig::default()
        };
        let mut dir = LogDir::open(home.root()).unwrap();
        let mut log = dir.open_log("t", 0, topic_id(&config), config.clone(), NOW).unwrap();
        let mut model = Model::default();
        for op in &ops {
            apply(&mut log, &mut dir, &home, &config, &mut model, op);
            compare(&log, &model);
        }
        dir.close_clean(1).unwrap();
        reopen(&mut log, &mut dir, &home, &config);
        compare(&log, &model);
    }
}
