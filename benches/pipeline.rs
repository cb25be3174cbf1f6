//! Cost of a message between bytes and handler in both directions, and the additional cost of a
//! stage.
//!
//! In `benches/`: `cargo bench --bench pipeline`. 64 frames of 32 bytes in one read, echoed, on a
//! channel without a socket.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use netwheel::{
    Stage, StageContext,
    codec::{LengthField, Line, RawBytes},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::hint::black_box;

const FRAMES: usize = 64;

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

/// Passes all messages on.
struct Through;

impl Stage for Through {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

fn echo(c: &mut Criterion) {
    let frames = [&[0, 0, 0, 32][..], &[7; 32]].concat().repeat(FRAMES);
    let lines = b"0123456789abcdef0123456789abcde\n".repeat(FRAMES);
    let mut group = c.benchmark_group("echo in memory");
    group.throughput(Throughput::Elements(FRAMES as u64));
    let mut run = |name: &str, mut channel: EmbeddedChannel<Bytes>, input: &[u8]| {
        group.bench_function(name, |b| {
            b.iter(|| {
                channel.write_inbound(input).expect("an open channel");
                black_box(channel.read_outbound()).len()
            });
        });
    };
    run("raw bytes", EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(Echo)), &frames);
    run("frames", EmbeddedChannel::new(Pipeline::codec(LengthField::u32()).handler(Echo)), &frames);
    let staged = Pipeline::codec(LengthField::u32()).stage(Through).stage(Through).handler(Echo);
    run("frames, two stages", EmbeddedChannel::new(staged), &frames);
    run("lines", EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Echo)), &lines);
    group.finish();
}

criterion_group!(benches, echo);
criterion_main!(benches);
