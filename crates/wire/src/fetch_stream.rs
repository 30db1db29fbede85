//! A push parser of Fetch responses (versions 4 to 18): bytes go in as they come off the socket,
//! events come out.
//!
//! It exists so that a mirror can write record batches to disk while the answer is still arriving:
//! no whole response is ever held. It owns the layout of the Fetch response body and nothing else:
//! not the frame, not the batches. The sender is not trusted: counts from the wire allocate
//! nothing, every list is capped by what was asked for, and no input makes it panic.

use bytes::{Buf, Bytes, BytesMut};

use crate::{Str, Uuid};

/// Oldest Fetch version understood: the first with record batches of format 2 (Kafka 0.11).
pub const FETCH_VERSION_MIN: i16 = 4;
/// Newest Fetch version understood.
pub const FETCH_VERSION_MAX: i16 = 18;
/// From this version on lists and strings are compact and structs end in tagged fields.
const FLEXIBLE_FROM: i16 = 12;
/// From this version on topics are named by id only.
const TOPIC_ID_FROM: i16 = 13;
/// Longest topic or host name that is taken from the wire, in bytes.
const NAME_BYTES_MAX: usize = 1024;
/// First step by which a unit that was cut by a piece boundary is completed, in bytes.
const CARRY_STEP: usize = 64;

/// What a response may at most contain. A response beyond it is an error, whatever it claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchLimits {
    /// Most topics, usually the number of topics asked for.
    pub topics_max: usize,
    /// Most partitions over all topics, usually the number asked for.
    pub partitions_max: usize,
    /// Most aborted transactions in one partition.
    pub aborted_max: usize,
    /// Most bytes in one section of tagged fields.
    pub tagged_bytes_max: usize,
}

impl Default for FetchLimits {
    fn default() -> Self {
        FetchLimits {
            topics_max: 10_000,
            partitions_max: 100_000,
            aborted_max: 100_000,
            tagged_bytes_max: 64 * 1024,
        }
    }
}

/// Why a response cannot be read. The connection it came from is of no use any more.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FetchStreamError {
    /// The version is outside what this parser knows.
    #[error("fetch version {0} is not between {FETCH_VERSION_MIN} and {FETCH_VERSION_MAX}")]
    Version(i16),
    /// The response ends inside a field.
    #[error("fetch response ends inside {0}")]
    Short(&'static str),
    /// Bytes remain after the last field.
    #[error("fetch response has {0} bytes after its last field")]
    Trailing(u64),
    /// A list is longer than allowed or its length is not a length.
    #[error("fetch response claims {count} {what}, at most {max} are accepted")]
    TooMany {
        /// What is counted.
        what: &'static str,
        /// The claimed number.
        count: i64,
        /// The limit.
        max: usize,
    },
    /// A field has a value that cannot be.
    #[error("fetch response has a bad {0}")]
    Bad(&'static str),
}

type Result<T> = std::result::Result<T, FetchStreamError>;

/// The first fields of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchHeader {
    /// How long the source throttled the request, milliseconds.
    pub throttle_time_ms: i32,
    /// Error of the whole response (version 7 and later, else 0).
    pub error_code: i16,
    /// Fetch session, 0 = none.
    pub session_id: i32,
    /// Number of topics that follow.
    pub topic_count: usize,
}

/// One aborted transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AbortedTransaction {
    /// Producer of the transaction.
    pub producer_id: i64,
    /// First offset of the transaction.
    pub first_offset: i64,
}

/// Everything of a partition that comes before its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchPartitionStart {
    /// Topic name, empty from version 13 on.
    pub topic: Str,
    /// Topic id, zero before version 13.
    pub topic_id: Uuid,
    /// Partition number.
    pub partition_index: i32,
    /// Error of this partition.
    pub error_code: i16,
    /// High watermark of the leader.
    pub high_watermark: i64,
    /// Last stable offset, −1 if not told.
    pub last_stable_offset: i64,
    /// Log start offset, −1 if not told (version 4).
    pub log_start_offset: i64,
    /// Aborted transactions, `None` when the field is null.
    pub aborted_transactions: Option<Vec<AbortedTransaction>>,
    /// Replica to read from instead, −1 = none.
    pub preferred_read_replica: i32,
    /// Length of the records that follow, in bytes; `None` when the field is null.
    pub records_len: Option<u32>,
}

