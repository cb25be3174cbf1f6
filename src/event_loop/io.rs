//! Reading, writing and closing the socket of one channel.
//!
//! Always holds: a channel is read in bounded bursts, and what is left is remembered, since an edge-triggered poll will not tell
//! again; what it answers is tried with one write when it has been read, and so is what the kernel had refused when it takes
//! more; it is flushed at most once more in the turn unless it asks for more; its socket leaves the
//! poll before it is closed, or lingers there without it.
//! Runs on the loop's thread.

use super::{
    channel_slot::ChannelSlot,
    closing::{Ended, Leaving, Lingering},
    poll::Selector,
};
use crate::{
    Error,
    buffer::{Outbound, RECEIVE_SIZE, ReceiveBuffers},
    channel::{Action, Batch, DecodePass, Direction, Flags, InputMemory, LoopServices, driver::Ready},
    id::Key,
    log_throttle::{BROKEN, log_throttled},
    metrics::Metrics,
    transport::Stream,
};
use bytes::{Bytes, BytesMut};
use log::Level;
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, IoSlice},
    time::Duration,
};

/// Slices that one write takes; 64 of at least 4 KiB are more than a socket buffer usually holds.
const SLICES: usize = 64;

/// Bytes read in a turn after which each channel that is still to come gets one read only.
const TURN_BYTES: usize = 8 * 1024 * 1024;

/// Everything of a loop that handling one channel's I/O needs, besides the channel.
pub(crate) struct Io {
    pub(crate) selector: Selector,
    pub(crate) services: LoopServices,
    pub(crate) receive: ReceiveBuffers,
    /// Channels to read in the next turn without an event, and listeners to accept from.
    pub(crate) carried_over: VecDeque<Key>,
    /// Bytes read in this turn.
    pub(crate) turn_bytes: usize,
    pub(crate) listed: Listed,
    /// Channels that are closed, and for which `inactive` has not been called yet.
    pub(crate) inactive: Vec<Ended>,
    pub(crate) lingering: Lingering,
}

/// What was added to [`Io::carried_over`] in this turn.
#[derive(Default)]
pub(crate) struct Listed {
    all: usize,
    /// The first so many of them had their full share, before the bytes of the turn were used up.
    in_full: usize,
}

impl Io {
    /// Returns whether the last turn left ready sources without their share, because its time was up.
    pub(crate) fn begin_turn(&mut self) -> bool {
        let was_cut = self.services.io_time.was_cut();
        self.services.io_time.begin(self.services.now);
        let Listed { all, in_full } = std::mem::take(&mut self.listed);
        if std::mem::take(&mut self.turn_bytes) >= TURN_BYTES || was_cut {
            // Channels that had one read or none go before channels that had their full share.
            let begin = self.carried_over.len().saturating_sub(all);
            let listed = &mut self.carried_over.make_contiguous()[begin..];
            let in_full = in_full.min(listed.len());
            listed.rotate_left(in_full);
        }
        was_cut
    }

    /// Whether a source whose turn it is may have its full share.
    pub(crate) fn has_room(&self) -> bool {
        self.turn_bytes < TURN_BYTES
    }

    /// Has a source looked at in the next turn without an event; `in_full`: it has had its full share of this one.
    pub(crate) fn list(&mut self, key: Key, in_full: bool) {
        self.listed.all += 1;
        self.listed.in_full += usize::from(in_full);
        self.carried_over.push_back(key);
    }

    /// How often one channel may be read now. Once much was read in a turn, the others that are ready still have
    /// theirs, but no more than one read each: so the I/O of a turn has an end, however many there are.
    pub(super) fn reads_allowed(&self, reads_per_turn: usize) -> usize {
        if self.has_room() { reads_per_turn } else { 1 }
    }
}

