//! Wire bytes that wait for the transport, and the number of plaintext bytes in them.
//!
//! Invariants: plaintext counts as sent when the transport has taken the last byte of its record.
//! When the transport has taken everything, nothing is left of the sent bytes.

use std::collections::VecDeque;

/// The largest number of bytes that are sealed ahead of the transport.
pub(crate) const SEALED_AHEAD: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct SealedOutput {
    /// The filters append to it.
    pub(super) wire: Vec<u8>,
    /// Bytes of `wire` that the transport has taken.
    sent: usize,
    records: VecDeque<Record>,
    /// Bytes of all records, including sent ones.
    recorded: usize,
    /// Plaintext bytes of all records.
    plain: usize,
    /// Waiting bytes of records without plaintext.
    replies: usize,
}

/// A piece of the wire that counts as sent as a whole.
#[derive(Debug)]
struct Record {
    /// Bytes of the wire that the transport has not taken yet.
    left: usize,
    /// Plaintext bytes in it; zero for the filters' own output.
    plain: usize,
}

impl SealedOutput {
    /// Returns the bytes that wait for the transport.
    pub(super) fn pending(&self) -> &[u8] {
        &self.wire[self.sent..]
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.sent == self.wire.len()
    }

    /// Returns whether it holds neither bytes nor records, sent or not.
    pub(super) fn is_clear(&self) -> bool {
        self.wire.is_empty() && self.records.is_empty() && self.sent == 0 && self.recorded == 0
    }

    /// Returns the plaintext bytes that are sealed and not sent.
    pub(super) fn plain(&self) -> usize {
        self.plain
    }

    /// Returns the waiting bytes that carry no plaintext.
    pub(super) fn replies(&self) -> usize {
        self.replies
    }

    /// Returns how many bytes may be sealed now.
    pub(super) fn room(&self) -> usize {
        SEALED_AHEAD.saturating_sub(self.pending().len())
    }

    /// Returns the size of the allocated memory.
    pub(super) fn memory(&self) -> usize {
        self.wire.capacity()
    }

    /// Records that the bytes appended to the wire since the last call hold `plain` bytes of
    /// plaintext.
    pub(super) fn record(&mut self, plain: usize) {
        let left = self.wire.len() - self.recorded;
        if left > 0 {
            self.recorded += left;
            self.plain += plain;
            if plain == 0 {
                self.replies += left;
            }
            self.records.push_back(Record { left, plain });
        }
    }

    /// Drops the bytes appended to the wire since the last record.
    pub(super) fn forget(&mut self) {
        self.wire.truncate(self.recorded);
    }

    /// Records that the transport has accepted `n` bytes. Returns the number of plaintext bytes in
    /// the records that were sent by that.
    #[inline]
    pub(super) fn take(&mut self, n: usize) -> usize {
        if n < self.pending().len() {
            return self.take_part(n);
        }
        // The usual case: everything is sent.
        let plain = self.plain;
        self.clear();
        plain
    }

    #[inline(never)]
    fn take_part(&mut self, mut n: usize) -> usize {
        self.sent += n;
        let mut plain = 0;
        while let Some(record) = self.records.front_mut().filter(|_| n > 0) {
            let taken = n.min(record.left);
            n -= taken;
            record.left -= taken;
            if record.plain == 0 {
                self.replies -= taken;
            }
            if record.left == 0 {
                plain += record.plain;
                self.records.pop_front();
            }
        }
        self.plain -= plain;
        if self.sent >= SEALED_AHEAD {
            // A peer that is never fully served must not let the buffer grow.
            self.wire.drain(..self.sent);
            self.recorded -= self.sent;
            self.sent = 0;
        }
        plain
    }

    /// Empties it, and keeps its memory.
    fn clear(&mut self) {
        self.wire.clear();
        self.records.clear();
        (self.sent, self.recorded, self.plain, self.replies) = (0, 0, 0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(sealed: &mut SealedOutput, wire: &[u8], plain: usize) {
        sealed.wire.extend_from_slice(wire);
        sealed.record(plain);
    }

    #[test]
    fn plaintext_counts_as_sent_with_the_last_byte_of_its_record() {
        let mut sealed = SealedOutput::default();
        push(&mut sealed, b"reply", 0);
        push(&mut sealed, b"[abc]", 3);
        push(&mut sealed, b"[de]", 2);
        push(&mut sealed, b"", 0);
        assert_eq!((sealed.pending().len(), sealed.plain(), sealed.room()), (14, 5, SEALED_AHEAD - 14));
        assert_eq!(sealed.replies(), 5);
        assert_eq!(sealed.take(9), 0);
        assert_eq!(sealed.replies(), 0);
        assert_eq!(sealed.take(1), 3);
        assert_eq!((sealed.pending(), sealed.plain()), (&b"[de]"[..], 2));
        assert_eq!(sealed.take(4), 2);
        assert_eq!((sealed.is_empty(), sealed.plain()), (true, 0));
    }

    #[test]
    fn a_peer_that_is_never_fully_served_does_not_let_the_buffer_grow() {
        let mut sealed = SealedOutput::default();
        let record = [7; 1000];
        push(&mut sealed, &record, 900);
        for _ in 0..10_000 {
            push(&mut sealed, &record, 900);
            assert_eq!(sealed.take(1000), 900);
            assert_eq!((sealed.pending().len(), sealed.plain()), (1000, 900));
        }
        assert!(sealed.memory() <= 4 * SEALED_AHEAD, "{}", sealed.memory());
    }
}
