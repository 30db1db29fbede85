//! BrokerRegistration, BrokerHeartbeat, UnregisterBroker, AllocateProducerIds, DescribeQuorum.

use tarn_raft::VoterProgress;
use tarn_wire::messages::describe_quorum_response::{
    Listener, Node, PartitionData, ReplicaState, TopicData,
};
use tarn_wire::messages::{
    AllocateProducerIdsRequest, AllocateProducerIdsResponse, BrokerHeartbeatRequest,
    BrokerHeartbeatResponse, BrokerRegistrationRequest, BrokerRegistrationResponse,
    DescribeQuorumRequest, DescribeQuorumResponse, UnregisterBrokerRequest,
    UnregisterBrokerResponse,
};
use tarn_wire::{ErrorCode, Uuid};

use crate::plan::{
    PRODUCER_ID_BLOCK, plan_heartbeat, plan_producer_ids, plan_registration, plan_unregistration,
};
use crate::{ApiError, Controller, Endpoint};

/// Name of the one topic DescribeQuorum knows.
const METADATA_TOPIC: &str = "__cluster_metadata";

impl Controller {
    /// Registers a broker, fenced; the answer holds its epoch. A heartbeat that shows it caught up
    /// unfences it.
    pub async fn register_broker(
        &self,
        request: BrokerRegistrationRequest,
    ) -> BrokerRegistrationResponse {
        let cluster_id = self.settings.cluster_id.clone();
        let registered = self.submit("register broker", move |image, ctx| {
            let planned = plan_registration(image, ctx, &cluster_id, &request)?;
            Ok::<_, ApiError>((planned.records, planned.broker_epoch))
        });
        match registered.await {
            Ok(broker_epoch) => BrokerRegistrationResponse {
                broker_epoch,
                ..BrokerRegistrationResponse::default()
            },
            Err(error) => {
                tracing::warn!(%error, "broker registration refused");
                BrokerRegistrationResponse {
                    error_code: error.code.0,
                    ..BrokerRegistrationResponse::default()
                }
            }
        }
    }

    /// A broker's heartbeat: fences, unfences, or lets it go.
    pub async fn broker_heartbeat(
        &self,
        request: BrokerHeartbeatRequest,
    ) -> BrokerHeartbeatResponse {
        let beat = self.submit("broker heartbeat", move |image, _| {
            let mut planned = plan_heartbeat(image, &request)?;
            let records = std::mem::take(&mut planned.records);
            Ok::<_, ApiError>((records, planned))
        });
        match beat.await {
            Ok(planned) => BrokerHeartbeatResponse {
                is_caught_up: planned.caught_up,
                is_fenced: planned.fenced,
                should_shut_down: planned.should_shut_down,
                ..BrokerHeartbeatResponse::default()
            },
            Err(error) => BrokerHeartbeatResponse {
                error_code: error.code.0,
                ..BrokerHeartbeatResponse::default()
            },
        }
    }

    /// Registers this process's own broker and unfences it, in two decisions; gives its epoch.
    /// Partitions it led before get new leader epochs.
    pub async fn register_and_unfence(
        &self,
        request: BrokerRegistrationRequest,
    ) -> Result<i64, ApiError> {
        let cluster_id = self.settings.cluster_id.clone();
        let broker_id = request.broker_id;
        let broker_epoch = self
            .submit("register broker", move |image, ctx| {
                let planned = plan_registration(image, ctx, &cluster_id, &request)?;
                Ok::<_, ApiError>((planned.records, planned.broker_epoch))
            })
            .await?;
        let beat = BrokerHeartbeatRequest {
            broker_id,
            broker_epoch,
            current_metadata_offset: broker_epoch,
            ..BrokerHeartbeatRequest::default()
        };
        self.submit("unfence broker", move |image, _| {
            Ok::<_, ApiError>((plan_heartbeat(image, &beat)?.records, ()))
        })
        .await?;
        Ok(broker_epoch)
    }

