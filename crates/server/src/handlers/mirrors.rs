//! The mirror APIs (94–96, 98–105): bodies of several dialects under one key, so that the mirror room decodes them itself. What a connection
//! has proven about its dialect is remembered here.

use std::sync::Arc;

use bytes::Bytes;

use crate::dispatch::{Answer, Call, Refusal};
use crate::node::Node;

pub(crate) async fn handle(node: Arc<Node>, call: Call, body: Bytes) -> Result<Answer, Refusal> {
    let Some(mirror) = &node.mirror else {
        return Err(Refusal::Unsupported {
            key: call.key,
            version: call.version,
        });
    };
    // A copy: requests of one connection run one after the other, and no lock is held while the room works.
    let mut memory = *call.connection.dialect.lock();
    memory.note_mirror_key();
    let reply = mirror.service.handle(call.key, body, &mut memory).await;
    *call.connection.dialect.lock() = memory;
    node.wait_applied().await;
    let encoded = reply.frame(call.correlation_id);
    encoded.map(Answer::Ready).map_err(|error| Refusal::Encode {
        key: call.key,
        version: call.version,
        error,
    })
}
