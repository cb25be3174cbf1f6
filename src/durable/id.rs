//! `TimerId`: the id of a stored timer.

use std::fmt;

/// The id of a stored timer. The store assigns it and never uses it again.
///
/// A periodic timer keeps its id from run to run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimerId(i64);

impl TimerId {
    /// Creates an id from the integer of [`TimerId::get`], for programs that keep ids themselves.
    pub const fn new(id: i64) -> Self {
        TimerId(id)
    }

    /// Returns the id as an integer.
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl fmt::Display for TimerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
