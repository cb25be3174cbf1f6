//! Messages that wait in a channel's buffer: how long each is, and who wants to know when it is gone.
//!
//! Kept only where somebody asks: for a channel that drops its oldest messages, and from a write that wants an answer to
//! the byte in which that ends. Always holds: answers are given once each, in the order of the writes; a channel that closes
//! answers all that are left with what closed it; a message of which the kernel has a byte is never dropped. Who is
//! answered runs at once on the channel's loop, and can reach the channel only through its handle: so nothing that it
//! does happens within the flush. Runs on the channel's loop; owns the answers, not the bytes.

use super::{
    config::{ChannelConfig, Overflow},
    outbound_budget::OutboundLease,
    producers::UNCONFIRMED,
    services::LoopServices,
    state::{ChannelState, Flags},
};
use crate::{
    Error, Result,
    log_throttle::{SLOW_PEERS, log_throttled},
    sync::{Completer, Completion, completion},
};
use log::Level;
use std::collections::VecDeque;

/// Writes of a channel that may wait for their answer.
pub(crate) const MAX_UNCONFIRMED: usize = 65_536;

/// Who waits to hear that a write is done, or for another answer of a channel; told that the channel is closed if nobody
/// says otherwise.
pub(crate) struct Confirmation<T = ()>(Option<Completer<T>>);

impl<T> Confirmation<T> {
    pub(crate) fn new(event_loop: u32) -> (Self, Completion<T>) {
        let (completer, completion) = completion(Some(event_loop));
        (Confirmation(Some(completer)), completion)
    }

    pub(crate) fn complete(mut self, result: Result<T>) {
        if let Some(completer) = self.0.take() {
            completer.complete(result);
        }
    }
}

impl<T> Drop for Confirmation<T> {
    fn drop(&mut self) {
        if let Some(completer) = self.0.take() {
            completer.complete(Err(Error::Closed));
        }
    }
}

#[derive(Default)]
pub(crate) struct PendingWrites {
    messages: VecDeque<Message>,
    /// Bytes of the first that the kernel has.
    taken: usize,
    /// Bytes of all of them that it has not.
    waiting: usize,
    /// How many are to be answered.
    unanswered: usize,
    /// What closes the channel, if it was an error.
    cause: Option<Error>,
}

struct Message {
    len: usize,
    confirmation: Option<Confirmation>,
}

impl PendingWrites {
    fn push(&mut self, len: usize, confirmation: Option<Confirmation>) {
        self.waiting += len;
        self.unanswered += usize::from(confirmation.is_some());
        self.messages.push_back(Message { len, confirmation });
    }

    fn pop(&mut self) -> Option<Message> {
        let message = self.messages.pop_front()?;
        self.unanswered -= usize::from(message.confirmation.is_some());
        self.taken = 0;
        Some(message)
    }

    /// The kernel took `n` bytes. Returns the number of answers that were given.
    fn consume(&mut self, mut n: usize) -> usize {
        let before = self.unanswered;
        while let Some(first) = self.messages.front() {
            let left = first.len - self.taken;
            if n < left {
                self.taken += n;
                self.waiting -= n;
                return before - self.unanswered;
            }
            n -= left;
            self.waiting -= left;
            if let Some(confirmation) = self.pop().and_then(|message| message.confirmation) {
                confirmation.complete(Ok(()));
            }
        }
        self.messages.shrink_to(64);
        before - self.unanswered
    }

    /// Writes that wait for an answer.
    pub(super) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Returns the number of bytes that may be dropped: those of messages that have not begun.
    pub(super) fn droppable(&self, sealed: usize) -> usize {
        self.waiting.saturating_sub(self.begun(sealed).1)
    }

    /// Returns how many messages have begun, and how many bytes of them wait. They must stay, because the
    /// kernel has taken the rest of the first one, or because filters have `sealed` so many bytes.
    fn begun(&self, sealed: usize) -> (usize, usize) {
        let (mut messages, mut bytes, mut taken) = (0, 0, self.taken);
        for message in &self.messages {
            if taken == 0 && bytes >= sealed {
                break;
            }
            messages += 1;
            bytes += message.len - taken;
            taken = 0;
        }
        (messages, bytes)
    }

    /// Drops the oldest messages but not the `first` ones, which have begun, nor the newest, until `least` bytes are gone; how many
    /// messages and bytes that were.
    fn drop_oldest(&mut self, first: usize, least: usize, why: impl Fn() -> Error) -> (usize, usize) {
        let (mut messages, mut bytes) = (0, 0);
        while bytes < least && first + messages + 1 < self.messages.len() {
            bytes += self.messages[first + messages].len;
            messages += 1;
        }
        self.waiting -= bytes;
        for confirmation in self.messages.drain(first..first + messages).filter_map(|m| m.confirmation) {
            self.unanswered -= 1;
            confirmation.complete(Err(why()));
        }
        (messages, bytes)
    }
}

impl ChannelState {
    /// # Errors
    /// If as many writes wait for their answer as may.
    pub(crate) fn may_confirm(&self) -> Result {
        match &self.pending_writes {
            Some(pending_writes) if pending_writes.unanswered >= MAX_UNCONFIRMED => {
                Err(Error::Full { what: UNCONFIRMED, limit: MAX_UNCONFIRMED })
            }
            _ => Ok(()),
        }
    }