/// Offset up to which the asker's epoch chain agrees with the leader's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DivergingEpoch {
    /// Largest epoch of the leader that is not above the asker's, −1 = none.
    pub epoch: i32,
    /// End offset of that epoch, −1 = unknown.
    pub end_offset: i64,
}

/// Leader that the answering broker knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurrentLeader {
    /// Broker id, −1 = none.
    pub leader_id: i32,
    /// Its epoch, −1 = unknown.
    pub leader_epoch: i32,
}

/// Snapshot to load instead of records (metadata quorum only).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotId {
    /// End offset of the snapshot.
    pub end_offset: i64,
    /// Epoch of the snapshot.
    pub epoch: i32,
}

/// Tagged fields of a partition; they come after its records.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FetchPartitionEnd {
    /// Present when the asker's log diverges.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Present when the leader is another one.
    pub current_leader: Option<CurrentLeader>,
    /// Present when the log start is beyond the fetch offset of a quorum replica.
    pub snapshot_id: Option<SnapshotId>,
}

/// Address of a broker named in `current_leader`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEndpoint {
    /// Broker id.
    pub node_id: i32,
    /// Host to connect to.
    pub host: Str,
    /// Port to connect to.
    pub port: i32,
    /// Rack, if any.
    pub rack: Option<Str>,
}

/// One event of a response, in wire order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FetchEvent {
    /// First event of every response.
    Header(FetchHeader),
    /// A topic begins.
    Topic {
        /// Topic name, empty from version 13 on.
        name: Str,
        /// Topic id, zero before version 13.
        id: Uuid,
        /// Number of partitions that follow.
        partition_count: usize,
    },
    /// A partition begins.
    PartitionStart(FetchPartitionStart),
    /// The next bytes of the partition's records, never empty, at most one pushed piece.
    Records(Bytes),
    /// The partition is complete.
    PartitionEnd(FetchPartitionEnd),
    /// The response is complete. Always the last event.
    End {
        /// Addresses of the leaders named by partitions (version 16 and later).
        node_endpoints: Vec<NodeEndpoint>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    HeaderTags,
    Top,
    Topic,
    Partition,
    Aborted { left: usize },
    RecordsLen,
    Records { left: u64 },
    PartitionTags,
    TopicTags,
    TopTags,
    Done,
}

/// The parser of one response.
#[derive(Debug)]
pub struct FetchStream {
    version: i16,
    limits: FetchLimits,
    state: State,
    /// Bytes of the response that were not pushed yet.
    to_come: u64,
    input: Bytes,
    carry: BytesMut,
    topics_left: usize,
    partitions_left: usize,
    partitions_seen: usize,
    topic: Str,
    topic_id: Uuid,
    partition: FetchPartitionStart,
}

impl FetchStream {
    /// A parser of a response *body* of `body_len` bytes.
    ///
    /// # Errors
    /// [`FetchStreamError::Version`] when the version is not one of 4 to 18.
    pub fn new(version: i16, body_len: u64, limits: FetchLimits) -> Result<Self> {
        if !(FETCH_VERSION_MIN..=FETCH_VERSION_MAX).contains(&version) {
            return Err(FetchStreamError::Version(version));
        }
        Ok(FetchStream {
            version,
            limits,
            state: State::Top,
            to_come: body_len,
            input: Bytes::new(),
            carry: BytesMut::new(),
            topics_left: 0,
            partitions_left: 0,
            partitions_seen: 0,
            topic: Str::default(),
            topic_id: Uuid::ZERO,
            partition: FetchPartitionStart::default(),
        })
    }

    /// A parser that starts right behind the correlation id, so that it also reads the header's
    /// tagged fields. `len` counts everything behind the correlation id.
    ///
    /// # Errors
    /// As [`FetchStream::new`].
    pub fn after_correlation_id(version: i16, len: u64, limits: FetchLimits) -> Result<Self> {
        let mut stream = Self::new(version, len, limits)?;
        if version >= FLEXIBLE_FROM {
            stream.state = State::HeaderTags;
        }
        Ok(stream)
    }

