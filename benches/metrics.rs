//! Cost of a loop's metrics: one histogram record, the additions at the end of a turn, and a
//! snapshot for a reader. Also their share of the time of a turn.
//!
//! In `benches/`: `cargo bench --bench metrics`. The library's own files are compiled in, because
//! the recording side is not public. The share is that of a turn that echoes one small message. It
//! is the maximum, because the counters of a turn are updated for a single message. The time of
//! such a turn comes from the loop's own metrics, without the call to poll.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

#[path = "../src/metrics/mod.rs"]
#[allow(dead_code, unreachable_pub, unused_imports, reason = "only some of the library's code is used")]
mod metrics;

use criterion::{Criterion, criterion_group, criterion_main};
use metrics::{Metrics, Tally};
use netwheel::{codec::RawBytes, prelude::*};
use std::{
    hint::black_box,
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc,
    time::{Duration, Instant},
};

fn recording(c: &mut Criterion) {
    let mut group = c.benchmark_group("recording");
    let metrics = Metrics::default();
    group.bench_function("counter", |b| b.iter(|| black_box(&metrics).turns.add(black_box(1))));
    // Uses all magnitudes, so that neither the branch nor the cache line can be predicted.
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

struct Echo;

impl Handler for Echo {
    type Read = bytes::Bytes;
    type Write = bytes::Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: bytes::Bytes) -> Result {
        ctx.write(message)
    }
}

/// Updates the metrics of a turn that reads one message and echoes it.
fn count_echo(metrics: &Metrics) {
    for counter in [
        &metrics.turns,
        &metrics.polls,
        &metrics.wakes_io,
        &metrics.clock_reads,
        &metrics.clock_reads,
        &metrics.time_polling,
        &metrics.time_io,
        &metrics.time_flushing,
        &metrics.ready,
        &metrics.reads,
        &metrics.bytes_read,
        &metrics.writes,
        &metrics.bytes_written,
    ] {
        counter.add(black_box(1));
    }
    metrics.turn_time.record(black_box(10_000));
    metrics.timers_pending.set(black_box(1));
    metrics.wheel_pending.set(black_box(1));
    metrics.fold(&mut Tally {
        messages_read: black_box(1),
        messages_written: black_box(1),
        ..Tally::default()
    });
}

/// Measures the share of the metrics in a turn that echoes one message of 64 bytes, in percent.
fn share(_: &mut Criterion) {
    let group = EventLoopGroup::builder().threads(1).build().expect("a loop");
    let server = ServerBootstrap::new(&group)
        .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
        .bind("127.0.0.1:0")
        .expect("a port");
    let mut client = TcpStream::connect(server.local_address()).expect("a server");
    client.set_nodelay(true).expect("a socket");
    let (metrics, mut message) = (Metrics::default(), [b'x'; 64]);
    let mut echo_for = |time: Duration| {
        let begun = Instant::now();
        while begun.elapsed() < time {
            client.write_all(&message).expect("a server");
            client.read_exact(&mut message).expect("an echo");
        }
    };
    echo_for(Duration::from_millis(200));
    let mut shares: Vec<f64> = (0..9)
        .map(|_| {
            let before = group.next().metrics();
            echo_for(Duration::from_millis(200));
            let after = group.next().metrics();
            let turns = (after.turns - before.turns) as f64;
            let busy = after.time_io + after.time_flushing - before.time_io - before.time_flushing;
            let turn = busy.as_nanos() as f64 / turns;
            let begun = Instant::now();
            for _ in 0..1_000_000 {
                count_echo(black_box(&metrics));
            }
            let counting = begun.elapsed().as_nanos() as f64 / 1e6;
            eprintln!("a turn that echoes a message: {turn:.0} ns, including {counting:.1} ns for metrics");
            counting / turn * 100.0
        })
        .collect();
    shares.sort_by(f64::total_cmp);
    println!("metrics: {:.2} % of a turn ({:.2} to {:.2})", shares[4], shares[0], shares[8]);
}

criterion_group!(benches, recording, reading, share);
criterion_main!(benches);
