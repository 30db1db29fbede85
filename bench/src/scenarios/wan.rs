//! A mirror over a long line (X8): the share of a 50 MB/s link with 100 ms round trip and 0.1 %
//! loss that Tarn uses, by number of partitions.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::json;
use tarn_tests::kafka::Kafka;
use tarn_tests::tarn::Tarn;
use tarn_tests::tools;

use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};
use crate::wan::{Shape, Wan};

/// What the link carries, bytes a second, headers included.
const LINK_BYTES_PER_S: f64 = 50e6;
/// Decides which packets are lost.
const SEED: u64 = 20_261_129;
/// Bytes of each topic in a full run: more than the link carries before and in the window.
const TOPIC_BYTES: u64 = 1_200_000_000;
const RECORD_BYTES: u64 = 1_000;
/// From the first byte at the destination to the window: congestion control and answer sizes find
/// the line.
const RAMP_S: u64 = 6;
/// Length of the window in a full run.
const WINDOW_S: u64 = 10;
const FIRST_BYTE_LIMIT: Duration = Duration::from_secs(60);
const FILL_LIMIT: Duration = Duration::from_secs(600);
const COMPARE_BYTES: usize = 1 << 20;

/// One shape of the row.
#[derive(Clone, Copy, Debug)]
struct Cell {
    title: &'static str,
    topic: &'static str,
    partitions: i32,
    congestion_control: &'static str,
}

const CELLS: [Cell; 4] = [
    cell("1 partition", "wan-1", 1, "bbr"),
    cell("8 partitions", "wan-8", 8, "bbr"),
    cell("500 partitions", "wan-500", 500, "bbr"),
    cell("8 partitions, cubic at the source", "wan-8", 8, "cubic"),
];

const fn cell(
    title: &'static str,
    topic: &'static str,
    partitions: i32,
    congestion_control: &'static str,
) -> Cell {
    Cell {
        title,
        topic,
        partitions,
        congestion_control,
    }
}

/// The scenario.
#[derive(Debug)]
pub struct LongLine;

impl Scenario for LongLine {
    fn name(&self) -> &'static str {
        "wan"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["X8"]
    }

    fn rival(&self) -> Option<Side> {
        None
    }

    fn about(&self) -> &'static str {
        "The source Kafka runs in a network namespace behind two TUN devices and a forwarder of the harness (50 ms each way, 50 MB/s, a queue \
         of one bandwidth-delay product, 0.1 % of the packets lost at random, both directions, seeded); Tarn runs outside with its defaults. \
         The source is set up as a host that serves distant readers: BBR, send buffers up to 32 MiB (net.ipv4.tcp_wmem) and \
         socket.send.buffer.bytes=-1; with the broker's default of 100 KiB one connection carries about 2 MB/s whatever the reader does; \
         what its kernel learned of one cell's connections is not kept for the next (tcp_no_metrics_save). \
         Measured are the bytes of the .log files at the destination over 10 s, from 6 s after the first byte on; 50 MB/s counts headers, so \
         that 96.5 % is the most that record bytes can reach. The line with cubic at the source is a bound, not a goal. The copy is compared \
         byte by byte with the source afterwards."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        // Three topics at the source, one copy at a time.
        4 * ctx.scaled(TOPIC_BYTES, 100_000_000)
    }

    fn setup(&self, ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        let wan = Wan::open(SEED)?;
        ctx.progress("starting the source Kafka behind the line");
        let source = Kafka::start_measured_in(
            wan.namespace(),
            wan.inner_address(),
            &[
                ("socket.send.buffer.bytes", "-1"),
                ("log.retention.ms", "-1"),
            ],
        );
        let bytes = ctx.scaled(TOPIC_BYTES, 60_000_000);
        for cell in CELLS.iter().filter(|c| c.congestion_control == "bbr") {
            ctx.progress(format!("filling {} with {bytes} bytes", cell.topic));
            source
                .cluster()
                .create_topic(cell.topic, cell.partitions, json!({}));
            fill(&source, cell.topic, bytes / RECORD_BYTES);
        }
        Ok(Box::new(Line { wan, source }))
    }
}

struct Line {
    // The source ends before the namespace it runs in.
    source: Kafka,
    wan: Wan,
}

impl Rounds for Line {
    fn round(&mut self, ctx: &Ctx, _side: Side) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for cell in CELLS {
            samples.push(self.copy(ctx, cell)?);
        }
        Ok(samples)
    }
}

impl Line {
    fn copy(&self, ctx: &Ctx, cell: Cell) -> Result<Sample> {
        ctx.progress(format!("{}: copying over the line", cell.title));
        // Connections keep the congestion control that they were opened with.
        self.wan.set_congestion_control(cell.congestion_control)?;
        self.wan.set_shape(Shape::X8);
        let share = self.share(ctx, cell);
        self.wan.set_shape(Shape::CLEAR);
        Ok(Sample::new(
            "X8",
            cell.title,
            measure::PERCENT_OF_LINK,
            share?,
        ))
    }

