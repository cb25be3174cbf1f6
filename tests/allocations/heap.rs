//! Counts the allocations of the whole process, so each test here runs in its own process.

use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};
use std::alloc::System;

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Returns the number of blocks allocated since the process started. Resizing a block counts as
/// another one.
pub(crate) fn total_blocks() -> u64 {
    let stats = INSTRUMENTED_SYSTEM.stats();
    (stats.allocations + stats.reallocations) as u64
}

/// Returns the number of bytes that are allocated now.
pub(crate) fn bytes_in_use() -> usize {
    let stats = INSTRUMENTED_SYSTEM.stats();
    // Other threads may allocate between the reads of the two counters.
    stats.bytes_allocated.saturating_sub(stats.bytes_deallocated)
}
