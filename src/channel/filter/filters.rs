//! The filters of a channel, in order.
//!
//! Invariants: a filter starts when the one below it is established. Input that a filter has not
//! consumed is kept here, for each filter. Runs on the channel's loop.

use super::{
    Filter, FilterBuffers, FilterContext, FilterState, Opened,
    filter_trait::Surroundings,
    opened::Collect,
    sealed::{SEALED_AHEAD, SealedOutput},
};
use crate::{
    Error, Result,
    buffer::OutboundBuffer,
    channel::{handle::MailSender, peer::Peer},
    error::{PeerError, Resource},
    id::Key,
    timer::QueueKey,
};
use std::{any::Any, fmt, sync::Arc};

/// The largest number of plaintext bytes that are sealed in one piece.
const PIECE: usize = 16 * 1024;

/// The limit of unconsumed bytes that are kept for a filter until it is established. A TLS message
/// of 64 KiB fits, with its record headers. Afterwards `max_inbound` is the limit.
pub(crate) const MAX_KEPT: usize = 80 * 1024;

/// Above this number of kept bytes the next ones are read behind them, and they are not copied into
/// the loop's buffer.
const GROWS: usize = 2048;

/// The limit of filters that filters of one channel may insert.
const MAX_INSERTED: usize = 16;

pub(crate) struct Filters {
    /// The first one is next to the transport.
    layers: Vec<Layer>,
    /// The number of filters that have started.
    begun: usize,
    inserted: usize,
    sealed: Option<Box<SealedOutput>>,
    surroundings: Surroundings,
    input_ended: bool,
    output_ended: bool,
    /// A filter was added to an active channel and has not been started.
    added: bool,
    failed: bool,
    /// The input is in the memory where it was kept.
    in_place: bool,
    /// The bytes of such an input of which none was consumed.
    untouched: usize,
    /// A waker was used: `read` is to be called without new input.
    woken: bool,
    /// The filters are not established for the first time, or after one was added.
    pub(in crate::channel) handshaking: bool,
    /// The channel reads for the filters; its handler has requested no read.
    pub(in crate::channel) reads_for_itself: bool,
    /// The limit for the handshakes of all filters, in nanoseconds; 0 for none.
    pub(in crate::channel) handshake_timeout: u64,
    /// The timer of that limit.
    pub(in crate::channel) deadline: Option<QueueKey>,
    /// Continues the start of the channel. Its type is erased, because it makes pipelines, and those
    /// are called with the services of the loop, which know the filters; see `core::establish`.
    pub(in crate::channel) establish: Option<Box<dyn Any>>,
    /// Dropped with the channel.
    pub(in crate::channel) held: Option<Box<dyn Any>>,
}

struct Layer {
    filter: Box<dyn Filter>,
    /// The filter's state after the last call.
    state: FilterState,
    /// Input that the filter has not consumed.
    kept: Vec<u8>,
}

impl Layer {
    fn new(filter: Box<dyn Filter>) -> Self {
        Layer { state: filter.state(), filter, kept: Vec::new() }
    }
}

/// What a call into the filters borrows from the loop.
pub(crate) struct Lent<'a> {
    pub(crate) buffers: &'a mut FilterBuffers,
    pub(crate) now: u64,
}

impl Filters {
    /// Creates the filters of a connection with this peer. `handshake_timeout` is in nanoseconds,
    /// or 0 for no limit.
    pub(crate) fn new(filters: Vec<Box<dyn Filter>>, peer: Peer, handshake_timeout: u64) -> Self {
        Filters {
            layers: filters.into_iter().map(Layer::new).collect(),
            begun: 0,
            inserted: 0,
            sealed: None,
            surroundings: Surroundings {
                peer,
                announced: false,
                channel: Key { index: 0, generation: 0 },
                outlet: None,
            },
            input_ended: false,
            output_ended: false,
            added: false,
            failed: false,
            in_place: false,
            untouched: 0,
            woken: false,
            handshaking: false,
            reads_for_itself: false,
            handshake_timeout,
            deadline: None,
            establish: None,
            held: None,
        }
    }

    /// Connects the filters to their channel, for wakers.
    pub(crate) fn attach(&mut self, channel: Key, outlet: &Arc<dyn MailSender>) {
        self.surroundings.channel = channel;
        self.surroundings.outlet = Some(outlet.clone());
    }

    pub(crate) fn into_peer(self) -> Peer {
        self.surroundings.peer
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.surroundings.peer
    }

