//! Connections that the gate of a server or its loops do not admit.
//!
//! Invariants: a rejected connection is closed at once and has no pipeline. A panic in the program's
//! callbacks is logged and does not cost the listener. Runs on the loop's thread.

use super::ListenerSource;
use crate::{
    admission::{MAX_FAREWELL, RejectReason, Rejection},
    channel::driver::Transport,
    error::caught,
    event_loop::{io::Io, source::LoopContext},
    log_throttle::{DENIED, TURNED_AWAY, TURNING_AWAY, log_throttled},
    transport::Stream,
};
use log::Level;

impl ListenerSource {
    /// Closes a connection that was not admitted. Counts it first, and notifies the program afterwards.
    pub(super) fn turn_away(&self, ctx: &mut LoopContext<'_>, stream: Stream, rejection: &Rejection) {
        let (counter, topic, level) = match rejection.reason {
            RejectReason::Denied(_) => (&ctx.metrics.rejected_filter, DENIED, Level::Info),
            _ => (&ctx.metrics.rejected_limit, TURNED_AWAY, Level::Warn),
        };
        counter.add(1);
        // This is code of the program. A panic in it must not cost the listener.
        let mut farewell = None;
        let panicked = caught(|| farewell = self.gate.settings().farewell_to(rejection));
        let too_long = farewell.as_ref().is_some_and(|bytes| bytes.len() > MAX_FAREWELL);
        if let Some(bytes) = farewell.filter(|_| !too_long) {
            send_farewell(stream, &bytes, ctx.io);
        } else {
            drop(stream);
        }
        let panicked = caught(|| self.gate.settings().tell(rejection)).or(panicked);
        let (name, address) = (ctx.loop_name, &self.address);
        log_throttled!(ctx.io.services, topic, level, "{name}: on {address}: {rejection}");
        let failed = match panicked {
            Some(message) => format!("being told of that panicked: {message}"),
            None if too_long => format!("a farewell of more than {MAX_FAREWELL} bytes is not sent"),
            None => return,
        };
        log_throttled!(ctx.io.services, TURNING_AWAY, Level::Error, "{name}: on {address}: {failed}");
    }
}

/// Sends the farewell of a rejected connection, as far as the kernel takes it at once, and closes it.
fn send_farewell(mut stream: Stream, bytes: &[u8], io: &mut Io) {
    // The rest is lost. The loop does not wait for a rejected peer.
    let _ = stream.write(bytes);
    let _ = stream.shutdown_write();
    // Unread bytes would make the kernel send a reset, which could overtake the farewell.
    let _ = io.drain(&mut stream, false);
}
