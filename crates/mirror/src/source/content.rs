//! Compares batches of local logs with the source's, many partitions with few requests
//! ([`crate::content`] judges).
//!
//! For each partition the last local batch below the offset up to which both logs should agree;
//! where the source has nothing left of it, the first batch that both have. One small Fetch for
//! hundreds of partitions, outside of fetch sessions and on a shared connection.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use tarn_client::Handle;
use tarn_log::PartitionLog;
use tarn_records::BatchHeader;
use tarn_replica::Partition;
use tarn_wire::messages::fetch_request::{FetchPartition, FetchTopic};
use tarn_wire::messages::fetch_response::PartitionData;
use tarn_wire::messages::{FetchRequest, FetchResponse};
use tarn_wire::{ErrorCode, Str, Uuid, VersionRange};

use super::{AskError, NoValue, SourceClient, SourceError};
use crate::content::{Difference, Verdict, compare, not_ours};

/// Partitions in one Fetch.
const PARTITIONS_MAX: usize = 500;
/// Bytes of records that one Fetch asks for, unless its only batch is larger.
const BYTES_MAX: usize = 4 << 20;
/// Asked for where the size of the source's batch cannot be known.
const GUESS_BYTES: usize = 16 << 10;
/// Bytes read at once when looking for a local batch.
const SCAN_BYTES: u64 = 256 << 10;
/// Versions of Fetch that name topics by name, and by id.
const BY_NAME: VersionRange = VersionRange::new(4, 12);
const BY_ID: VersionRange = VersionRange::new(13, 18);

/// A partition to be compared.
#[derive(Clone, Debug)]
pub(crate) struct Subject {
    pub(crate) topic: Str,
    /// Topic id at the source; `None` = it has none.
    pub(crate) topic_id: Option<Uuid>,
    pub(crate) partition: i32,
    /// Leader epoch at the source, −1 = unknown.
    pub(crate) leader_epoch: i32,
    pub(crate) local: Arc<Partition>,
    /// Both logs should agree below this offset.
    pub(crate) agreed: i64,
}

/// What the comparison of one partition found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// The newest batch that both have is the same.
    Same,
    /// No batch is in both logs: nothing is proven.
    NothingInCommon,
    /// The source's log does not hold the offset of our last batch: its bounds must be compared.
    OutOfRange,
    /// The source does not show that offset yet, or says something that cannot be used: ask again.
    NotYet(String),
    /// The source refused.
    Refused(ErrorCode),
    /// The histories differ.
    Different(Difference),
}

/// A question for one batch.
struct Probe {
    subject: usize,
    offset: i64,
    bytes: usize,
}

/// What the source has at the offset of a probe.
enum Probed {
    Batches {
        bytes: Bytes,
        high_watermark: i64,
        log_start: i64,
    },
    Refused(ErrorCode),
    /// The answer leaves the partition out, and why.
    LeftOut(String),
}

/// Compares these partitions, all led by the broker behind `handle`; one finding each.
pub(crate) async fn compare_all(
    client: &SourceClient,
    handle: &Handle,
    subjects: &[Subject],
) -> Result<Vec<Finding>, AskError> {
    let asker = Asker {
        client,
        handle,
        subjects,
    };
    let mut findings = vec![Finding::NothingInCommon; subjects.len()];
    let of_subject = |s: &Subject| batch_below(s.local.log(), s.agreed);
    let tails = on_disk(subjects, move |subjects| {
        subjects.iter().map(of_subject).collect()
    });
    let tails: Vec<Option<BatchHeader>> = tails.await?;
    let of_tail = |(subject, tail): (usize, &Option<BatchHeader>)| {
        let header = tail.as_ref()?;
        Some(Probe {
            subject,
            offset: header.last_offset(),
            bytes: header.size(),
        })
    };
    let probes: Vec<Probe> = tails.iter().enumerate().filter_map(of_tail).collect();
    let mut second = Vec::new();
    for chunk in chunks(&probes) {
        let answers = asker.ask(chunk).await?;
        let asked: Vec<(usize, i64)> = chunk.iter().map(|p| (p.subject, p.offset)).collect();
        let ours = on_disk(subjects, move |subjects| {
            let of_probe = |&(subject, offset): &(usize, i64)| {
                batch_from(subjects[subject].local.log(), offset)
            };
            asked.iter().map(of_probe).collect()
        });
        let ours: Vec<Option<(Bytes, BatchHeader)>> = ours.await?;
        for ((probe, probed), ours) in chunk.iter().zip(answers).zip(ours) {
            let Some((ours, _)) = ours else { continue };
            match first_verdict(probe, ours, probed).await {
                First::Found(finding) => findings[probe.subject] = finding,
                First::NothingLeft { log_start } => second.push((probe.subject, log_start)),
            }
        }
    }
    asker.compare_first_common(second, &mut findings).await?;
    Ok(findings)
}

