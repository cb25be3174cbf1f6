//! `Remembered`: for how long the key of an ended timer is not free.

use crate::durable::unix_millis::duration_millis;
use std::{ops::RangeInclusive, time::Duration};

/// The times of ends whose keys are remembered at `now`, for `key_memory`.
///
/// An end that lies further in the future has the time of a clock that was ahead. Its key is free:
/// otherwise it would not be until that time comes, perhaps for years.
#[derive(Debug, Clone)]
pub(in crate::durable::store) struct Remembered(RangeInclusive<i64>);

impl Remembered {
    pub(in crate::durable::store) fn at(now: i64, key_memory: Duration) -> Self {
        let key_memory = duration_millis(key_memory);
        Remembered(now.saturating_sub(key_memory)..=now.saturating_add(key_memory))
    }

    pub(in crate::durable::store) fn contains(&self, ended: i64) -> bool {
        self.0.contains(&ended)
    }

    /// Returns the first time. Earlier ends are forgotten.
    pub(in crate::durable::store) fn first(&self) -> i64 {
        *self.0.start()
    }

    /// Returns the last time.
    #[cfg(any(feature = "durable-postgres", feature = "durable-sqlite"))]
    pub(in crate::durable::store) fn last(&self) -> i64 {
        *self.0.end()
    }
}
