//! Input: from the wire through the filters, upwards.
//!
//! Invariants: what a filter has not consumed is kept for it. Nothing passes a filter that is not
//! established.

use super::{Filters, GROWS, Layer, Lent, MAX_KEPT};
use crate::{
    Error, Result,
    channel::filter::{FilterState, Opened, opened::Collect, sealed::SEALED_AHEAD},
    error::{PeerError, Resource},
};

impl Filters {
    /// Opens bytes of the wire: those that were kept ([`Filters::kept_below`]), then new ones.
    ///
    /// # Errors
    /// If the input is invalid, or if the filters reply more than the transport takes.
    pub(crate) fn open(&mut self, wire: &mut [u8], opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        if let Some(bottom) = self.layers.first_mut() {
            bottom.kept.clear();
        }
        let passed = if self.input_ended { Ok(()) } else { self.pass(0, wire, false, opened, lent) };
        let result = passed.and_then(|()| self.check(lent));
        self.failed |= result.is_err();
        result
    }

    /// Starts the filters that have waited for an admission, and calls all that were woken, with
    /// the input that was kept for them.
    pub(crate) fn resume(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        let result = self.resume_all(opened, lent).and_then(|()| self.check(lent));
        self.failed |= result.is_err();
        result
    }

    fn resume_all(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        self.begin(lent)?;
        // From the top: a filter that goes on passes plaintext upwards.
        for at in (0..self.begun).rev() {
            if let Some(layer) = self.layers.get_mut(at) {
                let mut input = std::mem::take(&mut layer.kept);
                self.pass(at, &mut input, true, opened, lent)?;
                lent.buffers.return_kept(input);
            }
        }
        Ok(())
    }

    /// Checks the limits after input was handled.
    fn check(&mut self, lent: &mut Lent<'_>) -> Result {
        self.begin(lent)?;
        let established = self.is_established();
        // Sealed messages are bounded when they are sealed.
        if self.sealed.as_ref().is_some_and(|sealed| sealed.replies() > SEALED_AHEAD) {
            return Err(Error::Full { resource: Resource::FilterOutput, limit: SEALED_AHEAD });
        }
        let kept = self.kept();
        if !established && kept > MAX_KEPT {
            let (what, length) = ("a handshake message", kept as u64);
            return Err(PeerError::TooLong { what, length, limit: MAX_KEPT }.into());
        }
        Ok(())
    }

    /// Passes input to the filter at `at`, and what it opens to those above it. `input` starts with
    /// what was kept for it. `woken`: the filter is called even if it waits or the input is empty.
    fn pass(
        &mut self,
        at: usize,
        input: &mut [u8],
        woken: bool,
        opened: &mut Opened<'_>,
        lent: &mut Lent<'_>,
    ) -> Result {
        let (mut input, mut woken) = (input, woken);
        loop {
            if input.is_empty() && !woken {
                return Ok(());
            }
            if at == self.layers.len() {
                opened.put(input);
                return Ok(());
            }
            let state = self.layers[at].state;
            if at >= self.begun || state == FilterState::Waiting && !woken {
                lent.buffers.keep(&mut self.layers[at].kept, input);
                return Ok(());
            }
            if state == FilterState::InputEnded {
                return Ok(());
            }
            woken = false;
            let top = at + 1 == self.layers.len();
            let mark = opened.mark();
            let mut above = Vec::new();
            let to: &mut dyn Collect = if top { opened } else { &mut above };
            let result = self.call(at, Some(to), lent, |filter, ctx| filter.read(ctx, input));
            let taken = match result {
                Ok(taken) => taken,
                Err(error) => {
                    // What precedes the error is delivered, however the input was split.
                    if state.is_established() {
                        self.pass_up(at + 1, above, opened, lent)?;
                    } else {
                        opened.truncate(mark);
                    }
                    return Err(error);
                }
            };
            let taken = taken.min(input.len());
            input = &mut input[taken..];
            let was_established = state.is_established();
            let state = self.layers[at].state;
            if !state.is_established() && !was_established {
                // Nothing passes a filter that does not vouch for it.
                opened.truncate(mark);
                above.clear();
            }
            match state {
                FilterState::Finished => {
                    self.remove(at);
                    self.begin(lent)?;
                    self.pass_up(at, above, opened, lent)?;
                    // The rest goes to the filter that is in this place now.
                }
                FilterState::InputEnded => {
                    self.begin(lent)?;
                    self.pass_up(at + 1, above, opened, lent)?;
                    return self.end_above(at + 1, lent);
                }
                FilterState::Handshaking | FilterState::Waiting | FilterState::Established => {
                    if at == 0 && taken == 0 && self.in_place {
                        self.untouched = input.len();
                    } else {
                        lent.buffers.keep(&mut self.layers[at].kept, input);
                    }
                    self.begin(lent)?;
                    return self.pass_up(at + 1, above, opened, lent);
                }
            }
        }
    }

