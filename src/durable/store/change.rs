//! `Change`: an item of a transaction.

use super::{
    error::StoreError,
    row::{DueKey, Held, TimerRow},
    topic_set::TopicSet,
    transaction::Effect,
};
use crate::durable::id::TimerId;
use std::fmt;

/// A timer to store.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NewTimer {
    /// The index of its topic in the list given to
    /// [`TimerStore::attach`](super::TimerStore::attach).
    pub topic: usize,
    /// When it is due, in milliseconds since 1970 (UTC).
    pub due: i64,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The text of a periodic timer's schedule.
    pub schedule: Option<String>,
    /// The payload as JSON.
    pub payload: Vec<u8>,
    /// Whether a stored timer with the same key gets this payload.
    pub replaces_payload: bool,
}

impl NewTimer {
    /// Creates a one-shot timer without a key.
    pub fn new(topic: usize, due: i64, payload: Vec<u8>) -> Self {
        NewTimer { topic, due, idempotency_key: None, schedule: None, payload, replaces_payload: false }
    }

    /// Returns the row of this timer after it was stored, in a store of one node.
    pub(super) fn stored_row(&self, id: TimerId) -> TimerRow {
        TimerRow {
            idempotency_key: self.idempotency_key.clone(),
            schedule: self.schedule.clone(),
            ..TimerRow::new(DueKey::new(self.due, id), self.topic, self.payload.clone())
        }
    }

    /// Returns whether a start of this timer changes a timer with the same key: both are periodic,
    /// with different schedules.
    pub(super) fn has_other_schedule(&self, stored: Option<&str>) -> bool {
        matches!((self.schedule.as_deref(), stored), (Some(new), Some(stored)) if new != stored)
    }

    /// Returns whether a start of this timer may change a stored one.
    #[cfg(feature = "durable-postgres")]
    pub(super) fn may_change_another(&self) -> bool {
        self.idempotency_key.is_some() && (self.schedule.is_some() || self.replaces_payload)
    }
}

/// A change of one timer. [`TimerStore::commit`](super::TimerStore::commit) applies many of them in
/// one transaction.
///
/// A store answers a change that it does not know with [`Outcome::Refused`]. The fields of a change
/// stay as they are: data that a store must not ignore becomes a new kind of change.
#[non_exhaustive]
pub enum Change {
    /// Stores a timer. If there is one with the same topic and idempotency key, nothing is stored.
    /// If both are periodic and their schedules differ, it gets the new schedule and payload. It
    /// also gets the new due time, unless its scheduled time has come: that run keeps its times and
    /// attempts. If their schedules are the same, it gets the new payload only if the start
    /// [replaces](NewTimer::replaces_payload) it.
    Start(NewTimer),
    /// Ends a run: removes the timer, or moves it to its next run.
    End {
        /// The run.
        held: Held,
        /// The next run of a periodic timer.
        next: Option<i64>,
        /// The program's own writes.
        effect: Option<Effect>,
    },
    /// Notes that a run begins, before its handler is called. Does nothing if the attempt is
    /// counted already.
    Begin {
        /// The run.
        held: Held,
        /// Whether the attempt is counted: [`Begun::Counted`](super::Begun::Counted), otherwise
        /// [`Begun::Noted`](super::Begun::Noted).
        is_counted: bool,
    },
    /// Tries a run again at another time. Counts the attempt, unless it was counted when it began:
    /// then the next one will be, too ([`Begun::Noted`](super::Begun::Noted)).
    Retry {
        /// The run.
        held: Held,
        /// When to try again.
        due: i64,
        /// Why it failed.
        error: String,
    },
    /// Turns a run into a dead letter, and counts the attempt as [`Change::Retry`] does. A periodic
    /// timer goes on with `next`, and a copy becomes the dead letter.
    DeadLetter {
        /// The run.
        held: Held,
        /// The next run of a periodic timer.
        next: Option<i64>,
        /// Why it failed.
        error: String,
    },
    /// Moves a periodic timer to another of its runs without running it.
    SkipTo {
        /// The run.
        held: Held,
        /// The run to go on with.
        next: i64,
    },
    /// Makes sure that this node still owns the run and that it is unchanged. Only for stores that
    /// [need claims](super::TimerStore::needs_claims).
    Claim {
        /// The run.
        held: Held,
    },
    /// Removes a timer.
    Cancel(TimerId),
    /// Moves a pending timer or a dead letter to another time, with its attempts reset.
    Move {
        /// The timer.
        id: TimerId,
        /// The new due time.
        due: i64,
    },
}