    /// Bytes that still have to be pushed before the response is complete.
    pub fn bytes_to_come(&self) -> u64 {
        self.to_come
    }

    /// True when [`FetchEvent::End`] was returned.
    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Gives the parser the next piece. All events of the piece before must have been taken.
    ///
    /// # Errors
    /// [`FetchStreamError::Trailing`] when the piece is longer than what is to come.
    pub fn push(&mut self, piece: Bytes) -> Result<()> {
        let len = piece.len() as u64;
        self.to_come = self
            .to_come
            .checked_sub(len)
            .ok_or(FetchStreamError::Trailing(len))?;
        if self.input.is_empty() {
            self.input = piece;
        } else {
            let mut joined = BytesMut::with_capacity(self.input.len() + piece.len());
            joined.extend_from_slice(&self.input);
            joined.extend_from_slice(&piece);
            self.input = joined.freeze();
        }
        Ok(())
    }

    /// The next event, or `None` when another piece is needed (or the response is done).
    ///
    /// # Errors
    /// Any [`FetchStreamError`]; after one the parser must not be used any more.
    pub fn next_event(&mut self) -> Result<Option<FetchEvent>> {
        loop {
            match self.state {
                State::Done => return Ok(None),
                State::Records { left: 0 } => self.state = State::PartitionTags,
                State::Records { left } => {
                    if self.input.is_empty() {
                        return if self.to_come == 0 {
                            Err(FetchStreamError::Short("records"))
                        } else {
                            Ok(None)
                        };
                    }
                    let take = usize::try_from(left)
                        .unwrap_or(usize::MAX)
                        .min(self.input.len());
                    self.state = State::Records {
                        left: left - take as u64,
                    };
                    return Ok(Some(FetchEvent::Records(self.input.split_to(take))));
                }
                _ => match self.step()? {
                    Step::Event(event) => return Ok(Some(event)),
                    Step::Silent => {}
                    Step::NeedMore => return Ok(None),
                },
            }
        }
    }

    /// Parses one unit from the input, completing it from the carry when a piece boundary cut it.
    fn step(&mut self) -> Result<Step> {
        if self.carry.is_empty() {
            let input = self.input.clone();
            let mut cursor = Cursor::new(&input);
            return match self.unit(&mut cursor) {
                Ok(step) => {
                    self.input.advance(cursor.used);
                    self.check_trailing()?;
                    Ok(step)
                }
                Err(Fault::Incomplete(what)) => {
                    self.carry.extend_from_slice(&input);
                    self.input = Bytes::new();
                    self.check_unfinished(what)
                }
                Err(Fault::Fatal(e)) => Err(e),
            };
        }
        while !self.input.is_empty() {
            let before = self.carry.len();
            let take = self.input.len().min(before.max(CARRY_STEP));
            self.carry.extend_from_slice(&self.input[..take]);
            let carry = std::mem::take(&mut self.carry);
            let mut cursor = Cursor::new(&carry);
            match self.unit(&mut cursor) {
                Ok(step) => {
                    // It was incomplete before, so it uses all carried bytes and at least one new
                    // one.
                    self.input.advance(cursor.used.saturating_sub(before));
                    self.check_trailing()?;
                    return Ok(step);
                }
                Err(Fault::Incomplete(what)) => {
                    self.input.advance(take);
                    self.carry = carry;
                    self.check_unfinished(what)?;
                }
                Err(Fault::Fatal(e)) => return Err(e),
            }
        }
        Ok(Step::NeedMore)
    }

    /// An unfinished unit is an error when nothing more comes, or when it is longer than any honest
    /// one.
    fn check_unfinished(&self, what: &'static str) -> Result<Step> {
        if self.to_come == 0 && self.input.is_empty() {
            return Err(FetchStreamError::Short(what));
        }
        let max = self.limits.tagged_bytes_max + 2 * NAME_BYTES_MAX;
        if self.carry.len() > max {
            return Err(too_many(
                "bytes in one field group",
                self.carry.len() as i64,
                max,
            ));
        }
        Ok(Step::NeedMore)
    }

