//! The bytes that a channel still has to send, in order.
//!
//! Small writes are copied into one tail. A [`Bytes`] of 4 KiB or more is kept by reference, and is
//! sent as a slice of its own in one vectored write with the others. An encoding shared by several
//! channels is copied if it is smaller than 1 KiB, and kept by reference otherwise.
//!
//! Invariants: `len` is the number of bytes that were put in and not yet consumed. Chunks are sent
//! in the order in which they were put in. A failed encoding leaves no trace
//! ([`OutboundBuffer::mark`], [`OutboundBuffer::rollback`]). Runs on the channel's loop. Owns
//! neither a socket nor a limit.
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

/// The size from which a [`Bytes`] is kept by reference instead of being copied. For smaller ones,
/// a copy is cheaper than another slice in a write and a change of the reference count.
pub const KEEP_FROM: usize = 4 * 1024;

/// The size from which bytes shared by many channels are kept by reference. A reference counts as
/// 96 bytes, and costs an update of a shared counter and a slice of its own. Copying 1 KiB takes no
/// longer. For members that lag behind, memory matters more: a reference takes a tenth of a copy,
/// or less.
pub(crate) const SHARE_FROM: usize = 1024;

/// A tail with more capacity than this is freed when it becomes empty.
const KEEP_CAPACITY: usize = 64 * 1024;

/// The outbound bytes of a channel. A [`Codec`](crate::pipeline::Codec) encodes into this buffer.
///
/// ```
/// use netwheel::buffer::OutboundBuffer;
///
/// let mut out = OutboundBuffer::new();
/// out.put_u32(5);
/// out.put_slice(b"hello");
/// assert_eq!(out.len(), 9);
/// ```
#[derive(Debug, Default)]
#[doc(alias = "ChannelOutboundBuffer")]
#[doc(alias = "ByteBuf")]
pub struct OutboundBuffer {
    /// Complete chunks before the tail.
    chunks: VecDeque<Chunk>,
    /// Small writes, copied into one buffer.
    tail: Vec<u8>,
    /// Bytes already sent of the first chunk, or of the tail if there are no chunks.
    head: usize,
    len: usize,
    /// The number of the first chunk. Chunks are numbered in the order in which they were put in.
    first: usize,
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

/// A position in an [`OutboundBuffer`], for rolling back a failed encoding.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OutboundMark {
    chunks: usize,
    tail: usize,
    len: usize,
}

impl OutboundMark {
    /// Returns the weight of the buffer at this position.
    pub(crate) fn weight(&self) -> usize {
        self.len + self.chunks * ENTRY_OVERHEAD
    }
}

/// A buffer during an encoding. If that panics, the encoding leaves no trace.
pub(crate) struct Encoding<'a> {
    pub(crate) output: &'a mut OutboundBuffer,
    mark: OutboundMark,
}

impl Encoding<'_> {
    /// Ends the encoding without a panic.
    #[inline(always)]
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for Encoding<'_> {
    // Inlined, so that the value is never put into memory for this call.
    #[inline(always)]
    fn drop(&mut self) {
        self.output.undo_encoding(self.mark);
    }
}

