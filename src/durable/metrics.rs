//! `DurableMetrics`: what durable timers have done.

use crate::metrics::{Counter, Histogram, Recorder};
#[cfg(any(feature = "prometheus", test))]
use crate::metrics::{Metric, Value};

/// The counters behind [`DurableMetrics`]. The loop writes the first group, the store's thread the
/// second one.
#[derive(Debug, Default)]
pub(super) struct Metrics {
    pub(super) loaded: Counter,
    pub(super) loaded_bytes: Counter,
    pub(super) running: Counter,
    pub(super) running_bytes: Counter,
    pub(super) fired: Counter,
    pub(super) ended: Counter,
    pub(super) retried: Counter,
    pub(super) dead_lettered: Counter,
    pub(super) failed_at_most_once: Counter,
    pub(super) timed_out: Counter,
    pub(super) interrupted: Counter,
    pub(super) late_answers: Counter,
    pub(super) skipped: Counter,
    pub(super) stale: Counter,
    pub(super) clock_jumps: Counter,
    pub(super) repaired: Counter,
    pub(super) lateness: Recorder,

    pub(super) stopped: Counter,
    pub(super) started: Counter,
    pub(super) pruned: Counter,
    pub(super) pending: Counter,
    pub(super) dead: Counter,
    pub(super) commits: Counter,
    pub(super) changes: Counter,
    pub(super) largest_batch: Counter,
    pub(super) commit_failures: Counter,
    pub(super) renewal_failures: Counter,
    pub(super) clock_skew: Counter,
    pub(super) commit_time: Recorder,
    pub(super) log_bytes: Counter,
    pub(super) maintenance_failures: Counter,
}

/// Counters of [`DurableTimers`](super::DurableTimers) since the start of the program.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DurableMetrics {
    /// Whether the store has failed, so that nothing fires any more and all operations fail.
    pub is_stopped: bool,
    /// Timers in the store that wait for their time. Updated with each commit.
    pub pending: u64,
    /// Dead letters in the store.
    pub dead: u64,
    /// Timers in memory.
    pub loaded: u64,
    /// About how many bytes the timers in memory take.
    pub loaded_bytes: u64,
    /// Runs that have not ended.
    pub running: u64,
    /// About how many bytes the runs take that have not ended, by the size of their payloads in
    /// JSON.
    pub running_bytes: u64,
    /// Timers that were stored.
    pub started: u64,
    /// Runs for which a handler was called.
    pub fired: u64,
    /// Runs that have ended, or were moved to a retry or to the dead letters.
    pub ended: u64,
    /// Failed attempts that will be repeated.
    pub retried: u64,
    /// Runs that became dead letters.
    pub dead_lettered: u64,
    /// Failed runs of topics that run [at most once](super::Delivery::AtMostOnce): they are neither
    /// repeated nor kept.
    pub failed_at_most_once: u64,
    /// Runs without an answer within the [time limit](super::Topic::run_timeout) of their topic.
    pub timed_out: u64,
    /// Counted attempts that the end of a program has interrupted. They have failed.
    pub interrupted: u64,
    /// Answers that came after the time limit, and had no effect.
    pub late_answers: u64,
    /// Dead letters that were removed because of their age or number.
    pub pruned: u64,
    /// Late runs, or groups of missed runs, that were skipped.
    pub skipped: u64,
    /// Runs whose timer was gone, or belonged to another node, when they were to begin or end.
    pub stale: u64,
    /// Jumps of the wall clock by half a second or more.
    pub clock_jumps: u64,
    /// Periodic timers that a wrong clock had moved far away, and that were brought back to their
    /// schedules.
    pub repaired: u64,
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
    /// Renewals of the lease that failed, in a store of several nodes.
    pub renewal_failures: u64,
    /// How far the clock of this machine is certainly off, in milliseconds, compared with the clock
    /// of a store of several nodes. Measured with each renewal of the lease.
    pub clock_skew: u64,
    /// The time that transactions took.
    pub commit_time: Histogram,
    /// Bytes of the write-ahead log of an SQLite store. Updated with each commit.
    pub log_bytes: u64,
    /// Attempts to copy the log to the database file that failed and are repeated.
    pub maintenance_failures: u64,
}

