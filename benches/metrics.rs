//! What does it cost a loop to count: one histogram record, the addition at the end of a turn, and a copy for a reader?
//!
//! `cargo bench --bench metrics`. The library's own files are compiled in, since what records is not public.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

#[path = "../src/event_loop/metrics/mod.rs"]
#[allow(
    dead_code,
    unreachable_pub,
    unused_imports,
    reason = "a part of the library, of which a part is used"
)]
mod recording;
#[path = "../src/channel/tally.rs"]
mod tally;

mod channel {
    pub(crate) use crate::tally::Tally;
}

use criterion::{Criterion, criterion_group, criterion_main};
use netwheel::EventLoopGroup;
use recording::Metrics;
use std::{hint::black_box, sync::mpsc};
use tally::Tally;

fn recording(c: &mut Criterion) {
    let mut group = c.benchmark_group("recording");
    let metrics = Metrics::default();
    group.bench_function("counter", |b| b.iter(|| black_box(&metrics).turns.add(black_box(1))));
    // Of all magnitudes, so that neither the branch nor the cache line can be guessed.
    let mut ns = 1u64;
    group.bench_function("histogram", |b| {
        b.iter(|| {
            ns = ns.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            black_box(&metrics).lag.record(black_box(ns >> (28 + (ns >> 59))));
        });
    });
    group.bench_function("end of a turn", |b| {
        b.iter(|| {
            let mut tally = Tally { messages_read: 64, messages_written: 64, ..Tally::default() };
            black_box(&metrics).fold(black_box(&mut tally));
        });
    });
    group.finish();
}

fn reading(c: &mut Criterion) {
    let loops = EventLoopGroup::builder().threads(1).build().expect("a loop");
    let event_loop = loops.next();
    let mut group = c.benchmark_group("reading");
    group.bench_function("snapshot of a loop at rest", |b| b.iter(|| black_box(event_loop.metrics()).turns));
    let metrics = event_loop.metrics();
    group.bench_function("quantile", |b| b.iter(|| black_box(&metrics).lag.quantile(black_box(0.99))));

    // A loop that turns all the time: its counters are in the cache of another core.
    let (stop, stopped) = mpsc::channel::<()>();
    fn again(event_loop: netwheel::EventLoop, stopped: mpsc::Receiver<()>) {
        if stopped.try_recv() != Err(mpsc::TryRecvError::Disconnected) {
            let me = event_loop.clone();
            let _ = event_loop.execute(move || again(me, stopped));
        }
    }
    again(event_loop.clone(), stopped);
    group.bench_function("snapshot of a loop at work", |b| b.iter(|| black_box(event_loop.metrics()).turns));
    drop(stop);
    group.finish();
}

criterion_group!(benches, recording, reading);
criterion_main!(benches);