impl OutboundBuffer {
    /// Creates an empty buffer without allocating.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of pending bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns the weight for the water marks: the bytes, plus an overhead for every chunk before
    /// the tail, kept or copied.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        self.len + self.chunks.len() * ENTRY_OVERHEAD
    }

    /// Returns whether there are no pending bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns whether the buffer is empty, and keeps no memory but that of a usual tail.
    #[inline]
    pub(crate) fn is_light(&self) -> bool {
        self.len == 0 && self.chunks.capacity() == 0 && self.tail.capacity() <= KEEP_CAPACITY
    }

    /// Appends a copy of `bytes`.
    #[inline]
    pub fn put_slice(&mut self, bytes: &[u8]) {
        self.tail.extend_from_slice(bytes);
        self.len += bytes.len();
    }

    /// Appends `bytes`. Copies them if they are smaller than 4 KiB, and otherwise keeps a reference
    /// to send them without a copy.
    #[inline]
    pub fn put(&mut self, bytes: Bytes) {
        if bytes.len() < KEEP_FROM {
            self.put_slice(&bytes);
        } else {
            self.keep(bytes);
        }
    }

    /// Like [`put`](OutboundBuffer::put), for bytes that are also put into other buffers. They are
    /// kept from a smaller size on ([`SHARE_FROM`]).
    #[inline]
    pub(crate) fn put_shared(&mut self, bytes: &Bytes) {
        if bytes.len() < SHARE_FROM {
            self.put_slice(bytes);
        } else {
            self.keep(bytes.clone());
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

    /// Appends `bytes` as a separate chunk, also if they are short. Returns the number of the chunk
    /// for [`replace`](OutboundBuffer::replace).
    pub(crate) fn put_replaceable(&mut self, bytes: Bytes) -> usize {
        self.keep(bytes);
        self.first.wrapping_add(self.chunks.len() - 1)
    }

    /// Replaces the bytes of a chunk of which nothing was consumed. Returns the old bytes.
    ///
    /// # Panics
    ///
    /// Panics if the chunk does not exist, or was not returned by
    /// [`put_replaceable`](OutboundBuffer::put_replaceable).
    pub(crate) fn replace(&mut self, number: usize, bytes: Bytes) -> Bytes {
        let at = number.wrapping_sub(self.first);
        assert!(at > 0 || self.head == 0, "nothing of a chunk that is replaced was consumed");
        let Some(Chunk::Kept(old)) = self.chunks.get_mut(at) else {
            panic!("chunk {at} of {} cannot be replaced", self.chunks.len())
        };
        self.len = self.len - old.len() + bytes.len();
        std::mem::replace(old, bytes)
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

    /// Returns the current end of the buffer, before an encoding.
    #[inline]
    pub(crate) fn mark(&self) -> OutboundMark {
        OutboundMark { chunks: self.chunks.len(), tail: self.tail.len(), len: self.len }
    }

    /// Lends the buffer to an encoding that began at `mark`.
    #[inline(always)]
    pub(crate) fn begin_encoding(&mut self, mark: OutboundMark) -> Encoding<'_> {
        Encoding { output: self, mark }
    }

    #[cold]
    fn undo_encoding(&mut self, mark: OutboundMark) {
        self.rollback(mark);
    }

    /// Removes everything put in since `mark`. Nothing may have been consumed in between.
    pub(crate) fn rollback(&mut self, mark: OutboundMark) {
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

    /// Fills `slices` with the first `most` pending bytes, for one write. Returns the number of
    /// slices used.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], mut most: usize) -> usize {
        let chunks = self.chunks.iter().map(Chunk::as_slice);
        let mut skip = self.head;
        let mut n = 0;
        for chunk in chunks.chain([self.tail.as_slice()]) {
            if n == slices.len() || most == 0 {
                break;
            }
            let rest = &chunk[skip..];
            let rest = &rest[..rest.len().min(most)];
            most -= rest.len();
            skip = 0;
            if !rest.is_empty() {
                slices[n] = IoSlice::new(rest);
                n += 1;
            }
        }
        n
    }

    /// Returns `n` bytes after the first `skip` if they are contiguous.
    pub(crate) fn contiguous(&self, mut skip: usize, n: usize) -> Option<&[u8]> {
        skip += self.head;
        for chunk in &self.chunks {
            let chunk = chunk.as_slice();
            if skip < chunk.len() {
                return chunk.get(skip..skip + n);
            }
            skip -= chunk.len();
        }
        self.tail.get(skip..skip + n)
    }

    /// Appends up to `most` of the bytes after the first `skip` to `to`.
    pub(crate) fn copy_to(&self, mut skip: usize, mut most: usize, to: &mut Vec<u8>) {
        skip += self.head;
        let chunks = self.chunks.iter().map(Chunk::as_slice);
        for chunk in chunks.chain([self.tail.as_slice()]) {
            let from = skip.min(chunk.len());
            skip -= from;
            let rest = &chunk[from..];
            let rest = &rest[..rest.len().min(most)];
            to.extend_from_slice(rest);
            most -= rest.len();
        }
    }

    /// Returns the first contiguous pending bytes.
    pub(crate) fn front(&self) -> &[u8] {
        &self.chunks.front().map_or(self.tail.as_slice(), Chunk::as_slice)[self.head..]
    }

    /// Returns whether all pending bytes are in one slice.
    pub(crate) fn is_contiguous(&self) -> bool {
        self.chunks.is_empty() || (self.chunks.len() == 1 && self.tail.is_empty())
    }

    /// Removes the first `n` bytes, after the kernel has accepted them.
    ///
    /// # Panics
    ///
    /// Panics if fewer than `n` bytes are pending.
    #[inline]
    pub(crate) fn consume(&mut self, n: usize) {
        if n == self.len && self.chunks.is_empty() && self.tail.capacity() <= KEEP_CAPACITY {
            // The usual case: all writes were small, and all bytes were sent.
            self.tail.clear();
            (self.head, self.len) = (0, 0);
        } else {
            self.consume_part(n);
        }
    }

    fn consume_part(&mut self, n: usize) {
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
            if let Some(sent) = self.chunks.pop_front() {
                self.first = self.first.wrapping_add(1);
                self.recycle(sent);
            }
        }
        // Only the tail is left. Without this, the buffer of a writer that never lets it run empty
        // would grow without bound. A quarter keeps the cost of moving the rest linear, and the
        // memory close to the pending bytes.
        if self.head >= KEEP_CAPACITY.max(self.len / 4) {
            self.tail.drain(..self.head);
            self.head = 0;
        }
    }

    /// Removes the `n` bytes after the first `keep` bytes. Copies at most `keep` bytes.
    ///
    /// # Panics
    ///
    /// Panics if fewer than `keep + n` bytes are pending.
    pub(crate) fn drop_behind(&mut self, keep: usize, n: usize) {
        let kept = (keep > 0).then(|| self.first(keep));
        self.consume(keep + n);
        if let Some(kept) = kept {
            // The chunk that was partly consumed is no longer the first, so `head` cannot describe
            // it.
            match self.chunks.pop_front() {
                Some(Chunk::Kept(bytes)) => self.chunks.push_front(Chunk::Kept(bytes.slice(self.head..))),
                Some(Chunk::Copied(bytes)) => {
                    self.chunks.push_front(Chunk::Kept(Bytes::from(bytes).slice(self.head..)));
                }
                None if self.head > 0 => {
                    let tail = std::mem::take(&mut self.tail);
                    self.chunks.push_front(Chunk::Kept(Bytes::from(tail).slice(self.head..)));
                }
                None => {}
            }
            self.head = 0;
            self.len += kept.len();
            self.chunks.push_front(Chunk::Kept(kept));
            self.first = self.first.wrapping_sub(1);
        }
    }

    /// Returns the first `n` pending bytes, as a copy or a reference.
    fn first(&self, n: usize) -> Bytes {
        if let Some(Chunk::Kept(bytes)) = self.chunks.front()
            && bytes.len() - self.head >= n
        {
            return bytes.slice(self.head..self.head + n);
        }
        let mut first = Vec::with_capacity(n);
        let mut skip = self.head;
        for chunk in self.chunks.iter().map(Chunk::as_slice).chain([self.tail.as_slice()]) {
            let rest = &chunk[skip..];
            skip = 0;
            first.extend_from_slice(&rest[..rest.len().min(n - first.len())]);
        }
        first.into()
    }

    /// Reuses the memory of a sent chunk for the tail, if the tail has none. A small header before
    /// each large chunk then needs no allocation.
    fn recycle(&mut self, chunk: Chunk) {
        if let Chunk::Copied(mut bytes) = chunk
            && self.tail.capacity() == 0
        {
            bytes.clear();
            self.tail = bytes;
        }
    }

    /// Removes all bytes. Keeps a moderate amount of memory for the next writes.
    pub(crate) fn clear(&mut self) {
        self.tail.clear();
        while let Some(chunk) = self.chunks.pop_front() {
            self.recycle(chunk);
        }
        self.head = 0;
        self.len = 0;
        if self.tail.capacity() > KEEP_CAPACITY {
            self.tail = Vec::new();
        }
        if self.chunks.capacity() > 1024 {
            self.chunks = VecDeque::new();
        }
    }

    /// Converts the buffer to one contiguous [`Bytes`]. Nothing may have been consumed.
    pub(crate) fn into_bytes(mut self) -> Bytes {
        debug_assert_eq!(self.head, 0);
        match (self.chunks.len(), self.tail.is_empty()) {
            (0, _) => self.tail.into(),
            (1, true) => match self.chunks.pop_front() {
                Some(Chunk::Kept(bytes)) => bytes,
                Some(Chunk::Copied(bytes)) => bytes.into(),
                None => Bytes::new(),
            },
            _ => self.to_bytes(),
        }
    }

    /// Returns a copy of the pending bytes, or a reference if they are one [`Bytes`].
    pub(crate) fn copy(&self) -> Bytes {
        match self.chunks.front() {
            Some(Chunk::Kept(bytes)) if self.is_contiguous() && self.head == 0 => bytes.clone(),
            _ => self.to_bytes(),
        }
    }

    /// Returns the allocated memory in bytes, used or not.
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.tail.capacity() + self.chunks.capacity() * size_of::<Chunk>()
    }

    /// Returns a copy of all pending bytes without consuming them. For tests of codecs.
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