    /// Takes a broker out of the cluster.
    pub async fn unregister_broker(
        &self,
        request: UnregisterBrokerRequest,
    ) -> UnregisterBrokerResponse {
        let gone = self
            .submit("unregister broker", move |image, _| {
                Ok((plan_unregistration(image, request.broker_id)?, ()))
            })
            .await;
        match gone {
            Ok(()) => UnregisterBrokerResponse {
                error_message: None,
                ..UnregisterBrokerResponse::default()
            },
            Err::<_, ApiError>(error) => UnregisterBrokerResponse {
                error_code: error.code.0,
                error_message: error.text(),
                ..UnregisterBrokerResponse::default()
            },
        }
    }

    /// AllocateProducerIds: the next block.
    pub async fn allocate_producer_ids(
        &self,
        request: AllocateProducerIdsRequest,
    ) -> AllocateProducerIdsResponse {
        match self
            .next_producer_ids(request.broker_id, request.broker_epoch)
            .await
        {
            Ok((producer_id_start, producer_id_len)) => AllocateProducerIdsResponse {
                producer_id_start,
                producer_id_len,
                ..AllocateProducerIdsResponse::default()
            },
            Err(error) => AllocateProducerIdsResponse {
                error_code: error.code.0,
                ..AllocateProducerIdsResponse::default()
            },
        }
    }

    /// The next block of producer ids for a broker: first id and length.
    pub async fn next_producer_ids(
        &self,
        broker_id: i32,
        broker_epoch: i64,
    ) -> Result<(i64, i32), ApiError> {
        let allocated = self.submit("allocate producer ids", move |image, _| {
            let (record, first) = plan_producer_ids(image, broker_id, broker_epoch)?;
            Ok::<_, ApiError>((vec![record], first))
        });
        Ok((allocated.await?, PRODUCER_ID_BLOCK))
    }

    /// DescribeQuorum of the metadata partition.
    pub async fn describe_quorum(&self, request: DescribeQuorumRequest) -> DescribeQuorumResponse {
        let mut response = DescribeQuorumResponse {
            error_message: None,
            ..DescribeQuorumResponse::default()
        };
        let status = match self.quorum_status().await {
            Ok(status) => status,
            Err(error) => {
                let error = ApiError::from(error);
                response.error_code = error.code.0;
                response.error_message = error.text();
                return response;
            }
        };
        let replica = |progress: &VoterProgress| ReplicaState {
            replica_id: progress.id.0,
            replica_directory_id: if progress.id.0 == self.settings.node_id {
                self.settings.directory_id
            } else {
                Uuid::ZERO
            },
            log_end_offset: progress.end_offset,
            last_fetch_timestamp: progress.last_fetch_ms,
            last_caught_up_timestamp: progress.last_caught_up_ms,
            ..ReplicaState::default()
        };
        let describe = |topic: &str, partition_index: i32| match topic == METADATA_TOPIC
            && partition_index == 0
        {
            false => PartitionData {
                partition_index,
                error_code: ErrorCode::UNKNOWN_TOPIC_OR_PARTITION.0,
                error_message: None,
                ..PartitionData::default()
            },
            true => PartitionData {
                partition_index,
                error_message: None,
                leader_id: status.leader.map_or(-1, |id| id.0),
                leader_epoch: status.epoch,
                high_watermark: status.high_watermark.unwrap_or(-1),
                current_voters: status.voters.iter().map(replica).collect(),
                observers: status.observers.iter().map(replica).collect(),
                ..PartitionData::default()
            },
        };
        response.topics = request
            .topics
            .iter()
            .map(|topic| TopicData {
                topic_name: topic.topic_name.clone(),
                partitions: topic
                    .partitions
                    .iter()
                    .map(|p| describe(&topic.topic_name, p.partition_index))
                    .collect(),
                ..TopicData::default()
            })
            .collect();
        response.nodes = vec![self.quorum_node()];
        response
    }

    fn quorum_node(&self) -> Node {
        let listener = |endpoint: &Endpoint| Listener {
            name: endpoint.name.clone(),
            host: endpoint.host.clone(),
            port: endpoint.port,
            ..Listener::default()
        };
        let listeners = self.settings.endpoints.iter().map(listener).collect();
        Node {
            node_id: self.settings.node_id,
            listeners,
            ..Node::default()
        }
    }
}
