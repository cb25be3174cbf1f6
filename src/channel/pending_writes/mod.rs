//! Messages that wait in a channel's outbound buffer: their lengths and their confirmations.
//!
//! Part of the leased buffer, so a channel without pending bytes has none. Messages are entered
//! only where they matter: all of them in a channel that drops its oldest messages, and otherwise
//! those from a write with a confirmation until that is sent, and replaceable messages.
//!
//! Invariants: each confirmation completes once, in the order of the messages. A channel that
//! closes fails the remaining ones with the cause. A message is neither dropped nor replaced after
//! its first byte was sent. It is not dropped either if a stage keeps it. Callbacks of
//! confirmations run within the flush, or within the write that drops or replaces the message. They
//! reach the channel only through a handle, so their requests take effect later. Runs on the
//! channel's loop. Owns the confirmations, not the bytes.

mod latest_index;

use crate::{channel::confirmation::Confirmation, error::Error};
use latest_index::LatestIndex;
use std::collections::VecDeque;

/// The number of messages whose memory is kept for the next ones.
const KEPT: usize = 64;

#[derive(Default)]
pub(crate) struct PendingWrites {
    messages: VecDeque<Message>,
    /// Bytes of the first message that the kernel has taken.
    taken: usize,
    /// Bytes of all messages that the kernel has not taken.
    waiting: usize,
    /// The number of leading bytes that a stage, or a pipeline that was replaced, keeps.
    kept: usize,
    /// The number of confirmations.
    unanswered: usize,
    /// The error that closes the channel, if there is one.
    error: Option<Error>,
    /// The messages that newer ones replace. `None` if there were none.
    latest: Option<Box<LatestIndex>>,
}

/// A waiting message that a newer one may replace.
#[derive(Debug, Clone, Copy)]
pub(in crate::channel) struct Replaceable {
    position: usize,
    /// The number of its chunk in the outbound buffer.
    pub(in crate::channel) chunk: usize,
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

    /// Enters the pending bytes without an entry as one message.
    pub(in crate::channel) fn enter(&mut self, pending: usize) {
        if pending > self.waiting {
            self.push(pending - self.waiting, None);
        }
    }

    /// Keeps the `pending` bytes: their messages are not dropped.
    pub(in crate::channel) fn keep(&mut self, pending: usize) {
        self.kept = pending;
    }

    /// Adds a confirmation that completes once all of the `pending` bytes are taken.
    pub(in crate::channel) fn confirm(&mut self, pending: usize, confirmation: Confirmation) {
        // The message may have an entry already, unless it is empty and the last one is another.
        let is_replaceable = self.latest.as_ref().is_some_and(|latest| latest.ends_at(self.messages.len()));
        match self.messages.back_mut() {
            Some(last)
                if self.waiting == pending
                    && last.len > 0
                    && last.confirmation.is_none()
                    && !is_replaceable =>
            {
                last.confirmation = Some(confirmation);
                self.unanswered += 1;
            }
            _ => self.push(pending - self.waiting, Some(confirmation)),
        }
    }

    /// Returns whether no message was entered that is not taken.
    #[inline]
    pub(in crate::channel) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    /// Records the error that closes the channel. The first one counts.
    pub(in crate::channel) fn note_error(&mut self, error: impl FnOnce() -> Error) {
        self.error.get_or_insert_with(error);
    }

    /// Fails the remaining confirmations, because the channel is closed or its buffer is given
    /// back.
    pub(in crate::channel) fn close(&mut self) {
        let error = self.error.take();
        while let Some(message) = self.pop() {
            if let Some(confirmation) = message.confirmation {
                confirmation.complete(Err(error.clone().unwrap_or(Error::Closed)));
            }
        }
        (self.waiting, self.kept) = (0, 0);
        self.forget_all();
    }

    /// Frees memory when no message is left.
    fn forget_all(&mut self) {
        self.messages.shrink_to(KEPT);
        self.latest = None;
    }

    /// Returns its memory in bytes beyond its own size, used or not, while no message is entered.
    /// The index of replaceable messages is freed with the last message.
    pub(in crate::channel) fn memory(&self) -> usize {
        self.messages.capacity() * size_of::<Message>()
    }

    /// Returns whether there is nothing to reset, and no memory of its own.
    #[inline]
    pub(in crate::channel) fn is_light(&self) -> bool {
        self.error.is_none() && self.messages.capacity() | self.kept == 0
    }

    /// Prepares for another channel.
    #[inline]
    pub(in crate::channel) fn reset(&mut self) {
        self.kept = 0;
        if self.error.is_some() || !self.is_empty() {
            self.close();
        }
    }

    /// Removes `n` bytes that the kernel has taken. Returns the number of completed confirmations.
    pub(in crate::channel) fn consume(&mut self, n: usize) -> usize {
        let (unanswered, mut rest, mut messages) = (self.unanswered, n, 0);
        self.kept = self.kept.saturating_sub(n);
        while let Some(first) = self.messages.front() {
            let left = first.len - self.taken;
            if rest < left {
                self.taken += rest;
                self.waiting -= rest;
                if let Some(latest) = &mut self.latest {
                    latest.note_taken(messages, n);
                }
                return unanswered - self.unanswered;
            }
            rest -= left;
            self.waiting -= left;
            messages += 1;
            if let Some(confirmation) = self.pop().and_then(|message| message.confirmation) {
                confirmation.complete(Ok(()));
            }
        }
        self.forget_all();
        unanswered - self.unanswered
    }

