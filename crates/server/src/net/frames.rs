//! Reads length-prefixed frames from a socket, each into one buffer of its own, under limits of
//! size and time.
//!
//! While the size of the next frame is unknown, a chunk is read into a buffer of the thread, so
//! that a small request costs one read and an idle connection no memory; a large frame gets its
//! buffer as soon as its length is there, and the rest is read straight into it.

use std::cell::RefCell;
use std::future::poll_fn;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::budget::{BudgetShare, Charge};

/// Bytes asked of the socket at once while no length is known. Frames that fit into it are not
/// counted in the byte budget.
const CHUNK_BYTES: usize = 8 * 1024;
/// What is reserved for a large frame before its bytes arrive: more than most produce requests, so
/// that they are never moved. Memory that is reserved and not written costs nothing.
const FIRST_RESERVE: usize = 2 << 20;
/// What a large frame is charged with before its bytes arrive: all of an ordinary produce request,
/// next to nothing of an announcement.
const FIRST_CHARGE: usize = 256 << 10;
/// How many times the bytes that are here a large frame is charged with before more are read: few
/// steps, and an announcement gains little.
const CHARGE_GROWTH: usize = 4;

thread_local! {
    static CHUNK: RefCell<Box<[MaybeUninit<u8>]>> = RefCell::new(Box::new([MaybeUninit::uninit(); CHUNK_BYTES]));
}

/// Limits of one connection's reading side.
#[derive(Debug, Clone)]
pub(crate) struct ReadLimits {
    /// `socket.request.max.bytes`.
    pub(crate) frame_bytes_max: usize,
    /// No frame begins for this long: the connection is closed.
    pub(crate) idle: Duration,
    /// A frame that began must be complete after this time.
    pub(crate) frame_time_max: Duration,
}

/// Why reading ended. Every reason closes the connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadEnd {
    #[error("closed by the peer")]
    Closed,
    #[error("closed in the middle of a frame")]
    Cut,
    #[error("frame length {0} is outside 8 to {1}")]
    BadLength(i32, usize),
    #[error("idle for too long")]
    Idle,
    #[error("a frame took too long to arrive (socket.frame.timeout.ms)")]
    Slow,
    #[error(
        "no memory for the request came free within socket.frame.timeout.ms (queued.max.request.bytes and the shares of it)"
    )]
    NoBudget,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A frame without its length, in a buffer of its own, and what the byte budget was charged with
/// for it (`None` for one that fits a chunk).
#[derive(Debug)]
pub(crate) struct ReadFrame {
    pub(crate) bytes: Bytes,
    pub(crate) charge: Option<Charge>,
}

/// Smallest request: key, version, correlation id.
const FRAME_BYTES_MIN: usize = 8;

/// Bytes of the length in front of a frame.
const PREFIX_BYTES: usize = 4;

/// Reads the frames of one connection.
#[derive(Debug)]
pub(crate) struct FrameReader {
    limits: ReadLimits,
    /// Bytes that were read and belong to no frame given out yet.
    pending: BytesMut,
    clock: Clock,
}

impl FrameReader {
    pub(crate) fn new(limits: ReadLimits) -> FrameReader {
        FrameReader {
            clock: Clock::new(limits.idle),
            limits,
            pending: BytesMut::new(),
        }
    }

    /// The key of the next request, when it is here as a whole.
    pub(crate) fn next_key(&self) -> Option<i16> {
        let len = self.announced().ok().flatten()?;
        let frame = self.pending.get(PREFIX_BYTES..PREFIX_BYTES + len)?;
        Some(i16::from_be_bytes([frame[0], frame[1]]))
    }

    /// Reads one frame.
    pub(crate) async fn next<R: AsyncRead + Unpin>(
        &mut self,
        r: &mut R,
        budget: &BudgetShare,
    ) -> Result<ReadFrame, ReadEnd> {
        let len = loop {
            if let Some(len) = self.announced()? {
                break len;
            }
            let begun = !self.pending.is_empty();
            match self.fill(r, begun).await? {
                0 if begun => return Err(ReadEnd::Cut),
                0 => return Err(ReadEnd::Closed),
                _ => {}
            }
        };
        let frame = if PREFIX_BYTES + len <= CHUNK_BYTES {
            self.small(r, len).await?
        } else {
            self.large(r, len, budget).await?
        };
        self.clock.rest();
        Ok(frame)
    }

