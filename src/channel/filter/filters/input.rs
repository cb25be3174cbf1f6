//! Input: from the wire through the filters, upwards.
//!
//! Bytes that a filter has not consumed are kept in its layer. [`Filters::pass`] is the one place
//! that puts them in front of new ones. It keeps them again, and so does `single`, a shorter way
//! for the usual case. A layer that leaves hands them to the next one ([`Filters::remove`]).
//!
//! Invariants: each byte reaches a filter once for each call that does not consume it, in order.
//! Nothing passes a filter that is not established. The end of a stream reaches each filter once,
//! from the bottom, behind all of its input; a filter that waits delays it.

use super::{Filters, Layer, Lent, MAX_KEPT, Resume};
use crate::{
    channel::filter::{
        buffers::FilterBuffers,
        filter_state::FilterState,
        opened::{Collect, Opened},
        sealed::SEALED_AHEAD,
    },
    error::{Error, PeerError, Resource, Result},
};

/// Input of a filter that starts with the bytes kept for it.
pub(super) enum FilterInput<'a> {
    /// In memory of the loop.
    Lent(&'a mut [u8]),
    /// In memory that the channel may keep, behind this number of consumed bytes.
    Own(Vec<u8>, usize),
}

impl FilterInput<'_> {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            FilterInput::Lent(bytes) => bytes,
            FilterInput::Own(bytes, at) => &mut bytes[*at..],
        }
    }

    fn consume(&mut self, n: usize) {
        match self {
            FilterInput::Lent(bytes) => *bytes = &mut std::mem::take(bytes)[n..],
            FilterInput::Own(_, at) => *at += n,
        }
    }

    /// Returns these bytes behind those in `front`.
    fn behind(mut self, mut front: Vec<u8>, buffers: &mut FilterBuffers) -> Self {
        let new = self.bytes();
        if front.capacity() - front.len() < new.len() {
            // A quarter keeps the cost of copying linear, and the memory close to the input.
            front.reserve_exact(new.len().max(front.len() / 4));
        }
        front.extend_from_slice(new);
        self.drop_into(buffers);
        FilterInput::Own(front, 0)
    }

    /// Returns the memory to the loop.
    fn drop_into(self, buffers: &mut FilterBuffers) {
        if let FilterInput::Own(bytes, _) = self {
            buffers.return_kept(bytes);
        }
    }

    /// Keeps the bytes in `kept`, which is empty.
    #[inline]
    pub(super) fn keep(self, kept: &mut Vec<u8>, buffers: &mut FilterBuffers) {
        // Usually the filter has consumed a whole read.
        let is_nothing =
            matches!(&self, FilterInput::Lent(bytes) if bytes.is_empty()) && kept.capacity() == 0;
        if !is_nothing {
            self.keep_rest(kept, buffers);
        }
    }

    #[inline(never)]
    fn keep_rest(mut self, kept: &mut Vec<u8>, buffers: &mut FilterBuffers) {
        match self {
            FilterInput::Own(bytes, 0) if !bytes.is_empty() => *kept = bytes,
            // A small rest must not keep the memory of the consumed bytes.
            _ => {
                buffers.keep(kept, self.bytes());
                self.drop_into(buffers);
            }
        }
    }
}

impl Filters {
    /// Opens the bytes of the wire behind the first `front` ones, which are free to use: if few
    /// bytes are kept, they are put there instead of growing in memory of the channel. So each read
    /// copies about as many bytes as it has brought, regardless of the bytes kept.
    ///
    /// # Errors
    /// [`Error::Full`] if the filters reply more than the transport takes, or the error of a filter
    /// if the input is invalid.
    pub(crate) fn open(
        &mut self,
        wire: &mut [u8],
        front: usize,
        opened: &mut Opened<'_>,
        lent: &mut Lent<'_>,
    ) -> Result {
        let result = if self.has_single_open_filter() {
            self.pass_single(&mut wire[front..], opened, lent)
        } else if self.wire_has_ended() {
            Ok(())
        } else {
            if !self.left_over.is_empty() {
                opened.put(&std::mem::take(&mut self.left_over));
            }
            let start = self.put_kept_in_front(wire, front, lent);
            let input = FilterInput::Lent(&mut wire[start..]);
            self.pass(0, input, false, opened, lent).and_then(|()| self.pass_end(opened, lent))
        };
        self.conclude(result, lent)
    }

    /// Returns where the input begins.
    fn put_kept_in_front(&mut self, wire: &mut [u8], front: usize, lent: &mut Lent<'_>) -> usize {
        let Some(bottom) = self.layers.first_mut() else { return front };
        let (kept, read) = (bottom.kept.len(), wire.len() - front);
        if kept == 0 || kept > front || kept > 4 * read {
            return front;
        }
        let start = front - kept;
        wire[start..front].copy_from_slice(&bottom.kept);
        lent.buffers.return_kept(std::mem::take(&mut bottom.kept));
        start
    }

