//! Writes answer frames: inline pieces with one vectored write, file ranges with `sendfile`. Only
//! small ranges are copied: `sendfile` cannot send what stands behind a range, so that a reader
//! would be woken for an answer of which the end is still missing, and a frame with small ranges of
//! many partitions would cost several calls for each. What of a file is not in memory is loaded
//! elsewhere first (`cold`).

use std::io::{self, IoSlice};
use std::time::Duration;

use bytes::{Buf, Bytes};
use rustix::net::SendFlags;
use tarn_wire::{FileRange, Frame, Segment};
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::cold;

/// Most pieces in one vectored write.
const PIECES_MAX: usize = 64;
/// Longest range that is copied.
const COPIED_BYTES_MAX: u64 = 32 * 1024;
/// Copies that wait for the next write; more are written first, so that an answer of many small
/// ranges needs little memory.
const COPIES_HELD_BYTES_MAX: usize = 256 * 1024;
/// Most bytes in one `sendfile`; other tasks of the worker get their turn in between.
const SENDFILE_BYTES_MAX: u64 = 4 << 20;

/// Writes a whole frame. `stall_max`: how long the peer may take nothing before the connection
/// counts as dead.
pub(crate) async fn write_frame(
    stream: &TcpStream,
    frame: Frame,
    stall_max: Duration,
) -> io::Result<()> {
    let mut inline: Vec<Bytes> = Vec::new();
    let mut copied = 0;
    for segment in frame.segments {
        match segment {
            Segment::Bytes(bytes) => inline.push(bytes),
            Segment::File(range) => match cold::copy_if_warm(&range, COPIED_BYTES_MAX) {
                Some(bytes) => {
                    copied += bytes.len();
                    inline.push(bytes);
                    if copied >= COPIES_HELD_BYTES_MAX {
                        copied = 0;
                        write_inline(stream, &mut inline, stall_max).await?;
                    }
                }
                None => {
                    copied = 0;
                    write_ahead_of_file(stream, &mut inline, stall_max).await?;
                    send_file(stream, range, stall_max).await?;
                }
            },
        }
    }
    write_inline(stream, &mut inline, stall_max).await
}

async fn writable(stream: &TcpStream, stall_max: Duration) -> io::Result<()> {
    match tokio::time::timeout(stall_max, stream.writable()).await {
        Ok(ready) => ready,
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the peer takes no bytes",
        )),
    }
}

/// Writes pieces that a file range follows: the kernel keeps a small piece back and sends it
/// together with the first bytes of the file.
async fn write_ahead_of_file(
    stream: &TcpStream,
    pieces: &mut Vec<Bytes>,
    stall_max: Duration,
) -> io::Result<()> {
    if let [only] = pieces.as_slice() {
        let sent = stream.try_io(Interest::WRITABLE, || {
            rustix::net::send(stream, only, SendFlags::MORE | SendFlags::NOSIGNAL)
                .map_err(io::Error::from)
        });
        match sent {
            Ok(sent) => pieces[0].advance(sent),
            Err(error) if is_temporary(&error) => {}
            Err(error) => return Err(error),
        }
        pieces.retain(|piece| !piece.is_empty());
    }
    write_inline(stream, pieces, stall_max).await
}

