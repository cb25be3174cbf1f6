//! The state of a channel that every callback may touch.
//!
//! Always holds: an idle channel owns no buffer (`outbound` and `partial` are empty); once `CLOSED` is set
//! nothing is written or read any more. Runs on the channel's loop. It owns neither socket nor pipeline.

use super::{
    config::{ChannelConfig, Overflow},
    extras::Extras,
    handle::ChannelShared,
    idle::Traffic,
    outbound_budget::{OUTBOUND, OutboundLease},
    packed_address::PackedAddress,
    pending_writes::PendingWrites,
    services::LoopServices,
    shaping::Direction,
    stats::Counts,
    timers::Timers,
    undecoded::Undecoded,
    watch::Watch,
};
use crate::{
    Error, Result,
    buffer::{Outbound, OutboundMark},
    id::{ChannelId, Key},
    log_throttle::{UNSENT, log_throttled},
};
use bytes::Bytes;
use log::Level;
use std::{net::SocketAddr, sync::Arc};

/// Facts and wishes, one bit each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Flags(u32);

/// Gives each flag a bit of its own.
macro_rules! flags {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "counts the names")]
        enum Bit { $($name,)* }

        impl Flags {
            $($(#[$doc])* pub(crate) const $name: Flags = Flags(1 << Bit::$name as u32);)*
        }
    };
}

flags! {
    /// `active` was called.
    ACTIVE,
    /// Bytes are read as they come.
    AUTO_READ,
    /// One read was asked for and has not happened yet.
    READ_WANTED,
    /// The read that was asked for is going on.
    READ_GRANTED,
    /// Close after what was written is sent.
    CLOSING,
    /// Close without sending more.
    CLOSE_NOW,
    /// The socket is closed.
    CLOSED,
    /// Flush before anything else.
    FLUSH,
    /// Between the marks: see `WaterMark`.
    WRITABLE,
    /// In the loop's attention list.
    LISTED,
    /// The socket may hold bytes that no further event will announce.
    MAYBE_READABLE,
    /// The kernel took less than was offered; wait for the event that says it takes more.
    WRITE_BLOCKED,
    /// The peer has ended its stream, or an event said that it has.
    HANG_UP,
    /// The last decoding failed without taking a byte.
    STUCK,
    /// The close timeout is armed.
    CLOSE_ARMED,
    /// `partial` or the pipeline may hold whole messages: decoding was interrupted. Set while messages are delivered, it
    /// stops the delivery: the time for I/O in this turn is used up.
    UNDECODED,
    /// In the loop's list of channels to be read in the next turn without an event.
    CARRIED_OVER,
    /// A scheduled task was dropped because there are too many; the handler is to be told.
    TASK_REFUSED,
    /// It has, or had, time limits.
    LIMITED,
    /// The output is to end after what was written; writes fail from then on.
    END_OUTPUT,
    /// The peer has been told that no more comes.
    OUTPUT_ENDED,
    /// The peer has ended its stream, and the handler knows.
    INPUT_ENDED,
    /// The message just written was dropped.
    DROPPED,
    /// The entry on the wheel may be too late.
    ARM,
    /// The codec took bytes in this read.
    MOVED,
    /// The program holds too much of the input.
    HELD,
    /// Too much waits to be sent, and what comes would only be answered.
    CHOKED,
    /// Close with a reset, so that the peer does not take the end of the stream for a good one.
    RESET,
    /// The handler was given a message, ever.
    SERVED,
    /// Another pipeline waits to take over.
    REPLACED,
    /// As `READ_GRANTED`, for one message.
    ONE_GRANTED,
    /// The peer has sent urgent data, ever: a read ends there, whatever is behind it.
    URGENT,
}

impl Flags {
    /// What ends the delivery of messages at once.
    const STOP: Flags = Flags(
        Self::CLOSING.0
            | Self::CLOSE_NOW.0
            | Self::CLOSED.0
            | Self::FLUSH.0
            | Self::REPLACED.0
            | Self::UNDECODED.0,
    );

    /// What lets messages through while auto-read is off.
    const GRANTED: Flags = Flags(Self::READ_GRANTED.0 | Self::ONE_GRANTED.0);

