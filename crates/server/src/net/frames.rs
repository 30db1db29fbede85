//! Reads length-prefixed frames from a socket, each into one buffer of its own, under limits of size and time.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::OwnedSemaphorePermit;

use super::budget::ByteBudget;

/// What is reserved for a frame before its bytes arrive; a liar about lengths costs no more than this.
const FIRST_RESERVE: usize = 64 * 1024;

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
    #[error("a frame took too long to arrive")]
    Slow,
    #[error("{0}")]
    Io(#[from] std::io::Error),
}

/// A frame without its length, and its share of the byte budget.
#[derive(Debug)]
pub(crate) struct ReadFrame {
    pub(crate) bytes: Bytes,
    pub(crate) permit: Option<OwnedSemaphorePermit>,
}

/// Smallest request: key, version, correlation id.
const FRAME_BYTES_MIN: usize = 8;

/// Reads one frame.
pub(crate) async fn read_frame<R: AsyncRead + Unpin>(
    r: &mut R,
    limits: &ReadLimits,
    budget: &ByteBudget,
) -> Result<ReadFrame, ReadEnd> {
    let mut prefix = [0u8; 4];
    let first = match tokio::time::timeout(limits.idle, r.read(&mut prefix)).await {
        Err(_) => return Err(ReadEnd::Idle),
        Ok(read) => read?,
    };
    if first == 0 {
        return Err(ReadEnd::Closed);
    }
    match tokio::time::timeout(
        limits.frame_time_max,
        read_rest(r, prefix, first, limits, budget),
    )
    .await
    {
        Err(_) => Err(ReadEnd::Slow),
        Ok(frame) => frame,
    }
}

async fn read_rest<R: AsyncRead + Unpin>(
    r: &mut R,
    mut prefix: [u8; 4],
    have: usize,
    limits: &ReadLimits,
    budget: &ByteBudget,
) -> Result<ReadFrame, ReadEnd> {
    read_exact(r, &mut prefix[have..]).await?;
    let announced = i32::from_be_bytes(prefix);
    let len = usize::try_from(announced)
        .ok()
        .filter(|len| (FRAME_BYTES_MIN..=limits.frame_bytes_max).contains(len))
        .ok_or(ReadEnd::BadLength(announced, limits.frame_bytes_max))?;
    let permit = budget.take(len).await;
    let mut buffer = BytesMut::with_capacity(len.min(FIRST_RESERVE));
    while buffer.len() < len {
        if buffer.capacity() == buffer.len() {
            // The first bytes are here: the sender is serious, so one allocation for the whole frame is fair.
            buffer.reserve(len - buffer.len());
        }
        let left = len - buffer.len();
        let mut window = bytes::BufMut::limit(&mut buffer, left);
        if r.read_buf(&mut window).await? == 0 {
            return Err(ReadEnd::Cut);
        }
    }
    Ok(ReadFrame {
        bytes: buffer.freeze(),
        permit,
    })
}

async fn read_exact<R: AsyncRead + Unpin>(r: &mut R, into: &mut [u8]) -> Result<(), ReadEnd> {
    match r.read_exact(into).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => Err(ReadEnd::Cut),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits() -> ReadLimits {
        ReadLimits {
            frame_bytes_max: 1 << 20,
            idle: Duration::from_secs(5),
            frame_time_max: Duration::from_secs(1),
        }
    }

    async fn read(bytes: &[u8]) -> Result<ReadFrame, ReadEnd> {
        let mut input = bytes;
        read_frame(&mut input, &limits(), &ByteBudget::new(1 << 20, 1 << 20)).await
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
        let end = read_frame(&mut server, &limits(), &ByteBudget::new(1 << 20, 1 << 20))
            .await
            .unwrap_err();
        assert!(matches!(end, ReadEnd::Slow));
    }
}
