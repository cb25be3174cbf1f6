//! How many callbacks run between two readings of the clock.
//!
//! A reading costs about as much as a tiny task, so reading after each one would halve the
//! throughput of tiny tasks. Reading after every 64th lets 64 slow ones run before the loop
//! notices. `Pace` predicts instead: after a slow callback it reads each time, and while callbacks
//! are short it reads once per [`STEP`] of time.
//!
//! Invariants: a batch is never longer than [`MAX_BATCH`]. It ends with the first callback from a
//! call site that has not been measured as short. So a slow call site among short ones is noticed
//! after one call. A manual clock is read after every callback, because past durations predict
//! nothing there. Pure, and reads no clock itself.

use std::panic::Location;

/// The maximum number of callbacks between two readings.
const MAX_BATCH: u64 = 32;

/// The predicted duration of a batch in nanoseconds. A reading, with the bookkeeping around it,
/// takes 1 or 2 % of that.
const STEP: u64 = 2_000;

/// The predicted duration of a batch of deliveries in nanoseconds. Deliveries run the program's
/// code only if a member's writability changes, and there are thousands of them in a row.
const DELIVERY_STEP: u64 = 64_000;

/// A batch that takes longer than this many steps contains a slow callback. The limit is above one
/// step, so that a cache miss or an interrupt does not count.
const SHORT: u64 = 5;

/// The number of call sites that are remembered as short.
const SITES: usize = 16;

/// The origin of a callback. Callbacks from one site usually take about the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::event_loop) struct Site(usize);

impl Site {
    /// Code of the program with an unpredictable duration. It is never remembered.
    pub(in crate::event_loop) const ANY: Site = Site(0);
    /// Marks an empty index in the table.
    const EMPTY: Site = Site(usize::MAX);
    /// A write or another command for a channel, which runs the codec but no other code of the
    /// program.
    pub(in crate::event_loop) const COMMAND: Site = Site(1);
    /// An entry of the wheel.
    pub(in crate::event_loop) const WHEEL: Site = Site(2);
    /// A scheduled task of a channel.
    pub(in crate::event_loop) const CHANNEL: Site = Site(3);

    /// The source location where a task was submitted.
    #[inline]
    pub(in crate::event_loop) fn of(origin: &'static Location<'static>) -> Site {
        #[cfg(feature = "simulation")]
        if crate::machine::simulated::exists() {
            // Addresses differ between builds, and with them the readings of the clock.
            return Site((origin.line() as usize) << 8 ^ origin.column() as usize);
        }
        Site(std::ptr::from_ref(origin).addr())
    }

    /// Returns the index in the table. `Location`s are aligned to 8 bytes and 24 bytes long.
    #[inline]
    fn index(self) -> usize {
        (self.0 ^ self.0 >> 3 ^ self.0 >> 7) % SITES
    }
}

/// The number of callbacks that may run before the next reading.
#[derive(Debug)]
pub(in crate::event_loop) struct Pace {
    /// The predicted duration of a batch in nanoseconds.
    step: u64,
    /// The length of the next batch.
    batch: u64,
    /// Whether to read the clock after every callback.
    exact: bool,
    short: [Site; SITES],
    /// The site that ended the batch because it is not known as short.
    asked: Site,
}

impl Pace {
    pub(in crate::event_loop) fn new(real_time: bool) -> Self {
        Pace { step: STEP, batch: 1, exact: !real_time, short: [Site::EMPTY; SITES], asked: Site::ANY }
    }

    /// Creates a pace for the deliveries of broadcasts, which do not have call sites.
    pub(in crate::event_loop) fn of_deliveries(real_time: bool) -> Self {
        Pace { step: DELIVERY_STEP, ..Pace::new(real_time) }
    }

    /// Returns the number of callbacks that may run before the clock is read.
    #[inline]
    pub(in crate::event_loop) fn batch(&self) -> u64 {
        self.batch
    }

    /// Returns whether the batch may continue after a callback from `site`.
    #[inline]
    pub(in crate::event_loop) fn trusts(&mut self, site: Site) -> bool {
        let trusted = self.short[site.index()] == site;
        if !trusted {
            self.asked = site;
        }
        trusted
    }

    /// Records a clock reading: the last `ran` callbacks took `took` nanoseconds.
    pub(in crate::event_loop) fn measured(&mut self, ran: u64, took: u64) {
        let asked = std::mem::replace(&mut self.asked, Site::ANY);
        if self.exact {
            return;
        }
        if took > SHORT * self.step {
            // Any callback of the batch may be the slow one.
            self.short = [Site::EMPTY; SITES];
        } else if asked != Site::ANY {
            self.short[asked.index()] = asked;
        }
        self.batch = (ran * self.step / took.max(1)).clamp(1, MAX_BATCH);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUICK: Site = Site(8 * 11);
    const SLOW: Site = Site(8 * 22);

    /// Runs `tasks` with these sites and durations. Returns the indices after which the clock was
    /// read.
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
        assert_eq!(all, (0..100).collect::<Vec<_>>(), "a reading is cheap compared with 3 µs");
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
    fn a_site_that_becomes_slow_costs_at_most_one_batch() {
        let mut pace = Pace::new(true);
        readings(&mut pace, (0..1000).map(|_| (QUICK, 70)));
        let all = readings(&mut pace, (0..100).map(|_| (QUICK, 20_000_000)));
        assert!(all[0] < MAX_BATCH as usize, "{all:?}");
        assert!(all.windows(2).all(|pair| pair[1] - pair[0] == 1), "{all:?}");
    }

    #[test]
    fn a_manual_clock_is_read_each_time() {
        let mut pace = Pace::new(false);
        let all = readings(&mut pace, (0..100).map(|_| (QUICK, 0)));
        assert_eq!(all, (0..100).collect::<Vec<_>>());
    }
}
