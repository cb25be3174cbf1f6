//! Cost of an echo in process, by number of channels: bytes in, messages through a pipeline, bytes
//! out.
//!
//! In `benches/`: `cargo bench --bench echo`. The channels are on one loop, without sockets
//! (`EmbeddedLoop`). They are served in an order that is unrelated to their order in memory: 64 of
//! them fit into the cache, 100,000 do not. A read returns one message or 64, as raw bytes (one
//! message per read) or as frames of 32 bytes, with and without a read timeout. The clock stands
//! still, so no timeout expires. The cost of a read timeout here is to note the read, and the
//! memory that this touches. The simulated transport accounts for three copies of the bytes and
//! their memory with every pipeline.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fastrand::Rng;
use netwheel::{
    ChannelId, Codec, Pipeline,
    codec::{LengthField, RawBytes},
    prelude::*,
    testing::EmbeddedLoop,
};
use std::time::Duration;

const CHANNELS: [usize; 3] = [64, 1_000, 100_000];

/// Messages per read.
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

/// Many channels of one kind, and the order in which they are served.
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

    /// Does one read on the next channel, and returns its output.
    fn echo(&mut self, input: &[u8]) -> Bytes {
        let id = self.channels[self.next];
        self.next = (self.next + 1) % self.channels.len();
        self.event_loop.write_inbound(id, input).expect("an open channel");
        self.event_loop.read_outbound(id)
    }
}

type Factory = fn() -> Pipeline<Bytes>;

/// Measures each kind of pipeline with each number of channels and of messages per read.
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
