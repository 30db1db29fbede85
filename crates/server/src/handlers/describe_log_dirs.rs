//! DescribeLogDirs (35): sizes of the logs in each directory, and the space on its file system.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use tarn_wire::messages::describe_log_dirs_response::{DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic};
use tarn_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;

pub(crate) async fn handle(node: &Arc<Node>, _call: &Call, request: DescribeLogDirsRequest) -> DescribeLogDirsResponse {
    let wanted = |topic: &str, partition: i32| match &request.topics {
        None => true,
        Some(topics) => topics.iter().any(|t| t.topic.as_str() == topic && t.partitions.contains(&partition)),
    };
    let partitions = node.replicas.partitions();
    let results = node
        .config
        .log_dirs
        .iter()
        .map(|dir| {
            let absolute = std::path::absolute(dir).unwrap_or_else(|_| dir.clone());
            let mut topics: BTreeMap<Str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
            for partition in &partitions {
                let here = partition.log().dir().parent().is_some_and(|parent| parent == dir || parent == absolute);
                if here && wanted(partition.topic(), partition.index()) {
                    topics.entry(partition.topic().clone()).or_default().push(DescribeLogDirsPartition {
                        partition_index: partition.index(),
                        partition_size: partition.log().size_bytes() as i64,
                        offset_lag: 0,
                        ..DescribeLogDirsPartition::default()
                    });
                }
            }
            let topics = topics
                .into_iter()
                .map(|(name, partitions)| DescribeLogDirsTopic { name, partitions, ..DescribeLogDirsTopic::default() })
                .collect();
            let (total_bytes, usable_bytes) = space(&absolute);
            DescribeLogDirsResult {
                error_code: if node.replicas.is_dir_offline(dir) { ErrorCode::KAFKA_STORAGE_ERROR.0 } else { ErrorCode::NONE.0 },
                log_dir: Str::from(absolute.to_string_lossy().as_ref()),
                topics,
                total_bytes,
                usable_bytes,
                ..DescribeLogDirsResult::default()
            }
        })
        .collect();
    DescribeLogDirsResponse { results, ..DescribeLogDirsResponse::default() }
}

/// Bytes of the file system and bytes left for us; −1 = unknown.
fn space(dir: &Path) -> (i64, i64) {
    match rustix::fs::statvfs(dir) {
        Ok(stat) => ((stat.f_blocks * stat.f_frsize) as i64, (stat.f_bavail * stat.f_frsize) as i64),
        Err(_) => (-1, -1),
    }
}
