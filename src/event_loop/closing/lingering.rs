//! The lingering sockets of a loop: their number, and the order in which they began.
//!
//! Plain data. `event_loop::lingering_source` begins and ends them. A map by age finds the oldest
//! socket when there are too many.

use crate::{event_loop::load::Assignment, id::Key, timer::QueueKey, transport::Stream};
use std::collections::BTreeMap;

/// The default limit of lingering sockets per loop.
pub(crate) const DEFAULT_MAX_LINGERING: usize = 1024;

/// A socket without a channel that waits for its peer to end the connection.
pub(crate) struct LingeringSocket {
    pub(in crate::event_loop) stream: Stream,
    /// Dropped after the stream: the connection counts until the socket is closed. `None` until the
    /// handler is dropped.
    pub(in crate::event_loop) assignment: Option<Assignment>,
    /// The close timeout.
    pub(in crate::event_loop) deadline: QueueKey,
    /// The number of this socket in [`Lingering`].
    pub(in crate::event_loop) number: u64,
    /// Whether to read until the kernel's buffer is empty, because no further event may come.
    pub(in crate::event_loop) to_the_end: bool,
    /// Whether the socket is in the loop's list of sources to be read without an event.
    pub(in crate::event_loop) listed: bool,
}

/// The registry of the lingering sockets of a loop.
pub(crate) struct Lingering {
    limit: usize,
    /// The sockets by age, oldest first.
    sockets: BTreeMap<u64, Key>,
    began: u64,
}

impl Lingering {
    /// Creates a registry for at most `limit` sockets.
    pub(crate) fn new(limit: usize) -> Self {
        Lingering { limit, sockets: BTreeMap::new(), began: 0 }
    }

    pub(in crate::event_loop) fn len(&self) -> usize {
        self.sockets.len()
    }

    /// Returns whether any socket may linger.
    pub(in crate::event_loop) fn is_enabled(&self) -> bool {
        self.limit > 0
    }

    /// Makes later sockets close immediately instead of lingering.
    pub(in crate::event_loop) fn stop(&mut self) {
        self.limit = 0;
    }

    /// Registers a socket. Returns its number.
    pub(in crate::event_loop) fn begin(&mut self, key: Key) -> u64 {
        self.began += 1;
        self.sockets.insert(self.began, key);
        self.began
    }

    pub(in crate::event_loop) fn end(&mut self, number: u64) {
        self.sockets.remove(&number);
    }

    /// Returns the oldest socket if the limit is exceeded.
    pub(in crate::event_loop) fn surplus(&self) -> Option<Key> {
        if self.sockets.len() > self.limit {
            self.sockets.first_key_value().map(|(_, key)| *key)
        } else {
            None
        }
    }
}
