//! The read buffers that a loop lends to its channels.
//!
//! The loop has one buffer of [`SIZE`] bytes, which are initialised once. It is lent out as
//! [`Bytes`], and frames are slices of it. When the channel is done, the loop takes the memory back
//! if all frames have been dropped. Otherwise it sets the buffer aside until they are, and uses
//! another one.
//!
//! Netty predicts the size of the next read for each channel, because it allocates memory for each
//! read. Here the memory exists already and belongs to the loop, so every read can use the whole
//! buffer. Only the amount of retained memory adapts. Once [`MAX_ASIDE`] buffers are set aside, a
//! read that fills less than half a buffer is copied out of it. So a handler that keeps a short
//! message from each of many peers holds 4 MiB of buffers, and not 64 KiB with each message.
//!
//! Invariants: between two reads the loop owns a buffer, and channels own none. Frames that are
//! kept for long hold at most [`MAX_ASIDE`] buffers, and beyond that at most twice the size of the
//! reads in which they arrived. Runs on the loop. Does not own a socket.

use bytes::{Bytes, BytesMut};
use std::{collections::VecDeque, io};

/// The maximum number of bytes of one read.
pub(crate) const SIZE: usize = 64 * 1024;

/// The maximum number of buffers set aside until their frames are dropped. Beyond this limit, small
/// reads are copied. For a large read, the oldest buffer is left to its frames. The limit bounds
/// the memory that frames of a few bytes can waste to 4 MiB per loop.
const MAX_ASIDE: usize = 64;

/// The maximum number of buffers checked when one is needed. The oldest ones are the most likely to
/// be free, and the limit bounds the time.
const LOOKS: usize = 4;

pub(crate) struct ReceiveBuffers {
    current: Option<BytesMut>,
    /// The memory of the read that is being decoded. `None` if the bytes were copied, or if there
    /// is no such read.
    lent: Option<Bytes>,
    aside: VecDeque<Bytes>,
    /// The number of buffers allocated so far, for tests and metrics.
    allocated: u64,
}

/// The result of one read.
pub(crate) struct Received {
    pub(crate) data: Bytes,
    /// The number of bytes read, without the prefix.
    pub(crate) read: usize,
    /// Whether the read filled the buffer, so that more may be waiting.
    pub(crate) full: bool,
}

impl ReceiveBuffers {
    pub(crate) fn new() -> Self {
        ReceiveBuffers { current: None, lent: None, aside: VecDeque::new(), allocated: 0 }
    }

