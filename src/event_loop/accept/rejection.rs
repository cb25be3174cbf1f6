//! Connections that the gate of a server or its loops do not admit.
//!
//! Invariants: a rejected connection is closed immediately and never gets a pipeline. A panic in
//! the program's callbacks is logged and does not end the listener. Runs on the loop's thread.

use super::ListenerSource;
use crate::{
    admission::{MAX_FAREWELL, RejectReason, Rejection},
    channel::driver::Transport,
    error::caught,
    event_loop::{io::Io, source::LoopContext},
    log_throttle::{DENIED, LogTopic, OVERLOADED, TURNED_AWAY, TURNING_AWAY, log_throttled},
    metrics::Metrics,
    transport::Stream,
};
use log::Level;
use std::time::Duration;

impl ListenerSource {
    /// Counts a connection that was not admitted, closes it, and then notifies the program.
    pub(super) fn turn_away(&self, ctx: &mut LoopContext<'_>, stream: Stream, rejection: &Rejection) {
        let (topic, level) = count_rejection(ctx.metrics, rejection.reason);
        // The farewell is code of the program. A panic in it must not end the listener.
        let mut farewell = None;
        let panicked = caught(|| farewell = self.gate.settings().farewell_to(rejection));
        let too_long = farewell.as_ref().is_some_and(|bytes| bytes.len() > MAX_FAREWELL);
        if let Some(bytes) = farewell.filter(|_| !too_long) {
            send_farewell(stream, &bytes, ctx.io);
        } else {
            if matches!(rejection.reason, RejectReason::Overloaded(_)) && stream.can_linger() {
                // The peer must not take the end for an empty response, and the kernel keeps no
                // state of the connection. Without the option, the connection just ends.
                let _ = stream.linger(Duration::ZERO);
            }
            drop(stream);
        }
        let panicked = caught(|| self.gate.settings().notify(rejection)).or(panicked);
        let (name, address) = (ctx.loop_name, &self.address);
        log_throttled!(ctx.io.services, topic, level, "{name}: on {address}: {rejection}");
        let failed = match panicked {
            Some(message) => format!("the farewell or the rejection callback panicked: {message}"),
            None if too_long => format!("the farewell is longer than {MAX_FAREWELL} bytes and was not sent"),
            None => return,
        };
        log_throttled!(ctx.io.services, TURNING_AWAY, Level::Error, "{name}: on {address}: {failed}");
    }
}

/// Counts a rejection. Returns the topic and the level of its log line.
pub(in crate::event_loop) fn count_rejection(metrics: &Metrics, reason: RejectReason) -> (LogTopic, Level) {
    let (counter, topic, level) = match reason {
        RejectReason::Denied(_) => (Some(&metrics.rejected_filter), DENIED, Level::Info),
        // The limits have counted it.
        RejectReason::Overloaded(_) => (None, OVERLOADED, Level::Warn),
        _ => (Some(&metrics.rejected_limit), TURNED_AWAY, Level::Warn),
    };
    if let Some(counter) = counter {
        counter.add(1);
    }
    (topic, level)
}

/// Sends the part of a rejected connection's farewell that the kernel accepts without blocking, and
/// closes the connection.
fn send_farewell(mut stream: Stream, bytes: &[u8], io: &mut Io) {
    // Unsent bytes are lost. The loop does not wait for a rejected peer.
    let _ = stream.write(bytes);
    let _ = stream.shutdown_write();
    // Unread bytes would make the kernel send a reset, which could overtake the farewell.
    let _ = io.drain(&mut stream, false);
}
