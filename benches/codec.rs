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
    codec::{LengthField, Line, RawBytes, Resp, RespValue, Varint},
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
    let varint_frames = [&[32][..], &PAYLOAD].concat().repeat(MESSAGES);
    let requests = [&b"*2\r\n$3\r\nGET\r\n$32\r\n"[..], &PAYLOAD, b"\r\n"].concat().repeat(MESSAGES);
    decode_with(&mut group, "frames", LengthField::u32(), frames.clone(), MESSAGES);
    decode_with(&mut group, "varint frames", Varint::new(), varint_frames, MESSAGES);
    decode_with(&mut group, "lines", Line::new(), lines, MESSAGES);
    decode_with(&mut group, "raw bytes", RawBytes, frames, 1);
    decode_with(&mut group, "RESP requests", Resp::server(), requests, MESSAGES);
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
    let message = Bytes::from_static(&PAYLOAD);
    encode_with(&mut group, "frames", LengthField::u32(), message.clone());
    encode_with(&mut group, "varint frames", Varint::new(), message.clone());
    encode_with(&mut group, "lines", Line::new(), message.clone());
    encode_with(&mut group, "raw bytes", RawBytes, message.clone());
    encode_with(&mut group, "RESP strings", Resp::server(), RespValue::Bulk(message));
    group.finish();
}

fn encode_with<C>(group: &mut Group<'_>, name: &str, mut codec: C, message: C::Write)
where
    C: Codec<Write: Clone>,
{
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
