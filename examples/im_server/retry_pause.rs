//! `RetryPause`: the pause between attempts that fail while the store cannot be reached.

use std::time::{Duration, Instant};

/// Time between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits attempts to one per second. The first one is not delayed.
#[derive(Default)]
pub(crate) struct RetryPause {
    /// Earliest time of the next attempt.
    not_before: Option<Instant>,
}

impl RetryPause {
    /// Returns whether it is time for the next attempt. If so, the next pause begins.
    pub(crate) fn is_over(&mut self, now: Instant) -> bool {
        let is_over = self.not_before.is_none_or(|not_before| not_before <= now);
        if is_over {
            self.not_before = now.checked_add(PAUSE);
        }
        is_over
    }
}