/// Probes that one Fetch may ask.
fn chunks(probes: &[Probe]) -> impl Iterator<Item = &[Probe]> {
    let mut rest = probes;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |probe: &&Probe| {
            bytes += probe.bytes;
            bytes <= BYTES_MAX
        };
        let count = rest.iter().take(PARTITIONS_MAX).take_while(fits).count();
        let (chunk, later) = rest.split_at(count.max(1).min(rest.len()));
        rest = later;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// What the look at our last batch gave.
enum First {
    Found(Finding),
    /// The source has nothing left of it, and its log starts here.
    NothingLeft {
        log_start: i64,
    },
}

async fn first_verdict(probe: &Probe, ours: Bytes, probed: Probed) -> First {
    match probed {
        Probed::Refused(ErrorCode::OFFSET_OUT_OF_RANGE) => First::Found(Finding::OutOfRange),
        Probed::Refused(code) => First::Found(Finding::Refused(code)),
        Probed::LeftOut(text) => First::Found(Finding::NotYet(text)),
        Probed::Batches {
            bytes,
            high_watermark,
            ..
        } if bytes.is_empty() && high_watermark <= probe.offset => {
            let offset = probe.offset;
            First::Found(Finding::NotYet(format!(
                "the source shows its log up to {high_watermark} only, ours was copied up to {offset}"
            )))
        }
        Probed::Batches {
            bytes, log_start, ..
        } => match judge(ours, bytes).await {
            Ok(Verdict::Same) => First::Found(Finding::Same),
            Ok(Verdict::Different(d)) => First::Found(Finding::Different(d)),
            Ok(Verdict::NothingLeft) => First::NothingLeft { log_start },
            Err(text) => First::Found(Finding::NotYet(text)),
        },
    }
}

/// Compares the first batch the source has with the one of ours at its offsets.
fn common_verdict(subject: &Subject, theirs: &Bytes) -> Result<Finding, String> {
    let Ok(remote) = BatchHeader::parse(theirs) else {
        return Ok(Finding::NothingInCommon);
    };
    if remote.base_offset >= subject.agreed {
        return Ok(Finding::NothingInCommon);
    }
    let log = subject.local.log();
    let from = remote.base_offset.max(log.log_start_offset());
    let Some((ours, header)) = batch_from(log, from)? else {
        return Ok(Finding::NothingInCommon);
    };
    if header.base_offset > remote.last_offset() {
        return Ok(Finding::Different(not_ours(&remote, &header)));
    }
    Ok(match compare(&ours, theirs)? {
        Verdict::Same => Finding::Same,
        Verdict::NothingLeft => Finding::NothingInCommon,
        Verdict::Different(difference) => Finding::Different(difference),
    })
}

/// Asks one broker.
struct Asker<'a> {
    client: &'a SourceClient,
    handle: &'a Handle,
    subjects: &'a [Subject],
}

