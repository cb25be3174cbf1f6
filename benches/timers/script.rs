//! The operations on every store, and their duration.
//!
//! All stores always get the same operations, from a fixed seed. Each timer expires exactly once,
//! or the bench panics.

use crate::stores::{MS, Store};
use fastrand::Rng;
use netwheel::timer::Wheel;
use std::{
    hint::black_box,
    time::{Duration, Instant},
};

const SEED: u64 = 1987;

/// Maximum delay. The minimum is one second.
const LONGEST: u64 = 60_000 * MS;

/// Nanoseconds per operation, in the order of [`COLUMNS`].
pub(crate) type Figures = [f64; COLUMNS.len()];

/// Operations. `fill` starts timers while the store grows; `start` does so when the store has the
/// memory already.
pub(crate) const COLUMNS: [&str; 6] =
    ["start", "cancel", "re-arm later", "re-arm anywhere", "expire", "fill"];

/// Operations on `n` timers. The order of slots is unrelated to that of deadlines.
pub(crate) struct Script {
    delays: Vec<u64>,
    moves: Vec<(usize, u64)>,
    shuffled: Vec<usize>,
    /// Number of stores that are measured together, if one is too fast to measure.
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

    /// Starts all timers, for measuring memory.
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

        // Like after a read: the maximum delay from now on, and later than before.
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

        // Steps of one tick, but with at least 16 timers in each, so that the steps themselves do
        // not dominate.
        let step = (16 * LONGEST / n as u64).next_multiple_of(MS).max(100 * MS);
        let began = Instant::now();
        let (mut now, mut expired) = (0, 0);
        while now < LONGEST + 2_000 * MS {
            expired += store.advance(step);
            now += step;
        }
        let expire = began.elapsed();
        assert_eq!(expired, n, "a timer was lost, or expired twice");
        [start, cancel, later, anywhere, expire, fill]
    }
}

/// Durations of a series of calls, in nanoseconds. The series is the same in every round. Taking
/// the minimum for each call removes the effect of interruptions.
#[derive(Default)]
pub(crate) struct Calls(Vec<u32>);

impl Calls {
    fn time<T>(&mut self, call: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let result = black_box(call());
        self.0.push(began.elapsed().as_nanos() as u32);
        result
    }

    /// Returns the minimum duration of each call over these rounds.
    pub(crate) fn least(rounds: usize, round: impl Fn() -> Calls) -> Calls {
        let mut least = round();
        for _ in 1..rounds {
            let others = round();
            assert_eq!(least.0.len(), others.0.len(), "a series is the same in every round");
            least.0.iter_mut().zip(others.0).for_each(|(least, took)| *least = took.min(*least));
        }
        least.0.sort_unstable();
        least
    }

    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn mean(&self) -> f64 {
        self.0.iter().map(|took| f64::from(*took)).sum::<f64>() / self.0.len() as f64
    }

    /// Returns the time within which `thousandths` of a thousand calls are done.
    pub(crate) fn within(&self, thousandths: usize) -> u32 {
        self.0[(self.0.len() - 1) * thousandths / 1000]
    }
}

/// Cancels all timers, in random order.
pub(crate) fn time_cancels<S: Store>(script: &Script) -> Calls {
    let (mut store, mut handles, mut calls) = (S::new(), Vec::new(), Calls::default());
    script.fill(&mut store, &mut handles);
    for &id in &script.shuffled {
        calls.time(|| store.cancel(handles[id], id as u64));
    }
    calls
}

/// Expires timers that are all in one slot of the second level of a wheel with default settings.
pub(crate) fn time_expiries(n: usize) -> Calls {
    let (mut wheel, mut calls) = (crowd(n), Calls::default());
    while let Some(now) = wheel.next_expiry() {
        calls.time(|| wheel.expire(now));
    }
    calls
}

fn crowd(n: usize) -> Wheel<u64> {
    let mut rng = Rng::with_seed(SEED);
    let mut wheel = Wheel::<u64>::builder().build().expect("defaults");
    for id in 0..n as u64 {
        wheel.insert(LONGEST + rng.u64(..30_000 * MS), id);
    }
    wheel
}

/// Returns nanoseconds per call of [`Wheel::next_expiry`].
pub(crate) fn time_next_expiry(n: usize) -> f64 {
    let (wheel, asked) = (crowd(n), 100_000);
    let began = Instant::now();
    (0..asked).for_each(|_| _ = black_box(black_box(&wheel).next_expiry()));
    began.elapsed().as_nanos() as f64 / f64::from(asked)
}
