//! What the machine itself gives: copying memory, checksums, the disk. The bounds beside which the
//! other figures are read.

use std::fs::File;
use std::io::{Seek, Write};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::bare_requests::{self, LARGE, SMALL};
use crate::rows::measure;
use crate::scenario::{Ctx, Rounds, Sample, Scenario, Side};

const MIB: usize = 1024 * 1024;
/// What each piece of the copy and checksum loops holds: small enough for the second-level cache.
const HOT_BYTES: usize = 256 * 1024;
/// Appended in the disk loops of a full run.
const DISK_BYTES: u64 = 1_000_000_000;
const SMALL_SYNCS: u64 = 4_000;
const LOOP_MS: u64 = 500;
const BARE_REQUESTS: u64 = 500_000;

/// The scenario.
#[derive(Debug)]
pub struct MachineLimits;

impl Scenario for MachineLimits {
    fn name(&self) -> &'static str {
        "machine-limits"
    }

    fn rows(&self) -> &'static [&'static str] {
        &["M1"]
    }

    fn rival(&self) -> Option<Side> {
        None
    }

    fn about(&self) -> &'static str {
        "No broker runs. One thread copies 256 KiB again and again, takes its CRC-32C, and appends 1 GB to a file in the folder where the \
         brokers keep their data: in pieces of 256 KiB with one fdatasync at the end, in pieces of 1 MiB with an fdatasync each, and in \
         pieces of 4 KiB with an fdatasync each. Then one or two threads serve 50 connections that have one request of 230 bytes in flight \
         each: it is received, 170 bytes go to one of 8 files, 70 bytes are the answer, and nothing else is done. Two threads do the same for \
         1 GB in requests of 256 KiB over 8 connections, all of which is written; nothing is synced."
    }

    fn runs_systems(&self) -> bool {
        false
    }

    fn disk_bytes(&self, ctx: &Ctx) -> u64 {
        ctx.scaled(DISK_BYTES, MIB as u64)
    }

    fn setup(&self, _ctx: &Ctx) -> Result<Box<dyn Rounds + '_>> {
        Ok(Box::new(Loops))
    }
}

struct Loops;

impl Rounds for Loops {
    fn round(&mut self, ctx: &Ctx, _side: Side) -> Result<Vec<Sample>> {
        let scratch = ctx.scratch("machine");
        let mut file = File::create(scratch.path().join("appended")).context("a file to append")?;
        let bytes = ctx.scaled(DISK_BYTES, MIB as u64);
        let piece: Vec<u8> = (0..MIB).map(|i| (i * 31 % 251) as u8).collect();
        let span = Duration::from_millis(ctx.scaled(LOOP_MS, 20));
        let sample = |cell: &str, measure, value| Sample::new("M1", cell, measure, value);
        let mut samples = vec![
            sample(
                "copy of 256 KiB",
                measure::GB_PER_S,
                repeat(span, copy(&piece)),
            ),
            sample(
                "CRC-32C of 256 KiB",
                measure::GB_PER_S,
                repeat(span, checksum(&piece)),
            ),
        ];
        ctx.progress("appending");
        ctx.warm_pages(bytes)?;
        let whole = append(&mut file, bytes, &piece[..HOT_BYTES], false)?;
        samples.push(sample("append, one fdatasync", measure::MB_PER_S, whole));
        let synced = append(&mut file, bytes, &piece, true)?;
        samples.push(sample(
            "append, fdatasync each 1 MiB",
            measure::MB_PER_S,
            synced,
        ));
        for (threads, cell) in [
            (1, "receive, write, answer; 1 thread"),
            (2, "receive, write, answer; 2 threads"),
        ] {
            let requests = ctx.scaled(BARE_REQUESTS, 1_000);
            let spent = bare_requests::processor_s(scratch.path(), SMALL, threads, requests)?;
            samples.push(sample(
                cell,
                measure::PROCESSOR_S_PER_1000_REQUESTS,
                spent / (requests as f64 / 1e3),
            ));
        }
        let requests = bytes / LARGE.logged_bytes as u64 + 1;
        ctx.warm_pages(bytes)?;
        let spent = bare_requests::processor_s(scratch.path(), LARGE, 2, requests)?;
        samples.push(sample(
            "receive, write, answer; 256 KiB",
            measure::PROCESSOR_S_PER_GB,
            spent / (requests as f64 * LARGE.logged_bytes as f64 / 1e9),
        ));
        let times = small_syncs(&mut file, ctx.scaled(SMALL_SYNCS, 50))?;
        for (measure, share) in [
            (measure::P50_MS, 0.5),
            (measure::P99_MS, 0.99),
            (measure::P999_MS, 0.999),
        ] {
            let at = ((times.len() as f64 * share) as usize).min(times.len() - 1);
            samples.push(sample("4 KiB and fdatasync", measure, times[at]));
        }
        Ok(samples)
    }
}

fn copy(piece: &[u8]) -> impl FnMut() -> usize {
    let mut to = vec![0; HOT_BYTES];
    move || {
        to.copy_from_slice(&piece[..HOT_BYTES]);
        std::hint::black_box(&to);
        HOT_BYTES
    }
}

fn checksum(piece: &[u8]) -> impl FnMut() -> usize {
    move || {
        let sum = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, &piece[..HOT_BYTES]);
        std::hint::black_box(sum);
        HOT_BYTES
    }
}

/// GB a second of `step`, which says how many bytes it moved.
fn repeat(span: Duration, mut step: impl FnMut() -> usize) -> f64 {
    let started = Instant::now();
    let mut bytes = 0;
    while started.elapsed() < span {
        bytes += step();
    }
    bytes as f64 / 1e9 / started.elapsed().as_secs_f64()
}

/// MB a second of appending `bytes` to an emptied file, synced at the end at the latest.
fn append(file: &mut File, bytes: u64, piece: &[u8], sync_each: bool) -> Result<f64> {
    file.set_len(0)?;
    file.rewind()?;
    let started = Instant::now();
    let mut written = 0;
    while written < bytes {
        file.write_all(piece).context("the disk took no more")?;
        written += piece.len() as u64;
        if sync_each {
            file.sync_data()?;
        }
    }
    file.sync_data()?;
    Ok(written as f64 / 1e6 / started.elapsed().as_secs_f64())
}

/// Milliseconds of each write of 4 KiB with its fdatasync, in order of size.
fn small_syncs(file: &mut File, count: u64) -> Result<Vec<f64>> {
    let piece = [7; 4096];
    let mut times = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        file.write_all(&piece)?;
        file.sync_data()?;
        times.push(started.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}
