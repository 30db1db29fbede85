//! The live producer of the demo: creates the sample topics and writes small readable records to
//! them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use tarn_client::{Cluster, ClusterOptions, HostPort};
use tarn_records::BatchBuilder;
use tarn_wire::messages::create_topics_request::CreatableTopic;
use tarn_wire::messages::produce_request::{PartitionProduceData, TopicProduceData};
use tarn_wire::messages::{CreateTopicsRequest, ProduceRequest};
use tarn_wire::{ErrorCode, Message, Records, VersionRange};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::CliError;

/// Pause between two batches.
const PAUSE: Duration = Duration::from_millis(40);
const RECORDS_PER_BATCH: u64 = 10;
const PRODUCE_TIMEOUT_MS: i32 = 10_000;
/// The last version that names topics instead of giving their ids.
const VERSION_BY_NAME_MAX: i16 = 12;

#[derive(Debug, Default)]
struct Progress {
    records: AtomicU64,
    error: Mutex<Option<String>>,
}

/// The running producer.
pub(super) struct Load {
    progress: Arc<Progress>,
    cancel: CancellationToken,
    task: Option<JoinHandle<()>>,
}

impl Load {
    /// Creates `topics` (name, partitions) at `bootstrap` and begins to write.
    pub(super) async fn start(
        bootstrap: &str,
        topics: &[(&'static str, i32)],
    ) -> Result<Self, CliError> {
        let addresses =
            HostPort::parse_list(bootstrap).map_err(|e| CliError::Failed(e.to_string()))?;
        let cluster = Cluster::new(ClusterOptions::new(addresses));
        let wanted = topics.iter().map(|(name, partitions)| CreatableTopic {
            name: (*name).into(),
            num_partitions: *partitions,
            replication_factor: 1,
            ..Default::default()
        });
        let request = CreateTopicsRequest {
            topics: wanted.collect(),
            ..Default::default()
        };
        let answer = cluster
            .call_any(&request)
            .await
            .map_err(|e| CliError::Failed(format!("cannot create the sample topics: {e}")))?;
        if let Some(refused) = answer.topics.iter().find(|t| t.error_code != 0) {
            let text = refused
                .error_message
                .as_ref()
                .map_or(ErrorCode(refused.error_code).message(), |t| t.as_str());
            return Err(CliError::Failed(format!(
                "cannot create sample topic {}: {text}",
                refused.name.as_str()
            )));
        }
        let progress = Arc::new(Progress::default());
        let cancel = CancellationToken::new();
        let partitions: Vec<(&'static str, i32)> = topics
            .iter()
            .flat_map(|(name, n)| (0..*n).map(|p| (*name, p)))
            .collect();
        let task = tokio::spawn(write(
            cluster,
            partitions,
            Arc::clone(&progress),
            cancel.clone(),
        ));
        Ok(Self {
            progress,
            cancel,
            task: Some(task),
        })
    }

    /// Records written so far.
    pub(super) fn produced(&self) -> u64 {
        self.progress.records.load(Ordering::Relaxed)
    }

    /// Stops writing; everything counted has been acknowledged then.
    pub(super) async fn stop(&mut self) {
        self.cancel.cancel();
        if let Some(task) = self.task.take() {
            task.await.ok();
        }
    }

    /// Fails when the producer could not write.
    pub(super) fn check(&self) -> Result<(), CliError> {
        match self.progress.error.lock().clone() {
            Some(text) => Err(CliError::Failed(format!(
                "the sample producer failed: {text}"
            ))),
            None => Ok(()),
        }
    }
}

async fn write(
    cluster: Cluster,
    partitions: Vec<(&'static str, i32)>,
    progress: Arc<Progress>,
    cancel: CancellationToken,
) {
    let mut ticks = tokio::time::interval(PAUSE);
    for (topic, partition) in partitions.into_iter().cycle() {
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match send(
            &cluster,
            topic,
            partition,
            progress.records.load(Ordering::Relaxed),
        )
        .await
        {
            Ok(()) => {
                progress
                    .records
                    .fetch_add(RECORDS_PER_BATCH, Ordering::Relaxed);
                *progress.error.lock() = None;
            }
            Err(text) => *progress.error.lock() = Some(text),
        }
    }
}

async fn send(cluster: &Cluster, topic: &str, partition: i32, first: u64) -> Result<(), String> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |d| i64::try_from(d.as_millis()).unwrap_or(i64::MAX));
    let mut batch = BatchBuilder::new();
    for n in first..first + RECORDS_PER_BATCH {
        let (key, value) = (
            format!("{topic}-{n}"),
            format!(
                "{{\"topic\":\"{topic}\",\"number\":{n},\"amount\":{}}}",
                n * 37 % 1000
            ),
        );
        batch.add(now, Some(key.as_bytes()), Some(value.as_bytes()), &[]);
    }
    let records = batch.build().map_err(|e| e.to_string())?;
    let data = PartitionProduceData {
        index: partition,
        records: Some(Records::Bytes(records.into())),
        ..Default::default()
    };
    let request = ProduceRequest {
        acks: 1,
        timeout_ms: PRODUCE_TIMEOUT_MS,
        topic_data: vec![TopicProduceData {
            name: topic.into(),
            partition_data: vec![data],
            ..Default::default()
        }],
        ..Default::default()
    };
    let versions = VersionRange {
        min: <ProduceRequest as Message>::VERSIONS.min,
        max: VERSION_BY_NAME_MAX,
    };
    let handle = cluster.any().await.map_err(|e| e.to_string())?;
    let answer = handle
        .call_within(&request, versions)
        .await
        .map_err(|e| e.to_string())?;
    match answer
        .responses
        .iter()
        .flat_map(|t| &t.partition_responses)
        .find(|p| p.error_code != 0)
    {
        Some(refused) => Err(format!(
            "{topic}-{partition}: {}",
            ErrorCode(refused.error_code).message()
        )),
        None => Ok(()),
    }
}
