//! What does it cost to append to the bytes that wait to be sent: copied, or kept as they are, by size?
//!
//! In `benches/`: `cargo bench --bench outbound`.
//! A batch of pieces goes into an empty buffer; where copying ends and keeping begins
//! is where the two lines part.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

use bytes::Bytes;
use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use netwheel::buffer::OutboundBuffer;
use std::hint::black_box;

/// Pieces in a batch: a turn's worth of small messages for one channel.
const PIECES: usize = 16;

const SIZES: [usize; 6] = [16, 64, 512, 2 * 1024, 8 * 1024, 32 * 1024];

fn append(c: &mut Criterion) {
    let mut group = c.benchmark_group("append to the outbound buffer");
    for size in SIZES {
        group.throughput(Throughput::Bytes((PIECES * size) as u64));
        let bytes = Bytes::from(vec![7; size]);
        group.bench_function(BenchmarkId::new("put_slice", size), |b| {
            b.iter_batched_ref(
                OutboundBuffer::new,
                |output| {
                    for _ in 0..PIECES {
                        output.put_slice(black_box(&bytes));
                    }
                    assert_eq!(output.len(), PIECES * size);
                },
                BatchSize::SmallInput,
            );
        });
        group.bench_function(BenchmarkId::new("put", size), |b| {
            b.iter_batched_ref(
                OutboundBuffer::new,
                |output| {
                    for _ in 0..PIECES {
                        output.put(black_box(bytes.clone()));
                    }
                    assert_eq!(output.len(), PIECES * size);
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group!(benches, append);
criterion_main!(benches);
