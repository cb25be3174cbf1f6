//! The end of a loop.
//!
//! 1. **Begin.** Listeners close, connections that are not established fail, and later ones are
//!    closed without becoming channels. The loop's own scheduled tasks are cancelled. The keys of
//!    all open channels are put into a list. A connection that was on its way when the loop
//!    received the request is a channel by then, and in the list.
//! 2. **Notify.** Of `n` channels, number `i` is notified at `begin + window × i / n`
//!    ([`CloseWindow`]), before tasks and timers. Its scheduled tasks are cancelled and its
//!    [`Handler::shutdown`](crate::Handler::shutdown) is called, which closes it by default. Until
//!    then nothing about the channel changes: there is no draining state. A channel that has closed
//!    by then is skipped, and the others keep their times. A channel that is closing already keeps
//!    its close timeout. All loops of a group use the same window, each for its own channels.
//! 3. **End.** The last step begins when no channel is left and no task has run for the quiet
//!    period, or at the timeout. The remaining handlers are notified, and the queue is closed. That
//!    is one bit, so a task was either accepted and runs, or refused. Accepted tasks run, the
//!    kernel is given as many bytes as it accepts, and the channels close. A channel that had
//!    sent everything and was closing ends gracefully; the others are *forced*. The report is
//!    logged.
//! 4. **Hooks** run on the loop's thread after its channels and handlers are dropped, also after a
//!    panic of the loop itself.
//!
//! The unsent bytes of a channel when its socket closes decide how its close is counted
//! (`closes_unsent`, `bytes_unsent`). So *graceful* means that the kernel had taken everything, on
//! whichever side the close began. Lingering sockets stay open during the quiet period, which
//! counts from the end of the last channel.
//!
//! Invariants: a channel is notified at most once, and each channel that is open at the end has
//! been notified. No channel opens after a shutdown has begun. A turn notifies a bounded number.
//! Runs on the loop's thread.

mod close_window;
mod hooks;
mod options;
mod report;
mod request;

pub(crate) use hooks::ShutdownHooks;
pub use options::ShutdownOptions;
pub(crate) use options::ShutdownRequest;
pub use report::ShutdownReport;
pub(crate) use request::end_and_report;

use crate::{
    channel::Scheduled,
    clock::{END_OF_TIME, TimeSource},
    id::Key,
    metrics::Metrics,
};
use close_window::CloseWindow;
use std::time::Duration;

/// A shutdown in progress. All times are those of the loop, in nanoseconds.
pub(crate) struct Shutdown {
    began: u64,
    /// The time at which the turn ended in which the last task ran, or at which the shutdown began.
    last_task: u64,
    /// Whether a task ran in this turn.
    busy: bool,
    /// The time at which the last channel ended.
    emptied: Option<u64>,
    quiet: u64,
    until: u64,
    /// When the loop next checks whether the shutdown is complete or a channel is to be notified.
    next_look: u64,
    /// Channels that have not been notified yet. Some may have closed by then.
    window: CloseWindow<Key>,
    report: ShutdownReport,
    /// The counters at the beginning, and what closing at the deadline has added to them.
    before: Unsent,
    forced_unsent: u64,
}

/// The loop's counters of closes with unsent bytes.
struct Unsent {
    channels: u64,
    bytes: u64,
}

impl Unsent {
    fn read(metrics: &Metrics) -> Self {
        Unsent { channels: metrics.closes_unsent.read(), bytes: metrics.bytes_unsent.read() }
    }
}

impl Shutdown {
    pub(super) fn new(request: ShutdownRequest, now: u64, metrics: &Metrics, channels: Vec<Key>) -> Self {
        let report = ShutdownReport { channels: channels.len() as u64, ..ShutdownReport::default() };
        Shutdown {
            began: now,
            last_task: now,
            busy: false,
            emptied: None,
            quiet: request.quiet,
            // A shutdown must end even at the end of time.
            until: now.saturating_add(request.timeout).min(END_OF_TIME),
            next_look: now,
            window: CloseWindow::new(channels, now, request.window),
            report,
            before: Unsent::read(metrics),
            forced_unsent: 0,
        }
    }

    pub(crate) fn note_task(&mut self) {
        self.busy = true;
        self.report.tasks_run += 1;
    }

    pub(crate) fn note_refused_connection(&mut self) {
        self.report.connections_refused += 1;
    }

    /// Ends a scheduled task that will not run.
    pub(crate) fn cancel(&mut self, task: &dyn Scheduled) {
        self.report.tasks_cancelled += u64::from(task.is_waiting());
        task.set_place(None);
        task.abandon();
    }

    /// Counts scheduled tasks of a channel that will not run.
    pub(super) fn note_cancelled(&mut self, tasks: usize) {
        self.report.tasks_cancelled += tasks as u64;
    }

    /// Returns the next channel to notify, if it is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Key> {
        self.window.pop_due(now)
    }

    /// Returns the next channel to notify, whether it is due or not.
    pub(super) fn pop(&mut self) -> Option<Key> {
        self.window.pop()
    }

    /// Returns the time of the next check.
    pub(crate) fn next_look(&self) -> u64 {
        self.next_look
    }

    /// Notes the end of the turn, if a task ran in it. The time of the turn would be too early,
    /// because tasks that ran before the last one may have taken long.
    pub(super) fn end_turn(&mut self, time: &TimeSource) {
        if std::mem::take(&mut self.busy) {
            self.last_task = time.now();
        }
    }

    /// Returns the time at which the shutdown ends. A loop is `empty` if it has no channel and no
    /// task. Sockets may still linger.
    pub(super) fn ends_at(&mut self, empty: bool, lingering: usize, now: u64) -> u64 {
        if empty { self.ends_when_empty(lingering, now) } else { self.until }
    }

    /// Schedules the next check at `end`, or earlier if a channel is to be notified before.
    pub(super) fn wait_until(&mut self, end: u64) {
        self.next_look = self.window.next_at().map_or(end, |at| at.min(end));
    }

    /// Counts a channel that the deadline has closed. `unsent_before` is the number of closes with
    /// unsent bytes before that.
    pub(super) fn note_forced(&mut self, unsent_before: u64, metrics: &Metrics) {
        self.report.forced += 1;
        self.forced_unsent += metrics.closes_unsent.read() - unsent_before;
    }

    /// Returns when a shutdown without channels ends: after the quiet period. While sockets linger,
    /// the period counts from the end of the last channel.
    fn ends_when_empty(&mut self, lingering: usize, now: u64) -> u64 {
        let emptied = *self.emptied.get_or_insert(now);
        let since = if lingering > 0 { self.last_task.max(emptied) } else { self.last_task };
        since.saturating_add(self.quiet).min(END_OF_TIME).min(self.until)
    }

    /// Returns the report. Call it when nothing is left to count.
    pub(super) fn report(mut self, now: u64, metrics: &Metrics) -> ShutdownReport {
        let after = Unsent::read(metrics);
        let report = &mut self.report;
        report.incomplete = after.channels - self.before.channels - self.forced_unsent;
        report.graceful = report.channels.saturating_sub(report.forced + report.incomplete);
        report.unsent_bytes = after.bytes - self.before.bytes;
        report.took = Duration::from_nanos(now.saturating_sub(self.began));
        self.report
    }
}
