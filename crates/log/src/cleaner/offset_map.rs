//! The newest offset of each key, in a fixed amount of memory. A key stands for itself by 128 bits
//! of two keyed hashes: two keys that meet in both by chance are not to be expected, and not to be
//! found by somebody who does not know the hash keys of this process.

use std::hash::{BuildHasher, RandomState};

/// An empty slot.
const NONE: i64 = -1;
/// The table is full at nine tenths.
const LOAD: (usize, usize) = (9, 10);
const SLOTS_MIN: usize = 16;

#[derive(Debug, Clone, Copy)]
struct Slot {
    hash: (u64, u64),
    offset: i64,
}

/// From keys to offsets, by open addressing.
#[derive(Debug)]
pub(crate) struct OffsetMap {
    slots: Vec<Slot>,
    used: usize,
    used_max: usize,
    hashers: (RandomState, RandomState),
}

impl OffsetMap {
    /// One that takes at most `bytes`, and no more than `keys` need.
    pub(crate) fn new(bytes: usize, keys: u64) -> OffsetMap {
        let needed = usize::try_from(keys).unwrap_or(usize::MAX);
        let needed = needed.saturating_mul(LOAD.1) / LOAD.0;
        let slots = (bytes / size_of::<Slot>())
            .min(needed.saturating_add(1))
            .max(SLOTS_MIN);
        let empty = Slot {
            hash: (0, 0),
            offset: NONE,
        };
        OffsetMap {
            slots: vec![empty; slots],
            used: 0,
            used_max: slots * LOAD.0 / LOAD.1,
            hashers: (RandomState::new(), RandomState::new()),
        }
    }

    /// Keys that can still be added.
    #[cfg(test)]
    fn room(&self) -> usize {
        self.used_max - self.used
    }

    /// Notes `offset` for `key`; later calls win. False when there is no room for another key.
    pub(crate) fn put(&mut self, key: &[u8], offset: i64) -> bool {
        let hash = self.hash(key);
        let at = self.find(hash);
        let slot = &mut self.slots[at];
        if slot.offset == NONE {
            if self.used == self.used_max {
                return false;
            }
            self.used += 1;
            slot.hash = hash;
        }
        slot.offset = slot.offset.max(offset);
        true
    }

    /// The newest offset noted for `key`.
    pub(crate) fn get(&self, key: &[u8]) -> Option<i64> {
        let slot = self.slots[self.find(self.hash(key))];
        (slot.offset != NONE).then_some(slot.offset)
    }

    fn hash(&self, key: &[u8]) -> (u64, u64) {
        (self.hashers.0.hash_one(key), self.hashers.1.hash_one(key))
    }

    /// The slot of a hash, or the empty one where it belongs. There always is an empty one.
    fn find(&self, hash: (u64, u64)) -> usize {
        let mut at = (hash.0 % self.slots.len() as u64) as usize;
        while self.slots[at].offset != NONE && self.slots[at].hash != hash {
            at = (at + 1) % self.slots.len();
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_offset_wins_and_memory_is_bounded() {
        let mut map = OffsetMap::new(24 * 1000, u64::MAX);
        let key = |i: usize| i.to_be_bytes();
        for i in 0..900 {
            assert!(map.put(&key(i), i as i64));
            assert!(map.put(&key(i), i as i64 + 5000));
        }
        assert_eq!(map.room(), 0);
        assert!(!map.put(b"another", 1));
        assert!(map.put(&key(7), 9000));
        assert_eq!(map.get(&key(7)), Some(9000));
        assert_eq!(map.get(&key(8)), Some(5008));
        assert_eq!(map.get(b"another"), None);
        assert!(OffsetMap::new(1 << 30, 100).slots.len() < 200);
    }
}