    /// What pauses the reading of a channel that reads by itself.
    const PAUSE: Flags = Flags(Self::HELD.0 | Self::CHOKED.0);

    pub(crate) const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// Public only in the signatures of the pipeline's links, which nobody outside can name.
pub struct ChannelState {
    id: ChannelId,
    flags: Flags,
    pub(crate) traffic: Traffic,
    pub(crate) counts: Counts,
    pub(super) outbound: Option<Box<OutboundLease>>,
    /// Bytes that came and were not decoded; the memory is the channel's own.
    pub(crate) partial: Undecoded,
    pub(crate) config: Arc<ChannelConfig>,
    /// Made when somebody asks for a handle.
    pub(crate) shared: Option<Arc<ChannelShared>>,
    /// Messages that wait, where somebody asks; see `pending_writes`.
    pub(crate) pending_writes: Option<Box<PendingWrites>>,
    /// What it waits for by itself; see `watch`.
    pub(crate) watch: Option<Box<Watch>>,
    /// Tasks of the handler that wait for their time; see `timers`.
    pub(crate) timers: Option<Box<Timers>>,
    /// What most channels do without; see `extras`.
    pub(crate) extras: Option<Box<Extras>>,
    peer_address: PackedAddress,
    local_address: PackedAddress,
}

impl ChannelState {
    pub(crate) fn new(
        id: ChannelId,
        config: Arc<ChannelConfig>,
        now: u64,
        local: Option<SocketAddr>,
        peer: Option<SocketAddr>,
    ) -> Self {
        let mut flags = Flags::WRITABLE;
        if config.auto_read {
            flags = flags.with(Flags::AUTO_READ);
        }
        ChannelState {
            id,
            flags,
            traffic: Traffic { read: now, written: now },
            counts: Counts::new(now),
            outbound: None,
            partial: Undecoded::default(),
            pending_writes: Self::first_pending_writes(&config),
            config,
            shared: None,
            watch: None,
            timers: None,
            extras: None,
            peer_address: PackedAddress::pack(peer),
            local_address: PackedAddress::pack(local),
        }
    }

    pub(crate) fn id(&self) -> ChannelId {
        self.id
    }

    pub(crate) fn local_address(&self) -> Option<SocketAddr> {
        self.local_address.unpack()
    }

    pub(crate) fn peer_address(&self) -> Option<SocketAddr> {
        self.peer_address.unpack()
    }

    pub(crate) fn key(&self) -> Key {
        self.id.key
    }

    // ---- flags ---------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn has(&self, any: Flags) -> bool {
        self.flags.0 & any.0 != 0
    }

    #[inline]
    pub(crate) fn set(&mut self, flags: Flags) {
        self.flags.0 |= flags.0;
    }

    #[inline]
    pub(crate) fn unset(&mut self, flags: Flags) {
        self.flags.0 &= !flags.0;
    }

    /// Unsets `flag`; whether it was set.
    #[inline]
    pub(crate) fn take(&mut self, flag: Flags) -> bool {
        let was = self.has(flag);
        self.unset(flag);
        was
    }

    /// Whether the channel takes writes.
    #[inline]
    pub(crate) fn is_open(&self) -> bool {
        !self.has(Flags::CLOSING.with(Flags::CLOSE_NOW).with(Flags::CLOSED))
    }

    /// Whether messages may be handed to the handler.
    #[inline]
    pub(crate) fn may_deliver(&self) -> bool {
        const LOOKED_AT: Flags = Flags(Flags::STOP.0 | Flags::PAUSE.0 | Flags::AUTO_READ.0);
        // One comparison for the usual case.
        self.flags.0 & LOOKED_AT.0 == Flags::AUTO_READ.0
            || !self.has(Flags::STOP) && (self.has(Flags::GRANTED) || self.reads_by_itself())
    }

    /// Whether the handler may hear that all is read right behind a message: nothing that it did asks for something else
    /// to happen before, and nobody logs the order of its callbacks.
    #[inline]
    pub(crate) fn may_complete(&self) -> bool {
        const ASKED: Flags = Flags(Flags::STOP.0 | Flags::GRANTED.0 | Flags::PAUSE.0 | Flags::TASK_REFUSED.0);
        const USUAL: Flags = Flags(Flags::AUTO_READ.0 | Flags::SERVED.0);
        self.flags.0 & (ASKED.0 | USUAL.0) == USUAL.0 && self.extras.is_none() && !self.has_flipped()
    }

