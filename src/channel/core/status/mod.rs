//! The part of a channel's state that fits into a few bits, packed into one word.
//!
//! Each part is a type that has no illegal value: the life cycle ([`Life`], [`CloseMode`]), the two
//! halves of the stream ([`InputHalf`], [`OutputHalf`]), reading ([`ReadDemand`], [`ReadGrant`]),
//! the transport ([`Readiness`]), work for later ([`Pending`]) and results of earlier calls
//! ([`Memory`], [`QueuedFailures`]). Each part has separate bits, so each query of the hot path is
//! one comparison with a mask.
//!
//! Invariants beyond the parts: a closed channel neither wants nor grants a read; turning auto-read
//! off ends both.
//!
//! Few facts are in the upper half of the word. A fact that the hot path tests together with
//! others belongs to the lower half, because a mask of both halves takes one more instruction.

mod facts;
mod life;
mod stream;

pub(crate) use facts::{Memory, Pending, ReadDemand, Readiness};
pub(crate) use life::{CloseMode, Life};
pub(crate) use stream::{InputHalf, OutputHalf, ReadGrant};

use facts::FactSet;
use stream::QueuedFailures;

/// A part of the word: `BITS` bits from bit `SHIFT` on.
trait Part: Copy {
    const BITS: u64;
    const SHIFT: u64;
    const MASK: u64 = ((1 << Self::BITS) - 1) << Self::SHIFT;

    fn pack(self) -> u64;
    fn unpack(bits: u64) -> Self;
}

/// Fails to compile if two parts share a bit.
const _: () = {
    const PARTS: [u64; 9] = [
        Life::MASK,
        InputHalf::MASK,
        OutputHalf::MASK,
        ReadGrant::MASK,
        ReadDemand::MASK,
        Readiness::MASK,
        Pending::MASK,
        Memory::MASK,
        QueuedFailures::MASK,
    ];
    let (mut taken, mut i) = (0, 0);
    while i < PARTS.len() {
        assert!(taken & PARTS[i] == 0, "two parts share a bit");
        taken |= PARTS[i];
        i += 1;
    }
};

/// The parts of [`ChannelState`](super::ChannelState) that have only a few values.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Status(u64);

/// Stops the delivery of messages immediately.
const STOP: u64 = Life::NOT_OPEN
    | Pending::FLUSH.with(Pending::REPLACED).with(Pending::FAILED).with(Pending::UNDECODED).mask()
    | STOP_READING;

/// Pauses automatic reading.
const PAUSE: u64 = ReadDemand::INPUT_HELD.with(ReadDemand::OUTPUT_FULL).mask() | STOP_READING;

/// Pauses all reading for the pipeline, requested reads as well.
const STOP_READING: u64 = ReadDemand::STAGE_PAUSED.with(ReadDemand::HANDSHAKING).mask();

impl Status {
    /// The status of a new channel.
    pub(crate) fn new(auto_read: bool) -> Self {
        let mut status = Status(Memory::WRITABLE.mask());
        status.set_auto_read(auto_read);
        status
    }

    #[inline(always)]
    fn any(self, bits: u64) -> bool {
        self.0 & bits != 0
    }

