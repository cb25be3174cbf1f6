//! `Retry`: how often, and when, a failed timer is tried again.

use crate::{error::Result, settings::check_range};
use std::time::Duration;

/// When to retry a timer whose handler failed.
///
/// After the last attempt, the timer becomes a dead letter. Dead letters stay in the store, can be
/// [listed](crate::durable::DurableTimers::list), and can be run again
/// ([`run_now`](crate::durable::DurableTimers::run_now)).
///
/// ```
/// use netwheel::durable::Retry;
/// use std::time::Duration;
///
/// // Six attempts, with pauses of 1, 2, 4, 8 and 16 s between them.
/// let retry = Retry::backoff(5);
/// // Up to 21 attempts, with pauses of 10, 20, 40 s, … and at most 10 min.
/// let retry = Retry::backoff(20).initial(Duration::from_secs(10)).max_delay(Duration::from_secs(600));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    retries: u32,
    initial: Duration,
    max_delay: Duration,
}

impl Retry {
    /// Does not try again: a timer that fails becomes a dead letter.
    pub const fn never() -> Self {
        Self::backoff(0)
    }

    /// Tries again up to `retries` times, after pauses that double from 1 s to at most 1 h.
    pub const fn backoff(retries: u32) -> Self {
        Retry { retries, initial: Duration::from_secs(1), max_delay: Duration::from_secs(3600) }
    }

    /// Sets the first pause, 1 ms or more.
    pub const fn initial(mut self, pause: Duration) -> Self {
        self.initial = pause;
        self
    }

    /// Sets the longest pause, at least the first one.
    pub const fn max_delay(mut self, pause: Duration) -> Self {
        self.max_delay = pause;
        self
    }

    pub(in crate::durable) fn check(&self) -> Result {
        check_range("initial", self.initial, Duration::from_millis(1).., "1 ms or more")?;
        check_range("max_delay", self.max_delay, self.initial.., "at least the first pause")?;
        Ok(())
    }

    /// Returns the pause after attempt number `attempt` (from 1) has failed, or `None` after the
    /// last one.
    pub(in crate::durable) fn pause_after(&self, attempt: u32) -> Option<Duration> {
        if attempt > self.retries {
            return None;
        }
        let factor = 1u32.checked_shl(attempt.saturating_sub(1)).unwrap_or(u32::MAX);
        Some(self.initial.saturating_mul(factor).min(self.max_delay))
    }

    pub(in crate::durable) fn is_never(&self) -> bool {
        self.retries == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest_and_end() {
        let retry = Retry::backoff(5).max_delay(Duration::from_secs(5));
        let pauses: Vec<_> = (1..8).map(|attempt| retry.pause_after(attempt).map(|p| p.as_secs())).collect();
        assert_eq!(pauses, [Some(1), Some(2), Some(4), Some(5), Some(5), None, None]);
        assert_eq!(Retry::never().pause_after(1), None);
        assert_eq!(Retry::backoff(u32::MAX).pause_after(100), Some(Duration::from_secs(3600)));
    }

    #[test]
    fn impossible_pauses_are_refused() {
        assert!(Retry::backoff(1).initial(Duration::ZERO).check().is_err());
        assert!(Retry::backoff(1).max_delay(Duration::from_millis(999)).check().is_err());
        assert!(Retry::never().check().is_ok());
    }
}
