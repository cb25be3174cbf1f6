//! `TimerInfo`: a timer as operators see it.

use super::row::DueKey;
use crate::durable::{
    id::TimerId,
    schedule::Schedule,
    unix_millis::{present_millis, system_time},
};
use std::time::SystemTime;

/// Whether a stored timer will fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerState {
    /// It waits for its time.
    Pending,
    /// Its last attempt failed. Its due time is the time when it died. It fires again only if it is
    /// [run](crate::durable::DurableTimers::run_now) or moved.
    Dead,
}

/// A timer of the store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerInfo {
    /// Its id.
    pub id: TimerId,
    /// The name of its topic.
    pub topic: String,
    /// Whether it will fire.
    pub state: TimerState,
    /// When it is due. For a dead letter, when it died: when its last failure was stored.
    pub due: SystemTime,
    /// The scheduled time of the run. Earlier than `due` after a failed attempt.
    pub scheduled: SystemTime,
    /// The number of attempts of the run so far.
    pub attempts: u32,
    /// The idempotency key.
    pub key: Option<String>,
    /// The schedule of a periodic timer: `every` and milliseconds, or `cron`, zone and expression.
    pub schedule: Option<String>,
    /// The payload as JSON.
    pub payload: String,
    /// Why the last attempt failed.
    pub error: Option<String>,
}

impl TimerInfo {
    /// Creates the description of a timer, for stores.
    pub fn new(id: TimerId, topic: String, state: TimerState, due: SystemTime) -> Self {
        TimerInfo {
            id,
            topic,
            state,
            due,
            scheduled: due,
            attempts: 0,
            key: None,
            schedule: None,
            payload: String::new(),
            error: None,
        }
    }

    /// Returns the runs of a periodic timer after its next one, which is at
    /// [`scheduled`](TimerInfo::scheduled), up to the year 9999. Empty for a one-shot timer, and if
    /// the schedule is not understood.
    pub fn next_runs(&self) -> impl Iterator<Item = SystemTime> + use<> {
        let schedule = self.schedule.as_deref().and_then(|text| Schedule::parse(text).ok());
        let next = move |&run: &i64| schedule.as_ref()?.next_after(run, run);
        std::iter::successors(Some(present_millis(self.scheduled)), next).skip(1).map(system_time)
    }
}

/// Selects the timers of a listing.
///
/// ```
/// use netwheel::durable::{TimerFilter, TimerState};
///
/// let first = TimerFilter::new().topic("remind").state(TimerState::Dead).limit(50);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimerFilter {
    pub(in crate::durable) topic: Option<String>,
    pub(in crate::durable) key: Option<String>,
    pub(in crate::durable) state: Option<TimerState>,
    pub(in crate::durable) after: Option<TimerId>,
    /// The timer behind which a listing in the order of due times begins.
    pub(in crate::durable) by_due: Option<DueKey>,
    pub(in crate::durable) limit: Option<usize>,
}

impl TimerFilter {
    /// The largest number of timers in one answer.
    pub const MAX_LIMIT: usize = 1000;

    /// Selects all timers, in the order of their ids, 100 in one answer.
    pub fn new() -> Self {
        Self::default()
    }

    /// Selects the timers of one topic.
    pub fn topic(mut self, name: impl Into<String>) -> Self {
        self.topic = Some(name.into());
        self
    }

    /// Selects timers with this idempotency key: at most one of each topic.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.key = Some(key.into());
        self
    }

    /// Selects pending timers or dead letters.
    pub fn state(mut self, state: TimerState) -> Self {
        self.state = Some(state);
        self
    }

    /// Selects timers with greater ids, for the next page. The answer is in the order of ids, also
    /// if [`by_due`](TimerFilter::by_due) was called before.
    pub fn after(mut self, id: TimerId) -> Self {
        self.after = Some(id);
        self.by_due = None;
        self
    }

    /// Sorts by due time, and timers of the same millisecond by id. With
    /// [`state`](TimerFilter::state) pending, the answer has the next timers to fire. Dead letters
    /// are sorted by the time when they died.
    ///
    /// ```
    /// # fn f(timers: netwheel::durable::DurableTimers) -> netwheel::Result {
    /// use netwheel::durable::{TimerFilter, TimerState};
    ///
    /// let next = TimerFilter::new().state(TimerState::Pending).by_due();
    /// let page = timers.list(next.clone()).wait()?;
    /// if let Some(last) = page.last() {
    ///     let second_page = timers.list(next.after_due(last)).wait()?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn by_due(mut self) -> Self {
        self.by_due = Some(DueKey::FIRST);
        self.after = None;
        self
    }

    /// Selects timers behind this one in the order of due times, for the next page. Timers that are
    /// moved between two pages may be missing or listed twice.
    pub fn after_due(mut self, timer: &TimerInfo) -> Self {
        self.by_due = Some(DueKey { due: present_millis(timer.due), id: timer.id });
        self.after = None;
        self
    }

    /// Sets how many timers to return, up to [`MAX_LIMIT`](TimerFilter::MAX_LIMIT).
    pub fn limit(mut self, timers: usize) -> Self {
        self.limit = Some(timers);
        self
    }

    /// Returns the limit that applies.
    pub fn effective_limit(&self) -> usize {
        self.limit.unwrap_or(100).min(Self::MAX_LIMIT)
    }

    /// Returns the topic to select.
    pub fn selected_topic(&self) -> Option<&str> {
        self.topic.as_deref()
    }

    /// Returns the idempotency key to select.
    pub fn selected_key(&self) -> Option<&str> {
        self.key.as_deref()
    }

    /// Returns the state to select.
    pub fn selected_state(&self) -> Option<TimerState> {
        self.state
    }

    /// Returns the id behind which the answer begins.
    pub fn selected_after(&self) -> Option<TimerId> {
        self.after
    }

    /// Returns the place behind which the answer begins, if it is in the order of due times.
    pub fn selected_by_due(&self) -> Option<DueKey> {
        self.by_due
    }
}

/// The numbers of timers of a topic.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicCounts {
    /// The name of the topic.
    pub topic: String,
    /// Timers that wait for their time.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
    /// Whether the topic is [paused](crate::durable::DurableTimers::pause).
    pub is_paused: bool,
    /// Runs of this program whose handler has been called, or is about to be called, and has not
    /// answered. 0 in the answer of a store.
    pub running: u64,
}

impl TopicCounts {
    /// Creates the numbers of a topic that is not paused, for stores.
    pub fn new(topic: String, pending: u64, dead: u64) -> Self {
        TopicCounts { topic, pending, dead, is_paused: false, running: 0 }
    }
}