impl ChannelSlot {
    /// An event from the poll: first what may be written, then what may be read.
    #[inline]
    pub(crate) fn handle_ready(&mut self, io: &mut Io, metrics: &Metrics, ready: Ready) {
        if ready.is_writable() && self.core.state.take(Flags::WRITE_BLOCKED) {
            self.write_once(io, metrics);
            self.core.list(&mut io.services);
        }
        if ready.is_priority() {
            self.core.state.set(Flags::URGENT);
        }
        let hang_up = ready.is_hang_up();
        if hang_up {
            self.core.state.set(Flags::HANG_UP);
        }
        if ready.is_readable() || hang_up {
            // One that is listed is read when its turn comes: twice would be more than its share. Should it close before that,
            // there is something unread.
            if self.core.state.has(Flags::LISTED_TO_READ) {
                self.core.state.set(Flags::MAYBE_READABLE);
            } else {
                self.read(io, metrics);
            }
        }
    }

    /// Records an event that this turn has no time for. The channel is flushed at the end of the turn and read in the
    /// next turn.
    pub(crate) fn defer(&mut self, io: &mut Io, ready: Ready) {
        let state = &mut self.core.state;
        if ready.is_writable() && state.take(Flags::WRITE_BLOCKED) {
            state.want_attention(&mut io.services);
        }
        if ready.is_priority() {
            state.set(Flags::URGENT);
        }
        let hang_up = ready.is_hang_up();
        if hang_up {
            state.set(Flags::HANG_UP);
        }
        if ready.is_readable() || hang_up {
            state.set(Flags::MAYBE_READABLE);
            // Also if the channel does not read now: an error after the end of the input is only noticed by a read.
            if !state.has(Flags::LISTED_TO_READ) {
                state.set(Flags::LISTED_TO_READ);
                io.list(state.key(), false);
            }
        }
    }

    /// Reads until nothing is left, the budget of this turn is spent, or the channel wants no more.
    pub(crate) fn read(&mut self, io: &mut Io, metrics: &Metrics) {
        self.core.state.unset(Flags::LISTED_TO_READ.with(Flags::MAYBE_READABLE));
        if self.core.state.has(Flags::INPUT_ENDED.with(Flags::CLOSING)) {
            self.read_for_nothing(io, metrics);
            return;
        }
        let in_full = io.has_room();
        let mut complete = false;
        let mut reads = 0;
        loop {
            let state = &mut self.core.state;
            let wanted = state.may_read();
            if !state.is_open()
                || !wanted
                || reads >= io.reads_allowed(state.config.reads_per_turn)
                || complete && io.services.io_is_over()
            {
                state.set(Flags::MAYBE_READABLE);
                break;
            }
            if state.has(Flags::UNDECODED) {
                // A pass without progress in bytes counts as a read, so that queued messages of the
                // pipeline are bounded per turn.
                reads += usize::from(!self.decode_kept(io, metrics));
                complete = true;
                continue;
            }
            let size = state.config.read_size;
            let size = state.allowance(&mut io.services, Direction::Read, size);
            if size == 0 {
                state.set(Flags::MAYBE_READABLE);
                break;
            }
            match self.read_once(io, metrics, size) {
                Read::Bytes { last, told } => {
                    reads += 1;
                    complete = !told;
                    if last {
                        break;
                    }
                }
                Read::Nothing => {
                    metrics.reads_blocked.add(1);
                    complete |= reads == 0;
                    break;
                }
                Read::End => {
                    if complete {
                        self.core.handle_read_complete(&mut io.services);
                    }
                    self.core.handle_end(&mut io.services);
                    complete = false;
                    break;
                }
                Read::Failed(e) => {
                    if complete {
                        self.core.handle_read_complete(&mut io.services);
                    }
                    self.core.handle_io_error(&mut io.services, Error::io("reading", e));
                    complete = false;
                    break;
                }
                Read::Closed => return,
            }
        }
        self.core.state.give_allowance_back(Direction::Read);
        if complete && self.core.state.is_open() {
            self.core.handle_read_complete(&mut io.services);
        }
        self.write_once(io, metrics);
        self.settle(io, metrics);
        self.core.list(&mut io.services);
        self.list_to_read(io, in_full);
    }

