//! The mirror APIs (94–96, 98–105): bodies of several dialects under one key, so that the mirror
//! room decodes them itself. What a connection has proven about its dialect is remembered here.

use std::sync::Arc;

use bytes::Bytes;
use tarn_mirror::dialect::Caller;
use tarn_wire::ErrorCode;

use crate::dispatch::{Answer, Call, Refusal, failures};
use crate::node::Node;

pub(crate) async fn handle(node: Arc<Node>, call: Call, body: Bytes) -> Result<Answer, Refusal> {
    let Some(mirror) = &node.mirror else {
        return Err(Refusal::Unsupported {
            key: call.key,
            version: call.version,
        });
    };
    // A copy: requests of one connection run one after the other, and no lock is held while the
    // room works.
    let mut memory = *call.connection.dialect.lock();
    memory.note_mirror_key();
    let caller = Caller {
        address: call.connection.peer.ip().to_canonical(),
        client_id: call.client_id.clone().unwrap_or_default(),
        is_broker: call.connection.is_from_broker(),
        is_own_product: memory.is_own_product(),
    };
    let reply = mirror
        .service
        .handle(call.key, body, &caller, &mut memory)
        .await;
    *call.connection.dialect.lock() = memory;
    node.wait_applied().await;
    let (frame, failed) = reply
        .frame(call.correlation_id, ErrorCode::UNKNOWN_SERVER_ERROR)
        .map_err(|error| call.not_encoded(error))?;
    if let Some(error) = failed {
        failures::report(call.key, call.version, &error);
    }
    Ok(Answer::Ready(frame))
}
