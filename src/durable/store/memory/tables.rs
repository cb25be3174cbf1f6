//! `Tables`: the rows of a memory store, with its indexes.
//!
//! Invariants: every change goes through [`Tables::write`], which keeps the indexes and numbers of
//! timers, and returns the inverse change. So a list of inverse changes undoes an effect, a
//! transaction, or the transactions that a crash loses. All maps are ordered, so equal calls give
//! equal answers.

use crate::durable::{
    id::TimerId,
    store::{
        change::NewTimer,
        listing::TimerState,
        ownership::Ownership,
        row::{Begun, DueKey, TimerRow},
    },
};
use std::collections::{BTreeMap, BTreeSet};

/// A stored timer.
#[derive(Debug, Clone)]
pub(super) struct Timer {
    /// The number of its topic.
    pub(super) topic: usize,
    /// 0 in a store of one node.
    pub(super) partition: u32,
    /// The number of its last change, and the session that has made it.
    pub(super) changed: (u64, u64),
    pub(super) state: TimerState,
    pub(super) due: i64,
    pub(super) scheduled: i64,
    pub(super) attempts: u32,
    pub(super) begun: Begun,
    /// Whether a command has moved it.
    pub(super) is_moved: bool,
    pub(super) key: Option<String>,
    pub(super) schedule: Option<String>,
    pub(super) payload: Vec<u8>,
    pub(super) error: Option<String>,
}

impl Timer {
    pub(super) fn new(topic: usize, timer: &NewTimer) -> Self {
        Timer {
            topic,
            partition: 0,
            changed: (0, 0),
            state: TimerState::Pending,
            due: timer.due,
            scheduled: timer.due,
            attempts: 0,
            begun: Begun::No,
            is_moved: false,
            key: timer.idempotency_key.clone(),
            schedule: timer.schedule.clone(),
            payload: timer.payload.clone(),
            error: None,
        }
    }

    pub(super) fn is_pending(&self) -> bool {
        self.state == TimerState::Pending
    }

    /// Returns whether it is periodic and waits for a run that only its schedule has chosen.
    pub(super) fn is_on_schedule(&self) -> bool {
        self.is_pending() && self.schedule.is_some() && self.attempts == 0 && !self.is_moved
    }

    /// Sets the time of a run that has not been tried.
    pub(super) fn wait_for(&mut self, due: i64) {
        self.state = TimerState::Pending;
        (self.due, self.scheduled) = (due, due);
        (self.attempts, self.begun, self.error) = (0, Begun::No, None);
    }

    /// Counts a failed attempt, unless it was counted when it began.
    pub(super) fn count_attempt(&mut self) {
        self.attempts = self.attempts.saturating_add(u32::from(self.begun != Begun::Counted));
    }

    /// Returns the timer as it is loaded. `topic` is the index of its topic.
    fn row(&self, id: i64, topic: usize, epoch: i64) -> TimerRow {
        TimerRow {
            key: DueKey { due: self.due, id: TimerId::new(id) },
            topic,
            scheduled: self.scheduled,
            attempts: self.attempts,
            begun: self.begun,
            idempotency_key: self.key.clone(),
            schedule: self.schedule.clone(),
            payload: self.payload.clone(),
            partition: self.partition,
            epoch,
        }
    }
}

/// A filter for the timers of a store, by topic and partition.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    /// The number of each attached topic.
    pub(super) topics: &'a [usize],
    /// `None` in a store of one node.
    pub(super) ownership: Option<&'a Ownership>,
}

impl View<'_> {
    /// Returns a timer as it is loaded, if it belongs to the store.
    pub(super) fn row(&self, id: i64, timer: &Timer) -> Option<TimerRow> {
        let topic = self.topics.iter().position(|topic| *topic == timer.topic)?;
        let epoch = self.ownership.map_or(Some(0), |ownership| ownership.epoch(timer.partition))?;
        Some(timer.row(id, topic, epoch))
    }
}

/// A partition of a store with several nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct PartitionRow {
    pub(super) owner: Option<u64>,
    pub(super) epoch: i64,
    /// The end of the owner's lease by the clock of the database, in microseconds since 1970.
    pub(super) lease_until: i64,
}

/// A topic and its numbers of timers.
#[derive(Debug, Clone, Default)]
pub(super) struct StoredTopic {
    pub(super) name: String,
    pub(super) pending: u64,
    pub(super) dead: u64,
    pub(super) is_paused: bool,
}

/// A change of the tables. `None` removes.
#[derive(Debug)]
pub(super) enum Write {
    Timer(i64, Option<Box<Timer>>),
    /// The key of an ended timer, with its id and when it ended.
    EndedKey((usize, String), Option<(i64, i64)>),
    /// Adds a topic, or removes the last one.
    Topic(Option<String>),
    Paused(usize, bool),
    LastId(i64),
    /// Whether a program has opened the store and not closed it.
    Open(bool),
    /// A partition, by its number.
    Partition(u32, PartitionRow),
    /// Until when a node is alive, in microseconds since 1970.
    Node(u64, Option<i64>),
    /// A row of the program.
    Row(String, Option<Vec<u8>>),
}