    /// Whether the socket may be read.
    #[inline]
    pub(crate) fn may_read(&self) -> bool {
        self.has(Flags::READ_WANTED) || self.reads_by_itself()
    }

    /// Whether bytes are read as they come.
    #[inline]
    fn reads_by_itself(&self) -> bool {
        self.has(Flags::AUTO_READ) && !self.has(Flags::PAUSE)
    }

    /// Whether there is something to do for the driver besides sending what waits.
    #[inline]
    pub(crate) fn wants_driver(&self) -> bool {
        const ALWAYS: Flags =
            Flags(Flags::CLOSING.0 | Flags::CLOSE_NOW.0 | Flags::FLUSH.0 | Flags::READ_WANTED.0);
        self.has(ALWAYS) || self.wants_read() || self.wants_to_end_output()
    }

    /// Whether there are bytes, here or in the socket, that may be read now and that no event will announce.
    #[inline]
    pub(crate) fn wants_read(&self) -> bool {
        (self.has(Flags::UNDECODED) || self.has(Flags::MAYBE_READABLE) && !self.is_held_up(Direction::Read))
            && self.may_read()
            && !self.has(Flags::INPUT_ENDED)
            && self.is_open()
    }

    /// Whether the peer is still to be told that no more comes.
    #[inline]
    pub(crate) fn wants_to_end_output(&self) -> bool {
        self.has(Flags::END_OUTPUT) && !self.has(Flags::OUTPUT_ENDED)
    }

    /// No more is written after what waits.
    pub(crate) fn request_end_of_output(&mut self) {
        if self.extras.is_some() && !self.has(Flags::END_OUTPUT) {
            self.log_closing(Flags::END_OUTPUT);
        }
        self.set(Flags::END_OUTPUT);
        if let Some(shared) = &self.shared {
            shared.set_output_ended();
        }
    }

    pub(crate) fn request_close(&mut self) {
        self.begin_close(Flags::CLOSING);
    }

    pub(crate) fn request_close_now(&mut self) {
        self.begin_close(Flags::CLOSE_NOW);
    }

    pub(crate) fn request_reset(&mut self) {
        self.set(Flags::RESET);
        self.begin_close(Flags::CLOSE_NOW);
    }

    fn begin_close(&mut self, how: Flags) {
        if self.extras.is_some() && !self.has(how.with(Flags::CLOSED)) {
            self.log_closing(how);
        }
        self.set(how);
        if let Some(shared) = &self.shared {
            shared.set_closing();
        }
    }

    pub(crate) fn set_auto_read(&mut self, on: bool) {
        if on {
            self.set(Flags::AUTO_READ);
        } else {
            self.unset(Flags::AUTO_READ.with(Flags::READ_WANTED).with(Flags::GRANTED));
        }
    }

    /// A message goes to the handler. If it is the one that was asked for, no other follows.
    #[inline]
    pub(crate) fn note_message(&mut self) {
        const ENDED: Flags = Flags::STUCK.with(Flags::ONE_GRANTED);
        // Looked at first: a store for each message would hold up the loads of the other flags.
        if self.has(ENDED) {
            self.unset(ENDED);
        }
    }

    /// A read that was asked for is used up by the bytes that are to be decoded now.
    pub(crate) fn grant_read(&mut self) {
        if self.take(Flags::READ_WANTED) {
            let one = self.config.one_message_per_read;
            self.set(if one { Flags::ONE_GRANTED } else { Flags::READ_GRANTED });
        }
    }

    /// The bytes of a read that was asked for are decoded. If they brought no message it is still asked for.
    pub(crate) fn end_grant(&mut self, brought_none: bool) {
        if self.has(Flags::GRANTED) && brought_none && !self.reads_by_itself() {
            self.set(Flags::READ_WANTED);
        }
        self.unset(Flags::GRANTED);
    }

    // ---- outbound ------------------------------------------------------------------------------------

