//! What is done to every store, and how long it takes.
//!
//! Always holds: all stores get the same operations, from a fixed seed; each timer expires exactly once, or the bench
//! panics.

use crate::stores::{MS, Store};
use fastrand::Rng;
use hdrhistogram::Histogram;
use netwheel::timer::Wheel;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

const SEED: u64 = 1987;

/// Delays are between one second and this.
const LONGEST: u64 = 60_000 * MS;

/// Nanoseconds per operation, in the order of [`COLUMNS`].
pub(crate) type Figures = [f64; COLUMNS.len()];

/// To fill a store is to start timers while it grows; to start one is to do so when it has the memory already.
pub(crate) const COLUMNS: [&str; 6] =
    ["start", "cancel", "re-arm later", "re-arm anywhere", "expire", "fill"];

/// Operations on `n` timers, in which the order of places has nothing to do with that of deadlines.
pub(crate) struct Script {
    delays: Vec<u64>,
    moves: Vec<(usize, u64)>,
    shuffled: Vec<usize>,
    /// Stores in a row that are measured as one, where one alone would be too quick.
    repeats: usize,
}

impl Script {
    pub(crate) fn new(n: usize) -> Self {
        let mut rng = Rng::with_seed(SEED);
        let mut delay = || rng.u64(1_000 * MS..LONGEST);
        let delays: Vec<u64> = (0..n).map(|_| delay()).collect();
        let others: Vec<u64> = (0..n).map(|_| delay()).collect();
        let mut shuffled: Vec<usize> = (0..n).collect();
        rng.shuffle(&mut shuffled);
        let moves = others.into_iter().map(|delay| (rng.usize(..n), delay)).collect();
        Script { delays, moves, shuffled, repeats: (100_000 / n).clamp(1, 50) }
    }

    /// Starts them all; for those who want to know what that takes in memory.
    pub(crate) fn fill<S: Store>(&self, store: &mut S, handles: &mut Vec<S::Handle>) {
        for (id, &delay) in self.delays.iter().enumerate() {
            handles.push(store.start(delay, id as u64));
        }
    }

    pub(crate) fn measure<S: Store>(&self) -> Figures {
        let mut sums = [Duration::ZERO; COLUMNS.len()];
        for _ in 0..self.repeats {
            let took = self.measure_once::<S>();
            sums.iter_mut().zip(took).for_each(|(sum, took)| *sum += took);
        }
        let n = self.delays.len();
        let operations = [n / 2, n / 2, n, n, n, n];
        let per_operation =
            |column: usize| sums[column].as_nanos() as f64 / (self.repeats * operations[column]) as f64;
        std::array::from_fn(per_operation)
    }

    fn measure_once<S: Store>(&self) -> [Duration; COLUMNS.len()] {
        let n = self.delays.len();
        let (mut store, mut handles) = (S::new(), Vec::with_capacity(n));
        let began = Instant::now();
        self.fill(&mut store, &mut handles);
        let fill = began.elapsed();
        assert_eq!(store.advance(100 * MS), 0);

        // As after a read: as long as can be from now on, and later than it was.
        let began = Instant::now();
        for &id in &self.shuffled {
            store.rearm(&mut handles[id], LONGEST, id as u64);
        }
        let later = began.elapsed();
        for (id, &delay) in self.delays.iter().enumerate() {
            store.rearm(&mut handles[id], delay, id as u64);
        }
        let began = Instant::now();
        for &(id, delay) in &self.moves {
            store.rearm(&mut handles[id], delay, id as u64);
        }
        let anywhere = began.elapsed();

        let half = &self.shuffled[..n / 2];
        let began = Instant::now();
        for &id in half {
            store.cancel(handles[id], id as u64);
        }
        let cancel = began.elapsed();
        let began = Instant::now();
        for &id in half {
            handles[id] = store.start(self.delays[id], id as u64);
        }
        let start = began.elapsed();

        // Steps of a tick, but with at least 16 timers in each, so that waking up is not what is measured.
        let step = (16 * LONGEST / n as u64).next_multiple_of(MS).max(100 * MS);
        let began = Instant::now();
        let (mut now, mut expired) = (0, 0);
        while now < LONGEST + 2_000 * MS {
            expired += store.advance(step);
            now += step;
        }
        let expire = began.elapsed();
        assert_eq!(expired, n, "lost, or expired twice");
        [start, cancel, later, anywhere, expire, fill]
    }
}

/// Nanoseconds that the longest of `n` cancels takes, and what one takes on average, the clock's reading included.
pub(crate) fn measure_cancels<S: Store>(script: &Script) -> (u64, f64) {
    let (mut store, mut handles) = (S::new(), Vec::new());
    script.fill(&mut store, &mut handles);
    let mut calls = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("bounds in order");
    for &id in &script.shuffled {
        let began = Instant::now();
        store.cancel(handles[id], id as u64);
        calls.saturating_record(began.elapsed().as_nanos() as u64);
    }
    (calls.max(), calls.mean())
}

/// What single calls of the wheel cost when very many timers lie in one slot of an upper level.
pub(crate) struct Calls {
    pub(crate) next_expiry: f64,
    /// Of [`Wheel::expire`]: how many, and nanoseconds of the median, of 99 in 100, and of the longest.
    pub(crate) count: u64,
    pub(crate) quantiles: [u64; 3],
}

/// All timers within one slot of the second level of a wheel with default settings.
pub(crate) fn measure_calls(n: usize) -> Calls {
    let mut rng = Rng::with_seed(SEED);
    let mut wheel = Wheel::<u64>::builder().build().expect("defaults");
    for id in 0..n as u64 {
        wheel.insert(LONGEST + rng.u64(..30_000 * MS), id);
    }
    let began = Instant::now();
    let asked = 100_000;
    (0..asked).for_each(|_| _ = black_box(black_box(&wheel).next_expiry()));
    let next_expiry = began.elapsed().as_nanos() as f64 / f64::from(asked);

    let mut calls = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3).expect("bounds in order");
    while let Some(now) = wheel.next_expiry() {
        let began = Instant::now();
        black_box(wheel.expire(now));
        calls.saturating_record(began.elapsed().as_nanos() as u64);
    }
    let quantiles = [0.5, 0.99, 1.0].map(|quantile| calls.value_at_quantile(quantile));
    Calls { next_expiry, count: calls.len(), quantiles }
}
