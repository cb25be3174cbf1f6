//! `Window`: the timers that are held in memory, in lanes.
//!
//! Topics without a concurrency limit share one [`Lane`]. Each topic with a limit has a lane of its
//! own, with a small part of the space. So its waiting timers neither fill the memory nor delay
//! those of other topics.
//!
//! Invariants: a lane holds timers of its own topics only, and of none that is paused. A limited
//! topic whose permits are taken is blocked: nothing is taken out of its lane.

use super::{Rules, lane::Lane, permit::Permit};
use crate::{
    durable::{
        id::TimerId,
        store::{DueKey, LoadRange, Loaded, TimerRow, TopicSet},
    },
    sync::Permits,
};
use std::sync::Arc;

/// The largest number of timers in the lane of a limited topic: enough that the next ones are
/// loaded while the first half of them runs.
const LIMITED_TIMERS: usize = 2048;

#[derive(Debug)]
pub(super) struct Window {
    /// The first one is shared by all topics without a limit.
    parts: Vec<Part>,
    /// The part of each topic.
    part_of: Vec<usize>,
    /// The permits of each topic's runs.
    permits: Vec<Arc<Permits>>,
    /// The part that was loaded last.
    loaded_last: usize,
}

/// A lane, and what decides whether it is in use.
#[derive(Debug)]
struct Part {
    lane: Lane,
    /// All topics of the lane, including paused topics.
    topics: TopicSet,
    /// The permits of a limited topic.
    limit: Option<Arc<Permits>>,
}

impl Part {
    fn is_blocked(&self) -> bool {
        self.limit.as_ref().is_some_and(|permits| permits.taken() >= permits.limit())
    }
}

impl Window {
    pub(super) fn new(rules: &[Rules], max_timers: usize, max_bytes: usize) -> Self {
        let limited = rules.iter().filter(|rules| rules.concurrency.is_some()).count();
        // Half of the space is for the topics without a limit.
        let of_each = |space: usize| (space / 2 / limited.max(1)).max(1);
        let (timers, bytes) = (of_each(max_timers).min(LIMITED_TIMERS), of_each(max_bytes));
        let rest = |space: usize, taken: usize| space.saturating_sub(taken * limited).max(1);
        let permits = |rules: &Rules| Arc::new(Permits::new(rules.concurrency.unwrap_or(usize::MAX)));
        let permits: Vec<_> = rules.iter().map(permits).collect();
        let part = |topics: TopicSet, timers, bytes, limit| Part {
            lane: Lane::new(topics, timers, bytes),
            topics,
            limit,
        };
        let is_shared = |topic: &usize| rules[*topic].concurrency.is_none();
        let shared = (0..rules.len()).filter(is_shared).collect();
        let mut parts = vec![part(shared, rest(max_timers, timers), rest(max_bytes, bytes), None)];
        let mut part_of = vec![0; rules.len()];
        for topic in (0..rules.len()).filter(|topic| !is_shared(topic)) {
            part_of[topic] = parts.len();
            let topics = std::iter::once(topic).collect();
            parts.push(part(topics, timers, bytes, Some(permits[topic].clone())));
        }
        Window { parts, part_of, permits, loaded_last: 0 }
    }

    /// Returns the permits of each topic's runs.
    pub(super) fn permits(&self) -> &[Arc<Permits>] {
        &self.permits
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(|part| part.lane.len()).sum()
    }

    /// Returns about how many bytes the timers take.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.lane.bytes()).sum()
    }

    /// Returns the first timer that may run when it is due, with its contents.
    pub(super) fn first_row(&self) -> Option<&TimerRow> {
        self.next().and_then(|(_, part)| self.parts[part].lane.first_row())
    }

    /// Returns the latest due time up to which the timers of a topic are loaded.
    pub(super) fn loaded_to(&self) -> i64 {
        self.parts.iter().map(|part| part.lane.loaded_to().due).max().unwrap_or(i64::MIN)
    }

    /// Sets the topics that are paused. Their timers are dropped, and loaded when they go on.
    pub(super) fn set_paused(&mut self, paused: &TopicSet) {
        for part in &mut self.parts {
            part.lane.set_topics(part.topics.without(paused));
        }
    }

    /// Returns whether the timers of a topic are left in the store.
    pub(super) fn is_paused(&self, topic: usize) -> bool {
        self.part_of.get(topic).is_none_or(|part| !self.parts[*part].lane.has_topic(topic))
    }

    /// Returns the first timer that may run when it is due.
    pub(super) fn first(&self) -> Option<DueKey> {
        self.next().map(|(key, _)| key)
    }

    /// Takes the first timer that may run, if it is due, with the permit for its run.
    pub(super) fn pop_due(&mut self, now: i64) -> Option<(TimerRow, Permit)> {
        let (key, part) = self.next()?;
        let lane = &mut self.parts[part].lane;
        let permits = &self.permits[lane.first_row().filter(|_| key.due <= now)?.topic];
        let permit = Permit::take(permits).ok()?;
        Some((lane.pop_first()?, permit))
    }

    /// Returns the first timer of the parts that are not blocked, and its part.
    fn next(&self) -> Option<(DueKey, usize)> {
        let first = |(index, part): (usize, &Part)| Some((part.lane.first()?, index));
        let parts = self.parts.iter().enumerate().filter(|(_, part)| !part.is_blocked());
        parts.filter_map(first).min()
    }

    /// Inserts a timer, unless it is behind the loaded timers. Replaces an older state of it.
    pub(super) fn insert(&mut self, row: TimerRow) {
        if let Some(part) = self.part_of.get(row.topic) {
            self.parts[*part].lane.insert(row);
        }
    }

    pub(super) fn remove(&mut self, id: TimerId) -> Option<TimerRow> {
        self.parts.iter_mut().find_map(|part| part.lane.remove(id))
    }

    /// Drops all timers, for example because this node owns others now.
    pub(super) fn clear(&mut self) {
        self.parts.iter_mut().for_each(|part| part.lane.clear());
    }

    /// Returns what to load next, so that everything up to `until` is in memory as far as there is
    /// space. Returns nothing for parts that are loaded up to `enough`, or that have enough timers
    /// which are due at `now`. The parts take turns.
    pub(super) fn missing(&mut self, until: i64, enough: i64, now: i64) -> Option<LoadRange> {
        let count = self.parts.len();
        let turns = (1..=count).map(|turn| (self.loaded_last + turn) % count);
        let missing = |part: &Part| part.lane.missing(until, now).filter(|range| range.after.due < enough);
        let (part, range) = turns.filter_map(|part| Some((part, missing(&self.parts[part])?))).next()?;
        self.loaded_last = part;
        Some(range)
    }

    /// Notes that the timers of an answer are loaded, before these are inserted. Returns `false` if
    /// the answer would leave a gap.
    pub(super) fn extend(&mut self, range: LoadRange, loaded: &Loaded) -> bool {
        let part = range.topics.iter().next().and_then(|topic| self.part_of.get(topic));
        part.is_some_and(|part| self.parts[*part].lane.extend(range, loaded))
    }
}
