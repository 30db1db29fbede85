//! Which log directory holds which partition (KIP-858): placement of new ones, and what a broker
//! finds out about the old ones.

use std::collections::HashMap;

use tarn_metadata::{Image, Record};
use tarn_wire::messages::BrokerRegistrationChangeRecord;
use tarn_wire::{ErrorCode, Uuid};

use super::brokers::check_broker_epoch;
use super::epochs::unchanged;
use crate::ApiError;

/// Ids below this are markers, not directories: 0 unassigned, 1 lost, 2 migrating.
const RESERVED: u128 = 100;

/// Whether an id names a log directory.
pub fn is_directory(id: &Uuid) -> bool {
    u128::from_be_bytes(id.0) >= RESERVED
}

/// Chooses the directory of new partitions: the one of the broker that holds fewest, the first of
/// them when several do.
pub(super) struct Placement<'a> {
    image: &'a Image,
    /// Partitions by directory; counted when a broker with several is met.
    held: Option<HashMap<Uuid, usize>>,
}

impl<'a> Placement<'a> {
    pub(super) fn new(image: &'a Image) -> Self {
        Placement { image, held: None }
    }

    /// The directory of the next partition on `broker`.
    pub(super) fn next(&mut self, broker: i32) -> Uuid {
        let dirs = match self.image.broker(broker) {
            Some(broker) => broker.log_dirs.as_slice(),
            None => &[],
        };
        match dirs {
            [] => Uuid::ZERO,
            [only] => *only,
            several => {
                let held = self.held.get_or_insert_with(|| held_by(self.image));
                let count = |dir: &Uuid| held.get(dir).copied().unwrap_or(0);
                // The first of the smallest.
                let chosen = several.iter().min_by_key(|dir| count(dir)).copied();
                let chosen = chosen.unwrap_or(Uuid::ZERO);
                *held.entry(chosen).or_default() += 1;
                chosen
            }
        }
    }
}

/// Number of partitions by directory.
pub fn held_by(image: &Image) -> HashMap<Uuid, usize> {
    let mut held = HashMap::new();
    for topic in image.topics().iter() {
        for partition in &topic.partitions {
            for directory in &partition.directories {
                *held.entry(*directory).or_default() += 1;
            }
        }
    }
    held
}

/// A partition found in, or given to, a directory of a broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InDirectory {
    /// Topic.
    pub topic_id: Uuid,
    /// Partition index.
    pub partition: i32,
    /// The directory.
    pub directory: Uuid,
}

/// Records that note where `broker` has its partitions. What is noted already, or is not on that
/// broker, is passed over.
pub fn plan_directories(image: &Image, broker: i32, found: &[InDirectory]) -> Vec<Record> {
    let change = |found: &InDirectory| {
        let partition = image.partition_by_id(&found.topic_id, found.partition)?;
        let at = partition.replicas.iter().position(|id| *id == broker)?;
        let mut directories = partition.directories.clone();
        directories.resize(partition.replicas.len(), Uuid::ZERO);
        if directories[at] == found.directory {
            return None;
        }
        directories[at] = found.directory;
        let mut record = unchanged();
        record.topic_id = found.topic_id;
        record.partition_id = found.partition;
        record.directories = Some(directories);
        Some(record.into())
    };
    found.iter().filter_map(change).collect()
}

/// Notes which directories of a broker work: new partitions go to those only.
pub fn plan_online_directories(
    image: &Image,
    broker: i32,
    broker_epoch: i64,
    online: &[Uuid],
) -> Result<Vec<Record>, ApiError> {
    let known = check_broker_epoch(image, broker, broker_epoch)?;
    if online.is_empty() {
        let message = format!("broker {broker} has no working log directory");
        return Err(ApiError::new(ErrorCode::KAFKA_STORAGE_ERROR, message));
    }
    if known.log_dirs == online {
        return Ok(Vec::new());
    }
    let record = BrokerRegistrationChangeRecord {
        broker_id: broker,
        broker_epoch,
        log_dirs: online.to_vec(),
        cordoned_log_dirs: None,
        ..BrokerRegistrationChangeRecord::default()
    };
    Ok(vec![record.into()])
}
