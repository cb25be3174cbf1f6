//! `BatchLimit`: how many changes share a transaction.

use std::time::Duration;

/// The largest number of changes in one transaction.
const MOST: usize = 1024;

/// The limit grows after a transaction that took less than this.
const QUICK: Duration = Duration::from_millis(250);

/// How many changes the store may refuse one after the other before it is taken to refuse all.
const REFUSALS: u32 = 3;

/// Halves after a transaction that failed, and grows after one that succeeded.
///
/// So a change that the store refuses is soon alone in its transaction, and changes that are too
/// large for a slow link are sent in parts.
#[derive(Debug)]
pub(super) struct BatchLimit {
    limit: usize,
    /// The number of changes that were refused alone since the last success.
    refusals: u32,
}

impl Default for BatchLimit {
    fn default() -> Self {
        BatchLimit { limit: MOST, refusals: 0 }
    }
}

impl BatchLimit {
    /// Returns how many of the waiting changes to commit together.
    pub(super) fn of(&self, waiting: usize) -> usize {
        self.limit.min(waiting)
    }

    pub(super) fn succeeded(&mut self, took: Duration) {
        self.refusals = 0;
        if took < QUICK {
            self.limit = (self.limit * 2).min(MOST);
        }
    }

    /// Takes that a transaction with `size` changes has failed.
    pub(super) fn failed(&mut self, size: usize) {
        self.limit = (size / 2).max(1);
    }

    /// Takes that a change was refused that was alone in its transaction. Returns whether the store
    /// seems to refuse all changes.
    pub(super) fn refused(&mut self) -> bool {
        self.limit = 1;
        self.refusals = self.refusals.saturating_add(1);
        self.refusals >= REFUSALS
    }

    /// Gives the store another chance to show that it refuses some changes only.
    pub(super) fn try_again(&mut self) {
        self.refusals = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_halve_the_limit_and_quick_successes_double_it() {
        let mut limit = BatchLimit::default();
        assert_eq!((limit.of(7), limit.of(5000)), (7, MOST));
        limit.failed(100);
        assert_eq!(limit.of(5000), 50);
        limit.succeeded(QUICK);
        assert_eq!(limit.of(5000), 50);
        limit.succeeded(Duration::ZERO);
        assert_eq!(limit.of(5000), 100);
        (0..20).for_each(|_| limit.failed(limit.of(5000)));
        assert_eq!(limit.of(5000), 1);
        (0..20).for_each(|_| limit.succeeded(Duration::ZERO));
        assert_eq!(limit.of(5000), MOST);
    }

    #[test]
    fn a_few_refusals_in_a_row_are_those_of_the_store() {
        let mut limit = BatchLimit::default();
        assert_eq!([(); 3].map(|()| limit.refused()), [false, false, true]);
        limit.try_again();
        assert!(!limit.refused());
        limit.succeeded(Duration::ZERO);
        assert_eq!([(); 3].map(|()| limit.refused()), [false, false, true]);
    }
}
