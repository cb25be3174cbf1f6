//! The channels of a loop that have a maximum age, and the pace at which they are drained.
//!
//! A heap holds when each channel reaches its age, and another one when the grace times of notified
//! channels end. A channel that closes leaves its entry behind. It is skipped when it is due. The
//! next accept removes all stale entries if they outnumber the open channels, and the end of the
//! last channel removes all. So a channel takes sixteen bytes here, and spare room. Without a
//! maximum age it takes nothing.
//!
//! The pace is a leaky bucket (GCRA) over the number of open channels: at most 2.5 % of them per
//! second, but at least one. Due channels that have to wait are notified in the order of their
//! ages.
//!
//! Invariants: in any second at most 2.75 % of the largest number of open channels, or of 40 if
//! that is more, and one more are notified. While channels wait, the pace does not become slower,
//! although they become fewer. So none waits for more than 40 s, one step and the lag of the loop.
//! Time is an argument. Runs on the loop's thread.

use crate::{id::Key, timer::QueueKey};
use std::{cmp::Reverse, collections::BinaryHeap};

const SECOND: u64 = 1_000_000_000;

/// The inverse of the share of the channels that are notified in a second.
const SECONDS_FOR_ALL: u64 = 40;

/// The loop notifies in steps, so that it is not woken for each channel.
const STEP: u64 = SECOND / 10;

/// The number of stale entries that are always tolerated.
const TOLERATED: usize = 64;

/// The channels of a loop with a maximum age.
#[derive(Debug, Default)]
pub(super) struct Ages {
    /// Channels that have not been notified, by the time of their age.
    waiting: BinaryHeap<Reverse<(u64, Key)>>,
    /// Channels that have been notified and stayed open, by the end of their grace time.
    draining: BinaryHeap<Reverse<(u64, Key)>>,
    /// The number of channels with a maximum age in the loop.
    open: usize,
    pace: AgePace,
    /// The loop's timer for the next entry, and its time.
    pub(super) timer: Option<(u64, QueueKey)>,
}

/// The next step for a channel that is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AgeStep {
    /// The channel has reached its age.
    Notify(Key),
    /// The grace time of the channel has ended.
    End(Key),
}

impl Ages {
    /// Adds a channel that reaches its age at `due`. `is_open` returns whether a channel still is.
    pub(super) fn add(&mut self, key: Key, due: u64, is_open: impl FnMut(Key) -> bool) {
        self.open += 1;
        self.waiting.push(Reverse((due, key)));
        Self::remove_stale(&mut self.waiting, self.open, is_open);
    }

    /// Records that a channel has closed. Returns whether none is left, and no entry of one.
    pub(super) fn note_end(&mut self) -> bool {
        self.open = self.open.saturating_sub(1);
        if self.open == 0 {
            (self.waiting, self.draining) = Default::default();
        }
        self.open == 0
    }

    /// Begins the grace time of a channel that was notified and is still open.
    pub(super) fn begin_grace(&mut self, key: Key, until: u64, is_open: impl FnMut(Key) -> bool) {
        self.draining.push(Reverse((until, key)));
        Self::remove_stale(&mut self.draining, self.open, is_open);
    }

    fn remove_stale(
        entries: &mut BinaryHeap<Reverse<(u64, Key)>>,
        open: usize,
        mut is_open: impl FnMut(Key) -> bool,
    ) {
        if entries.len() > 2 * open + TOLERATED {
            entries.retain(|Reverse((_, key))| is_open(*key));
            entries.shrink_to(2 * open + TOLERATED);
        }
    }

    /// Returns the next channel that is due at `now`. It may have closed since.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<AgeStep> {
        if let Some(Reverse((_, key))) = pop_until(&mut self.draining, now) {
            return Some(AgeStep::End(key));
        }
        if self.pace.next > now {
            return None;
        }
        pop_until(&mut self.waiting, now).map(|Reverse((_, key))| AgeStep::Notify(key))
    }

    /// Counts a channel that is notified at `now`.
    pub(super) fn note_notified(&mut self, now: u64) {
        self.pace.take(self.open as u64, now);
    }

    /// Returns when the next channel is due, rounded up to a step.
    pub(super) fn next_at(&self) -> Option<u64> {
        let waiting = self.waiting.peek().map(|Reverse((due, _))| (*due).max(self.pace.next));
        let draining = self.draining.peek().map(|Reverse((until, _))| *until);
        let next = waiting.into_iter().chain(draining).min()?;
        Some(next.checked_next_multiple_of(STEP).unwrap_or(next))
    }
}

fn pop_until(entries: &mut BinaryHeap<Reverse<(u64, Key)>>, now: u64) -> Option<Reverse<(u64, Key)>> {
    let is_due = entries.peek().is_some_and(|Reverse((due, _))| *due <= now);
    if is_due { entries.pop() } else { None }
}

/// The rate of notifications.
#[derive(Debug, Default)]
struct AgePace {
    /// When the next channel may be notified.
    next: u64,
    /// The number of channels of which the share is taken.
    base: u64,
}

