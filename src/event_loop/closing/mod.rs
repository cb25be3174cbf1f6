//! The sockets of closed channels.
//!
//! When the driver asks for the close of a channel, `sources::channel` takes the socket out of the
//! poll and closes it. The core ends then: the channel leaves its groups, `Channel::closed`
//! completes, unsent writes fail, and timers and tasks are dropped. At the end of the turn
//! `turn::flush_phase` calls `inactive`, drops the handler and releases the connection's
//! [`Assignment`]. docs/endings.md has the order of events for each way in which a channel ends.
//!
//! A socket with `SO_LINGER` above zero is closed by a worker, because `close` then blocks for up
//! to that time, even on a non-blocking socket (socket(7)). The worker sets the option just before,
//! so dropping the socket elsewhere does not block. After a graceful close without that option the
//! socket lingers in the poll (`event_loop::lingering_source`).
//!
//! Invariants: the loop never closes a socket for which `SO_LINGER` is set to a time above zero.
//! The connection's [`Assignment`] is dropped after the socket.

mod lingering;

pub(crate) use lingering::DEFAULT_MAX_LINGERING;
pub(super) use lingering::LingeringSocket;

use super::load::Assignment;
use crate::{
    channel::LoopServices,
    id::Key,
    log_throttle::{UNSENT, log_throttled, off_loop},
    transport::Stream,
    worker_pool::Work,
};
use log::Level;
use std::time::Duration;

/// A closed channel. Its handler has not been dropped yet.
pub(crate) struct ClosedChannel {
    pub(super) key: Key,
    pub(super) socket: SocketAfterClose,
}

/// The socket of a closed channel.
pub(super) enum SocketAfterClose {
    /// The socket is closed.
    Closed,
    /// The socket stays in the poll until the peer ends the connection.
    Lingering(LingeringSocket),
    /// The socket has left the poll. A worker will close it, which may block for the given time.
    ClosedByWorker(Stream, Duration),
}

impl ClosedChannel {
    /// Creates the record of a channel whose socket is closed.
    pub(crate) fn closed(key: Key) -> Self {
        ClosedChannel { key, socket: SocketAfterClose::Closed }
    }
}

/// Passes the socket to a worker, which closes it.
pub(super) fn close_on_worker(
    stream: Stream,
    time: Duration,
    counted: Option<Assignment>,
    services: &LoopServices,
) {
    if let Err(refused) = services.workers.submit(Closing { stream, _counted: counted, time }) {
        // The socket has been dropped here, without the option.
        let reason = refused.error();
        log_throttled!(services, UNSENT, Level::Debug, "a socket is closed without lingering: {reason:#}");
    }
}

struct Closing {
    stream: Stream,
    /// Dropped after the stream.
    _counted: Option<Assignment>,
    time: Duration,
}

impl Work for Closing {
    fn is_wanted(&self) -> bool {
        true
    }

    fn run(self: Box<Self>) -> bool {
        if let Err(e) = self.stream.linger(self.time) {
            log_throttled!(off_loop(), UNSENT, Level::Debug, "a socket is closed without lingering: {e:#}");
        }
        false
    }
}
