//! Heap bytes per timer, including the store's tables and their spare capacity.
//!
//! In `benches/`: `cargo bench --bench timers_memory`. This is a separate program because its
//! allocator counts, which takes time. The counts are the same in every run. Memory for handles is
//! not counted, but the size of a handle is printed.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

#[allow(dead_code, reason = "only the time benches use the rest")]
mod peers;
#[allow(dead_code, reason = "only the time benches use the rest")]
mod script;
#[allow(dead_code, reason = "only the time benches use the rest")]
mod stores;

use clap::Parser;
use dhat::{HeapStats, Profiler};
use script::Script;
use stores::Store;

#[global_allocator]
static ALLOCATOR: dhat::Alloc = dhat::Alloc;

/// Measures bytes per timer on the heap.
#[derive(Parser)]
#[command(name = "timers_memory")]
struct Settings {
    /// Maximum number of timers.
    #[arg(long, default_value_t = 1_000_000)]
    most: usize,
    /// Checks only that it works, in a moment.
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Returns the heap bytes of an empty store, and of a filled one.
fn bytes<S: Store>(script: &Script) -> (usize, usize) {
    // Makes one-time allocations happen before the measurement.
    drop(S::new());
    let before = HeapStats::get().curr_bytes;
    let mut store = S::new();
    let empty = HeapStats::get().curr_bytes - before;
    let mut handles = Vec::new();
    script.fill(&mut store, &mut handles);
    let filled = HeapStats::get().curr_bytes - before - handles.capacity() * size_of::<S::Handle>();
    (empty, filled)
}

type Measure = fn(&Script) -> (usize, usize);

fn line<S: Store>(name: &'static str) -> (&'static str, Measure, usize) {
    (name, bytes::<S>, size_of::<S::Handle>())
}

fn main() {
    let settings = Settings::parse();
    let most = if settings.test { 1_000 } else { settings.most };
    let _profiler = Profiler::builder().testing().trim_backtraces(Some(1)).build();
    let lines = [
        line::<stores::Fitted>("netwheel Wheel, 16 ms x 4096"),
        line::<stores::Bare>("bare wheel, the limit"),
        line::<stores::Default>("netwheel Wheel, 100 ms x 512"),
        line::<stores::Queue>("netwheel ScheduledQueue"),
        line::<stores::LazyHeap>("std BinaryHeap, lazy"),
        line::<stores::Tree>("std BTreeMap"),
        line::<peers::Delays>("tokio_util DelayQueue"),
        line::<peers::QuadWheel>("hierarchical_hash_wheel_timer"),
    ];
    let counts: Vec<usize> = [1_000, 10_000, 100_000, 1_000_000].into_iter().filter(|n| *n <= most).collect();
    let scripts: Vec<Script> = counts.iter().map(|n| Script::new(*n)).collect();
    let heads: Vec<String> = counts.iter().map(|n| format!("bytes each of {n}")).collect();
    println!("| store | empty, bytes | {} | handle |", heads.join(" | "));
    println!("|---|---:|{}---:|", "---:|".repeat(heads.len()));
    for (name, measure, handle) in lines {
        let results: Vec<(usize, usize)> = scripts.iter().map(measure).collect();
        let each =
            results.iter().zip(&counts).map(|((_, filled), n)| format!("{:.1}", *filled as f64 / *n as f64));
        println!("| {name} | {} | {} | {handle} |", results[0].0, each.collect::<Vec<_>>().join(" | "));
    }
}
