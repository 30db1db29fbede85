//! DescribeLogDirs (35): sizes of the logs in each directory, and the space on its file system.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use tarn_wire::messages::describe_log_dirs_response::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use tarn_wire::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};
use tarn_wire::{ErrorCode, Str};

use crate::dispatch::Call;
use crate::node::Node;

pub(crate) async fn handle(
    node: &Arc<Node>,
    _call: &Call,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    // Named again, a partition is answered once, as Kafka does.
    let asked: Option<HashMap<&str, HashSet<i32>>> = request.topics.as_ref().map(|topics| {
        let mut asked: HashMap<&str, HashSet<i32>> = HashMap::new();
        for topic in topics {
            let partitions = asked.entry(topic.topic.as_str()).or_default();
            partitions.extend(&topic.partitions);
        }
        asked
    });
    let wanted = |topic: &str, partition: i32| {
        asked.as_ref().is_none_or(|asked| {
            asked
                .get(topic)
                .is_some_and(|partitions| partitions.contains(&partition))
        })
    };
    let describe = |dir: tarn_replica::LogDirDescription| {
        let mut topics: BTreeMap<Str, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
        for (topic, partition_index, bytes) in dir.partitions {
            if wanted(&topic, partition_index) {
                topics
                    .entry(topic)
                    .or_default()
                    .push(DescribeLogDirsPartition {
                        partition_index,
                        partition_size: bytes as i64,
                        offset_lag: 0,
                        ..DescribeLogDirsPartition::default()
                    });
            }
        }
        let topics = topics
            .into_iter()
            .map(|(name, partitions)| DescribeLogDirsTopic {
                name,
                partitions,
                ..DescribeLogDirsTopic::default()
            })
            .collect();
        let (total_bytes, usable_bytes) = space(&dir.path);
        let error = if dir.offline.is_some() {
            ErrorCode::KAFKA_STORAGE_ERROR
        } else {
            ErrorCode::NONE
        };
        DescribeLogDirsResult {
            error_code: error.0,
            log_dir: Str::from(dir.path),
            topics,
            total_bytes,
            usable_bytes,
            ..DescribeLogDirsResult::default()
        }
    };
    let results = node
        .replicas
        .describe_log_dirs()
        .into_iter()
        .map(describe)
        .collect();
    DescribeLogDirsResponse {
        results,
        ..DescribeLogDirsResponse::default()
    }
}

/// Bytes of the file system and bytes left for us; −1 = unknown.
fn space(dir: &str) -> (i64, i64) {
    match rustix::fs::statvfs(dir) {
        Ok(stat) => {
            let bytes = |blocks: u64| {
                i64::try_from(blocks.saturating_mul(stat.f_frsize)).unwrap_or(i64::MAX)
            };
            (bytes(stat.f_blocks), bytes(stat.f_bavail))
        }
        Err(_) => (-1, -1),
    }
}
