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
    ChannelDriver, LoopIo, Next, Transport, departure, filtered_input,
    read::{Read, batch},
    writing,
};
use crate::{
    Error,
    buffer::{RECEIVE_SIZE, Received},
    channel::{
        core::ChannelCore,
        links::Batch,
        shaping::Direction,
        state::{Pending, Readiness},
        undecoded::{InputMemory, Undecoded},
    },
};
use bytes::BytesMut;
use std::io::ErrorKind;

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
    #[inline]
    fn finish_burst(&mut self, io: &mut LoopIo, in_full: bool) -> Next {
        if self.core.state.status.has(Pending::FLUSH) {
            self.flush(io);
        } else if self.core.state.pending_bytes() > 0 {
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
            reads += usize::from(!decode_kept(core, transport, io));
            incomplete = true;
            continue;
        }
        if !readable {
            break;
        }
        let size = state.config.read_size;
        let read = if !state.extras.are_used() {
            read_once(core, transport, io, size)
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
        filtered_input::read_once(core, transport, io, size)
    } else {
        read_once(core, transport, io, size)
    }
}

/// Resumes an interrupted delivery with the kept bytes and the pipeline's queued messages. Returns
/// whether any byte was consumed.
fn decode_kept<T: Transport>(core: &mut ChannelCore, transport: &mut T, io: &mut LoopIo) -> bool {
    let input = core.state.partial.take().into_bytes();
    let before = input.len();
    let LoopIo { services, metrics, .. } = io;
    core.handle_input(services, input, InputMemory::Own(before), Batch::Part, |core, services| {
        writing::flush(core, transport, services, metrics);
    });
    core.state.partial.len() < before
}

/// Reads at most `size` bytes, once, and decodes them.
fn read_once<T: Transport>(core: &mut ChannelCore, transport: &mut T, io: &mut LoopIo, size: usize) -> Read {
    let kept = core.state.partial.take();
    // A small number of kept bytes is put in front of the new bytes. A larger number grows in a
    // buffer of the channel, so that a long message is not copied again with every read.
    let grows = kept.len() > RECEIVE_SIZE / 2;
    let prefix = if grows { &[][..] } else { &kept[..] };
    let result = loop {
        let result = io.receive.read(prefix, |room| {
            let limit = room.len().min(size);
            transport.read(&mut room[..limit])
        });
        io.metrics.reads.add(1);
        match result {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    let received = match result {
        Ok(received) if received.read > 0 => received,
        ended => {
            core.state.partial = kept;
            return match ended {
                Ok(received) => {
                    drop(received);
                    io.receive.give_back();
                    Read::End
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => Read::Nothing,
                Err(e) => Read::Failed(e),
            };
        }
    };
    let n = received.read;
    // A short read has emptied the transport, unless it ended at urgent data. Later bytes cause
    // another event. After the peer has hung up there may be no later event.
    const MORE: Readiness = Readiness::HANG_UP.with(Readiness::URGENT);
    let last = !(received.full || n == size || core.state.status.has(MORE));
    io.metrics.bytes_read.add(n as u64);
    io.turn_bytes += n;
    core.state.note_read(&received.data[prefix.len()..], io.services.now);
    core.state.note_moved(Direction::Read, n);
    let completed = if grows {
        decode_grown(core, transport, io, kept, received, last)
    } else {
        let LoopIo { services, metrics, .. } = io;
        let completed =
            core.handle_input(services, received.data, InputMemory::Lent, batch(last), |core, services| {
                writing::flush(core, transport, services, metrics);
            });
        io.receive.give_back();
        io.services.spare_box.give_back(kept);
        completed
    };
    Read::Bytes { last, completed }
}

/// Decodes a long message that grows in memory of the channel.
#[inline(never)]
fn decode_grown<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    kept: Undecoded,
    received: Received,
    last: bool,
) -> bool {
    let mut grown = BytesMut::from(kept.into_bytes());
    grown.extend_from_slice(&received.data);
    drop(received);
    io.receive.give_back();
    let memory = InputMemory::Own(grown.len());
    let LoopIo { services, metrics, .. } = io;
    core.handle_input(services, grown.freeze(), memory, batch(last), |core, services| {
        writing::flush(core, transport, services, metrics);
    })
}
