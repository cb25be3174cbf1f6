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

use super::{ChannelCore, ChannelState, services::LoopServices, status::Memory};
use crate::{
    channel::{close_cause::CloseCause, event::Event, max_connection_age::ShutdownCause},
    error::Error,
    log_throttle::CHANNEL_ERRORS,
};
use log::Level;
use std::time::Duration;

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
            self.state.status.set(Memory::SHUTTING_DOWN);
            self.state.status.unset(Memory::ENDS_LATER);
            self.event(services, Event::Shutdown);
        }
    }

    /// Notifies the channel that it has reached its maximum age.
    pub(crate) fn handle_max_age(&mut self, services: &mut LoopServices) {
        if !self.state.status.is_active() {
            self.state.request_close_now(CloseCause::TimedOut);
            self.state.want_attention(services);
        } else if self.state.status.is_open() {
            self.state.status.set(Memory::AGED);
            self.event(services, Event::Shutdown);
        }
    }

    /// Closes the channel, whose grace time has ended. A stage that ends its exchanges knows
    /// whether a message is incomplete. Otherwise the channel is reset, as at the end of a
    /// shutdown, so that the peer does not take the cut for a regular end.
    pub(crate) fn handle_grace_expired(&mut self, services: &mut LoopServices) {
        if self.state.ends_later() {
            self.state.request_close_now(CloseCause::TimedOut);
        } else {
            self.state.request_reset(CloseCause::TimedOut);
        }
        self.state.want_attention(services);
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

impl ChannelState {
    /// Sets how long a reconnecting client waits after the end of this channel. Such a client has a
    /// handle of it.
    pub(crate) fn set_reconnect_after(&self, delay: Duration) {
        if let Some(shared) = self.shared.get() {
            shared.set_reconnect_after(delay);
        }
    }

    /// Returns how long a reconnecting client waits after the end of this channel.
    #[cfg(feature = "websocket")]
    pub(crate) fn reconnect_after(&self) -> Duration {
        self.shared.get().map_or(Duration::ZERO, |shared| shared.reconnect_after())
    }

    /// Returns whether the pipeline was notified of the maximum age.
    pub(crate) fn is_aged(&self) -> bool {
        self.status.has(Memory::AGED)
    }

    /// Returns why the pipeline was notified of a shutdown, the last cause if there were two.
    pub(crate) fn shutdown_cause(&self) -> Option<ShutdownCause> {
        if self.status.has(Memory::SHUTTING_DOWN) {
            Some(ShutdownCause::LoopShutdown)
        } else {
            self.is_aged().then_some(ShutdownCause::MaxAge)
        }
    }

    /// Lets a stage close the channel behind the last exchange, instead of the default `shutdown`
    /// of the handler.
    #[cfg(feature = "http")]
    pub(crate) fn end_later(&mut self) {
        self.status.set(Memory::ENDS_LATER);
    }

    /// Returns whether a stage closes the channel behind the last exchange.
    pub(crate) fn ends_later(&self) -> bool {
        self.status.has(Memory::ENDS_LATER)
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
