//! Output: plaintext through the filters, down to the wire.
//!
//! Invariant: a filter receives the output of the filter above it, in order.

use super::{Filters, Layer, Lent, Output, PIECE, Resume};
use crate::{
    buffer::OutboundBuffer,
    channel::filter::{
        FilterContext, filter_state::FilterState, filter_trait::Surroundings, sealed::SEALED_AHEAD,
    },
    error::{Error, Result},
};
use std::borrow::Cow;

impl Layer {
    /// Seals `bytes` in pieces, and appends the result to `output`. The output of a filter above
    /// may be longer than a piece.
    #[inline(always)]
    fn write(
        &mut self,
        bytes: &[u8],
        output: &mut Vec<u8>,
        surroundings: &mut Surroundings,
        now: u64,
    ) -> Result {
        for piece in bytes.chunks(PIECE) {
            if self.state == FilterState::Finished {
                // It leaves soon.
                output.extend_from_slice(piece);
                continue;
            }
            let mut ctx = FilterContext { plain: None, output, surroundings, inserted: None, now };
            let written = self.filter.write(&mut ctx, piece);
            let inserts = ctx.inserted.is_some();
            self.state = self.filter.state();
            written?;
            if inserts {
                return Err(Error::other("a filter has inserted another one in `write`"));
            }
        }
        Ok(())
    }

    /// Returns the largest number of bytes that [`Layer::write`] makes of `plain` bytes.
    fn sealed_len(&self, plain: usize) -> usize {
        plain / PIECE * self.filter.sealed_len(PIECE) + self.filter.sealed_len(plain % PIECE)
    }
}

impl Filters {
    /// Seals pending plaintext up to the limit.
    pub(crate) fn seal(&mut self, out: &OutboundBuffer, lent: &mut Lent<'_>) -> Result {
        if self.failed {
            return Ok(());
        }
        let mut from = self.sealed_plain();
        // A filter may begin another handshake with its output, or wait.
        while from < out.len() && self.is_established() {
            let plain = self.plain_that_fits().min(out.len() - from);
            if plain == 0 {
                break;
            }
            self.seal_piece(out, from, plain, lent)?;
            from += plain;
        }
        Ok(())
    }

    /// Seals all pending plaintext, before another filter is added. The limits of outbound bytes
    /// bound it.
    pub(crate) fn seal_all(&mut self, out: &OutboundBuffer, lent: &mut Lent<'_>) -> Result {
        while self.sealed_plain() < out.len() {
            if !self.is_established() {
                return Err(Error::other("another filter of this channel is not established"));
            }
            let from = self.sealed_plain();
            let plain = PIECE.min(out.len() - from);
            self.seal_piece(out, from, plain, lent)?;
        }
        Ok(())
    }

    /// Seals `plain` bytes after the first `from` ones.
    fn seal_piece(&mut self, out: &OutboundBuffer, from: usize, plain: usize, lent: &mut Lent<'_>) -> Result {
        let below = self.layers.len();
        let result = if let Some(piece) = out.contiguous(from, plain) {
            self.send_below(below, piece, plain, lent)
        } else {
            let mut piece = std::mem::take(&mut lent.buffers.piece);
            piece.clear();
            out.copy_to(from, plain, &mut piece);
            let result = self.send_below(below, &piece, plain, lent);
            lent.buffers.piece = piece;
            result
        };
        if self.layers.iter().any(|layer| layer.state == FilterState::Finished) {
            self.remove_finished();
        }
        result
    }

    /// Removes the filters that have finished with their output. Input that was kept for them goes
    /// on with the next call.
    #[cold]
    fn remove_finished(&mut self) {
        for at in (0..self.begun).rev() {
            if self.layers[at].state == FilterState::Finished {
                self.remove(at);
            }
        }
        if self.has_kept() {
            self.request(Resume::Admitted);
        }
    }

    /// Returns how much plaintext may be sealed at once now.
    fn plain_that_fits(&self) -> usize {
        let room = self.sealed.as_ref().map_or(SEALED_AHEAD, |sealed| sealed.room());
        let sealed_len = |plain| self.layers.iter().rev().fold(plain, |n, layer| layer.sealed_len(n));
        let mut plain = PIECE.min(room);
        while plain > 0 && sealed_len(plain) > room {
            plain /= 2;
        }
        plain
    }

