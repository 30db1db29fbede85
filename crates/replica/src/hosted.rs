//! Which partitions this broker hosts, found by topic id or name without waiting for anybody.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use tarn_wire::{Str, Uuid};

use crate::partition::Partition;

/// A partition assigned to this broker.
#[derive(Clone, Debug)]
pub(crate) enum Hosted {
    /// Its log is open.
    Online(Arc<Partition>),
    /// Its log could not be opened; why.
    Offline(Arc<str>),
}

/// All partitions of this broker.
#[derive(Debug, Default)]
pub(crate) struct HostedPartitions {
    maps: RwLock<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    by_id: HashMap<Uuid, Topic>,
    id_by_name: HashMap<Str, Uuid>,
}

#[derive(Debug)]
struct Topic {
    name: Str,
    partitions: HashMap<i32, Hosted>,
}

impl HostedPartitions {
    pub(crate) fn by_id(&self, id: &Uuid, partition: i32) -> Option<Hosted> {
        self.maps
            .read()
            .by_id
            .get(id)?
            .partitions
            .get(&partition)
            .cloned()
    }

    pub(crate) fn by_name(&self, topic: &str, partition: i32) -> Option<Hosted> {
        let maps = self.maps.read();
        let id = maps.id_by_name.get(topic)?;
        maps.by_id.get(id)?.partitions.get(&partition).cloned()
    }

    pub(crate) fn topic(&self, id: &Uuid) -> Vec<(i32, Hosted)> {
        let maps = self.maps.read();
        maps.by_id
            .get(id)
            .map(|topic| {
                topic
                    .partitions
                    .iter()
                    .map(|(index, hosted)| (*index, hosted.clone()))
                    .collect()
            })
            .unwrap_or_default()
    }

    pub(crate) fn insert(&self, topic: &Str, id: Uuid, partition: i32, hosted: Hosted) {
        let mut maps = self.maps.write();
        maps.id_by_name.insert(topic.clone(), id);
        let entry = maps.by_id.entry(id).or_insert_with(|| Topic {
            name: topic.clone(),
            partitions: HashMap::new(),
        });
        entry.partitions.insert(partition, hosted);
    }

    pub(crate) fn remove_topic(&self, id: &Uuid) -> Vec<(Str, i32, Hosted)> {
        let mut maps = self.maps.write();
        let Some(topic) = maps.by_id.remove(id) else {
            return Vec::new();
        };
        // A topic of the same name may have been created since.
        if maps.id_by_name.get(&topic.name) == Some(id) {
            maps.id_by_name.remove(&topic.name);
        }
        topic
            .partitions
            .into_iter()
            .map(|(index, hosted)| (topic.name.clone(), index, hosted))
            .collect()
    }

    /// Every open partition, in no order.
    pub(crate) fn online(&self) -> Vec<Arc<Partition>> {
        let maps = self.maps.read();
        let all = maps
            .by_id
            .values()
            .flat_map(|topic| topic.partitions.values());
        all.filter_map(|hosted| match hosted {
            Hosted::Online(partition) => Some(partition.clone()),
            Hosted::Offline(_) => None,
        })
        .collect()
    }

    /// Every partition that could not be opened.
    pub(crate) fn offline(&self) -> Vec<(Str, i32, Arc<str>)> {
        let maps = self.maps.read();
        let mut all = Vec::new();
        for topic in maps.by_id.values() {
            for (index, hosted) in &topic.partitions {
                if let Hosted::Offline(reason) = hosted {
                    all.push((topic.name.clone(), *index, reason.clone()));
                }
            }
        }
        all
    }
}
