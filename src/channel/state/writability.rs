//! Writability: the one definition that handlers, handles, groups and async code share.
//!
//! A channel is writable while it is open and its pending weight is within the water marks. The
//! pending weight is the encoded bytes in its buffer plus the messages that handles have put into
//! its loop's queue. Each chunk in front of the buffer's tail adds 96 bytes. A queued message adds
//! 96 bytes and its encoded size, which the pipeline estimates on the producer's thread
//! (`Codec::encoded_len_hint`). Without handles the buffer alone decides. With handles the sum is
//! kept in a [`WriteGauge`](crate::sync::WriteGauge). Producers on any thread read it, and reserve
//! the weight of a message there before they queue it.
//!
//! The marks act between two messages. The write that passes the high mark stops delivery after its
//! message: the handler is notified and the buffer is flushed. If there is room again, delivery
//! continues with the remaining bytes of the read.
//!
//! `true` from a handle's `is_writable`, or a completed `writable`, is a permit for one message. So
//! sixteen threads that check at the same moment may all write. Such a message also finds room in a
//! full loop queue. A message without a permit has to fit into `max_outbound` when it is submitted.
//! If it does not fit when it is encoded (the estimate was too low, or the handler was quicker),
//! the channel closes with `Error::Full`. Later messages are not sent.
//!
//! Invariants: the handler is notified of the changes in turn, starting with `false`, and
//! `writable` completes after each `true`. A channel that is not writable has pending bytes, a
//! queued message, or a reservation that ends with one of them or with a request for a check
//! (`Mail::CheckOutput`). So the loop always checks the state again. A write is never refused while
//! the channel is writable, regardless of its size. So the pending weight is bounded by the high
//! mark plus one message for each producer. Runs on the channel's loop.

use super::{ChannelState, Memory, Pending, ReadDemand};
use crate::{
    buffer::{OutboundMark, WaterMark},
    channel::config::Overflow,
};

impl ChannelState {
    /// Returns the current marks. They are lower than configured if the loop has little memory
    /// left.
    fn mark(&self) -> WaterMark {
        self.outbound.as_ref().map_or(self.config.water_mark, |loan| loan.mark(&self.config))
    }

    /// Returns whether the channel would be writable with a buffer of this weight.
    fn is_writable_with(&self, weight: usize) -> bool {
        match self.shared.get() {
            None => self.mark().writable(self.status.has(Memory::WRITABLE), weight),
            Some(shared) => shared.would_be_writable(weight, self.mark()),
        }
    }

    /// Returns the state that the handler sees. It changes with the notifications.
    pub(crate) fn is_writable(&self) -> bool {
        self.status.takes_writes()
            && self.status.has(Memory::WRITABLE)
            && self.is_writable_with(self.weight())
    }

    /// Returns the state of which the handler was notified last. A notification of `true` follows
    /// `false` while the channel is open.
    #[cfg(feature = "http")]
    pub(crate) fn was_writable(&self) -> bool {
        self.status.has(Memory::WRITABLE)
    }

    /// Returns whether the channel is certainly writable and was before. A hint: `false` requires a
    /// closer look.
    #[inline]
    pub(in crate::channel) fn is_settled(&self) -> bool {
        let Some(loan) = &self.outbound else {
            return self.status.has(Memory::WRITABLE)
                && self.shared.get().is_none_or(|shared| shared.producers.is_settled(0));
        };
        self.status.has(Memory::WRITABLE)
            && loan.has_certain_room(0)
            && self.shared.get().is_none_or(|shared| shared.producers.is_settled(loan.buffer.weight()))
    }

    /// Returns whether the handler has to be notified of a change.
    #[inline]
    pub(in crate::channel) fn has_flipped(&self) -> bool {
        !self.is_settled() && self.is_to_flip()
    }

    #[cold]
    fn is_to_flip(&self) -> bool {
        self.is_writable_with(self.weight()) != self.status.has(Memory::WRITABLE)
    }

    /// Brings the state up to date. Returns the new one if it has changed.
    pub(in crate::channel) fn update_writable(&mut self) -> Option<bool> {
        let was = self.status.has(Memory::WRITABLE);
        let weight = self.weight();
        let is = match self.shared.get() {
            None => self.mark().writable(was, weight),
            Some(shared) => shared.settle(weight, self.mark(), was),
        };
        if is == was {
            return None;
        }
        self.flip(is);
        Some(is)
    }

    #[cold]
    fn flip(&mut self, is: bool) {
        if is {
            self.status.set(Memory::WRITABLE);
            self.status.unset(ReadDemand::OUTPUT_FULL);
            if let Some(shared) = self.shared.get() {
                shared.notify_writable();
            }
        } else {
            self.status.unset(Memory::WRITABLE);
            if self.config.read_while_writable {
                self.status.set(ReadDemand::OUTPUT_FULL);
            }
        }
    }

    /// Returns whether the bytes encoded since `before` may stay. If they make the channel
    /// unwritable, delivery stops after this message: the handler is notified and the buffer
    /// flushed before the next one.
    #[inline]
    pub(crate) fn has_outbound_room(&mut self, before: OutboundMark) -> bool {
        self.outbound.as_ref().is_some_and(|loan| loan.has_certain_room(0))
            || self.has_room_beyond(before.weight())
    }

    #[cold]
    fn has_room_beyond(&mut self, before: usize) -> bool {
        let (pending, limit) = (self.pending_bytes(), self.outbound_limit());
        if pending > limit && !self.is_writable_with(before) && !self.could_drop(pending - limit) {
            return false;
        }
        if self.status.has(Memory::WRITABLE) && !self.is_writable_with(self.weight()) {
            self.status.set(Pending::FLUSH);
        }
        true
    }

    /// Returns whether dropping older messages can free `bytes`.
    fn could_drop(&self, bytes: usize) -> bool {
        self.config.overflow == Overflow::DropOldest
            && self
                .pending_writes
                .as_ref()
                .is_some_and(|pending_writes| pending_writes.droppable(self.extras.sealed_bytes()) >= bytes)
    }
}
