//! Reading from a transport, in bounded bursts.
//!
//! A burst makes at most `reads_per_turn` reads of `read_size` bytes. A read that does not fill its
//! buffer ends the burst: the transport is empty, and later bytes cause another event. There are
//! two exceptions. After a hang-up the transport is read to its end. Once urgent data was reported
//! it is read until it blocks, because a read ends at urgent data too. The urgent byte itself is
//! not read.
//!
//! The driver tries one write with the reply right after the burst, for three reasons. The socket
//! is in the processor's cache, which with a thousand ready channels it is not at the end of the
//! turn. The peer does not wait until all other channels are read. Sending replies that are slices
//! of the read buffer releases it, so the next channel is read into the same memory.
//!
//! With auto-read off, bytes are read only on request, and so is the end of the stream. A closed
//! peer is noticed by the next `read`, after its last byte. A request stays pending until a message
//! is delivered. With `one_message_per_read` it delivers one message; the next request decodes the
//! kept bytes before it reads the transport.
//!
//! Invariants: a burst ends when the transport is empty, when the channel does not want more, or
//! when its share of the turn is used up. The last case is recorded in `MAYBE_READABLE`, because no
//! further event announces the remaining input. Kept bytes are decoded before new ones are read.

use super::{
    ChannelDriver, Next, deliver, departure, fill, loop_io::LoopIo, open, read::Read, transport::Transport,
};
use crate::{
    channel::{Pending, Readiness, core::ChannelCore, shaping::Direction},
    error::Error,
};

impl<T: Transport> ChannelDriver<T> {
    /// Reads a channel that was carried over from an earlier turn.
    pub(crate) fn read(&mut self, io: &mut LoopIo) -> Next {
        // Without this flag there are only kept bytes to decode: the transport was empty, and no
        // event has reported input since.
        let readable = self.core.state.status.has(Readiness::MAYBE_READABLE);
        self.read_burst(io, readable, false)
    }

    /// Reads until the transport is empty, the share of this turn is used up, or the channel stops
    /// reading.
    ///
    /// Unless the transport may be `readable`, only decodes kept bytes. If input was `reported`,
    /// the handler's `read_complete` is called even if there is none.
    // Inlined into the handling of an event, which is the hot path.
    #[inline(always)]
    pub(super) fn read_burst(&mut self, io: &mut LoopIo, readable: bool, reported: bool) -> Next {
        self.core.state.status.unset(Readiness::CARRIED_OVER.with(Readiness::MAYBE_READABLE));
        if self.core.state.status.discards_input() && !self.core.state.completes_handshake() {
            self.discard_input(io);
            return self.next();
        }
        let Some(transport) = &mut self.transport else { return Next::Stay };
        let in_full = io.has_room();
        let core = &mut self.core;
        let incomplete = read_all(core, transport, io, readable, reported);
        core.state.give_allowance_back(Direction::Read);
        if incomplete && core.state.status.is_open() {
            core.handle_read_complete(&mut io.services);
        }
        self.finish_burst(io, in_full)
    }

    /// Ends a burst of reads. Tries to send the reply immediately, while the socket and the bytes
    /// are in the processor's cache, and before other reads delay the peer.
    #[inline(always)]
    fn finish_burst(&mut self, io: &mut LoopIo, in_full: bool) -> Next {
        if self.core.state.status.has(Pending::FLUSH) {
            self.flush(io);
        } else if self.core.state.outbound.pending_bytes() > 0 {
            self.write_once(io);
        }
        if self.core.state.status.closes_at_once() {
            return Next::Close;
        }
        self.core.request_attention(&mut io.services);
        if self.core.state.wants_read() {
            self.carry_over(io, in_full);
        }
        Next::Stay
    }
}

/// Reads and decodes until the burst ends. Returns whether `read_complete` is still to be called.
#[inline(always)]
fn read_all<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    mut readable: bool,
    reported: bool,
) -> bool {
    // Whether `read_complete` is still to be called.
    let mut incomplete = false;
    let mut reads = 0;
    loop {
        let state = &mut core.state;
        // At least one read is allowed, whatever the limits are.
        if !state.pipeline_reads() && !state.filters_read()
            || reads > 0 && reads >= io.reads_allowed(state.config.reads_per_turn)
            || incomplete && io.services.io_is_over()
        {
            if readable {
                state.status.set(Readiness::MAYBE_READABLE);
                if state.status.has(Readiness::HANG_UP) {
                    departure::notice(core, transport, io);
                }
            }
            break;
        }
        if state.status.has(Pending::UNDECODED) && state.pipeline_reads() {
            // A pass that consumes no bytes counts as a read, so that queued messages of the
            // pipeline are bounded per turn.
            reads += usize::from(!deliver::resume(core, transport, io));
            incomplete = true;
            continue;
        }
        if !readable {
            break;
        }
        let size = state.config.read_size;
        let read = if !state.extras.are_used() {
            fill::read_once(core, transport, io, size)
        } else {
            read_with_extras(core, transport, io, size)
        };
        match read {
            Read::Bytes { last, completed } => {
                reads += 1;
                incomplete = !completed;
                if last {
                    // The handler may have requested another read of the kept bytes.
                    if !core.state.status.has(Pending::UNDECODED) {
                        break;
                    }
                    readable = false;
                }
            }
            Read::Kept { last } => {
                reads += 1;
                if last {
                    break;
                }
            }
            Read::Nothing if reported && reads == 0 => {
                io.metrics.reads_blocked.add(1);
                incomplete |= core.state.status.is_active();
                break;
            }
            no_bytes => return end_burst(core, io, no_bytes, incomplete),
        }
    }
    incomplete
}

/// Handles a read that has returned no bytes and ends the burst. Returns whether `read_complete` is
/// still to be called.
#[inline(never)]
fn end_burst(core: &mut ChannelCore, io: &mut LoopIo, read: Read, incomplete: bool) -> bool {
    match read {
        Read::Nothing => io.metrics.reads_blocked.add(1),
        Read::HeldUp => core.state.status.set(Readiness::MAYBE_READABLE),
        Read::End | Read::Failed(_) => {
            if incomplete {
                core.handle_read_complete(&mut io.services);
            }
            match read {
                Read::Failed(e) => core.handle_io_error(&mut io.services, Error::io("reading", e)),
                _ => core.handle_end(&mut io.services),
            }
            return false;
        }
        Read::Bytes { .. } | Read::Kept { .. } | Read::Broken => {}
    }
    incomplete
}

/// Reads a channel that may have traffic limits or filters, or whose transport has reported an
/// error before.
#[inline(never)]
fn read_with_extras<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    size: usize,
) -> Read {
    if let Some(error) = core.state.extras.take_read_error() {
        return Read::Failed(error);
    }
    let size = core.state.allowance(&mut io.services, Direction::Read, size);
    if size == 0 {
        Read::HeldUp
    } else if core.state.extras.has_filters() {
        open::read_once(core, transport, io, size)
    } else {
        read_shaped(core, transport, io, size)
    }
}

/// Like [`fill::read_once`], for a channel with traffic limits. Not inlined, so that the read of a
/// channel without extras has few registers to save.
#[inline(never)]
fn read_shaped<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    size: usize,
) -> Read {
    fill::read_once(core, transport, io, size)
}
