//! Judges one loop by repeated snapshots of its activity.
//!
//! Invariants: a long turn is reported at most once, and its end at most once, after it. Pure:
//! snapshots and times are arguments, and reports are results. Runs on the watchdog's thread.

use super::stall::Stall;
use crate::{
    id::ChannelId,
    sync::{ActivitySnapshot, Occupation},
};
use std::time::{Duration, Instant};

pub(super) struct Observer {
    event_loop: String,
    id: u32,
    /// The turn that is being watched, and when it was first seen.
    turn: u64,
    since: Instant,
    /// The callback or task in that turn, and when it was first seen.
    step: u64,
    step_since: Instant,
    /// The stall that was reported for this turn.
    told: Option<Stall>,
}

/// A report about the loop.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Finding {
    Stuck(Stall),
    Over(Stall),
}

impl Observer {
    pub(super) fn new(event_loop: String, id: u32, now: Instant) -> Self {
        // The first turn that is seen is a new one, because turns are numbered from 1.
        Observer { event_loop, id, turn: 0, since: now, step: 0, step_since: now, told: None }
    }

    /// Evaluates a snapshot of the loop. Returns a report if one is due.
    pub(super) fn observe(
        &mut self,
        sight: &ActivitySnapshot,
        now: Instant,
        limit: Duration,
    ) -> Option<Finding> {
        let same_turn = sight.phase.is_some() && sight.turn == self.turn;
        if !same_turn {
            let over = self.told.take().map(|mut stall| {
                stall.elapsed = now.saturating_duration_since(self.since);
                Finding::Over(stall)
            });
            // A resting loop has finished its turn. Its next activity is another turn.
            (self.turn, self.since) = (sight.turn, now);
            (self.step, self.step_since) = (sight.step, now);
            return over;
        }
        if sight.step != self.step {
            (self.step, self.step_since) = (sight.step, now);
        }
        let elapsed = now.saturating_duration_since(self.since);
        if self.told.is_some() || elapsed <= limit {
            return None;
        }
        let stall = self.stall(sight, elapsed, now.saturating_duration_since(self.step_since))?;
        self.told = Some(stall.clone());
        Some(Finding::Stuck(stall))
    }

    fn stall(&self, sight: &ActivitySnapshot, elapsed: Duration, in_call: Duration) -> Option<Stall> {
        let (channel, handler, task) = match sight.doing {
            Occupation::Nothing => (None, None, None),
            Occupation::Channel(key, handler) => {
                (Some(ChannelId { event_loop: self.id, key }), handler.map(|name| name()), None)
            }
            Occupation::Task(origin) => (None, None, origin),
        };
        let (event_loop, turn, phase) = (self.event_loop.clone(), sight.turn, sight.phase?);
        Some(Stall { event_loop, turn, phase, channel, handler, task, elapsed, in_call })
    }

