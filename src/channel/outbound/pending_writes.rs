//! Messages that wait in a channel's buffer: how long each is, and who wants to know when it is gone.
//!
//! Kept only where somebody asks: for a channel that drops its oldest messages, and from a write that wants an answer to
//! the byte in which that ends. Always holds: answers are given once each, in the order of the writes; a channel that closes
//! answers all that are left with what closed it; a message of which the kernel has a byte is never dropped. Who is
//! answered runs at once on the channel's loop, and can reach the channel only through its handle: so nothing that it
//! does happens within the flush. Runs on the channel's loop; owns the answers, not the bytes.

use crate::{Error, channel::confirmation::Confirmation};
use std::collections::VecDeque;

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

    /// Enters what waits and was not entered yet, as one message.
    pub(in crate::channel) fn enter(&mut self, pending: usize) {
        if pending > self.waiting {
            self.push(pending - self.waiting, None);
        }
    }

    /// Answers when all of the `pending` bytes are taken.
    pub(in crate::channel) fn confirm(&mut self, pending: usize, confirmation: Confirmation) {
        // The message itself may have been entered already.
        match self.messages.back_mut() {
            Some(last) if self.waiting == pending && last.len > 0 && last.confirmation.is_none() => {
                last.confirmation = Some(confirmation);
                self.unanswered += 1;
            }
            _ => self.push(pending - self.waiting, Some(confirmation)),
        }
    }

    /// Notes what closes the channel. The first cause counts.
    pub(in crate::channel) fn note_cause(&mut self, cause: impl FnOnce() -> Error) {
        self.cause.get_or_insert_with(cause);
    }

    /// The channel is closed: answers all that are left.
    pub(in crate::channel) fn close(mut self) {
        while let Some(message) = self.pop() {
            if let Some(confirmation) = message.confirmation {
                confirmation.complete(Err(self.cause.as_ref().map_or(Error::Closed, Error::again)));
            }
        }
    }

    /// The kernel took `n` bytes. Returns the number of answers that were given.
    pub(in crate::channel) fn consume(&mut self, mut n: usize) -> usize {
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
    pub(in crate::channel) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Returns the number of bytes that may be dropped: those of messages that have not begun.
    pub(in crate::channel) fn droppable(&self, sealed: usize) -> usize {
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

    /// Drops the oldest messages until `least` bytes are gone. Keeps those that have begun, of which
    /// filters have `sealed` so many bytes, and the newest one.
    pub(in crate::channel) fn drop_oldest(
        &mut self,
        sealed: usize,
        least: usize,
        why: impl Fn() -> Error,
    ) -> Dropped {
        let (first, keep) = self.begun(sealed);
        let (mut messages, mut bytes, mut answered) = (0, 0, 0);
        while bytes < least && first + messages + 1 < self.messages.len() {
            bytes += self.messages[first + messages].len;
            messages += 1;
        }
        self.waiting -= bytes;
        for confirmation in self.messages.drain(first..first + messages).filter_map(|m| m.confirmation) {
            answered += 1;
            confirmation.complete(Err(why()));
        }
        self.unanswered -= answered;
        Dropped { keep, messages, bytes, answered }
    }
}

/// Messages that were dropped.
pub(in crate::channel) struct Dropped {
    /// Bytes in front of them that stay.
    pub(in crate::channel) keep: usize,
    pub(in crate::channel) messages: usize,
    pub(in crate::channel) bytes: usize,
    /// Confirmations that have failed for them.
    pub(in crate::channel) answered: usize,
}
