//! One thread that sends prepared requests over many sockets and times the answers: an event loop
//! without allocation per request.
//!
//! What is sent and when it is due stands in the [`Plan`]; answers are checked by `request`.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::num::NonZeroU64;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, bail, ensure};
use rustix::buffer::spare_capacity;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::fd::OwnedFd;

use super::batch::Random;
use super::clock::{NS_PER_S, now_ns, thread_processor_s};
use super::histogram::Histogram;
use super::produce::Produced;
use super::request::{Template, check_answer};

/// Events taken from the kernel at once.
const EVENTS_MAX: usize = 256;
/// Pieces handed to the kernel at once.
const PIECES_MAX: usize = 64;
/// Bytes read at once; answers are small.
const READ_BYTES: usize = 64 * 1024;
/// Largest answer.
const ANSWER_BYTES_MAX: usize = 1 << 20;
/// Longest sleep, so that a stop from outside is seen.
const SLEEP_NS_MAX: u64 = 50_000_000;
/// ApiVersions version 0 without a client id, its correlation id −1: the answer proves that the
/// broker took everything before it.
const BARRIER: [u8; 14] = [0, 0, 0, 10, 0, 18, 0, 0, 255, 255, 255, 255, 255, 255];
const BARRIER_ID: i32 = -1;

/// What one thread has to do.
#[derive(Debug)]
pub(crate) struct Plan {
    /// Broker and usable templates of each connection.
    pub(crate) connections: Vec<(SocketAddr, Range<usize>)>,
    pub(crate) templates: Vec<Template>,
    pub(crate) version: i16,
    pub(crate) acks: i16,
    /// Partitions in a request.
    pub(crate) partitions: usize,
    pub(crate) in_flight: usize,
    /// Whether templates are chosen at random instead of one after the other.
    pub(crate) keyed: bool,
    pub(crate) seed: u64,
    pub(crate) requests: u64,
    pub(crate) start_ns: u64,
    /// Distance of requests; `None`: as fast as answers come.
    pub(crate) interval_ns: Option<f64>,
    pub(crate) count_from_ns: u64,
    pub(crate) limit_ns: u64,
    pub(crate) stop: Arc<AtomicBool>,
}

struct Connection {
    stream: TcpStream,
    templates: Range<usize>,
    next_template: usize,
    next_id: i32,
    /// Due times of requests that are not sent yet.
    waiting: VecDeque<u64>,
    /// Ids and due times of requests without an answer.
    flying: VecDeque<(i32, u64)>,
    /// Small frames on their way, and how much of them is gone.
    out: Vec<u8>,
    out_done: usize,
    large: Option<Large>,
    /// An answer of which not all is here.
    part: Vec<u8>,
    watches_room: bool,
    barrier: bool,
}

/// A large frame on its way.
#[derive(Clone, Copy)]
struct Large {
    template: usize,
    /// Bytes that the kernel took.
    gone: usize,
    id: i32,
    due: u64,
}

struct Sender<'a> {
    plan: Plan,
    epoll: OwnedFd,
    connections: Vec<Connection>,
    random: Random,
    scratch: Vec<u8>,
    /// Requests given to connections.
    issued: u64,
    done: u64,
    /// No more requests are issued.
    ending: bool,
    latency: Histogram,
    failed: &'a AtomicBool,
}

/// Runs `plan`; `failed` ends it early with an error.
pub(crate) fn run(plan: Plan, failed: &AtomicBool) -> Result<Produced> {
    // The default slack of 50 µs would be part of every latency.
    rustix::thread::set_current_timer_slack(NonZeroU64::new(1)).ok();
    let processor_before = thread_processor_s();
    let mut sender = Sender::connect(plan, failed)?;
    while now_ns() < sender.plan.start_ns {
        sender.sleep(sender.plan.start_ns)?;
    }
    let started_ns = now_ns();
    sender.serve()?;
    Ok(Produced {
        requests: sender.done,
        wall_s: (now_ns() - started_ns) as f64 / NS_PER_S,
        latency: sender.latency,
        processor_s: thread_processor_s() - processor_before,
        ..Produced::default()
    })
}

impl<'a> Sender<'a> {
    fn connect(plan: Plan, failed: &'a AtomicBool) -> Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let mut connections = Vec::with_capacity(plan.connections.len());
        for (at, (broker, templates)) in plan.connections.iter().enumerate() {
            let stream =
                TcpStream::connect(broker).with_context(|| format!("connect to {broker}"))?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            epoll::add(
                &epoll,
                &stream,
                epoll::EventData::new_u64(at as u64),
                epoll::EventFlags::IN,
            )?;
            ensure!(!templates.is_empty(), "{broker} leads no partition");
            connections.push(Connection {
                stream,
                templates: templates.clone(),
                // Neighbours start at different partitions.
                next_template: templates.start + at % templates.len(),
                next_id: 0,
                waiting: VecDeque::new(),
                flying: VecDeque::with_capacity(plan.in_flight),
                out: Vec::new(),
                out_done: 0,
                large: None,
                part: Vec::new(),
                watches_room: false,
                barrier: false,
            });
        }
        Ok(Self {
            random: Random::new(plan.seed),
            plan,
            epoll,
            connections,
            scratch: vec![0; READ_BYTES],
            issued: 0,
            done: 0,
            ending: false,
            latency: Histogram::default(),
            failed,
        })
    }

