//! Bytes that came from a socket and were not taken yet. Shared by exclusive connections and shared
//! handles.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::Instant;

use crate::address::plain;
use crate::{ClientError, Peer, Result};

/// Most bytes read from the socket at once, and so the largest piece of a streamed Fetch.
pub(crate) const READ_BYTES_MAX: usize = 256 * 1024;
/// First read size; it doubles while reads fill it, so that an idle connection stays small.
const READ_BYTES_MIN: usize = 8 * 1024;
/// An answer must arrive at least this fast once it has begun, or an endless one would hold us for
/// ever.
const BYTES_PER_SECOND_MIN: u64 = 4 * 1024;

/// A limit on waiting: until when, and how long that was when it began (for the error text).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limit {
    pub(crate) until: Instant,
    pub(crate) length: Duration,
}

impl Limit {
    pub(crate) fn from_now(length: Duration) -> Self {
        Limit {
            until: Instant::now() + length,
            length,
        }
    }

    /// For the next piece of an answer that began at `begun` and of which `taken` bytes have come.
    pub(crate) fn for_next_piece(begun: Instant, taken: u64, length: Duration) -> Self {
        let stalled = Instant::now() + length;
        let too_slow = begun + length + Duration::from_secs(taken / BYTES_PER_SECOND_MIN);
        Limit {
            until: stalled.min(too_slow),
            length,
        }
    }
}

/// The receiving side of a connection. Every method may be cancelled and called again: no byte is
/// lost.
#[derive(Debug)]
pub(crate) struct Inbound {
    read: BytesMut,
    read_size: usize,
}

impl Inbound {
    pub(crate) fn new() -> Self {
        Inbound {
            read: BytesMut::new(),
            read_size: READ_BYTES_MIN,
        }
    }

    /// Bytes that are here.
    pub(crate) fn len(&self) -> usize {
        self.read.len()
    }

    /// Takes at most `max` of the bytes that are here.
    pub(crate) fn take(&mut self, max: usize) -> Bytes {
        self.read.split_to(max.min(self.read.len())).freeze()
    }

    /// Reads once, at most [`READ_BYTES_MAX`]; `None` waits without limit. Gives the number of
    /// bytes, at least 1.
    pub(crate) async fn fill(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: &Peer,
        limit: Option<Limit>,
    ) -> Result<usize> {
        if self.read.capacity() - self.read.len() < self.read_size {
            self.read.reserve(self.read_size);
        }
        let mut room = stream.take(READ_BYTES_MAX as u64);
        let reading = room.read_buf(&mut self.read);
        let outcome = match limit {
            None => reading.await,
            Some(Limit { until, length }) => tokio::time::timeout_at(until, reading)
                .await
                .map_err(|_| ClientError::timed_out(peer, "answer", length))?,
        };
        let n = outcome.map_err(|e| ClientError::closed(peer, plain(&e)))?;
        if n == 0 {
            return Err(ClientError::closed(peer, "end of stream"));
        }
        if n >= self.read_size {
            self.read_size = (self.read_size * 2).min(READ_BYTES_MAX);
        }
        Ok(n)
    }

    /// Waits for the first 8 bytes of an answer and gives its length (behind the length field) and
    /// correlation id. Nothing is taken.
    pub(crate) async fn peek_answer(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: &Peer,
        limit: Option<Limit>,
        len_max: usize,
    ) -> Result<(usize, i32)> {
        loop {
            if let Some(&[l0, l1, l2, l3, c0, c1, c2, c3]) = self.read.first_chunk::<8>() {
                let len = i32::from_be_bytes([l0, l1, l2, l3]);
                let usable = usize::try_from(len)
                    .ok()
                    .filter(|l| (4..=len_max).contains(l));
                let too_large = ClientError::TooLarge {
                    peer: peer.clone(),
                    len: len.into(),
                    max: len_max,
                };
                return Ok((
                    usable.ok_or(too_large)?,
                    i32::from_be_bytes([c0, c1, c2, c3]),
                ));
            }
            self.fill(stream, peer, limit).await?;
        }
    }

    /// Waits for a whole answer of `len` bytes and takes it, without its length field. Memory grows
    /// with what has arrived, never with what was announced.
    pub(crate) async fn take_answer(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        peer: &Peer,
        len: usize,
        request_timeout: Duration,
    ) -> Result<Bytes> {
        let begun = Instant::now();
        while self.read.len() < 4 + len {
            let limit = Limit::for_next_piece(begun, self.read.len() as u64, request_timeout);
            self.fill(stream, peer, Some(limit)).await?;
        }
        let _ = self.read.split_to(4);
        Ok(self.read.split_to(len).freeze())
    }
}
