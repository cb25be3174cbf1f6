//! The channel core: a state machine that does no I/O.
//!
//! Bytes, commands and time go in through `handle_*`. Bytes to write, requests to close and calls
//! of the handler come out. `driver` moves the bytes, and states the contract between the two.
//!
//! Invariants: `inactive` is the last call, made if and only if `active` was. A replacement
//! pipeline takes over between two calls. Runs on the channel's loop. Owns the pipeline, but not
//! the transport. The submodules: `input` (bytes from the peer), `commands` (requests of handles
//! and groups), `timing` (timers), `writability` (its notifications), `replace` (another pipeline),
//! `calls` (calls of the pipeline), `handshake` (filters until they are established).

mod calls;
mod commands;
mod establish;
mod handshake;
mod input;
mod replace;
mod timing;
mod writability;

pub(crate) use commands::Outcome;
pub(crate) use establish::Establish;

use super::{
    close_cause::CloseCause,
    config::ChannelConfig,
    event::Event,
    links::{AnyPipeline, ErasedPipeline},
    services::LoopServices,
    state::ChannelState,
};
use crate::{Error, id::ChannelId, log_throttle::CHANNEL_ERRORS};
use log::Level;
use std::{net::SocketAddr, sync::Arc};

pub(crate) struct ChannelCore {
    pub(crate) state: ChannelState,
    pub(in crate::channel) links: Box<dyn ErasedPipeline>,
}

/// The next action of a channel's driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action {
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
    pub(crate) fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        pipeline: AnyPipeline,
        addresses: (Option<SocketAddr>, Option<SocketAddr>),
        services: &mut LoopServices,
    ) -> Self {
        let mut state = ChannelState::new(id, config, services.now, addresses.0, addresses.1);
        // A new channel has no extras, so none are replaced.
        state.apply(services, pipeline.settings);
        let links = pipeline.links;
        #[cfg(feature = "simulation")]
        let links = {
            let crate::id::Key { index, generation } = id.key;
            crate::machine::simulated::note_channel(id.event_loop, index, generation);
            super::links::checked(links)
        };
        ChannelCore { state, links }
    }

    pub(crate) fn handler_name(&self) -> &'static str {
        (self.links.handler_type())()
    }

    // ---- input ----------------------------------------------------------------------------------

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
        self.state.note_error(|| error.clone());
        if !self.state.status.is_active() {
            self.report_failed_handshake(error);
        } else if self.state.status.is_open() {
            self.fail(services, error);
        }
        self.state.request_close_now(cause);
        self.after(services);
    }

    /// Records that the kernel has accepted `n` bytes.
    pub(crate) fn handle_written(&mut self, services: &mut LoopServices, n: usize) {
        self.state.consume_outbound(n, services.now);
        self.state.return_outbound(services);
        self.tell_writability(services);
    }

    /// Records that the transport has accepted `n` bytes that filters have sealed.
    pub(crate) fn handle_sealed_written(&mut self, services: &mut LoopServices, n: usize) {
        self.state.consume_sealed(services, n);
        self.state.return_outbound(services);
        self.tell_writability(services);
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
        if let Err(error) = self.tell(services, Event::Inactive) {
            services.tally.channel_errors += 1;
            self.log_failure(services, (CHANNEL_ERRORS, Level::Warn), "in inactive", &error);
        }
        // Drops tasks and timers that were scheduled in `inactive`.
        self.state.end(services);
    }

    // ---- output ---------------------------------------------------------------------------------

    /// Returns the next action of the driver.
    #[inline]
    pub(crate) fn action(&self) -> Action {
        if self.state.status.closes_at_once() {
            Action::CloseNow
        } else if self.state.status.closes_gracefully() {
            Action::FlushAndClose
        } else if self.state.status.wants_to_end_output() {
            Action::FlushAndEnd
        } else if self.state.pending_bytes() > 0 || !self.state.extras.sealed_wire().is_empty() {
            Action::Flush
        } else {
            Action::Nothing
        }
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