    /// Restarts the measurements after a time without snapshots, unless a stall has been reported
    /// already.
    pub(super) fn start_anew(&mut self, now: Instant) {
        if self.told.is_none() {
            (self.since, self.step_since) = (now, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sync::LoopPhase;

    const LIMIT: Duration = Duration::from_millis(100);

    /// An observer, and a time that the test advances.
    struct Bench {
        observer: Observer,
        now: Instant,
    }

    impl Bench {
        fn new() -> Self {
            let now = Instant::now();
            Bench { observer: Observer::new("loop-0".to_owned(), 3, now), now }
        }

        /// Takes a snapshot `ms` after the last one.
        fn observe(&mut self, ms: u64, turn: u64, phase: Option<LoopPhase>, step: u64) -> Option<Finding> {
            self.now += Duration::from_millis(ms);
            let sight = ActivitySnapshot { turn, phase, step, doing: Occupation::Nothing };
            self.observer.observe(&sight, self.now, LIMIT)
        }

        /// Like `observe`, but expects a stall. Returns its duration, and how long the current call
        /// has lasted.
        fn stuck(&mut self, ms: u64, turn: u64, step: u64) -> (u128, u128) {
            match self.observe(ms, turn, Some(LoopPhase::Io), step) {
                Some(Finding::Stuck(stall)) => {
                    assert_eq!(stall.turn, turn);
                    (stall.elapsed.as_millis(), stall.in_call.as_millis())
                }
                other => panic!("{other:?}"),
            }
        }

        fn over(&mut self, ms: u64, turn: u64, phase: Option<LoopPhase>) -> u128 {
            match self.observe(ms, turn, phase, 0) {
                Some(Finding::Over(stall)) => stall.elapsed.as_millis(),
                other => panic!("{other:?}"),
            }
        }
    }

    const IO: Option<LoopPhase> = Some(LoopPhase::Io);

    #[test]
    fn a_turn_longer_than_the_limit_is_reported_once() {
        let mut bench = Bench::new();
        assert_eq!(bench.observe(0, 1, IO, 1), None);
        assert_eq!(bench.observe(100, 1, IO, 1), None, "exactly the limit is not longer");
        assert_eq!(bench.stuck(1, 1, 1), (101, 101));
        for _ in 0..10 {
            assert_eq!(bench.observe(1000, 1, IO, 1), None);
        }
        assert_eq!(bench.over(5, 1, None), 10_106);
        assert_eq!(bench.observe(1000, 1, None, 0), None);
    }

    #[test]
    fn another_turn_ends_a_stall_and_may_be_the_next_one() {
        let mut bench = Bench::new();
        bench.observe(0, 1, IO, 1);
        bench.stuck(101, 1, 1);
        assert_eq!(bench.over(9, 2, Some(LoopPhase::Timers)), 110);
        assert_eq!(bench.observe(100, 2, IO, 0), None, "a turn is timed from its first snapshot");
        assert_eq!(bench.stuck(1, 2, 0), (101, 101));
    }

    #[test]
    fn watchdog_quiet_in_poll() {
        let mut bench = Bench::new();
        for _ in 0..10 {
            assert_eq!(bench.observe(1000, 1, None, 0), None);
        }
        assert_eq!(bench.observe(1000, 2, IO, 0), None, "time asleep does not count for the turn after it");
        assert_eq!(bench.observe(99, 2, IO, 0), None);
    }

    #[test]
    fn a_busy_loop_that_turns_is_not_stuck() {
        let mut bench = Bench::new();
        for turn in 1..100 {
            assert_eq!(bench.observe(60, turn, IO, turn), None);
            assert_eq!(bench.observe(30, turn, IO, turn), None);
        }
    }

    #[test]
    fn a_blocking_callback_is_distinguished_from_one_of_many() {
        let mut bench = Bench::new();
        for step in 1..10 {
            assert_eq!(bench.observe(10, 1, IO, step), None);
        }
        assert_eq!(bench.stuck(21, 1, 99), (101, 0), "a turn of many callbacks");
        bench.observe(10, 2, IO, 101);
        bench.observe(10, 2, IO, 103);
        assert_eq!(bench.stuck(91, 2, 103), (101, 91), "one callback that blocks");
    }

    #[test]
    fn time_without_snapshots_does_not_count() {
        let mut bench = Bench::new();
        bench.observe(0, 1, IO, 1);
        bench.observe(60, 1, IO, 1);
        bench.now += Duration::from_secs(3600);
        bench.observer.start_anew(bench.now);
        assert_eq!(bench.observe(0, 1, IO, 1), None);
        assert_eq!(bench.observe(100, 1, IO, 1), None);
        assert_eq!(bench.stuck(1, 1, 1), (101, 101), "a turn that lasts longer afterwards is a stall");
        bench.now += Duration::from_secs(3600);
        bench.observer.start_anew(bench.now);
        assert_eq!(bench.observe(1000, 1, IO, 1), None, "the stall is not reported again");
        assert_eq!(bench.over(1, 2, IO), 3_601_000 + 102, "the total duration includes the gap");
    }
}