fn is_temporary(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

async fn write_inline(
    stream: &TcpStream,
    pieces: &mut Vec<Bytes>,
    stall_max: Duration,
) -> io::Result<()> {
    while !try_write_inline(stream, pieces)? {
        writable(stream, stall_max).await?;
    }
    Ok(())
}

/// Writes as much as the socket takes now; true when that was all. What was written is taken out of
/// `pieces`.
pub(super) fn try_write_inline(stream: &TcpStream, pieces: &mut Vec<Bytes>) -> io::Result<bool> {
    let mut at = 0;
    while at < pieces.len() {
        let written = match &pieces[at..] {
            [only] => stream.try_write(only),
            several => {
                let mut slices = [IoSlice::new(&[]); PIECES_MAX];
                let count = several.len().min(PIECES_MAX);
                for (slice, piece) in slices.iter_mut().zip(several) {
                    *slice = IoSlice::new(piece);
                }
                stream.try_write_vectored(&slices[..count])
            }
        };
        match written {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(mut written) => {
                while at < pieces.len() && written >= pieces[at].len() {
                    written -= pieces[at].len();
                    at += 1;
                }
                if written > 0 {
                    pieces[at].advance(written);
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                pieces.drain(..at);
                return Ok(false);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    pieces.clear();
    Ok(true)
}

async fn send_file(stream: &TcpStream, range: FileRange, stall_max: Duration) -> io::Result<()> {
    let mut offset = range.offset;
    let end = range.offset + range.len;
    // Up to where the file is known to be in memory.
    let mut warm_to = offset;
    while offset < end {
        if offset >= warm_to {
            warm_to = end.min(offset + SENDFILE_BYTES_MAX);
            cold::warm(&range.file, offset..warm_to).await?;
        }
        let want = (warm_to - offset) as usize;
        let sent = stream.try_io(Interest::WRITABLE, || {
            rustix::fs::sendfile(stream, &*range.file, Some(&mut offset), want)
                .map_err(io::Error::from)
        });
        match sent {
            // The file is shorter than the range: it was cut meanwhile. The length is promised
            // already, so only closing is left.
            Ok(0) => {
                return Err(io::Error::new(
                    io::ErrorKind::UnexpectedEof,
                    "the segment became shorter while it was sent",
                ));
            }
            // A reader that keeps up would hold the worker for the whole answer.
            Ok(_) if offset >= warm_to && offset < end => tokio::task::yield_now().await,
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                writable(stream, stall_max).await?
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    /// What a client gets of a frame of `segments`.
    async fn sent(segments: Vec<Segment>) -> (Vec<u8>, io::Result<()>) {
        let len = segments.iter().map(Segment::len).sum();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let write = tokio::spawn(async move {
            write_frame(&server, Frame { segments, len }, Duration::from_secs(5)).await
        });
        let mut got = Vec::new();
        client.read_to_end(&mut got).await.unwrap();
        (got, write.await.unwrap())
    }

    fn segment(file: &Arc<std::fs::File>, range: std::ops::Range<usize>) -> Segment {
        Segment::File(FileRange {
            file: file.clone(),
            offset: range.start as u64,
            len: range.len() as u64,
        })
    }

    #[tokio::test]
    async fn inline_pieces_and_file_ranges_arrive_in_order() {
        let mut file = tempfile::tempfile().unwrap();
        let content: Vec<u8> = (0..3_000_000u32).map(|i| i as u8).collect();
        file.write_all(&content).unwrap();
        let file = Arc::new(file);
        let (small, large) = (COPIED_BYTES_MAX as usize, 2_500_000);
        let mut segments = vec![
            Segment::Bytes(Bytes::from_static(b"head")),
            Segment::Bytes(Bytes::from_static(b"er")),
            segment(&file, 1000..1000 + large),
            Segment::Bytes(Bytes::from_static(b"tail")),
        ];
        let mut want = b"header".to_vec();
        want.extend(&content[1000..1000 + large]);
        want.extend(b"tail");
        // Small ones, more than are held for one write, and some of them just too large for a copy.
        for at in 0..40 {
            let range = at..at + small + at % 2;
            segments.push(segment(&file, range.clone()));
            segments.push(Segment::Bytes(Bytes::from_static(b"between")));
            want.extend(&content[range]);
            want.extend(b"between");
        }
        let (got, written) = sent(segments).await;
        written.unwrap();
        assert!(got == want);
    }

    #[tokio::test]
    async fn a_small_range_that_is_not_in_memory_or_not_there_any_more_is_not_made_up() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 5_000]).unwrap();
        file.sync_all().unwrap();
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).unwrap();
        let file = Arc::new(file);
        let (got, written) = sent(vec![segment(&file, 0..5_000)]).await;
        written.unwrap();
        assert_eq!(got, [7; 5_000]);
        let (got, written) = sent(vec![segment(&file, 4_000..6_000)]).await;
        assert_eq!(written.unwrap_err().kind(), io::ErrorKind::UnexpectedEof);
        assert_eq!(got, [7; 1_000]);
    }

    #[tokio::test]
    async fn a_peer_that_takes_nothing_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let _client = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (server, _) = listener.accept().await.unwrap();
        let frame = Frame::from_bytes(Bytes::from(vec![0u8; 64 << 20]));
        let error = write_frame(&server, frame, Duration::from_millis(100))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
