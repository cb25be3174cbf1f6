//! Requests to close a channel or to end its output, and the driver's actions for them.

use super::super::{ChannelCore, ChannelState, services::LoopServices, status::CloseMode};
use crate::{
    channel::close_cause::CloseCause,
    error::Error,
    log_throttle::{UNSENT, log_throttled},
};
use log::Level;

/// The next action of a channel's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::channel) enum Action {
    Nothing,
    /// Send the outbound buffer.
    Flush,
    /// Send the outbound buffer, then end the output.
    FlushAndEnd,
    /// Send the outbound buffer, then close.
    FlushAndClose,
    /// Close immediately.
    CloseNow,
}

impl ChannelCore {
    /// Returns the next action of the driver.
    #[inline]
    pub(in crate::channel) fn action(&self) -> Action {
        if self.state.status.closes_at_once() {
            Action::CloseNow
        } else if self.state.status.closes_gracefully() {
            Action::FlushAndClose
        } else if self.state.status.wants_to_end_output() {
            Action::FlushAndEnd
        } else if self.state.outbound.pending_bytes() > 0 || !self.state.extras.sealed_wire().is_empty() {
            Action::Flush
        } else {
            Action::Nothing
        }
    }
}

impl ChannelState {
    /// Ends the output once the outbound buffer was sent.
    pub(crate) fn request_end_of_output(&mut self) {
        if self.status.request_end_of_output() && self.extras.are_used() {
            self.log_closing("ending the output");
        }
        if let Some(shared) = self.shared.get() {
            shared.set_output_ended();
        }
    }

    /// Closes the channel after the outbound buffer was sent.
    pub(crate) fn request_close(&mut self, cause: CloseCause) {
        self.begin_close(CloseMode::Graceful, cause);
    }

    /// Closes the channel without sending the rest.
    pub(crate) fn request_close_now(&mut self, cause: CloseCause) {
        self.begin_close(CloseMode::Now, cause);
    }

    pub(crate) fn request_reset(&mut self, cause: CloseCause) {
        self.begin_close(CloseMode::Reset, cause);
    }

    fn begin_close(&mut self, mode: CloseMode, cause: CloseCause) {
        self.note_cause(cause);
        let was_abrupt = self.status.closes_at_once();
        if self.status.request_close(mode) && self.extras.are_used() && !was_abrupt {
            self.log_closing(if mode == CloseMode::Graceful { "closing" } else { "closing now" });
        }
        if let Some(shared) = self.shared.get() {
            shared.set_closing();
        }
    }

    /// Calls `f` before the channel closes after its pending bytes: `f` may still write. Does
    /// nothing if the channel stays open, or must not send the rest.
    pub(crate) fn before_graceful_close(&mut self, f: impl FnOnce(&mut Self)) {
        if self.status.suspend_graceful_close() {
            f(self);
            self.status.request_close(CloseMode::Graceful);
        }
    }

    /// Records why the channel ends. A channel that is closed, or has a cause besides `Clean`,
    /// keeps its own.
    pub(crate) fn note_cause(&mut self, cause: CloseCause) {
        if !self.status.is_closed() {
            self.extras.note_close_cause(cause);
        }
    }

    /// Returns why the channel has ended, or why it would end now.
    pub(crate) fn close_cause(&self) -> CloseCause {
        self.extras.close_cause()
    }

    /// Cancels timers and tasks, fails confirmations and drops unsent bytes.
    pub(crate) fn end(&mut self, services: &mut LoopServices) {
        self.status.close();
        self.outbound.confirm_nothing_more();
        self.end_watch(services);
        self.end_shaper(services);
        services.tally.channel_tasks_dropped += self.timing.cancel_tasks(services, &Error::Closed) as u64;
        let dropped = self.outbound.drop_unsent(services);
        if dropped > 0 {
            let id = self.id;
            log_throttled!(
                services,
                UNSENT,
                Level::Debug,
                "channel {id}: closed with {dropped} bytes unsent"
            );
        }
        self.inbound.drop_undecoded();
    }
}
