//! Conflation: a message that waits is replaced by the newest one with the same key.
//!
//! A channel without a backlog writes such a message like any other one. With a backlog, the
//! message becomes a separate chunk of the buffer, whose bytes a newer message replaces. So a
//! replacement keeps the place of the older message, and the backlog holds at most one replaceable
//! message per key.
//!
//! Invariants: of two messages with one key, the older one is sent first, or not at all. Bytes that
//! filters have sealed, or that the transport has accepted in part, stay.

use super::{
    super::{ChannelState, services::LoopServices, status::Memory},
    Outbound,
};
use crate::{
    channel::{
        Readiness,
        budget::{Apart, OutboundLease},
        confirmation::Confirmation,
        pending_writes::Replaceable,
        shaping::Direction,
    },
    error::{Error, Result},
};
use bytes::Bytes;

/// The number of pending bytes that are a backlog although the transport may still accept them. A
/// callback that writes more than this is writing faster than a turn sends.
const BACKLOG: usize = 16 * 1024;

/// A message that was encoded into a separate buffer.
pub(crate) struct EncodedAlone {
    pub(crate) bytes: Bytes,
    /// Whether a stage requires that the message is sent, because it has changed its own state.
    pub(crate) stays: bool,
}

impl Outbound {
    /// Replaces the channel's buffer by a separate one without a limit. Returns the channel's
    /// buffer.
    pub(crate) fn begin_alone(&mut self, services: &mut LoopServices) -> Option<Box<OutboundLease>> {
        let mut alone = services.lease_outbound();
        alone.lift_limit();
        alone.now = services.now;
        alone.apart = Apart::Alone;
        self.lease.replace(alone)
    }

    /// Restores the channel's buffer. Returns the message in the separate one.
    pub(crate) fn end_alone(
        &mut self,
        services: &mut LoopServices,
        own: Option<Box<OutboundLease>>,
    ) -> EncodedAlone {
        let Some(mut alone) = std::mem::replace(&mut self.lease, own) else {
            return EncodedAlone { bytes: Bytes::new(), stays: true };
        };
        let encoded = EncodedAlone { bytes: alone.buffer.copy(), stays: alone.apart == Apart::Stays };
        alone.apart = Apart::No;
        alone.buffer.clear();
        services.return_outbound(alone);
        encoded
    }

    /// Makes all waiting messages stay, because the next ones are encoded in another way.
    pub(crate) fn keep_waiting(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.writes.keep_all();
        }
    }
}

impl ChannelState {
    /// Returns whether a message that is written now waits behind others.
    pub(crate) fn has_backlog(&self) -> bool {
        let Some(lease) = &self.outbound.lease else { return false };
        !lease.buffer.is_empty()
            && (self.status.has(Readiness::WRITE_BLOCKED)
                || lease.buffer.len() >= BACKLOG
                || lease.writes.has_latest()
                || self.is_held_up(Direction::Write))
    }

    /// Appends a message that a stage requires to be sent, because it has changed its own state. It
    /// may have closed the channel, and it may exceed the limit by this message.
    ///
    /// # Errors
    /// [`Error::Full`] if the buffer had exceeded its limit before.
    pub(crate) fn append_kept(&mut self, bytes: &Bytes) -> Result {
        if self.outbound.pending_bytes() > self.outbound.limit(&self.config) {
            return Err(self.outbound_is_full());
        }
        let buffer = &mut self.outbound.lease.get_or_insert_default().buffer;
        let mark = buffer.mark();
        buffer.put_shared(bytes);
        // Only to have the handler notified.
        let _ = self.has_outbound_room(mark);
        Ok(())
    }

