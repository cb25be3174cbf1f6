//! A channel and its socket in a slot of the loop.
//!
//! The loop adds its own operations to the channel's driver: the poll, closing, and lingering
//! sockets. The phases of a turn call the methods of [`ChannelSlot`] directly, and [`Source`] where
//! the kind of source does not matter.
//!
//! Invariant: the socket of a channel leaves the poll before it is closed, or lingers there without
//! the channel. Runs on the loop's thread.

use crate::{
    channel::{
        ChannelCore, ChannelTimer, CloseCause, LoopServices, Readiness,
        driver::{ChannelDriver, Next, Ready},
    },
    error::{Error, caught},
    event_loop::{
        STREAM_INTEREST,
        closing::{ClosedChannel, SocketAfterClose},
        io::Io,
        lingering_source::begin_lingering,
        load::Assignment,
        source::{AtShutdown, LoopContext, RegisterFn, Source, Transition},
    },
    log_throttle::{BROKEN, log_throttled},
    metrics::Metrics,
    transport::Stream,
};
use log::Level;
use std::{io, panic::resume_unwind, time::Duration};

/// A channel and its socket.
pub(crate) struct ChannelSlot {
    pub(crate) driver: ChannelDriver<Stream>,
    /// Declared after the driver: the connection counts until its handler is dropped. A socket that
    /// outlives the channel takes over the assignment.
    pub(crate) assignment: Option<Assignment>,
}

impl ChannelSlot {
    /// Handles an event of the poll.
    #[inline(always)]
    pub(crate) fn handle_ready(&mut self, io: &mut Io, metrics: &Metrics, ready: Ready) {
        let next = self.driver.handle_ready(io, ready);
        self.finish(io, metrics, next);
    }

    /// Starts the channel: calls `active` once its filters are ready.
    pub(crate) fn activate(&mut self, io: &mut Io, metrics: &Metrics) {
        let next = self.driver.activate(io);
        self.finish(io, metrics, next);
    }

    /// Reads without an event.
    pub(crate) fn read(&mut self, io: &mut Io, metrics: &Metrics) {
        let next = self.driver.read(io);
        self.finish(io, metrics, next);
    }

    /// Flushes and closes at the end of a turn.
    pub(crate) fn attend(&mut self, io: &mut Io, metrics: &Metrics) {
        let next = self.driver.attend(io);
        self.finish(io, metrics, next);
    }

    pub(crate) fn handle_timer(&mut self, io: &mut Io, metrics: &Metrics, timer: ChannelTimer) {
        let next = self.driver.handle_timer(io, timer);
        self.finish(io, metrics, next);
    }

    /// Calls the core, then closes the socket if the core requests it.
    #[inline]
    pub(crate) fn call(
        &mut self,
        io: &mut Io,
        metrics: &Metrics,
        f: impl FnOnce(&mut ChannelCore, &mut LoopServices),
    ) {
        let next = self.driver.call(io, f);
        self.finish(io, metrics, next);
    }

    /// Carries out the result of a driver call.
    #[inline]
    fn finish(&mut self, io: &mut Io, metrics: &Metrics, next: Next) {
        if next == Next::Close {
            self.close_socket(io, metrics);
        }
    }

