//! Input of a channel with filters: plaintext above, bytes of the wire below.
//!
//! The wire is read into a buffer of the loop, behind the bytes that are kept for the lowest
//! filter. The filters open it into the loop's read buffer, behind the bytes that are kept for the
//! codec.
//!
//! Invariants: nothing of the program is called before every filter is established. Traffic, idle
//! times and counters measure the wire. The filters' own output is sent right after the read that
//! caused it. A turn handles a bounded number of handshakes. A channel without filters does not use
//! this module.

use super::{
    ChannelDriver, LoopIo, Next, Transport,
    filtered_output::fail,
    read::{Read, batch},
    writing,
};
use crate::{
    Result,
    buffer::{RECEIVE_SIZE, Received},
    channel::{
        core::ChannelCore, filter::Opened, shaping::Direction, state::Readiness, undecoded::InputMemory,
    },
};
use bytes::BytesMut;
use std::io::ErrorKind;

impl<T: Transport> ChannelDriver<T> {
    /// Handles the connection of the transport: calls the handler's `active`, or starts to
    /// establish the filters.
    pub(crate) fn activate(&mut self, io: &mut LoopIo) -> Next {
        if !self.core.state.extras.has_filters() {
            return self.call(io, |core, services| core.handle_active(services));
        }
        self.core.begin_filters(&mut io.services);
        self.flush(io);
        self.next()
    }

    /// Starts the filter that a callback has added.
    pub(super) fn start_added_filter(&mut self, io: &mut LoopIo) {
        self.core.start_added_filter(&mut io.services);
        self.flush(io);
    }
}

/// Reads at most `size` bytes of the wire, once, and decodes the plaintext of the filters.
#[inline(never)]
pub(super) fn read_once<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    size: usize,
) -> Read {
    let Some(filters) = core.state.extras.filters_mut() else { return Read::Nothing };
    if filters.take_woken() {
        return open(core, transport, io, Input::Woken, false);
    }
    if filters.input_has_ended() {
        return Read::End;
    }
    if io.handshakes_left == 0 && !filters.is_established() {
        return Read::HeldUp;
    }
    if let Some(wire) = filters.take_kept_below() {
        return read_behind(core, transport, io, wire, size);
    }
    let kept = filters.kept_below().len();
    // The plaintext of most filters then fits behind the codec's bytes.
    let size = size.min(RECEIVE_SIZE - core.state.partial.len().min(RECEIVE_SIZE / 2));
    let mut wire = io.services.filter_buffers.take_wire(kept + size);
    wire[..kept].copy_from_slice(filters.kept_below());
    let (read, _) = read_once_into(core, transport, io, &mut wire, kept, size);
    io.services.filter_buffers.return_wire(wire);
    read
}

/// Reads behind the kept bytes `wire`. If the filter consumes none of them, none are copied: a long
/// message that arrives in many small pieces costs linear time.
fn read_behind<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    mut wire: Vec<u8>,
    size: usize,
) -> Read {
    let kept = wire.len();
    // The room is initialised each time, so it is in proportion to what is kept.
    let size = size.min(kept / 4);
    wire.resize(kept + size, 0);
    let (read, n) = read_once_into(core, transport, io, &mut wire, kept, size);
    if let Some(filters) = core.state.extras.filters_mut() {
        filters.give_kept_back(wire, kept, n);
    }
    read
}

/// Reads into `wire`, behind the first `kept` bytes. Returns the number of new bytes too.
fn read_once_into<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    wire: &mut [u8],
    kept: usize,
    size: usize,
) -> (Read, usize) {
    let result = loop {
        let result = transport.read(&mut wire[kept..kept + size]);
        io.metrics.reads.add(1);
        match result {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => break other,
        }
    };
    let n = match result {
        Ok(n) => n,
        Err(e) if e.kind() == ErrorKind::WouldBlock => return (Read::Nothing, 0),
        Err(e) => return (Read::Failed(e), 0),
    };
    if n == 0 {
        return (open(core, transport, io, Input::End, true), 0);
    }
    // A short read has emptied the transport, as it does without filters.
    let last = !(n == size || core.state.status.has(Readiness::HANG_UP.with(Readiness::URGENT)));
    io.metrics.bytes_read.add(n as u64);
    io.turn_bytes += n;
    core.state.note_read(&wire[kept..kept + n], io.services.now);
    core.state.note_moved(Direction::Read, n);
    if core.state.extras.filters_mut().is_some_and(|filters| !filters.is_established()) {
        io.handshakes_left = io.handshakes_left.saturating_sub(1);
    }
    (open(core, transport, io, Input::Wire(&mut wire[..kept + n]), last), n)
}

