//! `TimerRow`: a pending timer, as a store returns it to the engine.

use crate::durable::id::TimerId;

/// The place of a timer in the order of firing: by due time, then by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub struct DueKey {
    /// When the timer is due, in milliseconds since 1970 (UTC).
    pub due: i64,
    /// Its id, which grows in the order of the starts.
    pub id: TimerId,
}

impl DueKey {
    /// Comes before all timers.
    pub const FIRST: DueKey = DueKey { due: i64::MIN, id: TimerId::new(i64::MIN) };

    /// Creates the key of a timer.
    pub const fn new(due: i64, id: TimerId) -> Self {
        DueKey { due, id }
    }

    /// Returns the key behind all timers that are due at `due`.
    pub const fn end_of(due: i64) -> Self {
        DueKey { due, id: TimerId::new(i64::MAX) }
    }
}

/// A pending timer of the store.
///
/// A store creates it with [`TimerRow::new`] and sets the fields that differ:
///
/// ```
/// use netwheel::durable::{TimerId, store::{DueKey, TimerRow}};
///
/// let mut row = TimerRow::new(DueKey::new(1_700_000_000_000, TimerId::new(7)), 0, b"null".to_vec());
/// row.attempts = 2;
/// assert_eq!(row.scheduled, 1_700_000_000_000);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TimerRow {
    /// When it fires next, and its id.
    pub key: DueKey,
    /// The index of its topic in the list given to
    /// [`TimerStore::attach`](super::TimerStore::attach).
    pub topic: usize,
    /// The scheduled time of this run in milliseconds. Earlier than `key.due` after a failed
    /// attempt.
    pub scheduled: i64,
    /// The number of attempts of this run so far, including an attempt that was counted before its
    /// handler was called.
    pub attempts: u32,
    /// Whether an attempt of this run was noted before its handler was called.
    pub begun: Begun,
    /// The idempotency key.
    pub idempotency_key: Option<String>,
    /// The text of a periodic timer's schedule.
    pub schedule: Option<String>,
    /// The payload as JSON.
    pub payload: Vec<u8>,
    /// The partition, 0 in a store of one node.
    pub partition: u32,
    /// The epoch under which this node owns the partition, 0 in a store of one node.
    pub epoch: i64,
}

/// Whether an attempt of a run was noted in the store before its handler was called.
///
/// In normal operation none is. After a program has ended without closing its store, one of the
/// timers whose time had come may have ended it, so their attempts are noted:
/// [`Change::Begin`](super::Change::Begin).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
#[repr(u8)]
pub enum Begun {
    /// None was noted. The attempt is counted when it has failed.
    #[default]
    No = 0,
    /// The run was interrupted, or was noted together with others. Its next attempt is counted
    /// before it begins.
    Noted = 1,
    /// The attempt is counted. A loaded timer in this state was interrupted.
    Counted = 2,
}

impl Begun {
    /// Converts the number that a store has. Unknown ones count as `No`.
    pub fn from_number(number: i64) -> Self {
        match number {
            1 => Begun::Noted,
            2 => Begun::Counted,
            _ => Begun::No,
        }
    }
}

impl TimerRow {
    /// Creates the row of a one-shot timer without a key that is due at its scheduled time: no
    /// attempts so far, in a store of one node.
    pub fn new(key: DueKey, topic: usize, payload: Vec<u8>) -> Self {
        TimerRow {
            key,
            topic,
            scheduled: key.due,
            attempts: 0,
            begun: Begun::No,
            idempotency_key: None,
            schedule: None,
            payload,
            partition: 0,
            epoch: 0,
        }
    }

    /// Returns what identifies this run of the timer in a change.
    pub fn held(&self) -> Held {
        Held { key: self.key, partition: self.partition, epoch: self.epoch }
    }

    /// Returns the number of the attempt that begins or runs, from 1.
    pub(in crate::durable) fn attempt(&self) -> u32 {
        self.attempts.saturating_add(u32::from(self.begun != Begun::Counted))
    }

    /// Returns about how many bytes the row takes in memory.
    pub(in crate::durable) fn weight(&self) -> usize {
        size_of::<TimerRow>() + self.data_len()
    }

    /// Returns the length of the program's data: payload, key and schedule.
    pub(super) fn data_len(&self) -> usize {
        let length = |text: &Option<String>| text.as_ref().map_or(0, String::len);
        self.payload.len() + length(&self.idempotency_key) + length(&self.schedule)
    }
}

/// A run of a timer that this node has loaded. A change of it is refused when the stored timer has
/// another due time, or when another node owns its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Held {
    /// The timer, and the due time with which it was loaded.
    pub key: DueKey,
    /// Its partition.
    pub partition: u32,
    /// The epoch under which it was loaded.
    pub epoch: i64,
}

impl Held {
    /// Creates the description of a run that was loaded under an epoch. A store of one node has
    /// partition 0 and epoch 0.
    pub fn new(key: DueKey, partition: u32, epoch: i64) -> Self {
        Held { key, partition, epoch }
    }
}
