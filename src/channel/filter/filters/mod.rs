//! The filters of a channel, in order.
//!
//! Invariants: a filter starts when the one below it is established. Input that a filter has not
//! consumed is kept here, for each filter. Runs on the channel's loop.

mod input;
mod output;
mod single;

use super::{
    FilterContext,
    buffers::FilterBuffers,
    filter_state::FilterState,
    filter_trait::{Filter, Surroundings},
    opened::Collect,
    sealed::SealedOutput,
};
use crate::{
    channel::{handle::MailSender, peer::Peer},
    error::{Error, Resource, Result},
    id::Key,
    timer::QueueKey,
};
use std::{fmt, sync::Arc};

/// The largest number of plaintext bytes that are sealed in one piece.
const PIECE: usize = 16 * 1024;

/// The limit of unconsumed bytes that are kept for a filter until it is established. A TLS message
/// of 64 KiB fits, with its record headers. Afterwards the limit is `max_inbound`, but not less
/// than this: the length of a record is no property of the program's messages.
pub(crate) const MAX_KEPT: usize = 80 * 1024;

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
    /// Input that the last filter has left behind when it finished in its start.
    left_over: Vec<u8>,
    wire_ended: bool,
    output: Output,
    /// A filter was added to an active channel and has not been started.
    added: bool,
    failed: bool,
    /// A call that is due without new input.
    due: Option<Resume>,
    /// Whether overload control was asked about the handshake.
    pub(in crate::channel) was_admitted: bool,
    /// The timer of `handshake_timeout`, until all filters are established.
    pub(in crate::channel) deadline: Option<QueueKey>,
}

struct Layer {
    filter: Box<dyn Filter>,
    /// The filter's state after the last call.
    state: FilterState,
    /// Input that the filter has not consumed.
    kept: Vec<u8>,
    /// The filter has ended its stream, or was called with the end of the stream below.
    ended: bool,
}

/// Why filters are called without new input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Resume {
    /// The announced address was admitted: the filters above start, with the input that was kept
    /// for them. Filters that wait are not called.
    Admitted,
    /// A waker was used.
    Woken,
}

/// The output of the filters, as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Output {
    Open,
    /// The filters append the marks of their ends.
    Ending,
    /// Nothing may follow the marks. A filter that still replies has no peer for it.
    Ended,
}

impl Layer {
    fn new(filter: Box<dyn Filter>) -> Self {
        Layer { state: filter.state(), filter, kept: Vec::new(), ended: false }
    }
}

/// What a call into the filters borrows from the loop.
pub(crate) struct Lent<'a> {
    pub(crate) buffers: &'a mut FilterBuffers,
    pub(crate) now: u64,
}

impl Filters {
    /// Creates the filters of a connection with this peer.
    pub(crate) fn new(filters: Vec<Box<dyn Filter>>, peer: Peer) -> Self {
        Filters {
            layers: filters.into_iter().map(Layer::new).collect(),
            begun: 0,
            inserted: 0,
            sealed: None,
            surroundings: Surroundings {
                peer,
                announced: false,
                channel: Key { index: 0, generation: 0 },
                sender: None,
            },
            left_over: Vec::new(),
            wire_ended: false,
            output: Output::Open,
            added: false,
            failed: false,
            due: None,
            was_admitted: false,
            deadline: None,
        }
    }

    /// Connects the filters to their channel, for wakers.
    pub(crate) fn attach(&mut self, channel: Key, sender: &Arc<dyn MailSender>) {
        self.surroundings.channel = channel;
        self.surroundings.sender = Some(sender.clone());
    }

    pub(crate) fn into_peer(self) -> Peer {
        self.surroundings.peer
    }

    pub(crate) fn peer(&self) -> &Peer {
        &self.surroundings.peer
    }

    /// Returns whether a filter has replaced the addresses of the peer since the last call.
    pub(crate) fn take_announcement(&mut self) -> bool {
        std::mem::take(&mut self.surroundings.announced)
    }

