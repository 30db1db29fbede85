//! What a link does to one packet, as arithmetic on time: lost, dropped at a full queue, or
//! delivered later. Pure; knows no device.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Packets kept for use again, each as large as the largest packet.
const SPARE_MAX: usize = 4_096;

/// What a link does.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// Added to every packet in each direction.
    pub one_way: Duration,
    /// Bytes per second in each direction, headers included; `None` = no limit.
    pub rate: Option<u64>,
    /// Longest time a packet may wait for the link before the queue drops it; one round trip makes
    /// a queue of one bandwidth-delay product.
    pub queue: Duration,
    /// Share of packets lost at random, from 0 to 1.
    pub loss: f64,
}

impl Shape {
    /// A link that only forwards.
    pub const CLEAR: Shape = Shape {
        one_way: Duration::ZERO,
        rate: None,
        queue: Duration::ZERO,
        loss: 0.0,
    };

    /// The link of row X8: 100 ms round trip, 50 MB/s, 0.1 % loss, a queue of one bandwidth-delay
    /// product.
    pub const X8: Shape = Shape {
        one_way: Duration::from_millis(50),
        rate: Some(50_000_000),
        queue: Duration::from_millis(100),
        loss: 0.001,
    };
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It comes out later.
    Queued,
    /// Lost at random.
    Lost,
    /// The queue in front of the link was full.
    Overflowed,
}

/// One direction of a link.
#[derive(Debug)]
pub(super) struct Direction {
    /// When the last packet that was taken has left the sender's end.
    free_at: Option<Instant>,
    waiting: VecDeque<(Instant, Vec<u8>)>,
    spare: Vec<Vec<u8>>,
    random: u64,
}

impl Direction {
    pub(super) fn new(seed: u64) -> Direction {
        Direction {
            free_at: None,
            waiting: VecDeque::new(),
            spare: Vec::new(),
            // Zero is the one state that xorshift never leaves.
            random: seed | 1,
        }
    }

    /// Takes a packet that arrived at the link.
    pub(super) fn take(&mut self, shape: &Shape, now: Instant, packet: &[u8]) -> Fate {
        if shape.loss > 0.0 && self.draw() < shape.loss {
            return Fate::Lost;
        }
        let mut leaves_at = self.free_at.map_or(now, |free| free.max(now));
        if let Some(rate) = shape.rate {
            if leaves_at.saturating_duration_since(now) > shape.queue {
                return Fate::Overflowed;
            }
            leaves_at += Duration::from_nanos(packet.len() as u64 * 1_000_000_000 / rate.max(1));
        }
        self.free_at = Some(leaves_at);
        let mut kept = self.spare.pop().unwrap_or_default();
        kept.clear();
        kept.extend_from_slice(packet);
        self.waiting.push_back((leaves_at + shape.one_way, kept));
        Fate::Queued
    }

    /// When the next packet comes out.
    pub(super) fn next_at(&self) -> Option<Instant> {
        self.waiting.front().map(|(at, _)| *at)
    }

    /// The next packet that is due.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<u8>> {
        if self.next_at()? > now {
            return None;
        }
        self.waiting.pop_front().map(|(_, packet)| packet)
    }

    /// Takes a delivered packet's memory back.
    pub(super) fn give_back(&mut self, packet: Vec<u8>) {
        if self.spare.len() < SPARE_MAX {
            self.spare.push(packet);
        }
    }

    /// The next number of the seeded sequence, from 0 up to 1 (xorshift64*).
    fn draw(&mut self) -> f64 {
        self.random ^= self.random >> 12;
        self.random ^= self.random << 25;
        self.random ^= self.random >> 27;
        let mixed = self.random.wrapping_mul(0x2545_f491_4f6c_dd1d);
        (mixed >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_comes_out_after_its_way_and_its_own_length() {
        let (mut link, now) = (Direction::new(1), Instant::now());
        let shape = Shape {
            loss: 0.0,
            ..Shape::X8
        };
        assert_eq!(link.take(&shape, now, &[0; 1_000]), Fate::Queued);
        let at = link.next_at().expect("it waits");
        assert_eq!(at - now, Duration::from_micros(50_020));
        assert!(link.due(at - Duration::from_nanos(1)).is_none());
        assert_eq!(link.due(at).map(|p| p.len()), Some(1_000));
    }

    #[test]
    fn the_queue_holds_one_bandwidth_delay_product_and_drops_the_rest() {
        let (mut link, now) = (Direction::new(1), Instant::now());
        let shape = Shape {
            loss: 0.0,
            ..Shape::X8
        };
        let taken = (0..10_000)
            .filter(|_| link.take(&shape, now, &[0; 1_000]) == Fate::Queued)
            .count();
        assert!((5_000..5_003).contains(&taken), "{taken}");
    }

    #[test]
    fn the_rate_holds_over_a_second() {
        let (mut link, start) = (Direction::new(1), Instant::now());
        let shape = Shape {
            loss: 0.0,
            ..Shape::X8
        };
        let sent: usize = (0..100_000)
            .filter(|i| {
                let now = start + Duration::from_micros(10 * i);
                link.take(&shape, now, &[0; 1_000]) == Fate::Queued
            })
            .count();
        // One second at full rate and what the queue holds at the end.
        assert!((54_900..55_100).contains(&sent), "{sent}");
    }

    #[test]
    fn one_packet_in_a_thousand_is_lost_and_the_same_ones_with_the_same_seed() {
        let lost = |seed| {
            let (mut link, now) = (Direction::new(seed), Instant::now());
            let shape = Shape {
                rate: None,
                ..Shape::X8
            };
            (0..100_000)
                .filter(|_| link.take(&shape, now, &[0; 40]) == Fate::Lost)
                .collect::<Vec<_>>()
        };
        assert!((60..140).contains(&lost(7).len()), "{}", lost(7).len());
        assert_eq!(lost(7), lost(7));
        assert_ne!(lost(7), lost(9));
    }
}
