//! The driver of a channel: moves bytes between a transport and a channel core.
//!
//! One driver serves both sockets and the in-memory transport of the test kit. Its owner keeps the
//! parts that only a loop has: readiness, fairness between sources, registration, and closing.
//!
//! # A ready channel
//! If the transport had blocked a write and accepts more now, one write is tried first. `reading`
//! then reads a burst and tries to send the reply with one write. Other output is flushed at the
//! end of the turn.
//!
//! # What the owner does
//! - It calls [`ChannelDriver::activate`] once the transport is connected.
//! - It passes readiness to [`ChannelDriver::handle_ready`], or to [`ChannelDriver::defer`] if the
//!   turn lacks time, and calls [`ChannelDriver::read`] for each key in
//!   [`LoopIo::carried_over`].
//! - It makes every other call into the core through [`ChannelDriver::call`].
//! - It calls [`ChannelDriver::attend`] at the end of the turn for each key in
//!   `LoopServices::attention`.
//! - If any of these returns [`Next::Close`], it takes the transport out, then calls
//!   `handle_closed` and later `handle_inactive`.
//!
//! # Contract between the driver and the core
//! 1. `handle_input` takes the bytes of a read and delivers messages. It calls the driver's flush
//!    between two messages if the handler has requested one. It keeps undecoded bytes.
//! 2. If `handle_input` has not called `read_complete`, the driver calls `handle_read_complete`
//!    once, after the last bytes of a burst of reads.
//! 3. The end of the stream goes to `handle_end`, an error to `handle_io_error`.
//! 4. `ChannelState::outbound` holds the bytes to send. The driver reports accepted bytes to
//!    `handle_written`.
//! 5. Between two calls the driver checks `Pending::FLUSH` and `Status::closes_at_once`. Other
//!    requests wait in the attention list for `ChannelCore::action`.
//! 6. The state of the transport (`Readiness`) belongs to the driver. The core reads
//!    `Readiness::MAYBE_READABLE` to see whether input waits. It sets the flag only to make the
//!    driver read the end of the stream again.
//! 7. With filters (`open`, `seal`), the core sees plaintext only: `handle_input` gets the opened
//!    bytes, and `handle_sealed_written` replaces `handle_written`. The filters report the end of
//!    the stream. Before the channel closes or shuts down its write half, `finish_output` sends the
//!    end marks of the filters.
//!
//! # Closing
//! `close` sends pending bytes first, for at most `close_timeout`, after which it resets the
//! connection. While a channel closes, writes fail, messages are not delivered, and further input
//! is discarded. Only a handshake for which pending bytes wait is completed before. `close_now` and
//! a broken connection discard the pending bytes. A channel whose peer has ended its stream closes
//! gracefully, so replies are still sent. docs/endings.md has the order of events for each way in
//! which a channel ends.

mod deliver;
mod departure;
mod discard;
mod fill;
mod held_handshakes;
mod last_look;
mod loop_io;
mod open;
mod read;
mod reading;
mod ready;
mod seal;
#[cfg(test)]
mod tests;
mod transport;
mod writing;

pub(crate) use discard::Drained;
pub(crate) use loop_io::{HANDSHAKES_PER_TURN, LoopIo};
pub(crate) use ready::Ready;
pub(crate) use transport::Transport;

use super::{LoopServices, Pending, Readiness, shaping::Direction};
use crate::{
    channel::core::{Action, ChannelCore, ReadDemand},
    error::Error,
    id::Key,
};

/// How often a channel whose loop ends is flushed at most, so that no channel keeps the loop from
/// its end.
const LAST_FLUSHES: usize = 1024;

/// A channel core and the transport that carries its bytes.
pub(crate) struct ChannelDriver<T> {
    pub(crate) core: ChannelCore,
    /// `None` once the channel is closed.
    pub(crate) transport: Option<T>,
}