/// What the filters are called with.
enum Input<'a> {
    /// Bytes of the wire, after those that were kept.
    Wire(&'a mut [u8]),
    /// The end of the wire.
    End,
    /// Nothing: a waker was used.
    Woken,
}

/// Calls the filters and decodes what they have opened.
fn open<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    input: Input<'_>,
    last: bool,
) -> Read {
    let kept = core.state.partial.take();
    // As without filters: a small number of kept bytes precedes the new ones in the loop's buffer,
    // a larger number grows in memory of the channel.
    let grows = kept.len() > RECEIVE_SIZE / 2;
    let prefix = if grows { &[][..] } else { &kept[..] };
    let at_end = matches!(input, Input::End);
    let (mut result, mut spilled) = (Ok(()), Vec::new());
    let LoopIo { receive, services, .. } = &mut *io;
    let received = receive.read(prefix, |room| {
        let mut opened = Opened::new(room);
        result = core.state.with_filters(services, |filters, lent| match input {
            Input::Wire(wire) => filters.open(wire, &mut opened, lent),
            Input::End => filters.end_of_input(lent),
            Input::Woken => filters.resume(&mut opened, lent),
        });
        let (n, rest) = opened.finish();
        spilled = rest;
        Ok(n)
    });
    // Filters do no I/O, so the read cannot fail.
    let Ok(received) = received else { return Read::Broken };
    // Replies, or an alert that names the error.
    if !core.state.extras.sealed_wire().is_empty() {
        writing::flush(core, transport, &mut io.services, &io.metrics);
    }
    if received.read == 0 {
        drop(received);
        io.receive.give_back();
        core.state.partial = kept;
        return settle(core, io, result, at_end, last);
    }
    core.proceed_with_handshake(&mut io.services);
    core.state.log_opened(&received.data[received.data.len() - received.read..]);
    // The end that a filter has found is handled next.
    let ended = core.state.extras.filters_mut().is_some_and(|filters| filters.input_has_ended());
    let last = last && !ended;
    let completed = if grows || !spilled.is_empty() {
        let mut all = if grows { BytesMut::from(kept.into_bytes()) } else { BytesMut::new() };
        all.extend_from_slice(&received.data);
        all.extend_from_slice(&spilled);
        drop(received);
        io.receive.give_back();
        decode(core, transport, io, all.freeze(), None, last)
    } else {
        let Received { data, .. } = received;
        let completed = decode(core, transport, io, data, Some(InputMemory::Lent), last);
        io.receive.give_back();
        io.services.spare_box.give_back(kept);
        completed
    };
    if result.is_err() {
        return settle(core, io, result, at_end, last);
    }
    core.handle_filtered_input(&mut io.services);
    core.state.extras.drop_finished_filters();
    Read::Bytes { last, completed }
}

fn decode<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    input: bytes::Bytes,
    memory: Option<InputMemory>,
    last: bool,
) -> bool {
    let memory = memory.unwrap_or(InputMemory::Own(input.len()));
    let LoopIo { services, metrics, .. } = io;
    core.handle_input(services, input, memory, batch(last), |core, services| {
        writing::flush(core, transport, services, metrics);
    })
}

/// Continues after a call of the filters that has failed or opened nothing.
fn settle(core: &mut ChannelCore, io: &mut LoopIo, result: Result, at_end: bool, last: bool) -> Read {
    match result {
        Err(error) => {
            fail(core, &mut io.services, error);
            Read::Broken
        }
        Ok(()) if at_end => Read::End,
        Ok(()) => {
            core.proceed_with_handshake(&mut io.services);
            core.handle_filtered_input(&mut io.services);
            let ended = core.state.extras.filters_mut().is_some_and(|filters| filters.input_has_ended());
            core.state.extras.drop_finished_filters();
            Read::Kept { last: last && !ended }
        }
    }
}