    fn check_trailing(&self) -> Result<()> {
        let left = self.to_come + self.input.len() as u64;
        if self.state == State::Done && left > 0 {
            Err(FetchStreamError::Trailing(left))
        } else {
            Ok(())
        }
    }

    fn flexible(&self) -> bool {
        self.version >= FLEXIBLE_FROM
    }

    /// Parses one unit. Nothing of `self` changes unless the whole unit is there.
    fn unit(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        match self.state {
            State::HeaderTags => {
                c.tagged(self.limits.tagged_bytes_max, |_, _| Ok(()))?;
                self.state = State::Top;
                Ok(Step::Silent)
            }
            State::Top => self.top(c),
            State::Topic => self.topic(c),
            State::Partition => self.partition(c),
            State::Aborted { left } => self.aborted(c, left),
            State::RecordsLen => self.records_len(c),
            State::PartitionTags => self.partition_tags(c),
            State::TopicTags => {
                if self.flexible() {
                    c.tagged(self.limits.tagged_bytes_max, |_, _| Ok(()))?;
                }
                self.state = self.after_topic();
                Ok(Step::Silent)
            }
            State::TopTags => self.top_tags(c),
            State::Records { .. } | State::Done => Ok(Step::NeedMore),
        }
    }

    fn after_topic(&self) -> State {
        if self.topics_left == 0 {
            State::TopTags
        } else {
            State::Topic
        }
    }

    fn after_partition(&self) -> State {
        if self.partitions_left == 0 {
            State::TopicTags
        } else {
            State::Partition
        }
    }

    fn top(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        let mut header = FetchHeader {
            throttle_time_ms: c.i32("throttle time")?,
            ..FetchHeader::default()
        };
        if self.version >= 7 {
            header.error_code = c.i16("error code")?;
            header.session_id = c.i32("session id")?;
        }
        header.topic_count = c
            .count("topics", self.flexible(), self.limits.topics_max)?
            .unwrap_or(0);
        self.topics_left = header.topic_count;
        self.state = self.after_topic();
        Ok(Step::Event(FetchEvent::Header(header)))
    }

    fn topic(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        let (mut name, mut id) = (Str::default(), Uuid::ZERO);
        if self.version >= TOPIC_ID_FROM {
            id = c.uuid("topic id")?;
        } else {
            name = c
                .string("topic name", self.flexible())?
                .ok_or(Fault::Fatal(FetchStreamError::Bad("topic name")))?;
        }
        let max = self
            .limits
            .partitions_max
            .saturating_sub(self.partitions_seen);
        let partition_count = c.count("partitions", self.flexible(), max)?.unwrap_or(0);
        self.topics_left -= 1;
        self.partitions_left = partition_count;
        self.partitions_seen += partition_count;
        self.topic = name.clone();
        self.topic_id = id;
        self.state = self.after_partition();
        Ok(Step::Event(FetchEvent::Topic {
            name,
            id,
            partition_count,
        }))
    }

    fn partition(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        let mut start = FetchPartitionStart {
            topic: self.topic.clone(),
            topic_id: self.topic_id,
            partition_index: c.i32("partition index")?,
            error_code: c.i16("partition error")?,
            high_watermark: c.i64("high watermark")?,
            last_stable_offset: c.i64("last stable offset")?,
            log_start_offset: -1,
            aborted_transactions: None,
            preferred_read_replica: -1,
            records_len: None,
        };
        if self.version >= 5 {
            start.log_start_offset = c.i64("log start offset")?;
        }
        let aborted = c.count(
            "aborted transactions",
            self.flexible(),
            self.limits.aborted_max,
        )?;
        start.aborted_transactions = aborted.map(|_| Vec::new());
        self.partitions_left -= 1;
        self.partition = start;
        self.state = match aborted {
            None | Some(0) => State::RecordsLen,
            Some(left) => State::Aborted { left },
        };
        Ok(Step::Silent)
    }

