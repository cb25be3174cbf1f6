//! `DurableMetrics`: what durable timers have done.

use crate::metrics::{Counter, Histogram, Recorder, metric_table};
#[cfg(any(feature = "prometheus", test))]
use crate::metrics::{Metric, Value};

metric_table! {
    /// The counters behind [`DurableMetrics`]. The loop and the store's thread write different
    /// ones.
    pub(super) struct Metrics;

    /// Counters of [`DurableTimers`](super::DurableTimers) since the start of the program.
    pub struct DurableMetrics;

    prefix "durable_";
    /// Whether the store has failed, so that nothing fires any more and all operations fail.
    is_stopped: flag, as "stopped", help "1 if the store has failed.";
    /// Timers in the store that wait for their time. Updated with each commit.
    pending: gauge, help "Timers that wait for their time.";
    /// Dead letters in the store.
    dead: gauge, help "Dead letters.";
    /// Timers in memory.
    loaded: gauge;
    /// About how many bytes the timers in memory take.
    loaded_bytes: gauge, help "Bytes of the timers in memory.";
    /// Runs that have not ended.
    running: gauge;
    /// About how many bytes the runs take that have not ended, by the size of their payloads in
    /// JSON.
    running_bytes: gauge, help "Bytes of the runs that have not ended.";
    /// Timers that were stored.
    started: counter;
    /// Runs for which a handler was called.
    fired: counter;
    /// Runs that have ended, or were moved to a retry or to the dead letters.
    ended: counter;
    /// Failed attempts that will be repeated.
    retried: counter;
    /// Runs that became dead letters.
    dead_lettered: counter;
    /// Failed runs of topics that run [at most once](super::Delivery::AtMostOnce): they are neither
    /// repeated nor kept.
    failed_at_most_once: counter, help "Failed runs of topics that run at most once.";
    /// Runs without an answer within the [time limit](super::Topic::run_timeout) of their topic.
    timed_out: counter, help "Runs without an answer in time.";
    /// Counted attempts that the end of a program has interrupted. They have failed.
    interrupted: counter, help "Counted attempts that the end of a program has interrupted.";
    /// Answers that came after the time limit, and had no effect.
    late_answers: counter, help "Answers after the time limit, without an effect.";
    /// Dead letters that were removed because of their age or number.
    pruned: counter;
    /// Late runs, or groups of missed runs, that were skipped.
    skipped: counter;
    /// Runs whose timer was gone, or belonged to another node, when they were to begin or end.
    stale: counter, help "Runs whose timer was gone or belonged to another node.";
    /// Jumps of the wall clock by half a second or more.
    clock_jumps: counter;
    /// Periodic timers that a wrong clock had moved far away, and that were brought back to their
    /// schedules.
    repaired: counter, help "Periodic timers that were brought back to their schedules.";
    /// The time from due to fired. Grows if the loop is blocked, if handlers do not
    /// answer, if the disk is slow, and once after a restart.
    lateness: histogram, help "Time from due to fired.";
    /// Transactions that were committed.
    commits: counter, help "Transactions.";
    /// Changes in all transactions. Divided by `commits`, the average batch.
    changes: counter, help "Changes in all transactions.";
    /// The largest number of changes in one transaction.
    largest_batch: gauge, help "Largest number of changes in one transaction.";
    /// Transactions that failed and could be repeated.
    commit_failures: counter;
    /// Renewals of the lease that failed, in a store of several nodes.
    renewal_failures: counter, help "Renewals of the lease that failed.";
    /// How far the clock of this machine is certainly off, in milliseconds, compared with the clock
    /// of a store of several nodes. Measured with each renewal of the lease.
    clock_skew: gauge, as "clock_skew_milliseconds",
        help "Milliseconds by which this machine's clock differs from that of the store.";
    /// The time that transactions took.
    commit_time: histogram, help "Time that transactions took.";
    /// Bytes of the write-ahead log of an SQLite store. Updated with each commit.
    log_bytes: gauge, help "Bytes of the write-ahead log of SQLite.";
    /// Attempts to copy the log to the database file that failed and are repeated.
    maintenance_failures: counter, help "Failed attempts to copy the log to the database file.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_documentation_lists_all_metrics_of_timers() {
        Metric::check_documentation(&Metrics::default().snapshot().rows());
    }
}