    /// Passes bytes to the filter at `at`, after those that were kept for it.
    fn pass_up(&mut self, at: usize, bytes: Vec<u8>, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        let mut input = match self.layers.get_mut(at) {
            Some(layer) if !layer.kept.is_empty() => {
                let mut joined = std::mem::take(&mut layer.kept);
                joined.extend_from_slice(&bytes);
                joined
            }
            _ => bytes,
        };
        self.pass(at, &mut input, false, opened, lent)
    }

    /// Handles the end of the stream below the filter at `from`.
    fn end_above(&mut self, from: usize, lent: &mut Lent<'_>) -> Result {
        self.input_ended = true;
        for at in from..self.begun {
            let Layer { state, kept, .. } = &self.layers[at];
            if *state != FilterState::InputEnded {
                let kept = kept.len();
                self.call(at, None, lent, |filter, ctx| filter.end_of_input(ctx, kept))?;
            }
        }
        // The end of a handshake is not seen by each filter.
        if self.is_established() { Ok(()) } else { Err(PeerError::Truncated.into()) }
    }

    /// Handles the end of the wire.
    ///
    /// # Errors
    /// If a filter finds its stream truncated.
    pub(crate) fn end_of_input(&mut self, lent: &mut Lent<'_>) -> Result {
        let result = if self.input_ended { Ok(()) } else { self.end_above(0, lent) };
        self.failed |= result.is_err();
        result
    }

    /// Returns whether the peer has ended its stream in the terms of a filter.
    pub(crate) fn input_has_ended(&self) -> bool {
        self.input_ended
    }

    /// Returns the number of input bytes that are kept for filters.
    pub(crate) fn kept(&self) -> usize {
        self.layers.iter().map(|layer| layer.kept.len()).sum::<usize>() + self.untouched
    }

    /// Takes many bytes that precede the next ones that are read, which are read behind them.
    pub(crate) fn take_kept_below(&mut self) -> Option<Vec<u8>> {
        let kept = &mut self.layers.first_mut()?.kept;
        self.in_place = kept.len() > GROWS;
        self.untouched = 0;
        self.in_place.then(|| std::mem::take(kept))
    }

    /// Gives back what [`Filters::take_kept_below`] has returned, with `read` new bytes, after it
    /// was passed to [`Filters::open`].
    pub(crate) fn give_kept_back(&mut self, mut wire: Vec<u8>, kept: usize, read: usize) {
        self.in_place = false;
        let untouched = std::mem::take(&mut self.untouched) > 0;
        if (untouched || read == 0)
            && let Some(bottom) = self.layers.first_mut()
        {
            wire.truncate(kept + read);
            bottom.kept = wire;
        }
    }

    /// Returns the bytes of the wire that precede the next ones that are read.
    pub(crate) fn kept_below(&self) -> &[u8] {
        self.layers.first().map_or(&[], |layer| &layer.kept)
    }
}