    /// Reads where the handler gets nothing: a closing channel discards its input, and after the
    /// end of the stream a read can only find that the connection is broken.
    #[cold]
    fn read_for_nothing(&mut self, io: &mut Io, metrics: &Metrics) {
        let size = self.core.state.config.read_size;
        if !self.core.state.has(Flags::INPUT_ENDED) {
            self.discard_input(io);
            self.settle(io, metrics);
        } else if self.core.state.is_open()
            && let Read::Failed(e) = self.read_once(io, metrics, size)
        {
            self.core.handle_io_error(&mut io.services, Error::io("reading", e));
            self.settle(io, metrics);
        }
    }

    /// Remembers that the channel is to be read without an event.
    fn list_to_read(&mut self, io: &mut Io, in_full: bool) {
        let state = &mut self.core.state;
        if state.wants_read() && !state.has(Flags::LISTED_TO_READ) {
            state.set(Flags::LISTED_TO_READ);
            io.list(state.key(), in_full);
        }
    }

    /// Resumes an interrupted delivery with the kept bytes and the pipeline's queued messages. Returns
    /// whether any byte was taken.
    fn decode_kept(&mut self, io: &mut Io, metrics: &Metrics) -> bool {
        let mut input = self.core.state.partial.take().into_bytes();
        let before = input.len();
        let reading = self.core.begin_input(&io.services, InputMemory::Own(before));
        self.decode(io, metrics, &mut input, false);
        let took = input.len() < before;
        self.core.end_input(&mut io.services, reading, input);
        took
    }

