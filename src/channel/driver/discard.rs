//! Input that is read and discarded.
//!
//! A peer that is blocked in its own write may never read our output. So the input of a channel
//! that is closing is still read, and so is that of a lingering socket. A turn reads a bounded
//! amount.

use super::{ChannelDriver, loop_io::LoopIo, transport::Transport};
use crate::{
    channel::{
        Readiness,
        core::{ChannelCore, InputHalf},
    },
    error::Error,
};
use std::io::{self, ErrorKind};

/// Reads in one turn from a transport whose input is discarded.
const DISCARDED_READS: usize = 4;

/// The result of discarding input.
pub(crate) enum Drained {
    /// The transport is empty for now.
    Nothing,
    /// The bound of the turn is reached, and the transport may hold more.
    More,
    /// The peer has ended its stream.
    End,
    Failed(io::Error),
}

impl LoopIo {
    /// Reads and discards input, within the bound of a turn. Unless `to_the_end` is set, a read
    /// that does not fill the buffer is the last one, because later bytes cause an event.
    pub(crate) fn drain(&mut self, transport: &mut impl Transport, to_the_end: bool) -> Drained {
        for _ in 0..self.reads_allowed(DISCARDED_READS) {
            match self.receive.read(&[], |room| transport.read(room)) {
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

impl ChannelCore {
    /// Returns whether an input that is discarded must be read to its end, because no further event
    /// may come.
    pub(crate) fn drains_to_the_end(&self) -> bool {
        self.state.status.has(Readiness::HANG_UP.with(Readiness::URGENT))
    }
}

impl<T: Transport> ChannelDriver<T> {
    /// Reads a channel whose handler receives no more input. A channel that is closing and still
    /// has bytes to send discards its input. After the end of the stream, a read can only find that
    /// the connection is broken.
    #[cold]
    pub(super) fn discard_input(&mut self, io: &mut LoopIo) {
        let to_the_end = self.core.drains_to_the_end();
        let state = &mut self.core.state;
        let ended = state.status.input_ended();
        let reads = if ended { state.status.is_open() } else { !state.status.closes_at_once() };
        let Some(transport) = self.transport.as_mut().filter(|_| reads) else { return };
        let drained = match state.extras.take_read_error() {
            Some(error) => Drained::Failed(error),
            None => io.drain(transport, to_the_end),
        };
        match drained {
            Drained::Nothing => {}
            Drained::More if ended => {}
            Drained::More => {
                state.status.set(Readiness::MAYBE_READABLE.with(Readiness::CARRIED_OVER));
                io.carry_over(state.key(), false);
            }
            Drained::End => {
                state.status.set_input(InputHalf::Ended);
                state.status.set(Readiness::HANG_UP);
            }
            Drained::Failed(e) => self.core.handle_io_error(&mut io.services, Error::io("reading", e)),
        }
    }
}