    /// Returns whether a filter has replaced the addresses of the peer since they were taken.
    #[inline]
    pub(crate) fn has_announcement(&self) -> bool {
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

    /// Lets the added filter start.
    pub(crate) fn take_added(&mut self) {
        self.added = false;
    }

    /// Records a failure: nothing is opened or sealed any more.
    pub(crate) fn fail(&mut self) {
        self.failed = true;
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.failed
    }

    /// Starts the first filter, and each further one as soon as the filter below it is
    /// established. None starts while an announced address waits for its admission, so a rejected
    /// peer receives nothing of the filters above.
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
            && !self.surroundings.announced
            && (self.begun == 0 || self.layers[self.begun - 1].state.is_established())
        {
            self.start(self.begun, lent)?;
        }
        Ok(())
    }

    /// Starts the filter at `at`. Those below have started.
    fn start(&mut self, at: usize, lent: &mut Lent<'_>) -> Result {
        self.begun += 1;
        self.call(at, None, lent, |filter, ctx| filter.start(ctx))?;
        if self.layers.get(at).is_some_and(|layer| layer.state == FilterState::Finished) {
            self.remove(at);
        }
        Ok(())
    }

    /// Removes a filter that has finished, at any position. Input that was kept for it is appended
    /// to the input of the filter above, or of the codec.
    fn remove(&mut self, at: usize) {
        self.begun -= 1;
        let rest = self.layers.remove(at).kept;
        let next = self.layers.get_mut(at).map_or(&mut self.left_over, |next| &mut next.kept);
        if next.is_empty() {
            *next = rest;
        } else {
            next.extend_from_slice(&rest);
        }
    }

    /// Returns whether plaintext may pass.
    #[inline]
    pub(crate) fn is_established(&self) -> bool {
        self.begun == self.layers.len() && self.layers.iter().all(|layer| layer.state.is_established())
    }

    /// Returns whether all filters have finished and nothing is left to send, so that the channel
    /// can go on without them.
    #[inline]
    pub(crate) fn are_gone(&self) -> bool {
        self.layers.is_empty() && self.sealed.is_none() && self.left_over.is_empty()
    }

    /// Returns whether a filter waits for its waker.
    pub(crate) fn is_waiting(&self) -> bool {
        self.layers[..self.begun].iter().any(|layer| layer.state == FilterState::Waiting)
    }

    /// Returns whether a filter was refused because too many have been inserted. The plaintext of
    /// the call that inserted it was meant for that filter, so nobody else may read it.
    fn has_refused_one(&self) -> bool {
        self.inserted > MAX_INSERTED
    }

    /// Requests a call without new input.
    pub(crate) fn request(&mut self, resume: Resume) {
        self.due = self.due.max(Some(resume));
    }

    /// Returns whether a call without new input was requested.
    pub(crate) fn is_due(&self) -> bool {
        self.due.is_some()
    }

    /// Takes the requested call.
    pub(crate) fn take_due(&mut self) -> Option<Resume> {
        self.due.take()
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
        // Shortens the lifetime of the trait object.
        let plain = plain.map(|plain| plain as &mut dyn Collect);
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
        // The usual call sends nothing.
        if own.is_empty() && self.sealed.is_none() && inserted.is_none() {
            return result;
        }
        let sent = if self.output == Output::Ended {
            // A reply of this call is dropped: the end was sent.
            self.sealed.iter_mut().filter(|_| at == 0).for_each(|sealed| sealed.forget());
            Ok(())
        } else {
            self.sealed.iter_mut().filter(|_| at == 0).for_each(|sealed| sealed.record(0));
            self.send_below(at, &own, 0, lent)
        };
        self.return_sealed_if_empty(lent);
        // The filter's own error comes first.
        let result = result.and_then(|value| sent.map(|()| value));
        if let Some(filter) = inserted {
            self.inserted += 1;
            if self.has_refused_one() {
                return Err(Error::Full { resource: Resource::Filters, limit: MAX_INSERTED });
            }
            self.layers.insert(at + 1, Layer::new(filter));
            if at + 1 < self.begun {
                // The filters above have started, so `begin` would take it for started, too.
                let started = self.start(at + 1, lent);
                return result.and_then(|value| started.map(|()| value));
            }
        }
        result
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
