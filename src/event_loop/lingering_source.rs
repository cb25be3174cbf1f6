//! Sockets that outlive their channel until the peer has read everything.
//!
//! A kernel that receives data for a closed socket answers with a reset, and a reset discards bytes
//! that the peer has not read yet. So after a graceful close only the write half is shut down. The
//! socket stays in the poll, and its input is read and discarded until the peer ends the connection
//! or the channel's close timeout expires. It takes over the channel's slot, key and registration,
//! so it is not registered again, and the close timeout if that is armed. A channel whose peer has
//! ended the connection before does not linger.
//!
//! Invariants: a lingering socket keeps the slot of its channel, which is gone. It counts as a
//! connection until it is closed. A loop has a bounded number of them and closes the oldest when
//! there is one more. A turn reads a bounded amount from each. Runs on the loop's thread.

use super::{
    STREAM_INTEREST,
    closing::LingeringSocket,
    io::Io,
    source::{AtShutdown, LoopContext, RegisterFn, Source, Transition},
};
use crate::{
    channel::{
        ChannelCore, ChannelTimer, Due, Readiness, TimerToken,
        driver::{Drained, Ready, Transport},
    },
    error::{Error, Result},
    log_throttle::{BROKEN, log_throttled},
    transport::Stream,
};
use log::Level;
use std::io;

/// Shuts down the write half of the socket, and returns the socket as one that lingers. Returns the
/// stream, to be closed, if the peer has already ended the connection. Also returns it if `may` or
/// the settings of the channel or the loop rule out lingering.
pub(super) fn begin_lingering(
    core: &mut ChannelCore,
    mut stream: Stream,
    io: &mut Io,
    may: bool,
) -> Result<LingeringSocket, Stream> {
    let to_the_end = core.drains_to_the_end();
    let state = &mut core.state;
    let may = may
        && io.max_lingering > 0
        && state.config.close_timeout_ns > 0
        && state.outbound.pending_bytes() == 0;
    let is_down = state.status.output_has_ended() || stream.shutdown_write().is_ok();
    let more = match io.drain(&mut stream, to_the_end) {
        Drained::Nothing => false,
        Drained::More => true,
        Drained::End | Drained::Failed(_) => return Err(stream),
    };
    if !may || !is_down {
        return Err(stream);
    }
    let key = state.key();
    // The timeout counts from the close request, so a timer that is already armed keeps running.
    let deadline = state.timing.take_close_timer().unwrap_or_else(|| {
        let deadline = io.services.now.saturating_add(state.config.close_timeout_ns);
        let token = TimerToken::new(key, ChannelTimer::CloseTimeout);
        io.services.queue.insert(deadline, Due::Channel(token))
    });
    let was_listed = state.status.has(Readiness::CARRIED_OVER);
    if more && !was_listed {
        io.carry_over(key, false);
    }
    Ok(LingeringSocket { stream, assignment: None, deadline, to_the_end, listed: more || was_listed })
}

impl LingeringSocket {
    /// Records the conditions in `ready`. Returns whether there is input to discard now. Input is
    /// discarded later if the socket is already listed for a turn.
    fn is_to_be_drained(&mut self, ready: Ready) -> bool {
        let hang_up = ready.is_hang_up();
        self.to_the_end |= hang_up || ready.is_priority();
        (ready.is_readable() || hang_up) && !self.listed
    }
}

impl Source for LingeringSocket {
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        if self.is_to_be_drained(ready) { self.proceed(ctx) } else { Transition::Stay }
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        if self.is_to_be_drained(ready) {
            self.listed = true;
            ctx.io.carry_over(ctx.key, false);
        }
        Transition::Stay
    }

    /// Discards input, and ends if the peer has ended the connection.
    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.listed = false;
        match ctx.io.drain(&mut self.stream, self.to_the_end) {
            Drained::Nothing => Transition::Stay,
            Drained::More => {
                self.listed = true;
                ctx.io.carry_over(ctx.key, true);
                Transition::Stay
            }
            Drained::End | Drained::Failed(_) => Transition::End(Ok(())),
        }
    }

    /// The socket has inherited the close timeout of its channel.
    fn channel_timer(&mut self, _ctx: &mut LoopContext<'_>, timer: ChannelTimer) -> Transition {
        if timer == ChannelTimer::CloseTimeout { Transition::End(Ok(())) } else { Transition::Stay }
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(self.stream.source(), STREAM_INTEREST))
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        AtShutdown::Stay
    }

    fn close(&mut self, _ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        (Transition::End(Ok(())), false)
    }

    fn fail(&mut self, _ctx: &mut LoopContext<'_>, _error: Error) -> Transition {
        Transition::End(Ok(()))
    }

    fn end(mut self: Box<Self>, ctx: &mut LoopContext<'_>, _result: Result) {
        drop(ctx.io.services.cancel_timer(self.deadline));
        if let Err(e) = ctx.io.selector.deregister(self.stream.source()) {
            let name = ctx.loop_name;
            log_throttled!(
                ctx.io.services,
                BROKEN,
                Level::Debug,
                "{name}: deregistering a lingering socket: {e:#}"
            );
        }
    }
}