    fn aborted(&mut self, c: &mut Cursor<'_>, left: usize) -> Unit<Step> {
        let transaction = AbortedTransaction {
            producer_id: c.i64("producer id")?,
            first_offset: c.i64("first offset")?,
        };
        if self.flexible() {
            c.tagged(self.limits.tagged_bytes_max, |_, _| Ok(()))?;
        }
        self.partition
            .aborted_transactions
            .get_or_insert_with(Vec::new)
            .push(transaction);
        self.state = if left > 1 {
            State::Aborted { left: left - 1 }
        } else {
            State::RecordsLen
        };
        Ok(Step::Silent)
    }

    fn records_len(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        let preferred = if self.version >= 11 {
            c.i32("preferred read replica")?
        } else {
            -1
        };
        let len = c.bytes_len("records", self.flexible())?;
        self.partition.preferred_read_replica = preferred;
        self.partition.records_len = len;
        self.state = State::Records {
            left: u64::from(len.unwrap_or(0)),
        };
        Ok(Step::Event(FetchEvent::PartitionStart(std::mem::take(
            &mut self.partition,
        ))))
    }

    fn partition_tags(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        let mut end = FetchPartitionEnd::default();
        if self.flexible() {
            c.tagged(self.limits.tagged_bytes_max, |tag, field| {
                match tag {
                    0 => {
                        let value = DivergingEpoch {
                            epoch: field.i32("epoch")?,
                            end_offset: field.i64("end offset")?,
                        };
                        end.diverging_epoch = Some(value);
                    }
                    1 => {
                        let value = CurrentLeader {
                            leader_id: field.i32("leader id")?,
                            leader_epoch: field.i32("leader epoch")?,
                        };
                        end.current_leader = Some(value);
                    }
                    2 => {
                        let value = SnapshotId {
                            end_offset: field.i64("end offset")?,
                            epoch: field.i32("epoch")?,
                        };
                        end.snapshot_id = Some(value);
                    }
                    _ => return Ok(()),
                }
                field.tagged(usize::MAX, |_, _| Ok(()))
            })?;
        }
        self.state = self.after_partition();
        Ok(Step::Event(FetchEvent::PartitionEnd(end)))
    }

    fn top_tags(&mut self, c: &mut Cursor<'_>) -> Unit<Step> {
        let mut node_endpoints = Vec::new();
        if self.flexible() {
            let (max, from_16) = (self.limits.partitions_max, self.version >= 16);
            c.tagged(self.limits.tagged_bytes_max, |tag, field| {
                if tag != 0 || !from_16 {
                    return Ok(());
                }
                let count = field.count("node endpoints", true, max)?.unwrap_or(0);
                for _ in 0..count {
                    node_endpoints.push(node_endpoint(field)?);
                }
                Ok(())
            })?;
        }
        self.state = State::Done;
        Ok(Step::Event(FetchEvent::End { node_endpoints }))
    }
}

fn node_endpoint(field: &mut Cursor<'_>) -> Unit<NodeEndpoint> {
    let node_id = field.i32("node id")?;
    let host = field
        .string("host", true)?
        .ok_or(Fault::Fatal(FetchStreamError::Bad("host")))?;
    let port = field.i32("port")?;
    let rack = field.string("rack", true)?;
    field.tagged(usize::MAX, |_, _| Ok(()))?;
    Ok(NodeEndpoint {
        node_id,
        host,
        port,
        rack,
    })
}

enum Step {
    Event(FetchEvent),
    Silent,
    NeedMore,
}

/// Why a unit was not parsed: it goes on in the next piece, or it is wrong.
enum Fault {
    Incomplete(&'static str),
    Fatal(FetchStreamError),
}

impl From<Fault> for FetchStreamError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Incomplete(what) => FetchStreamError::Short(what),
            Fault::Fatal(e) => e,
        }
    }
}

type Unit<T> = std::result::Result<T, Fault>;

fn too_many(what: &'static str, count: i64, max: usize) -> FetchStreamError {
    FetchStreamError::TooMany { what, count, max }
}

