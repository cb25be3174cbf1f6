//! Cost of a timer on the wheel: start, cancel, re-arm, expire.
//!
//! In `benches/`: `cargo bench --bench wheel`. Takes seconds, to check a change to `Wheel`. It uses
//! the default tick and number of slots of a loop. The bench `timers` compares it with other
//! stores, and with a million timers and more.

#![allow(missing_docs, reason = "the criterion macros generate undocumented items")]

#[path = "timers/resident.rs"]
mod resident;
#[path = "timers/stores.rs"]
#[allow(dead_code, reason = "other benches use the rest")]
mod stores;

use criterion::{Criterion, criterion_group, criterion_main};

fn wheel(c: &mut Criterion) {
    resident::bench::<stores::Default>(c, "Wheel");
}

criterion_group!(name = benches; config = resident::quick(); targets = wheel);
criterion_main!(benches);