    /// Closes the channel and its socket. After a graceful close the socket may linger. `inactive`
    /// is called later in the turn, never from here.
    fn close_socket(&mut self, io: &mut Io, metrics: &Metrics) {
        let Some(stream) = self.driver.transport.take() else { return };
        let core = &mut self.driver.core;
        core.resets_unfinished_output();
        let reset = core.state.status.resets().then_some(Duration::ZERO);
        let linger = reset.or(core.state.config.linger).filter(|_| stream.can_linger());
        if reset.is_some()
            && linger.is_some()
            && let Err(e) = stream.linger(Duration::ZERO)
        {
            let (services, id) = (&io.services, core.state.id());
            log_throttled!(services, BROKEN, Level::Debug, "channel {id}: closed without a reset: {e:#}");
        }
        // The end of the stream would arrive before the reset, and the peer would take it for a
        // normal end.
        let resets = linger.is_some_and(|time| time.is_zero());
        // A stream that was read to its end has no further input, so closing it suffices to end it.
        let unread =
            !core.state.status.has(Readiness::HANG_UP) || core.state.status.has(Readiness::MAYBE_READABLE);
        let gracefully = unread && !core.state.status.closes_at_once() && !resets;
        let kept = if gracefully { begin_lingering(core, stream, io, linger.is_none()) } else { Err(stream) };
        let socket = match kept {
            Ok(socket) => SocketAfterClose::Lingering(socket),
            Err(mut stream) => {
                if let Err(e) = io.selector.deregister(stream.source()) {
                    let (services, id) = (&io.services, core.state.id());
                    log_throttled!(
                        services,
                        BROKEN,
                        Level::Debug,
                        "channel {id}: deregistering the socket: {e:#}"
                    );
                }
                match linger.filter(|time| !time.is_zero()) {
                    Some(time) => SocketAfterClose::ClosedByWorker(stream, time),
                    None => SocketAfterClose::Closed,
                }
            }
        };
        metrics.channels.set(metrics.channels.read().saturating_sub(1));
        metrics.channels_closed.add(1);
        let unsent = core.state.outbound.pending_bytes();
        if unsent > 0 {
            metrics.closes_unsent.add(1);
            metrics.bytes_unsent.add(unsent as u64);
        }
        if core.state.status.is_active() && (unsent > 0 || !core.state.close_cause().is_clean()) {
            metrics.closes_unclean.add(1);
        }
        let panicked = caught(|| core.handle_closed(&mut io.services));
        // In any case, because `inactive` also releases the slot.
        io.inactive.push(ClosedChannel { key: core.state.key(), socket });
        if let Some(message) = panicked {
            resume_unwind(Box::new(message));
        }
    }
}

impl ChannelSlot {
    /// Returns whether the channel would stay open, although all bytes that could be sent have been
    /// sent.
    fn is_to_be_forced(&self) -> bool {
        let state = &self.driver.core.state;
        let closes =
            state.status.closes_at_once() || (state.status.closes_gracefully() && !state.has_unsent());
        self.driver.transport.is_some() && !closes
    }
}

impl Source for ChannelSlot {
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        self.handle_ready(ctx.io, ctx.metrics, ready);
        Transition::Stay
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        self.driver.defer(ctx.io, ready);
        Transition::Stay
    }

    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.read(ctx.io, ctx.metrics);
        Transition::Stay
    }

    /// Cancels a `connect` whose filters are not established. The command was sent to the attempt
    /// that was in this slot before. Cancelling is its only command.
    fn mail(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.call(ctx.io, ctx.metrics, |core, services| {
            core.abandon_handshake(services, Error::Cancelled);
        });
        Transition::Stay
    }

    fn channel_timer(&mut self, ctx: &mut LoopContext<'_>, timer: ChannelTimer) -> Transition {
        self.handle_timer(ctx.io, ctx.metrics, timer);
        Transition::Stay
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(self.driver.transport.as_mut()?.source(), STREAM_INTEREST))
    }

    fn is_outgoing(&self) -> bool {
        self.driver.core.state.config.outgoing
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        // Once the socket is closed, only the call of `inactive` remains.
        if self.driver.transport.is_none() {
            AtShutdown::Stay
        } else if self.driver.core.state.status.is_active() {
            AtShutdown::Drain
        } else {
            // Its filters are not established yet.
            AtShutdown::Notify
        }
    }

    /// Scheduled tasks and work on other threads may belong to a reply in flight. They are dropped
    /// when the channel closes.
    fn shut_down(&mut self, ctx: &mut LoopContext<'_>) {
        if self.driver.core.state.status.is_open() {
            self.call(ctx.io, ctx.metrics, |core, services| core.handle_shutdown(services));
        }
    }

    fn close(&mut self, ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        self.driver.flush_to_end(ctx.io);
        let forced = self.is_to_be_forced();
        if forced {
            // The peer must not take the cut for a regular end.
            self.driver.core.state.request_reset(CloseCause::ShutDown);
        }
        self.close_socket(ctx.io, ctx.metrics);
        (Transition::Stay, forced)
    }

    fn fail(&mut self, ctx: &mut LoopContext<'_>, error: Error) -> Transition {
        self.call(ctx.io, ctx.metrics, |core, services| core.handle_io_error(services, error));
        Transition::Stay
    }

    fn close_silently(&mut self, ctx: &mut LoopContext<'_>) {
        self.driver.core.state.request_close_now(CloseCause::ShutDown);
        self.close_socket(ctx.io, ctx.metrics);
    }

    fn inactive(&mut self, ctx: &mut LoopContext<'_>) {
        self.driver.core.handle_inactive(&mut ctx.io.services);
    }
}
