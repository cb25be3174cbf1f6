//! Closing a socket that is to wait for its peer.
//!
//! Always holds: the loop never closes such a socket, since `close` blocks for as long as `SO_LINGER` says, also on a
//! non-blocking one (socket(7)); a worker does. The option is set there, just before, so that whoever drops the socket
//! elsewhere does not wait. What counts the connection goes with the socket, behind it.

use super::load::Assignment;
use crate::{
    channel::LoopServices,
    id::ChannelId,
    log_throttle::{UNSENT, log_throttled, off_loop},
    transport::Stream,
    worker_pool::Work,
};
use log::Level;
use std::time::Duration;

/// A socket that has left the poll, and what counts it, which is dropped after it.
pub(super) struct Leaving {
    pub(super) stream: Stream,
    #[expect(dead_code, reason = "it is there to be dropped behind the stream")]
    pub(super) counted: Option<Assignment>,
}

impl Leaving {
    /// Closes the socket: here, or on a worker if it is to wait.
    pub(super) fn close(self, linger: Option<Duration>, id: ChannelId, services: &LoopServices) {
        let Some(time) = linger.filter(|time| !time.is_zero()) else { return };
        if let Err(refused) = services.workers.submit(Lingering { leaving: self, time }) {
            // Dropped here and now, without the option.
            let reason = refused.reason;
            log_throttled!(
                services,
                UNSENT,
                Level::Debug,
                "channel {id}: its socket is closed without lingering: {reason}"
            );
        }
    }
}

struct Lingering {
    leaving: Leaving,
    time: Duration,
}

impl Work for Lingering {
    fn is_wanted(&self) -> bool {
        true
    }

    fn run(self: Box<Self>) -> bool {
        if let Err(e) = self.leaving.stream.linger(self.time) {
            log_throttled!(off_loop(), UNSENT, Level::Debug, "a socket is closed without lingering: {e}");
        }
        false
    }
}
