//! The stop sequence of one partition (docs/mirroring.md §2.3, steps 3 to 6): epoch, ABORT markers,
//! producer reset, sync. The steps before (end of fetching, sync point) and after (STOPPED) belong
//! to the life cycle.
//!
//! Needs nothing from the source. Every step looks first whether it has been done, so the sequence
//! can be run again after a crash or a leader change at any point.

use std::sync::Arc;

use tarn_records::{
    ControlType, DECOMPRESSED_BYTES_MAX_DEFAULT, EndTxnMarker, batches, end_transaction_marker,
    mirror_pid_reset, parse_control_record,
};
use tarn_replica::{AppendSource, MirrorGuard, Partition};
use tarn_wire::Str;
use tracing::warn;

use crate::claims;
use crate::epochs::EpochBumper;
use crate::state::MirrorState;

/// What the sequence has to know beside the partition.
#[derive(Clone, Debug)]
pub struct StopRequest {
    /// The mirror.
    pub mirror: Str,
    /// Metadata offset of the wish it is run for.
    pub change_offset: i64,
    /// The source's cluster id, "" if it was never learned.
    pub source_cluster_id: Str,
    /// The stored last mirror epoch. A reset record at or below it came from the source (which was
    /// itself failed over once) and is not ours.
    pub last_mirror_epoch: Option<i32>,
}

/// Runs the sequence. An error text means: not finished, run it again.
pub async fn run(
    partition: &Arc<Partition>,
    bumper: &EpochBumper,
    request: &StopRequest,
    now_ms: impl Fn() -> i64,
) -> Result<(), String> {
    let (mirror, state) = (
        request.mirror.clone(),
        Str::from(MirrorState::Stopping.name()),
    );
    if unusable_from(partition).is_some() {
        let guard = MirrorGuard::ReadOnly {
            mirror: mirror.clone(),
            state: state.clone(),
        };
        partition
            .set_mirror_guard(request.change_offset, guard)
            .map_err(|e| e.to_string())?;
        cut_unusable_tail(partition).await?;
    }
    let guard = MirrorGuard::StoppingInternalOnly { mirror, state };
    partition
        .set_mirror_guard(request.change_offset, guard)
        .map_err(|e| e.to_string())?;
    let done = reset_is_last(partition, request.last_mirror_epoch)?;
    if let Some(latest) = partition.log().latest_epoch()
        && partition.leader_epoch() <= latest
        && !done
    {
        bumper
            .raise_above(partition.topic_id(), partition.index(), latest)
            .await?;
    }
    abort_open_transactions(partition, now_ms())?;
    if !reset_is_last(partition, request.last_mirror_epoch)? {
        let mut reset =
            mirror_pid_reset(&request.source_cluster_id, now_ms()).map_err(|e| e.to_string())?;
        partition
            .append(&mut reset, AppendSource::MirrorStop, now_ms())
            .map_err(|e| e.to_string())?;
    }
    sync(partition).await?;
    let log = partition.log();
    let (open, end) = (log.open_transactions().len(), log.log_end_offset());
    tarn_log::invariant!(
        "M-9",
        open == 0 && log.durable_end() >= end,
        "{open} transactions are open and {} of {end} offsets on disk at the end of a failover",
        log.durable_end()
    );
    Ok(())
}

fn unusable_from(partition: &Partition) -> Option<i64> {
    let log = partition.log();
    let epochs: Vec<(i32, i64)> = log
        .epochs()
        .iter()
        .map(|e| (e.epoch, e.start_offset))
        .collect();
    claims::unusable_from(&epochs, log.log_end_offset())
}

/// Cuts what no ordinary partition could follow: batches whose leader epoch cannot be exceeded, or
/// whose offsets leave no room. They came from a source before such batches were refused, and
/// without this no failover could end. Fetching has ended.
pub(crate) async fn cut_unusable_tail(partition: &Arc<Partition>) -> Result<(), String> {
    let Some(from) = unusable_from(partition) else {
        return Ok(());
    };
    let (local, before) = (partition.clone(), partition.log().log_end_offset());
    let cut = tokio::task::spawn_blocking(move || local.mirror_truncate_to(from)).await;
    let after = cut.map_err(|e| e.to_string())?.map_err(|e| e.to_string())?;
    warn!(
        ?partition,
        from = after,
        to = before,
        "offsets cut: their leader epochs or offsets leave no room for records of a partition that was failed over"
    );
    Ok(())
}

fn abort_open_transactions(partition: &Partition, now_ms: i64) -> Result<(), String> {
    for open in partition.log().open_transactions() {
        let marker = EndTxnMarker {
            committed: false,
            coordinator_epoch: open.coordinator_epoch.max(0),
        };
        let mut batch =
            end_transaction_marker(marker, open.producer_id, open.producer_epoch, now_ms)
                .map_err(|e| e.to_string())?;
        partition
            .append(&mut batch, AppendSource::MirrorStop, now_ms)
            .map_err(|e| {
                format!(
                    "the open transaction of producer {} cannot be ended: {e}",
                    open.producer_id
                )
            })?;
    }
    let left = partition.log().open_transactions().len();
    if left == 0 {
        Ok(())
    } else {
        Err(format!("{left} transactions are still open"))
    }
}

/// Whether the last batch of the log is our producer reset. It is written last, so then everything
/// before it was done too.
fn reset_is_last(partition: &Partition, last_mirror_epoch: Option<i32>) -> Result<bool, String> {
    let log = partition.log();
    let end = log.log_end_offset();
    if end <= log.log_start_offset() {
        return Ok(false);
    }
    let text = |e: tarn_log::LogError| e.to_string();
    let Some(slice) = log.read(end - 1, 1, end, true).map_err(text)? else {
        return Ok(false);
    };
    let bytes = slice.read().map_err(text)?;
    let Some(Ok(batch)) = batches(&bytes).next() else {
        return Ok(false);
    };
    let mirrored = last_mirror_epoch.is_some_and(|lme| batch.header.leader_epoch <= lme);
    if mirrored || !batch.header.is_control() {
        return Ok(false);
    }
    let mut records = batch
        .check_crc()
        .and_then(|()| batch.records(DECOMPRESSED_BYTES_MAX_DEFAULT))
        .map_err(|e| e.to_string())?;
    let last = records
        .next()
        .and_then(Result::ok)
        .and_then(|r| parse_control_record(&r).ok());
    Ok(last.is_some_and(|c| c.kind == ControlType::MirrorPidReset))
}

/// Everything in the log is on disk before STOPPED may be written.
async fn sync(partition: &Arc<Partition>) -> Result<(), String> {
    let end = partition.log().log_end_offset();
    partition
        .wait_committed(end, -1)
        .await
        .map_err(|e| e.to_string())?;
    if partition.log().durable_end() >= end {
        return Ok(());
    }
    // With durability in the page cache nobody has synced it yet.
    let log = partition.log().clone();
    let flushed = tokio::task::spawn_blocking(move || log.flush())
        .await
        .map_err(|e| e.to_string())?;
    flushed.map(|_| ()).map_err(|e| e.to_string())
}
