//! What does an echo cost in process: bytes in, messages through a pipeline, bytes out; and with how many channels?
//!
//! In `benches/`: `cargo bench --bench echo`.
//! Channels without sockets on one loop (`EmbeddedLoop`), each of which has its turn in an order
//! that says nothing of where it lies in memory: 64 of them are in the cache, 100,000 are not. A read brings one message or 64,
//! as raw bytes (which are one message, however many came) or as frames of 32 bytes; with and without a read timeout. The clock
//! stands still, so no timeout is due: noting the read, and the memory that is touched for it, is all that one costs here.
//! Three copies of the bytes and their memory are the simulated transport's, whatever the pipeline.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use netwheel::{
    ChannelId,
    codec::{LengthField, RawBytes},
    pipeline::{Pipeline, Codec},
    prelude::*,
    testing::EmbeddedLoop,
};
use std::time::Duration;

const CHANNELS: [usize; 3] = [64, 1_000, 100_000];

/// Messages in a read.
const MESSAGES: [usize; 2] = [1, 64];

const SEED: u64 = 1987;

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

fn plain<C: Codec<Read = Bytes, Write = Bytes>>(codec: C) -> Pipeline<Bytes> {
    Pipeline::codec(codec).handler(Echo)
}

fn watched<C: Codec<Read = Bytes, Write = Bytes>>(codec: C) -> Pipeline<Bytes> {
    let idle = IdleTimeouts::new().reader(Duration::from_secs(60));
    Pipeline::codec(codec).idle(idle).handler(Echo)
}

/// Many channels of one kind, and the order in which they have their turns.
struct Crowd {
    event_loop: EmbeddedLoop,
    channels: Vec<ChannelId>,
    next: usize,
}

impl Crowd {
    fn new(count: usize, pipeline: fn() -> Pipeline<Bytes>) -> Self {
        let mut event_loop = EmbeddedLoop::new();
        let mut channels: Vec<ChannelId> = (0..count).map(|_| event_loop.open(pipeline())).collect();
        Rng::with_seed(SEED).shuffle(&mut channels);
        Crowd { event_loop, channels, next: 0 }
    }

    /// One read on the next channel, and what it answers.
    fn echo(&mut self, input: &[u8]) -> Bytes {
        let id = self.channels[self.next];
        self.next = (self.next + 1) % self.channels.len();
        self.event_loop.write_inbound(id, input).expect("an open channel");
        self.event_loop.read_outbound(id)
    }
}

type Factory = fn() -> Pipeline<Bytes>;

/// A group of lines: each kind of pipeline, with each number of channels and of messages in a read.
fn of(
    c: &mut Criterion,
    name: &str,
    kinds: [(&str, Factory); 2],
    throughput: fn(usize, &[u8]) -> Throughput,
) {
    let frame = [&[0, 0, 0, 32][..], &[7; 32]].concat();
    let mut group = c.benchmark_group(name);
    for (kind, pipeline) in kinds {
        for channels in CHANNELS {
            let mut crowd = Crowd::new(channels, pipeline);
            for messages in MESSAGES {
                let input = frame.repeat(messages);
                group.throughput(throughput(messages, &input));
                group.bench_function(BenchmarkId::new(format!("{kind}, {messages} a read"), channels), |b| {
                    b.iter(|| assert_eq!(crowd.echo(&input).len(), input.len()));
                });
            }
        }
    }
    group.finish();
}

fn raw(c: &mut Criterion) {
    let kinds: [(_, Factory); 2] = [("plain", || plain(RawBytes)), ("idle", || watched(RawBytes))];
    of(c, "echo of raw bytes", kinds, |_, input| Throughput::Bytes(input.len() as u64));
}

fn frames(c: &mut Criterion) {
    let kinds: [(_, Factory); 2] =
        [("plain", || plain(LengthField::u32())), ("idle", || watched(LengthField::u32()))];
    of(c, "echo of frames", kinds, |messages, _| Throughput::Elements(messages as u64));
}

/// 24 lines in less than 20 seconds.
fn quick() -> Criterion {
    Criterion::default()
        .warm_up_time(Duration::from_millis(150))
        .measurement_time(Duration::from_millis(350))
        .nresamples(10_000)
}

criterion_group!(name = benches; config = quick(); targets = raw, frames);
criterion_main!(benches);