impl Metrics {
    pub(super) fn snapshot(&self) -> DurableMetrics {
        DurableMetrics {
            is_stopped: self.stopped.read() > 0,
            pending: self.pending.read(),
            dead: self.dead.read(),
            loaded: self.loaded.read(),
            loaded_bytes: self.loaded_bytes.read(),
            running: self.running.read(),
            running_bytes: self.running_bytes.read(),
            started: self.started.read(),
            fired: self.fired.read(),
            ended: self.ended.read(),
            retried: self.retried.read(),
            dead_lettered: self.dead_lettered.read(),
            failed_at_most_once: self.failed_at_most_once.read(),
            timed_out: self.timed_out.read(),
            interrupted: self.interrupted.read(),
            late_answers: self.late_answers.read(),
            pruned: self.pruned.read(),
            skipped: self.skipped.read(),
            stale: self.stale.read(),
            clock_jumps: self.clock_jumps.read(),
            repaired: self.repaired.read(),
            lateness: self.lateness.snapshot(),
            commits: self.commits.read(),
            changes: self.changes.read(),
            largest_batch: self.largest_batch.read(),
            commit_failures: self.commit_failures.read(),
            renewal_failures: self.renewal_failures.read(),
            clock_skew: self.clock_skew.read(),
            commit_time: self.commit_time.snapshot(),
            log_bytes: self.log_bytes.read(),
            maintenance_failures: self.maintenance_failures.read(),
        }
    }
}

