//! The last look at a channel's socket before the channel is found idle or late.
//!
//! Always holds: a channel is not reported as reader-idle, and no limit on input is reached, while
//! unread bytes wait in its socket. This happens when timers run before the socket is read: after a
//! signal has interrupted the poll, or when a callback of this turn took longer than the timeout.
//! The look is one system call, made only when something is about to be reported. Runs on the
//! loop's thread.

use super::{channel_slot::ChannelSlot, io::Io};
use crate::{
    channel::{Direction, Flags, WheelToken},
    metrics::Metrics,
};
use std::io::ErrorKind;

impl ChannelSlot {
    /// An entry of the channel on the wheel has expired: a timeout of its handler, or its watch.
    pub(super) fn handle_wheel_token(&mut self, io: &mut Io, metrics: &Metrics, slot: u32) {
        if slot == WheelToken::WATCH && self.core.state.watch_expired(&io.services) {
            self.look(io, metrics);
        }
        self.core.handle_wheel_token(&mut io.services, slot);
        self.settle(io, metrics);
    }

    /// Reads the socket if it has unread input. If the channel may not be read now, that input
    /// still counts as activity.
    #[cold]
    fn look(&mut self, io: &mut Io, metrics: &Metrics) {
        let state = &self.core.state;
        let Some(stream) = self.stream.as_ref().filter(|_| !state.has(Flags::INPUT_ENDED)) else { return };
        let peeked = loop {
            match stream.peek() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let may_read = state.may_read() && !state.is_held_up(Direction::Read);
        match peeked {
            Err(e) if e.kind() == ErrorKind::WouldBlock => {}
            // One that is listed had its share of reads already, and has the next in the next turn.
            _ if may_read && !state.has(Flags::LISTED_TO_READ) => self.read(io, metrics),
            // The end of a stream is not activity, and it is not read while reading is off.
            Ok(0) | Err(_) if !may_read => {}
            _ => self.core.state.note_unread(io.services.now),
        }
    }
}
