//! Encoding of messages into the leased buffer, within its limit.
//!
//! A write is never refused while the channel is writable, regardless of its size. So the pending
//! weight is bounded by the high mark and one message for each producer.

use super::super::{ChannelState, services::LoopServices, status::Memory};
use crate::{
    buffer::{OutboundBuffer, OutboundMark},
    channel::{Pending, config::Overflow},
    error::{Error, Result},
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
    /// Leases a buffer for a call that may write.
    #[inline]
    pub(crate) fn borrow_outbound(&mut self, services: &mut LoopServices) {
        self.outbound.borrow(services, &self.config);
    }

    /// Returns the buffer to encode into.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closed or closing.
    #[inline]
    pub(crate) fn outbound_for_write(&mut self) -> Result<&mut OutboundBuffer> {
        if !self.status.takes_writes() {
            return Err(Error::Closed);
        }
        Ok(&mut self.outbound.lease.get_or_insert_default().buffer)
    }

    /// Appends an encoded message.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closed or closing, or [`Error::Full`] if its buffer is
    /// full.
    #[inline]
    pub(crate) fn write_encoded(&mut self, bytes: &Bytes) -> Result {
        let has_room = self.outbound.has_certain_room(bytes.len());
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
        self.outbound.rollback(mark);
        Err(error)
    }

    /// Returns whether a message that waits may be dropped in favour of newer ones.
    #[inline]
    pub(crate) fn drops_oldest(&self) -> bool {
        self.drops_messages() && self.config.overflow == Overflow::DropOldest
    }

    /// Returns the error of a write beyond the limit.
    pub(crate) fn outbound_is_full(&self) -> Error {
        self.outbound.full(&self.config)
    }

    /// Returns whether the bytes encoded since `before` may stay. If they make the channel
    /// unwritable, delivery stops after this message: the handler is notified and the buffer
    /// flushed before the next one.
    #[inline]
    pub(crate) fn has_outbound_room(&mut self, before: OutboundMark) -> bool {
        self.outbound.has_certain_room(0) || self.has_room_beyond(before.weight())
    }

    #[cold]
    fn has_room_beyond(&mut self, before: usize) -> bool {
        let (pending, limit) = (self.outbound.pending_bytes(), self.outbound.limit(&self.config));
        if pending > limit && !self.is_writable_with(before) && !self.could_drop(pending - limit) {
            return false;
        }
        if self.status.has(Memory::WRITABLE) && !self.is_writable_with(self.outbound.weight()) {
            self.status.set(Pending::FLUSH);
        }
        true
    }

    /// Returns whether dropping older messages can free `bytes`.
    fn could_drop(&self, bytes: usize) -> bool {
        self.config.overflow == Overflow::DropOldest
            && self
                .outbound
                .lease
                .as_ref()
                .is_some_and(|lease| lease.writes.droppable(self.extras.sealed_bytes()) >= bytes)
    }

    /// Flushes when the running callback has returned.
    #[inline]
    pub(crate) fn request_flush(&mut self) {
        self.status.set(Pending::FLUSH);
    }

    // ---- stages ----

    /// Lifts the limit for one message if the channel is writable, so that a stage that makes
    /// several of it can write all of them. Returns the limit.
    pub(crate) fn limit_for_message(&mut self) -> usize {
        let limit = self.outbound.limit(&self.config);
        if self.is_writable() {
            self.outbound.admit();
        }
        limit
    }

    /// Lifts the limit for one message, with any overflow policy. Returns the limit.
    #[cfg(any(feature = "redis", feature = "websocket"))]
    pub(crate) fn lift_limit_for_message(&mut self) -> usize {
        let limit = self.outbound.limit(&self.config);
        self.outbound.admit();
        limit
    }

    /// Lends the state to a write of a stage, which began at `mark` with this limit.
    #[inline(always)]
    pub(crate) fn begin_stage_write(&mut self, mark: OutboundMark, limit: usize) -> StageWrite<'_> {
        StageWrite { state: self, mark, limit }
    }

    #[cold]
    fn undo_stage_write(&mut self, mark: OutboundMark, limit: usize) {
        self.outbound.restore_limit(limit);
        self.outbound.rollback(mark);
    }
}