    /// The buffer to encode into.
    ///
    /// # Errors
    /// If the channel is closed or closing.
    #[inline]
    pub(crate) fn outbound_for_write(&mut self) -> Result<&mut Outbound> {
        if !self.is_open() || self.has(Flags::END_OUTPUT) {
            return Err(Error::Closed);
        }
        Ok(&mut self.outbound.get_or_insert_default().buffer)
    }

    /// Appends a message that is encoded already.
    ///
    /// # Errors
    /// If the channel is closed or closing, or has no room.
    #[inline]
    pub(crate) fn write_encoded(&mut self, bytes: &Bytes) -> Result {
        let has_room = self.outbound.as_ref().is_some_and(|loan| loan.has_certain_room(bytes.len()));
        let output = self.outbound_for_write()?;
        if has_room {
            output.put_shared(bytes);
            return Ok(());
        }
        let mark = output.mark();
        output.put_shared(bytes);
        if self.has_outbound_room(mark) { Ok(()) } else { self.take_back(mark) }
    }

    #[cold]
    fn take_back(&mut self, mark: OutboundMark) -> Result {
        self.rollback_outbound(mark);
        Err(self.outbound_is_full())
    }

    /// From here on the links write to a buffer that is not the channel's, without a limit; returns the channel's.
    pub(crate) fn begin_apart(&mut self) -> Option<Box<OutboundLease>> {
        let mut apart: Box<OutboundLease> = Box::default();
        apart.lift_limit();
        self.outbound.replace(apart)
    }

    /// The channel has its buffer back; returns the other one.
    pub(crate) fn end_apart(&mut self, own: Option<Box<OutboundLease>>) -> Outbound {
        std::mem::replace(&mut self.outbound, own).map_or_else(Outbound::new, |apart| apart.buffer)
    }

