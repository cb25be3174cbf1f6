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

use super::super::{
    ChannelCore, ChannelState, ReadDemand, life::AT_ONCE, services::LoopServices, status::Memory,
};
use crate::channel::event::Event;

impl ChannelCore {
    /// Notifies the handler of each change of writability.
    #[inline]
    pub(in crate::channel) fn notify_writability(&mut self, services: &mut LoopServices) {
        if !self.state.is_settled() {
            self.notify_changes(services);
        }
    }

    #[inline(never)]
    fn notify_changes(&mut self, services: &mut LoopServices) {
        // A notified handler may write and change the state again. It is notified of that
        // immediately: the bytes may all be sent before the next check, and a waiting writer would
        // never be woken.
        for _ in 0..AT_ONCE {
            match self.state.update_writable(services.now) {
                Some(writable) => self.notify_change(services, writable),
                None => return,
            }
        }
        // A writer that drops its oldest messages in each notification would change the state
        // endlessly. The last notification is `true`, so that the writer does not wait.
        if !self.state.status.has(Memory::WRITABLE)
            && let Some(writable) = self.state.update_writable(services.now)
        {
            self.notify_change(services, writable);
        }
    }

    #[cold]
    fn notify_change(&mut self, services: &mut LoopServices, writable: bool) {
        if !self.state.status.is_active() || !self.state.status.is_open() {
            return;
        }
        self.state.borrow_outbound(services);
        self.notify_or_fail(services, Event::Writability(writable));
        // A change that a flush causes is not followed by another call.
        self.handle_requests(services);
        self.state.outbound.give_back(services);
        self.state.want_attention(services);
    }
}

impl ChannelState {
    /// Returns whether the channel would be writable with a buffer of this weight.
    pub(super) fn is_writable_with(&self, weight: usize) -> bool {
        match self.shared.get() {
            None => self.outbound.mark(&self.config).writable(self.status.has(Memory::WRITABLE), weight),
            Some(shared) => shared.would_be_writable(weight, self.outbound.mark(&self.config)),
        }
    }

    /// Returns the state that the handler sees. It changes with the notifications.
    pub(crate) fn is_writable(&self) -> bool {
        self.status.takes_writes()
            && self.status.has(Memory::WRITABLE)
            && self.is_writable_with(self.outbound.weight())
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
        let Some(lease) = &self.outbound.lease else {
            return self.status.has(Memory::WRITABLE)
                && self.shared.get().is_none_or(|shared| shared.producers.is_settled(0));
        };
        self.status.has(Memory::WRITABLE)
            && lease.has_certain_room(0)
            && self.shared.get().is_none_or(|shared| shared.producers.is_settled(lease.buffer.weight()))
    }

    /// Returns whether the handler has to be notified of a change.
    #[inline]
    pub(in crate::channel) fn has_flipped(&self) -> bool {
        !self.is_settled() && self.is_to_flip()
    }

    #[cold]
    fn is_to_flip(&self) -> bool {
        self.is_writable_with(self.outbound.weight()) != self.status.has(Memory::WRITABLE)
    }

    /// Brings the state up to date. Returns the new one if it has changed.
    pub(in crate::channel) fn update_writable(&mut self, now: u64) -> Option<bool> {
        let was = self.status.has(Memory::WRITABLE);
        let weight = self.outbound.weight();
        let is = match self.shared.get() {
            None => self.outbound.mark(&self.config).writable(was, weight),
            Some(shared) => shared.update(weight, self.outbound.mark(&self.config), was),
        };
        if is == was {
            return None;
        }
        self.flip(is, now);
        Some(is)
    }

    #[cold]
    fn flip(&mut self, is: bool, now: u64) {
        if is {
            self.status.set(Memory::WRITABLE);
            self.let_read(now, |status| status.unset(ReadDemand::OUTPUT_FULL));
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
}
