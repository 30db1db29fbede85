//! The floor under P2: what a request costs that is only received, written to a file and answered, without looking at it. No broker runs.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};

use crate::load::clock::thread_processor_s;

/// As P2 has them.
const CONNECTIONS: usize = 50;
const FILES: usize = 8;
/// A Produce with one record of 100 bytes, its batch in the log, and its answer.
const REQUEST: [u8; 230] = [7; 230];
const LOGGED: [u8; 170] = [7; 170];
const ANSWER: [u8; 70] = [7; 70];
const EVENTS_MAX: usize = 64;
/// A side that hears nothing for so long gives up.
const SILENCE_MAX: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// Processor seconds that `threads` serving threads use for 1,000 requests, when `requests` come over 50 connections with one in flight each.
///
/// # Errors
/// When sockets or files fail.
pub(super) fn processor_s_per_1000(dir: &Path, threads: usize, requests: u64) -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    served.resize_with(threads, Vec::new);
    for at in 0..CONNECTIONS {
        clients.push(TcpStream::connect(listener.local_addr()?)?);
        served[at % threads].push(listener.accept()?.0);
    }
    let open = |at: usize| File::create(dir.join(format!("bare-{at}"))).context("a file to write");
    let files = (0..FILES).map(open).collect::<Result<Vec<_>>>()?;
    let ends: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
    let processor_s = std::thread::scope(|scope| -> Result<f64> {
        let serving: Vec<_> = served
            .into_iter()
            .map(|streams| scope.spawn(|| serve(streams, &files, &ends)))
            .collect();
        ask(clients, requests)?;
        let mut sum = 0.0;
        for thread in serving {
            sum += thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(sum)
    })?;
    Ok(processor_s / (requests as f64 / 1e3))
}

/// Serves until all connections are closed; gives its processor seconds.
fn serve(mut streams: Vec<TcpStream>, files: &[File], ends: &[AtomicU64]) -> Result<f64> {
    let epoll = watch(&streams)?;
    let begun = thread_processor_s();
    let (mut open, mut turn, mut buffer) = (streams.len(), 0, [0; 4096]);
    while open > 0 {
        for at in wait(&epoll)? {
            if streams[at].read(&mut buffer)? == 0 {
                epoll::delete(&epoll, &streams[at])?;
                open -= 1;
                continue;
            }
            turn += 1;
            let offset = ends[turn % FILES].fetch_add(LOGGED.len() as u64, Ordering::Relaxed);
            files[turn % FILES].write_all_at(&LOGGED, offset)?;
            streams[at].write_all(&ANSWER)?;
        }
    }
    Ok(thread_processor_s() - begun)
}

fn ask(mut streams: Vec<TcpStream>, requests: u64) -> Result<()> {
    let epoll = watch(&streams)?;
    let mut buffer = [0; 4096];
    for stream in &mut streams {
        stream.write_all(&REQUEST)?;
    }
    let (mut sent, mut answered) = (streams.len() as u64, 0);
    while answered < sent {
        for at in wait(&epoll)? {
            ensure!(
                streams[at].read(&mut buffer)? > 0,
                "a connection was closed"
            );
            answered += 1;
            if sent < requests {
                streams[at].write_all(&REQUEST)?;
                sent += 1;
            }
        }
    }
    Ok(())
}

fn watch(streams: &[TcpStream]) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, stream) in streams.iter().enumerate() {
        stream.set_nodelay(true)?;
        let data = epoll::EventData::new_u64(at as u64);
        epoll::add(&epoll, stream, data, epoll::EventFlags::IN)?;
    }
    Ok(epoll)
}

/// Which streams have something to read.
fn wait(epoll: &OwnedFd) -> Result<impl Iterator<Item = usize>> {
    let mut events = Vec::with_capacity(EVENTS_MAX);
    epoll::wait(epoll, spare_capacity(&mut events), Some(&SILENCE_MAX))?;
    ensure!(!events.is_empty(), "nothing was heard");
    Ok(events.into_iter().map(|event| event.data.u64() as usize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_request_is_written_and_answered() {
        let dir = tempfile::tempdir().unwrap();
        let cost = processor_s_per_1000(dir.path(), 2, 1_000).unwrap();
        assert!(cost > 0.0);
        let length = |at| {
            std::fs::metadata(dir.path().join(format!("bare-{at}")))
                .unwrap()
                .len()
        };
        let written: u64 = (0..FILES).map(length).sum();
        assert_eq!(written, 1_000 * LOGGED.len() as u64);
    }
}
