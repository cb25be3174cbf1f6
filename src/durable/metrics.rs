//! `DurableMetrics`: what durable timers have done.

use crate::metrics::{Counter, Histogram, Recorder};

/// The counters behind [`DurableMetrics`]. The loop writes the first group, the store's thread the
/// second one.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) loaded: Counter,
    pub(super) running: Counter,
    pub(super) fired: Counter,
    pub(super) ended: Counter,
    pub(super) retried: Counter,
    pub(super) buried: Counter,
    pub(super) skipped: Counter,
    pub(super) stale: Counter,
    pub(super) clock_jumps: Counter,
    pub(super) lateness: Recorder,

    pub(super) started: Counter,
    pub(super) pending: Counter,
    pub(super) dead: Counter,
    pub(super) commits: Counter,
    pub(super) changes: Counter,
    pub(super) largest_batch: Counter,
    pub(super) commit_failures: Counter,
    pub(super) commit_time: Recorder,
}

/// Counters of [`DurableTimers`](super::DurableTimers) since the start of the program.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DurableMetrics {
    /// Timers in the store that wait for their time. Updated with each commit.
    pub pending: u64,
    /// Dead letters in the store.
    pub dead: u64,
    /// Timers in memory.
    pub loaded: u64,
    /// Runs that have not ended.
    pub running: u64,
    /// Timers that were stored.
    pub started: u64,
    /// Runs for which a handler was called.
    pub fired: u64,
    /// Runs that have ended, or were moved to a retry or to the dead letters.
    pub ended: u64,
    /// Failed attempts that will be repeated.
    pub retried: u64,
    /// Runs that became dead letters.
    pub buried: u64,
    /// Late runs, or groups of missed runs, that were skipped.
    pub skipped: u64,
    /// Runs whose timer was gone, or belonged to another node, when they were to begin or end.
    pub stale: u64,
    /// Jumps of the wall clock by half a second or more.
    pub clock_jumps: u64,
    /// The time from due to fired. Grows if the loop is blocked, if handlers do not
    /// answer, if the disk is slow, and once after a restart.
    pub lateness: Histogram,
    /// Transactions that were committed.
    pub commits: u64,
    /// Changes in all transactions. Divided by `commits`, the average batch.
    pub changes: u64,
    /// The largest number of changes in one transaction.
    pub largest_batch: u64,
    /// Transactions that failed and could be repeated.
    pub commit_failures: u64,
    /// The time that transactions took.
    pub commit_time: Histogram,
}

impl Metrics {
    pub(super) fn snapshot(&self) -> DurableMetrics {
        DurableMetrics {
            pending: self.pending.read(),
            dead: self.dead.read(),
            loaded: self.loaded.read(),
            running: self.running.read(),
            started: self.started.read(),
            fired: self.fired.read(),
            ended: self.ended.read(),
            retried: self.retried.read(),
            buried: self.buried.read(),
            skipped: self.skipped.read(),
            stale: self.stale.read(),
            clock_jumps: self.clock_jumps.read(),
            lateness: self.lateness.snapshot(),
            commits: self.commits.read(),
            changes: self.changes.read(),
            largest_batch: self.largest_batch.read(),
            commit_failures: self.commit_failures.read(),
            commit_time: self.commit_time.snapshot(),
        }
    }
}
