//! What a fetcher asks for, and the Fetch that says so.

use tarn_client::Connection;
use tarn_wire::messages::FetchRequest;
use tarn_wire::messages::fetch_request::{
    FetchPartition, FetchTopic, ForgottenTopic, ReplicaState,
};
use tarn_wire::{Str, Uuid};
use tokio::time::Instant;

use super::{FETCH_FENCED_FROM, FETCH_SESSIONS_FROM, Fetcher, Result};
use crate::{Ask, AskLimits, FetchPolicy, FetchedPartition, NextAsk, Plan};

/// First version in which a replica names itself with its epoch.
const REPLICA_STATE_FROM: i16 = 15;

impl<P: FetchPolicy> Fetcher<P> {
    pub(super) async fn send(
        &mut self,
        connection: &mut Connection,
        version: i16,
    ) -> Result<(), P> {
        let with_sessions = version >= FETCH_SESSIONS_FROM;
        let plan = self.told.session.plan(&mut self.told.wants, with_sessions);
        let request = self.request(&plan, version);
        self.sent.at = Instant::now();
        self.sent.bytes_max = request.max_bytes;
        self.sent.fences = version >= FETCH_FENCED_FROM;
        self.held_back.asked(request.max_wait_ms);
        connection.send_fetch(&request, version).await?;
        Ok(())
    }

    /// Sends the next Fetch while a response still arrives, when all that lags is the partition
    /// that is being read: it is asked for from an estimated offset. Where several lag, the other
    /// fetchers for the broker fill the link meanwhile.
    pub(super) async fn send_next(
        &mut self,
        connection: &mut Connection,
        index: usize,
        estimate: i64,
        negotiated: i16,
    ) -> Result<(), P> {
        let Some(known) = self.told.session.asked(index) else {
            return Ok(());
        };
        // Without a leader epoch the leader could not tell that it is another log by now.
        if known.current_leader_epoch < 0 {
            return Ok(());
        }
        let (_, version) = self.version(negotiated);
        self.renew_wants(version);
        let ask = Ask {
            fetch_offset: estimate,
            // Whether the epochs agree is said for our log end only.
            last_fetched_epoch: -1,
            ..known
        };
        self.told.wants.set(index, Some(ask));
        self.told.touched.push(index);
        self.sent.estimated = Some(index);
        self.sent.is_pipelined = true;
        self.send(connection, version).await
    }

    /// Asks anew for what was touched, with offsets as they are on our disk.
    pub(super) fn renew_wants(&mut self, version: i16) {
        let now = Instant::now();
        let configured = self.policy.options().partition_bytes_max;
        // The limit per partition keeps them fair; where few lag, they share what one response may
        // hold.
        let lagging = i32::try_from(self.lagging.count.max(1)).unwrap_or(i32::MAX);
        let share = configured.max(self.sizing.bytes_max() / lagging);
        for index in std::mem::take(&mut self.told.touched) {
            let lags = self.lagging.by_index[index];
            let limits = AskLimits {
                version,
                bytes_max: if lags { share } else { configured },
            };
            let partition = &self.assignment.partitions[index];
            let ask = match self.policy.ask(partition, limits, now) {
                NextAsk::Ask(ask) => Some(ask),
                NextAsk::NotBefore(until) => {
                    self.scan.at = self.scan.at.min(until);
                    None
                }
                NextAsk::No => None,
            };
            self.told.wants.set(index, ask);
        }
    }

    fn request(&self, plan: &Plan, version: i16) -> FetchRequest {
        let options = self.policy.options();
        let mut topics: Vec<FetchTopic> = Vec::new();
        for &(index, ask) in &plan.named {
            let partition = FetchPartition {
                partition: self.assignment.partitions[index].partition(),
                current_leader_epoch: ask.current_leader_epoch,
                fetch_offset: ask.fetch_offset,
                last_fetched_epoch: ask.last_fetched_epoch,
                log_start_offset: ask.log_start_offset,
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
            ForgottenTopic {
                topic,
                topic_id,
                partitions: vec![self.assignment.partitions[index].partition()],
                ..Default::default()
            }
        };
        let mut request = FetchRequest {
            max_wait_ms: self.sizing.wait_ms(options.wait_ms_max),
            min_bytes: options.min_bytes,
            max_bytes: self.sizing.bytes_max(),
            isolation_level: i8::from(options.read_committed),
            session_id: plan.session_id,
            session_epoch: plan.session_epoch,
            topics,
            forgotten_topics_data: plan.forgotten.iter().map(forget).collect(),
            ..Default::default()
        };
        if version < FETCH_SESSIONS_FROM {
            (request.session_id, request.session_epoch) = (0, -1);
        }
        if version < REPLICA_STATE_FROM {
            request.replica_id = options.replica_id;
        } else {
            request.replica_state = ReplicaState {
                replica_id: options.replica_id,
                replica_epoch: options.replica_epoch,
                ..Default::default()
            };
        }
        request
    }

    fn wire_name(&self, index: usize) -> (Str, Uuid) {
        let partition = &self.assignment.partitions[index];
        match partition.topic_id() {
            Some(id) if self.told.by_id => (Str::EMPTY, id),
            _ => (partition.topic().clone(), Uuid::ZERO),
        }
    }
}
