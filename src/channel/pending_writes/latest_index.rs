//! The messages of a backlog that a newer message with the same key replaces.
//!
//! Messages are numbered in the order of the backlog. Their positions change when other messages
//! are sent or dropped, their numbers do not. So finding a message by its key takes one look into a
//! hash table, however long the backlog is.
//!
//! Invariant: a message in the table is the newest one with its key in the whole buffer.

use crate::lookup::LookupMap;
use std::collections::VecDeque;

/// The newest message of each key, and the extent of the messages that have begun to be sent.
pub(super) struct LatestIndex {
    /// The encoding key of the links that have encoded the messages.
    pub(super) encoder: u64,
    places: LookupMap<u64, Place>,
    /// The numbers and keys of all messages that were entered in the table, in order.
    keys: VecDeque<(usize, u64)>,
    /// The number of the first message of the backlog.
    first: usize,
    /// Messages at the front that filters have sealed, at least in part, and their pending bytes.
    /// Updated when it is needed.
    sealed: (usize, usize),
}

#[derive(Clone, Copy)]
struct Place {
    message: usize,
    chunk: usize,
}

impl LatestIndex {
    pub(super) fn new(encoder: u64) -> Self {
        let (places, keys) = (LookupMap::default(), VecDeque::new());
        LatestIndex { encoder, places, keys, first: 0, sealed: (0, 0) }
    }

    /// Enters the message at this position of the backlog. `chunk` is the number of its chunk in
    /// the outbound buffer.
    pub(super) fn insert(&mut self, key: u64, position: usize, chunk: usize) {
        let message = self.first.wrapping_add(position);
        self.places.insert(key, Place { message, chunk });
        self.keys.push_back((message, key));
    }

    /// Returns the position and the chunk of the newest message with this key.
    pub(super) fn find(&self, key: u64) -> Option<(usize, usize)> {
        let place = self.places.get(&key)?;
        Some((place.message.wrapping_sub(self.first), place.chunk))
    }

    /// Makes the message with this key stay, because a newer one waits behind it.
    pub(super) fn remove(&mut self, key: u64) {
        self.places.remove(&key);
    }

    /// Returns whether the last of this number of messages is, or was, replaceable.
    pub(super) fn ends_at(&self, messages: usize) -> bool {
        let last = self.first.wrapping_add(messages).wrapping_sub(1);
        self.keys.back().is_some_and(|(message, _)| *message == last)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Records that `n` messages are gone, of which the last one was before `position`. The
    /// messages before that position now stay.
    pub(super) fn note_gone(&mut self, n: usize, position: usize) {
        self.first = self.first.wrapping_add(n);
        while let Some(&(message, key)) = self.keys.front() {
            // The number of a message that is gone is lower than that of the first one.
            if message.wrapping_sub(self.first).cast_signed() >= position.cast_signed() {
                break;
            }
            self.keys.pop_front();
            if self.places.get(&key).is_some_and(|place| place.message == message) {
                self.places.remove(&key);
            }
        }
    }

    /// Returns how many messages at the front have bytes among the first `sealed` ones. `len`
    /// returns the pending bytes of the message at a position.
    ///
    /// Continues where the last call has ended, so that each message is visited once.
    pub(super) fn sealed(&mut self, sealed: usize, len: impl Fn(usize) -> Option<usize>) -> usize {
        let (messages, bytes) = &mut self.sealed;
        while *bytes < sealed
            && let Some(len) = len(*messages)
        {
            *bytes += len;
            *messages += 1;
        }
        *messages
    }

    /// Records that the kernel has taken `bytes`, and with them the ends of `messages`.
    pub(super) fn note_taken(&mut self, messages: usize, bytes: usize) {
        let (sealed_messages, sealed_bytes) = self.sealed;
        self.sealed = match sealed_bytes.checked_sub(bytes) {
            Some(left) if left > 0 => (sealed_messages - messages, left),
            _ => (0, 0),
        };
        self.note_gone(messages, 0);
    }
}
