//! The outside observer of lag: a writer that stamps records at the source on a fixed schedule, and
//! a reader that sees them at the destination. Both are threads of this process with one clock. A
//! lag counts from the moment at which the record was due, not from the moment at which the writer
//! got round to it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use bytes::{BufMut, Bytes, BytesMut};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::{FetchRequest, TopicName};
use kafka_protocol::protocol::StrBytes;
use kafka_protocol::records::{Compression, RecordBatchDecoder};
use tarn_tests::raw::RawClient;

use super::fill::VALUE_BYTES;
use super::wire::{self, Topic};

/// The last version that names topics.
const FETCH_VERSION: i16 = 12;
/// How long the destination may hold back an answer; the default of Kafka's consumers.
const WAIT_MS: i32 = 500;
const PARTITION_BYTES_MAX: i32 = 1 << 20;
const ANSWER_BYTES_MAX: i32 = 50 << 20;
/// Size of a batch before its records, and of the fields in front of its length.
const BATCH_HEADER_BYTES: usize = 61;
const LOG_OVERHEAD_BYTES: usize = 12;
const STAMP_BYTES: usize = 8;
/// A session starts with epoch 0; this one continues.
const SESSION_STARTS: i32 = 0;

/// How the writer spreads its records.
#[derive(Clone, Debug)]
pub struct Schedule {
    /// The topics, taken in turn, all their partitions in turn.
    pub topics: Vec<Topic>,
    /// Time between two requests; each goes to one topic.
    pub tick: Duration,
    /// Partitions that get a batch in each request.
    pub partitions: usize,
    /// Records in each batch.
    pub records: usize,
    /// Bytes of each record's value, the stamp included.
    pub value_bytes: usize,
}

impl Schedule {
    /// `bytes_per_s` to one partition in records of [`VALUE_BYTES`], a batch each millisecond.
    #[must_use]
    pub fn stream(topic: &Topic, bytes_per_s: u64) -> Self {
        let records_per_s = bytes_per_s / VALUE_BYTES as u64;
        Self {
            topics: vec![topic.clone()],
            tick: Duration::from_millis(1),
            partitions: 1,
            records: usize::try_from(records_per_s / 1000).unwrap_or(1).max(1),
            value_bytes: VALUE_BYTES,
        }
    }

    /// One record of 100 bytes a second to each partition of `topics`, a hundred requests a second.
    #[must_use]
    pub fn trickle(topics: &[Topic]) -> Self {
        const REQUESTS_PER_S: usize = 100;
        let all: i32 = topics.iter().map(|t| t.partitions).sum();
        let all = usize::try_from(all).unwrap_or(0);
        let partitions = (all / REQUESTS_PER_S).max(1);
        Self {
            topics: topics.to_vec(),
            tick: Duration::from_secs(1).mul_f64(partitions as f64 / all as f64),
            partitions,
            records: 1,
            value_bytes: 100,
        }
    }
}

/// A running writer.
#[derive(Debug)]
pub struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<u64>>,
}

impl Writer {
    /// Starts writing to the broker at `port`; stamps count from `clock`.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn start(port: u16, schedule: Schedule, clock: Instant) -> Result<Self> {
        let client = RawClient::connect(port)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || write(client, &schedule, clock, &stopped));
        Ok(Self { stop, thread })
    }

    /// Ends it and gives the number of records sent.
    ///
    /// # Errors
    /// The source closed the connection.
    pub fn stop(self) -> Result<u64> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread
            .join()
            .map_err(|_| anyhow!("the writer panicked"))?
    }
}

fn write(
    mut client: RawClient,
    schedule: &Schedule,
    clock: Instant,
    stop: &AtomicBool,
) -> Result<u64> {
    let mut targets = targets(schedule).into_iter().cycle();
    let filler = vec![b'x'; schedule.value_bytes.saturating_sub(STAMP_BYTES)];
    let mut sent = 0;
    let mut due = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let stamp = u64::try_from(due.duration_since(clock).as_nanos())?;
        let mut value = BytesMut::with_capacity(schedule.value_bytes);
        value.put_u64(stamp);
        value.put_slice(&filler);
        let values = vec![value.freeze(); schedule.records];
        let batch = wire::batch(&values, Compression::None)?;
        let (topic, partitions) = targets.next().context("there are topics")?;
        sent += (partitions.len() * schedule.records) as u64;
        let batches = partitions.iter().map(|p| (*p, batch.clone())).collect();
        wire::send(&mut client, &topic, batches)?;
        due += schedule.tick;
    }
    Ok(sent)
}

