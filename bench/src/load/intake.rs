//! A blocking socket read field by field. Every byte is copied out of the kernel, as a client does:
//! a reader that throws them away there is always ahead of the broker, sleeps after each packet,
//! and makes the broker pay for waking it.
//!
//! Knows nothing of messages.

use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

/// Bytes of the buffer; it stays in the second-level cache.
const BUFFER_BYTES: usize = 256 * 1024;
/// Longest silence of a broker.
const SILENCE_MAX: Duration = Duration::from_secs(60);

/// The receiving side of a connection.
#[derive(Debug)]
pub(crate) struct Intake {
    stream: TcpStream,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
}

impl Intake {
    pub(crate) fn new(stream: TcpStream) -> Result<Self> {
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        Ok(Self {
            stream,
            buffer: vec![0; BUFFER_BYTES],
            start: 0,
            end: 0,
        })
    }

    /// The next `len` bytes, at most [`BUFFER_BYTES`].
    pub(crate) fn take(&mut self, len: usize) -> Result<&[u8]> {
        ensure!(len <= BUFFER_BYTES, "a field of {len} bytes");
        if self.end - self.start < len {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            while self.end < len {
                self.end += receive(&self.stream, &mut self.buffer[self.end..])?;
            }
        }
        self.start += len;
        Ok(&self.buffer[self.start - len..self.start])
    }

    /// Passes over `len` bytes.
    pub(crate) fn skip(&mut self, len: usize) -> Result<()> {
        let mut left = len;
        loop {
            let here = left.min(self.end - self.start);
            self.start += here;
            left -= here;
            if left == 0 {
                return Ok(());
            }
            (self.start, self.end) = (0, receive(&self.stream, &mut self.buffer)?);
        }
    }

    pub(crate) fn i16(&mut self) -> Result<i16> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    pub(crate) fn i32(&mut self) -> Result<i32> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn uvarint(&mut self) -> Result<usize> {
        let mut value = 0_usize;
        for shift in (0..35).step_by(7) {
            let byte = self.take(1)?[0];
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        bail!("a number of more than five bytes")
    }

    /// Passes over a section of tagged fields.
    pub(crate) fn skip_tags(&mut self) -> Result<()> {
        for _ in 0..self.uvarint()? {
            self.uvarint()?;
            let len = self.uvarint()?;
            self.skip(len)?;
        }
        Ok(())
    }
}

fn receive(stream: &TcpStream, into: &mut [u8]) -> Result<usize> {
    loop {
        match recv(stream, &mut *into, RecvFlags::empty()) {
            Ok((_, 0)) => bail!("the broker closed the connection"),
            Ok((_, got)) => return Ok(got),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => bail!("the broker said nothing for {SILENCE_MAX:?}"),
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::TcpListener;

    #[test]
    fn fields_and_skips_follow_each_other_across_any_boundary() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let writer = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut all = vec![0x96, 0x01];
            all.extend(std::iter::repeat_n(7_u8, 3_000_000));
            all.extend(5_i32.to_be_bytes());
            for piece in all.chunks(99_991) {
                stream.write_all(piece).unwrap();
            }
        });
        let mut intake = Intake::new(TcpStream::connect(address).unwrap()).unwrap();
        assert_eq!(intake.uvarint().unwrap(), 150);
        intake.skip(10).unwrap();
        assert_eq!(intake.take(3).unwrap(), [7, 7, 7]);
        intake.skip(2_999_987).unwrap();
        assert_eq!(intake.i32().unwrap(), 5);
        writer.join().unwrap();
        assert!(intake.take(1).is_err());
    }
}