    /// Returns whether a filter has replaced the addresses of the peer.
    pub(crate) fn has_announced(&self) -> bool {
        self.surroundings.announced
    }

    /// Adds a filter above the others. It starts with the next call of [`Filters::begin`].
    pub(crate) fn add(&mut self, filter: Box<dyn Filter>) {
        self.layers.push(Layer::new(filter));
        self.added = true;
    }

    /// Returns whether an added filter waits for the end of the turn.
    pub(crate) fn has_added(&self) -> bool {
        self.added
    }

    /// Returns whether a filter was added since the last call.
    pub(crate) fn take_added(&mut self) -> bool {
        std::mem::take(&mut self.added)
    }

    /// Records a failure: nothing is opened or sealed any more.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Starts the first filter, and each further one as soon as the filter below it is
    /// established.
    #[inline]
    pub(crate) fn begin(&mut self, lent: &mut Lent<'_>) -> Result {
        // A filter that a callback has added starts at the end of the turn.
        if self.begun == self.layers.len() - usize::from(self.added) {
            return Ok(());
        }
        self.begin_next(lent)
    }

    fn begin_next(&mut self, lent: &mut Lent<'_>) -> Result {
        while self.begun < self.layers.len() - usize::from(self.added)
            && (self.begun == 0 || self.layers[self.begun - 1].state.is_established())
        {
            self.begun += 1;
            let at = self.begun - 1;
            self.call(at, None, lent, |filter, ctx| filter.start(ctx))?;
            if self.layers.get(at).is_some_and(|layer| layer.state == FilterState::Finished) {
                self.remove(at);
            }
        }
        Ok(())
    }

    /// Removes a filter that has finished. Returns the input that was kept for it.
    fn remove(&mut self, at: usize) -> Vec<u8> {
        self.begun -= 1;
        self.layers.remove(at).kept
    }

    /// Returns whether plaintext may pass.
    pub(crate) fn is_established(&self) -> bool {
        self.begun == self.layers.len() && self.layers.iter().all(|layer| layer.state.is_established())
    }

    /// Returns whether all filters have finished and nothing is left to send, so that the channel
    /// can go on without them.
    pub(crate) fn are_gone(&self) -> bool {
        self.layers.is_empty() && self.sealed.is_none()
    }

    /// Returns whether a filter waits for its waker.
    pub(crate) fn wait(&self) -> bool {
        self.layers[..self.begun].iter().any(|layer| layer.state == FilterState::Waiting)
    }

    /// Records that a waker was used.
    pub(crate) fn wake(&mut self) {
        self.woken = true;
    }

    /// Returns whether a waker was used since the last call.
    pub(crate) fn take_woken(&mut self) -> bool {
        std::mem::take(&mut self.woken)
    }