/// What one request after the other addresses.
fn targets(schedule: &Schedule) -> Vec<(String, Vec<i32>)> {
    let mut all = Vec::new();
    for topic in &schedule.topics {
        let partitions: Vec<i32> = (0..topic.partitions).collect();
        for chunk in partitions.chunks(schedule.partitions.max(1)) {
            all.push((topic.name.clone(), chunk.to_vec()));
        }
    }
    all
}

/// A running reader.
#[derive(Debug)]
pub struct Reader {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<Vec<(u64, u64)>>>,
}

/// Lags that a reader saw.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lags(Vec<u64>);

impl Lags {
    /// Takes lags in any order, nanoseconds.
    #[must_use]
    pub fn of(mut lags: Vec<u64>) -> Self {
        lags.sort_unstable();
        Self(lags)
    }

    /// The value below which the share `q` of all lags lies, milliseconds; NaN when there are none.
    #[must_use]
    pub fn quantile_ms(&self, q: f64) -> f64 {
        let at = (self.0.len() as f64 * q).ceil() as usize;
        self.0
            .get(at.clamp(1, self.0.len().max(1)) - 1)
            .map_or(f64::NAN, |ns| *ns as f64 / 1e6)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.0.len()
    }
}

impl Reader {
    /// Starts to follow `partitions` (topic, partition, next offset) at `port` with one fetch
    /// session.
    ///
    /// # Errors
    /// Nobody listens.
    pub fn start(port: u16, partitions: Vec<(String, i32, i64)>, clock: Instant) -> Result<Self> {
        let session = Session::new(RawClient::connect(port)?, partitions);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || read(session, clock, &stopped));
        Ok(Self { stop, thread })
    }

    /// Ends it and gives the lags of the records that were due in `window`. Call it when they all
    /// have arrived: the worst come last.
    ///
    /// # Errors
    /// The destination closed the connection or refused a fetch.
    pub fn stop(self, window: &Range<Duration>) -> Result<Lags> {
        self.stop.store(true, Ordering::Relaxed);
        let seen = self
            .thread
            .join()
            .map_err(|_| anyhow!("the reader panicked"))??;
        let counted = seen
            .into_iter()
            .filter(|(stamp, _)| window.contains(&Duration::from_nanos(*stamp)));
        Ok(Lags::of(counted.map(|(_, lag)| lag).collect()))
    }
}

/// Stamp and lag, nanoseconds, of every record seen.
fn read(mut session: Session, clock: Instant, stop: &AtomicBool) -> Result<Vec<(u64, u64)>> {
    let mut seen = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        // What comes last is seen in the answer that is being waited for when the order to stop
        // comes.
        let stamps = session.fetch()?;
        let now = u64::try_from(clock.elapsed().as_nanos())?;
        seen.extend(stamps.into_iter().map(|s| (s, now.saturating_sub(s))));
    }
    Ok(seen)
}

/// One incremental fetch session.
struct Session {
    client: RawClient,
    id: i32,
    epoch: i32,
    next: BTreeMap<(String, i32), i64>,
    /// Whose next offset the broker does not know yet.
    moved: Vec<(String, i32)>,
}

impl Session {
    fn new(client: RawClient, partitions: Vec<(String, i32, i64)>) -> Self {
        let next: BTreeMap<_, _> = partitions
            .into_iter()
            .map(|(topic, partition, offset)| ((topic, partition), offset))
            .collect();
        Self {
            client,
            id: 0,
            epoch: SESSION_STARTS,
            moved: next.keys().cloned().collect(),
            next,
        }
    }