    /// Starts the filters that have waited for an admission, and calls all started filters with the
    /// input that was kept for them.
    ///
    /// # Errors
    /// The errors of [`Filters::open`].
    pub(crate) fn resume(&mut self, resume: Resume, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        let result = self.resume_all(resume, opened, lent);
        self.conclude(result, lent)
    }

    fn resume_all(&mut self, resume: Resume, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        self.begin(lent)?;
        opened.put(&std::mem::take(&mut self.left_over));
        // From the top: a filter that goes on passes plaintext upwards.
        for at in (0..self.begun).rev() {
            if at < self.begun {
                let Layer { state, kept, .. } = &self.layers[at];
                let called = resume == Resume::Woken || *state != FilterState::Waiting && !kept.is_empty();
                self.pass(at, FilterInput::Lent(&mut []), called, opened, lent)?;
            }
        }
        self.pass_end(opened, lent)
    }

    /// Handles the end of the wire.
    ///
    /// # Errors
    /// [`PeerError::Truncated`] if a filter finds its stream truncated.
    pub(crate) fn end_of_input(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        self.wire_ended = true;
        let result = self.pass_end(opened, lent);
        self.conclude(result, lent)
    }

    /// Checks the limits after input was handled, and records a failure.
    #[inline]
    fn conclude(&mut self, result: Result, lent: &mut Lent<'_>) -> Result {
        let result = result.and_then(|()| self.check(lent));
        self.failed |= result.is_err();
        result
    }

    #[inline]
    fn check(&mut self, lent: &mut Lent<'_>) -> Result {
        self.begin(lent)?;
        // Sealed messages are bounded when they are sealed.
        if self.sealed.as_ref().is_some_and(|sealed| sealed.replies() > SEALED_AHEAD) {
            return Err(Error::Full { resource: Resource::FilterOutput, limit: SEALED_AHEAD });
        }
        if !self.has_kept() {
            return Ok(());
        }
        let kept = self.kept();
        if kept > MAX_KEPT && !self.is_established() {
            let (what, length) = ("a handshake message", kept as u64);
            return Err(PeerError::TooLong { what, length, limit: MAX_KEPT }.into());
        }
        Ok(())
    }

    /// Passes input to the filter at `at`, behind the bytes that are kept for it, and its plaintext
    /// to the filters above. `woken`: the filter is called even if it waits or the input is empty.
    pub(super) fn pass(
        &mut self,
        at: usize,
        mut input: FilterInput<'_>,
        mut woken: bool,
        opened: &mut Opened<'_>,
        lent: &mut Lent<'_>,
    ) -> Result {
        loop {
            if input.bytes().is_empty() && !woken {
                input.drop_into(lent.buffers);
                return Ok(());
            }
            let Some(layer) = self.layers.get_mut(at) else {
                opened.put(input.bytes());
                input.drop_into(lent.buffers);
                return Ok(());
            };
            if !layer.kept.is_empty() {
                input = input.behind(std::mem::take(&mut layer.kept), lent.buffers);
            }
            let state = layer.state;
            if state == FilterState::InputEnded {
                input.drop_into(lent.buffers);
                return Ok(());
            }
            if at >= self.begun || state == FilterState::Waiting && !woken {
                input.keep(&mut layer.kept, lent.buffers);
                return Ok(());
            }
            woken = false;
            let mut top = at + 1 == self.layers.len();
            let mark = opened.mark();
            let mut above = Vec::new();
            let to: &mut dyn Collect = if top { opened } else { &mut above };
            let bytes = input.bytes();
            let length = bytes.len();
            let result = self.call(at, Some(to), lent, |filter, ctx| filter.read(ctx, bytes));
            if top && at + 1 < self.layers.len() {
                // The call has inserted a filter. The plaintext of the call belongs to that filter.
                above = opened.take_from(mark);
                top = false;
            }
            let taken = match result {
                Ok(taken) => taken.min(length),
                Err(error) => {
                    // What precedes the error is delivered, however the input was split. The call
                    // may have established the filter first.
                    let passes = state.is_established() || self.layers[at].state.is_established();
                    if passes && !self.has_refused_one() {
                        // A filter that this call has inserted.
                        self.begin(lent)?;
                        self.pass(at + 1, FilterInput::Own(above, 0), false, opened, lent)?;
                    } else {
                        opened.truncate(mark);
                    }
                    return Err(error);
                }
            };
            input.consume(taken);
            let was_established = state.is_established();
            let state = self.layers[at].state;
            if !state.is_established() && !was_established {
                // Discard plaintext until the filter is established.
                opened.truncate(mark);
                above.clear();
            }
            match state {
                FilterState::Finished => {
                    self.remove(at);
                    self.begin(lent)?;
                    self.pass(at, FilterInput::Own(above, 0), false, opened, lent)?;
                    // The rest goes to the filter that is in this place now.
                }
                FilterState::InputEnded => {
                    self.layers[at].ended = true;
                    self.begin(lent)?;
                    input.drop_into(lent.buffers);
                    return self.pass(at + 1, FilterInput::Own(above, 0), false, opened, lent);
                }
                FilterState::Handshaking | FilterState::Waiting | FilterState::Established => {
                    input.keep(&mut self.layers[at].kept, lent.buffers);
                    self.begin(lent)?;
                    if top {
                        // It has collected in `opened`.
                        return Ok(());
                    }
                    return self.pass(at + 1, FilterInput::Own(above, 0), false, opened, lent);
                }
            }
        }
    }