/// A reader over a slice that may end inside a unit.
struct Cursor<'a> {
    bytes: &'a [u8],
    used: usize,
}

impl<'a> Cursor<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Cursor { bytes, used: 0 }
    }

    fn take(&mut self, len: usize, what: &'static str) -> Unit<&'a [u8]> {
        let end = self.used.checked_add(len).ok_or(Fault::Incomplete(what))?;
        let slice = self
            .bytes
            .get(self.used..end)
            .ok_or(Fault::Incomplete(what))?;
        self.used = end;
        Ok(slice)
    }

    fn array<const N: usize>(&mut self, what: &'static str) -> Unit<[u8; N]> {
        let slice = self.take(N, what)?;
        slice.try_into().map_err(|_| Fault::Incomplete(what))
    }

    fn i16(&mut self, what: &'static str) -> Unit<i16> {
        self.array(what).map(i16::from_be_bytes)
    }

    fn i32(&mut self, what: &'static str) -> Unit<i32> {
        self.array(what).map(i32::from_be_bytes)
    }

    fn i64(&mut self, what: &'static str) -> Unit<i64> {
        self.array(what).map(i64::from_be_bytes)
    }

    fn uuid(&mut self, what: &'static str) -> Unit<Uuid> {
        self.array(what).map(Uuid)
    }

    fn varint(&mut self, what: &'static str) -> Unit<u32> {
        let mut value = 0u32;
        for shift in [0, 7, 14, 21, 28] {
            let byte = self.array::<1>(what)?[0];
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                return Err(Fault::Fatal(FetchStreamError::Bad(what)));
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Fault::Fatal(FetchStreamError::Bad(what)))
    }

    /// A list length, `None` when the list is null.
    fn count(&mut self, what: &'static str, compact: bool, max: usize) -> Unit<Option<usize>> {
        let count = if compact {
            i64::from(self.varint(what)?) - 1
        } else {
            i64::from(self.i32(what)?)
        };
        match usize::try_from(count) {
            Ok(n) if n <= max => Ok(Some(n)),
            Err(_) if count == -1 => Ok(None),
            _ => Err(Fault::Fatal(too_many(what, count, max))),
        }
    }

    fn bytes_len(&mut self, what: &'static str, compact: bool) -> Unit<Option<u32>> {
        let max = i32::MAX as usize;
        Ok(self
            .count(what, compact, max)?
            .and_then(|n| u32::try_from(n).ok()))
    }

    fn string(&mut self, what: &'static str, compact: bool) -> Unit<Option<Str>> {
        let len = if compact {
            i64::from(self.varint(what)?) - 1
        } else {
            i64::from(self.i16(what)?)
        };
        let len = match usize::try_from(len) {
            Ok(n) if n <= NAME_BYTES_MAX => n,
            Err(_) if len == -1 => return Ok(None),
            _ => return Err(Fault::Fatal(too_many(what, len, NAME_BYTES_MAX))),
        };
        let text = std::str::from_utf8(self.take(len, what)?)
            .map_err(|_| Fault::Fatal(FetchStreamError::Bad(what)))?;
        Ok(Some(Str::from(text)))
    }

    /// A section of tagged fields; `field` sees each with a reader over exactly its bytes.
    fn tagged(
        &mut self,
        bytes_max: usize,
        mut field: impl FnMut(u32, &mut Cursor<'_>) -> Unit<()>,
    ) -> Unit<()> {
        let start = self.used;
        let count = self.varint("tagged fields")?;
        for _ in 0..count {
            let tag = self.varint("tag")?;
            let len = self.varint("tag length")? as usize;
            let total = (self.used - start).saturating_add(len);
            if total > bytes_max {
                return Err(Fault::Fatal(too_many(
                    "bytes of tagged fields",
                    total as i64,
                    bytes_max,
                )));
            }
            let mut inner = Cursor::new(self.take(len, "tagged field")?);
            // Inside a tagged field nothing more can come: running short there is an error of the
            // sender.
            field(tag, &mut inner).map_err(|fault| Fault::Fatal(fault.into()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
