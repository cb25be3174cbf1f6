//! The result of a shutdown.
//!
//! Invariant: `channels` is the sum of `graceful`, `incomplete` and `forced`. Counted on the loop's
//! thread, returned when the loop has ended.

use std::{fmt, time::Duration};

/// What became of a loop's channels and tasks when it shut down; of several loops together after
/// [`merge`](ShutdownReport::merge).
///
/// A loop that never started has nothing to report: all is zero. `Display` makes one line of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ShutdownReport {
    /// Channels that were open when the shutdown began.
    pub channels: u64,
    /// Those of them that closed with everything sent, whoever closed them.
    pub graceful: u64,
    /// Those that closed before the deadline with bytes unsent: the connection broke, the channel's `close_timeout`
    /// was over, or its handler closed it at once.
    pub incomplete: u64,
    /// Those that were closed by the deadline: still open, or with bytes unsent.
    pub forced: u64,
    /// Bytes that were written to channels and not sent when they closed.
    pub unsent_bytes: u64,
    /// Connections that came too late to become channels: they were closed at once.
    pub connections_refused: u64,
    /// Tasks that ran after it began on the loop; what handles have channels do is not counted.
    pub tasks_run: u64,
    /// Scheduled tasks that did not run: the loop's, and those of each channel when it was told.
    pub tasks_cancelled: u64,
    /// From the beginning to the end, on the loop's clock; of several loops the longest.
    pub took: Duration,
}

impl ShutdownReport {
    /// Adds what another loop reports.
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
