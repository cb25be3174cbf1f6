//! What does a timer cost in the heap: to start, to cancel, to move, to let expire?
//!
//! In `benches/`: `cargo bench --bench heap`:
//! seconds, to see at once what a change to `ScheduledQueue` has done. How it compares with others, and
//! with a million timers and more, is what `timers` measures.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

#[path = "timers/resident.rs"]
mod resident;
#[path = "timers/stores.rs"]
#[allow(dead_code, reason = "a part of what is compared elsewhere")]
mod stores;

use criterion::{Criterion, criterion_group, criterion_main};

fn heap(c: &mut Criterion) {
    resident::bench::<stores::Queue>(c, "ScheduledQueue");
}

criterion_group!(name = benches; config = resident::quick(); targets = heap);
criterion_main!(benches);