impl Asker<'_> {
    /// Where the source has nothing left of our last batch: the first batch that it has, if we have
    /// it too.
    async fn compare_first_common(
        &self,
        second: Vec<(usize, i64)>,
        findings: &mut [Finding],
    ) -> Result<(), AskError> {
        let probe = |(subject, log_start): (usize, i64)| Probe {
            subject,
            offset: log_start.max(self.subjects[subject].local.log().log_start_offset()),
            bytes: GUESS_BYTES,
        };
        let probes: Vec<Probe> = second.into_iter().map(probe).collect();
        for chunk in chunks(&probes) {
            let answers = self.ask(chunk).await?;
            for (probe, probed) in chunk.iter().zip(answers) {
                findings[probe.subject] = match probed {
                    Probed::Refused(ErrorCode::OFFSET_OUT_OF_RANGE) => Finding::OutOfRange,
                    Probed::Refused(code) => Finding::Refused(code),
                    Probed::LeftOut(text) => Finding::NotYet(text),
                    Probed::Batches { bytes, .. } => {
                        let subject = std::slice::from_ref(&self.subjects[probe.subject]);
                        on_disk(subject, move |subject| common_verdict(&subject[0], &bytes)).await?
                    }
                };
            }
        }
        Ok(())
    }

    /// What the source has at these probes. What does not come whole among many is asked for alone.
    async fn ask(&self, probes: &[Probe]) -> Result<Vec<Probed>, AskError> {
        let mut answers = self.fetch(probes).await?;
        if probes.len() == 1 {
            return Ok(answers);
        }
        for (probe, answer) in probes.iter().zip(&mut answers) {
            let is_short = matches!(answer, Probed::Batches { bytes, high_watermark, .. }
                if *high_watermark > probe.offset && !holds_a_batch(bytes));
            if is_short {
                // Larger than ours, or cut by the limit of the whole answer.
                let alone = self.fetch(std::slice::from_ref(probe)).await?;
                if let Some(whole) = alone.into_iter().next() {
                    *answer = whole;
                }
            }
        }
        Ok(answers)
    }

    async fn fetch(&self, probes: &[Probe]) -> Result<Vec<Probed>, AskError> {
        let subjects = self.subjects;
        let all_have_ids = probes
            .iter()
            .all(|p| subjects[p.subject].topic_id.is_some());
        let versions = self.handle.versions();
        let by_id = all_have_ids && versions.common::<FetchRequest>(BY_ID).is_some();
        let request = request(subjects, probes, by_id);
        let wanted = if by_id { BY_ID } else { BY_NAME };
        let response = self
            .client
            .note_broker(self.handle.call_within(&request, wanted).await)?;
        let code = ErrorCode(response.error_code);
        if code != ErrorCode::NONE {
            let text = format!("the source refused Fetch: {}", code.name());
            return Err(AskError::Source(SourceError::Other(text)));
        }
        let parts = parts(&response);
        let probed = |probe: &Probe| {
            let subject = &subjects[probe.subject];
            let key = match subject.topic_id {
                Some(id) if by_id => (Str::EMPTY, id, subject.partition),
                _ => (subject.topic.clone(), Uuid::ZERO, subject.partition),
            };
            parts.get(&key).map_or_else(
                || Probed::LeftOut(why_left_out(response.throttle_time_ms)),
                |data| Probed::of(data),
            )
        };
        Ok(probes.iter().map(probed).collect())
    }
}

impl Probed {
    fn of(data: &PartitionData) -> Probed {
        match ErrorCode(data.error_code) {
            ErrorCode::NONE => Probed::Batches {
                bytes: data
                    .records
                    .as_ref()
                    .and_then(|r| r.as_bytes())
                    .cloned()
                    .unwrap_or_default(),
                high_watermark: data.high_watermark,
                log_start: data.log_start_offset.max(0),
            },
            code => Probed::Refused(code),
        }
    }
}

fn why_left_out(throttle_ms: i32) -> String {
    let why = match NoValue::left_out(throttle_ms) {
        NoValue::LeftOut(why) => why,
        NoValue::Refused(code) => code.name().to_owned(),
    };
    format!("the comparison with the source waits: {why}")
}

/// The partitions of an answer by topic name (or empty), topic id (or zero), and partition.
fn parts(response: &FetchResponse) -> HashMap<(Str, Uuid, i32), &PartitionData> {
    let mut parts = HashMap::new();
    for topic in &response.responses {
        for data in &topic.partitions {
            let key = (topic.topic.clone(), topic.topic_id, data.partition_index);
            parts.insert(key, data);
        }
    }
    parts
}

