//! The Fetch that says what a fetcher wants.

use tarn_wire::messages::FetchRequest;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic, ForgottenTopic};
use tarn_wire::{Str, Uuid};

use super::{FETCH_SESSIONS_FROM, Fetcher};
use crate::fetcher::fetch_session::Plan;
use crate::seam::Isolation;

impl Fetcher {
    pub(super) fn request(&self, plan: &Plan, version: i16) -> FetchRequest {
        let settings = self.mirror.settings();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for &(index, ask) in &plan.named {
            let name = self.assignment.partitions[index].name();
            let partition = FetchPartition {
                partition: name.partition,
                current_leader_epoch: ask.current_leader_epoch,
                fetch_offset: ask.fetch_offset,
                last_fetched_epoch: ask.last_fetched_epoch,
                log_start_offset: -1,
                partition_max_bytes: ask.bytes_max,
                ..Default::default()
            };
            let (topic, topic_id) = self.wire_name(index);
            match topics
                .last_mut()
                .filter(|t| t.topic == topic && t.topic_id == topic_id)
            {
                Some(last) => last.partitions.push(partition),
                None => topics.push(FetchTopic {
                    topic,
                    topic_id,
                    partitions: vec![partition],
                    ..Default::default()
                }),
            }
        }
        let forget = |&index: &usize| {
            let (topic, topic_id) = self.wire_name(index);
            let partitions = vec![self.assignment.partitions[index].name().partition];
            ForgottenTopic {
                topic,
                topic_id,
                partitions,
                ..Default::default()
            }
        };
        let sessions = version >= FETCH_SESSIONS_FROM;
        FetchRequest {
            replica_id: -1,
            max_wait_ms: self.sizing.wait_ms(settings.fetch.wait_ms_max),
            min_bytes: settings.fetch.min_bytes,
            max_bytes: self.sizing.bytes_max(),
            isolation_level: i8::from(settings.fetch.isolation == Isolation::ReadCommitted),
            session_id: if sessions { plan.session_id } else { 0 },
            session_epoch: if sessions { plan.session_epoch } else { -1 },
            topics,
            forgotten_topics_data: plan.forgotten.iter().map(forget).collect(),
            ..Default::default()
        }
    }

    fn wire_name(&self, index: usize) -> (Str, Uuid) {
        let partition = &self.assignment.partitions[index];
        match partition.assignment.source_topic_id {
            Some(id) if self.by_id => (Str::EMPTY, id),
            _ => (partition.name().topic.clone(), Uuid::ZERO),
        }
    }
}
