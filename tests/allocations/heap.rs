//! Counts the allocations of the whole process, so each test here has a process of its own.

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Blocks allocated since the process started; resizing a block counts as another one.
pub(crate) fn total_blocks() -> u64 {
    let stats = INSTRUMENTED_SYSTEM.stats();
    (stats.allocations + stats.reallocations) as u64
}

/// Bytes allocated now.
pub(crate) fn bytes_in_use() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    // The two counters are read one after the other while other threads allocate.
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}
