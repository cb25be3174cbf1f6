//! The topics, dead letters and next timers that the dashboard shows.
//!
//! The store answers later, so an event has the lists of the one before. Payloads are messages of
//! users, and are not shown.

use crate::hub::lock;
use netwheel::{
    Result,
    durable::{DurableTimers, TimerFilter, TimerInfo, TimerState, TopicCounts},
};
use serde::Serialize;
use std::{
    sync::{Arc, Mutex},
    time::{SystemTime, UNIX_EPOCH},
};

/// Maximum number of dead letters, the oldest.
const MAX_DEAD: usize = 20;
/// Maximum number of pending timers, the next ones.
const MAX_NEXT: usize = 100;

/// What the store has answered.
#[derive(Clone, Default, Serialize)]
pub(super) struct TimerLists {
    topics: Vec<Topic>,
    dead_letters: Vec<Timer>,
    next: Vec<Timer>,
}

#[derive(Clone, Serialize)]
struct Topic {
    name: String,
    pending: u64,
    dead: u64,
    running: u64,
    is_paused: bool,
}

#[derive(Clone, Serialize)]
struct Timer {
    id: i64,
    topic: String,
    /// When it is due, or when it died. Milliseconds since 1970 (UTC).
    due: u64,
    attempts: u32,
    error: Option<String>,
}

/// The lists of the last answers, and how many answers are missing.
#[derive(Default)]
pub(super) struct Lists(Arc<Mutex<(TimerLists, u32)>>);

impl Lists {
    /// Returns the lists, and asks for new ones unless the store has not answered yet.
    pub(super) fn take(&self, timers: &DurableTimers) -> TimerLists {
        let mut state = lock(&self.0);
        let lists = state.0.clone();
        if state.1 > 0 {
            return lists;
        }
        state.1 = 3;
        // A store that was closed answers at once.
        drop(state);
        timers.counts().on_complete(self.keep(|lists, topics: Vec<TopicCounts>| {
            lists.topics = topics.into_iter().map(Topic::from).collect();
        }));
        let dead = TimerFilter::new().state(TimerState::Dead).by_due().limit(MAX_DEAD);
        timers.list(dead).on_complete(self.keep(|lists, timers: Vec<TimerInfo>| {
            lists.dead_letters = timers.into_iter().map(Timer::from).collect();
        }));
        let next = TimerFilter::new().state(TimerState::Pending).by_due().limit(MAX_NEXT);
        timers.list(next).on_complete(self.keep(|lists, timers: Vec<TimerInfo>| {
            lists.next = timers.into_iter().map(Timer::from).collect();
        }));
        lists
    }

    /// Returns a callback that keeps an answer. After an error, the last one stays.
    fn keep<T, F>(&self, store: F) -> impl FnOnce(Result<T>) + Send + use<T, F>
    where
        F: FnOnce(&mut TimerLists, T) + Send,
    {
        let lists = self.0.clone();
        move |answer| {
            let mut state = lock(&lists);
            state.1 -= 1;
            if let Ok(answer) = answer {
                store(&mut state.0, answer);
            }
        }
    }
}

impl From<TopicCounts> for Topic {
    fn from(counts: TopicCounts) -> Self {
        let TopicCounts { topic, pending, dead, running, is_paused, .. } = counts;
        Topic { name: topic, pending, dead, running, is_paused }
    }
}

impl From<TimerInfo> for Timer {
    fn from(timer: TimerInfo) -> Self {
        let TimerInfo { id, topic, due, attempts, error, .. } = timer;
        Timer { id: id.get(), topic, due: millis(due), attempts, error }
    }
}

fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
