//! `AnswerLimit`: how much the server may send in one answer.

use std::time::Duration;

/// The smallest limit. A timer that is larger is sent alone.
const LEAST: usize = 1024;

/// Adapts to the link: halves after an answer that has taken most of the time limit, and grows
/// again while large answers are quick.
#[derive(Debug)]
pub(super) struct AnswerLimit(usize);

impl Default for AnswerLimit {
    fn default() -> Self {
        AnswerLimit(usize::MAX)
    }
}

impl AnswerLimit {
    /// Returns how many bytes to ask for.
    pub(super) fn of(&self, max_bytes: usize) -> usize {
        self.0.min(max_bytes)
    }

    /// Takes how long an answer has taken for which `asked` bytes were the limit, and its size.
    pub(super) fn record(&mut self, asked: usize, received: usize, took: Duration, timeout: Duration) {
        if took >= timeout / 4 * 3 {
            self.0 = (asked / 2).max(LEAST);
            log::warn!("the link to the timer store is slow; loads have at most {} bytes now", self.0);
        } else if took < timeout / 4 && received >= asked / 2 {
            self.0 = self.0.saturating_mul(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_answers_halve_the_limit_and_quick_ones_double_it() {
        let timeout = Duration::from_secs(4);
        let mut limit = AnswerLimit::default();
        assert_eq!(limit.of(1 << 20), 1 << 20);
        limit.record(1 << 20, 0, timeout, timeout);
        assert_eq!(limit.of(1 << 20), 1 << 19);
        limit.record(1 << 19, 1 << 19, timeout / 2, timeout);
        assert_eq!(limit.of(1 << 20), 1 << 19, "neither slow nor quick");
        limit.record(1 << 19, 100, timeout / 8, timeout);
        assert_eq!(limit.of(1 << 20), 1 << 19, "quick because it was small");
        limit.record(1 << 19, 1 << 19, timeout / 8, timeout);
        assert_eq!(limit.of(1 << 20), 1 << 20);
        (0..100).for_each(|_| limit.record(limit.of(1 << 20), 0, timeout, timeout));
        assert_eq!(limit.of(1 << 20), LEAST);
        (0..100).for_each(|_| limit.record(limit.of(1 << 20), 1 << 20, Duration::ZERO, timeout));
        assert_eq!(limit.of(1 << 20), 1 << 20);
    }
}