#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) timers: BTreeMap<i64, Timer>,
    /// Pending timers of each topic, by due time and id.
    pub(super) pending: BTreeSet<(usize, i64, i64)>,
    /// Dead letters of each topic, by the time of their death and id.
    pub(super) dead: BTreeSet<(usize, i64, i64)>,
    /// Periodic timers that are [on schedule](Timer::is_on_schedule), by due time and id.
    pub(super) on_schedule: BTreeSet<(i64, i64)>,
    pub(super) keys: BTreeMap<(usize, String), i64>,
    pub(super) ended_keys: BTreeMap<(usize, String), (i64, i64)>,
    /// The ended keys in the order of their ends.
    pub(super) ends: BTreeSet<(i64, usize, String)>,
    /// Topics in the order in which they were added.
    pub(super) topics: Vec<StoredTopic>,
    pub(super) last_id: i64,
    /// All timers by the number of their last change.
    pub(super) changes: BTreeSet<(u64, i64)>,
    /// The number of changes, which an undone transaction does not set back.
    pub(super) last_change: u64,
    pub(super) partitions: Vec<PartitionRow>,
    pub(super) nodes: BTreeMap<u64, i64>,
    pub(super) is_open: bool,
    pub(super) rows: BTreeMap<String, Vec<u8>>,
}

impl Tables {
    /// Makes a change, and returns the inverse change.
    pub(super) fn write(&mut self, write: Write) -> Write {
        match write {
            Write::Timer(id, timer) => Write::Timer(id, self.put_timer(id, timer.map(|timer| *timer))),
            Write::EndedKey(key, ended) => {
                let (topic, text) = key.clone();
                if let Some((_, at)) = ended {
                    self.ends.insert((at, topic, text.clone()));
                }
                let before = match ended {
                    Some(ended) => self.ended_keys.insert(key.clone(), ended),
                    None => self.ended_keys.remove(&key),
                };
                if let Some((_, at)) = before.filter(|(_, at)| ended.is_none_or(|(_, new)| new != *at)) {
                    self.ends.remove(&(at, topic, text));
                }
                Write::EndedKey(key, before)
            }
            Write::Topic(Some(name)) => {
                self.topics.push(StoredTopic { name, ..StoredTopic::default() });
                Write::Topic(None)
            }
            Write::Topic(None) => Write::Topic(self.topics.pop().map(|topic| topic.name)),
            Write::Paused(topic, is_paused) => {
                let before = self.topics.get_mut(topic).map(|topic| &mut topic.is_paused);
                let before = before.map(|before| std::mem::replace(before, is_paused));
                Write::Paused(topic, before.unwrap_or_default())
            }
            Write::LastId(id) => Write::LastId(std::mem::replace(&mut self.last_id, id)),
            Write::Open(is_open) => Write::Open(std::mem::replace(&mut self.is_open, is_open)),
            Write::Partition(number, partition) => {
                let before = self.partitions.get_mut(number as usize);
                let before = before.map(|before| std::mem::replace(before, partition));
                Write::Partition(number, before.unwrap_or_default())
            }
            Write::Node(node, alive_until) => {
                let before = match alive_until {
                    Some(alive_until) => self.nodes.insert(node, alive_until),
                    None => self.nodes.remove(&node),
                };
                Write::Node(node, before)
            }
            Write::Row(name, value) => {
                let before = match value {
                    Some(value) => self.rows.insert(name.clone(), value),
                    None => self.rows.remove(&name),
                };
                Write::Row(name, before)
            }
        }
    }

    /// Undoes changes, the last one first.
    pub(super) fn undo(&mut self, inverse: impl DoubleEndedIterator<Item = Write>) {
        inverse.rev().for_each(|write| drop(self.write(write)));
    }

    /// Returns the number of a topic.
    pub(super) fn topic(&self, name: &str) -> Option<usize> {
        self.topics.iter().position(|topic| topic.name == name)
    }

    fn put_timer(&mut self, id: i64, timer: Option<Timer>) -> Option<Box<Timer>> {
        let before = self.timers.remove(&id);
        if let Some(before) = &before {
            self.index(id, before, false);
        }
        if let Some(timer) = timer {
            self.index(id, &timer, true);
            self.timers.insert(id, timer);
        }
        before.map(Box::new)
    }

    /// Adds a timer to the indexes and numbers, or removes it.
    fn index(&mut self, id: i64, timer: &Timer, is_added: bool) {
        let place = (timer.topic, timer.due, id);
        let by_state = if timer.is_pending() { &mut self.pending } else { &mut self.dead };
        if is_added {
            by_state.insert(place)
        } else {
            by_state.remove(&place)
        };
        let place = (timer.changed.0, id);
        if is_added {
            self.changes.insert(place)
        } else {
            self.changes.remove(&place)
        };
        if timer.is_on_schedule() {
            let place = (timer.due, id);
            if is_added {
                self.on_schedule.insert(place)
            } else {
                self.on_schedule.remove(&place)
            };
        }
        if let Some(key) = &timer.key {
            let key = (timer.topic, key.clone());
            if is_added {
                self.keys.insert(key, id)
            } else {
                self.keys.remove(&key)
            };
        }
        if let Some(topic) = self.topics.get_mut(timer.topic) {
            let count = if timer.is_pending() { &mut topic.pending } else { &mut topic.dead };
            *count = if is_added { *count + 1 } else { count.saturating_sub(1) };
        }
    }
}
