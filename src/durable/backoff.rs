//! `Backoff`: pauses that grow while something keeps failing.

use std::time::Duration;

/// The pause after the first failure.
const FIRST: Duration = Duration::from_millis(100);

/// The longest pause. A store that works again is noticed within it.
const LONGEST: Duration = Duration::from_secs(2);

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
}

impl Backoff {
    /// Counts a failure, and returns the pause before the next attempt.
    pub(super) fn failed(&mut self) -> Duration {
        let pause = FIRST.saturating_mul(1 << self.failures.min(8)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        pause
    }

    /// Ends the row of failures. Returns their number.
    pub(super) fn succeeded(&mut self) -> u32 {
        std::mem::take(&mut self.failures)
    }

    /// Returns whether the failure that was counted last should be logged: the first one, and then
    /// ever fewer of them.
    pub(super) fn is_worth_a_line(&self) -> bool {
        self.failures.is_power_of_two()
    }

    /// Returns the number of failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_begin_again_after_a_success() {
        let mut backoff = Backoff::default();
        let pauses: Vec<u128> = (0..7).map(|_| backoff.failed().as_millis()).collect();
        assert_eq!(pauses, [100, 200, 400, 800, 1600, 2000, 2000]);
        (0..100).for_each(|_| assert!(backoff.failed() <= LONGEST));
        assert_eq!(backoff.succeeded(), 107);
        assert_eq!(backoff.failed(), FIRST);
    }

    #[test]
    fn few_of_many_failures_in_a_row_are_logged() {
        let mut backoff = Backoff::default();
        let lines = (0..1000).filter(|_| {
            backoff.failed();
            backoff.is_worth_a_line()
        });
        assert_eq!(lines.count(), 10);
    }
}
