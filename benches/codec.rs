//! Cost of decoding and encoding messages.
//!
//! In `benches/`: `cargo bench --bench codec`. 64 messages of 32 bytes in one buffer, without a
//! channel.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

use bytes::Bytes;
use criterion::{
    BatchSize, BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use netwheel::{
    Codec,
    buffer::OutboundBuffer,
    codec::{LengthField, Line, RawBytes},
};
use std::hint::black_box;

const MESSAGES: usize = 64;

const PAYLOAD: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

type Group<'a> = BenchmarkGroup<'a, WallTime>;

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    let frames = [&[0, 0, 0, 32][..], &PAYLOAD].concat().repeat(MESSAGES);
    let lines = [&PAYLOAD[..], b"\n"].concat().repeat(MESSAGES);
    decode_with(&mut group, "frames", LengthField::u32(), frames.clone(), MESSAGES);
    decode_with(&mut group, "lines", Line::new(), lines, MESSAGES);
    decode_with(&mut group, "raw bytes", RawBytes, frames, 1);
    group.finish();
}

fn decode_with<C: Codec>(group: &mut Group<'_>, name: &str, mut codec: C, input: Vec<u8>, messages: usize) {
    let input = Bytes::from(input);
    group.bench_function(name, |b| {
        b.iter(|| {
            let mut left = black_box(input.clone());
            let mut decoded = 0;
            while codec.decode(&mut left).expect("well-formed input").map(black_box).is_some() {
                decoded += 1;
            }
            assert_eq!((decoded, left.len()), (messages, 0), "all input was decoded");
        });
    });
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    encode_with(&mut group, "frames", LengthField::u32());
    encode_with(&mut group, "lines", Line::new());
    encode_with(&mut group, "raw bytes", RawBytes);
    group.finish();
}

fn encode_with<C: Codec<Write = Bytes>>(group: &mut Group<'_>, name: &str, mut codec: C) {
    let message = Bytes::from_static(&PAYLOAD);
    group.bench_function(name, |b| {
        b.iter_batched_ref(
            OutboundBuffer::new,
            |output| {
                for _ in 0..MESSAGES {
                    codec.encode(message.clone(), output).expect("a message within the limits");
                }
                black_box(output.len())
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