impl Change {
    /// Returns the run that the change is about, if it is about one.
    pub(super) fn held(&self) -> Option<Held> {
        match self {
            Change::End { held, .. }
            | Change::Begin { held, .. }
            | Change::Retry { held, .. }
            | Change::DeadLetter { held, .. }
            | Change::SkipTo { held, .. }
            | Change::Claim { held } => Some(*held),
            Change::Start(_) | Change::Cancel(_) | Change::Move { .. } => None,
        }
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Change::Start(timer) => f.debug_tuple("Start").field(timer).finish(),
            Change::End { held, next, effect } => f
                .debug_struct("End")
                .field("held", held)
                .field("next", next)
                .field("effect", &effect.is_some())
                .finish(),
            Change::Retry { held, due, error } => {
                f.debug_struct("Retry").field("held", held).field("due", due).field("error", error).finish()
            }
            Change::DeadLetter { held, next, error } => f
                .debug_struct("DeadLetter")
                .field("held", held)
                .field("next", next)
                .field("error", error)
                .finish(),
            Change::SkipTo { held, next } => {
                f.debug_struct("SkipTo").field("held", held).field("next", next).finish()
            }
            Change::Begin { held, is_counted } => {
                f.debug_struct("Begin").field("held", held).field("is_counted", is_counted).finish()
            }
            Change::Claim { held } => f.debug_struct("Claim").field("held", held).finish(),
            Change::Cancel(id) => f.debug_tuple("Cancel").field(id).finish(),
            Change::Move { id, due } => f.debug_struct("Move").field("id", id).field("due", due).finish(),
        }
    }
}

/// The result of a change.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Outcome {
    /// The timer was stored.
    Started(TimerRow),
    /// A timer with the same idempotency key is stored, or has ended a short while ago.
    AlreadyStarted {
        /// Its id.
        id: TimerId,
        /// The timer as it is now, if the start has changed it and it is pending.
        changed: Option<TimerRow>,
    },
    /// The change was made. The row is the timer as it is now, or `None` if nothing is pending.
    Done(Option<TimerRow>),
    /// There is no such timer, or not with this due time.
    Missing,
    /// The change was refused; the others of the transaction were made.
    Refused(StoreError),
}

impl Outcome {
    /// Returns the timer as it is now, if it is pending and may have to be loaded.
    pub(in crate::durable) fn into_row(self) -> Option<TimerRow> {
        match self {
            Outcome::Started(row) | Outcome::Done(Some(row)) => Some(row),
            Outcome::AlreadyStarted { changed, .. } => changed,
            _ => None,
        }
    }
}

/// The timers to load.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct LoadRange {
    /// Only timers of these topics.
    pub topics: TopicSet,
    /// Only timers behind this one.
    pub after: DueKey,
    /// Only timers that are due by then, in milliseconds since 1970 (UTC).
    pub until: i64,
    /// At most this many.
    pub limit: usize,
    /// At most this many bytes of payloads, keys and schedules. The first timer may be larger.
    pub max_bytes: usize,
}

impl LoadRange {
    /// Creates the range of all timers of the topics that are due by `until`, without a limit.
    pub fn new(topics: TopicSet, until: i64) -> Self {
        LoadRange { topics, after: DueKey::FIRST, until, limit: usize::MAX, max_bytes: usize::MAX }
    }
}

/// An answer of a store with timers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loaded {
    /// The timers.
    pub rows: Vec<TimerRow>,
    /// Whether these are all timers in question. If not, a limit has cut the answer, and asking
    /// again continues it.
    pub is_complete: bool,
}

impl Loaded {
    /// Creates an answer. It is complete if no limit has cut it.
    pub fn new(rows: Vec<TimerRow>, is_complete: bool) -> Self {
        Loaded { rows, is_complete }
    }

    /// Returns the size of all payloads, keys and schedules.
    #[cfg(feature = "durable-postgres")]
    pub(super) fn data_len(&self) -> usize {
        self.rows.iter().map(TimerRow::data_len).sum()
    }
}
