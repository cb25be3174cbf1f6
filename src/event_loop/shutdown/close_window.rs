//! The order and times in which channels are notified of a shutdown: evenly over a window.
//!
//! Invariants: of `n` entries, number `i` (from 0) is due at `begin + window × i / n`, rounded down
//! to the nanosecond. So the first entry is due immediately, none at the end of the window, and all
//! immediately if the window is zero. Entries come out in the order in which they were added. Time
//! is an argument. Runs on the loop's thread.

use crate::clock::END_OF_TIME;
use std::vec;

/// Entries that become due evenly over a window.
#[derive(Debug)]
pub(super) struct CloseWindow<T> {
    waiting: vec::IntoIter<T>,
    begin: u64,
    window: u64,
    total: usize,
}

impl<T> CloseWindow<T> {
    pub(super) fn new(entries: Vec<T>, begin: u64, window: u64) -> Self {
        CloseWindow { total: entries.len(), waiting: entries.into_iter(), begin, window }
    }

    /// Returns when the next entry is due, or `None` if all entries have been taken.
    pub(super) fn next_at(&self) -> Option<u64> {
        let number = self.total - self.waiting.len();
        if number == self.total {
            return None;
        }
        let offset = u128::from(self.window) * number as u128 / self.total as u128;
        // Less than the window, which is a `u64`.
        Some(self.begin.saturating_add(offset as u64).min(END_OF_TIME))
    }

    /// Returns the next entry, if it is due by `now`.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<T> {
        if self.next_at()? > now {
            return None;
        }
        self.waiting.next()
    }

    /// Returns the next entry, whether it is due or not.
    pub(super) fn pop(&mut self) -> Option<T> {
        self.waiting.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the time at which each of `n` entries comes out. Polls at every instant of the
    /// window.
    fn times(n: usize, begin: u64, window: u64) -> Vec<u64> {
        let mut pace = CloseWindow::new((0..n).collect(), begin, window);
        let mut times = Vec::new();
        for now in begin..=begin + window {
            while let Some(entry) = pace.pop_due(now) {
                assert_eq!(entry, times.len());
                times.push(now);
            }
        }
        assert_eq!(pace.next_at(), None);
        times
    }

    #[test]
    fn entries_are_due_evenly_over_the_window() {
        assert_eq!(times(4, 100, 40), [100, 110, 120, 130]);
        assert_eq!(times(3, 0, 10), [0, 3, 6]);
        assert_eq!(times(5, 0, 2), [0, 0, 0, 1, 1]);
        assert_eq!(times(1, 7, 1000), [7]);
        assert!(times(0, 7, 10).is_empty());
        for (n, window) in [(7, 100), (100, 7), (64, 64), (1, 0), (9, 0)] {
            let expected: Vec<_> = (0..n as u64).map(|i| 50 + window * i / n as u64).collect();
            assert_eq!(times(n, 50, window), expected);
        }
    }

    #[test]
    fn overdue_entries_come_out_at_once_and_the_others_keep_their_times() {
        let mut pace = CloseWindow::new((0..10).collect(), 0, 100);
        assert_eq!(std::iter::from_fn(|| pace.pop_due(35)).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(pace.next_at(), Some(40));
        assert_eq!((pace.pop_due(39), pace.pop_due(40), pace.pop_due(40)), (None, Some(4), None));
        assert_eq!((pace.pop(), pace.next_at()), (Some(5), Some(60)));
    }

    #[test]
    fn the_longest_window_does_not_overflow() {
        let mut pace = CloseWindow::new(vec![(); 3], END_OF_TIME - 1, u64::MAX);
        assert!(pace.pop_due(END_OF_TIME - 1).is_some());
        assert_eq!(pace.next_at(), Some(END_OF_TIME), "a time that the clock reaches");
    }
}