    fn serve(&mut self) -> Result<()> {
        let mut events: Vec<epoll::Event> = Vec::with_capacity(EVENTS_MAX);
        if self.plan.interval_ns.is_none() {
            for at in 0..self.connections.len() {
                self.pump(at)?;
            }
        }
        loop {
            let now = now_ns();
            ensure!(now < self.plan.limit_ns, "the load did not end in time");
            ensure!(
                !self.failed.load(Ordering::Relaxed),
                "another thread of the load failed"
            );
            let due = self.issue_due(now)?;
            self.ending |=
                self.issued >= self.plan.requests || self.plan.stop.load(Ordering::Relaxed);
            if self.ending && self.is_over()? {
                return Ok(());
            }
            self.sleep(due.unwrap_or(now + SLEEP_NS_MAX))?;
            let zero = Timespec::default();
            epoll::wait(&self.epoll, spare_capacity(&mut events), Some(&zero))?;
            for event in events.drain(..) {
                let at = event.data.u64() as usize;
                let flags = event.flags;
                if flags.contains(epoll::EventFlags::IN) {
                    self.read(at)?;
                }
                self.pump(at)?;
            }
        }
    }

    /// Hands out the requests that are due and gives the time of the next; `None` when the load is
    /// not paced or at its end.
    fn issue_due(&mut self, now: u64) -> Result<Option<u64>> {
        let Some(interval) = self.plan.interval_ns else {
            return Ok(None);
        };
        while !self.ending && self.issued < self.plan.requests {
            let due = self.plan.start_ns + (self.issued as f64 * interval) as u64;
            if due > now {
                return Ok(Some(due));
            }
            let at = (self.issued % self.connections.len() as u64) as usize;
            self.issued += 1;
            self.connections[at].waiting.push_back(due);
            self.pump(at)?;
        }
        Ok(None)
    }

