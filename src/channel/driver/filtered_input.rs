//! Input of a channel with filters: plaintext above, bytes of the wire below.
//!
//! Invariants: `active` is called once every filter is established, and no other callback before
//! that. Traffic, idle times and counters measure the wire. The filters' own output is sent right
//! after the read that caused it. A channel without filters does not use this module.

use super::{
    ChannelDriver, LoopIo, Next, Transport,
    filtered_output::fail,
    read::{Read, batch},
    writing,
};
use crate::{
    Result,
    channel::{
        core::ChannelCore,
        filter::Filters,
        services::LoopServices,
        shaping::Direction,
        state::{ChannelState, ReadDemand, Readiness},
        undecoded::InputMemory,
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
        let begun = self.core.state.extras.filters_mut().map_or(Ok(()), Filters::begin);
        // The handshake is read even if the handler has requested no read.
        self.core.state.status.set(ReadDemand::WANTED);
        match begun {
            Ok(()) => become_active(&mut self.core, &mut io.services),
            Err(error) => fail(&mut self.core, &mut io.services, error),
        }
        self.flush(io);
        self.next()
    }
}

/// Calls the handler's `active` once all filters are established.
fn become_active(core: &mut ChannelCore, services: &mut LoopServices) {
    let state = &mut core.state;
    if !state.status.is_active()
        && state.status.is_open()
        && state.extras.filters_mut().is_some_and(|f| f.is_established())
    {
        state.status.unset(ReadDemand::WANTED);
        core.handle_active(services);
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
    if core.state.extras.filters_mut().is_some_and(|filters| filters.input_has_ended()) {
        return Read::End;
    }
    let result = loop {
        let result = io.receive.read(&[], |room| {
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
        Ok(received) => received,
        Err(e) if e.kind() == ErrorKind::WouldBlock => return Read::Nothing,
        Err(e) => return Read::Failed(e),
    };
    let n = received.read;
    // A short read has emptied the transport, as it does without filters.
    let last =
        !(received.full || n == size || core.state.status.has(Readiness::HANG_UP.with(Readiness::URGENT)));
    io.metrics.bytes_read.add(n as u64);
    io.turn_bytes += n;
    let opened = open(&mut core.state, &received.data, io.services.now);
    drop(received);
    io.receive.give_back();
    // Replies, or an alert that names the error.
    if !core.state.extras.sealed_wire().is_empty() {
        writing::flush(core, transport, &mut io.services, &io.metrics);
    }
    match opened {
        Ok(plain) if n > 0 => deliver(core, transport, io, plain, last),
        Ok(_) => Read::End,
        Err(error) => {
            fail(core, &mut io.services, error);
            Read::Broken
        }
    }
}

/// Opens bytes of the wire. Empty input is the end of the wire.
fn open(state: &mut ChannelState, wire: &[u8], now: u64) -> Result<BytesMut> {
    if !wire.is_empty() {
        state.note_read(wire, now);
        state.note_moved(Direction::Read, wire.len());
    }
    let Some(filters) = state.extras.filters_mut() else { return Ok(BytesMut::new()) };
    if wire.is_empty() { filters.end_of_input().map(|()| BytesMut::new()) } else { filters.open(wire) }
}

/// Decodes plaintext after the kept bytes.
fn deliver<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    plain: BytesMut,
    last: bool,
) -> Read {
    become_active(core, &mut io.services);
    // The end that a filter has found is handled next.
    let ended = core.state.extras.filters_mut().is_some_and(|filters| filters.input_has_ended());
    let last = last && !ended;
    if plain.is_empty() {
        core.handle_filtered_input(&mut io.services);
        return Read::Kept { last };
    }
    let kept = core.state.partial.take();
    let input = if kept.is_empty() {
        plain
    } else {
        let mut grown = BytesMut::from(kept.into_bytes());
        grown.extend_from_slice(&plain);
        grown
    };
    let memory = InputMemory::Own(input.len());
    let LoopIo { services, metrics, .. } = io;
    let completed = core.handle_input(services, input.freeze(), memory, batch(last), |core, services| {
        writing::flush(core, transport, services, metrics);
    });
    core.handle_filtered_input(services);
    Read::Bytes { last, completed }
}
