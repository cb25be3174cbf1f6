//! Sockets that outlive their channel until the peer has read everything.
//!
//! A kernel that receives data for a closed socket answers with a reset, and a reset discards bytes
//! that the peer has not read yet. So after a graceful close only the write half is shut down. The
//! socket stays in the poll, and its input is read and discarded until the peer ends the connection
//! or the channel's close timeout expires.
//!
//! Always holds: a lingering socket keeps the slot, key and registration of its channel, which is
//! gone; it counts as a connection until it is closed; a loop has a bounded number of them and
//! closes the oldest when there is one more; a turn reads a bounded amount from each. Runs on the
//! loop's thread.

use super::{
    channel_slot::ChannelSlot,
    closing::LingeringSocket,
    io::Io,
    poll::STREAM_INTEREST,
    source::{AtShutdown, LoopContext, RegisterFn, Source, Transition},
};
use crate::{
    Error, Result,
    channel::{Due, Flags, driver::Ready},
    log_throttle::{BROKEN, log_throttled},
    transport::Stream,
};
use log::Level;
use std::io::{self, ErrorKind};

/// Reads in one turn from a socket whose input is discarded.
const DISCARDED_READS: usize = 4;

/// The result of discarding input.
pub(super) enum Drained {
    /// The socket is empty for now.
    Nothing,
    /// The bound of the turn is reached, and the socket may hold more.
    More,
    /// The peer has ended its stream.
    End,
    Failed(io::Error),
}

impl Io {
    /// Reads and discards input, within the bound of a turn. Unless `to_the_end` is set, a read
    /// that does not fill the buffer is the last one, because later bytes cause an event.
    pub(super) fn drain(&mut self, stream: &mut Stream, to_the_end: bool) -> Drained {
        for _ in 0..self.reads_allowed(DISCARDED_READS) {
            match self.receive.read(&[], |room| stream.read(room)) {
                Ok(received) => {
                    let (read, full) = (received.read, received.full);
                    drop(received);
                    self.receive.give_back();
                    self.turn_bytes += read;
                    if read == 0 {
                        return Drained::End;
                    }
                    if !full && !to_the_end {
                        return Drained::Nothing;
                    }
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Drained::Nothing,
                Err(e) => return Drained::Failed(e),
            }
        }
        Drained::More
    }
}

impl ChannelSlot {
    /// Discards the input of a channel that is closing and still has bytes to send. A peer that is
    /// blocked in its own write may never read them otherwise.
    pub(super) fn discard_input(&mut self, io: &mut Io) {
        let state = &mut self.core.state;
        let Some(stream) = self.stream.as_mut().filter(|_| !state.has(Flags::CLOSE_NOW)) else { return };
        match io.drain(stream, state.has(Flags::HANG_UP.with(Flags::URGENT))) {
            Drained::Nothing => {}
            Drained::More => {
                state.set(Flags::MAYBE_READABLE.with(Flags::LISTED_TO_READ));
                io.list(state.key(), false);
            }
            Drained::End => state.set(Flags::INPUT_ENDED.with(Flags::HANG_UP)),
            Drained::Failed(e) => self.core.handle_io_error(&mut io.services, Error::io("reading", e)),
        }
    }

    /// Shuts down the write half of the socket, and returns the socket as one that lingers. Returns
    /// the stream, to be closed, if the peer has ended the connection already, or if settings of
    /// the channel (`may`) or the loop are against it.
    pub(super) fn begin_lingering(
        &mut self,
        mut stream: Stream,
        io: &mut Io,
        may: bool,
    ) -> Result<LingeringSocket, Stream> {
        let state = &mut self.core.state;
        let may = may
            && io.lingering.is_enabled()
            && state.config.close_timeout_ns > 0
            && state.pending_bytes() == 0;
        let is_down = state.has(Flags::OUTPUT_ENDED) || stream.shutdown_write().is_ok();
        let to_the_end = state.has(Flags::HANG_UP.with(Flags::URGENT));
        let more = match io.drain(&mut stream, to_the_end) {
            Drained::Nothing => false,
            Drained::More => true,
            Drained::End | Drained::Failed(_) => return Err(stream),
        };
        if !may || !is_down {
            return Err(stream);
        }
        let key = state.key();
        // The timeout counts from the close request: a timer that is armed already goes on.
        let deadline = state.take_close_timer().unwrap_or_else(|| {
            let deadline = io.services.now.saturating_add(state.config.close_timeout_ns);
            io.services.queue.insert(deadline, Due::Source(key))
        });
        let was_listed = state.has(Flags::LISTED_TO_READ);
        if more && !was_listed {
            io.list(key, false);
        }
        let (number, listed) = (io.lingering.begin(key), more || was_listed);
        Ok(LingeringSocket { stream, assignment: None, deadline, number, to_the_end, listed })
    }
}

impl LingeringSocket {
    /// Records what `ready` says. Returns whether there is input to discard and no turn for that yet.
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
            ctx.io.list(ctx.key, false);
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
                ctx.io.list(ctx.key, true);
                Transition::Stay
            }
            Drained::End | Drained::Failed(_) => Transition::End(Ok(())),
        }
    }

    fn timer(&mut self, _ctx: &mut LoopContext<'_>) -> Transition {
        Transition::End(Ok(()))
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
        ctx.io.lingering.end(self.number);
        ctx.metrics.lingering.set(ctx.io.lingering.len() as u64);
        drop(ctx.io.services.cancel_timer(self.deadline));
        if let Err(e) = ctx.io.selector.deregister(self.stream.source()) {
            let name = ctx.loop_name;
            log_throttled!(
                ctx.io.services,
                BROKEN,
                Level::Debug,
                "{name}: a lingering socket leaving the poll: {e}"
            );
        }
    }
}
