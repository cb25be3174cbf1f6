//! Cost of one operation on a store with a given number of timers, under criterion.
//!
//! An iteration is always one operation. Restoring the store is not measured, so the number of
//! timers is constant. Time is simulated, and all lines draw from the same seed.

use crate::stores::{MS, Store};
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, measurement::WallTime};
use fastrand::Rng;
use std::time::{Duration, Instant};

const TIMERS: [usize; 3] = [1_000, 10_000, 100_000];

/// Operations that are measured together, so that the clock readings do not matter.
const BATCH: u64 = 64;

const SEED: u64 = 1987;

/// Delays of timers, in seconds, typical of idle timeouts.
const DELAYS: std::ops::Range<u64> = 1..60;

/// The mean of [`DELAYS`].
const MEAN: u64 = 30_000 * MS;

/// A full store, and a source of delays.
struct Resident<S: Store> {
    store: S,
    handles: Vec<S::Handle>,
    rng: Rng,
}

impl<S: Store> Resident<S> {
    fn new(timers: usize) -> Self {
        let mut me = Resident { store: S::new(), handles: Vec::new(), rng: Rng::with_seed(SEED) };
        for id in 0..timers as u64 {
            let delay = me.delay();
            me.handles.push(me.store.start(delay, id));
        }
        me
    }

    fn delay(&mut self) -> u64 {
        self.rng.u64(DELAYS.start * 1_000 * MS..DELAYS.end * 1_000 * MS)
    }

    fn delays(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.delay()).collect()
    }

    /// Starts `count` additional timers, and cancels them in a different order. Returns the
    /// durations of both.
    fn start_and_cancel(&mut self, count: u64) -> [Duration; 2] {
        let delays = self.delays(count);
        let mut handles = Vec::with_capacity(delays.len());
        let began = Instant::now();
        handles.extend(delays.iter().map(|&delay| self.store.start(delay, 0)));
        let start = began.elapsed();
        self.rng.shuffle(&mut handles);
        let began = Instant::now();
        handles.iter().for_each(|&handle| self.store.cancel(handle, 0));
        [start, began.elapsed()]
    }

    /// Re-arms one timer for each delay. Returns the duration.
    fn rearm(&mut self, delays: &[u64]) -> Duration {
        let which: Vec<usize> = delays.iter().map(|_| self.rng.usize(..self.handles.len())).collect();
        let began = Instant::now();
        for (&which, &delay) in which.iter().zip(delays) {
            self.store.rearm(&mut self.handles[which], delay, which as u64);
        }
        began.elapsed()
    }

    /// Lets about a batch expire, and starts as many. Returns the number, and the duration of the
    /// expiry.
    fn expire(&mut self) -> (u64, Duration) {
        let by = MEAN * BATCH / self.handles.len() as u64;
        let began = Instant::now();
        let expired = self.store.advance(by);
        let took = began.elapsed();
        for id in 0..expired {
            let delay = self.delay();
            self.store.start(delay, id as u64);
        }
        (expired as u64, took)
    }
}

/// Does `count` operations, in batches.
fn in_batches(mut count: u64, mut batch: impl FnMut(u64) -> Duration) -> Duration {
    let mut took = Duration::ZERO;
    while count > 0 {
        let now = count.min(BATCH);
        took += batch(now);
        count -= now;
    }
    took
}

fn with_timers<S: Store>(group: &mut BenchmarkGroup<'_, WallTime>, timers: usize) {
    let mut resident = Resident::<S>::new(timers);
    group.bench_function(BenchmarkId::new("start", timers), |b| {
        b.iter_custom(|count| in_batches(count, |n| resident.start_and_cancel(n)[0]));
    });
    group.bench_function(BenchmarkId::new("cancel", timers), |b| {
        b.iter_custom(|count| in_batches(count, |n| resident.start_and_cancel(n)[1]));
    });
    // Later than all others, like a timeout that restarts.
    let mut last = DELAYS.end * 1_000 * MS;
    group.bench_function(BenchmarkId::new("re-arm later", timers), |b| {
        b.iter_custom(|count| {
            in_batches(count, |n| {
                let delays: Vec<u64> = (last..last + n).collect();
                last += n;
                resident.rearm(&delays)
            })
        });
    });
    group.bench_function(BenchmarkId::new("re-arm anywhere", timers), |b| {
        b.iter_custom(|count| {
            in_batches(count, |n| {
                let delays = resident.delays(n);
                resident.rearm(&delays)
            })
        });
    });
    // The handles of expired timers are invalid, so this part comes last, with its own store.
    let mut resident = Resident::<S>::new(timers);
    group.bench_function(BenchmarkId::new("expire", timers), |b| {
        b.iter_custom(|count| {
            let (mut expired, mut took) = (0, Duration::ZERO);
            while expired < count {
                let (more, time) = resident.expire();
                (expired, took) = (expired + more, took + time);
            }
            took.mul_f64(count as f64 / expired as f64)
        });
    });
}

/// Measures start, cancel, re-arm and expire, for each number of resident timers.
pub(crate) fn bench<S: Store>(c: &mut Criterion, name: &str) {
    let mut group = c.benchmark_group(name);
    TIMERS.iter().for_each(|&timers| with_timers::<S>(&mut group, timers));
    group.finish();
}

/// 15 lines in less than 20 seconds.
pub(crate) fn quick() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(500))
        .nresamples(10_000)
}
