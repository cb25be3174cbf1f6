//! The life of a channel, from its first callback to its last one.
//!
//! A close has a mode ([`CloseMode`]) and a cause ([`CloseCause`]). A later request never weakens
//! an earlier one, and the first cause besides `Clean` stays. docs/endings.md has the order of
//! events for each way in which a channel ends.

mod close;
mod handles;
mod handshake;
mod replace;

pub(in crate::channel) use close::Action;
pub(super) use replace::AT_ONCE;

use super::{ChannelCore, services::LoopServices};
use crate::{
    channel::{close_cause::CloseCause, event::Event},
    error::Error,
    log_throttle::CHANNEL_ERRORS,
};
use log::Level;

impl ChannelCore {
    /// Starts a channel that is connected.
    pub(crate) fn handle_active(&mut self, services: &mut LoopServices) {
        self.state.status.activate();
        self.state.arm_watch(services);
        self.event(services, Event::Active);
    }

    /// Records that the end of the output was sent. A channel whose input has ended too closes.
    pub(crate) fn handle_output_ended(&mut self, services: &mut LoopServices) {
        self.state.status.end_output();
        if self.state.status.input_ended() {
            self.state.request_close(CloseCause::Clean);
            self.state.want_attention(services);
        }
    }

    /// Handles a broken connection. A channel that is closing closes immediately, without a call of
    /// `error`.
    pub(crate) fn handle_io_error(&mut self, services: &mut LoopServices, error: Error) {
        let cause = CloseCause::of_transport(&error);
        self.state.note_cause(cause);
        self.state.outbound.note_error(|| error.clone());
        if !self.state.status.is_active() {
            self.report_failed_handshake(error);
        } else if self.state.status.is_open() {
            self.fail(services, error);
        }
        self.state.request_close_now(cause);
        self.after(services);
    }

    /// Notifies the channel that the loop is shutting down.
    pub(crate) fn handle_shutdown(&mut self, services: &mut LoopServices) {
        if !self.state.status.is_active() {
            self.state.request_close_now(CloseCause::ShutDown);
            self.state.want_attention(services);
        } else if self.state.status.is_open() {
            self.event(services, Event::Shutdown);
        }
    }

    /// Handles the end of the channel: the socket is closed, or lingers without the channel. The
    /// channel leaves its groups, `closed` completes, unsent writes fail, tasks and timers are
    /// dropped. `inactive` is called later.
    pub(crate) fn handle_closed(&mut self, services: &mut LoopServices) {
        self.state.status.close();
        if self.state.extras.has_filters() {
            self.end_handshake(services);
        }
        if let Some(shared) = self.state.shared.get() {
            shared.set_closed(self.state.close_cause());
        }
        self.state.end(services);
    }

    /// Calls `inactive`, the last callback.
    pub(crate) fn handle_inactive(&mut self, services: &mut LoopServices) {
        if !self.state.status.take_inactive() {
            return;
        }
        if let Err(error) = self.notify(services, Event::Inactive) {
            services.tally.channel_errors += 1;
            self.log_failure(services, (CHANNEL_ERRORS, Level::Warn), "in inactive", &error);
        }
        // Drops tasks and timers that were scheduled in `inactive`.
        self.state.end(services);
    }
}

impl Drop for ChannelCore {
    /// Completes `closed` even if the loop itself fails.
    fn drop(&mut self) {
        self.state.note_cause(CloseCause::ShutDown);
        if let Some(shared) = self.state.shared.get() {
            shared.set_closed(self.state.close_cause());
        }
    }
}