fn holds_a_batch(bytes: &Bytes) -> bool {
    BatchHeader::parse(bytes).is_ok_and(|h| h.size() <= bytes.len())
}

fn request(subjects: &[Subject], probes: &[Probe], by_id: bool) -> FetchRequest {
    let mut topics: Vec<FetchTopic> = Vec::new();
    let mut bytes = 0i32;
    for probe in probes {
        let subject = &subjects[probe.subject];
        let size = i32::try_from(probe.bytes).unwrap_or(i32::MAX);
        bytes = bytes.saturating_add(size);
        let partition = FetchPartition {
            partition: subject.partition,
            current_leader_epoch: subject.leader_epoch,
            fetch_offset: probe.offset,
            last_fetched_epoch: -1,
            log_start_offset: -1,
            partition_max_bytes: size,
            ..Default::default()
        };
        let (topic, topic_id) = match subject.topic_id {
            Some(id) if by_id => (Str::EMPTY, id),
            _ => (subject.topic.clone(), Uuid::ZERO),
        };
        match topics
            .last_mut()
            .filter(|t| t.topic == topic && t.topic_id == topic_id)
        {
            Some(last) => last.partitions.push(partition),
            None => topics.push(FetchTopic {
                topic,
                topic_id,
                partitions: vec![partition],
                ..Default::default()
            }),
        }
    }
    FetchRequest {
        replica_id: -1,
        max_wait_ms: 0,
        min_bytes: 0,
        max_bytes: bytes,
        session_epoch: -1,
        topics,
        ..Default::default()
    }
}

async fn judge(ours: Bytes, theirs: Bytes) -> Result<Verdict, String> {
    if theirs.starts_with(&ours) {
        return Ok(Verdict::Same);
    }
    // What compaction rewrote is decompressed.
    tokio::task::spawn_blocking(move || compare(&ours, &theirs))
        .await
        .map_err(|e| e.to_string())?
}

/// Reads local logs on the pool for it.
async fn on_disk<T: Send + 'static>(
    subjects: &[Subject],
    read: impl FnOnce(&[Subject]) -> Result<T, String> + Send + 'static,
) -> Result<T, AskError> {
    let subjects = subjects.to_vec();
    let done = tokio::task::spawn_blocking(move || read(&subjects)).await;
    done.map_err(|e| e.to_string())
        .flatten()
        .map_err(|text| AskError::Source(SourceError::Other(text)))
}

/// The last batch of a log that ends below `offset`.
fn batch_below(log: &PartitionLog, offset: i64) -> Result<Option<BatchHeader>, String> {
    let (start, limit) = (log.log_start_offset(), offset.min(log.log_end_offset()));
    let mut back = 1i64;
    loop {
        let from = limit.saturating_sub(back).max(start);
        let mut found = None;
        let mut at = from;
        while at < limit {
            let Some(bytes) = read(log, at, SCAN_BYTES)? else {
                break;
            };
            let before = at;
            for batch in tarn_records::batches(&bytes) {
                let Ok(batch) = batch else { break };
                at = batch.header.next_offset();
                if at > limit {
                    break;
                }
                found = Some(batch.header);
            }
            if at <= before {
                break;
            }
        }
        if found.is_some() || from <= start {
            return Ok(found);
        }
        // `limit` stands in a gap or in a batch that reaches beyond it.
        back = back.saturating_mul(16);
    }
}

/// The batch of a log that holds `offset`, or the first one after it.
fn batch_from(log: &PartitionLog, offset: i64) -> Result<Option<(Bytes, BatchHeader)>, String> {
    let Some(bytes) = read(log, offset, 1)? else {
        return Ok(None);
    };
    let header = BatchHeader::parse(&bytes).map_err(|e| e.to_string())?;
    Ok(Some((
        bytes.slice(..header.size().min(bytes.len())),
        header,
    )))
}

fn read(log: &PartitionLog, offset: i64, bytes: u64) -> Result<Option<Bytes>, String> {
    let end = log.log_end_offset();
    let slice = log
        .read(offset, bytes, end, true)
        .map_err(|e| e.to_string())?;
    slice
        .map(|s| s.read().map_err(|e| e.to_string()))
        .transpose()
}
