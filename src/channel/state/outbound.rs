//! The outbound buffer, which an idle channel does not own.
//!
//! The buffer is leased from the loop for each callback that may write, with the limit that holds
//! during it; `channel::outbound` sets that limit. After each callback and each flush the channel
//! reports its pending bytes to the loop, and returns an empty buffer.

use super::ChannelState;
use crate::{
    Error, Result,
    buffer::{OutboundBuffer, OutboundMark},
    channel::{
        config::Overflow,
        filter::{Filters, Lent},
        outbound::OutboundLease,
        services::LoopServices,
        shaping::Direction,
    },
    error::Resource,
};
use bytes::Bytes;

/// The state during a write of a stage. If that panics, the write leaves no trace.
pub(crate) struct StageWrite<'a> {
    pub(crate) state: &'a mut ChannelState,
    mark: OutboundMark,
    limit: usize,
}

impl StageWrite<'_> {
    /// Ends the write without a panic.
    #[inline(always)]
    pub(crate) fn end(self) {
        std::mem::forget(self);
    }
}

impl Drop for StageWrite<'_> {
    // Inlined, so that the value is never put into memory for this call.
    #[inline(always)]
    fn drop(&mut self) {
        self.state.undo_stage_write(self.mark, self.limit);
    }
}

impl ChannelState {
    /// Returns the buffer to encode into.
    ///
    /// # Errors
    /// If the channel is closed or closing.
    #[inline]
    pub(crate) fn outbound_for_write(&mut self) -> Result<&mut OutboundBuffer> {
        if !self.status.takes_writes() {
            return Err(Error::Closed);
        }
        Ok(&mut self.outbound.get_or_insert_default().buffer)
    }