    /// The length of the next frame, once it is here.
    fn announced(&self) -> Result<Option<usize>, ReadEnd> {
        let Some(prefix) = self.pending.first_chunk::<PREFIX_BYTES>() else {
            return Ok(None);
        };
        let announced = i32::from_be_bytes(*prefix);
        usize::try_from(announced)
            .ok()
            .filter(|len| (FRAME_BYTES_MIN..=self.limits.frame_bytes_max).contains(len))
            .map(Some)
            .ok_or(ReadEnd::BadLength(announced, self.limits.frame_bytes_max))
    }

    async fn small<R: AsyncRead + Unpin>(
        &mut self,
        r: &mut R,
        len: usize,
    ) -> Result<ReadFrame, ReadEnd> {
        let whole = PREFIX_BYTES + len;
        while self.pending.len() < whole {
            if self.fill(r, true).await? == 0 {
                return Err(ReadEnd::Cut);
            }
        }
        let bytes = if self.pending.len() == whole {
            std::mem::take(&mut self.pending)
        } else {
            // Not `split_to`: a frame that shares its memory cannot be changed in place.
            let bytes = BytesMut::from(&self.pending[..whole]);
            self.pending.advance(whole);
            bytes
        };
        let mut bytes = bytes.freeze();
        bytes.advance(PREFIX_BYTES);
        Ok(ReadFrame {
            bytes,
            charge: None,
        })
    }

    async fn large<R: AsyncRead + Unpin>(
        &mut self,
        r: &mut R,
        len: usize,
        budget: &BudgetShare,
    ) -> Result<ReadFrame, ReadEnd> {
        let limit = self.limits.frame_time_max;
        let mut charge = budget.charge();
        let mut charged = len.min(FIRST_CHARGE);
        let wait = self.clock.bound(limit, charge.grow(charged)).await;
        wait.ok_or(ReadEnd::NoBudget)?;
        let mut buffer = BytesMut::with_capacity(len.min(FIRST_RESERVE));
        let here = (self.pending.len() - PREFIX_BYTES).min(len);
        buffer.extend_from_slice(&self.pending[PREFIX_BYTES..PREFIX_BYTES + here]);
        self.pending.advance(PREFIX_BYTES + here);
        if self.pending.is_empty() {
            self.pending = BytesMut::new();
        }
        while buffer.len() < len {
            if buffer.capacity() == buffer.len() {
                // So many bytes are here: the sender is serious, so one allocation for the whole
                // frame is fair.
                buffer.reserve(len - buffer.len());
            }
            if buffer.len() >= charged {
                charged = len.min(buffer.len() * CHARGE_GROWTH);
                let wait = self.clock.bound(limit, charge.grow(charged)).await;
                wait.ok_or(ReadEnd::NoBudget)?;
            }
            let left = charged - buffer.len();
            let mut window = bytes::BufMut::limit(&mut buffer, left);
            let read = self.clock.bound(limit, r.read_buf(&mut window));
            if read.await.ok_or(ReadEnd::Slow)?? == 0 {
                return Err(ReadEnd::Cut);
            }
        }
        Ok(ReadFrame {
            bytes: buffer.freeze(),
            charge: Some(charge),
        })
    }

    /// Reads what is there, at most a chunk, behind the pending bytes; 0 at the end of the stream.
    async fn fill<R: AsyncRead + Unpin>(
        &mut self,
        r: &mut R,
        begun: bool,
    ) -> Result<usize, ReadEnd> {
        let pending = &mut self.pending;
        let read = poll_fn(|cx| {
            CHUNK.with_borrow_mut(|chunk| {
                let mut into = ReadBuf::uninit(chunk);
                Pin::new(&mut *r).poll_read(cx, &mut into).map_ok(|()| {
                    pending.extend_from_slice(into.filled());
                    into.filled().len()
                })
            })
        });
        let (limit, late) = if begun {
            (self.limits.frame_time_max, ReadEnd::Slow)
        } else {
            (self.limits.idle, ReadEnd::Idle)
        };
        let read = self.clock.bound(limit, read).await.ok_or(late)??;
        if !begun {
            self.clock.rest();
        }
        Ok(read)
    }
}

