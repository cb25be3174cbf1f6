//! The read buffers that a loop lends to its channels.
//!
//! Always holds: between two reads the loop owns one buffer of [`SIZE`] initialised bytes, and no channel owns
//! any. Frames are cut from the buffer by reference. When all of them are gone before the next read the very
//! same memory is used again; when a handler has kept some, the buffer is set aside until they are, and a spare
//! one takes its place. Runs on the loop; owns no socket.

use bytes::{Bytes, BytesMut};
use std::{collections::VecDeque, io};

/// Bytes that one read may take.
pub(crate) const SIZE: usize = 64 * 1024;

/// Buffers set aside until their frames are gone; beyond this the oldest is left to its frames.
const MAX_ASIDE: usize = 64;

pub(crate) struct ReceiveBuffers {
    current: Option<BytesMut>,
    aside: VecDeque<Bytes>,
    /// Buffers allocated so far, for tests and metrics.
    allocated: u64,
}

/// What one read brought: `data` is the bytes, `lent` the memory to give back.
pub(crate) struct Received {
    pub(crate) data: Bytes,
    lent: Bytes,
    /// Bytes that the read itself took, without the prefix.
    pub(crate) read: usize,
    /// Whether the read filled the buffer, so that more may be waiting.
    pub(crate) full: bool,
}

impl ReceiveBuffers {
    pub(crate) fn new() -> Self {
        ReceiveBuffers { current: None, aside: VecDeque::new(), allocated: 0 }
    }

    /// Reads once, behind `prefix` (bytes kept from an earlier read, at most half the buffer).
    pub(crate) fn read(
        &mut self,
        prefix: &[u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Received> {
        let mut buffer = self.take();
        let room = &mut buffer[prefix.len()..];
        let size = room.len();
        match read(room) {
            Ok(n) => {
                buffer[..prefix.len()].copy_from_slice(prefix);
                let lent = buffer.freeze();
                let data = lent.slice(..prefix.len() + n);
                Ok(Received { data, lent, read: n, full: n == size })
            }
            Err(e) => {
                self.current = Some(buffer);
                Err(e)
            }
        }
    }

    /// Takes the memory back after the data was decoded.
    pub(crate) fn give_back(&mut self, received: Received) {
        let Received { data, lent, .. } = received;
        drop(data);
        match lent.try_into_mut() {
            Ok(buffer) => self.current = Some(buffer),
            Err(lent) => {
                if self.aside.len() == MAX_ASIDE {
                    self.aside.pop_front();
                }
                self.aside.push_back(lent);
            }
        }
    }

    fn take(&mut self) -> BytesMut {
        if let Some(buffer) = self.current.take() {
            return buffer;
        }
        // The oldest is the likeliest to be free; looking at a few keeps this short.
        for _ in 0..self.aside.len().min(4) {
            let Some(lent) = self.aside.pop_front() else { break };
            match lent.try_into_mut() {
                Ok(buffer) => return buffer,
                Err(lent) => self.aside.push_back(lent),
            }
        }
        self.allocated += 1;
        let mut buffer = BytesMut::zeroed(SIZE);
        // Splitting nothing off makes the memory shared from the start, so that freezing it never allocates.
        drop(buffer.split_to(0));
        buffer
    }

    #[cfg(test)]
    fn allocated(&self) -> u64 {
        self.allocated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fill(text: &'static [u8]) -> impl FnOnce(&mut [u8]) -> io::Result<usize> {
        move |room| {
            room[..text.len()].copy_from_slice(text);
            Ok(text.len())
        }
    }

    #[test]
    fn memory_is_used_again_when_nothing_was_kept() {
        let mut buffers = ReceiveBuffers::new();
        for _ in 0..100 {
            let mut received = buffers.read(b"ab", fill(b"cde")).unwrap();
            assert_eq!((&received.data[..], received.read, received.full), (&b"abcde"[..], 3, false));
            let frame = received.data.split_to(2);
            drop(frame);
            buffers.give_back(received);
        }
        assert_eq!(buffers.allocated(), 1);
    }

    #[test]
    fn a_kept_frame_stays_whole_and_its_buffer_comes_back_later() {
        let mut buffers = ReceiveBuffers::new();
        let mut received = buffers.read(b"", fill(b"keep")).unwrap();
        let kept = received.data.split_to(4);
        buffers.give_back(received);
        let received = buffers.read(b"", fill(b"other")).unwrap();
        assert_eq!(&kept[..], b"keep");
        let second = received.data.clone();
        buffers.give_back(received);
        drop(kept);
        let received = buffers.read(b"", fill(b"third")).unwrap();
        buffers.give_back(received);
        assert_eq!(&second[..], b"other");
        assert_eq!(buffers.allocated(), 2);
    }

    #[test]
    fn a_failed_read_keeps_the_buffer() {
        let mut buffers = ReceiveBuffers::new();
        for _ in 0..10 {
            assert!(buffers.read(b"", |_| Err(io::ErrorKind::WouldBlock.into())).is_err());
        }
        assert_eq!(buffers.allocated(), 1);
    }

    #[test]
    fn a_full_read_says_so() {
        let mut buffers = ReceiveBuffers::new();
        assert!(buffers.read(b"x", |room| Ok(room.len())).unwrap().full);
    }
}