    /// Appends an encoded message to a backlog, or puts it into the place of a waiting message with
    /// this key. `encoder` is the encoding key of the links: if it has changed, the waiting
    /// messages stay, because the peer decodes them before the change.
    ///
    /// # Errors
    /// The errors of [`write_encoded`](ChannelState::write_encoded). The waiting message is then
    /// unchanged.
    pub(crate) fn write_latest_encoded(
        &mut self,
        services: &mut LoopServices,
        key: u64,
        encoder: u64,
        bytes: Bytes,
    ) -> Result {
        if bytes.is_empty() {
            self.keep_latest(key);
            return Ok(());
        }
        let sealed = self.extras.sealed_bytes();
        let Some(lease) = &mut self.outbound.lease else { return self.write_encoded(&bytes) };
        lease.writes.use_encoder(encoder);
        match lease.writes.find_latest(key, sealed) {
            Some(place) => self.replace_waiting(services, place, bytes),
            None => self.append_latest(key, encoder, bytes),
        }
    }

    fn append_latest(&mut self, key: u64, encoder: u64, bytes: Bytes) -> Result {
        let len = bytes.len();
        let buffer = self.outbound_for_write()?;
        let mark = buffer.mark();
        let chunk = buffer.put_replaceable(bytes);
        if !self.has_outbound_room(mark) {
            return self.refuse(mark, self.outbound_is_full());
        }
        if let Some(lease) = &mut self.outbound.lease {
            // Messages of stages in front of it have no entry yet.
            lease.writes.enter(lease.buffer.len() - len);
            lease.writes.push_latest(key, encoder, chunk, len);
        }
        Ok(())
    }

    fn replace_waiting(&mut self, services: &mut LoopServices, place: Replaceable, bytes: Bytes) -> Result {
        let len = bytes.len();
        // The time limits must count the bytes before they are replaced.
        self.note_pending(services.now);
        let buffer = self.outbound_for_write()?;
        let mark = buffer.mark();
        let old = buffer.replace(place.chunk, bytes);
        // A shorter message is accepted even if the limit has been lowered since.
        if len > old.len() && !self.has_outbound_room(mark) {
            let full = self.outbound_is_full();
            self.outbound_for_write()?.replace(place.chunk, old);
            return Err(full);
        }
        #[cfg(feature = "simulation")]
        crate::machine::simulated::note_dropped_output();
        let replaced = match &mut self.outbound.lease {
            Some(lease) => lease.writes.replace(place, len),
            None => None,
        };
        self.note_replaced(old.len());
        services.tally.messages_conflated += 1;
        self.extras.note_message_conflated();
        if let Some(shared) = self.shared.get() {
            shared.producers.note_encoded(len);
        }
        if let Some(confirmation) = replaced {
            self.note_answered(1);
            confirmation.complete(Err(Error::Conflated));
        }
        Ok(())
    }

    /// Makes a waiting message with this key stay, because a newer one was appended.
    pub(crate) fn keep_latest(&mut self, key: u64) {
        if let Some(lease) = &mut self.outbound.lease {
            lease.writes.keep_latest(key);
        }
    }

    /// Accounts for a message with a key that was encoded. Returns `false` if it was dropped as one
    /// of the oldest, because it has taken the place of an old one.
    #[inline(never)]
    pub(crate) fn after_write_latest(&mut self, services: &mut LoopServices, key: u64) -> bool {
        let waited = self.holds_latest(key);
        self.after_write(services);
        let is_kept = !waited || self.holds_latest(key);
        if !is_kept {
            self.status.set(Memory::DROPPED);
        }
        is_kept
    }

    fn holds_latest(&self, key: u64) -> bool {
        self.outbound.lease.as_ref().is_some_and(|lease| lease.writes.holds_latest(key))
    }

    /// Like [`confirm`](ChannelState::confirm), for the message with this key that was written
    /// last.
    pub(crate) fn confirm_latest(&mut self, key: u64, confirmation: Confirmation) {
        let confirmation = match &mut self.outbound.lease {
            Some(lease) if !self.status.has(Memory::DROPPED) => {
                lease.writes.confirm_latest(key, confirmation)
            }
            _ => Some(confirmation),
        };
        if let Some(confirmation) = confirmation {
            self.confirm(confirmation);
        }
    }
}
