//! How many callbacks run between two readings of the clock.
//!
//! A reading costs about as much as a tiny task, so reading after each one would halve the
//! throughput of tiny tasks. Reading after every 64th lets 64 slow ones run before the loop
//! notices. `Pace` predicts instead: after a slow callback it reads each time, and while callbacks
//! are short it reads once per [`STEP`] of time.
//!
//! Invariants: a batch is never longer than [`MAX_BATCH`]; a batch ends with the first callback
//! from a call site that has not been measured as short, so a slow call site among short ones is
//! noticed after one call. A clock that is moved by hand is read after every callback, because the
//! pace of the past predicts nothing there. Pure; it reads no clock itself.

use std::panic::Location;

/// Callbacks between two readings at most.
const MAX_BATCH: u64 = 32;

/// Nanoseconds that a batch is predicted to take. A reading, with the bookkeeping around it, takes
/// 1 or 2 % of that.
const STEP: u64 = 2_000;

/// Nanoseconds that a batch of deliveries is predicted to take. They run the program's code only
/// if a member's writability changes, and there are thousands of them in a row.
const DELIVERY_STEP: u64 = 64_000;

/// A batch that takes so many steps contains a callback that is not short. More than one, so that
/// a cache miss or an interrupt does not count.
const SHORT: u64 = 5;

/// Call sites that are remembered as short.
const SITES: usize = 16;

/// Where a callback comes from; callbacks from one site usually take about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::event_loop) struct Site(usize);

impl Site {
    /// Code of the program that may take any time: never remembered.
    pub(in crate::event_loop) const ANY: Site = Site(0);
    /// Marks an empty place in the table.
    const EMPTY: Site = Site(usize::MAX);
    /// A write or another command for a channel that runs no code of the program but the codec.
    pub(in crate::event_loop) const COMMAND: Site = Site(1);
    /// An entry of the wheel.
    pub(in crate::event_loop) const WHEEL: Site = Site(2);
    /// A scheduled task of a channel.
    pub(in crate::event_loop) const CHANNEL: Site = Site(3);

    /// The place in the program's source where a task was submitted.
    #[inline]
    pub(in crate::event_loop) fn of(origin: &'static Location<'static>) -> Site {
        Site(std::ptr::from_ref(origin).addr())
    }

    /// Where it is remembered. `Location`s are aligned to 8 bytes and 24 bytes long.
    #[inline]
    fn place(self) -> usize {
        (self.0 ^ self.0 >> 3 ^ self.0 >> 7) % SITES
    }
}

/// The number of callbacks that may run before the next reading.
#[derive(Debug)]
pub(in crate::event_loop) struct Pace {
    /// Nanoseconds that a batch is predicted to take.
    step: u64,
    /// The length of the next batch.
    batch: u64,
    /// Read after every callback.
    exact: bool,
    short: [Site; SITES],
    /// The site that has ended the batch because it is not known as short.
    asked: Site,
}

impl Pace {
    pub(in crate::event_loop) fn new(real_time: bool) -> Self {
        Pace { step: STEP, batch: 1, exact: !real_time, short: [Site::EMPTY; SITES], asked: Site::ANY }
    }

    /// For the deliveries of broadcasts, which have no call sites.
    pub(in crate::event_loop) fn of_deliveries(real_time: bool) -> Self {
        Pace { step: DELIVERY_STEP, ..Pace::new(real_time) }
    }

    /// Callbacks that may run before the clock is read.
    #[inline]
    pub(in crate::event_loop) fn batch(&self) -> u64 {
        self.batch
    }

    /// Whether the batch may go on after a callback from `site`.
    #[inline]
    pub(in crate::event_loop) fn trusts(&mut self, site: Site) -> bool {
        let trusted = self.short[site.place()] == site;
        if !trusted {
            self.asked = site;
        }
        trusted
    }

    /// The clock was read: the last `ran` callbacks took `took` nanoseconds.
    pub(in crate::event_loop) fn measured(&mut self, ran: u64, took: u64) {
        let asked = std::mem::replace(&mut self.asked, Site::ANY);
        if self.exact {
            return;
        }
        if took > SHORT * self.step {
            // Any of the batch may be the slow one.
            self.short = [Site::EMPTY; SITES];
        } else if asked != Site::ANY {
            self.short[asked.place()] = asked;
        }
        self.batch = (ran * self.step / took.max(1)).clamp(1, MAX_BATCH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Site = Site(8 * 11);
    const SLOW: Site = Site(8 * 22);

    /// Runs `tasks` of these sites and times; the numbers of those after which the clock was read.
    fn readings(pace: &mut Pace, tasks: impl IntoIterator<Item = (Site, u64)>) -> Vec<usize> {
        let (mut readings, mut ran, mut took) = (Vec::new(), 0, 0);
        for (n, (site, time)) in tasks.into_iter().enumerate() {
            (ran, took) = (ran + 1, took + time);
            if !pace.trusts(site) || ran >= pace.batch() {
                readings.push(n);
                pace.measured(ran, took);
                (ran, took) = (0, 0);
            }
        }
        readings
    }

    #[test]
    fn short_callbacks_are_read_once_in_a_step() {
        let mut pace = Pace::new(true);
        let all = readings(&mut pace, (0..3000).map(|_| (QUICK, 70)));
        // 2000 / 70
        assert!(all.len() <= 3 + 3000 / 28, "{}", all.len());
        assert!(all.windows(2).skip(2).all(|pair| pair[1] - pair[0] == 28), "{all:?}");
        let all = readings(&mut pace, (0..3000).map(|_| (QUICK, 0)));
        assert!(all.windows(2).skip(1).all(|pair| pair[1] - pair[0] == MAX_BATCH as usize), "{all:?}");
    }

    #[test]
    fn slow_callbacks_are_read_one_by_one() {
        let mut pace = Pace::new(true);
        readings(&mut pace, (0..1000).map(|_| (QUICK, 70)));
        let all = readings(&mut pace, (0..100).map(|_| (SLOW, 20_000_000)));
        assert_eq!(all, (0..100).collect::<Vec<_>>());
        let all = readings(&mut pace, (0..100).map(|_| (QUICK, 3_000)));
        assert_eq!(all, (0..100).collect::<Vec<_>>(), "a reading is cheap beside 3 µs");
    }

    #[test]
    fn a_slow_site_among_short_ones_is_noticed_after_one_call() {
        let mut pace = Pace::new(true);
        for _ in 0..50 {
            let quick = (0..100).map(|_| (QUICK, 70));
            let all = readings(&mut pace, quick.chain((0..10).map(|_| (SLOW, 20_000_000))));
            assert!((100..110).all(|n| all.contains(&n)), "{all:?}");
            assert!(all.len() < 30, "{all:?}");
        }
    }

    #[test]
    fn a_site_that_turns_slow_costs_a_batch_at_most() {
        let mut pace = Pace::new(true);
        readings(&mut pace, (0..1000).map(|_| (QUICK, 70)));
        let all = readings(&mut pace, (0..100).map(|_| (QUICK, 20_000_000)));
        assert!(all[0] < MAX_BATCH as usize, "{all:?}");
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 1), "{all:?}");
    }

    #[test]
    fn a_clock_that_is_moved_by_hand_is_read_each_time() {
        let mut pace = Pace::new(false);
        let all = readings(&mut pace, (0..100).map(|_| (QUICK, 0)));
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