    /// Asks once and gives the stamps of all records that came.
    fn fetch(&mut self) -> Result<Vec<u64>> {
        let request = FetchRequest::default()
            .with_replica_id((-1).into())
            .with_max_wait_ms(WAIT_MS)
            .with_min_bytes(1)
            .with_max_bytes(ANSWER_BYTES_MAX)
            .with_session_id(self.id)
            .with_session_epoch(self.epoch)
            .with_topics(self.wanted());
        let answer = self.client.call(FETCH_VERSION, &request)?;
        ensure!(
            answer.error_code == 0,
            "a reader's fetch: error {}",
            answer.error_code
        );
        self.id = answer.session_id;
        self.epoch += 1;
        self.moved.clear();
        let mut stamps = Vec::new();
        for topic in answer.responses {
            for partition in topic.partitions {
                ensure!(
                    partition.error_code == 0,
                    "a reader's fetch of {}-{}: error {}",
                    topic.topic.0,
                    partition.partition_index,
                    partition.error_code
                );
                let key = (topic.topic.0.to_string(), partition.partition_index);
                let next = self
                    .next
                    .get_mut(&key)
                    .context("a partition not asked for")?;
                let records = partition.records.unwrap_or_default();
                if let Some(end) = stamps_of(records, *next, &mut stamps)? {
                    *next = end;
                    self.moved.push(key);
                }
            }
        }
        Ok(stamps)
    }

    fn wanted(&self) -> Vec<FetchTopic> {
        let mut topics: BTreeMap<&str, Vec<FetchPartition>> = BTreeMap::new();
        for key in &self.moved {
            let partition = FetchPartition::default()
                .with_partition(key.1)
                .with_fetch_offset(self.next[key])
                .with_partition_max_bytes(PARTITION_BYTES_MAX)
                .with_current_leader_epoch(-1)
                .with_last_fetched_epoch(-1);
            topics.entry(&key.0).or_default().push(partition);
        }
        topics
            .into_iter()
            .map(|(topic, partitions)| {
                FetchTopic::default()
                    .with_topic(TopicName(StrBytes::from_string(topic.to_owned())))
                    .with_partitions(partitions)
            })
            .collect()
    }
}

/// Adds the stamps of the records from offset `from` on; gives the offset after the last whole
/// batch, if there is one.
fn stamps_of(mut records: Bytes, from: i64, stamps: &mut Vec<u64>) -> Result<Option<i64>> {
    let mut end = None;
    while records.len() > BATCH_HEADER_BYTES {
        let length = i32::from_be_bytes(records[8..LOG_OVERHEAD_BYTES].try_into()?);
        let length = LOG_OVERHEAD_BYTES + usize::try_from(length)?;
        if length > records.len() {
            break; // cut off by the byte limit
        }
        let mut batch = records.split_to(length);
        for record in RecordBatchDecoder::decode(&mut batch)?.records {
            end = Some(record.offset + 1);
            let value = record.value.unwrap_or_default();
            if record.offset >= from && value.len() >= STAMP_BYTES {
                stamps.push(u64::from_be_bytes(value[..STAMP_BYTES].try_into()?));
            }
        }
    }
    Ok(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trickle_reaches_every_partition_once_a_second() {
        let topics: Vec<Topic> = (0..10).map(|i| Topic::new(format!("t{i}"), 100)).collect();
        let schedule = Schedule::trickle(&topics);
        let round = targets(&schedule);
        assert_eq!(round.iter().map(|(_, p)| p.len()).sum::<usize>(), 1000);
        assert_eq!(schedule.tick * round.len() as u32, Duration::from_secs(1));
    }

    #[test]
    fn quantiles_are_of_the_sorted_lags() {
        let lags = Lags((1..=1000).map(|ms| ms * 1_000_000).collect());
        assert_eq!(lags.quantile_ms(0.5), 500.0);
        assert_eq!(lags.quantile_ms(0.99), 990.0);
        assert_eq!(lags.quantile_ms(1.0), 1000.0);
        assert!(Lags::default().quantile_ms(0.5).is_nan());
    }

    #[test]
    fn stamps_are_read_from_whole_batches_only() {
        let mut value = BytesMut::new();
        value.put_u64(42);
        let batch = wire::batch(&[value.clone().freeze(), value.freeze()], Compression::None)
            .expect("batch");
        let mut bytes = BytesMut::from(&batch[..]);
        bytes.put_slice(&batch[..batch.len() - 1]);
        let mut stamps = Vec::new();
        let end = stamps_of(bytes.freeze(), 1, &mut stamps).expect("stamps");
        assert_eq!((end, stamps), (Some(2), vec![42]));
    }
}
