//! What the controller is started with.

use std::path::PathBuf;

use tarn_wire::{Str, Uuid};

use crate::Rules;

/// Where a controller listens, for DescribeQuorum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Listener name.
    pub name: Str,
    /// Host.
    pub host: Str,
    /// Port.
    pub port: u16,
}

/// Settings of one controller.
#[derive(Clone)]
pub struct Settings {
    /// node.id.
    pub node_id: i32,
    /// controller.quorum.voters: ids; only a single one, this node, is served so far.
    pub voters: Vec<i32>,
    /// Cluster id, checked against registrations.
    pub cluster_id: Str,
    /// metadata.log.dir: `__cluster_metadata-0` is created in it. It must be formatted and locked
    /// by the caller.
    pub metadata_dir: PathBuf,
    /// Id of that directory.
    pub directory_id: Uuid,
    /// Where this controller listens.
    pub endpoints: Vec<Endpoint>,
    /// metadata.log.segment.bytes.
    pub segment_bytes: u32,
    /// metadata.log.max.record.bytes.between.snapshots.
    pub snapshot_after_bytes: u64,
    /// A snapshot is also taken after this many records.
    pub snapshot_after_records: u64,
    /// Feature levels written at the very first start, beside metadata.version.
    pub bootstrap_features: Vec<(Str, i16)>,
    /// What decisions are made by.
    pub rules: Rules,
}

impl Settings {
    /// Defaults for a quorum of one.
    pub fn single(
        node_id: i32,
        cluster_id: impl Into<Str>,
        metadata_dir: impl Into<PathBuf>,
    ) -> Self {
        Self {
            node_id,
            voters: vec![node_id],
            cluster_id: cluster_id.into(),
            metadata_dir: metadata_dir.into(),
            directory_id: Uuid::ZERO,
            endpoints: Vec::new(),
            segment_bytes: 64 << 20,
            snapshot_after_bytes: 20 << 20,
            snapshot_after_records: 200_000,
            bootstrap_features: Vec::new(),
            rules: Rules::default(),
        }
    }
}