    /// One read of `size` bytes at most.
    fn read_once(&mut self, io: &mut Io, metrics: &Metrics, size: usize) -> Read {
        let Some(stream) = &mut self.stream else { return Read::Closed };
        let kept = self.core.state.partial.take();
        // A little that was kept goes in front of what is read now. A lot grows in a buffer of the channel's own,
        // so that a long message is not copied again with every read.
        let grows = kept.len() > RECEIVE_SIZE / 2;
        let prefix = if grows { &[][..] } else { &kept[..] };
        let result = loop {
            let result = io.receive.read(prefix, |room| {
                let limit = room.len().min(size);
                stream.read(&mut room[..limit])
            });
            metrics.reads.add(1);
            match result {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let mut received = match result {
            Ok(received) if received.read > 0 => received,
            ended => {
                self.core.state.partial = kept;
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
        // A short read has emptied the socket, unless it has come to urgent data; what comes later makes a new event. Once the
        // peer has hung up there may be no later event.
        const MORE: Flags = Flags::HANG_UP.with(Flags::URGENT);
        let last = !(received.full || n == size || self.core.state.has(MORE));
        metrics.bytes_read.add(n as u64);
        io.turn_bytes += n;
        // In front of what was read now stands what was kept.
        self.core.state.note_read(&received.data[prefix.len()..], io.services.now);
        self.core.state.note_moved(Direction::Read, n);
        let told;
        if grows {
            let mut grown = BytesMut::from(kept.into_bytes());
            grown.extend_from_slice(&received.data);
            drop(received);
            io.receive.give_back();
            let mut input = grown.freeze();
            let reading = self.core.begin_input(&io.services, InputMemory::Own(input.len()));
            told = self.decode(io, metrics, &mut input, last);
            self.core.end_input(&mut io.services, reading, input);
        } else {
            let reading = self.core.begin_input(&io.services, InputMemory::Lent);
            told = self.decode(io, metrics, &mut received.data, last);
            self.core.end_input(&mut io.services, reading, received.data);
            io.receive.give_back();
            io.services.spare_box.give_back(kept);
        }
        Read::Bytes { last, told }
    }

    /// Whether the handler has heard that these bytes, which are the `last` for now, are all.
    #[inline]
    fn decode(&mut self, io: &mut Io, metrics: &Metrics, input: &mut Bytes, last: bool) -> bool {
        let mut pass = DecodePass::new(if last { Batch::Complete } else { Batch::Part });
        loop {
            self.core.handle_input(&mut io.services, input, &mut pass);
            if !self.core.state.take(Flags::FLUSH) {
                return pass.told();
            }
            self.flush(io, metrics);
            if pass.told() || input.is_empty() && !self.core.state.has(Flags::UNDECODED) {
                return pass.told();
            }
        }
    }

    /// Tries at once to send what waits: what was written in answer to what was read, while the socket and the bytes are in
    /// the processor's cache, and before others are read that would keep the peer waiting; what the kernel had refused. What it
    /// does not take with one write is sent at the end of the turn.
    #[inline]
    fn write_once(&mut self, io: &mut Io, metrics: &Metrics) {
        if self.core.state.pending_bytes() > 0 && !self.core.state.has(Flags::FLUSH) {
            self.flush_within(io, metrics, 1);
            // A callback of this write that asked for more has it at the end of the turn: else who fills up again each time
            // would have a flush's share here, and another one there.
            self.core.state.unset(Flags::FLUSH);
        }
    }

    /// Sends what waits, until it is gone, the kernel takes no more, or the budget of this turn is spent. What is to happen
    /// once it is gone is seen to at the end of the turn.
    pub(crate) fn flush(&mut self, io: &mut Io, metrics: &Metrics) {
        self.send(io, metrics);
        let state = &mut self.core.state;
        if state.has(Flags::CLOSING) || state.wants_to_end_output() {
            state.want_attention(&mut io.services);
        }
    }

    /// The same for who sees to that himself.
    fn send(&mut self, io: &mut Io, metrics: &Metrics) {
        self.flush_within(io, metrics, self.core.state.config.writes_per_turn);
        // What was asked for in a callback of this flush it has done, and what is left has its share in the next turn: or a
        // writer that fills up again each time would keep everybody waiting.
        self.core.state.unset(Flags::FLUSH);
    }

    /// The same with so many writes at most.
    fn flush_within(&mut self, io: &mut Io, metrics: &Metrics, most_writes: usize) {
        let mut writes = 0;
        loop {
            let Some(stream) = &mut self.stream else { return };
            let state = &mut self.core.state;
            if state.has(Flags::WRITE_BLOCKED.with(Flags::CLOSE_NOW)) || state.is_held_up(Direction::Write) {
                return;
            }
            let pending = state.pending_bytes();
            if pending == 0 || writes == most_writes {
                break;
            }
            let most = state.allowance(&mut io.services, Direction::Write, pending);
            let Some(out) = state.outbound().filter(|_| most > 0) else { break };
            let result = if out.is_contiguous() {
                let front = out.front();
                stream.write(&front[..front.len().min(most)])
            } else {
                write_slices(stream, out, most)
            };
            writes += 1;
            metrics.writes.add(1);
            match result {
                Ok(n) if n > 0 => {
                    metrics.bytes_written.add(n as u64);
                    self.core.handle_written(&mut io.services, n);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    metrics.writes_blocked.add(1);
                    state.set(Flags::WRITE_BLOCKED);
                    break;
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                failed => {
                    let e = failed.err().unwrap_or_else(|| ErrorKind::WriteZero.into());
                    self.core.handle_io_error(&mut io.services, Error::io("writing", e));
                    return;
                }
            }
        }
        let state = &mut self.core.state;
        state.give_allowance_back(Direction::Write);
        let waits = state.has(Flags::WRITE_BLOCKED) || state.is_held_up(Direction::Write);
        let spent = state.pending_bytes() > 0 && !waits;
        if spent {
            state.want_attention(&mut io.services);
        }
    }

    /// After a callback: what cannot wait until the end of the turn.
    #[inline]
    pub(crate) fn settle(&mut self, io: &mut Io, metrics: &Metrics) {
        if self.core.state.take(Flags::FLUSH) {
            self.flush(io, metrics);
        }
        if self.core.state.has(Flags::CLOSE_NOW) {
            self.close(io, metrics);
        }
    }

    /// At the end of a turn: sends what was written in it, and closes what is to be closed.
    pub(crate) fn attend(&mut self, io: &mut Io, metrics: &Metrics) {
        self.core.state.unset(Flags::LISTED.with(Flags::FLUSH));
        match self.core.wish() {
            Action::Nothing => {}
            Action::Flush => self.send(io, metrics),
            Action::FlushAndEnd => {
                self.send(io, metrics);
                self.end_output(io);
            }
            Action::FlushAndClose => {
                self.send(io, metrics);
                if self.core.state.pending_bytes() == 0 {
                    self.close(io, metrics);
                } else {
                    self.core.state.arm_close(&mut io.services);
                    let listed = self.core.state.has(Flags::LISTED_TO_READ);
                    if self.core.state.has(Flags::MAYBE_READABLE) && !listed {
                        self.read(io, metrics);
                    }
                }
            }
            Action::CloseNow => self.close(io, metrics),
        }
        self.list_to_read(io, false);
    }

    /// Tells the peer that no more comes, once all is sent.
    fn end_output(&mut self, io: &mut Io) {
        if self.core.state.pending_bytes() > 0 || !self.core.state.is_open() {
            return;
        }
        let Some(stream) = &mut self.stream else { return };
        match stream.shutdown_write() {
            Ok(()) => self.core.handle_output_ended(&mut io.services),
            Err(e) => self.core.handle_io_error(&mut io.services, Error::io("ending the output", e)),
        }
    }

    /// Closes the channel and its socket; after a graceful close the socket may linger. `inactive`
    /// is called later in the turn, never from here.
    pub(crate) fn close(&mut self, io: &mut Io, metrics: &Metrics) {
        let Some(stream) = self.stream.take() else { return };
        let reset = self.core.state.has(Flags::RESET).then_some(Duration::ZERO);
        let linger = reset.or(self.core.state.config.linger).filter(|_| stream.can_linger());
        if reset.is_some()
            && linger.is_some()
            && let Err(e) = stream.linger(Duration::ZERO)
        {
            let (services, id) = (&io.services, self.core.state.id());
            log_throttled!(services, BROKEN, Level::Debug, "channel {id}: closed without a reset: {e}");
        }
        // The end of the stream would come before the reset, and the peer take it for a good one.
        let resets = linger.is_some_and(|time| time.is_zero());
        // A stream that was read to its end has nothing more: there to close it is to end it.
        let unread = !self.core.state.has(Flags::HANG_UP) || self.core.state.has(Flags::MAYBE_READABLE);
        let gracefully = unread && !self.core.state.has(Flags::CLOSE_NOW) && !resets;
        let kept = if gracefully { self.begin_lingering(stream, io, linger.is_none()) } else { Err(stream) };
        let socket = match kept {
            Ok(socket) => Leaving::Lingers(socket),
            Err(mut stream) => {
                if let Err(e) = io.selector.deregister(stream.source()) {
                    let (services, id) = (&io.services, self.core.state.id());
                    log_throttled!(services, BROKEN, Level::Debug, "channel {id}: leaving the poll: {e}");
                }
                match linger.filter(|time| !time.is_zero()) {
                    Some(time) => Leaving::Blocks(stream, time),
                    None => Leaving::Closed,
                }
            }
        };
        metrics.channels.set(metrics.channels.read().saturating_sub(1));
        metrics.channels_closed.add(1);
        let unsent = self.core.state.pending_bytes();
        if unsent > 0 {
            metrics.closes_unsent.add(1);
            metrics.bytes_unsent.add(unsent as u64);
        }
        self.core.handle_closed(&mut io.services);
        io.inactive.push(Ended { key: self.core.state.key(), socket });
    }
}

enum Read {
    /// Some came, the `last` ones for now; the handler may have heard that already.
    Bytes {
        last: bool,
        told: bool,
    },
    Nothing,
    End,
    Failed(io::Error),
    Closed,
}

/// Writes what lies in several pieces. A function of its own, so that who writes one piece does not pay for the stack.
#[inline(never)]
fn write_slices(stream: &mut Stream, out: &Outbound, most: usize) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let n = out.slices(&mut slices, most);
    stream.write_vectored(&slices[..n])
}
