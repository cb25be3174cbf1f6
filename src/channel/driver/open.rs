//! Input of a channel with filters: plaintext above, bytes of the wire below.
//!
//! The wire is read into a buffer of the loop, behind room for the bytes that are kept for the
//! lowest filter. The filters open it into the loop's read buffer, behind the bytes that are kept
//! for the codec.
//!
//! Auto-read and requested reads control only delivery to the pipeline. Until all filters are
//! established, the filters control reading, and a waker makes the loop call them in any case.
//!
//! Invariants: nothing of the program is called before every filter is established. Traffic, idle
//! times and counters measure the wire. The filters' own output is sent right after the read that
//! caused it. A turn handles a bounded number of handshakes. A channel without filters does not use
//! this module.

use super::{
    ChannelDriver, Next,
    deliver::{Front, deliver, deliver_grown},
    fill::{fill, note_bytes},
    loop_io::LoopIo,
    read::{Read, batch},
    seal::fail,
    transport::Transport,
    writing,
};
use crate::{
    buffer::RECEIVE_SIZE,
    channel::{
        Readiness,
        core::ChannelCore,
        filter::{Opened, Resume},
    },
    error::Result,
};

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
    if let Some(resume) = filters.take_due() {
        return open(core, transport, io, Input::None(resume), false);
    }
    if filters.input_has_ended() {
        return Read::End;
    }
    let is_handshake = !filters.is_established();
    if is_handshake {
        if !io.has_handshake_share(filters.was_admitted) {
            return Read::HeldUp;
        }
        if let Err(refused) = core.admit_handshake(&io.services) {
            core.shed_handshake(&mut io.services, refused);
            return Read::Broken;
        }
    }
    let Some(filters) = core.state.extras.filters_mut() else { return Read::Nothing };
    // The filters may put the kept bytes in front of new ones. Many grow in memory of the channel.
    let kept = filters.kept_below();
    let front = if kept <= RECEIVE_SIZE / 2 { kept } else { 0 };
    // The plaintext of most filters then fits behind the codec's bytes.
    let partial = core.state.inbound.undecoded().len().min(RECEIVE_SIZE / 2);
    let size = size.min((RECEIVE_SIZE - partial - front).max(RECEIVE_SIZE / 4));
    let mut wire = io.services.filter_buffers.take_wire(front + size);
    let read = read_wire(core, transport, io, &mut wire[..front + size], front, is_handshake);
    io.services.filter_buffers.return_wire(wire);
    read
}

/// Reads into `wire`, behind the first `front` bytes, which are free to use. A read of a handshake
/// takes one of those of this turn.
fn read_wire<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    wire: &mut [u8],
    front: usize,
    is_handshake: bool,
) -> Read {
    match fill(transport, &io.metrics, &mut wire[front..]) {
        Ok(0) => open(core, transport, io, Input::End, true),
        Ok(n) => {
            let end = front + n;
            let full = end == wire.len();
            let last = note_bytes(core, io, &wire[..end], end - front, full);
            if is_handshake {
                io.handshakes_left = io.handshakes_left.saturating_sub(1);
            }
            let read = open(core, transport, io, Input::Wire(&mut wire[..end], front), last);
            if full && has_stopped_reading(core, &read) {
                // Bytes may wait behind the end that the filters have found, and cause no event.
                core.state.status.set(Readiness::MAYBE_READABLE);
            }
            read
        }
        Err(e) => Read::failed(e),
    }
}

/// Returns whether the wire is not read any more: a filter has failed, or has found its end.
fn has_stopped_reading(core: &ChannelCore, read: &Read) -> bool {
    matches!(read, Read::Broken)
        || core.state.extras.filters().is_some_and(|filters| filters.input_has_ended())
}

/// What the filters are called with.
enum Input<'a> {
    /// Bytes of the wire, behind room of this size.
    Wire(&'a mut [u8], usize),
    /// The end of the wire.
    End,
    /// Nothing.
    None(Resume),
}

/// Calls the filters and decodes the plaintext that they have opened.
fn open<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    input: Input<'_>,
    last: bool,
) -> Read {
    let kept = Front::take(core);
    let (mut result, mut spilled) = (Ok(()), Vec::new());
    let LoopIo { receive, services, .. } = &mut *io;
    let received = receive.read(kept.prefix(), |room| {
        let mut opened = Opened::new(room);
        result = core.state.with_filters(services, |filters, lent| match input {
            Input::Wire(wire, front) => filters.open(wire, front, &mut opened, lent),
            Input::End => filters.end_of_input(&mut opened, lent),
            Input::None(resume) => filters.resume(resume, &mut opened, lent),
        });
        let (n, rest) = opened.finish();
        spilled = rest;
        Ok(n)
    });
    // Filters do no I/O, so the read cannot fail.
    let Ok(received) = received else { return Read::Broken };
    // Replies, or an alert that names the error.
    if core.state.extras.has_sealed() {
        writing::flush(core, transport, &mut io.services, &io.metrics);
    }
    if received.read == 0 {
        drop(received);
        io.receive.give_back();
        kept.keep(core);
        return conclude(core, io, result, last);
    }
    core.proceed_with_handshake(&mut io.services);
    core.state.log_opened(&received.data[received.data.len() - received.read..]);
    if !spilled.is_empty() {
        core.state.log_opened(&spilled);
    }
    // The end that a filter has found is handled next.
    let ended = core.state.extras.filters_mut().is_some_and(|filters| filters.input_has_ended());
    let last = last && !ended;
    // An error of the filters precedes `read_complete`, also that of too many kept bytes.
    let batch = batch(last && result.is_ok() && !core.state.extras.filters_have_kept());
    let read = if spilled.is_empty() {
        deliver(core, transport, io, kept, received, last, batch)
    } else {
        deliver_grown(core, transport, io, kept, received, &spilled, last, batch)
    };
    if result.is_err() {
        return conclude(core, io, result, last);
    }
    core.handle_filtered_input(&mut io.services);
    core.state.extras.drop_finished_filters();
    read
}

/// Calls the filters of a channel whose input has ended or is discarded, if that is due: a filter
/// may have waited for its waker to seal output.
pub(super) fn resume_output<T: Transport>(core: &mut ChannelCore, transport: &mut T, io: &mut LoopIo) {
    let Some(filters) = core.state.extras.filters_mut().filter(|filters| !filters.has_failed()) else {
        return;
    };
    let Some(resume) = filters.take_due() else { return };
    let result = core.state.with_filters(&mut io.services, |filters, lent| {
        // Input would have nowhere to go.
        filters.resume(resume, &mut Opened::new(&mut []), lent)
    });
    match result {
        Ok(()) => core.proceed_with_handshake(&mut io.services),
        Err(error) => fail(core, &mut io.services, error),
    }
    writing::flush(core, transport, &mut io.services, &io.metrics);
}

/// Continues after a call of the filters that has failed or opened nothing.
fn conclude(core: &mut ChannelCore, io: &mut LoopIo, result: Result, last: bool) -> Read {
    match result {
        Err(error) => {
            fail(core, &mut io.services, error);
            Read::Broken
        }
        Ok(()) => {
            core.proceed_with_handshake(&mut io.services);
            core.handle_filtered_input(&mut io.services);
            let ended = core.state.extras.filters_mut().is_some_and(|filters| filters.input_has_ended());
            core.state.extras.drop_finished_filters();
            Read::Kept { last: last && !ended }
        }
    }
}
