//! The floor under P1 and P2: what a request costs that is only received, written to a file and
//! answered, without looking at it. No broker runs.

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

const FILES: usize = 8;
const ANSWER: [u8; 70] = [7; 70];

/// What is asked: one request in flight on each connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bare {
    pub(super) connections: usize,
    pub(super) request_bytes: usize,
    /// The part of a request that is written to a file.
    pub(super) logged_bytes: usize,
}

/// As P2 has them: a Produce with one record of 100 bytes, and its batch in the log.
pub(super) const SMALL: Bare = Bare {
    connections: 50,
    request_bytes: 230,
    logged_bytes: 170,
};
/// As P1 has them: a Produce with a batch of 256 KiB.
pub(super) const LARGE: Bare = Bare {
    connections: 8,
    request_bytes: 256 * 1024 + 60,
    logged_bytes: 256 * 1024,
};
const EVENTS_MAX: usize = 64;
/// A side that hears nothing for so long gives up.
const SILENCE_MAX: Timespec = Timespec {
    tv_sec: 10,
    tv_nsec: 0,
};

/// A connection and what has arrived of its request.
struct Served {
    stream: TcpStream,
    request: Vec<u8>,
    here: usize,
}

/// Processor seconds that `threads` serving threads use for `requests` of `bare`, all together.
///
/// # Errors
/// When sockets or files fail.
pub(super) fn processor_s(dir: &Path, bare: Bare, threads: usize, requests: u64) -> Result<f64> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let (mut clients, mut served) = (Vec::new(), Vec::new());
    served.resize_with(threads, Vec::new);
    for at in 0..bare.connections {
        clients.push(TcpStream::connect(listener.local_addr()?)?);
        served[at % threads].push(Served {
            stream: listener.accept()?.0,
            request: vec![0; bare.request_bytes],
            here: 0,
        });
    }
    let open = |at: usize| File::create(dir.join(format!("bare-{at}"))).context("a file to write");
    let files = (0..FILES).map(open).collect::<Result<Vec<_>>>()?;
    let ends: Vec<AtomicU64> = files.iter().map(|_| AtomicU64::new(0)).collect();
    std::thread::scope(|scope| -> Result<f64> {
        let serving: Vec<_> = served
            .into_iter()
            .map(|streams| scope.spawn(|| serve(streams, bare.logged_bytes, &files, &ends)))
            .collect();
        ask(clients, bare.request_bytes, requests)?;
        let mut sum = 0.0;
        for thread in serving {
            sum += thread.join().map_err(|_| anyhow!("a thread panicked"))??;
        }
        Ok(sum)
    })
}

/// Serves until all connections are closed; gives its processor seconds.
fn serve(
    mut served: Vec<Served>,
    logged_bytes: usize,
    files: &[File],
    ends: &[AtomicU64],
) -> Result<f64> {
    let epoll = watch(served.iter().map(|s| &s.stream))?;
    let begun = thread_processor_s();
    let (mut open, mut turn) = (served.len(), 0);
    while open > 0 {
        for at in wait(&epoll)? {
            let Served {
                stream,
                request,
                here,
            } = &mut served[at];
            let read = stream.read(&mut request[*here..])?;
            if read == 0 {
                epoll::delete(&epoll, &*stream)?;
                open -= 1;
                continue;
            }
            *here += read;
            if *here < request.len() {
                continue;
            }
            *here = 0;
            turn += 1;
            let offset = ends[turn % FILES].fetch_add(logged_bytes as u64, Ordering::Relaxed);
            files[turn % FILES].write_all_at(&request[..logged_bytes], offset)?;
            stream.write_all(&ANSWER)?;
        }
    }
    Ok(thread_processor_s() - begun)
}

fn ask(mut streams: Vec<TcpStream>, request_bytes: usize, requests: u64) -> Result<()> {
    let epoll = watch(&streams)?;
    let request = vec![7; request_bytes];
    let mut buffer = [0; 4096];
    for stream in &mut streams {
        stream.write_all(&request)?;
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
                streams[at].write_all(&request)?;
                sent += 1;
            }
        }
    }
    Ok(())
}

fn watch<'a>(streams: impl IntoIterator<Item = &'a TcpStream>) -> Result<OwnedFd> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for (at, stream) in streams.into_iter().enumerate() {
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
        for (bare, requests) in [(SMALL, 1_000), (LARGE, 50)] {
            let dir = tempfile::tempdir().unwrap();
            let cost = processor_s(dir.path(), bare, 2, requests).unwrap();
            assert!(cost > 0.0);
            let length = |at| {
                std::fs::metadata(dir.path().join(format!("bare-{at}")))
                    .unwrap()
                    .len()
            };
            let written: u64 = (0..FILES).map(length).sum();
            assert_eq!(written, requests * bare.logged_bytes as u64, "{bare:?}");
        }
    }
}
