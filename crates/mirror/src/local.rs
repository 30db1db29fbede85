//! What this broker holds of a topic: the few looks at local logs that commands and describe need.

use std::sync::Arc;

use tarn_metadata::Image;
use tarn_replica::ReplicaManager;

/// Whether any partition of the topic here has ever held a record, as far as this broker can see.
pub fn has_data(replicas: &Arc<ReplicaManager>, image: &Image, topic: &str) -> bool {
    let Some(local) = image.topic(topic) else {
        return false;
    };
    (0..local.partition_count()).any(|p| {
        replicas
            .partition_by_id(&local.id, p)
            .is_ok_and(|found| found.log().log_end_offset() > 0)
    })
}
