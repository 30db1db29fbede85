//! FindCoordinator for groups. Other key types are answered by the rooms they belong to; here they
//! are refused.

use tarn_wire::messages::find_coordinator_response::Coordinator;
use tarn_wire::messages::{FindCoordinatorRequest, FindCoordinatorResponse};
use tarn_wire::{ErrorCode, Str};

use crate::OFFSETS_TOPIC;
use crate::coordinator::GroupCoordinator;

/// First version with several keys.
const BATCH_FROM: i16 = 4;
/// Key type of a group.
const GROUP_KEY: i8 = 0;
/// Key type of a transactional id, which nobody coordinates here.
const TRANSACTION_KEY: i8 = 1;

impl GroupCoordinator {
    /// FindCoordinator v0–6. Creates `__consumer_offsets` when it is missing. `resolve` gives host
    /// and port of a broker for the listener the request came in on.
    pub async fn find_coordinator(
        &self,
        request: FindCoordinatorRequest,
        version: i16,
        resolve: impl Fn(i32) -> Option<(Str, i32)>,
    ) -> FindCoordinatorResponse {
        let keys = if version >= BATCH_FROM {
            request.coordinator_keys
        } else {
            vec![request.key]
        };
        let refusal = match request.key_type {
            GROUP_KEY => self
                .runtime
                .ensure_topic()
                .await
                .err()
                .map(|error| (error.code(), Some(error.to_string()))),
            TRANSACTION_KEY => Some((
                ErrorCode::COORDINATOR_NOT_AVAILABLE,
                Some("transactions are not coordinated by this broker yet".to_owned()),
            )),
            _ => Some((ErrorCode::INVALID_REQUEST, None)),
        };
        let mut found: Vec<Coordinator> = keys
            .into_iter()
            .map(|key| {
                let answer = match &refusal {
                    Some((error, text)) => Err((*error, text.clone())),
                    None => self
                        .coordinator_of(&key, &resolve)
                        .map_err(|error| (error, None)),
                };
                coordinator(key, answer)
            })
            .collect();
        if version >= BATCH_FROM {
            return FindCoordinatorResponse {
                coordinators: found,
                ..Default::default()
            };
        }
        let only = found.pop().unwrap_or_default();
        FindCoordinatorResponse {
            error_code: only.error_code,
            error_message: only.error_message,
            node_id: only.node_id,
            host: only.host,
            port: only.port,
            ..Default::default()
        }
    }

    fn coordinator_of(
        &self,
        group: &str,
        resolve: impl Fn(i32) -> Option<(Str, i32)>,
    ) -> Result<(i32, Str, i32), ErrorCode> {
        if group.is_empty() {
            return Err(ErrorCode::INVALID_GROUP_ID);
        }
        let image = self.replicas.image();
        let topic = image
            .topic(OFFSETS_TOPIC)
            .ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
        let partition = tarn_coordinator::partition_for_key(group, topic.partition_count());
        let leader = topic
            .partition(partition)
            .map_or(-1, |partition| partition.leader);
        let (host, port) = resolve(leader).ok_or(ErrorCode::COORDINATOR_NOT_AVAILABLE)?;
        Ok((leader, host, port))
    }
}

fn coordinator(
    key: Str,
    answer: Result<(i32, Str, i32), (ErrorCode, Option<String>)>,
) -> Coordinator {
    match answer {
        Ok((node_id, host, port)) => Coordinator {
            key,
            node_id,
            host,
            port,
            error_code: 0,
            error_message: None,
            ..Default::default()
        },
        Err((error, text)) => Coordinator {
            key,
            node_id: -1,
            host: Str::EMPTY,
            port: -1,
            error_code: error.0,
            error_message: Some(text.map_or_else(|| Str::from_static(error.message()), Str::from)),
            ..Default::default()
        },
    }
}
