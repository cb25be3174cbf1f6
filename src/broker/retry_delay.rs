//! `RetryDelay`: how long to wait before a failed operation is tried again. Pure.

use std::time::Duration;

/// How long the first failure delays the next try. Doubled by each further one.
const FIRST: Duration = Duration::from_millis(100);

/// The longest time between two tries.
const LONGEST: Duration = Duration::from_secs(5);

/// An exponential backoff with one timer.
#[derive(Debug, Default)]
pub(in crate::broker) struct RetryDelay {
    /// Failures since the last success.
    failures: u32,
    /// Whether a timer runs.
    is_scheduled: bool,
}

impl RetryDelay {
    /// An answer has arrived, which counts as a failure or as a success.
    pub(in crate::broker) fn answered(&mut self, has_failed: bool) {
        self.failures = if has_failed { self.failures.saturating_add(1) } else { 0 };
    }

    /// Returns how long to wait for the next try if that is needed and no timer runs. The caller
    /// starts one.
    pub(in crate::broker) fn schedule(&mut self, needs_retry: bool) -> Option<Duration> {
        if !needs_retry || std::mem::replace(&mut self.is_scheduled, true) {
            return None;
        }
        let doublings = self.failures.saturating_sub(1).min(6);
        Some((FIRST * (1 << doublings)).min(LONGEST))
    }

    /// Returns the number of failures since the last success.
    #[cfg(test)]
    pub(in crate::broker) fn failures(&self) -> u32 {
        self.failures
    }

    /// The timer has ended.
    pub(in crate::broker) fn elapsed(&mut self) {
        self.is_scheduled = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_double_the_delay_up_to_a_limit() {
        let mut retry = RetryDelay::default();
        let mut delays = Vec::new();
        for _ in 0..9 {
            retry.answered(true);
            delays.extend(retry.schedule(true));
            retry.elapsed();
        }
        assert_eq!(delays, [100, 200, 400, 800, 1600, 3200, 5000, 5000, 5000].map(Duration::from_millis));
        retry.answered(false);
        assert_eq!(retry.schedule(false), None);
        assert_eq!((retry.schedule(true), retry.schedule(true)), (Some(FIRST), None), "a timer runs");
    }
}
