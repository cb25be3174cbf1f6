//! Messages that wait to be sent, confirmations of writes, and the policy of a full buffer.

use super::{ChannelState, Memory};
use crate::{
    Error, Result,
    channel::{
        close_cause::CloseCause,
        config::{ChannelConfig, Overflow},
        confirmation::Confirmation,
        handle::MAX_UNCONFIRMED,
        outbound::{OutboundLease, PendingWrites},
        services::LoopServices,
    },
    error::Resource,
    log_throttle::{SLOW_PEERS, log_throttled},
};
use log::Level;

impl ChannelState {
    /// # Errors
    /// If the limit of unconfirmed writes is reached.
    pub(crate) fn may_confirm(&self) -> Result {
        match &self.pending_writes {
            Some(pending_writes) if pending_writes.unanswered() >= MAX_UNCONFIRMED => {
                Err(Error::Full { resource: Resource::PendingWrites, limit: MAX_UNCONFIRMED })
            }
            _ => Ok(()),
        }
    }

    /// Confirms when the kernel has accepted all pending bytes. The channel's handles count the
    /// confirmation already.
    pub(crate) fn confirm(&mut self, confirmation: Confirmation) {
        if self.status.take(Memory::DROPPED) {
            self.note_answered(1);
            confirmation.complete(Err(self.outbound_is_full()));
            return;
        }
        let pending = self.pending_bytes();
        if pending == 0 {
            self.note_answered(1);
            confirmation.complete(Ok(()));
            return;
        }
        self.pending_writes.get_or_insert_default().confirm(pending, confirmation);
    }

    /// Confirms the writes that end within the `n` bytes that the kernel has accepted.
    #[inline]
    pub(crate) fn confirm_taken(&mut self, n: usize) {
        if self.pending_writes.is_some() {
            self.confirm_pending(n);
        }
    }

    /// Not inlined, so that `confirm_taken` is small enough to be inlined into the write path.
    #[inline(never)]
    fn confirm_pending(&mut self, n: usize) {
        if let Some(pending_writes) = &mut self.pending_writes {
            let answered = pending_writes.consume(n);
            self.note_answered(answered);
        }
    }

    /// Makes room for further unconfirmed writes by handles.
    pub(crate) fn note_answered(&self, writes: usize) {
        if let Some(shared) = self.shared.get()
            && writes > 0
        {
            shared.producers.end_unconfirmed(writes);
        }
    }

    /// Counts an unconfirmed write of the handler.
    pub(crate) fn note_unanswered(&self) {
        if let Some(shared) = self.shared.get() {
            shared.producers.add_unconfirmed(1);
        }
    }

    /// Records the error that closes the channel, for the writes that it leaves unsent.
    pub(crate) fn note_error(&mut self, error: impl FnOnce() -> Error) {
        if let Some(pending_writes) = &mut self.pending_writes {
            pending_writes.note_error(error);
        }
    }

    /// Fails the remaining confirmations, because the channel is closed.
    pub(crate) fn confirm_nothing_more(&mut self) {
        if let Some(pending_writes) = self.pending_writes.take() {
            pending_writes.close();
        }
    }

    // ---- a full buffer ----

    /// Returns the pending writes of a new channel, which a channel that drops its oldest messages
    /// needs from the start.
    pub(crate) fn first_pending_writes(config: &ChannelConfig) -> Option<Box<PendingWrites>> {
        (config.overflow == Overflow::DropOldest).then(Box::default)
    }

    /// Prepares for a message: pending bytes without an entry were written by a stage.
    #[inline]
    pub(crate) fn before_write(&mut self) {
        // Left by an earlier message without a confirmation.
        if self.status.has(Memory::DROPPED) {
            self.status.unset(Memory::DROPPED);
        }
        if self.pending_writes.is_some() {
            self.enter_written();
        }
    }

    /// Enters pending bytes without an entry, if message boundaries matter.
    #[cold]
    pub(crate) fn enter_written(&mut self) {
        if self.config.overflow == Overflow::DropOldest {
            self.enter_message();
        }
    }

    #[cold]
    fn enter_message(&mut self) {
        let pending = self.pending_bytes();
        self.pending_writes.get_or_insert_default().enter(pending);
    }

    /// Accounts for a message that was encoded.
    #[inline]
    pub(crate) fn after_write(&mut self, services: &mut LoopServices) {
        services.tally.messages_written += 1;
        self.counts.messages_written += 1;
        if self.pending_writes.is_some() {
            self.enter_and_drop(services);
        }
    }

    #[cold]
    fn enter_and_drop(&mut self, services: &mut LoopServices) {
        if self.config.overflow == Overflow::DropOldest {
            self.enter_message();
            self.drop_oldest(services);
        }
    }

    /// Applies the overflow policy to a message that could not be written.
    #[cold]
    pub(crate) fn write_failed(&mut self, services: &mut LoopServices, error: Error) -> Result {
        if OutboundLease::is_full(&error) { self.overflow(services) } else { Err(error) }
    }

    fn overflow(&mut self, services: &mut LoopServices) -> Result {
        match self.config.overflow {
            Overflow::DropNewest => {
                services.tally.messages_dropped += 1;
                self.extras.note_messages_dropped(1);
                self.status.set(Memory::DROPPED);
                return Ok(());
            }
            Overflow::Close if self.status.is_open() => {
                let full = self.outbound_is_full();
                let id = self.id();
                log_throttled!(
                    services,
                    SLOW_PEERS,
                    Level::Info,
                    "channel {id}: its peer does not keep up ({full}); closing"
                );
                services.tally.closes_overflowed += 1;
                self.note_error(|| full);
                self.request_close_now(CloseCause::Failed);
            }
            _ => services.tally.messages_refused += 1,
        }
        Err(self.outbound_is_full())
    }

    /// Drops messages until the buffer holds seven eighths of its limit, if it exceeds the limit.
    #[cold]
    fn drop_oldest(&mut self, services: &mut LoopServices) {
        let (pending, limit) = (self.pending_bytes(), self.outbound_limit());
        if pending <= limit {
            return;
        }
        let full = self.outbound_is_full();
        let sealed = self.extras.sealed_bytes();
        let Some(pending_writes) = &mut self.pending_writes else { return };
        let dropped = pending_writes.drop_oldest(sealed, pending - limit + limit / 8, || full.clone());
        self.note_answered(dropped.answered);
        services.tally.messages_dropped += dropped.messages as u64;
        self.extras.note_messages_dropped(dropped.messages as u64);
        self.drop_outbound_behind(dropped.keep, dropped.bytes);
    }
}