    /// Reads once, appending to `prefix`: bytes kept from an earlier read, at most half the buffer.
    /// The result must be given back ([`ReceiveBuffers::give_back`]) before the next read.
    #[inline(always)]
    pub(crate) fn read(
        &mut self,
        prefix: &[u8],
        read: impl FnOnce(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<Received> {
        let ReceiveBuffers { current, aside, allocated, .. } = self;
        let buffer = current.get_or_insert_with(|| another(aside, allocated));
        let room = &mut buffer[prefix.len()..];
        let size = room.len();
        let n = read(room)?;
        if !prefix.is_empty() {
            buffer[..prefix.len()].copy_from_slice(prefix);
        }
        let len = prefix.len() + n;
        let data = self.lend(len);
        Ok(Received { data, read: n, full: n == size })
    }

    /// Returns the first `len` bytes of the buffer, as a slice or a copy.
    #[inline(always)]
    fn lend(&mut self, len: usize) -> Bytes {
        if self.aside.len() == MAX_ASIDE
            && len < SIZE / 2
            && let Some(copy) = self.copy(len)
        {
            return copy;
        }
        let Some(buffer) = self.current.take() else { return Bytes::new() };
        self.lent.insert(buffer.freeze()).slice(..len)
    }

    /// Returns a copy of the first `len` bytes, unless the buffer may be lent. Called when the
    /// maximum number of buffers is set aside.
    #[cold]
    fn copy(&mut self, len: usize) -> Option<Bytes> {
        if self.may_lend() {
            return None;
        }
        self.current.as_ref().map(|buffer| Bytes::copy_from_slice(&buffer[..len]))
    }

    /// Takes the memory back after the data was decoded and dropped.
    #[inline(always)]
    pub(crate) fn give_back(&mut self) {
        let Some(lent) = self.lent.take() else { return };
        if lent.is_unique() {
            self.current = Some(lent.into());
        } else {
            self.set_aside(lent);
        }
    }

    /// Sets a buffer aside whose frames have not been dropped.
    #[inline(never)]
    fn set_aside(&mut self, lent: Bytes) {
        if self.aside.len() == MAX_ASIDE {
            self.aside.pop_front();
        }
        self.aside.push_back(lent);
    }

    /// Returns whether a buffer that was set aside is free by now.
    fn may_lend(&mut self) -> bool {
        take_free(&mut self.aside).is_some()
    }

    #[cfg(test)]
    pub(crate) fn allocated(&self) -> u64 {
        self.allocated
    }
}

/// Returns a free buffer or allocates one.
#[cold]
fn another(aside: &mut VecDeque<Bytes>, allocated: &mut u64) -> BytesMut {
    if let Some(buffer) = take_free(aside) {
        return buffer;
    }
    *allocated += 1;
    let mut buffer = BytesMut::zeroed(SIZE);
    // Splitting off nothing makes the memory shared from the start, so that freezing it never
    // allocates.
    drop(buffer.split_to(0));
    buffer
}

/// Returns a buffer that was set aside and whose frames have been dropped.
fn take_free(aside: &mut VecDeque<Bytes>) -> Option<BytesMut> {
    for _ in 0..aside.len().min(LOOKS) {
        match aside.pop_front()?.try_into_mut() {
            Ok(buffer) => return Some(buffer),
            Err(lent) => aside.push_back(lent),
        }
    }
    None
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
    fn memory_is_reused_if_no_frame_was_kept() {
        let mut buffers = ReceiveBuffers::new();
        for _ in 0..100 {
            let mut received = buffers.read(b"ab", fill(b"cde")).unwrap();
            assert_eq!((&received.data[..], received.read, received.full), (&b"abcde"[..], 3, false));
            let frame = received.data.split_to(2);
            drop(frame);
            drop(received);
            buffers.give_back();
        }
        assert_eq!(buffers.allocated(), 1);
    }

    #[test]
    fn a_kept_frame_stays_whole_and_its_buffer_comes_back_later() {
        let mut buffers = ReceiveBuffers::new();
        let mut received = buffers.read(b"", fill(b"keep")).unwrap();
        let kept = received.data.split_to(4);
        drop(received);
        buffers.give_back();
        let received = buffers.read(b"", fill(b"other")).unwrap();
        assert_eq!(&kept[..], b"keep");
        let second = received.data.clone();
        drop(received);
        buffers.give_back();
        drop(kept);
        let received = buffers.read(b"", fill(b"third")).unwrap();
        drop(received);
        buffers.give_back();
        assert_eq!(&second[..], b"other");
        assert_eq!(buffers.allocated(), 2);
    }

    /// C-62 adapted to this crate: keeping small frames does not hold a whole buffer for each.
    #[test]
    fn frames_that_are_kept_for_long_hold_a_bounded_number_of_buffers() {
        let mut buffers = ReceiveBuffers::new();
        let mut kept = Vec::new();
        for _ in 0..10 * MAX_ASIDE {
            let mut received = buffers.read(b"ab", fill(b"cde")).unwrap();
            assert_eq!((&received.data[..], received.read, received.full), (&b"abcde"[..], 3, false));
            kept.push(received.data.split_to(4));
            drop(received);
            buffers.give_back();
        }
        assert_eq!((buffers.allocated(), buffers.aside.len()), (MAX_ASIDE as u64 + 1, MAX_ASIDE));
        assert!(kept.iter().all(|frame| frame == "abcd"));
        // Large reads waste little memory, so they are not copied.
        let mut received = buffers.read(b"", |room| Ok(room.len())).unwrap();
        let large = received.data.split_to(SIZE);
        drop(received);
        buffers.give_back();
        assert_eq!((large.len(), buffers.aside.len()), (SIZE, MAX_ASIDE));
        // Once the frames are dropped, nothing is copied or allocated.
        drop((kept, large));
        let allocated = buffers.allocated();
        for _ in 0..10 * MAX_ASIDE {
            let received = buffers.read(b"", fill(b"more")).unwrap();
            assert_eq!(buffers.lent.as_ref().map(Bytes::len), Some(SIZE), "lent, not copied");
            drop(received);
            buffers.give_back();
        }
        assert_eq!(buffers.allocated(), allocated);
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
    fn a_full_read_is_reported() {
        let mut buffers = ReceiveBuffers::new();
        assert!(buffers.read(b"x", |room| Ok(room.len())).unwrap().full);
    }
}
