//! `Lane`: the timers of some topics that are held in memory.
//!
//! Invariants: of the timers up to and including `loaded_to`, the lane has every pending timer that
//! the engine has not taken out. It has none behind it. At most `max_timers` and `max_bytes` are
//! held: an insertion beyond that drops the latest timers and moves `loaded_to` back, so that they
//! are loaded again when their time comes.

use crate::durable::{
    id::TimerId,
    store::{DueKey, LoadRange, Loaded, TimerRow, TopicSet},
};
use std::collections::BTreeMap;

/// The largest number of timers in one load.
const LOAD_LIMIT: usize = 1024;

/// The largest part of a lane's space that one load takes.
const LOAD_PART: usize = 6;

/// The largest size of one load, unless its only timer is larger. Loads follow each other without a
/// pause, so a small answer costs little, and it does not keep other requests waiting for long.
const LOAD_BYTES: usize = 1024 * 1024;

/// The number of due timers above which no more are loaded. Loads are faster than runs, so a
/// backlog would fill the lane otherwise.
const DUE_AHEAD: usize = 2 * LOAD_LIMIT;

#[derive(Debug)]
pub(super) struct Lane {
    topics: TopicSet,
    /// In boxes, because about half of the places in a map are empty.
    timers: BTreeMap<DueKey, Box<TimerRow>>,
    due: BTreeMap<TimerId, i64>,
    bytes: usize,
    loaded_to: DueKey,
    max_timers: usize,
    max_bytes: usize,
}

impl Lane {
    pub(super) fn new(topics: TopicSet, max_timers: usize, max_bytes: usize) -> Self {
        Lane {
            topics,
            timers: BTreeMap::new(),
            due: BTreeMap::new(),
            bytes: 0,
            loaded_to: DueKey::FIRST,
            max_timers,
            max_bytes,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.timers.len()
    }

    /// Returns about how many bytes the timers take.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Sets the topics whose timers the lane holds. Timers of others are dropped. If there are more
    /// topics than before, all timers have to be loaded again.
    pub(super) fn set_topics(&mut self, topics: TopicSet) {
        if !topics.without(&self.topics).is_empty() {
            self.clear();
        }
        self.topics = topics;
        let dropped = self.timers.values().filter(|row| !topics.contains(row.topic));
        let dropped: Vec<TimerId> = dropped.map(|row| row.key.id).collect();
        dropped.into_iter().for_each(|id| drop(self.remove(id)));
    }

    /// Returns whether the lane holds the timers of a topic.
    pub(super) fn has_topic(&self, topic: usize) -> bool {
        self.topics.contains(topic)
    }

    /// Returns the key up to which everything is loaded.
    pub(super) fn loaded_to(&self) -> DueKey {
        self.loaded_to
    }

    /// Returns the first timer.
    pub(super) fn first(&self) -> Option<DueKey> {
        self.timers.keys().next().copied()
    }

    /// Returns the first timer with its contents.
    pub(super) fn first_row(&self) -> Option<&TimerRow> {
        self.timers.first_key_value().map(|(_, row)| &**row)
    }

    /// Takes the first timer.
    pub(super) fn pop_first(&mut self) -> Option<TimerRow> {
        let (_, row) = self.timers.pop_first()?;
        self.forget(&row);
        Some(*row)
    }

    /// Inserts a timer, unless it is behind the loaded timers. Replaces an older state of it.
    pub(super) fn insert(&mut self, row: TimerRow) {
        self.remove(row.key.id);
        if row.key > self.loaded_to || !self.topics.contains(row.topic) {
            return;
        }
        self.bytes += row.weight();
        self.due.insert(row.key.id, row.key.due);
        self.timers.insert(row.key, Box::new(row));
        // One timer always has a place, however large it is.
        while self.timers.len() > self.max_timers || (self.bytes > self.max_bytes && self.timers.len() > 1) {
            let Some((key, last)) = self.timers.pop_last() else { break };
            self.forget(&last);
            self.loaded_to = DueKey { due: key.due, id: TimerId::new(key.id.get() - 1) };
        }
    }

    pub(super) fn remove(&mut self, id: TimerId) -> Option<TimerRow> {
        let due = *self.due.get(&id)?;
        let row = self.timers.remove(&DueKey { due, id })?;
        self.forget(&row);
        Some(*row)
    }

    fn forget(&mut self, row: &TimerRow) {
        self.due.remove(&row.key.id);
        self.bytes -= row.weight();
    }

    /// Drops all timers, for example because this node owns others now.
    pub(super) fn clear(&mut self) {
        self.timers.clear();
        self.due.clear();
        self.bytes = 0;
        self.loaded_to = DueKey::FIRST;
    }

    /// Returns what to load so that everything up to `until` is in the lane, as far as there is
    /// space. `None` while half of the space is taken, or while enough timers are due at `now`.
    pub(super) fn missing(&self, until: i64, now: i64) -> Option<LoadRange> {
        let is_loaded = self.loaded_to >= DueKey::end_of(until);
        let is_half_full = self.timers.len() > self.max_timers / 2 || self.bytes > self.max_bytes / 2;
        let is_backlog = self.timers.len() >= DUE_AHEAD && self.loaded_to.due <= now;
        if is_loaded || is_half_full || is_backlog || self.topics.is_empty() {
            return None;
        }
        let limit = (self.max_timers - self.timers.len()).min(LOAD_LIMIT);
        let max_bytes = (self.max_bytes - self.bytes).min(LOAD_BYTES).min(self.max_bytes / LOAD_PART);
        Some(LoadRange { topics: self.topics, after: self.loaded_to, until, limit, max_bytes })
    }

    /// Moves `loaded_to` behind the timers of an answer, before these are inserted. Returns `false`
    /// if the lane was shortened or got more topics since the request: the answer would leave a
    /// gap.
    pub(super) fn extend(&mut self, range: LoadRange, loaded: &Loaded) -> bool {
        if self.loaded_to != range.after || !self.topics.without(&range.topics).is_empty() {
            return false;
        }
        if loaded.is_complete {
            self.loaded_to = DueKey::end_of(range.until);
        } else if let Some(last) = loaded.rows.last() {
            self.loaded_to = last.key;
        }
        true
    }
}
