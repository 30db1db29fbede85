//! Which fetcher serves which partition. Pure.

use std::path::PathBuf;
use std::sync::Arc;

use crate::FetchedPartition;

/// Names a fetcher.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FetcherKey {
    /// Node id of the broker it fetches from.
    pub broker: i32,
    /// Which of the fetchers for that broker.
    pub index: i32,
}

/// How some partitions are spread over fetchers: by topic and partition as Kafka does, and apart
/// for each log directory, so that one whose disk does not answer holds up no other.
#[derive(Clone, Debug)]
pub struct Placement {
    /// Fetchers for each broker and directory.
    fetchers: i32,
    /// In a fixed order.
    directories: Vec<PathBuf>,
}

impl Placement {
    /// Of these partitions over so many fetchers for each broker.
    pub fn new<P: FetchedPartition>(partitions: &[Arc<P>], fetchers: i32) -> Placement {
        let mut directories: Vec<PathBuf> = Vec::new();
        for partition in partitions {
            let dir = partition.directory();
            let is_last = directories.last().is_some_and(|last| last == dir);
            if !is_last && !directories.iter().any(|d| d == dir) {
                directories.push(dir.to_path_buf());
            }
        }
        directories.sort();
        Placement {
            fetchers: fetchers.max(1),
            directories,
        }
    }

    /// The fetcher that serves a partition led by this broker.
    pub fn fetcher<P: FetchedPartition>(&self, partition: &P, broker: i32) -> FetcherKey {
        let dir = partition.directory();
        let ordinal = self.directories.iter().position(|d| d == dir);
        let ordinal = ordinal.and_then(|at| i32::try_from(at).ok()).unwrap_or(0);
        let index = fetcher_index(partition.topic(), partition.partition(), self.fetchers);
        FetcherKey {
            broker,
            index: index + self.fetchers * ordinal,
        }
    }
}

/// Kafka's own rule for the fetcher of a partition, out of `fetchers` for one broker.
fn fetcher_index(topic: &str, partition: i32, fetchers: i32) -> i32 {
    let hash = topic
        .encode_utf16()
        .fold(0i32, |h, c| h.wrapping_mul(31).wrapping_add(i32::from(c)));
    let mixed = hash.wrapping_mul(31).wrapping_add(partition);
    mixed.checked_abs().unwrap_or(0) % fetchers
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use tarn_wire::{Str, Uuid};

    use super::*;

    struct At(Str, i32, &'static str);

    impl FetchedPartition for At {
        fn key(&self) -> (Uuid, i32) {
            (Uuid::ZERO, self.1)
        }

        fn topic(&self) -> &Str {
            &self.0
        }

        fn partition(&self) -> i32 {
            self.1
        }

        fn topic_id(&self) -> Option<Uuid> {
            None
        }

        fn directory(&self) -> &Path {
            Path::new(self.2)
        }
    }

    #[test]
    fn the_index_follows_the_string_hash_of_java() {
        // "orders".hashCode() is -1008770331.
        assert_eq!(fetcher_index("orders", 0, 1), 0);
        let expected = (-1_008_770_331i32).wrapping_mul(31).wrapping_add(2).abs() % 7;
        assert_eq!(fetcher_index("orders", 2, 7), expected);
    }

    #[test]
    fn each_directory_has_fetchers_of_its_own() {
        let at = |dir| Arc::new(At("orders".into(), 2, dir));
        let (a, b) = (at("a"), at("b"));
        let placement = Placement::new(&[b.clone(), a.clone(), b.clone()], 2);
        let of_a = placement.fetcher(&*a, 7);
        let of_b = placement.fetcher(&*b, 7);
        assert_eq!((of_a.broker, of_b.broker), (7, 7));
        assert!(of_a.index < 2, "{of_a:?}");
        assert_eq!(of_b.index, of_a.index + 2);
    }
}
