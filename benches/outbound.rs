//! Cost of appending to the outbound buffer, by size: pieces that are copied, and pieces that are
//! kept by reference.
//!
//! In `benches/`: `cargo bench --bench outbound`. A batch of pieces is appended to an empty buffer.
//! The two lines diverge at the size from which pieces are kept.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

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