/// The one timer of a connection's reading side. It is moved only when a nearer deadline comes up
/// or when it fires, not with each frame.
#[derive(Debug)]
struct Clock {
    /// When what is waited for now is late; `None` until something is waited for.
    due: Option<Instant>,
    watch: Pin<Box<Sleep>>,
}

impl Clock {
    fn new(first: Duration) -> Clock {
        Clock {
            due: None,
            watch: Box::pin(tokio::time::sleep(first)),
        }
    }

    /// What was waited for is here; the next wait has a deadline of its own.
    fn rest(&mut self) {
        self.due = None;
    }

    /// Runs `work`; `None` when it is not done `limit` after the first wait since the last
    /// [`Clock::rest`].
    async fn bound<T>(&mut self, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
        let mut work = pin!(work);
        poll_fn(|cx| match work.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_late(cx, limit).map(|()| None),
        })
        .await
    }

    fn poll_late(&mut self, cx: &mut Context<'_>, limit: Duration) -> Poll<()> {
        let due = *self.due.get_or_insert_with(|| Instant::now() + limit);
        if self.watch.deadline() > due {
            self.watch.as_mut().reset(due);
        }
        while self.watch.as_mut().poll(cx).is_ready() {
            if Instant::now() >= due {
                return Poll::Ready(());
            }
            self.watch.as_mut().reset(due);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use super::super::budget::{ByteBudget, Shares};

    fn share(bytes: u64) -> BudgetShare {
        ByteBudget::new(bytes, Shares::WHOLE).share([127, 0, 0, 1].into())
    }

    fn limits() -> ReadLimits {
        ReadLimits {
            frame_bytes_max: 1 << 20,
            idle: Duration::from_secs(5),
            frame_time_max: Duration::from_secs(1),
        }
    }

    async fn read(bytes: &[u8]) -> Result<ReadFrame, ReadEnd> {
        let mut input = bytes;
        let budget = share(4 << 20);
        FrameReader::new(limits()).next(&mut input, &budget).await
    }

    #[tokio::test]
    async fn a_frame_arrives_whole() {
        let body = vec![7u8; 200_000];
        let mut input = (body.len() as i32).to_be_bytes().to_vec();
        input.extend(&body);
        assert_eq!(read(&input).await.unwrap().bytes, body);
    }

    #[tokio::test]
    async fn bad_lengths_end_the_connection() {
        for length in [-2i32, -1, 0, 7, (1 << 20) + 1, i32::MAX, i32::MIN] {
            let end = read(&length.to_be_bytes()).await.unwrap_err();
            assert!(matches!(end, ReadEnd::BadLength(got, _) if got == length));
        }
    }

    #[tokio::test]
    async fn short_input_is_told_from_a_close() {
        assert!(matches!(read(b"").await.unwrap_err(), ReadEnd::Closed));
        assert!(matches!(read(b"\0\0").await.unwrap_err(), ReadEnd::Cut));
        assert!(matches!(
            read(b"\0\0\0\x10abc").await.unwrap_err(),
            ReadEnd::Cut
        ));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_sender_is_cut_off() {
        let (mut client, mut server) = tokio::io::duplex(64);
        tokio::io::AsyncWriteExt::write_all(&mut client, &[0, 0, 0, 16, 1])
            .await
            .unwrap();
        let budget = share(4 << 20);
        let end = FrameReader::new(limits()).next(&mut server, &budget).await;
        assert!(matches!(end.unwrap_err(), ReadEnd::Slow));
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_frame_that_stops_arriving_is_cut_off_and_an_idle_connection_later() {
        let budget = share(4 << 20);
        let (mut client, mut server) = tokio::io::duplex(64 * 1024);
        let mut reader = FrameReader::new(limits());
        let mut small = vec![0, 0, 0, 16];
        small.extend([1; 16]);
        tokio::io::AsyncWriteExt::write_all(&mut client, &small)
            .await
            .unwrap();
        reader.next(&mut server, &budget).await.unwrap();
        let began = Instant::now();
        let end = reader.next(&mut server, &budget).await.unwrap_err();
        assert!(matches!(end, ReadEnd::Idle));
        assert_eq!(began.elapsed().as_secs(), limits().idle.as_secs());

        let mut reader = FrameReader::new(limits());
        tokio::io::AsyncWriteExt::write_all(&mut client, &100_000i32.to_be_bytes())
            .await
            .unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut client, &[7; 20_000])
            .await
            .unwrap();
        let end = reader.next(&mut server, &budget).await.unwrap_err();
        assert!(matches!(end, ReadEnd::Slow));
    }

    #[tokio::test]
    async fn frames_that_arrive_together_are_told_apart_and_can_be_changed_in_place() {
        let budget = share(4 << 20);
        let bodies = [vec![1u8; 100], vec![2; 8], vec![3; 30_000], vec![4; 50]];
        let mut input = Vec::new();
        for body in &bodies {
            input.extend((body.len() as i32).to_be_bytes());
            input.extend(body);
        }
        let mut input = &input[..];
        let mut reader = FrameReader::new(limits());
        for (at, body) in bodies.iter().enumerate() {
            let frame = reader.next(&mut input, &budget).await.unwrap();
            assert_eq!(frame.bytes, body);
            assert!(frame.bytes.try_into_mut().is_ok(), "frame {at}");
            if at == 0 {
                assert_eq!(reader.next_key(), Some(0x0202));
            }
        }
        let end = reader.next(&mut input, &budget).await.unwrap_err();
        assert!(matches!(end, ReadEnd::Closed));
    }

    /// A frame that is only announced costs next to nothing, so that others are read; one that
    /// arrives is charged with what is here.
    #[tokio::test(start_paused = true)]
    async fn announcements_do_not_use_up_the_budget() {
        let limits = ReadLimits {
            frame_bytes_max: 100 << 20,
            ..limits()
        };
        let budget = ByteBudget::new(64 << 20, Shares::WHOLE);
        let mut announced = Vec::new();
        for _ in 0..62 {
            let (mut client, mut server) = tokio::io::duplex(64);
            let bytes = [&(100i32 << 20).to_be_bytes()[..], &[0; 8]].concat();
            tokio::io::AsyncWriteExt::write_all(&mut client, &bytes)
                .await
                .unwrap();
            let (share, limits) = (budget.share([127, 0, 0, 1].into()), limits.clone());
            announced.push(tokio::spawn(async move {
                let _client = client;
                FrameReader::new(limits).next(&mut server, &share).await
            }));
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
        let mut input = (1_000_000i32).to_be_bytes().to_vec();
        input.extend(vec![7; 1_000_000]);
        let (mut input, began) = (&input[..], Instant::now());
        let share = budget.share([127, 0, 0, 1].into());
        let frame = FrameReader::new(limits).next(&mut input, &share).await;
        assert_eq!(frame.unwrap().bytes.len(), 1_000_000);
        assert!(began.elapsed() < Duration::from_millis(100));
        for waiting in announced {
            assert!(matches!(waiting.await.unwrap(), Err(ReadEnd::Slow)));
        }
    }

    /// The wait for the budget has a deadline.
    #[tokio::test(start_paused = true)]
    async fn a_frame_without_memory_is_given_up_after_its_time() {
        let budget = share(1 << 20);
        let (mut all, mut over) = (budget.charge(), budget.charge());
        all.grow(1 << 20).await;
        over.grow(1 << 20).await;
        let mut input = 500_000i32.to_be_bytes().to_vec();
        input.extend([7; 9_000]);
        let began = Instant::now();
        let end = FrameReader::new(limits())
            .next(&mut &input[..], &budget)
            .await;
        assert!(matches!(end.unwrap_err(), ReadEnd::NoBudget));
        assert_eq!(began.elapsed(), limits().frame_time_max);
    }
}
