//! The bytes that a channel has still to send, in order.
//!
//! Always holds: `len` is the number of bytes that were put in and not yet consumed; chunks are sent in the
//! order in which they were put; a failed encoding leaves no trace ([`Outbound::mark`], [`Outbound::rollback`]).
//! Small writes are copied together into one tail; a large [`Bytes`] is kept as it is and goes out as a slice
//! of its own. Runs on the channel's loop. It does not own a socket and knows no limit: the channel does.
//!
//! ```text
//!   consumed │◄──────────── len ─────────────►│
//!   ┌────────┬──────────┬─────────┬───────────┐
//!   │ chunks[0]         │ chunks… │   tail    │ ◄── put
//!   └────────┴──────────┴─────────┴───────────┘
//!            ▲ head
//! ```

use super::water_mark::ENTRY_OVERHEAD;
use bytes::{BufMut, Bytes};
use std::{
    collections::VecDeque,
    io::{self, IoSlice},
};

/// From this size on a [`Bytes`] is kept by reference instead of being copied: below it a copy is cheaper than
/// one more slice in `writev` and the reference count.
pub const KEEP_FROM: usize = 4 * 1024;

/// A tail that has grown beyond this is given back to the allocator when it is empty.
const KEEP_CAPACITY: usize = 64 * 1024;

/// The bytes that a channel has still to send; what a [`Codec`](crate::pipeline::Codec) encodes into.
///
/// ```
/// use netwheel::buffer::Outbound;
///
/// let mut out = Outbound::new();
/// out.put_u32(5);
/// out.put_slice(b"hello");
/// assert_eq!(out.len(), 9);
/// ```
#[derive(Debug, Default)]
pub struct Outbound {
    /// Whole chunks before the tail.
    chunks: VecDeque<Chunk>,
    /// Small writes, copied together.
    tail: Vec<u8>,
    /// Bytes of the first chunk (of the tail, where there is no chunk) that are sent already.
    head: usize,
    len: usize,
}

#[derive(Debug)]
enum Chunk {
    Copied(Vec<u8>),
    Kept(Bytes),
}

impl Chunk {
    fn as_slice(&self) -> &[u8] {
        match self {
            Chunk::Copied(bytes) => bytes,
            Chunk::Kept(bytes) => bytes,
        }
    }
}

/// A place in an [`Outbound`] to which a failed encoding is rolled back.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mark {
    chunks: usize,
    tail: usize,
    len: usize,
}

impl Outbound {
    /// An empty buffer that owns no memory.
    pub fn new() -> Self {
        Self::default()
    }

    /// Bytes waiting.
    pub fn len(&self) -> usize {
        self.len
    }

    /// What counts against the water marks: the bytes, and an overhead for every chunk kept by reference.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        self.len + self.chunks.len() * ENTRY_OVERHEAD
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends `bytes`: a small one is copied, a large one ([`KEEP_FROM`]) is kept and sent without a copy.
    #[inline]
    pub fn put(&mut self, bytes: Bytes) {
        if bytes.len() < KEEP_FROM {
            self.put_slice(&bytes);
        } else {
            self.keep(bytes);
        }
    }

    fn keep(&mut self, bytes: Bytes) {
        if !self.tail.is_empty() {
            let tail = std::mem::take(&mut self.tail);
            self.chunks.push_back(Chunk::Copied(tail));
        }
        self.len += bytes.len();
        self.chunks.push_back(Chunk::Kept(bytes));
    }

    /// Appends one byte.
    #[inline]
    pub fn put_u8(&mut self, value: u8) {
        self.tail.put_u8(value);
        self.len += 1;
    }

    /// Appends two bytes, the most significant first.
    #[inline]
    pub fn put_u16(&mut self, value: u16) {
        self.put_slice(&value.to_be_bytes());
    }

    /// Appends four bytes, the most significant first.
    #[inline]
    pub fn put_u32(&mut self, value: u32) {
        self.put_slice(&value.to_be_bytes());
    }

    /// Appends eight bytes, the most significant first.
    #[inline]
    pub fn put_u64(&mut self, value: u64) {
        self.put_slice(&value.to_be_bytes());
    }

    /// Where an encoding begins.
    #[inline]
    pub(crate) fn mark(&self) -> Mark {
        Mark { chunks: self.chunks.len(), tail: self.tail.len(), len: self.len }
    }

    /// Takes back all that was put since `mark`; nothing may have been consumed in between.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        while self.chunks.len() > mark.chunks {
            let Some(chunk) = self.chunks.pop_back() else { break };
            // The tail that stood here at the mark was pushed first, so it comes off last.
            if let Chunk::Copied(bytes) = chunk
                && self.chunks.len() == mark.chunks
                && mark.tail > 0
            {
                self.tail = bytes;
            }
        }
        self.tail.truncate(mark.tail);
        self.len = mark.len;
    }

    /// The waiting bytes as slices for one `writev`: fills `slices` from its start, returns how many.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let chunks = self.chunks.iter().map(Chunk::as_slice);
        let mut skip = self.head;
        let mut n = 0;
        for chunk in chunks.chain([self.tail.as_slice()]) {
            if n == slices.len() {
                break;
            }
            let rest = &chunk[skip..];
            skip = 0;
            if !rest.is_empty() {
                slices[n] = IoSlice::new(rest);
                n += 1;
            }
        }
        n
    }

    /// The first contiguous bytes that wait.
    pub(crate) fn front(&self) -> &[u8] {
        &self.chunks.front().map_or(self.tail.as_slice(), Chunk::as_slice)[self.head..]
    }

    /// Whether one slice holds all that waits.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.chunks.is_empty() || (self.chunks.len() == 1 && self.tail.is_empty())
    }

    /// Drops the first `n` bytes: the kernel has them.
    ///
    /// # Panics
    /// If fewer than `n` bytes wait.
    pub(crate) fn consume(&mut self, n: usize) {
        assert!(n <= self.len, "{n} bytes consumed of {}", self.len);
        self.len -= n;
        if self.len == 0 {
            self.clear();
            return;
        }
        self.head += n;
        while let Some(first) = self.chunks.front() {
            let size = first.as_slice().len();
            if self.head < size {
                return;
            }
            self.head -= size;
            self.chunks.pop_front();
        }
        // Only the tail is left. A writer that never lets the buffer run empty must not grow it without end.
        if self.head >= KEEP_CAPACITY {
            self.tail.drain(..self.head);
            self.head = 0;
        }
    }

    /// Forgets everything; keeps a moderate amount of memory for the next writes.
    pub(crate) fn clear(&mut self) {
        self.chunks.clear();
        self.tail.clear();
        self.head = 0;
        self.len = 0;
        if self.tail.capacity() > KEEP_CAPACITY {
            self.tail = Vec::new();
        }
        if self.chunks.capacity() > 1024 {
            self.chunks = VecDeque::new();
        }
    }

    /// A copy of all that waits, without taking it: for tests of codecs.
    pub fn to_bytes(&self) -> Bytes {
        let mut all = Vec::with_capacity(self.len);
        let mut skip = self.head;
        for chunk in self.chunks.iter().map(Chunk::as_slice).chain([self.tail.as_slice()]) {
            all.extend_from_slice(&chunk[skip..]);
            skip = 0;
        }
        all.into()
    }
}

/// Formats and serialises straight into the buffer; never fails, `flush` does nothing.
impl io::Write for Outbound {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
