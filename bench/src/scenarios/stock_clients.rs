//! P13 and P14: a broker as its users meet it, with Kafka's own performance tools at their defaults
//! and each broker with its own defaults.
//!
//! Not here: loads of our own generator (`broker_*`), which take less processor time from the
//! broker than a JVM does.

use std::time::Duration;

use anyhow::{Context, Result};
use tarn_tests::jars::{self, KAFKA_CURRENT, Logging};
use tarn_tests::process;

use super::broker::{Broker, PARTITIONS, VALUE_BYTES};
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

/// 1 GB of values.
const RECORDS: u64 = 1_000_000;
const RECORDS_LEAST: u64 = 20_000;
/// Sent before anything is measured: a JVM broker compiles its hot paths with it.
const KAFKA_WARM_RECORDS: u64 = 500_000;
const TARN_WARM_RECORDS: u64 = 200_000;
/// What Kafka's start scripts give these tools.
const TOOL_HEAP_MB: u32 = 512;
const TOOL_LIMIT: Duration = Duration::from_secs(300);

/// The scenario.
#[derive(Debug)]
pub struct StockClients;

impl Scenario for StockClients {
    fn name(&self) -> &'static str {
        "stock-clients"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["P13", "P14"]
    }

    fn rival(&self) -> Option<Side> {
        Some(Side::Kafka)
    }

    fn about(&self) -> &'static str {
        "ProducerPerformance and ConsumerPerformance of Kafka 4.3.1 as their scripts start them, no property but acks=all and the \
         address: 1,000,000 records of 1,000 bytes without a rate into 8 partitions, then read by one consumer. Tarn runs with its \
         defaults (log.ack.durability=disk: a sync before each acknowledgement), Kafka with its own (acknowledged from the page cache). \
         Before it 500,000 records to Kafka and 200,000 to Tarn, to another topic. Latency is the producer tool's own, from send to \
         acknowledgement, most of it spent in its own queue. All of it shares two processors with the tool."
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        ctx.scaled(2 * (RECORDS + KAFKA_WARM_RECORDS), 2 * RECORDS_LEAST) * VALUE_BYTES as u64
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Stock))
    }
}

struct Stock;

impl Rounds for Stock {
    fn round(&mut self, ctx: &Ctx, side: Side) -> Result<Vec<Sample>> {
        let broker = Broker::start(ctx, side, &[])?;
        ctx.progress("warm-up");
        broker.cluster.create_topic("warm-up", PARTITIONS, &[])?;
        let warm = broker.warm_up(KAFKA_WARM_RECORDS, TARN_WARM_RECORDS);
        produce(&broker, "warm-up", ctx.scaled(warm, RECORDS_LEAST))?;
        broker.cluster.create_topic("load", PARTITIONS, &[])?;
        let records = ctx.scaled(RECORDS, RECORDS_LEAST);
        ctx.warm_pages(records * VALUE_BYTES as u64)?;
        let gigabytes = (records * VALUE_BYTES as u64) as f64 / 1e9;

        ctx.progress("the stock producer");
        let meter = broker.meter();
        let produced =
            broker.profiled(ctx, "stock-produce", || produce(&broker, "load", records))?;
        let (used_s, _) = meter.read();
        let mut samples = vec![
            Sample::new("P13", "", measure::PROCESSOR_S_PER_GB, used_s / gigabytes),
            Sample::new("P13", "", measure::MB_PER_S, produced.megabytes_per_s),
            Sample::new("P13", "", measure::P50_MS, produced.p50_ms),
            Sample::new("P13", "", measure::P99_MS, produced.p99_ms),
            Sample::new("P13", "", measure::P999_MS, produced.p999_ms),
        ];

        ctx.progress("the stock consumer");
        let meter = broker.meter();
        let megabytes_per_s =
            broker.profiled(ctx, "stock-consume", || consume(&broker, "load", records))?;
        let (used_s, _) = meter.read();
        samples.extend([
            Sample::new("P14", "", measure::PROCESSOR_S_PER_GB, used_s / gigabytes),
            Sample::new("P14", "", measure::MB_PER_S, megabytes_per_s),
        ]);
        Ok(samples)
    }
}

/// What the producer tool says at its end.
#[derive(Debug, PartialEq)]
struct Produced {
    megabytes_per_s: f64,
    p50_ms: f64,
    p99_ms: f64,
    p999_ms: f64,
}

