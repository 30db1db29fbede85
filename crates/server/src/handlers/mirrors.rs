//! The mirror APIs (94–96, 98–105): bodies of several dialects under one key, so that the mirror room decodes them itself.

use std::sync::Arc;

use bytes::Bytes;

use crate::dispatch::{Answer, Call, Refusal};
use crate::node::Node;

pub(crate) async fn handle(node: Arc<Node>, call: Call, body: Bytes) -> Result<Answer, Refusal> {
    let Some(_mirror) = &node.mirror else {
        return Err(Refusal::Unsupported {
            key: call.key,
            version: call.version,
        });
    };
    call.connection.dialect.lock().note_mirror_key();
    let _ = body;
    Err(Refusal::Unsupported {
        key: call.key,
        version: call.version,
    })
}
