//! The driver of a channel: moves bytes between a transport and a channel core.
//!
//! The same driver runs over sockets and over the in-memory transport of the test kit. Its owner
//! keeps what only a loop has: readiness, fairness between sources, registration, and closing.
//!
//! # A ready channel
//! If the transport had blocked a write and takes more now, one write is tried first. `reading`
//! then reads a burst and tries to send the answer with one write. Everything else is flushed at
//! the end of the turn.
//!
//! # What the owner does
//! - It calls [`ChannelDriver::activate`] once the transport is connected.
//! - It passes readiness to [`ChannelDriver::handle_ready`], or to [`ChannelDriver::defer`] if the
//!   turn has no time left, and calls [`ChannelDriver::read`] for each key in
//!   [`LoopIo::carried_over`].
//! - It makes every other call into the core through [`ChannelDriver::call`].
//! - It calls [`ChannelDriver::attend`] at the end of the turn for each key in
//!   `LoopServices::attention`.
//! - If any of these returns [`Next::Close`], it takes the transport out, then calls
//!   `handle_closed` and later `handle_inactive`.
//!
//! # What the driver and the core owe each other
//! 1. `handle_input` takes the bytes of a read, delivers messages, and calls the driver's flush
//!    between two of them where the handler asked for one. It keeps undecoded bytes in `partial`.
//! 2. If `handle_input` has not called `read_complete`, the driver calls `handle_read_complete`
//!    once, behind the last bytes of a burst of reads.
//! 3. The end of the stream goes to `handle_end`, an error to `handle_io_error`.
//! 4. `outbound` holds the bytes to send. The bytes that the transport took go to `handle_written`.
//! 5. Between two calls the driver looks at `Pending::FLUSH` and at `Status::closes_at_once`.
//!    Everything else waits in the attention list for `ChannelCore::action`.
//! 6. The state of the transport (`Readiness`) is the driver's. The core reads
//!    `Readiness::MAYBE_READABLE` to see whether input waits, and sets it only to have the end of
//!    the stream read again.
//! 7. With filters (`filtered_input`, `filtered_output`), the core sees plaintext only:
//!    `handle_input` gets the opened bytes, and `handle_sealed_written` replaces `handle_written`.
//!
//! # Closing
//! `close` sends pending bytes first, for at most `close_timeout`. From then on writes fail,
//! messages are not delivered, and further input is discarded. `close_now`, a broken connection and
//! a panic discard the pending bytes. A channel whose peer has ended its stream closes gracefully,
//! so replies are still sent. docs/endings.md has the order of events for each way in which a
//! channel ends.

mod discard;
mod filtered_input;
mod filtered_output;
mod last_look;
mod loop_io;
mod read;
mod reading;
mod ready;
mod transport;
mod writing;

pub(crate) use discard::Drained;
pub(crate) use loop_io::LoopIo;
pub(crate) use ready::Ready;
pub(crate) use transport::Transport;

use super::{
    core::{Action, ChannelCore},
    services::LoopServices,
    state::{Pending, Readiness},
};
use crate::Error;

/// A channel core and the transport that carries its bytes.
pub(crate) struct ChannelDriver<T> {
    pub(crate) core: ChannelCore,
    /// `None` once the channel is closed.
    pub(crate) transport: Option<T>,
}

/// What the owner of a driver does after a call.
#[must_use]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Nothing.
    Stay,
    /// Close the channel and its transport.
    Close,
}

impl<T: Transport> ChannelDriver<T> {
    /// Handles a readiness event: writes first, then reads.
    #[inline]
    pub(crate) fn handle_ready(&mut self, io: &mut LoopIo, ready: Ready) -> Next {
        if ready.is_writable() && self.core.state.status.take(Readiness::WRITE_BLOCKED) {
            self.write_once(io);
            self.core.request_attention(&mut io.services);
        }
        if !self.note_ready(ready) {
            return Next::Stay;
        }
        // A channel that is carried over is read when its turn comes: reading now as well would be more than its
        // share. If it closes before that, there is unread input.
        if self.core.state.status.has(Readiness::CARRIED_OVER) {
            self.core.state.status.set(Readiness::MAYBE_READABLE);
            return Next::Stay;
        }
        self.read_burst(io, true, true)
    }

