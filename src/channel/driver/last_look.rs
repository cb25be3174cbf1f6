//! The last check of a channel's transport before the channel is reported as idle or late.
//!
//! Timers may run before the transport is read: after a signal has interrupted the poll, when a
//! callback of this turn took longer than the timeout, or when the process was stopped. So the
//! driver peeks at the transport before an event is reported, and reads waiting bytes. If reading
//! is off, waiting bytes count as if they had just arrived. Stage timers are handled in the same
//! way, unless bytes arrived within the last tick of the wheel.
//!
//! Invariant: while unread bytes wait in the transport, a channel is not reported as reader-idle,
//! and no limit on input is enforced. The check is one system call. It is made only when an event
//! is about to be reported, and not for an entry that is only re-armed.
//!
//! A socket reports an error once, to a peek too, and then looks like one whose stream has ended.
//! So an error that the check finds is kept, and the next read returns it.

use super::{ChannelDriver, Next, loop_io::LoopIo, transport::Transport};
use crate::channel::{ChannelTimer, Readiness, shaping::Direction};
use std::io::ErrorKind;

impl<T: Transport> ChannelDriver<T> {
    /// Handles an expired entry of the channel on the wheel: a timeout of its handler, or its
    /// watch.
    pub(crate) fn handle_timer(&mut self, io: &mut LoopIo, timer: ChannelTimer) -> Next {
        if timer == ChannelTimer::Watch
            && self.core.state.watch_expired(&io.services)
            && self.check_input(io) == Next::Close
        {
            return Next::Close;
        }
        self.call(io, |core, services| core.handle_timer(services, timer))
    }

    /// Reads the transport if it has unread input. If the channel may not be read now, that input
    /// still counts as activity.
    #[cold]
    fn check_input(&mut self, io: &mut LoopIo) -> Next {
        let state = &self.core.state;
        let ended = state.status.input_ended() || state.extras.has_read_error();
        let Some(transport) = self.transport.as_ref().filter(|_| !ended) else { return Next::Stay };
        let peeked = loop {
            match transport.peek() {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let may_read = state.may_read() && !state.is_held_up(Direction::Read);
        let peeked = match peeked {
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Next::Stay,
            Err(e) => {
                self.core.state.extras.keep_read_error(e);
                self.core.state.status.set(Readiness::MAYBE_READABLE);
                None
            }
            Ok(bytes) => Some(bytes),
        };
        let state = &self.core.state;
        match peeked {
            // A carried-over channel has used its share of reads, and gets the next one in the next
            // turn.
            _ if may_read && !state.status.has(Readiness::CARRIED_OVER) => {
                return self.read_burst(io, true, true);
            }
            // The end of a stream is not activity, and it is not read while reading is off.
            Some(0) | None if !may_read => {}
            _ => self.core.state.inbound.note_unread(io.services.now),
        }
        Next::Stay
    }
}
