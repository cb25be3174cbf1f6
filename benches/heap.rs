//! Cost of a timer on the heap: start, cancel, re-arm, expire.
//!
//! In `benches/`: `cargo bench --bench heap`. Takes seconds, to check a change to `ScheduledQueue`.
//! The bench `timers` compares it with other stores, and with a million timers and more.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

#[path = "timers/resident.rs"]
mod resident;
#[path = "timers/stores.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod stores;

use criterion::{Criterion, criterion_group, criterion_main};

fn heap(c: &mut Criterion) {
    resident::bench::<stores::Queue>(c, "ScheduledQueue");
}

criterion_group!(name = benches; config = resident::quick(); targets = heap);
criterion_main!(benches);
