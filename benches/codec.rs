//! What does it cost to cut messages out of bytes, and to make bytes of messages?
//!
//! `cargo bench --bench codec`. 64 messages of 32 bytes in one piece of memory, without a channel around them.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use netwheel::{
    buffer::Outbound,
    codec::{LengthField, Line, RawBytes},
    pipeline::Codec,
};
use std::hint::black_box;

const MESSAGES: usize = 64;

const PAYLOAD: [u8; 32] = *b"0123456789abcdef0123456789abcdef";

fn decode(c: &mut Criterion) {
    let mut group = c.benchmark_group("decode");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    let mut run = |name: &str, input: Vec<u8>, mut next: Box<dyn FnMut(&mut Bytes) -> bool>, count: usize| {
        let input = Bytes::from(input);
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut left = black_box(input.clone());
                let mut decoded = 0;
                while next(&mut left) {
                    decoded += 1;
                }
                assert_eq!((decoded, left.len()), (count, 0), "all that came was decoded");
            });
        });
    };
    let frames = [&[0, 0, 0, 32][..], &PAYLOAD].concat().repeat(MESSAGES);
    let lines = [&PAYLOAD[..], b"\n"].concat().repeat(MESSAGES);
    run("frames", frames.clone(), next_of(LengthField::u32()), MESSAGES);
    run("lines", lines, next_of(Line::new()), MESSAGES);
    run("raw bytes", frames, next_of(RawBytes), 1);
    group.finish();
}

/// Decodes and drops one message; whether there was one.
fn next_of<C: Codec>(mut codec: C) -> Box<dyn FnMut(&mut Bytes) -> bool> {
    Box::new(move |input| codec.decode(input).expect("well-formed input").map(black_box).is_some())
}

fn encode(c: &mut Criterion) {
    let mut group = c.benchmark_group("encode");
    group.throughput(Throughput::Elements(MESSAGES as u64));
    let message = Bytes::from_static(&PAYLOAD);
    let mut run = |name: &str, mut put: Box<dyn FnMut(Bytes, &mut Outbound)>| {
        group.bench_function(name, |b| {
            b.iter_batched_ref(
                Outbound::new,
                |output| {
                    for _ in 0..MESSAGES {
                        put(message.clone(), output);
                    }
                    black_box(output.len());
                },
                BatchSize::SmallInput,
            );
        });
    };
    run("frames", put_with(LengthField::u32()));
    run("lines", put_with(Line::new()));
    run("raw bytes", put_with(RawBytes));
    group.finish();
}

fn put_with<C: Codec<Out = Bytes>>(mut codec: C) -> Box<dyn FnMut(Bytes, &mut Outbound)> {
    Box::new(move |message, output| codec.encode(message, output).expect("a message within the limits"))
}

criterion_group!(benches, decode, encode);
criterion_main!(benches);