    #[inline]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.outbound.as_ref().map_or(0, |loan| loan.buffer.len())
    }

    /// Takes back what was written since `mark`.
    pub(crate) fn rollback_outbound(&mut self, mark: OutboundMark) {
        if let Some(loan) = &mut self.outbound {
            loan.buffer.rollback(mark);
        }
    }

    pub(crate) fn outbound(&self) -> Option<&Outbound> {
        self.outbound.as_ref().map(|loan| &loan.buffer)
    }

    /// Makes sure that a callback which writes finds a buffer, borrowed from the loop, and knows how much may wait in it.
    #[inline]
    pub(crate) fn borrow_outbound(&mut self, services: &mut LoopServices) {
        let loan = self.outbound.get_or_insert_with(|| services.lease_outbound());
        loan.now = services.now;
        services.outbound.allow(loan, &self.config);
    }

    /// Tells the loop what waits in the buffer, and gives it back if nothing does.
    #[inline]
    pub(crate) fn return_outbound(&mut self, services: &mut LoopServices) {
        let Some(loan) = &mut self.outbound else { return };
        if !loan.buffer.is_empty() {
            services.outbound.count(loan);
        } else if let Some(loan) = self.outbound.take() {
            services.return_outbound(loan);
        }
    }

    /// Bytes came from the socket.
    #[inline]
    pub(crate) fn note_read(&mut self, bytes: &[u8], now: u64) {
        if self.counts.bytes_read == 0 {
            self.note_first_byte();
        }
        self.traffic.read = now;
        self.counts.bytes_read += bytes.len() as u64;
        self.log_read(bytes);
    }

    /// The kernel took `n` bytes.
    pub(crate) fn consume_outbound(&mut self, n: usize, now: u64) {
        self.log_written(n);
        // Also what a stage has written: of a message that goes out now the rest must be known to have begun.
        if self.pending_writes.is_some() {
            self.enter_written();
        }
        if let Some(loan) = &mut self.outbound {
            loan.buffer.consume(n);
        }
        if n > 0 {
            self.note_wire_written(n, now);
            self.note_taken(n);
            self.confirm_taken(n);
        }
    }

    /// The transport took `n` bytes of the wire.
    #[inline]
    fn note_wire_written(&mut self, n: usize, now: u64) {
        self.counts.bytes_written += n as u64;
        self.traffic.written = now;
        self.note_moved(Direction::Write, n);
    }

    /// The transport took `n` sealed bytes: the plaintext of the records that are sent by that leaves
    /// the buffer.
    pub(crate) fn consume_sealed(&mut self, n: usize, now: u64) {
        self.log_sealed(n);
        self.note_wire_written(n, now);
        let plain = self.filters_mut().map_or(0, |filters| filters.take(n));
        if plain == 0 {
            return;
        }
        if self.pending_writes.is_some() {
            self.enter_written();
        }
        if let Some(loan) = &mut self.outbound {
            loan.buffer.consume(plain);
        }
        self.note_taken(plain);
        self.confirm_taken(plain);
    }

    /// Drops the `n` bytes behind the first `keep`.
    pub(crate) fn drop_outbound_behind(&mut self, keep: usize, n: usize) {
        // The time limits have to know of bytes before they hear that these are gone.
        self.note_pending(self.now());
        if let Some(loan) = &mut self.outbound {
            loan.buffer.drop_behind(keep, n);
        }
        self.note_dropped(keep, n);
    }

    /// Drops what was not sent; how many bytes that were.
    pub(crate) fn drop_outbound(&mut self, services: &mut LoopServices) -> usize {
        let Some(loan) = self.outbound.take() else { return 0 };
        let dropped = loan.buffer.len();
        services.return_outbound(loan);
        dropped
    }

    /// Lifts the limit for the rest of this callback.
    pub(crate) fn lift_outbound_limit(&mut self) {
        if let Some(loan) = &mut self.outbound {
            loan.lift_limit();
        }
    }

    /// Lifts the limit for one message of which a stage may make several, if the channel is writable: it is accepted whole.
    /// Returns the limit.
    pub(crate) fn limit_for_message(&mut self) -> usize {
        let limit = self.outbound_limit();
        if self.is_writable() {
            self.admit();
        }
        limit
    }

    /// Ends what [`limit_for_message`](ChannelState::limit_for_message) has begun.
    pub(crate) fn restore_limit(&mut self, limit: usize) {
        if let Some(loan) = &mut self.outbound {
            loan.restore_limit(limit);
        }
    }

    /// Lets the message in that this callback is about: it was accepted when it was submitted.
    pub(crate) fn admit(&mut self) {
        if self.config.overflow != Overflow::DropOldest
            && let Some(loan) = &mut self.outbound
        {
            loan.admit();
        }
    }

    /// The time of the phase, while the pipeline is called; otherwise that of the last traffic.
    pub(crate) fn now(&self) -> u64 {
        self.outbound.as_ref().map_or(self.traffic.read.max(self.traffic.written), |loan| loan.now)
    }

    /// How many bytes may wait.
    pub(crate) fn outbound_limit(&self) -> usize {
        self.outbound.as_ref().map_or(self.config.max_outbound, |loan| loan.limit())
    }

    /// What a write fails with if more would wait.
    pub(crate) fn outbound_is_full(&self) -> Error {
        let channel = || Error::Full { what: OUTBOUND, limit: self.config.max_outbound };
        self.outbound.as_ref().map_or_else(channel, |loan| loan.full())
    }

    /// What counts against the marks: bytes, and an overhead for every chunk kept by reference.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        self.outbound.as_ref().map_or(0, |loan| loan.buffer.weight())
    }

    // ---- attention -----------------------------------------------------------------------------------

    /// Puts the channel into the loop's attention list, once.
    pub(crate) fn want_attention(&mut self, services: &mut LoopServices) {
        if !self.has(Flags::LISTED) {
            self.set(Flags::LISTED);
            services.attention.push(self.key());
        }
    }

    // ---- end -----------------------------------------------------------------------------------------

    /// Ends everything that would come later: timers, tasks, unsent bytes.
    pub(crate) fn end(&mut self, services: &mut LoopServices) {
        self.set(Flags::CLOSED);
        self.confirm_nothing_more();
        self.end_watch(services);
        self.end_shaper(services);
        self.cancel_tasks(services);
        let dropped = self.drop_outbound(services);
        if dropped > 0 {
            let id = self.id;
            log_throttled!(
                services,
                UNSENT,
                Level::Debug,
                "channel {id}: closed with {dropped} bytes unsent"
            );
        }
        self.partial = Undecoded::default();
    }
}
