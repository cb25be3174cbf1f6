//! Channels whose handshakes wait for their share of a turn, with overload control.
//!
//! While the queue is short, the oldest handshake goes first. A queue that has not been empty for a
//! while grows faster than it is served. Then the newest goes first, because its peer is the most
//! likely to be still there, and the oldest ones are refused.
//!
//! Begun handshakes go first, with half of the shares of a turn while others wait. A turn with one
//! share gives it to a begun one and to another one alternately. Begun ones are never refused,
//! because their most expensive step is usually done.
//!
//! Invariant: a key is in the queue at most once, because its channel keeps a flag for that. Times
//! are in nanoseconds. Owned by the loop, runs on its thread.

use crate::id::Key;
use std::collections::VecDeque;

#[derive(Default)]
pub(crate) struct HeldHandshakes {
    /// The channels whose handshakes have begun, in order.
    begun: VecDeque<Key>,
    /// The other channels, with the times since which they have waited. The oldest is in front.
    waiting: VecDeque<(Key, u64)>,
    /// The time since which there have been other channels.
    since: u64,
    /// Alternates from turn to turn while handshakes that have begun wait: in every second turn,
    /// the others get the larger half of an odd number of shares.
    favours_others: bool,
}

impl HeldHandshakes {
    pub(super) fn push(&mut self, key: Key, has_begun: bool, now: u64) {
        if has_begun {
            return self.begun.push_back(key);
        }
        if self.waiting.is_empty() {
            self.since = now;
        }
        self.waiting.push_back((key, now));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.begun.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.begun.len()
    }

    /// Begins a turn. Returns whether handshakes that have begun wait.
    pub(super) fn begin_turn(&mut self) -> bool {
        let has_begun = !self.begun.is_empty();
        self.favours_others ^= has_begun;
        has_begun
    }

    /// Returns how many of the `shares` of a turn are for channels whose handshakes have not begun.
    pub(super) fn kept_for_others(&self, shares: usize) -> usize {
        if self.waiting.is_empty() { 0 } else { (shares + usize::from(self.favours_others)) / 2 }
    }

    /// Returns the number of channels whose handshakes have begun.
    pub(crate) fn begun(&self) -> usize {
        self.begun.len()
    }

    /// Removes the channel whose handshake has begun first.
    pub(crate) fn next_begun(&mut self) -> Option<Key> {
        self.begun.pop_front()
    }

    /// Removes the channel that is next among the others. That is the newest one if the queue has
    /// stood for longer than `target`.
    pub(crate) fn next(&mut self, now: u64, target: u64) -> Option<Key> {
        let newest_first = now.saturating_sub(self.since) > target;
        let next = if newest_first { self.waiting.pop_back() } else { self.waiting.pop_front() };
        next.map(|(key, _)| key)
    }

    /// Removes the oldest of them if it has waited for longer than `patience`.
    pub(crate) fn next_late(&mut self, now: u64, patience: u64) -> Option<Key> {
        let (key, _) = self.waiting.front().filter(|(_, since)| now.saturating_sub(*since) > patience)?;
        let key = *key;
        self.waiting.pop_front();
        Some(key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Key {
        Key { index, generation: 0 }
    }

    #[test]
    fn a_short_queue_is_served_in_order_and_a_standing_one_newest_first() {
        let mut held = HeldHandshakes::default();
        (0..4).for_each(|n| held.push(key(n), false, u64::from(n)));
        assert_eq!(held.next(10, 10), Some(key(0)));
        assert_eq!(held.next(11, 10), Some(key(3)));
        assert_eq!((held.len(), held.next(5, 10)), (2, Some(key(1))));
        assert_eq!((held.next(99, 10), held.next(99, 10)), (Some(key(2)), None));
        held.push(key(9), false, 100);
        held.push(key(8), false, 101);
        assert_eq!(held.next(105, 10), Some(key(9)), "the queue was empty in between");
    }

    #[test]
    fn the_oldest_ones_become_late() {
        let mut held = HeldHandshakes::default();
        (0..3).for_each(|n| held.push(key(n), false, u64::from(n)));
        assert_eq!(held.next_late(20, 20), None);
        assert_eq!((held.next_late(22, 20), held.next_late(22, 20)), (Some(key(0)), Some(key(1))));
        assert_eq!((held.next_late(22, 20), held.is_empty()), (None, false));
    }

    #[test]
    fn handshakes_that_have_begun_keep_their_order_and_are_never_late() {
        let mut held = HeldHandshakes::default();
        held.push(key(0), true, 0);
        held.push(key(1), false, 1);
        held.push(key(2), true, 2);
        assert_eq!((held.len(), held.begun()), (3, 2));
        assert_eq!((held.next_late(99, 10), held.next_late(99, 10)), (Some(key(1)), None));
        assert_eq!(
            (held.next_begun(), held.next_begun(), held.next_begun()),
            (Some(key(0)), Some(key(2)), None)
        );
        assert!(held.is_empty());
    }
}
