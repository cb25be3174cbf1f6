//! What does a timer cost on the wheel: to start, to cancel, to move, to let expire?
//!
//! In `benches/`: `cargo bench --bench wheel`:
//! seconds, to see at once what a change to `Wheel` has done. It has the tick and the slots that a
//! loop's has unless it is told otherwise. How it compares with others, and with a million timers and more, is what `timers`
//! measures.

#![allow(missing_docs, reason = "the criterion macros make undocumented items")]

#[path = "timers/resident.rs"]
mod resident;
#[path = "timers/stores.rs"]
#[allow(dead_code, reason = "a part of what is compared elsewhere")]
mod stores;

use criterion::{Criterion, criterion_group, criterion_main};

fn wheel(c: &mut Criterion) {
    resident::bench::<stores::Default>(c, "Wheel");
}

criterion_group!(name = benches; config = resident::quick(); targets = wheel);
criterion_main!(benches);