    /// Passes bytes from the filter at `from` down to the wire.
    #[inline]
    pub(super) fn send_below(
        &mut self,
        from: usize,
        bytes: &[u8],
        plain: usize,
        lent: &mut Lent<'_>,
    ) -> Result {
        if bytes.is_empty() { Ok(()) } else { self.send_down(from, bytes, plain, lent) }
    }

    #[inline(never)]
    fn send_down(&mut self, from: usize, bytes: &[u8], plain: usize, lent: &mut Lent<'_>) -> Result {
        let Filters { layers, sealed, surroundings, .. } = self;
        let sealed = sealed.get_or_insert_with(|| lent.buffers.lease_sealed());
        let before = sealed.wire.len();
        let written = match &mut layers[..from] {
            // The usual case.
            [bottom] => bottom.write(bytes, &mut sealed.wire, surroundings, lent.now),
            layers => write_through(layers, bytes, &mut sealed.wire, surroundings, lent.now),
        };
        if written.is_err() {
            // The last words of the filter carry no plaintext.
            sealed.record(0);
            return written;
        }
        if plain > 0 && sealed.wire.len() == before {
            // It would be passed to the filters again and again.
            return Err(Error::other("a filter has sealed nothing of a message"));
        }
        sealed.record(plain);
        Ok(())
    }

    /// Ends the output of all filters, from the top, once.
    pub(crate) fn end_output(&mut self, lent: &mut Lent<'_>) -> Result {
        if self.output != Output::Open || self.failed {
            return Ok(());
        }
        self.output = Output::Ending;
        let marks = (0..self.begun)
            .rev()
            .try_for_each(|at| self.call(at, None, lent, |filter, ctx| filter.end_output(ctx)));
        self.output = Output::Ended;
        marks
    }

    /// Returns the bytes that wait for the transport.
    #[inline]
    pub(crate) fn sealed_wire(&self) -> &[u8] {
        self.sealed.as_ref().map_or(&[], |sealed| sealed.pending())
    }

    /// Returns whether bytes wait for the transport.
    #[inline]
    pub(crate) fn has_sealed(&self) -> bool {
        self.sealed.as_ref().is_some_and(|sealed| !sealed.is_empty())
    }

    /// Returns the number of plaintext bytes in the bytes that wait for the transport.
    #[inline]
    pub(crate) fn sealed_plain(&self) -> usize {
        self.sealed.as_ref().map_or(0, |sealed| sealed.plain())
    }

    /// Records that the transport has accepted `n` bytes. Returns the number of plaintext bytes
    /// that were sent by that.
    pub(crate) fn take(&mut self, n: usize, lent: &mut Lent<'_>) -> usize {
        let plain = self.sealed.as_mut().map_or(0, |sealed| sealed.take(n));
        self.return_sealed_if_empty(lent);
        plain
    }

    #[inline]
    pub(super) fn return_sealed_if_empty(&mut self, lent: &mut Lent<'_>) {
        if let Some(sealed) = self.sealed.take_if(|sealed| sealed.is_empty()) {
            lent.buffers.return_sealed(sealed);
        }
    }
}

/// Passes `bytes` through the filters, from the top, and appends the result to `output`.
#[inline(never)]
fn write_through(
    layers: &mut [Layer],
    bytes: &[u8],
    output: &mut Vec<u8>,
    surroundings: &mut Surroundings,
    now: u64,
) -> Result {
    let Some((bottom, above)) = layers.split_first_mut() else {
        output.extend_from_slice(bytes);
        return Ok(());
    };
    let (mut passed, mut result) = (Cow::Borrowed(bytes), Ok(()));
    for layer in above.iter_mut().rev() {
        let mut own = Vec::new();
        // The last words of a filter that fails pass through the filters below it.
        result = result.and(layer.write(&passed, &mut own, surroundings, now));
        if own.is_empty() {
            return result;
        }
        passed = own.into();
    }
    result.and(bottom.write(&passed, output, surroundings, now))
}
