//! The last look at a channel's socket before the channel is found idle or late.
//!
//! Always holds: a channel is not reported as reader-idle, and no limit on input is reached, while
//! unread bytes wait in its socket. This happens when timers run before the socket is read: after a
//! signal has interrupted the poll, or when a callback of this turn took longer than the timeout.
//! The look is one system call, made only when something is about to be reported. Runs on the
//! loop's thread.

use super::{io::Io, sources::ChannelSlot};
use crate::{
    channel::{ChannelTimer, Direction, Readiness},
    metrics::Metrics,
};
use std::io::ErrorKind;

impl ChannelSlot {
    /// A timer of the channel has expired.
    pub(super) fn handle_timer(&mut self, io: &mut Io, metrics: &Metrics, timer: ChannelTimer) {
        if timer == ChannelTimer::Watch && self.core.state.watch_expired(&io.services) {
            self.look(io, metrics);
        }
        self.core.handle_timer(&mut io.services, timer);
        self.settle(io, metrics);
    }

    /// Reads the socket if it has unread input. If the channel may not be read now, that input
    /// still counts as activity.
    #[cold]
    fn look(&mut self, io: &mut Io, metrics: &Metrics) {
        let state = &self.core.state;
        let Some(stream) = self.stream.as_ref().filter(|_| !state.status.input_ended()) else { return };
        let peeked = loop {
            match stream.peek() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let may_read = state.status.may_read() && !state.is_held_up(Direction::Read);
        match peeked {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            // One that is listed had its share of reads already, and has the next in the next turn.
            _ if may_read && !state.status.has(Readiness::CARRIED_OVER) => self.read(io, metrics),
            // The end of a stream is not activity, and it is not read while reading is off.
            Ok(0) | Err(_) if !may_read => {}
            _ => self.core.state.note_unread(io.services.now),
        }
    }
}
