//! The messages of one topic that are kept.
//!
//! Invariant: offsets are without gaps and end at the top of the topic. Pure.

use crate::broker::store::{
    history::{ReadFrom, ReadRange, StoredMessage},
    history_limits::HistoryLimits,
};
use std::{collections::VecDeque, time::Instant};

/// What a message takes in addition to its payload, in bytes.
const OVERHEAD: u64 = 64;

#[derive(Debug, Default)]
pub(super) struct Log {
    messages: VecDeque<(StoredMessage, Instant)>,
    /// The bytes of all payloads.
    bytes: u64,
    limits: HistoryLimits,
}

impl Log {
    /// Returns the bytes that the messages take, approximately.
    pub(super) fn cost(&self) -> u64 {
        self.bytes + OVERHEAD * self.messages.len() as u64
    }

    /// Returns the offset of the oldest message.
    pub(super) fn oldest(&self) -> Option<u64> {
        self.messages.front().map(|(message, _)| message.position.offset)
    }

    pub(super) fn len(&self) -> usize {
        self.messages.len()
    }

    pub(super) fn set_limits(&mut self, limits: HistoryLimits) {
        self.limits = limits;
    }

    pub(super) fn push(&mut self, message: StoredMessage, now: Instant) {
        self.bytes += message.payload.len() as u64;
        self.messages.push_back((message, now));
        self.trim(now);
    }

    /// Removes messages until the limits hold.
    pub(super) fn trim(&mut self, now: Instant) {
        while let Some((_, at)) = self.messages.front() {
            let is_old = now.saturating_duration_since(*at) >= self.limits.age;
            let is_full = self.messages.len() as u64 > self.limits.messages || self.bytes > self.limits.bytes;
            if !is_old && !is_full {
                return;
            }
            self.pop_oldest();
        }
    }

    pub(super) fn pop_oldest(&mut self) -> Option<StoredMessage> {
        self.removed(|messages| messages.pop_front())
    }

    pub(super) fn pop_newest(&mut self) -> Option<StoredMessage> {
        self.removed(|messages| messages.pop_back())
    }

    fn removed(
        &mut self,
        pop: impl FnOnce(&mut VecDeque<(StoredMessage, Instant)>) -> Option<(StoredMessage, Instant)>,
    ) -> Option<StoredMessage> {
        let (message, _) = pop(&mut self.messages)?;
        self.bytes -= message.payload.len() as u64;
        Some(message)
    }

    /// Returns the messages of a range from `oldest` on.
    pub(super) fn read(&self, range: &ReadRange, oldest: u64) -> Vec<StoredMessage> {
        let Some(first) = self.oldest() else { return Vec::new() };
        let end = first + self.messages.len() as u64;
        let from = match range.from {
            ReadFrom::After(offset) => offset.saturating_add(1),
            ReadFrom::Last(number) => end.saturating_sub(number),
        };
        let from = from.max(oldest).max(first).min(end);
        let mut bytes = 0;
        let mut read = Vec::new();
        // Less than the number of messages.
        for (message, _) in self.messages.iter().skip((from - first) as usize) {
            bytes += message.payload.len() as u64;
            if read.len() as u64 >= range.max_messages || (bytes > range.max_bytes && !read.is_empty()) {
                break;
            }
            read.push(message.clone());
        }
        read
    }
}
