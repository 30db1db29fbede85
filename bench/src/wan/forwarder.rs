//! The thread that moves packets between two TUN devices through the model of a link. Owns the
//! devices; knows nothing of addresses.

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{ClockId, clock_gettime};
use tun_rs::SyncDevice;

use super::link::{Direction, Fate, Shape};

/// Largest packet of a device (its MTU is below this).
const PACKET_BYTES_MAX: usize = 2_048;
/// Packets taken from one device before the other one gets its turn.
const TURN_PACKETS: usize = 64;
/// How often the thread looks whether it shall end, while nothing moves.
const IDLE_WAIT: Duration = Duration::from_millis(20);

/// What went over the link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes delivered to the outside, headers included.
    pub outward_bytes: u64,
    /// Bytes delivered into the namespace, headers included.
    pub inward_bytes: u64,
    /// Packets lost at random, both directions.
    pub lost: u64,
    /// Packets a full queue dropped, both directions.
    pub overflowed: u64,
}

#[derive(Debug)]
struct Shared {
    shape: Mutex<Shape>,
    ended: AtomicBool,
    outward_bytes: AtomicU64,
    inward_bytes: AtomicU64,
    lost: AtomicU64,
    overflowed: AtomicU64,
    processor_ns: AtomicU64,
}

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Forwarder {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Starts forwarding between the two devices.
    pub(super) fn start(outer: SyncDevice, inner: SyncDevice, seed: u64) -> Result<Forwarder> {
        for device in [&outer, &inner] {
            device
                .set_nonblocking(true)
                .context("cannot make a TUN device non-blocking")?;
        }
        let shared = Arc::new(Shared {
            shape: Mutex::new(Shape::CLEAR),
            ended: AtomicBool::new(false),
            outward_bytes: AtomicU64::new(0),
            inward_bytes: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            processor_ns: AtomicU64::new(0),
        });
        let work = shared.clone();
        let thread = std::thread::Builder::new()
            .name("wan".into())
            .spawn(move || run(&work, &outer, &inner, seed))
            .context("cannot start the thread of the WAN emulator")?;
        Ok(Forwarder {
            shared,
            thread: Some(thread),
        })
    }

    pub(super) fn set_shape(&self, shape: Shape) {
        *self.shared.shape.lock() = shape;
    }

    pub(super) fn traffic(&self) -> Traffic {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Traffic {
            outward_bytes: of(&self.shared.outward_bytes),
            inward_bytes: of(&self.shared.inward_bytes),
            lost: of(&self.shared.lost),
            overflowed: of(&self.shared.overflowed),
        }
    }

    pub(super) fn processor_time(&self) -> Duration {
        Duration::from_nanos(self.shared.processor_ns.load(Ordering::Relaxed))
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed when it happened.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared, outer: &SyncDevice, inner: &SyncDevice, seed: u64) {
    let mut outward = Direction::new(seed);
    let mut inward = Direction::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0xff);
    while !shared.ended.load(Ordering::Acquire) {
        let shape = *shared.shape.lock();
        take_in(shared, inner, &mut outward, &shape);
        take_in(shared, outer, &mut inward, &shape);
        deliver(&mut outward, outer, &shared.outward_bytes);
        deliver(&mut inward, inner, &shared.inward_bytes);
        wait(outer, inner, [outward.next_at(), inward.next_at()]);
        let used = clock_gettime(ClockId::ThreadCPUTime);
        let ns = used.tv_sec as u64 * 1_000_000_000 + used.tv_nsec as u64;
        shared.processor_ns.store(ns, Ordering::Relaxed);
    }
}

fn take_in(shared: &Shared, device: &SyncDevice, direction: &mut Direction, shape: &Shape) {
    let mut packet = [0; PACKET_BYTES_MAX];
    for _ in 0..TURN_PACKETS {
        match device.recv(&mut packet) {
            Ok(len) => match direction.take(shape, Instant::now(), &packet[..len]) {
                Fate::Queued => {}
                Fate::Lost => {
                    shared.lost.fetch_add(1, Ordering::Relaxed);
                }
                Fate::Overflowed => {
                    shared.overflowed.fetch_add(1, Ordering::Relaxed);
                }
            },
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            // Nothing there, or the device is going away with its namespace.
            Err(_) => return,
        }
    }
}

fn deliver(direction: &mut Direction, device: &SyncDevice, bytes: &AtomicU64) {
    while let Some(packet) = direction.due(Instant::now()) {
        // A packet the device does not take (it is down) is one more lost packet.
        if device.send(&packet).is_ok() {
            bytes.fetch_add(packet.len() as u64, Ordering::Relaxed);
        }
        direction.give_back(packet);
    }
}

/// Waits for a packet on either device or until one is due.
fn wait(outer: &SyncDevice, inner: &SyncDevice, due: [Option<Instant>; 2]) {
    let next = due.into_iter().flatten().min();
    let wait = next.map_or(IDLE_WAIT, |at| {
        at.saturating_duration_since(Instant::now()).min(IDLE_WAIT)
    });
    let timeout = Timespec {
        tv_sec: 0,
        tv_nsec: i64::from(wait.subsec_nanos()),
    };
    let mut devices = [
        PollFd::new(outer, PollFlags::IN),
        PollFd::new(inner, PollFlags::IN),
    ];
    // Interrupted or not: the loop looks at everything anyway.
    let _ = poll(&mut devices, Some(&timeout));
}
