//! The boundaries of messages that wait to be sent, and the completions of writes.

use super::{
    super::{ChannelState, services::LoopServices, status::Memory},
    Outbound,
};
use crate::{
    channel::{config::Overflow, confirmation::Confirmation, handle::MAX_UNCONFIRMED},
    error::{Error, Resource, Result},
};

impl Outbound {
    /// # Errors
    /// [`Error::Full`] if the limit of unconfirmed writes is reached.
    pub(crate) fn may_confirm(&self) -> Result {
        if self.unanswered() >= MAX_UNCONFIRMED {
            return Err(Error::Full { resource: Resource::PendingWrites, limit: MAX_UNCONFIRMED });
        }
        Ok(())
    }

    /// Returns whether messages in the buffer have boundaries or completions.
    #[inline]
    pub(in crate::channel::core) fn has_confirmations(&self) -> bool {
        self.lease.as_ref().is_some_and(|lease| !lease.writes.is_empty())
    }

    /// Records the error that closes the channel, for the writes that it leaves unsent.
    pub(crate) fn note_error(&mut self, error: impl FnOnce() -> Error) {
        if let Some(lease) = self.lease.as_mut().filter(|lease| !lease.writes.is_empty()) {
            lease.writes.note_error(error);
        }
    }

    /// Fails the remaining confirmations, because the channel is closed.
    pub(crate) fn confirm_nothing_more(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.writes.close();
        }
    }
}

impl ChannelState {
    /// Confirms when the kernel has accepted all pending bytes. The channel's handles count the
    /// confirmation already.
    pub(crate) fn confirm(&mut self, confirmation: Confirmation) {
        if self.status.take(Memory::DROPPED) {
            self.note_answered(1);
            confirmation.complete(Err(self.outbound_is_full()));
            return;
        }
        match &mut self.outbound.lease {
            Some(lease) if !lease.buffer.is_empty() => {
                lease.writes.confirm(lease.buffer.len(), confirmation);
            }
            _ => {
                self.note_answered(1);
                confirmation.complete(Ok(()));
            }
        }
    }

    /// Confirms the writes that end within the `n` bytes that the kernel has accepted.
    #[inline]
    pub(crate) fn confirm_taken(&mut self, n: usize) {
        if self.outbound.has_confirmations() {
            self.confirm_pending(n);
        }
    }

    /// Not inlined, so that `confirm_taken` is small enough to be inlined into the write path.
    #[inline(never)]
    fn confirm_pending(&mut self, n: usize) {
        if let Some(lease) = &mut self.outbound.lease {
            let answered = lease.writes.consume(n);
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

    // ---- boundaries ----

    /// Returns whether the overflow policy drops messages, so that their boundaries matter.
    #[inline]
    pub(crate) fn drops_messages(&self) -> bool {
        self.status.has(Memory::DROPS)
    }

    /// Prepares for a message: pending bytes without an entry were written by a stage.
    #[inline]
    pub(crate) fn before_write(&mut self) {
        if self.drops_messages() {
            // Left by an earlier message without a confirmation, and by a stage.
            self.status.unset(Memory::DROPPED.with(Memory::REFUSES));
            self.enter_message();
        }
    }

    /// Enters pending bytes without an entry, if message boundaries matter.
    #[inline]
    pub(super) fn enter_written(&mut self) {
        if self.drops_messages() {
            self.enter_message();
        }
    }

    #[cold]
    fn enter_message(&mut self) {
        if self.config.overflow == Overflow::DropOldest
            && let Some(lease) = &mut self.outbound.lease
        {
            lease.writes.enter(lease.buffer.len());
        }
    }

    /// Keeps all messages that wait: the overflow policy does not drop them.
    #[inline]
    pub(crate) fn keep_written(&mut self) {
        if self.drops_oldest()
            && let Some(lease) = &mut self.outbound.lease
        {
            lease.writes.keep(lease.buffer.len());
        }
    }

    /// Makes the overflow policy refuse the message that could not be written, and not drop it.
    #[cfg(feature = "http")]
    #[cold]
    pub(crate) fn refuse_overflow(&mut self) {
        self.status.set(Memory::REFUSES);
    }

    /// Counts a message that was encoded.
    #[inline]
    pub(crate) fn count_written(&mut self, services: &mut LoopServices) {
        services.tally.messages_written += 1;
        self.outbound.messages += 1;
    }

    /// Counts a message that was encoded, and drops others if it exceeds the limit.
    #[inline]
    pub(crate) fn after_write(&mut self, services: &mut LoopServices) {
        self.count_written(services);
        if self.drops_oldest() {
            self.enter_message();
            self.drop_oldest(services);
        }
    }
}