#[cfg(any(feature = "prometheus", test))]
impl DurableMetrics {
    /// Returns a description of each field with its value, in the order of the fields.
    pub(super) fn rows(&self) -> Vec<Metric<'_>> {
        // A new field does not compile here until it has a row.
        let DurableMetrics {
            is_stopped,
            pending,
            dead,
            loaded,
            loaded_bytes,
            running,
            running_bytes,
            started,
            fired,
            ended,
            retried,
            dead_lettered,
            failed_at_most_once,
            timed_out,
            interrupted,
            late_answers,
            pruned,
            skipped,
            stale,
            clock_jumps,
            repaired,
            lateness,
            commits,
            changes,
            largest_batch,
            commit_failures,
            renewal_failures,
            clock_skew,
            commit_time,
            log_bytes,
            maintenance_failures,
        } = self;
        vec![
            Metric::new("is_stopped", "1 if the store has failed.", Value::Gauge(u64::from(*is_stopped)))
                .family("durable_stopped"),
            Metric::new("pending", "Timers that wait for their time.", Value::Gauge(*pending))
                .family("durable_pending"),
            Metric::new("dead", "Dead letters.", Value::Gauge(*dead)).family("durable_dead"),
            Metric::new("loaded", "Timers in memory.", Value::Gauge(*loaded)).family("durable_loaded"),
            Metric::new("loaded_bytes", "Bytes of the timers in memory.", Value::Gauge(*loaded_bytes))
                .family("durable_loaded_bytes"),
            Metric::new("running", "Runs that have not ended.", Value::Gauge(*running))
                .family("durable_running"),
            Metric::new(
                "running_bytes",
                "Bytes of the runs that have not ended.",
                Value::Gauge(*running_bytes),
            )
            .family("durable_running_bytes"),
            Metric::new("started", "Timers that were stored.", Value::Counter(*started))
                .family("durable_started"),
            Metric::new("fired", "Runs for which a handler was called.", Value::Counter(*fired))
                .family("durable_fired"),
            Metric::new(
                "ended",
                "Runs that have ended, or were moved to a retry or to the dead letters.",
                Value::Counter(*ended),
            )
            .family("durable_ended"),
            Metric::new("retried", "Failed attempts that will be repeated.", Value::Counter(*retried))
                .family("durable_retried"),
            Metric::new("dead_lettered", "Runs that became dead letters.", Value::Counter(*dead_lettered))
                .family("durable_dead_lettered"),
            Metric::new(
                "failed_at_most_once",
                "Failed runs of topics that run at most once.",
                Value::Counter(*failed_at_most_once),
            )
            .family("durable_failed_at_most_once"),
            Metric::new("timed_out", "Runs without an answer in time.", Value::Counter(*timed_out))
                .family("durable_timed_out"),
            Metric::new(
                "interrupted",
                "Counted attempts that the end of a program has interrupted.",
                Value::Counter(*interrupted),
            )
            .family("durable_interrupted"),
            Metric::new(
                "late_answers",
                "Answers after the time limit, without an effect.",
                Value::Counter(*late_answers),
            )
            .family("durable_late_answers"),
            Metric::new(
                "pruned",
                "Dead letters that were removed because of their age or number.",
                Value::Counter(*pruned),
            )
            .family("durable_pruned"),
            Metric::new(
                "skipped",
                "Late runs, or groups of missed runs, that were skipped.",
                Value::Counter(*skipped),
            )
            .family("durable_skipped"),
            Metric::new(
                "stale",
                "Runs whose timer was gone or belonged to another node.",
                Value::Counter(*stale),
            )
            .family("durable_stale"),
            Metric::new(
                "clock_jumps",
                "Jumps of the wall clock by half a second or more.",
                Value::Counter(*clock_jumps),
            )
            .family("durable_clock_jumps"),
            Metric::new(
                "repaired",
                "Periodic timers that were brought back to their schedules.",
                Value::Counter(*repaired),
            )
            .family("durable_repaired"),
            Metric::new("lateness", "Time from due to fired.", Value::Histogram(lateness))
                .family("durable_lateness"),
            Metric::new("commits", "Transactions.", Value::Counter(*commits)).family("durable_commits"),
            Metric::new("changes", "Changes in all transactions.", Value::Counter(*changes))
                .family("durable_changes"),
            Metric::new(
                "largest_batch",
                "Largest number of changes in one transaction.",
                Value::Gauge(*largest_batch),
            )
            .family("durable_largest_batch"),
            Metric::new(
                "commit_failures",
                "Transactions that failed and could be repeated.",
                Value::Counter(*commit_failures),
            )
            .family("durable_commit_failures"),
            Metric::new(
                "renewal_failures",
                "Renewals of the lease that failed.",
                Value::Counter(*renewal_failures),
            )
            .family("durable_renewal_failures"),
            Metric::new(
                "clock_skew",
                "Milliseconds by which this machine's clock differs from that of the store.",
                Value::Gauge(*clock_skew),
            )
            .family("durable_clock_skew_milliseconds"),
            Metric::new("commit_time", "Time that transactions took.", Value::Histogram(commit_time))
                .family("durable_commit_time"),
            Metric::new("log_bytes", "Bytes of the write-ahead log of SQLite.", Value::Gauge(*log_bytes))
                .family("durable_log_bytes"),
            Metric::new(
                "maintenance_failures",
                "Failed attempts to copy the log to the database file.",
                Value::Counter(*maintenance_failures),
            )
            .family("durable_maintenance_failures"),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares the table in docs/observability.md with the rows. A failure prints the expected
    /// table.
    #[test]
    fn the_documentation_lists_all_metrics_of_timers() {
        let metrics = Metrics::default().snapshot();
        let mut table = String::from("| field | Prometheus | kind | help |\n|---|---|---|---|\n");
        for row in metrics.rows() {
            let (suffix, kind) = match row.value {
                Value::Counter(_) | Value::Time(_) => ("_total", "counter"),
                Value::Gauge(_) => ("", "gauge"),
                Value::Histogram(_) => ("", "histogram"),
            };
            let unit = row.unit.map(|unit| format!("_{unit}")).unwrap_or_default();
            let name = format!("netwheel_{}{unit}{suffix}", row.family);
            table += &format!("| `{}` | `{name}` | {kind} | {} |\n", row.field, row.help);
        }
        let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/observability.md"));
        assert!(page.contains(&format!("\n\n{table}")), "docs/observability.md should have:\n\n{table}");
    }
}