    /// Sleeps until a socket is ready or `until_ns`.
    fn sleep(&self, until_ns: u64) -> Result<()> {
        let ns = until_ns.saturating_sub(now_ns()).min(SLEEP_NS_MAX);
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: ns as _,
        };
        let mut fds = [PollFd::new(&self.epoll, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether everything that was issued has been answered. With acks 0 an answer to something
    /// else proves it.
    fn is_over(&mut self) -> Result<bool> {
        let busy = |c: &Connection| {
            !(c.waiting.is_empty() && c.flying.is_empty() && c.large.is_none() && c.out.is_empty())
        };
        if self.connections.iter().any(busy) {
            return Ok(false);
        }
        if self.plan.acks != 0 || self.connections.iter().all(|c| c.barrier) {
            return Ok(true);
        }
        for at in 0..self.connections.len() {
            let connection = &mut self.connections[at];
            connection.barrier = true;
            connection.flying.push_back((BARRIER_ID, 0));
            connection.out.extend_from_slice(&BARRIER);
            self.pump(at)?;
        }
        Ok(false)
    }

    /// Sends what the connection may send, until the socket takes no more.
    fn pump(&mut self, at: usize) -> Result<()> {
        loop {
            if !self.connections[at].flush(&mut self.plan.templates)? {
                return self.watch_room(at, true);
            }
            if let Some(large) = self.connections[at].large.take() {
                self.sent(large.due);
            }
            let connection = &mut self.connections[at];
            // Small frames that are allowed at the same time leave together.
            let mut copied = false;
            while connection.flying.len() < self.plan.in_flight {
                let due = match self.plan.interval_ns {
                    Some(_) => match connection.waiting.pop_front() {
                        Some(due) => due,
                        None => break,
                    },
                    None if !self.ending && self.issued < self.plan.requests => {
                        self.issued += 1;
                        now_ns()
                    }
                    None => break,
                };
                let template = if self.plan.keyed {
                    connection.templates.start + self.random.below(connection.templates.len())
                } else {
                    let next = connection.next_template;
                    let after = next + 1;
                    connection.next_template = if after == connection.templates.end {
                        connection.templates.start
                    } else {
                        after
                    };
                    next
                };
                let id = connection.next_id;
                connection.next_id = id.wrapping_add(1).max(0);
                let frame = &mut self.plan.templates[template];
                if self.plan.acks != 0 {
                    connection.flying.push_back((id, due));
                }
                if !frame.is_small() {
                    connection.large = Some(Large {
                        template,
                        gone: 0,
                        id,
                        due,
                    });
                    copied = true;
                    break;
                }
                frame.set_correlation_id(id);
                frame.copy_to(&mut connection.out, due);
                copied = true;
                if self.plan.acks == 0 {
                    self.done += 1;
                    if connection.out.len() >= READ_BYTES {
                        break;
                    }
                }
            }
            if !copied {
                return self.watch_room(at, false);
            }
        }
    }

    /// Counts a large request of acks 0, which is done when it is sent.
    fn sent(&mut self, due: u64) {
        if self.plan.acks == 0 {
            self.done += 1;
            self.count(due, now_ns());
        }
    }

    fn count(&mut self, due: u64, now: u64) {
        if due >= self.plan.count_from_ns {
            self.latency.record(now.saturating_sub(due));
        }
    }

    fn watch_room(&mut self, at: usize, wanted: bool) -> Result<()> {
        let connection = &mut self.connections[at];
        if connection.watches_room == wanted {
            return Ok(());
        }
        connection.watches_room = wanted;
        let mut flags = epoll::EventFlags::IN;
        flags.set(epoll::EventFlags::OUT, wanted);
        epoll::modify(
            &self.epoll,
            &connection.stream,
            epoll::EventData::new_u64(at as u64),
            flags,
        )?;
        Ok(())
    }

    fn read(&mut self, at: usize) -> Result<()> {
        let read = match self.connections[at].stream.read(&mut self.scratch) {
            Ok(0) => bail!("the broker closed the connection"),
            Ok(read) => read,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                return Ok(());
            }
            Err(e) => return Err(e).context("reading answers"),
        };
        let now = now_ns();
        // The scratch and a cut answer are borrowed out of `self` and put back, so that neither is
        // copied.
        let mut part = std::mem::take(&mut self.connections[at].part);
        let scratch = std::mem::take(&mut self.scratch);
        let rest = if part.is_empty() {
            self.answers(at, &scratch[..read], now)?
        } else {
            part.extend_from_slice(&scratch[..read]);
            let rest = self.answers(at, &part, now)?.len();
            part.drain(..part.len() - rest);
            &[]
        };
        part.extend_from_slice(rest);
        self.scratch = scratch;
        self.connections[at].part = part;
        Ok(())
    }

    /// Takes all whole answers and gives what remains.
    fn answers<'b>(&mut self, at: usize, mut bytes: &'b [u8], now: u64) -> Result<&'b [u8]> {
        while let Some((length, rest)) = bytes.split_first_chunk::<4>() {
            let length = i32::from_be_bytes(*length);
            let length = usize::try_from(length)
                .ok()
                .filter(|l| *l <= ANSWER_BYTES_MAX)
                .with_context(|| format!("an answer of {length} bytes"))?;
            let Some((answer, rest)) = rest.split_at_checked(length) else {
                break;
            };
            bytes = rest;
            let Some((id, due)) = self.connections[at].flying.pop_front() else {
                bail!("an answer to nothing")
            };
            if id == BARRIER_ID {
                continue;
            }
            check_answer(answer, id, self.plan.version, self.plan.partitions)?;
            self.done += 1;
            self.count(due, now);
        }
        Ok(bytes)
    }
}

impl Connection {
    /// Writes what is on its way; whether all of it is gone.
    fn flush(&mut self, templates: &mut [Template]) -> Result<bool> {
        while self.out_done < self.out.len() {
            match self.stream.write(&self.out[self.out_done..]) {
                Ok(written) => self.out_done += written,
                Err(e) => return would_block(e),
            }
        }
        self.out.clear();
        self.out_done = 0;
        while let Some(large) = &mut self.large {
            let frame = &mut templates[large.template];
            if large.gone == frame.len {
                break;
            }
            // Other connections use the same template.
            frame.set_correlation_id(large.id);
            let mut slices = [IoSlice::new(&[]); PIECES_MAX];
            let (mut used, mut skip) = (0, large.gone);
            for piece in frame.pieces() {
                if skip >= piece.len() {
                    skip -= piece.len();
                } else if used < PIECES_MAX {
                    slices[used] = IoSlice::new(&piece[skip..]);
                    skip = 0;
                    used += 1;
                }
            }
            match self.stream.write_vectored(&slices[..used]) {
                Ok(written) => large.gone += written,
                Err(e) => return would_block(e),
            }
        }
        Ok(true)
    }
}

fn would_block(error: io::Error) -> Result<bool> {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::Interrupted => Ok(false),
        _ => Err(error).context("sending requests"),
    }
}