    /// Calls a method of a filter, passes its output down, and adds a filter that it has inserted.
    /// Plaintext goes to `above`, or nowhere.
    fn call<T>(
        &mut self,
        at: usize,
        plain: Option<&mut dyn Collect>,
        lent: &mut Lent<'_>,
        f: impl FnOnce(&mut dyn Filter, &mut FilterContext<'_>) -> Result<T>,
    ) -> Result<T> {
        // Most calls send nothing, so none borrows a buffer of the loop for its output.
        let mut own = Vec::new();
        let output = match &mut self.sealed {
            Some(sealed) if at == 0 => &mut sealed.wire,
            _ => &mut own,
        };
        let plain: Option<&mut dyn Collect> = match plain {
            // Shortens the lifetime of the trait object.
            Some(plain) => Some(plain),
            None => None,
        };
        let mut ctx = FilterContext {
            plain,
            output,
            surroundings: &mut self.surroundings,
            inserted: None,
            now: lent.now,
        };
        let layer = &mut self.layers[at];
        let result = f(&mut *layer.filter, &mut ctx);
        layer.state = layer.filter.state();
        let inserted = ctx.inserted;
        if let Some(sealed) = &mut self.sealed
            && at == 0
        {
            sealed.record(0);
        }
        let sent = self.send_below(at, &own, 0, lent);
        self.return_sealed_if_empty(lent);
        // The filter's own error comes first.
        let result = result.and_then(|value| sent.map(|()| value));
        if let Some(filter) = inserted {
            self.inserted += 1;
            if self.inserted > MAX_INSERTED {
                return Err(Error::Full { resource: Resource::Filters, limit: MAX_INSERTED });
            }
            self.layers.insert(at + 1, Layer::new(filter));
        }
        result
    }

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

    /// Calls the filters that were woken, with the input that was kept for them.
    pub(crate) fn resume(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
        let result = self.resume_all(opened, lent).and_then(|()| self.check(lent));
        self.failed |= result.is_err();
        result
    }

    fn resume_all(&mut self, opened: &mut Opened<'_>, lent: &mut Lent<'_>) -> Result {
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

    /// Gives back what [`Filters::take_kept_below`] has returned, with `read` new bytes, after it was
    /// passed to [`Filters::open`].
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

    /// Seals pending plaintext, as far as the limit allows.
    pub(crate) fn seal(&mut self, out: &OutboundBuffer, lent: &mut Lent<'_>) -> Result {
        if !self.is_established() || self.failed {
            return Ok(());
        }
        loop {
            let from = self.sealed_plain();
            let plain = self.plain_that_fits().min(out.len() - from);
            if plain == 0 {
                return Ok(());
            }
            self.seal_piece(out, from, plain, lent)?;
        }
    }

    /// Seals all pending plaintext, before another filter is added. The limits of outbound bytes
    /// bound it.
    pub(crate) fn seal_all(&mut self, out: &OutboundBuffer, lent: &mut Lent<'_>) -> Result {
        while self.sealed_plain() < out.len() {
            let from = self.sealed_plain();
            let plain = PIECE.min(out.len() - from);
            self.seal_piece(out, from, plain, lent)?;
        }
        Ok(())
    }

    /// Seals `plain` bytes after the first `from` ones.
    fn seal_piece(&mut self, out: &OutboundBuffer, from: usize, plain: usize, lent: &mut Lent<'_>) -> Result {
        let below = self.layers.len();
        if let Some(piece) = out.contiguous(from, plain) {
            return self.send_below(below, piece, plain, lent);
        }
        let mut piece = std::mem::take(&mut lent.buffers.piece);
        piece.clear();
        out.copy_to(from, plain, &mut piece);
        let result = self.send_below(below, &piece, plain, lent);
        lent.buffers.piece = piece;
        result
    }

    /// Returns how much plaintext may be sealed at once now.
    fn plain_that_fits(&self) -> usize {
        let room = self.sealed.as_ref().map_or(SEALED_AHEAD, |sealed| sealed.room());
        let sealed_len = |plain| self.layers.iter().rev().fold(plain, |n, layer| layer.filter.sealed_len(n));
        let mut plain = PIECE.min(room);
        while plain > 0 && sealed_len(plain) > room {
            plain /= 2;
        }
        plain
    }

    /// Passes bytes from the filter at `from` down to the wire.
    fn send_below(&mut self, from: usize, bytes: &[u8], plain: usize, lent: &mut Lent<'_>) -> Result {
        if bytes.is_empty() {
            return Ok(());
        }
        let Filters { layers, sealed, surroundings, .. } = self;
        let sealed = sealed.get_or_insert_with(|| lent.buffers.lease_sealed());
        let mut bytes = std::borrow::Cow::Borrowed(bytes);
        for (at, layer) in layers[..from].iter_mut().enumerate().rev() {
            let mut own = Vec::new();
            let output = if at == 0 { &mut sealed.wire } else { &mut own };
            let mut ctx = FilterContext { plain: None, output, surroundings, inserted: None, now: lent.now };
            layer.filter.write(&mut ctx, &bytes)?;
            layer.state = layer.filter.state();
            bytes = own.into();
        }
        if from == 0 {
            sealed.wire.extend_from_slice(&bytes);
        }
        sealed.record(plain);
        Ok(())
    }

    /// Ends the output of all filters, from the top, once.
    pub(crate) fn end_output(&mut self, lent: &mut Lent<'_>) -> Result {
        if self.output_ended || self.failed {
            return Ok(());
        }
        self.output_ended = true;
        for at in (0..self.begun).rev() {
            self.call(at, None, lent, |filter, ctx| filter.end_output(ctx))?;
        }
        Ok(())
    }

    /// Returns the bytes that wait for the transport.
    pub(crate) fn sealed_wire(&self) -> &[u8] {
        self.sealed.as_ref().map_or(&[], |sealed| sealed.pending())
    }

    /// Returns the plaintext bytes in them.
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

    fn return_sealed_if_empty(&mut self, lent: &mut Lent<'_>) {
        if let Some(sealed) = self.sealed.take_if(|sealed| sealed.is_empty()) {
            lent.buffers.return_sealed(sealed);
        }
    }
}

impl fmt::Debug for Filters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filters")
            .field("filters", &self.layers.len())
            .field("begun", &self.begun)
            .finish_non_exhaustive()
    }
}
