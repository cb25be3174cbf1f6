//! The result of a shutdown.
//!
//! Invariant: `channels` is the sum of `graceful`, `incomplete` and `forced`. Counted on the loop's
//! thread, returned when the loop has ended.

use std::{fmt, time::Duration};

/// The result of a shutdown: how a loop's channels and tasks ended.
/// [`merge`](ShutdownReport::merge) combines the reports of several loops.
///
/// For a loop that never started, all fields are zero. `Display` formats the report as one line.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Channels that were open when the shutdown began, and channels opened during it for replies
    /// in flight.
    pub channels: u64,
    /// Channels that ended [cleanly](crate::channel::CloseCause::Clean), after all their bytes were
    /// sent, on whichever side the close began.
    pub graceful: u64,
    /// Channels that ended before the deadline for any other cause or with unsent bytes: the
    /// connection broke, the `close_timeout` of the channel expired, or its handler closed it
    /// immediately, reset it or failed.
    pub incomplete: u64,
    /// Channels that the deadline cut, with a reset: they were still open, or had unsent bytes.
    pub forced: u64,
    /// Bytes that were written to channels but not sent before they closed.
    pub unsent_bytes: u64,
    /// Connections that arrived too late to become channels. They were closed immediately.
    pub connections_refused: u64,
    /// Tasks that ran after the shutdown began. Requests from handles to channels do not count.
    pub tasks_run: u64,
    /// Tasks that did not run: scheduled tasks of the loop, and tasks that channels dropped because
    /// they closed. The latter include tasks that waited for work on another thread.
    pub tasks_cancelled: u64,
    /// The duration of the shutdown, on the loop's clock. After a merge, the longest of all loops.
    pub took: Duration,
}

impl ShutdownReport {
    /// Adds the report of another loop.
    pub fn merge(&mut self, other: &ShutdownReport) {
        let ShutdownReport {
            channels,
            graceful,
            incomplete,
            forced,
            unsent_bytes,
            connections_refused,
            tasks_run,
            tasks_cancelled,
            took,
        } = other;
        self.channels += channels;
        self.graceful += graceful;
        self.incomplete += incomplete;
        self.forced += forced;
        self.unsent_bytes += unsent_bytes;
        self.connections_refused += connections_refused;
        self.tasks_run += tasks_run;
        self.tasks_cancelled += tasks_cancelled;
        self.took = self.took.max(*took);
    }
}

impl fmt::Display for ShutdownReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "took {:?}; channels: {}, of them graceful {}, incomplete {}, forced {}; unsent bytes: {}; \
             connections refused: {}; tasks run: {}, cancelled: {}",
            self.took,
            self.channels,
            self.graceful,
            self.incomplete,
            self.forced,
            self.unsent_bytes,
            self.connections_refused,
            self.tasks_run,
            self.tasks_cancelled
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_several_loops_add_up() {
        let a = ShutdownReport {
            channels: 6,
            graceful: 1,
            incomplete: 2,
            forced: 3,
            unsent_bytes: 40,
            connections_refused: 5,
            tasks_run: 6,
            tasks_cancelled: 7,
            took: Duration::from_millis(8),
        };
        let mut sum = ShutdownReport { took: Duration::from_millis(9), ..ShutdownReport::default() };
        sum.merge(&a);
        assert_eq!(sum, ShutdownReport { took: Duration::from_millis(9), ..a.clone() });
        sum.merge(&a);
        let line = "took 9ms; channels: 12, of them graceful 2, incomplete 4, forced 6; unsent bytes: 80; \
                    connections refused: 10; tasks run: 12, cancelled: 14";
        assert_eq!(sum.to_string(), line);
    }
}