/// The next step of a driver's owner after a call.
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
    #[inline(always)]
    pub(crate) fn handle_ready(&mut self, io: &mut LoopIo, ready: Ready) -> Next {
        const UNUSUAL: Ready = Ready::READ_CLOSED.with(Ready::ERROR).with(Ready::PRIORITY);
        if ready.is_readable() && !ready.has(UNUSUAL) && self.core.state.status.reads_at_once() {
            return self.read_new(io);
        }
        self.handle_in_full(io, ready)
    }

    /// Handles an event in any case.
    #[inline(never)]
    fn handle_in_full(&mut self, io: &mut LoopIo, ready: Ready) -> Next {
        if ready.is_writable() && self.core.state.status.take(Readiness::WRITE_BLOCKED) {
            self.write_once(io);
            self.core.request_attention(&mut io.services);
        }
        if !self.note_ready(ready) {
            return Next::Stay;
        }
        // A carried-over channel is read in its turn; reading it now would exceed its share. If it
        // closes before that, it has unread input.
        if self.core.state.status.has(Readiness::CARRIED_OVER) {
            self.core.state.status.set(Readiness::MAYBE_READABLE);
            return Next::Stay;
        }
        self.read_burst(io, true, true)
    }

    /// Records an event for which this turn lacks time. The channel is flushed at the end of the
    /// turn and read in the next turn.
    pub(crate) fn defer(&mut self, io: &mut LoopIo, ready: Ready) {
        if ready.is_writable() && self.core.state.status.take(Readiness::WRITE_BLOCKED) {
            self.core.state.want_attention(&mut io.services);
        }
        if self.note_ready(ready) {
            self.core.state.status.set(Readiness::MAYBE_READABLE);
            // Also if reading is off: an error after the end of the input is only noticed by a
            // read.
            self.carry_over(io, false);
        }
    }

    /// Records the input conditions of an event. Returns whether there may be input to read.
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

    /// Schedules the channel to be read in the next turn without an event.
    fn carry_over(&mut self, io: &mut LoopIo, in_full: bool) {
        if !self.core.state.status.has(Readiness::CARRIED_OVER) {
            self.core.state.status.set(Readiness::CARRIED_OVER);
            let key = self.core.state.key();
            let is_held = self.core.state.may_shed_handshake() && self.hold_handshake(io, key);
            if !is_held && self.core.state.status.has(ReadDemand::HANDSHAKING) {
                io.carry_over_handshake(key);
            } else if !is_held {
                io.carry_over(key, in_full);
            }
        }
    }

    #[cold]
    #[inline(never)]
    fn hold_handshake(&self, io: &mut LoopIo, key: Key) -> bool {
        io.hold_handshake(key, self.core.state.has_begun_handshake())
    }

    /// Calls into the core, then handles requests that cannot wait until the end of the turn.
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

    /// Sends the output of the turn at its end. Returns whether the channel must close.
    pub(crate) fn attend(&mut self, io: &mut LoopIo) -> Next {
        self.core.state.status.unset(Pending::LISTED.with(Pending::FLUSH));
        if self.core.state.extras.has_added_filter() {
            self.start_added_filter(io);
        }
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

    /// Closes a channel that has sent everything. Otherwise starts its close timeout and discards
    /// its input until then.
    fn proceed_with_close(&mut self, io: &mut LoopIo) -> Next {
        if self.core.has_sent_what_it_can()
            && (self.core.resets_unfinished_output() || self.finish_output(io))
        {
            return Next::Close;
        }
        let state = &mut self.core.state;
        state.arm_close(&mut io.services);
        // A handshake reads when its filters do; a worker or a traffic limit may hold it up.
        let reads = if state.completes_handshake() {
            state.wants_read()
        } else {
            state.status.has(Readiness::MAYBE_READABLE)
        };
        if reads && !state.status.has(Readiness::CARRIED_OVER) {
            return self.read(io);
        }
        Next::Stay
    }

    /// Sends pending bytes of a channel whose loop ends. If the channel closes gracefully, these
    /// are all bytes that the kernel accepts without blocking, and the end of the filters' output.
    pub(crate) fn flush_to_end(&mut self, io: &mut LoopIo) {
        for _ in 0..LAST_FLUSHES {
            self.flush(io);
            let state = &self.core.state;
            let is_stopped = !state.status.closes_gracefully()
                || state.status.has(Readiness::WRITE_BLOCKED)
                || state.is_held_up(Direction::Write);
            if is_stopped || !state.has_unsent() {
                break;
            }
        }
        if self.core.state.status.closes_gracefully()
            && self.core.has_sent_what_it_can()
            && !self.core.resets_unfinished_output()
        {
            self.finish_output(io);
        }
    }

    /// Shuts down the write half after everything was sent.
    fn end_output(&mut self, io: &mut LoopIo) {
        let status = self.core.state.status;
        // The end follows a handshake, as messages do: the peer needs both directions for it.
        if self.core.state.outbound.pending_bytes() > 0
            || !status.is_open()
            || status.has(ReadDemand::HANDSHAKING)
        {
            return;
        }
        if !self.finish_output(io) {
            return;
        }
        let Some(transport) = &mut self.transport else { return };
        match transport.shutdown_write() {
            Ok(()) => self.core.handle_output_ended(&mut io.services),
            Err(e) => self.core.handle_io_error(&mut io.services, Error::io("ending the output", e)),
        }
    }
}