    /// Records an event that this turn has no time for. The channel is flushed at the end of the turn
    /// and read in the next turn.
    pub(crate) fn defer(&mut self, io: &mut LoopIo, ready: Ready) {
        if ready.is_writable() && self.core.state.status.take(Readiness::WRITE_BLOCKED) {
            self.core.state.want_attention(&mut io.services);
        }
        if self.note_ready(ready) {
            self.core.state.status.set(Readiness::MAYBE_READABLE);
            // Also if the channel does not read now: an error after the end of the input is only noticed by a read.
            self.carry_over(io, false);
        }
    }

    /// Records what an event says about the input. Returns whether there is something to read.
    #[inline]
    fn note_ready(&mut self, ready: Ready) -> bool {
        if ready.has(Ready::READ_CLOSED.with(Ready::ERROR).with(Ready::PRIORITY)) {
            self.note_unusual(ready);
        }
        ready.has(Ready::READABLE.with(Ready::READ_CLOSED).with(Ready::ERROR))
    }

    #[cold]
    fn note_unusual(&mut self, ready: Ready) {
        if ready.is_priority() {
            self.core.state.status.set(Readiness::URGENT);
        }
        if ready.is_hang_up() {
            self.core.state.status.set(Readiness::HANG_UP);
        }
    }

    /// Has the channel read in the next turn without an event.
    fn carry_over(&mut self, io: &mut LoopIo, in_full: bool) {
        if !self.core.state.status.has(Readiness::CARRIED_OVER) {
            self.core.state.status.set(Readiness::CARRIED_OVER);
            io.carry_over(self.core.state.key(), in_full);
        }
    }

    /// Calls into the core, then does what cannot wait until the end of the turn.
    #[inline]
    pub(crate) fn call(
        &mut self,
        io: &mut LoopIo,
        f: impl FnOnce(&mut ChannelCore, &mut LoopServices),
    ) -> Next {
        f(&mut self.core, &mut io.services);
        if self.core.state.status.has(Pending::FLUSH) {
            self.flush(io);
        }
        self.next()
    }

    #[inline]
    fn next(&self) -> Next {
        if self.core.state.status.closes_at_once() { Next::Close } else { Next::Stay }
    }

    /// At the end of a turn: sends what was written in it, and says whether the channel is to close.
    pub(crate) fn attend(&mut self, io: &mut LoopIo) -> Next {
        self.core.state.status.unset(Pending::LISTED.with(Pending::FLUSH));
        let action = self.core.action();
        match action {
            Action::Nothing => {}
            Action::CloseNow => return Next::Close,
            Action::Flush | Action::FlushAndEnd | Action::FlushAndClose => self.flush(io),
        }
        if action == Action::FlushAndEnd {
            self.end_output(io);
        } else if action == Action::FlushAndClose {
            return self.proceed_with_close(io);
        }
        if self.core.state.wants_read() {
            self.carry_over(io, false);
        }
        Next::Stay
    }

    /// Closes a channel that has sent everything. One that has not gets its close timeout, and its
    /// input is discarded meanwhile.
    fn proceed_with_close(&mut self, io: &mut LoopIo) -> Next {
        if self.core.state.pending_bytes() == 0 && self.finish_output(io) {
            return Next::Close;
        }
        let state = &mut self.core.state;
        state.arm_close(&mut io.services);
        if state.status.has(Readiness::MAYBE_READABLE) && !state.status.has(Readiness::CARRIED_OVER) {
            return self.read(io);
        }
        Next::Stay
    }

    /// Shuts down the write half, once everything is sent.
    fn end_output(&mut self, io: &mut LoopIo) {
        if self.core.state.pending_bytes() > 0 || !self.core.state.status.is_open() || !self.finish_output(io)
        {
            return;
        }
        let Some(transport) = &mut self.transport else { return };
        match transport.shutdown_write() {
            Ok(()) => self.core.handle_output_ended(&mut io.services),
            Err(e) => self.core.handle_io_error(&mut io.services, Error::io("ending the output", e)),
        }
    }
}
