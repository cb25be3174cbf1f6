//! Wire bytes that wait for the transport, and the number of plaintext bytes in them.
//!
//! Invariant: plaintext counts as sent when the transport has taken the last byte of its record.

use bytes::{Buf, BytesMut};
use std::collections::VecDeque;

/// The largest number of bytes that are sealed ahead of the transport.
pub(crate) const SEALED_AHEAD: usize = 64 * 1024;

#[derive(Debug, Default)]
pub(super) struct SealedOutput {
    wire: BytesMut,
    records: VecDeque<Record>,
    /// Plaintext bytes of all records.
    plain: usize,
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
    pub(super) fn wire(&self) -> &[u8] {
        &self.wire
    }

    /// Returns the plaintext bytes that are sealed and not sent.
    pub(super) fn plain(&self) -> usize {
        self.plain
    }

    /// Returns how many bytes may be sealed now.
    pub(super) fn room(&self) -> usize {
        SEALED_AHEAD.saturating_sub(self.wire.len())
    }

    pub(super) fn push(&mut self, wire: &[u8], plain: usize) {
        if wire.is_empty() {
            return;
        }
        self.wire.extend_from_slice(wire);
        self.plain += plain;
        self.records.push_back(Record { left: wire.len(), plain });
    }

    /// Records that the transport has accepted `n` bytes. Returns the number of plaintext bytes in
    /// the records that were sent by that.
    pub(super) fn take(&mut self, mut n: usize) -> usize {
        self.wire.advance(n);
        let mut plain = 0;
        while let Some(record) = self.records.front_mut().filter(|_| n > 0) {
            let taken = n.min(record.left);
            n -= taken;
            record.left -= taken;
            if record.left == 0 {
                plain += record.plain;
                self.records.pop_front();
            }
        }
        self.plain -= plain;
        if self.wire.is_empty() {
            // An idle channel owns no buffer.
            *self = SealedOutput::default();
        }
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plaintext_counts_as_sent_with_the_last_byte_of_its_record() {
        let mut sealed = SealedOutput::default();
        sealed.push(b"reply", 0);
        sealed.push(b"[abc]", 3);
        sealed.push(b"[de]", 2);
        sealed.push(b"", 0);
        assert_eq!((sealed.wire().len(), sealed.plain(), sealed.room()), (14, 5, SEALED_AHEAD - 14));
        assert_eq!(sealed.take(9), 0);
        assert_eq!(sealed.take(1), 3);
        assert_eq!((sealed.wire(), sealed.plain()), (&b"[de]"[..], 2));
        assert_eq!(sealed.take(4), 2);
        assert_eq!((sealed.wire().len(), sealed.plain(), sealed.wire.capacity()), (0, 0, 0));
    }
}
