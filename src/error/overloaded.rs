//! `Overloaded`: work that an overloaded loop has refused.

use std::{fmt, time::Duration};

/// Work was refused because its event loop is overloaded.
///
/// Returned by [`Context::admit`](crate::Context::admit), and wrapped in
/// [`Error::Overloaded`](crate::Error::Overloaded).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Overloaded {
    retry_after: Duration,
}

impl Overloaded {
    pub(crate) fn new(retry_after: Duration) -> Self {
        Overloaded { retry_after }
    }

    /// Returns the time after which the client should try again.
    ///
    /// Refused clients get one place after the other in a queue, and a random time in addition, so
    /// that they do not return at the same moment. Pass the time to the client: `Retry-After` in
    /// HTTP, a field or a close reason in other protocols.
    pub fn retry_after(&self) -> Duration {
        self.retry_after
    }
}

impl fmt::Display for Overloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the event loop is overloaded; retry after {:?}", self.retry_after)
    }
}

impl std::error::Error for Overloaded {}
