//! A channel as a source, for the calls that are not on its hot path.
//!
//! The phases of a turn call a channel's driver directly. Runs on the loop's thread.

use crate::{
    Error,
    channel::{Flags, driver::Ready},
    event_loop::{
        channel_slot::ChannelSlot,
        poll::STREAM_INTEREST,
        source::{AtShutdown, LoopContext, RegisterFn, Source, Transition},
    },
    log_throttle::{UNSENT, log_throttled},
};
use log::Level;
use std::io;

impl ChannelSlot {
    /// Returns whether the channel does not close by itself, now that what could be sent is sent.
    fn is_to_be_forced(&self) -> bool {
        let state = &self.core.state;
        let closes = state.has(Flags::CLOSE_NOW) || (state.has(Flags::CLOSING) && state.pending_bytes() == 0);
        self.stream.is_some() && !closes
    }
}

impl Source for ChannelSlot {
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        self.handle_ready(ctx.io, ctx.metrics, ready);
        Transition::Stay
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        ChannelSlot::defer(self, ctx.io, ready);
        Transition::Stay
    }

    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.read(ctx.io, ctx.metrics);
        Transition::Stay
    }

    /// The close timeout has expired.
    fn timer(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        let state = &mut self.core.state;
        if state.has(Flags::CLOSE_ARMED) {
            let id = state.id();
            log_throttled!(
                ctx.io.services,
                UNSENT,
                Level::Debug,
                "channel {id}: closed before its peer took everything"
            );
            state.request_close_now();
            self.settle(ctx.io, ctx.metrics);
        }
        Transition::Stay
    }

    fn task(&mut self, ctx: &mut LoopContext<'_>, slot: u32) {
        self.core.handle_task(&mut ctx.io.services, slot);
        self.settle(ctx.io, ctx.metrics);
    }

    fn wheel_timer(&mut self, ctx: &mut LoopContext<'_>, slot: u32) {
        self.handle_wheel_token(ctx.io, ctx.metrics, slot);
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(self.stream.as_mut()?.source(), STREAM_INTEREST))
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        // After the socket is closed, only the call of `inactive` is left.
        if self.stream.is_some() { AtShutdown::Drain } else { AtShutdown::Stay }
    }

    fn shut_down(&mut self, ctx: &mut LoopContext<'_>) -> usize {
        // A closing channel is left to its close timeout, which is among its tasks.
        if !self.core.state.is_open() {
            return 0;
        }
        // Offloaded work may produce a reply that is in flight. It is dropped if the channel closes.
        let cancelled = self.core.state.cancel_timed_tasks(&mut ctx.io.services);
        self.core.handle_shutdown(&mut ctx.io.services);
        self.settle(ctx.io, ctx.metrics);
        cancelled
    }

    fn close(&mut self, ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        // What the kernel takes at once may still go.
        self.flush(ctx.io, ctx.metrics);
        let forced = self.is_to_be_forced();
        if forced {
            self.core.state.request_close_now();
        }
        ChannelSlot::close(self, ctx.io, ctx.metrics);
        (Transition::Stay, forced)
    }

    fn fail(&mut self, ctx: &mut LoopContext<'_>, error: Error) -> Transition {
        self.core.handle_io_error(&mut ctx.io.services, error);
        self.settle(ctx.io, ctx.metrics);
        Transition::Stay
    }

    fn close_silently(&mut self, ctx: &mut LoopContext<'_>) {
        self.core.state.request_close_now();
        ChannelSlot::close(self, ctx.io, ctx.metrics);
    }

    fn inactive(&mut self, ctx: &mut LoopContext<'_>) {
        self.core.handle_inactive(&mut ctx.io.services);
    }
}
