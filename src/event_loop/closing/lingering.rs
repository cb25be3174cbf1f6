//! Sockets that outlive their channel until the peer has read everything.
//!
//! A kernel that receives data for a closed socket answers with a reset, and a reset discards bytes
//! that the peer has not read yet. So after a graceful close only the write half is shut down. The
//! socket stays in the poll, and its input is read and discarded until the peer ends the connection
//! or the channel's close timeout expires.
//!
//! Always holds: a lingering socket keeps the slot, key and registration of its channel, which is
//! gone; it counts as a connection until it is closed; a loop has a bounded number of them and
//! closes the oldest when there is one more; a turn reads a bounded amount from each. Runs on the
//! loop's thread.

use crate::{
    Error,
    channel::{Due, Flags, driver::Ready},
    event_loop::{
        io::Io,
        load::Assignment,
        sources::{ChannelSlot, Slot},
        turn::Turn,
    },
    id::Key,
    log_throttle::{BROKEN, log_throttled},
    timer::QueueKey,
    transport::Stream,
};
use log::Level;
use std::{
    collections::BTreeMap,
    io::{self, ErrorKind},
};

/// Default number of sockets of one loop that may linger.
pub(crate) const DEFAULT_MAX_LINGERING: usize = 1024;

/// Reads in one turn from a socket whose input is discarded.
const DISCARDED_READS: usize = 4;

/// A socket without a channel, which waits for its peer to end the connection.
pub(crate) struct LingeringSocket {
    pub(in crate::event_loop) stream: Stream,
    /// Dropped behind the stream: the connection counts until the socket is closed. `None` until
    /// the handler is dropped.
    assignment: Option<Assignment>,
    /// The close timeout.
    deadline: QueueKey,
    /// The key of this socket in [`Lingering::places`].
    place: u64,
    /// Whether to read until the kernel has nothing left, because no further event may come.
    to_the_end: bool,
    /// Whether it is in the loop's list of sources to be read without an event.
    listed: bool,
}

impl LingeringSocket {
    /// Records what `ready` says. Returns whether there is input to discard and no turn for that yet.
    fn is_to_be_drained(&mut self, ready: Ready) -> bool {
        let hang_up = ready.is_hang_up();
        self.to_the_end |= hang_up || ready.is_priority();
        (ready.is_readable() || hang_up) && !self.listed
    }
}

/// The lingering sockets of a loop.
pub(crate) struct Lingering {
    limit: usize,
    /// Oldest first.
    places: BTreeMap<u64, Key>,
    began: u64,
}

/// The result of discarding input.
pub(in crate::event_loop) enum Drained {
    /// The socket is empty for now.
    Nothing,
    /// The bound of the turn is reached, and the socket may hold more.
    More,
    /// The peer has ended its stream.
    End,
    Failed(io::Error),
}

impl Lingering {
    /// A registry for at most `limit` sockets.
    pub(crate) fn new(limit: usize) -> Self {
        Lingering { limit, places: BTreeMap::new(), began: 0 }
    }

    pub(in crate::event_loop) fn len(&self) -> usize {
        self.places.len()
    }

    /// Closes later sockets at once instead of letting them linger.
    pub(in crate::event_loop) fn stop(&mut self) {
        self.limit = 0;
    }

    fn begin(&mut self, key: Key) -> u64 {
        self.began += 1;
        self.places.insert(self.began, key);
        self.began
    }

    /// Returns the oldest socket if the limit is exceeded.
    fn surplus(&self) -> Option<Key> {
        if self.places.len() > self.limit { self.places.first_key_value().map(|(_, key)| *key) } else { None }
    }
}

