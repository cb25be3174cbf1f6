//! An in-memory transport for channels without a socket, controlled by the test.
//!
//! Invariant: it behaves like a non-blocking socket. A read without input and a write without room
//! fail with `WouldBlock`. A read that does not fill the buffer has taken everything, unless the
//! test has limited it. The methods for the test return the [`Ready`] event that a poll would
//! report.

use crate::channel::driver::{Ready, Transport};
use bytes::{Bytes, BytesMut};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice},
};

#[derive(Debug, Default)]
pub(crate) struct MemoryTransport {
    /// Bytes from the peer that have not been read yet.
    unread: BytesMut,
    /// Whether the peer has ended its stream after `unread`.
    ended: bool,
    /// Bytes to the peer that the test has not taken yet.
    sent: BytesMut,
    /// The number of bytes that the peer still accepts; `None` for no limit.
    room: Option<usize>,
    /// Whether a write has failed because of a lack of room, so that new room causes an event.
    blocked: bool,
    write_ended: bool,
    /// Faults to inject. Boxed, because most channels do without.
    faults: Option<Box<Faults>>,
}

/// Faults that a test injects, each used once.
#[derive(Debug, Default)]
struct Faults {
    /// The maximum number of bytes of a read, one entry for each of the next reads.
    read_limits: VecDeque<usize>,
    /// The maximum number of bytes of a write, one entry for each of the next writes.
    write_limits: VecDeque<usize>,
    read: VecDeque<io::Error>,
    write: VecDeque<io::Error>,
}

impl MemoryTransport {
    /// Appends bytes from the peer.
    pub(crate) fn receive(&mut self, bytes: &[u8]) -> Ready {
        self.unread.extend_from_slice(bytes);
        Ready::READABLE
    }

    /// Ends the peer's stream after the unread bytes.
    pub(crate) fn end(&mut self) -> Ready {
        self.ended = true;
        Ready::READABLE.with(Ready::READ_CLOSED)
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Limits the number of bytes that the peer accepts from now on.
    pub(crate) fn set_room(&mut self, bytes: Option<usize>) -> Ready {
        self.room = bytes;
        let takes_more = self.blocked && bytes != Some(0);
        if takes_more {
            self.blocked = false;
        }
        Ready::NONE.with_if(takes_more, Ready::WRITABLE)
    }

    /// Takes all bytes that were sent since the last call. Keeps the buffer for later output.
    pub(crate) fn split_sent(&mut self) -> Bytes {
        self.sent.split().freeze()
    }

    /// Like [`split_sent`](MemoryTransport::split_sent), but releases the buffers, because one
    /// channel of many is idle most of the time.
    pub(crate) fn take_sent(&mut self) -> Bytes {
        if self.unread.is_empty() {
            self.unread = BytesMut::new();
        }
        std::mem::take(&mut self.sent).freeze()
    }

    /// Returns how many bytes the peer accepts with the next write.
    fn begin_write(&mut self) -> io::Result<usize> {
        let mut most = self.room.unwrap_or(usize::MAX);
        if let Some(faults) = &mut self.faults {
            if let Some(error) = faults.write.pop_front() {
                return Err(error);
            }
            most = faults.write_limits.pop_front().map_or(most, |limit| limit.min(most));
        }
        if self.write_ended {
            return Err(ErrorKind::BrokenPipe.into());
        }
        if self.room == Some(0) {
            self.blocked = true;
            return Err(ErrorKind::WouldBlock.into());
        }
        Ok(most)
    }
}

#[cfg(test)]
impl MemoryTransport {
    pub(crate) fn has_ended_writing(&self) -> bool {
        self.write_ended
    }

    fn faults(&mut self) -> &mut Faults {
        self.faults.get_or_insert_default()
    }

    /// Makes a later read return at most `bytes`, even if more are available.
    pub(crate) fn limit_read(&mut self, bytes: usize) {
        self.faults().read_limits.push_back(bytes);
    }

    /// Makes a later write take at most `bytes`, without blocking.
    pub(crate) fn limit_write(&mut self, bytes: usize) {
        self.faults().write_limits.push_back(bytes);
    }

    /// Makes a later read fail.
    pub(crate) fn fail_read(&mut self, error: io::Error) {
        self.faults().read.push_back(error);
    }

    /// Makes a later write fail.
    pub(crate) fn fail_write(&mut self, error: io::Error) {
        self.faults().write.push_back(error);
    }
}

impl Transport for MemoryTransport {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut most = buffer.len();
        if let Some(faults) = &mut self.faults {
            if let Some(error) = faults.read.pop_front() {
                return Err(error);
            }
            most = faults.read_limits.pop_front().map_or(most, |limit| limit.min(most));
        }
        if self.unread.is_empty() && !self.ended {
            return Err(ErrorKind::WouldBlock.into());
        }
        let n = self.unread.len().min(most);
        buffer[..n].copy_from_slice(&self.unread.split_to(n));
        Ok(n)
    }

    fn peek(&self) -> io::Result<usize> {
        match self.unread.len() {
            0 if !self.ended => Err(ErrorKind::WouldBlock.into()),
            n => Ok(n.min(1)),
        }
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut most = self.begin_write()?;
        let before = self.sent.len();
        for slice in slices {
            let n = most.min(slice.len());
            self.sent.extend_from_slice(&slice[..n]);
            most -= n;
        }
        let written = self.sent.len() - before;
        self.room = self.room.map(|room| room - written);
        Ok(written)
    }

    fn shutdown_write(&mut self) -> io::Result<()> {
        self.write_ended = true;
        Ok(())
    }
}