fn produce(broker: &Broker, topic: &str, records: u64) -> Result<Produced> {
    let (records, size) = (records.to_string(), VALUE_BYTES.to_string());
    let bootstrap = format!("bootstrap.servers={}", broker.bootstrap());
    let said = tool(
        "org.apache.kafka.tools.ProducerPerformance",
        &[
            "--topic",
            topic,
            "--num-records",
            &records,
            "--record-size",
            &size,
            "--throughput",
            "-1",
            "--producer-props",
            &bootstrap,
            "acks=all",
        ],
    )?;
    let line = said.lines().rfind(|line| line.contains("99.9th"));
    line.and_then(|line| produced(line, VALUE_BYTES))
        .with_context(|| format!("the producer tool said: {said}"))
}

/// Reads
/// `1000000 records sent, 91000.5 records/sec (86.79 MB/sec), 220.10 ms avg latency, 520.00 ms max latency, 210 ms 50th, 400 ms 95th, 450 ms 99th, 500 ms 99.9th.`
/// The tool's MB are MiB, so the rate is made from the records.
fn produced(line: &str, record_bytes: usize) -> Option<Produced> {
    let figure = |unit: &str| -> Option<f64> {
        let before = line.split_once(unit)?.0;
        before.split_whitespace().last()?.parse().ok()
    };
    Some(Produced {
        megabytes_per_s: figure(" records/sec")? * record_bytes as f64 / 1e6,
        p50_ms: figure(" ms 50th")?,
        p99_ms: figure(" ms 99th")?,
        p999_ms: figure(" ms 99.9th")?,
    })
}

fn consume(broker: &Broker, topic: &str, records: u64) -> Result<f64> {
    let records = records.to_string();
    let said = tool(
        "org.apache.kafka.tools.ConsumerPerformance",
        &[
            "--bootstrap-server",
            broker.bootstrap(),
            "--topic",
            topic,
            "--num-records",
            &records,
        ],
    )?;
    consumed(&said, &records).with_context(|| format!("the consumer tool said: {said}"))
}

/// Reads the table of the consumer tool: a line of names, a line of figures. `None` also when it
/// did not get every record. Its rate includes the time to join its group; the rate of fetching
/// alone does not.
fn consumed(said: &str, records: &str) -> Option<f64> {
    let mut lines = said.lines().filter(|line| line.contains(", "));
    let names: Vec<&str> = lines
        .find(|l| l.contains("fetch.MB.sec"))?
        .split(", ")
        .collect();
    let figures: Vec<&str> = lines.next()?.split(", ").collect();
    let figure = |name: &str| figures.get(names.iter().position(|n| *n == name)?).copied();
    let all: u64 = figure("data.consumed.in.nMsg")?.trim().parse().ok()?;
    (all >= records.parse().ok()?).then_some(())?;
    let mebibytes: f64 = figure("fetch.MB.sec")?.trim().parse().ok()?;
    Some(mebibytes * f64::from(1 << 20) / 1e6)
}

fn tool(class: &str, arguments: &[&str]) -> Result<String> {
    let scratch = process::Scratch::new("stock-client");
    let logging = Logging::write(scratch.path(), "WARN");
    let mut command = jars::java_full(KAFKA_CURRENT, TOOL_HEAP_MB, &logging);
    command.arg(class).args(arguments);
    let output = process::run(command, TOOL_LIMIT)?;
    anyhow::ensure!(
        output.code == 0,
        "{class} ended with {}: {}{}",
        output.code,
        output.stdout,
        output.stderr
    );
    Ok(output.stdout)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_producer_tool_is_read() {
        let line = "1000000 records sent, 91000.5 records/sec (86.79 MB/sec), 220.10 ms avg latency, 520.00 ms max latency, \
                    210 ms 50th, 400 ms 95th, 450 ms 99th, 500 ms 99.9th.";
        let want = Produced {
            megabytes_per_s: 91.0005,
            p50_ms: 210.0,
            p99_ms: 450.0,
            p999_ms: 500.0,
        };
        assert_eq!(produced(line, 1000), Some(want));
        assert_eq!(produced("5 records sent", 1000), None);
    }

    #[test]
    fn the_consumer_tool_is_read_and_must_have_read_everything() {
        let said = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, rebalance.time.ms, fetch.time.ms, \
                    fetch.MB.sec, fetch.nMsg.sec\n\
                    2026-12-01 07:00:00:000, 2026-12-01 07:00:05:000, 953.6743, 190.7349, 1000000, 200000.0, 1000, 4000, 250.0, 262144.0\n";
        assert_eq!(consumed(said, "1000000"), Some(262.144));
        assert_eq!(consumed(said, "1000001"), None);
    }
}
