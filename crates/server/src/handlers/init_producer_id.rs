//! InitProducerId (22) for idempotent producers: ids come in blocks from the metadata log, so that
//! none is given out twice, also across restarts.

use std::sync::Arc;

use tarn_wire::ErrorCode;
use tarn_wire::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::dispatch::Call;
use crate::node::Node;

/// The block of ids this broker hands out of.
#[derive(Debug, Default)]
pub(crate) struct IdBlock {
    next: i64,
    end: i64,
}

impl IdBlock {
    fn take(&mut self) -> Option<i64> {
        (self.next < self.end).then(|| {
            self.next += 1;
            self.next - 1
        })
    }
}

pub(crate) async fn handle(
    node: &Arc<Node>,
    _call: &Call,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |error: ErrorCode| InitProducerIdResponse {
        error_code: error.0,
        producer_id: -1,
        producer_epoch: -1,
        ..InitProducerIdResponse::default()
    };
    match &request.transactional_id {
        Some(id) if id.is_empty() => return refused(ErrorCode::INVALID_REQUEST),
        // The code that every client takes for final: there is no transaction coordinator to wait
        // for.
        Some(_) => return refused(ErrorCode::TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        None => {}
    }
    match next_id(node).await {
        Ok(producer_id) => InitProducerIdResponse {
            producer_id,
            producer_epoch: 0,
            ..InitProducerIdResponse::default()
        },
        Err(error) => refused(error),
    }
}

async fn next_id(node: &Node) -> Result<i64, ErrorCode> {
    let mut block = node.producer_ids.lock().await;
    if let Some(id) = block.take() {
        return Ok(id);
    }
    let allocated = node
        .controller
        .next_producer_ids(node.id(), node.broker_epoch)
        .await;
    let (start, len) = allocated.map_err(|error| {
        tracing::warn!(%error, "no producer ids");
        ErrorCode::COORDINATOR_LOAD_IN_PROGRESS
    })?;
    *block = IdBlock {
        next: start,
        end: start + i64::from(len),
    };
    block.take().ok_or(ErrorCode::UNKNOWN_SERVER_ERROR)
}
