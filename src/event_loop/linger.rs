//! What becomes of a socket when its channel has ended.
//!
//! Always holds: the loop never closes a socket that is to wait for its peer by `SO_LINGER`, since `close` blocks for as
//! long as that says, also on a non-blocking one (socket(7)); a worker does. The option is set there, just before, so that
//! whoever drops the socket elsewhere does not wait. What counts the connection goes with the socket, behind it.

use super::{lingering::LingeringSocket, load::Assignment};
use crate::{channel::LoopServices, id::Key, transport::Stream, worker_pool::Work};
use std::time::Duration;

/// A channel that is closed and whose handler has still to be called and dropped.
pub(crate) struct Ended {
    pub(super) key: Key,
    pub(super) socket: Leaving,
}

/// What is left of its socket.
#[expect(clippy::large_enum_variant, reason = "a box would be one more allocation for each close")]
pub(super) enum Leaving {
    /// Nothing.
    Closed,
    /// It stays in the poll until the peer ends the connection.
    Lingers(LingeringSocket),
    /// It has left the poll, and a worker closes it, which takes so long at most.
    Blocks(Stream, Duration),
}

impl Ended {
    /// A channel whose socket is closed.
    pub(crate) fn closed(key: Key) -> Self {
        Ended { key, socket: Leaving::Closed }
    }
}

/// Has a worker close the socket.
pub(super) fn close_on_worker(
    stream: Stream,
    time: Duration,
    counted: Option<Assignment>,
    services: &LoopServices,
) {
    if let Err(refused) = services.workers.submit(Closing { stream, _counted: counted, time }) {
        // Dropped here and now, without the option.
        log::debug!("a socket is closed without lingering: {}", refused.reason);
    }
}

struct Closing {
    stream: Stream,
    /// Dropped behind the stream.
    _counted: Option<Assignment>,
    time: Duration,
}

impl Work for Closing {
    fn is_wanted(&self) -> bool {
        true
    }

    fn run(self: Box<Self>) -> bool {
        if let Err(e) = self.stream.linger(self.time) {
            log::debug!("a socket is closed without lingering: {e}");
        }
        false
    }
}