    fn share(&self, ctx: &Ctx, cell: Cell) -> Result<f64> {
        let mut tarn = ctx.tarn(&[]);
        tarn.create_mirror("m", &self.source.bootstrap(), &[]);
        tarn.mirrors_ok(&["--add", "--mirror", "m", "--topic", cell.topic]);
        let held = |tarn: &Tarn| copied(tarn, cell);
        let begun = Instant::now();
        while held(&tarn) == 0 {
            ensure!(
                begun.elapsed() < FIRST_BYTE_LIMIT,
                "no byte of {} came over the line within {FIRST_BYTE_LIMIT:?}",
                cell.topic
            );
            std::thread::sleep(Duration::from_millis(50));
        }
        std::thread::sleep(Duration::from_secs(ctx.scaled(RAMP_S, 1)));
        let (before, own, started) = (held(&tarn), self.wan.processor_time(), Instant::now());
        let lost = self.wan.traffic();
        std::thread::sleep(Duration::from_secs(ctx.scaled(WINDOW_S, 1)));
        let (bytes, seconds) = (held(&tarn) - before, started.elapsed().as_secs_f64());
        let own = (self.wan.processor_time() - own).as_secs_f64() / seconds;
        let traffic = self.wan.traffic();
        let whole = self.source_bytes(cell);
        if ctx.scale() >= 1.0 && before + bytes >= whole {
            ctx.remark(format!(
                "{}: the topic ended before the window did, so the figure is too low",
                cell.title
            ));
        }
        ctx.remark(format!(
            "{}: the forwarder used {:.0} % of a core, lost {} packets at random and dropped {} at a full queue",
            cell.title,
            100.0 * own,
            traffic.lost - lost.lost,
            traffic.overflowed - lost.overflowed
        ));
        self.wan.set_shape(Shape::CLEAR);
        tarn.process().kill();
        self.compare(&tarn, cell)?;
        Ok(100.0 * bytes as f64 / seconds / LINK_BYTES_PER_S)
    }

    fn source_bytes(&self, cell: Cell) -> u64 {
        let dir = |p| self.source.partition_dir(cell.topic, p);
        (0..cell.partitions).map(|p| log_bytes(&dir(p))).sum()
    }

    /// What was copied so far must be the begin of what the source has.
    fn compare(&self, tarn: &Tarn, cell: Cell) -> Result<()> {
        for partition in 0..cell.partitions {
            let ours = tarn.partition_dir(cell.topic, partition);
            let theirs = self.source.partition_dir(cell.topic, partition);
            for name in log_files(&ours) {
                ensure!(
                    is_begin_of(&ours.join(&name), &theirs.join(&name))?,
                    "{}-{partition}: {name} differs from the source's",
                    cell.topic
                );
            }
        }
        Ok(())
    }
}

fn copied(tarn: &Tarn, cell: Cell) -> u64 {
    (0..cell.partitions)
        .map(|p| log_bytes(&tarn.partition_dir(cell.topic, p)))
        .sum()
}

fn log_files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().into_string().ok())
        .filter(|name| name.ends_with(".log"))
        .collect()
}

fn log_bytes(dir: &Path) -> u64 {
    let length = |name: &String| std::fs::metadata(dir.join(name)).map_or(0, |m| m.len());
    log_files(dir).iter().map(length).sum()
}

fn is_begin_of(part: &Path, whole: &Path) -> Result<bool> {
    let open = |path: &Path| File::open(path).with_context(|| path.display().to_string());
    let (mut part, mut whole) = (open(part)?, open(whole)?);
    let (mut a, mut b) = (vec![0; COMPARE_BYTES], vec![0; COMPARE_BYTES]);
    loop {
        let n = part.read(&mut a)?;
        if n == 0 {
            return Ok(true);
        }
        if whole.read_exact(&mut b[..n]).is_err() || a[..n] != b[..n] {
            return Ok(false);
        }
    }
}

fn fill(source: &Kafka, topic: &str, records: u64) {
    let (count, size) = (records.to_string(), RECORD_BYTES.to_string());
    let bootstrap = format!("bootstrap.servers={}", source.bootstrap());
    let output = tools::run_within(
        "org.apache.kafka.tools.ProducerPerformance",
        &[
            "--topic",
            topic,
            "--num-records",
            &count,
            "--record-size",
            &size,
            "--throughput",
            "-1",
            "--producer-props",
            &bootstrap,
            "acks=1",
            "batch.size=262144",
            "linger.ms=5",
            "buffer.memory=134217728",
        ],
        FILL_LIMIT,
    );
    assert_eq!(output.code, 0, "filling {topic}: {output:?}");
}
