//! Memory that a loop lends to the filters of its channels.
//!
//! Invariant: an idle channel has returned all borrowed memory. Owned by the loop, used on its
//! thread.

use super::sealed::SealedOutput;

/// The limit of spare buffers of each kind. Beyond it they are freed.
const SPARES: usize = 64;

/// The limit of memory that a spare buffer may have, in bytes.
const SPARE_SIZE: usize = 128 * 1024;

/// Allocated when the first channel of the loop with filters needs it.
#[derive(Debug, Default)]
pub(crate) struct FilterBuffers {
    /// Bytes of the wire that are being opened.
    wire: Vec<u8>,
    /// Plaintext that is being sealed, where it is not contiguous.
    pub(super) piece: Vec<u8>,
    #[expect(clippy::vec_box, reason = "a channel owns it boxed, so that an idle one pays a pointer only")]
    sealed: Vec<Box<SealedOutput>>,
    /// For incomplete input.
    kept: Vec<Vec<u8>>,
}

impl FilterBuffers {
    /// Takes a buffer of `size` bytes for the wire. The caller returns it.
    pub(crate) fn take_wire(&mut self, size: usize) -> Vec<u8> {
        let mut wire = std::mem::take(&mut self.wire);
        if wire.len() < size {
            wire.resize(size, 0);
        }
        wire
    }

    pub(crate) fn return_wire(&mut self, mut wire: Vec<u8>) {
        // A filter with large records, or a limit of `max_inbound` that is large.
        if wire.len() > 2 * SPARE_SIZE {
            wire = Vec::new();
        }
        self.wire = wire;
    }

    /// Keeps a copy of `rest` in `kept`, which is empty.
    pub(super) fn keep(&mut self, kept: &mut Vec<u8>, rest: &[u8]) {
        debug_assert!(kept.is_empty());
        if rest.is_empty() {
            return self.return_kept(std::mem::take(kept));
        }
        if kept.capacity() == 0 {
            *kept = self.kept.pop().unwrap_or_default();
        }
        kept.extend_from_slice(rest);
    }

    pub(super) fn return_kept(&mut self, mut kept: Vec<u8>) {
        if (1..=SPARE_SIZE).contains(&kept.capacity()) && self.kept.len() < SPARES {
            kept.clear();
            self.kept.push(kept);
        }
    }

    pub(super) fn lease_sealed(&mut self) -> Box<SealedOutput> {
        self.sealed.pop().unwrap_or_default()
    }

    /// Takes back a buffer whose bytes are all sent.
    #[inline]
    pub(super) fn return_sealed(&mut self, sealed: Box<SealedOutput>) {
        debug_assert!(sealed.is_clear());
        if self.sealed.len() < SPARES && sealed.memory() <= SPARE_SIZE {
            self.sealed.push(sealed);
        }
    }
}