    /// Returns the word.
    #[cfg(feature = "simulation")]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    fn part<P: Part>(self) -> P {
        P::unpack((self.0 & P::MASK) >> P::SHIFT)
    }

    fn put<P: Part>(&mut self, part: P) {
        self.0 = self.0 & !P::MASK | part.pack() << P::SHIFT;
    }

    // ---- independent facts ----

    /// Returns whether any of these facts holds.
    #[inline(always)]
    pub(crate) fn has(self, any: impl FactSet) -> bool {
        self.any(any.bits())
    }

    #[inline(always)]
    pub(crate) fn set(&mut self, facts: impl FactSet) {
        self.0 |= facts.bits();
    }

    #[inline(always)]
    pub(crate) fn unset(&mut self, facts: impl FactSet) {
        self.0 &= !facts.bits();
    }

    /// Unsets a fact. Returns whether it was set.
    #[inline(always)]
    pub(crate) fn take(&mut self, fact: impl FactSet) -> bool {
        let was = self.has(fact);
        self.unset(fact);
        was
    }

    // ---- life cycle ----

    pub(crate) fn life(self) -> Life {
        self.part()
    }

    /// Returns whether the channel is connected and no close was requested.
    #[inline]
    pub(crate) fn is_open(self) -> bool {
        !self.any(Life::NOT_OPEN)
    }

    /// Returns whether the transport is gone.
    #[inline]
    pub(crate) fn is_closed(self) -> bool {
        self.any(Life::CLOSED)
    }

    /// Returns whether `active` was called and the channel is not closed.
    #[inline]
    pub(crate) fn is_active(self) -> bool {
        self.0 & (Life::ACTIVE | Life::CLOSED) == Life::ACTIVE
    }

    /// Returns the close mode, if a close was requested and the channel is not closed yet.
    pub(crate) fn close_mode(self) -> Option<CloseMode> {
        self.life().close_mode()
    }

    /// Returns whether the channel must close without sending the rest.
    #[inline]
    pub(crate) fn closes_at_once(self) -> bool {
        self.any(Life::AT_ONCE)
    }

    /// Returns whether the channel must close after the rest was sent.
    #[inline]
    pub(crate) fn closes_gracefully(self) -> bool {
        self.0 & Life::MODE == Life::GRACEFUL
    }

    /// Returns whether the channel must close with a reset.
    pub(crate) fn resets(self) -> bool {
        self.close_mode() == Some(CloseMode::Reset)
    }

    /// Records that `active` is called.
    pub(crate) fn activate(&mut self) {
        self.put(self.life().activated());
    }

    /// Requests a close. Returns whether that changes the close mode.
    pub(crate) fn request_close(&mut self, mode: CloseMode) -> bool {
        let before = *self;
        self.put(self.life().closing(mode));
        *self != before
    }

    /// Takes back the request of a graceful close. Returns whether there was one.
    pub(crate) fn suspend_graceful_close(&mut self) -> bool {
        let suspends = self.life() == Life::Active(Some(CloseMode::Graceful));
        if suspends {
            self.put(Life::Active(None));
        }
        suspends
    }

    /// Records that the transport is gone.
    pub(crate) fn close(&mut self) {
        self.put(self.life().closed());
        self.end_reads();
    }

    /// Ends the life cycle. Returns whether `inactive` has to be called, since `active` was.
    pub(crate) fn take_inactive(&mut self) -> bool {
        let due = matches!(self.life(), Life::Active(_) | Life::Closed { inactive_due: true });
        self.put(Life::Closed { inactive_due: false });
        self.end_reads();
        due
    }

    // ---- the two halves of the stream ----

    /// Returns whether the peer has ended its stream and the handler was notified.
    #[inline]
    pub(crate) fn input_ended(self) -> bool {
        self.any(InputHalf::MASK)
    }

    /// Returns whether input is read only to be discarded: the stream has ended, or the channel
    /// closes gracefully.
    #[inline]
    pub(crate) fn discards_input(self) -> bool {
        self.input_ended() || self.closes_gracefully()
    }

    pub(crate) fn set_input(&mut self, half: InputHalf) {
        self.put(half);
    }

    pub(crate) fn output(self) -> OutputHalf {
        self.part()
    }

    /// Returns whether the channel accepts writes.
    #[inline]
    pub(crate) fn takes_writes(self) -> bool {
        !self.any(Life::NOT_OPEN | OutputHalf::MASK)
    }

    /// Returns whether the output ends or has ended.
    #[inline]
    pub(crate) fn output_is_over(self) -> bool {
        self.any(OutputHalf::MASK)
    }

    /// Returns whether the end of the stream was sent to the peer.
    pub(crate) fn output_has_ended(self) -> bool {
        self.output() == OutputHalf::Ended
    }

    /// Returns whether the end of the stream must still be sent to the peer.
    #[inline]
    pub(crate) fn wants_to_end_output(self) -> bool {
        self.any(OutputHalf::ENDING)
    }

    /// Requests the end of the output. Returns whether the output was open.
    pub(crate) fn request_end_of_output(&mut self) -> bool {
        let open = self.output() == OutputHalf::Open;
        if open {
            self.put(OutputHalf::Ending);
        }
        open
    }

    /// Records that the end of the stream was sent to the peer.
    pub(crate) fn end_output(&mut self) {
        self.put(OutputHalf::Ended);
    }

    // ---- reading ----

    /// Returns whether bytes are read as they arrive, unless reading pauses.
    #[inline]
    pub(crate) fn auto_read(self) -> bool {
        self.has(ReadDemand::AUTO)
    }

    pub(crate) fn set_auto_read(&mut self, on: bool) {
        if on {
            self.set(ReadDemand::AUTO);
        } else {
            self.unset(ReadDemand::AUTO);
            self.end_reads();
        }
    }

    /// Requests one read, unless the channel is closed.
    #[inline]
    pub(crate) fn want_read(&mut self) {
        if !self.is_closed() {
            self.set(ReadDemand::WANTED);
        }
    }

    fn end_reads(&mut self) {
        self.unset(ReadDemand::WANTED);
        self.put(ReadGrant::None);
    }

    /// Grants the requested read to the bytes that are decoded next. `one`: it delivers one
    /// message.
    #[inline]
    pub(crate) fn grant_read(&mut self, one: bool) {
        if self.take(ReadDemand::WANTED) {
            self.put(if one { ReadGrant::One } else { ReadGrant::All });
        }
    }

    /// Delivers the last messages of a stream, even if no read was requested.
    pub(crate) fn grant_rest(&mut self) {
        if !self.is_closed() {
            self.put(ReadGrant::All);
        }
    }

    /// Ends the grant after the bytes of a read were decoded. Requests another read if one was
    /// granted and delivered no message.
    #[inline]
    pub(crate) fn end_grant(&mut self, brought_none: bool) {
        if self.any(ReadGrant::MASK) {
            if brought_none && !self.reads_automatically() {
                self.want_read();
            }
            self.put(ReadGrant::None);
        }
    }

    /// Records that a message goes to the handler. If the grant was for one message, no other
    /// follows.
    #[inline]
    pub(crate) fn note_message(&mut self) {
        const ENDED: u64 = Memory::STUCK.mask() | 1 << ReadGrant::SHIFT;
        // Tested first, because a store for each message would delay the loads of the other facts.
        if self.any(ENDED) {
            self.0 &= !ENDED;
        }
    }

    /// Records that the message that has just failed consumed no byte, because it was queued.
    #[cold]
    pub(crate) fn note_queued_failure(&mut self) {
        self.set(Memory::QUEUED_FAILED);
    }

    /// Records that decoding failed without consuming a byte. Returns whether it will fail again:
    /// the last one failed as well, or 1,024 queued messages have failed in a row. Another message
    /// or byte in between ends the row.
    #[cold]
    pub(crate) fn note_failure(&mut self) -> bool {
        let was = self.has(Memory::STUCK);
        let queued = self.take(Memory::QUEUED_FAILED);
        let failures = if was && queued { self.part::<QueuedFailures>().0 + 1 } else { 0 };
        self.set(Memory::STUCK);
        self.put(QueuedFailures(failures.min(QueuedFailures::MOST)));
        was && !queued || failures >= QueuedFailures::MOST
    }

    /// Returns whether messages may be delivered to the handler.
    #[inline]
    pub(crate) fn may_deliver(self) -> bool {
        const ASKED: u64 = STOP | PAUSE | ReadDemand::AUTO.mask();
        // One comparison for the usual case.
        self.0 & ASKED == ReadDemand::AUTO.mask()
            || !self.any(STOP) && (self.any(ReadGrant::MASK) || self.reads_automatically())
    }

    /// Returns whether `read_complete` may follow a message immediately: the handler has requested
    /// nothing that comes before it.
    #[inline]
    pub(crate) fn may_complete(self) -> bool {
        const ASKED: u64 = STOP | ReadGrant::MASK | PAUSE | Pending::TASK_REFUSED.mask();
        const USUAL: u64 = ReadDemand::AUTO.mask() | Memory::SERVED.mask();
        self.0 & (ASKED | USUAL) == USUAL
    }

    /// Returns whether bytes are read as they arrive, and nothing comes before that. One comparison
    /// for the usual case of an event.
    #[inline]
    pub(crate) fn reads_at_once(self) -> bool {
        const FIRST: u64 = Pending::UNDECODED.mask()
            | Readiness::WRITE_BLOCKED.with(Readiness::CARRIED_OVER).with(Readiness::MAYBE_READABLE).mask();
        const ASKED: u64 = Life::NOT_OPEN | InputHalf::MASK | PAUSE | FIRST | ReadDemand::AUTO.mask();
        self.0 & ASKED == ReadDemand::AUTO.mask()
    }

    /// Returns whether the transport may be read for the pipeline.
    #[inline]
    pub(crate) fn may_read(self) -> bool {
        const REQUESTED: u64 = ReadDemand::WANTED.mask();
        const ASKED: u64 = REQUESTED | STOP_READING;
        self.reads_automatically() || self.0 & ASKED == REQUESTED
    }

    #[inline]
    fn reads_automatically(self) -> bool {
        self.0 & (ReadDemand::AUTO.mask() | PAUSE) == ReadDemand::AUTO.mask()
    }

    /// Returns whether a burst of reads has left nothing to do, regardless of the output. One
    /// comparison for the usual case.
    #[inline]
    pub(crate) fn is_done(self) -> bool {
        const LEFT: u64 = Pending::UNDECODED.mask() | Readiness::MAYBE_READABLE.mask();
        !self.any(LEFT) && !self.wants_driver()
    }

    /// Returns whether a call into the pipeline has left work besides its output.
    #[inline]
    pub(crate) fn has_requests(self) -> bool {
        const REQUESTS: u64 = Pending::REPLACED.with(Pending::TASK_REFUSED).with(Pending::FAILED).mask()
            | Pending::ARM_WATCH.mask()
            | Memory::LIMITED.mask();
        self.any(REQUESTS)
    }

    /// Returns whether the driver has to check the channel, regardless of input and output.
    #[inline]
    pub(crate) fn wants_driver(self) -> bool {
        const WORK: u64 = Life::MODE | OutputHalf::ENDING | Pending::FLUSH.mask() | ReadDemand::WANTED.mask();
        self.any(WORK)
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests;