    /// Answers when all bytes that wait now are taken. The channel's handles count it already.
    pub(crate) fn confirm(&mut self, confirmation: Confirmation) {
        if self.take(Flags::DROPPED) {
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
        let pending_writes = self.pending_writes.get_or_insert_default();
        // The message itself may have been entered already.
        match pending_writes.messages.back_mut() {
            Some(last)
                if pending_writes.waiting == pending && last.len > 0 && last.confirmation.is_none() =>
            {
                last.confirmation = Some(confirmation);
                pending_writes.unanswered += 1;
            }
            _ => pending_writes.push(pending - pending_writes.waiting, Some(confirmation)),
        }
    }

    /// The kernel took `n` bytes.
    #[inline]
    pub(crate) fn confirm_taken(&mut self, n: usize) {
        if let Some(pending_writes) = &mut self.pending_writes {
            let answered = pending_writes.consume(n);
            self.note_answered(answered);
        }
    }

    /// Writes were answered: handles may have others under way for them.
    pub(crate) fn note_answered(&self, writes: usize) {
        if let Some(shared) = &self.shared
            && writes > 0
        {
            shared.producers.end_unconfirmed(writes);
        }
    }

    /// The handler waits for the answer to a write.
    pub(crate) fn note_unanswered(&self) {
        if let Some(shared) = &self.shared {
            shared.producers.add_unconfirmed(1);
        }
    }

    /// An error has closed the channel.
    pub(crate) fn note_cause(&mut self, cause: impl FnOnce() -> Error) {
        if let Some(pending_writes) = &mut self.pending_writes {
            pending_writes.cause.get_or_insert_with(cause);
        }
    }

    /// The channel is closed: nothing more will be taken.
    pub(crate) fn confirm_nothing_more(&mut self) {
        let Some(mut pending_writes) = self.pending_writes.take() else { return };
        while let Some(message) = pending_writes.pop() {
            if let Some(confirmation) = message.confirmation {
                confirmation.complete(Err(pending_writes.cause.as_ref().map_or(Error::Closed, Error::again)));
            }
        }
    }

    // ---- a full buffer -------------------------------------------------------------------------------

    /// The ledger of a new channel: one that drops its oldest messages has to know all of them.
    pub(crate) fn first_pending_writes(config: &ChannelConfig) -> Option<Box<PendingWrites>> {
        (config.overflow == Overflow::DropOldest).then(Box::default)
    }

    /// Before a message is encoded: what waits and was not entered yet was written by a stage.
    #[inline]
    pub(crate) fn before_write(&mut self) {
        // That of an earlier message, for which nobody wanted an answer.
        if self.has(Flags::DROPPED) {
            self.unset(Flags::DROPPED);
        }
        if self.pending_writes.is_some() {
            self.enter_written();
        }
    }

    /// Enters what waits and was not entered yet, if somebody has to know where messages end.
    #[cold]
    pub(crate) fn enter_written(&mut self) {
        if self.config.overflow == Overflow::DropOldest {
            self.enter_message();
        }
    }

    #[cold]
    fn enter_message(&mut self) {
        let pending = self.pending_bytes();
        let pending_writes = self.pending_writes.get_or_insert_default();
        if pending > pending_writes.waiting {
            pending_writes.push(pending - pending_writes.waiting, None);
        }
    }

    /// After a message was encoded.
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

    /// After a message was not: what the channel's policy makes of it.
    #[cold]
    pub(crate) fn write_failed(&mut self, services: &mut LoopServices, error: Error) -> Result {
        if OutboundLease::is_full(&error) { self.overflow(services) } else { Err(error) }
    }

    fn overflow(&mut self, services: &mut LoopServices) -> Result {
        match self.config.overflow {
            Overflow::DropNewest => {
                services.tally.messages_dropped += 1;
                self.note_messages_dropped(1);
                self.set(Flags::DROPPED);
                return Ok(());
            }
            Overflow::Close if self.is_open() => {
                let full = self.outbound_is_full();
                let id = self.id();
                log_throttled!(
                    services,
                    SLOW_PEERS,
                    Level::Info,
                    "channel {id}: its peer does not keep up ({full}); closing"
                );
                services.tally.closes_overflowed += 1;
                self.note_cause(|| full);
                self.request_close_now();
            }
            _ => services.tally.messages_refused += 1,
        }
        Err(self.outbound_is_full())
    }

    /// Brings the buffer down to seven eighths of its limit if it is beyond that.
    #[cold]
    fn drop_oldest(&mut self, services: &mut LoopServices) {
        let (pending, limit) = (self.pending_bytes(), self.outbound_limit());
        if pending <= limit {
            return;
        }
        let full = self.outbound_is_full();
        let sealed = self.sealed_bytes();
        let Some(pending_writes) = &mut self.pending_writes else { return };
        let (first, keep) = pending_writes.begun(sealed);
        let unanswered = pending_writes.unanswered;
        let (messages, bytes) =
            pending_writes.drop_oldest(first, pending - limit + limit / 8, || full.again());
        let answered = unanswered - pending_writes.unanswered;
        self.note_answered(answered);
        services.tally.messages_dropped += messages as u64;
        self.note_messages_dropped(messages as u64);
        self.drop_outbound_behind(keep, bytes);
    }
}