    /// Returns the number of confirmations.
    pub(in crate::channel) fn unanswered(&self) -> usize {
        self.unanswered
    }

    /// Returns the number of bytes that may be dropped: those of messages that are neither partly
    /// sent nor kept.
    pub(in crate::channel) fn droppable(&self, sealed: usize) -> usize {
        self.waiting.saturating_sub(self.begun(sealed).1)
    }

    /// Returns the number of messages that are partly sent, and the number of their pending bytes.
    /// They must stay, because the kernel has accepted the start of the first one, or because
    /// filters have `sealed` this number of bytes. Kept messages count as well.
    fn begun(&self, sealed: usize) -> (usize, usize) {
        let sealed = sealed.max(self.kept);
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

    /// Drops the oldest messages until `least` bytes are freed. Keeps the newest message, messages
    /// that are partly sent, the `sealed` bytes of filters, and the kept bytes.
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
        if let Some(latest) = &mut self.latest {
            latest.note_gone(messages, first);
        }
        Dropped { keep, messages, bytes, answered }
    }

    // ---- messages that newer ones replace ----

    /// Makes all waiting messages stay if they were encoded with another encoding key.
    pub(in crate::channel) fn use_encoder(&mut self, encoder: u64) {
        self.latest.take_if(|latest| latest.encoder != encoder);
    }

    /// Returns whether a message waits that a newer one would replace.
    pub(in crate::channel) fn has_latest(&self) -> bool {
        self.latest.as_ref().is_some_and(|latest| !latest.is_empty())
    }

    /// Finds the newest message with this key, unless it is partly sent or sealed.
    pub(in crate::channel) fn find_latest(&mut self, key: u64, sealed: usize) -> Option<Replaceable> {
        let latest = self.latest.as_mut()?;
        let (position, chunk) = latest.find(key)?;
        let (messages, taken) = (&self.messages, self.taken);
        let len = |at: usize| Some(messages.get(at)?.len - if at == 0 { taken } else { 0 });
        let begun = latest.sealed(sealed, len).max(usize::from(taken > 0));
        (position >= begun).then_some(Replaceable { position, chunk })
    }

    /// Enters a message behind all others, whose bytes are in this chunk.
    pub(in crate::channel) fn push_latest(&mut self, key: u64, encoder: u64, chunk: usize, len: usize) {
        let latest = self.latest.get_or_insert_with(|| Box::new(LatestIndex::new(encoder)));
        latest.insert(key, self.messages.len(), chunk);
        self.push(len, None);
    }

    /// Records the length of a message that has replaced another one. Returns the confirmation of
    /// that one.
    pub(in crate::channel) fn replace(&mut self, place: Replaceable, len: usize) -> Option<Confirmation> {
        let message = self.messages.get_mut(place.position)?;
        self.waiting = self.waiting - message.len + len;
        message.len = len;
        let replaced = message.confirmation.take();
        self.unanswered -= usize::from(replaced.is_some());
        replaced
    }

    /// Adds a confirmation to the newest message with this key. Returns the confirmation if there
    /// is none, because the message was not entered.
    pub(in crate::channel) fn confirm_latest(
        &mut self,
        key: u64,
        confirmation: Confirmation,
    ) -> Option<Confirmation> {
        let found = self.latest.as_ref().and_then(|latest| latest.find(key));
        match found.and_then(|(position, _)| self.messages.get_mut(position)) {
            Some(message) => {
                message.confirmation = Some(confirmation);
                self.unanswered += 1;
                None
            }
            None => Some(confirmation),
        }
    }

    /// Returns whether a message with this key waits that a newer one would replace.
    pub(in crate::channel) fn holds_latest(&self, key: u64) -> bool {
        self.latest.as_ref().is_some_and(|latest| latest.find(key).is_some())
    }

    /// Makes the message with this key stay, because a newer one was put behind it.
    pub(in crate::channel) fn keep_latest(&mut self, key: u64) {
        if let Some(latest) = &mut self.latest {
            latest.remove(key);
        }
    }

    /// Makes all messages stay, because the next ones are encoded in another way.
    pub(in crate::channel) fn keep_all(&mut self) {
        self.latest = None;
    }
}

/// Messages that were dropped.
pub(in crate::channel) struct Dropped {
    /// Bytes in front of the dropped messages.
    pub(in crate::channel) keep: usize,
    pub(in crate::channel) messages: usize,
    pub(in crate::channel) bytes: usize,
    /// The number of failed confirmations.
    pub(in crate::channel) answered: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A buffer is lent to one channel after the other.
    #[test]
    fn the_memory_of_many_messages_is_not_kept() {
        let kept = 2 * KEPT * size_of::<Message>();
        let end: [fn(&mut PendingWrites); 3] =
            [|writes| writes.reset(), |writes| writes.close(), |writes| _ = writes.consume(10_000)];
        for end in end {
            let mut writes = PendingWrites::default();
            (1..=10_000).for_each(|pending| writes.enter(pending));
            assert!(writes.memory() >= 10_000 * size_of::<Message>());
            end(&mut writes);
            assert!(writes.is_empty() && writes.memory() <= kept, "{} bytes", writes.memory());
            writes.enter(1);
            assert_eq!(writes.droppable(0), 1, "nothing else waits");
        }
    }

    #[test]
    fn kept_bytes_are_forgotten_before_another_channel_writes() {
        let mut writes = PendingWrites::default();
        writes.keep(5);
        assert!(!writes.is_light(), "it is reset");
        writes.reset();
        writes.enter(3);
        writes.enter(6);
        assert_eq!(writes.droppable(0), 6);
    }
}