    /// Appends an encoded message.
    ///
    /// # Errors
    /// If the channel is closed or closing, or its buffer is full.
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
        self.refuse(mark, self.outbound_is_full())
    }

    /// Removes the encoded part of a message that fails with `error`.
    #[cold]
    pub(crate) fn refuse(&mut self, mark: OutboundMark, error: Error) -> Result {
        self.rollback_outbound(mark);
        Err(error)
    }

    /// Replaces the channel's buffer by a separate one without a limit. Returns the channel's
    /// buffer.
    pub(crate) fn begin_apart(&mut self) -> Option<Box<OutboundLease>> {
        let mut apart: Box<OutboundLease> = Box::default();
        apart.lift_limit();
        apart.is_shared = true;
        self.outbound.replace(apart)
    }

    /// Returns whether a message is encoded for several channels.
    pub(crate) fn encodes_apart(&self) -> bool {
        self.outbound.as_ref().is_some_and(|lease| lease.is_shared)
    }

    /// Restores the channel's buffer. Returns the separate one.
    pub(crate) fn end_apart(&mut self, own: Option<Box<OutboundLease>>) -> OutboundBuffer {
        std::mem::replace(&mut self.outbound, own).map_or_else(OutboundBuffer::new, |apart| apart.buffer)
    }

    #[inline]
    pub(crate) fn pending_bytes(&self) -> usize {
        self.outbound.as_ref().map_or(0, |loan| loan.buffer.len())
    }

    /// Removes the bytes written since `mark`.
    pub(crate) fn rollback_outbound(&mut self, mark: OutboundMark) {
        if let Some(loan) = &mut self.outbound {
            loan.buffer.rollback(mark);
        }
    }

    pub(crate) fn outbound(&self) -> Option<&OutboundBuffer> {
        self.outbound.as_ref().map(|loan| &loan.buffer)
    }

    /// Borrows a buffer from the loop, with its current limit, for a callback that may write.
    #[inline]
    pub(crate) fn borrow_outbound(&mut self, services: &mut LoopServices) {
        let loan = self.outbound.get_or_insert_with(|| services.lease_outbound());
        loan.now = services.now;
        services.outbound.allow(loan, &self.config);
    }

    /// Reports the pending bytes to the loop's budget. Returns an empty buffer to the loop.
    #[inline]
    pub(crate) fn return_outbound(&mut self, services: &mut LoopServices) {
        let Some(loan) = &mut self.outbound else { return };
        if !loan.buffer.is_empty() {
            services.outbound.count(loan);
        } else if let Some(loan) = self.outbound.take() {
            services.return_outbound(loan);
        }
    }

    /// Accounts for bytes read from the transport.
    #[inline]
    pub(crate) fn note_read(&mut self, bytes: &[u8], now: u64) {
        if self.counts.bytes_read == 0 {
            self.note_first_byte();
        }
        self.traffic.read = now;
        self.counts.bytes_read += bytes.len() as u64;
        self.log_read(bytes);
    }

    /// Removes `n` bytes that the kernel has accepted.
    pub(crate) fn consume_outbound(&mut self, n: usize, now: u64) {
        self.log_written(n);
        // Includes messages of stages: a message that is partly sent must not be dropped.
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

    /// Records that the transport has accepted `n` bytes of the wire.
    #[inline]
    fn note_wire_written(&mut self, n: usize, now: u64) {
        self.counts.bytes_written += n as u64;
        self.traffic.written = now;
        self.note_moved(Direction::Write, n);
    }

    /// Seals outbound bytes, as far as the limit allows. They stay in the buffer until the
    /// transport has accepted the corresponding sealed bytes.
    pub(crate) fn seal(&mut self, services: &mut LoopServices) -> Result {
        match (self.extras.filters_mut(), &self.outbound) {
            (Some(filters), Some(loan)) if !loan.buffer.is_empty() => {
                let sealed = filters.seal(&loan.buffer, &mut services.lend_to_filters());
                self.note_filters();
                sealed
            }
            _ => Ok(()),
        }
    }

    /// Seals all outbound bytes, because a filter is added that must not see them.
    pub(in crate::channel) fn seal_all(&mut self, services: &mut LoopServices) -> Result {
        match (self.extras.filters_mut(), &self.outbound) {
            (Some(filters), Some(loan)) => filters.seal_all(&loan.buffer, &mut services.lend_to_filters()),
            _ => Ok(()),
        }
    }

    /// Calls the filters, if there are any.
    pub(crate) fn with_filters(
        &mut self,
        services: &mut LoopServices,
        f: impl FnOnce(&mut Filters, &mut Lent<'_>) -> Result,
    ) -> Result {
        let Some(filters) = self.extras.filters_mut() else { return Ok(()) };
        let result = f(filters, &mut services.lend_to_filters());
        self.note_filters();
        result
    }

    /// Records that the transport has accepted `n` sealed bytes. Removes the plaintext of the
    /// records that were sent by that from the buffer.
    pub(crate) fn consume_sealed(&mut self, services: &mut LoopServices, n: usize) {
        self.log_sealed(n);
        self.note_wire_written(n, services.now);
        let filters = self.extras.filters_mut();
        let plain = filters.map_or(0, |filters| filters.take(n, &mut services.lend_to_filters()));
        if plain == 0 {
            return;
        }
        self.log_sent_plaintext(plain);
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
        #[cfg(feature = "simulation")]
        crate::machine::simulated::note_dropped_output();
        // The time limits must count the bytes before their loss is recorded.
        self.note_pending(self.now());
        if let Some(loan) = &mut self.outbound {
            loan.buffer.drop_behind(keep, n);
        }
        self.note_dropped(keep, n);
    }

    /// Drops the unsent bytes. Returns their number.
    pub(crate) fn drop_outbound(&mut self, services: &mut LoopServices) -> usize {
        let Some(loan) = self.outbound.take() else { return 0 };
        let dropped = loan.buffer.len();
        services.return_outbound(loan);
        dropped
    }

    /// Lifts the limit until this callback returns.
    pub(crate) fn lift_outbound_limit(&mut self) {
        if let Some(loan) = &mut self.outbound {
            loan.lift_limit();
        }
    }

    /// Lifts the limit for one message if the channel is writable, so that a stage that makes
    /// several of it can write all of them. Returns the limit.
    pub(crate) fn limit_for_message(&mut self) -> usize {
        let limit = self.outbound_limit();
        if self.is_writable() {
            self.admit();
        }
        limit
    }

    /// Lends the state to a write of a stage, which began at `mark` with this limit.
    #[inline(always)]
    pub(crate) fn begin_stage_write(&mut self, mark: OutboundMark, limit: usize) -> StageWrite<'_> {
        StageWrite { state: self, mark, limit }
    }

    #[cold]
    fn undo_stage_write(&mut self, mark: OutboundMark, limit: usize) {
        self.restore_limit(limit);
        self.rollback_outbound(mark);
    }

    /// Restores the limit that [`limit_for_message`](ChannelState::limit_for_message) has returned.
    pub(crate) fn restore_limit(&mut self, limit: usize) {
        if let Some(loan) = &mut self.outbound {
            loan.restore_limit(limit);
        }
    }

    /// Lifts the limit for a message that was accepted when it was submitted.
    pub(crate) fn admit(&mut self) {
        if self.config.overflow != Overflow::DropOldest
            && let Some(loan) = &mut self.outbound
        {
            loan.admit();
        }
    }

    /// Returns the time of the phase during a call of the pipeline, and otherwise of the last
    /// traffic.
    pub(crate) fn now(&self) -> u64 {
        self.outbound.as_ref().map_or(self.traffic.read.max(self.traffic.written), |loan| loan.now)
    }

    /// Returns the limit of pending bytes.
    pub(crate) fn outbound_limit(&self) -> usize {
        self.outbound.as_ref().map_or(self.config.max_outbound, |loan| loan.limit())
    }

    /// Returns the error of a write beyond the limit.
    pub(crate) fn outbound_is_full(&self) -> Error {
        let channel = || Error::Full { resource: Resource::ChannelOutput, limit: self.config.max_outbound };
        self.outbound.as_ref().map_or_else(channel, |loan| loan.full())
    }

    /// Returns the weight that counts against the water marks: bytes, and an overhead per shared
    /// chunk.
    #[inline]
    pub(crate) fn weight(&self) -> usize {
        self.outbound.as_ref().map_or(0, |loan| loan.buffer.weight())
    }
}
