//! Messages in memory: recently delivered messages, and messages that arrived too early.
//!
//! Invariant: no message is dropped here. Messages that are removed are collected, and dropped
//! without the topic's lock.

use crate::broker::store::{Epochs, Position};
use std::collections::{BTreeMap, VecDeque};

/// For how many intervals after the last message the recent messages stay in memory.
const QUIET_INTERVALS: u32 = 2;

/// A message with its position.
#[derive(Debug, Clone)]
pub(in crate::broker) struct Item<P> {
    pub(in crate::broker) position: Position,
    pub(in crate::broker) payload: P,
    /// The size of the stored payload, in bytes.
    pub(in crate::broker) size: usize,
}

/// The messages that were delivered last, without gaps. Within limits of number and bytes.
#[derive(Debug)]
pub(super) struct Ring<P> {
    items: VecDeque<Item<P>>,
    pub(super) removed: Vec<Item<P>>,
    bytes: usize,
    max_items: usize,
    max_bytes: usize,
    /// Intervals since the last message.
    quiet: u32,
}

impl<P: Clone> Ring<P> {
    pub(super) fn new(max_items: usize, max_bytes: usize) -> Self {
        Ring { items: VecDeque::new(), removed: Vec::new(), bytes: 0, max_items, max_bytes, quiet: 0 }
    }

    /// An interval has passed. Takes all messages if the last one is old.
    pub(super) fn take_old(&mut self) -> VecDeque<Item<P>> {
        self.quiet = self.quiet.saturating_add(1);
        if self.quiet <= QUIET_INTERVALS {
            return VecDeque::new();
        }
        self.bytes = 0;
        std::mem::take(&mut self.items)
    }

    /// Returns whether no message is there.
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds the next message.
    pub(super) fn push(&mut self, item: Item<P>) {
        if self
            .items
            .back()
            .is_some_and(|last| last.position.offset.saturating_add(1) != item.position.offset)
        {
            self.clear();
        }
        self.quiet = 0;
        self.bytes += item.size;
        self.items.push_back(item);
        while self.items.len() > self.max_items || self.bytes > self.max_bytes {
            let Some(oldest) = self.items.pop_front() else { return };
            self.bytes -= oldest.size;
            self.removed.push(oldest);
        }
    }

    pub(super) fn clear(&mut self) {
        self.removed.extend(self.items.drain(..));
        self.bytes = 0;
    }

    /// Removes the messages behind an offset.
    pub(super) fn truncate(&mut self, offset: u64) {
        while self.items.back().is_some_and(|last| last.position.offset > offset) {
            let Some(newest) = self.items.pop_back() else { return };
            self.bytes -= newest.size;
            self.removed.push(newest);
        }
    }

    /// Returns whether the message behind an offset is there.
    pub(super) fn covers(&self, offset: u64) -> bool {
        self.items.front().is_some_and(|first| first.position.offset <= offset.saturating_add(1))
            && self.items.back().is_some_and(|last| last.position.offset > offset)
    }

    /// Returns the messages behind an offset.
    pub(super) fn after(&self, offset: u64) -> impl Iterator<Item = &Item<P>> {
        let first = self.items.front().map_or(0, |first| first.position.offset);
        let skip = usize::try_from(offset.saturating_add(1).saturating_sub(first)).unwrap_or(usize::MAX);
        self.items.iter().skip(skip)
    }

    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

/// Messages that arrived before an earlier one. Within limits of number and bytes.
#[derive(Debug)]
pub(in crate::broker) struct Ahead<P> {
    /// By offset and epoch. With the number of the next read at the time of the arrival.
    items: BTreeMap<(u64, u64), (Item<P>, u64)>,
    pub(in crate::broker) removed: Vec<Item<P>>,
    bytes: usize,
    max_items: usize,
    max_bytes: usize,
}

impl<P> Ahead<P> {
    pub(in crate::broker) fn new(max_items: usize, max_bytes: usize) -> Self {
        Ahead { items: BTreeMap::new(), removed: Vec::new(), bytes: 0, max_items, max_bytes }
    }

    pub(in crate::broker) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Adds a message that arrived before the read `next_read` began. Returns `false` if a message
    /// had to be dropped.
    pub(in crate::broker) fn insert(&mut self, item: Item<P>, next_read: u64) -> bool {
        self.bytes += item.size;
        let key = (item.position.offset, item.position.epoch);
        if let Some((twice, _)) = self.items.insert(key, (item, next_read)) {
            self.bytes -= twice.size;
            self.removed.push(twice);
        }
        // A single message may be larger: it is often the next one.
        let has_others = self.items.len() > 1;
        let is_full = self.items.len() > self.max_items || self.bytes > self.max_bytes && has_others;
        if is_full && let Some((_, (last, _))) = self.items.pop_last() {
            self.bytes -= last.size;
            self.removed.push(last);
        }
        !is_full
    }

    /// Takes the message behind a position. Removes messages that are not needed any more.
    pub(in crate::broker) fn take_next(&mut self, epochs: &Epochs, offset: u64) -> Option<Item<P>> {
        while let Some(entry) = self.items.first_entry() {
            let (at, epoch) = *entry.key();
            if at > offset.saturating_add(1) {
                return None;
            }
            if at == offset.saturating_add(1) && !epochs.has(epoch) {
                // Another one may have the same offset.
                let next = self
                    .items
                    .keys()
                    .find(|(at, epoch)| *at == offset.saturating_add(1) && epochs.has(*epoch))
                    .copied()?;
                let item = self.remove(next)?;
                if epochs.has_message(item.position) {
                    return Some(item);
                }
                self.removed.push(item);
                return None;
            }
            let (item, _) = entry.remove();
            self.bytes -= item.size;
            if at == offset.saturating_add(1) && epochs.has_message(item.position) {
                return Some(item);
            }
            self.removed.push(item);
        }
        None
    }

    fn remove(&mut self, key: (u64, u64)) -> Option<Item<P>> {
        let (item, _) = self.items.remove(&key)?;
        self.bytes -= item.size;
        Some(item)
    }

    /// Removes the messages that arrived before a read began. They are in its answer, or they are
    /// lost.
    pub(in crate::broker) fn forget_before(&mut self, read: u64) {
        let (old, new) =
            std::mem::take(&mut self.items).into_iter().partition(|(_, (_, next_read))| *next_read <= read);
        let old: BTreeMap<_, _> = old;
        self.items = new;
        self.removed.extend(old.into_values().map(|(item, _)| item));
        self.bytes = self.items.values().map(|(item, _)| item.size).sum();
    }
}
