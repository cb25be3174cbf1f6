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

use super::{io::Io, load::Assignment, sources::Slot, turn::Turn};
use crate::{
    channel::{
        ChannelCore, ChannelTimer, Due, Readiness, TimerToken,
        driver::{Drained, Ready, Transport},
    },
    id::Key,
    log_throttle::{BROKEN, log_throttled},
    timer::QueueKey,
    transport::Stream,
};
use log::Level;
use std::collections::BTreeMap;

/// Default number of sockets of one loop that may linger.
pub(crate) const DEFAULT_MAX_LINGERING: usize = 1024;

/// A socket without a channel, which waits for its peer to end the connection.
pub(crate) struct LingeringSocket {
    pub(super) stream: Stream,
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

impl Lingering {
    /// A registry for at most `limit` sockets.
    pub(crate) fn new(limit: usize) -> Self {
        Lingering { limit, places: BTreeMap::new(), began: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Closes later sockets at once instead of letting them linger.
    pub(super) fn stop(&mut self) {
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

/// Shuts down the write half of the socket, and returns the socket as one that lingers. Returns
/// the stream, to be closed, if the peer has ended the connection already, or if settings of
/// the channel (`may`) or the loop are against it.
pub(super) fn begin_lingering(
    core: &mut ChannelCore,
    mut stream: Stream,
    io: &mut Io,
    may: bool,
) -> Result<LingeringSocket, Stream> {
    let to_the_end = core.drains_to_the_end();
    let state = &mut core.state;
    let may =
        may && io.lingering.limit > 0 && state.config.close_timeout_ns > 0 && state.pending_bytes() == 0;
    let is_down = state.status.output_has_ended() || stream.shutdown_write().is_ok();
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
        let deadline = io.services.now.saturating_add(state.config.close_timeout_ns);
        let token = TimerToken::new(key, ChannelTimer::CloseTimeout);
        io.services.queue.insert(deadline, Due::Channel(token))
    });
    let was_listed = state.status.has(Readiness::CARRIED_OVER);
    if more && !was_listed {
        io.carry_over(key, false);
    }
    let (place, listed) = (io.lingering.begin(key), more || was_listed);
    Ok(LingeringSocket { stream, assignment: None, deadline, place, to_the_end, listed })
}

impl Turn {
    /// Begins to linger after the channel's handler has been dropped; the socket takes over the
    /// assignment.
    pub(super) fn linger(&mut self, key: Key, assignment: Option<Assignment>) {
        if let Some(Slot::Lingering(socket)) = self.sources.get(key) {
            socket.assignment = assignment;
        }
        while let Some(oldest) = self.io.lingering.surplus() {
            self.shared.metrics.lingering_cut.add(1);
            self.end_lingering(oldest);
        }
        self.shared.metrics.lingering.set(self.io.lingering.len() as u64);
    }

    pub(super) fn handle_lingering(&mut self, key: Key, ready: Ready) {
        let Some(Slot::Lingering(socket)) = self.sources.get(key) else { return };
        if socket.is_to_be_drained(ready) {
            self.drain_lingering(key);
        }
    }

    /// Records an event that this turn has no time for.
    pub(super) fn defer_lingering(&mut self, key: Key, ready: Ready) {
        let Turn { sources, io, .. } = self;
        let Some(Slot::Lingering(socket)) = sources.get(key) else { return };
        if socket.is_to_be_drained(ready) {
            socket.listed = true;
            io.carry_over(key, false);
        }
    }

    /// Discards input, and closes the socket if the peer has ended the connection.
    pub(super) fn drain_lingering(&mut self, key: Key) {
        let Turn { sources, io, .. } = self;
        let Some(Slot::Lingering(socket)) = sources.get(key) else { return };
        socket.listed = false;
        match io.drain(&mut socket.stream, socket.to_the_end) {
            Drained::Nothing => {}
            Drained::More => {
                socket.listed = true;
                io.carry_over(key, true);
            }
            Drained::End | Drained::Failed(_) => self.end_lingering(key),
        }
    }

    pub(super) fn end_lingering(&mut self, key: Key) {
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