impl Io {
    /// Reads and discards input, within the bound of a turn. Unless `to_the_end` is set, a read
    /// that does not fill the buffer is the last one, because later bytes cause an event.
    pub(in crate::event_loop) fn drain(&mut self, stream: &mut Stream, to_the_end: bool) -> Drained {
        for _ in 0..self.reads_allowed(DISCARDED_READS) {
            match self.receive.read(&[], |room| stream.read(room)) {
                Ok(received) => {
                    let (read, full) = (received.read, received.full);
                    drop(received);
                    self.receive.give_back();
                    self.turn_bytes += read;
                    if read == 0 {
                        return Drained::End;
                    }
                    if !full && !to_the_end {
                        return Drained::Nothing;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Drained::Nothing,
                Err(e) => return Drained::Failed(e),
            }
        }
        Drained::More
    }
}

impl ChannelSlot {
    /// Discards the input of a channel that is closing and still has bytes to send. A peer that is
    /// blocked in its own write may never read them otherwise.
    pub(in crate::event_loop) fn discard_input(&mut self, io: &mut Io) {
        let state = &mut self.core.state;
        let Some(stream) = self.stream.as_mut().filter(|_| !state.has(Flags::CLOSE_NOW)) else { return };
        match io.drain(stream, state.has(Flags::HANG_UP.with(Flags::URGENT))) {
            Drained::Nothing => {}
            Drained::More => {
                state.set(Flags::MAYBE_READABLE.with(Flags::LISTED_TO_READ));
                io.list(state.key(), false);
            }
            Drained::End => state.set(Flags::INPUT_ENDED.with(Flags::HANG_UP)),
            Drained::Failed(e) => self.core.handle_io_error(&mut io.services, Error::io("reading", e)),
        }
    }

    /// Shuts down the write half of the socket, and returns the socket as one that lingers. Returns
    /// the stream, to be closed, if the peer has ended the connection already, or if settings of
    /// the channel (`may`) or the loop are against it.
    pub(in crate::event_loop) fn begin_lingering(
        &mut self,
        mut stream: Stream,
        io: &mut Io,
        may: bool,
    ) -> Result<LingeringSocket, Stream> {
        let state = &mut self.core.state;
        let may =
            may && io.lingering.limit > 0 && state.config.close_timeout > 0 && state.pending_bytes() == 0;
        let is_down = state.has(Flags::OUTPUT_ENDED) || stream.shutdown_write().is_ok();
        let to_the_end = state.has(Flags::HANG_UP.with(Flags::URGENT));
        let more = match io.drain(&mut stream, to_the_end) {
            Drained::Nothing => false,
            Drained::More => true,
            Drained::End | Drained::Failed(_) => return Err(stream),
        };
        if !may || !is_down {
            return Err(stream);
        }
        let key = state.key();
        // The timeout counts from the close request: a timer that is armed already goes on.
        let deadline = state.take_close_timer().unwrap_or_else(|| {
            let deadline = io.services.now.saturating_add(state.config.close_timeout);
            io.services.queue.insert(deadline, Due::Source(key))
        });
        let was_listed = state.has(Flags::LISTED_TO_READ);
        if more && !was_listed {
            io.list(key, false);
        }
        let (place, listed) = (io.lingering.begin(key), more || was_listed);
        Ok(LingeringSocket { stream, assignment: None, deadline, place, to_the_end, listed })
    }
}

impl Turn {
    /// Begins to linger after the channel's handler has been dropped; the socket takes over the
    /// assignment.
    pub(in crate::event_loop) fn linger(&mut self, key: Key, assignment: Option<Assignment>) {
        if let Some(Slot::Lingering(socket)) = self.sources.get(key) {
            socket.assignment = assignment;
        }
        while let Some(oldest) = self.io.lingering.surplus() {
            self.shared.metrics.lingering_cut.add(1);
            self.end_lingering(oldest);
        }
        self.shared.metrics.lingering.set(self.io.lingering.len() as u64);
    }

    pub(in crate::event_loop) fn handle_lingering(&mut self, key: Key, ready: Ready) {
        let Some(Slot::Lingering(socket)) = self.sources.get(key) else { return };
        if socket.is_to_be_drained(ready) {
            self.drain_lingering(key);
        }
    }

    /// Records an event that this turn has no time for.
    pub(in crate::event_loop) fn defer_lingering(&mut self, key: Key, ready: Ready) {
        let Turn { sources, io, .. } = self;
        let Some(Slot::Lingering(socket)) = sources.get(key) else { return };
        if socket.is_to_be_drained(ready) {
            socket.listed = true;
            io.list(key, false);
        }
    }

    /// Discards input, and closes the socket if the peer has ended the connection.
    pub(in crate::event_loop) fn drain_lingering(&mut self, key: Key) {
        let Turn { sources, io, .. } = self;
        let Some(Slot::Lingering(socket)) = sources.get(key) else { return };
        socket.listed = false;
        match io.drain(&mut socket.stream, socket.to_the_end) {
            Drained::Nothing => {}
            Drained::More => {
                socket.listed = true;
                io.list(key, true);
            }
            Drained::End | Drained::Failed(_) => self.end_lingering(key),
        }
    }

    pub(in crate::event_loop) fn end_lingering(&mut self, key: Key) {
        let Some(Slot::Lingering(_)) = self.sources.get(key) else { return };
        let Some(Slot::Lingering(mut socket)) = self.sources.remove(key) else { return };
        self.io.lingering.places.remove(&socket.place);
        self.shared.metrics.lingering.set(self.io.lingering.len() as u64);
        drop(self.io.services.cancel_timer(socket.deadline));
        if let Err(e) = self.io.selector.deregister(socket.stream.source()) {
            let name = &self.shared.name;
            let services = &self.io.services;
            log_throttled!(
                services,
                BROKEN,
                Level::Debug,
                "{name}: a lingering socket leaving the poll: {e}"
            );
        }
    }
}
