//! What does a timer cost: to arm, to cancel, to move, to let expire, with how many resident?
//!
//! `cargo bench --bench timers`. Fixed seed; what is resident is set up outside the measured part.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use netwheel::timer::{ScheduledQueue, Wheel};
use std::{hint::black_box, time::Duration};

const SECOND: u64 = 1_000_000_000;
const RESIDENT: [u64; 3] = [1_000, 10_000, 100_000];

/// Deadlines between 1 and 60 s, always the same ones (xorshift).
fn deadlines(n: u64) -> Vec<u64> {
    let mut x = 0x9e37_79b9_7f4a_7c15u64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x
    };
    (0..n).map(|_| SECOND + next() % (59 * SECOND)).collect()
}

fn wheel() -> Wheel<u64> {
    Wheel::<u64>::builder().tick(Duration::from_millis(16)).slots(4096).build().expect("settings in range")
}

fn wheels(c: &mut Criterion) {
    let mut group = c.benchmark_group("wheel");
    for n in RESIDENT {
        let times = deadlines(n);
        group.throughput(Throughput::Elements(n));
        group.bench_with_input(BenchmarkId::new("start", n), &times, |b, times| {
            b.iter_batched_ref(
                wheel,
                |wheel| times.iter().for_each(|at| _ = black_box(wheel.insert(*at, *at))),
                BatchSize::LargeInput,
            );
        });
        let filled = || {
            let mut wheel = wheel();
            let keys: Vec<_> = times.iter().map(|at| wheel.insert(*at, *at)).collect();
            (wheel, keys)
        };
        group.bench_function(BenchmarkId::new("cancel", n), |b| {
            b.iter_batched_ref(
                filled,
                |(wheel, keys)| keys.iter().for_each(|key| _ = black_box(wheel.cancel(*key))),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("re-arm later", n), |b| {
            b.iter_batched_ref(
                filled,
                |(wheel, keys)| keys.iter().for_each(|key| assert!(wheel.rearm(*key, 61 * SECOND))),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("expire", n), |b| {
            b.iter_batched_ref(
                filled,
                |(wheel, _)| while black_box(wheel.expire(70 * SECOND)).is_some() {},
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

fn heaps(c: &mut Criterion) {
    let mut group = c.benchmark_group("heap");
    for n in RESIDENT {
        let times = deadlines(n);
        group.throughput(Throughput::Elements(n));
        let filled = || {
            let mut queue = ScheduledQueue::new();
            let keys: Vec<_> = times.iter().map(|at| queue.insert(*at, *at)).collect();
            (queue, keys)
        };
        group.bench_function(BenchmarkId::new("start", n), |b| {
            b.iter_batched_ref(
                ScheduledQueue::new,
                |queue| times.iter().for_each(|at| _ = black_box(queue.insert(*at, *at))),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("cancel", n), |b| {
            b.iter_batched_ref(
                filled,
                |(queue, keys)| keys.iter().for_each(|key| _ = black_box(queue.cancel(*key))),
                BatchSize::LargeInput,
            );
        });
        group.bench_function(BenchmarkId::new("expire", n), |b| {
            b.iter_batched_ref(
                filled,
                |(queue, _)| while black_box(queue.pop_due(70 * SECOND)).is_some() {},
                BatchSize::LargeInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, wheels, heaps);
criterion_main!(benches);
