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
use std::ops::ControlFlow;

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
    pub(super) fn read_burst(&mut self, io: &mut LoopIo, readable: bool, reported: bool) -> Next {
        self.core.state.status.unset(Readiness::CARRIED_OVER.with(Readiness::MAYBE_READABLE));
        if self.core.state.status.discards_input() && !self.core.state.completes_handshake() {
            if let Some(transport) = self.transport.as_mut().filter(|_| self.core.state.extras.has_filters())
            {
                open::resume_output(&mut self.core, transport, io);
                self.core.request_attention(&mut io.services);
            }
            self.discard_input(io);
            return self.next();
        }
        let Some(transport) = &mut self.transport else { return Next::Stay };
        let in_full = io.has_room();
        let incomplete = Burst::new(readable, reported).read(&mut self.core, transport, io);
        self.core.state.give_allowance_back(Direction::Read);
        self.finish_burst(io, in_full, incomplete)
    }

    /// Reads a burst, for an event in the usual case: bytes have arrived for an open channel, which
    /// has nothing else to do.
    // Inlined into the handling of an event, which is the hot path.
    #[inline(always)]
    pub(super) fn read_new(&mut self, io: &mut LoopIo) -> Next {
        let Some(transport) = &mut self.transport else { return Next::Stay };
        let (core, in_full) = (&mut self.core, io.has_room());
        let size = core.state.config.read_size;
        let read = if core.state.extras.are_used() {
            read_with_extras(core, transport, io, size)
        } else {
            fill::read_once(core, transport, io, size)
        };
        let incomplete = match read {
            // Usually there is one read.
            Read::Bytes { last: true, completed } if !core.state.status.has(Pending::UNDECODED) => !completed,
            read => Burst::new(true, true).read_behind(read, core, transport, io),
        };
        core.state.give_allowance_back(Direction::Read);
        self.finish_burst(io, in_full, incomplete)
    }

    /// Ends a burst of reads. Tries to send the reply immediately, while the socket and the bytes
    /// are in the processor's cache, and before other reads delay the peer.
    #[inline(always)]
    fn finish_burst(&mut self, io: &mut LoopIo, in_full: bool, incomplete: bool) -> Next {
        if incomplete && self.core.state.status.is_open() {
            self.core.handle_read_complete(&mut io.services);
        }
        if self.core.state.status.has(Pending::FLUSH) {
            self.flush(io);
        } else if self.core.state.outbound.pending_bytes() > 0 {
            self.write_once(io);
        }
        if self.core.state.status.is_done() && self.core.state.outbound.pending_bytes() == 0 {
            return Next::Stay;
        }
        self.request_more(io, in_full)
    }

    /// Requests the remaining work after a burst of reads.
    #[inline(never)]
    fn request_more(&mut self, io: &mut LoopIo, in_full: bool) -> Next {
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

/// A burst of reads, between two of them.
struct Burst {
    /// Whether the transport may hold bytes.
    readable: bool,
    /// Whether an event has reported input.
    reported: bool,
    /// Whether `read_complete` is still to be called.
    incomplete: bool,
    reads: usize,
}

impl Burst {
    fn new(readable: bool, reported: bool) -> Self {
        Burst { readable, reported, incomplete: false, reads: 0 }
    }

    /// Reads and decodes until the burst ends. Returns whether `read_complete` is still to be
    /// called.
    #[inline(never)]
    fn read<T: Transport>(mut self, core: &mut ChannelCore, transport: &mut T, io: &mut LoopIo) -> bool {
        loop {
            let state = &mut core.state;
            // At least one read is allowed, even if a limit is reached.
            if !state.pipeline_reads() && !state.filters_read()
                || self.reads > 0 && self.reads >= io.reads_allowed(state.config.reads_per_turn)
                || self.incomplete && io.services.io_is_over()
            {
                if self.readable {
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
                self.reads += usize::from(!deliver::resume(core, transport, io));
                self.incomplete = true;
                continue;
            }
            if !self.readable {
                break;
            }
            let size = state.config.read_size;
            let read = if !state.extras.are_used() {
                read_plain(core, transport, io, size)
            } else {
                read_with_extras(core, transport, io, size)
            };
            if self.note(read, core, io).is_break() {
                break;
            }
        }
        self.incomplete
    }

    /// Like [`Burst::read`], behind the first `read`.
    #[inline(never)]
    fn read_behind<T: Transport>(
        mut self,
        read: Read,
        core: &mut ChannelCore,
        transport: &mut T,
        io: &mut LoopIo,
    ) -> bool {
        if self.note(read, core, io).is_break() { self.incomplete } else { self.read(core, transport, io) }
    }

    /// Accounts for a read. Breaks if the burst ends with it.
    #[inline]
    fn note(&mut self, read: Read, core: &mut ChannelCore, io: &mut LoopIo) -> ControlFlow<()> {
        match read {
            Read::Bytes { last, completed } => {
                self.reads += 1;
                self.incomplete = !completed;
                if last {
                    // The handler may have requested another read of the kept bytes.
                    if !core.state.status.has(Pending::UNDECODED) {
                        return ControlFlow::Break(());
                    }
                    self.readable = false;
                }
                ControlFlow::Continue(())
            }
            Read::Kept { last } => {
                self.reads += 1;
                if last { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            }
            Read::Nothing if self.reported && self.reads == 0 => {
                io.metrics.reads_blocked.add(1);
                self.incomplete |= core.state.status.is_active();
                ControlFlow::Break(())
            }
            no_bytes => {
                self.incomplete = end_burst(core, io, no_bytes, self.incomplete);
                ControlFlow::Break(())
            }
        }
    }
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
        read_plain(core, transport, io, size)
    }
}

/// Calls [`fill::read_once`]. One copy for all reads but the first of a burst.
#[inline(never)]
fn read_plain<T: Transport>(core: &mut ChannelCore, transport: &mut T, io: &mut LoopIo, size: usize) -> Read {
    fill::read_once(core, transport, io, size)
}