    /// Passes the end of a stream on, from the filter or the wire that has ended, as far as no
    /// filter waits.
    #[inline]
    pub(crate) fn pass_end(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        if !self.wire_ended && !self.layers.iter().any(|layer| layer.ended) {
            return Ok(());
        }
        self.pass_end_on(opened, lent)
    }

    #[inline(never)]
    fn pass_end_on(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        loop {
            let at = match self.layers.iter().rposition(|layer| layer.ended) {
                Some(ended) => ended + 1,
                None if self.wire_ended => 0,
                None => return Ok(()),
            };
            let waits = |layer: &Layer| layer.state == FilterState::Waiting;
            if self.surroundings.announced || self.added || self.layers.iter().take(at + 1).any(waits) {
                return Ok(());
            }
            if at == self.layers.len() {
                break;
            }
            if at < self.begun {
                let kept = self.layers[at].kept.len();
                let ended = self.call(at, None, lent, |filter, ctx| filter.end_of_input(ctx, kept));
                if let Err(error) = ended {
                    return Err(self.cut_handshake(at + 1, lent).unwrap_or(error));
                }
                let layer = &mut self.layers[at];
                layer.ended = true;
                if layer.state != FilterState::Finished {
                    lent.buffers.return_kept(std::mem::take(&mut layer.kept));
                }
            }
            match self.layers[at].state {
                FilterState::Finished => {
                    self.remove(at);
                    self.begin(lent)?;
                    opened.put(&std::mem::take(&mut self.left_over));
                    let reads_rest = |next: &Layer| !waits(next) && !next.kept.is_empty();
                    let called = self.layers.get(at).is_some_and(reads_rest);
                    self.pass(at, FilterInput::Lent(&mut []), called, opened, lent)?;
                }
                FilterState::Waiting | FilterState::Established | FilterState::InputEnded => {}
                FilterState::Handshaking => break,
            }
        }
        // The end of a handshake is not seen by each filter.
        if self.is_established() { Ok(()) } else { Err(PeerError::Truncated.into()) }
    }

    /// Passes the end of a stream that is cut off to the filter at `at`, if its handshake is in
    /// progress. Returns the error of that filter. It is the better one: the peer may have refused
    /// the handshake.
    fn cut_handshake(&mut self, at: usize, lent: &mut Lent<'_>) -> Option<Error> {
        let layer = self.layers.get(at).filter(|_| at < self.begun)?;
        if layer.state != FilterState::Handshaking {
            return None;
        }
        let kept = layer.kept.len();
        self.call(at, None, lent, |filter, ctx| filter.end_of_input(ctx, kept)).err()
    }

    /// Returns whether no further bytes of the wire are wanted.
    fn wire_has_ended(&self) -> bool {
        self.wire_ended || self.layers.first().is_some_and(|bottom| bottom.ended)
    }

    /// Returns whether the stream of plaintext has ended.
    pub(crate) fn input_has_ended(&self) -> bool {
        self.layers.last().map_or(self.wire_ended, |top| top.ended)
    }

    /// Returns whether the filters read the wire, or are to be called, regardless of the pipeline's
    /// demand: during a handshake, and after a waker was used.
    pub(crate) fn read_for_themselves(&self) -> bool {
        !self.failed && !self.added && (self.due.is_some() || !self.is_established() && !self.is_waiting())
    }

    /// Returns the number of input bytes that are kept for filters.
    pub(crate) fn kept(&self) -> usize {
        self.layers.iter().map(|layer| layer.kept.len()).sum::<usize>() + self.left_over.len()
    }

    /// Returns whether input bytes are kept for filters.
    #[inline]
    pub(crate) fn has_kept(&self) -> bool {
        self.layers.iter().any(|layer| !layer.kept.is_empty()) || !self.left_over.is_empty()
    }

    /// Returns the number of bytes of the wire that precede the next ones that are read.
    pub(crate) fn kept_below(&self) -> usize {
        self.layers.first().map_or(0, |layer| layer.kept.len())
    }
}