/// Formats and serialises directly into the buffer. Writing never fails, and `flush` does nothing.
impl io::Write for OutboundBuffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An operation on a buffer.
    #[derive(Debug, Clone)]
    enum Step {
        Slice(Vec<u8>),
        Bytes(Vec<u8>),
        Shared(Vec<u8>),
        Number(u64),
        /// Consumes this share of the pending bytes, in 256ths.
        Consume(u8),
        /// Keeps a share of the pending bytes at the front, in 256ths, and drops a share of the
        /// others, in 255ths.
        DropBehind(u8, u8),
        /// Runs the steps and rolls them back.
        Failed(Vec<Step>),
        Clear,
    }

    /// A peer that reads slowly must not make the buffer move its bytes again and again.
    #[test]
    fn the_bytes_of_a_long_backlog_move_a_bounded_number_of_times() {
        const TOTAL: usize = 64 * KEEP_CAPACITY;
        let mut output = OutboundBuffer::new();
        let block = vec![7; KEEP_FROM - 1];
        while output.len() < TOTAL {
            output.put_slice(&block);
        }
        let (mut moved, mut head) = (0, 0);
        while output.len() > KEEP_CAPACITY {
            output.consume(KEEP_CAPACITY);
            if output.head < head + KEEP_CAPACITY {
                moved += output.tail.len();
            }
            head = output.head;
            assert!(output.tail.len() <= output.len() + output.len() / 4 + 2 * KEEP_CAPACITY);
        }
        assert!((TOTAL..=4 * TOTAL).contains(&moved), "{moved} of {TOTAL}");
    }

    /// Sizes close to the thresholds.
    fn size() -> impl Strategy<Value = usize> {
        prop_oneof![
            8 => 0..40_usize,
            2 => KEEP_FROM - 2..KEEP_FROM + 3,
            2 => SHARE_FROM - 2..SHARE_FROM + 3,
            1 => KEEP_CAPACITY / 2..KEEP_CAPACITY + 3,
        ]
    }

    fn content() -> impl Strategy<Value = Vec<u8>> {
        // A running pattern from a random start is cheap, and distinguishes positions. Whole slices
        // are copied here and in `check`: a step for each byte is slow without optimisation.
        (size(), any::<u8>()).prop_map(|(size, first)| {
            let pattern: Vec<u8> = (0..=u8::MAX).map(|n| first.wrapping_add(n)).collect();
            let mut bytes = pattern.repeat(size / pattern.len() + 1);
            bytes.truncate(size);
            bytes
        })
    }

    fn put() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => content().prop_map(Step::Slice),
            3 => content().prop_map(Step::Bytes),
            2 => content().prop_map(Step::Shared),
            1 => any::<u64>().prop_map(Step::Number),
        ]
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            6 => put(),
            3 => any::<u8>().prop_map(Step::Consume),
            1 => any::<(u8, u8)>().prop_map(|(keep, n)| Step::DropBehind(keep, n)),
            2 => prop::collection::vec(put(), 0..6).prop_map(Step::Failed),
            1 => Just(Step::Clear),
        ]
    }

    fn apply(out: &mut OutboundBuffer, model: &mut Vec<u8>, step: &Step) {
        match step {
            Step::Slice(bytes) => {
                out.put_slice(bytes);
                model.extend_from_slice(bytes);
            }
            Step::Bytes(bytes) => {
                out.put(Bytes::copy_from_slice(bytes));
                model.extend_from_slice(bytes);
            }
            Step::Shared(bytes) => {
                let shared = Bytes::copy_from_slice(bytes);
                out.put_shared(&shared);
                let copied = bytes.len() < SHARE_FROM;
                assert!(bytes.is_empty() || shared.is_unique() == copied, "copied, or referred to");
                model.extend_from_slice(bytes);
            }
            Step::Number(n) => {
                out.put_u8(*n as u8);
                out.put_u16(*n as u16);
                out.put_u32(*n as u32);
                out.put_u64(*n);
                model.push(*n as u8);
                model.extend_from_slice(&(*n as u16).to_be_bytes());
                model.extend_from_slice(&(*n as u32).to_be_bytes());
                model.extend_from_slice(&n.to_be_bytes());
            }
            Step::Consume(share) => {
                let n = if *share == u8::MAX { model.len() } else { model.len() * usize::from(*share) / 256 };
                out.consume(n);
                model.drain(..n);
            }
            Step::DropBehind(keep, n) => {
                let keep = model.len() * usize::from(*keep) / 256;
                let n = (model.len() - keep) * usize::from(*n) / 255;
                out.drop_behind(keep, n);
                model.drain(keep..keep + n);
            }
            Step::Failed(steps) => {
                let (mark, weight) = (out.mark(), out.weight());
                let mut doomed = model.clone();
                for step in steps {
                    apply(out, &mut doomed, step);
                }
                out.rollback(mark);
                assert_eq!(out.weight(), weight, "a rollback restores the weight");
            }
            Step::Clear => {
                out.clear();
                model.clear();
            }
        }
    }

    fn check(out: &OutboundBuffer, model: &[u8]) {
        assert_eq!(out.len(), model.len());
        assert_eq!(out.is_empty(), model.is_empty());
        assert!(out.to_bytes() == model, "the bytes put in and not consumed, in order");
        assert!(model.starts_with(out.front()));
        assert_eq!(out.front().is_empty(), model.is_empty(), "pending bytes can be sent");
        assert!(out.weight() >= out.len());
        if out.is_contiguous() {
            assert_eq!(out.front().len(), model.len());
        }
        for limit in [1, 2, 3, 64] {
            let mut slices = [IoSlice::new(&[]); 64];
            let n = out.slices(&mut slices[..limit], usize::MAX);
            assert!(n <= limit, "never more slices than there is room for");
            assert_eq!(n == 0, model.is_empty(), "at least one slice if bytes are pending");
            assert!(slices[..n].iter().all(|slice| !slice.is_empty()));
            let joined = slices[..n].iter().map(|slice| &**slice).collect::<Vec<_>>().concat();
            assert!(model.starts_with(&joined), "the slices are the first pending bytes");
            if n < limit {
                assert_eq!(joined.len(), model.len());
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn a_buffer_behaves_like_a_vector(steps in prop::collection::vec(step(), 0..40)) {
            let (mut out, mut model) = (OutboundBuffer::new(), Vec::new());
            for step in &steps {
                apply(&mut out, &mut model, step);
                check(&out, &model);
            }
        }

        #[test]
        fn into_bytes_returns_all_bytes(steps in prop::collection::vec(put(), 0..6)) {
            let (mut out, mut model) = (OutboundBuffer::new(), Vec::new());
            steps.iter().for_each(|step| apply(&mut out, &mut model, step));
            assert!(out.into_bytes() == model);
        }
    }

    /// An operation on a buffer of messages, some of which can be replaced.
    #[derive(Debug, Clone)]
    enum Change {
        Put(Vec<u8>),
        PutReplaceable(Vec<u8>),
        /// Replaces one of the messages of which nothing was consumed.
        Replace(prop::sample::Index, Vec<u8>),
        /// Consumes this share of the pending bytes, in 256ths.
        Consume(u8),
        /// Drops messages behind a partly consumed one.
        DropMessages(prop::sample::Index),
    }

    fn change() -> impl Strategy<Value = Change> {
        let message = || content().prop_filter("a message has bytes", |bytes| !bytes.is_empty());
        prop_oneof![
            2 => message().prop_map(Change::Put),
            4 => message().prop_map(Change::PutReplaceable),
            4 => (any::<prop::sample::Index>(), message()).prop_map(|(at, to)| Change::Replace(at, to)),
            2 => any::<u8>().prop_map(Change::Consume),
            1 => any::<prop::sample::Index>().prop_map(Change::DropMessages),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(150))]

        #[test]
        fn a_replaced_chunk_keeps_its_place(changes in prop::collection::vec(change(), 0..60)) {
            let mut out = OutboundBuffer::new();
            // The messages, and the numbers of replaceable chunks.
            let (mut model, mut taken) = (VecDeque::<(Vec<u8>, Option<usize>)>::new(), 0);
            for change in &changes {
                let begun = usize::from(taken > 0);
                match change {
                    Change::Put(bytes) => {
                        out.put(Bytes::copy_from_slice(bytes));
                        model.push_back((bytes.clone(), None));
                    }
                    Change::PutReplaceable(bytes) => {
                        let number = out.put_replaceable(Bytes::copy_from_slice(bytes));
                        model.push_back((bytes.clone(), Some(number)));
                    }
                    Change::Replace(at, to) => {
                        let whole = model.iter_mut().skip(begun);
                        let mut some: Vec<_> = whole.filter(|(_, number)| number.is_some()).collect();
                        if !some.is_empty() {
                            let at = at.index(some.len());
                            let (bytes, number) = &mut *some[at];
                            let old = out.replace(number.unwrap(), Bytes::copy_from_slice(to));
                            prop_assert_eq!(&old[..], &bytes[..]);
                            bytes.clone_from(to);
                        }
                    }
                    Change::Consume(share) => {
                        let mut n = out.len() * usize::from(*share) / 255;
                        out.consume(n);
                        while n > 0 {
                            let left = model[0].0.len() - taken;
                            if n < left {
                                taken += n;
                                break;
                            }
                            n -= left;
                            taken = 0;
                            model.pop_front();
                        }
                    }
                    Change::DropMessages(at) => {
                        let n = at.index(model.len().saturating_sub(begun) + 1);
                        let keep = if begun > 0 { model[0].0.len() - taken } else { 0 };
                        let dropped = model.drain(begun..begun + n).map(|(bytes, _)| bytes.len()).sum();
                        out.drop_behind(keep, dropped);
                    }
                }
                let all = model.iter().map(|(bytes, _)| &bytes[..]).collect::<Vec<_>>().concat();
                check(&out, &all[taken..]);
            }
        }
    }

    #[test]
    fn a_large_bytes_is_kept_and_a_small_one_copied() {
        let mut out = OutboundBuffer::new();
        let (large, small) = (Bytes::from(vec![1; KEEP_FROM]), Bytes::from(vec![2; KEEP_FROM - 1]));
        out.put(small.clone());
        out.put(large.clone());
        let mut slices = [IoSlice::new(&[]); 4];
        assert_eq!(out.slices(&mut slices, usize::MAX), 2);
        assert_ne!(slices[0].as_ptr(), small.as_ptr());
        assert_eq!(slices[1].as_ptr(), large.as_ptr());
    }

    #[test]
    fn c_43_slices_are_bounded_and_exclude_consumed_bytes() {
        let mut out = OutboundBuffer::new();
        for n in 0..100u8 {
            out.put(Bytes::from(vec![n; KEEP_FROM]));
        }
        out.consume(KEEP_FROM + 1);
        let mut slices = [IoSlice::new(&[]); 64];
        assert_eq!(out.slices(&mut slices, usize::MAX), 64);
        assert_eq!((slices[0].len(), slices[0][0]), (KEEP_FROM - 1, 1));
        assert_eq!((slices[63].len(), slices[63][0]), (KEEP_FROM, 64));
    }

    #[test]
    fn a_buffer_that_never_runs_empty_does_not_grow_without_bound() {
        let mut out = OutboundBuffer::new();
        out.put_slice(&[0; 100]);
        for _ in 0..100_000 {
            out.put_slice(&[0; 100]);
            out.consume(100);
        }
        assert_eq!(out.len(), 100);
        assert!(out.tail.capacity() <= 4 * KEEP_CAPACITY, "{} bytes", out.tail.capacity());
    }

    #[test]
    fn an_empty_buffer_frees_memory_above_a_moderate_amount() {
        let mut out = OutboundBuffer::new();
        out.put_slice(&vec![0; 10 * KEEP_CAPACITY]);
        out.consume(10 * KEEP_CAPACITY);
        assert_eq!(out.tail.capacity(), 0);
        out.put_slice(b"small");
        out.consume(5);
        assert!(out.tail.capacity() > 0, "a little is kept for the next write");
    }

    #[test]
    #[should_panic(expected = "4 bytes consumed of 3")]
    fn consuming_more_than_the_pending_bytes_panics() {
        let mut out = OutboundBuffer::new();
        out.put_slice(b"abc");
        out.consume(4);
    }
}