impl AgePace {
    fn take(&mut self, open: u64, now: u64) {
        // The loop looks once per step, and a little late. It catches up with one step at most.
        let has_backlog = self.next > now.saturating_sub(2 * STEP);
        let least = if has_backlog { self.base } else { 0 };
        self.base = least.max(open).max(SECONDS_FOR_ALL);
        let from = if has_backlog { self.next.max(now.saturating_sub(STEP)) } else { now };
        self.next = from.saturating_add(SECOND * SECONDS_FOR_ALL / self.base);
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn key(index: usize) -> Key {
        Key { index: u32::try_from(index).unwrap(), generation: 0 }
    }

    /// Notifies all channels, which close at once, and returns the times by channel.
    fn run(dues: &[u64]) -> Vec<u64> {
        let mut ages = Ages::default();
        for (index, due) in dues.iter().enumerate() {
            ages.add(key(index), *due, |_| true);
        }
        let mut times = vec![0; dues.len()];
        let mut last = 0;
        while let Some(now) = ages.next_at() {
            assert!(now > last, "a step makes progress");
            last = now;
            while let Some(step) = ages.pop_due(now) {
                let AgeStep::Notify(key) = step else { panic!("no channel stays open") };
                times[key.index as usize] = now;
                ages.note_notified(now);
                ages.note_end();
            }
        }
        times
    }

    /// Returns the largest number of times within a second.
    fn busiest_second(times: &[u64]) -> usize {
        let mut times = times.to_vec();
        times.sort_unstable();
        let within = |i: usize| times[i..].iter().take_while(|time| **time < times[i] + SECOND).count();
        (0..times.len()).map(within).max().unwrap_or(0)
    }

    /// The largest number of channels that may be notified in a second.
    fn most_in_a_second(channels: usize) -> usize {
        channels.max(SECONDS_FOR_ALL as usize) * 275 / 10_000 + 1
    }

    #[test]
    fn channels_that_are_due_at_once_are_spread_over_forty_seconds() {
        for n in [1, 2, 39, 40, 41, 1000, 10_000] {
            let times = run(&vec![60 * SECOND; n]);
            let most = most_in_a_second(n);
            assert!(busiest_second(&times) <= most, "{n}: {} in a second", busiest_second(&times));
            let last = times.iter().max().unwrap() - 60 * SECOND;
            assert!(last <= 40 * SECOND + STEP, "{n}: the last one {last} ns late");
            assert!(n < 40 || last >= 39 * SECOND, "{n}: the pace keeps up");
        }
    }

    #[test]
    fn a_few_channels_may_be_notified_a_step_earlier_after_a_late_one() {
        let times = run(&[2_100_000_001, 3_200_000_001, 3_200_000_001]);
        assert_eq!(times, [22, 33, 42].map(|tenths| tenths * STEP));
    }

    #[test]
    fn channels_that_are_spread_already_are_on_time() {
        let dues: Vec<u64> = (0..10_000).map(|i| 60 * SECOND + i * SECOND / 100).collect();
        // Later ones are due faster than 2.5 % of the channels that are left.
        for (due, time) in dues.iter().zip(run(&dues)).take(5000) {
            assert!((*due..=due + 2 * STEP).contains(&time), "due at {due}, notified at {time}");
        }
    }

    #[test]
    fn a_loop_that_was_late_does_not_catch_up_in_one_second() {
        let mut ages = Ages::default();
        for index in 0..1000 {
            ages.add(key(index), SECOND, |_| true);
        }
        let mut notified = 0;
        let late = 500 * SECOND;
        while ages.pop_due(late).is_some() {
            ages.note_notified(late);
            notified += 1;
        }
        assert!(notified <= 1, "{notified} in one step");
    }

    #[test]
    fn a_loop_that_is_always_a_little_late_keeps_its_pace() {
        let (mut ages, mut now, mut times) = (Ages::default(), SECOND, Vec::new());
        for index in 0..10_000 {
            ages.add(key(index), SECOND, |_| true);
        }
        for turn in 0.. {
            while ages.pop_due(now).is_some() {
                ages.note_notified(now);
                ages.note_end();
                times.push(now);
            }
            let Some(next) = ages.next_at() else { break };
            // From 0 to 6 ms late.
            now = next + turn % 7 * SECOND / 1000;
        }
        assert!(busiest_second(&times) <= most_in_a_second(10_000), "{}", busiest_second(&times));
        assert!(*times.last().unwrap() <= 42 * SECOND, "the last one at {:?}", times.last());
    }

    #[test]
    fn grace_times_end_regardless_of_the_pace_and_first() {
        let mut ages = Ages::default();
        for index in 0..100 {
            ages.add(key(index), SECOND, |_| true);
            ages.begin_grace(key(index), SECOND, |_| true);
        }
        let ended = std::iter::from_fn(|| ages.pop_due(SECOND))
            .take_while(|step| matches!(step, AgeStep::End(_)))
            .count();
        assert_eq!(ended, 100);
    }

    #[test]
    fn entries_of_closed_channels_do_not_pile_up() {
        let mut ages = Ages::default();
        let mut most = 0;
        for index in 0..100_000 {
            ages.add(key(index), 3600 * SECOND, |key| key.index as usize + 10 > index);
            if index >= 10 {
                ages.note_end();
            }
            most = most.max(ages.waiting.len());
        }
        assert!(most <= 2 * 11 + TOLERATED, "{most} entries for ten open channels");
        assert!(ages.waiting.capacity() <= 4 * (2 * 11 + TOLERATED));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100))]

        #[test]
        fn no_second_exceeds_its_share_and_no_channel_waits_too_long(
            dues in proptest::collection::vec(1..100 * SECOND, 1..2000),
        ) {
            let times = run(&dues);
            prop_assert!(busiest_second(&times) <= most_in_a_second(dues.len()));
            for (due, time) in dues.iter().zip(&times) {
                prop_assert!(time >= due && *time <= due + 40 * SECOND + 2 * STEP, "due at {due}, notified at {time}");
            }
        }
    }
}
