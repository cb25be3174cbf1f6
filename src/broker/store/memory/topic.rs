//! One topic in memory: its epochs, and its messages or its map. Pure.

use super::log::Log;
use crate::broker::store::{
    epochs::Epochs,
    error::BrokerError,
    history::{History, ReadRange, StoredMessage},
    lease::NodeId,
    map::{EntryChange, MapChange, MapEntry, Snapshot},
    position::Position,
    tops::TopicTop,
};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// How long a topic keeps its place after its last use while others need room.
pub(super) const MIN_LIFE: Duration = Duration::from_secs(60);

/// What a topic has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TopicKind {
    Messages,
    Map,
}

#[derive(Debug)]
pub(super) struct MemoryTopic {
    /// `None` until the first operation that is for one kind only.
    kind: Option<TopicKind>,
    pub(super) epochs: Epochs,
    pub(super) top: u64,
    pub(super) log: Log,
    pub(super) entries: BTreeMap<Bytes, MapEntry>,
    used: Instant,
}

impl MemoryTopic {
    pub(super) fn new(epoch: u64, now: Instant) -> Self {
        MemoryTopic {
            kind: None,
            epochs: Epochs::first(epoch),
            top: 0,
            log: Log::default(),
            entries: BTreeMap::new(),
            used: now,
        }
    }

    /// Notes that the topic is used as this kind.
    pub(super) fn use_as(&mut self, kind: TopicKind, now: Instant) -> Result<(), BrokerError> {
        self.touch(now);
        if *self.kind.get_or_insert(kind) == kind { Ok(()) } else { Err(BrokerError::WrongKind) }
    }

    pub(super) fn touch(&mut self, now: Instant) {
        self.used = self.used.max(now);
        self.log.trim(now);
        self.trim_epochs();
    }

    /// Returns the rank in which topics are removed to make room, the lowest first. `None` if this
    /// one stays: it has entries, or was used a short time ago.
    ///
    /// Topics without positions are first: they have nothing to resume from, and a question about a
    /// topic is enough to create it.
    pub(super) fn removal_rank(&self, now: Instant) -> Option<(bool, Instant)> {
        let has_positions = self.kind != Some(TopicKind::Map) && self.top > 0;
        let is_removable = self.entries.is_empty() && now.saturating_duration_since(self.used) >= MIN_LIFE;
        is_removable.then_some((has_positions, self.used))
    }

    /// Returns the offset of the oldest message that is kept.
    fn oldest(&self) -> u64 {
        let oldest = self.log.oldest().unwrap_or(self.top + 1);
        oldest.max(self.epochs.as_slice()[0].first)
    }

    fn trim_epochs(&mut self) {
        self.epochs.trim(self.oldest());
    }

    /// Returns the position behind the top.
    pub(super) fn position(&self) -> Position {
        self.epochs.at(self.top)
    }

    pub(super) fn top(&self) -> TopicTop {
        TopicTop::new(self.epochs.clone(), self.top)
    }

    /// Stores a message.
    pub(super) fn push(&mut self, payload: Bytes, now: Instant) -> StoredMessage {
        self.top += 1;
        let message = StoredMessage::new(self.position(), payload);
        self.log.push(message.clone(), now);
        self.trim_epochs();
        message
    }

    pub(super) fn read(&self, range: &ReadRange) -> History {
        let messages = self.log.read(range, self.oldest());
        History::new(self.epochs.clone(), self.top, self.oldest(), messages)
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot::new(self.epochs.clone(), self.top, self.entries.values().cloned().collect())
    }

    /// Returns whether the change can be made.
    pub(super) fn allows(&self, change: &MapChange, max_entries: u64) -> bool {
        let entry = self.entries.get(&change.key).map(|entry| entry.position);
        change.is_possible(entry, (self.entries.len() as u64) < max_entries)
    }

    /// Makes a change at a position. Returns the owner of the entry that was there.
    pub(super) fn set(&mut self, change: &EntryChange, position: Position) -> Option<NodeId> {
        let before = match &change.value {
            Some(value) => {
                let mut entry = MapEntry::new(change.key.clone(), value.clone(), position);
                entry.owner = change.owner.clone();
                self.entries.insert(change.key.clone(), entry)
            }
            None => self.entries.remove(&change.key),
        };
        before.and_then(|entry| entry.owner)
    }

    /// Removes the newest messages, and leaves the epochs as they are. Returns how many.
    pub(super) fn lose_newest(&mut self, messages: u64) -> u64 {
        let mut lost = 0;
        while lost < messages && self.top >= self.epochs.newest().first && self.log.pop_newest().is_some() {
            self.top -= 1;
            lost += 1;
        }
        lost
    }
}
