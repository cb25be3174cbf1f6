//! The end of a loop.
//!
//! 1. **Begin.** Listeners close. The loop's own scheduled tasks are cancelled. The keys of all
//!    open accepted channels are put into a list. The request overtakes the mail in front of it, so
//!    a flood of mail does not delay the shutdown. A connection in that mail was accepted before
//!    the request: it still becomes a channel, which is notified at once. Later ones are closed.
//! 2. **Notify accepted channels.** Of `n` channels, number `i` is notified at `request + window ×
//!    i / n` ([`CloseWindow`]), before tasks and timers: its
//!    [`Handler::shutdown`](crate::Handler::shutdown) is called, which closes it by default. Until
//!    then nothing about the channel changes: there is no draining state. Afterwards nothing
//!    changes either, unless the handler closes it: its tasks run, and outgoing connections may be
//!    opened, because a reply may need them. A channel that has closed by then is skipped, and the
//!    others keep their times. A channel that is closing already keeps its close timeout. All loops
//!    of a group use the same window, each for its own channels.
//! 3. **Notify outgoing channels**, when no accepted channel is left on any loop of the group
//!    ([`AcceptedShare`]). Connections that are not established fail. A group without accepted
//!    channels begins here, and spreads its channels over the window.
//! 4. **End.** The last step begins when no channel is left and no task has run for the quiet
//!    period, or at the timeout. The remaining handlers are notified, and the queue is closed. That
//!    is one bit, so a task was either accepted and runs, or refused. Accepted tasks run, the
//!    kernel is given as many bytes as it accepts, and the channels close. A channel that had
//!    sent everything and was closing ends gracefully; the others are *forced*: their connections
//!    are reset. The report is logged.
//! 5. **Hooks** run on the loop's thread after its channels and handlers are dropped, also after a
//!    panic of the loop itself.
//!
//! The cause and the unsent bytes of a channel when its socket closes decide how its close is
//! counted (`closes_unclean`, `bytes_unsent`). So *graceful* means that both streams are complete
//! and the kernel had taken everything, on whichever side the close began. Lingering sockets stay
//! open during the quiet period, which counts from the end of the last channel.
//!
//! Invariants: a channel is notified at most once, and each channel that is open at the end has
//! been notified. No accepted channel opens after a shutdown has begun, except for connections in
//! the mail before the request. A turn notifies a bounded number. Runs on the loop's thread.

mod accepted_drain;
mod close_window;
mod hooks;
mod options;
mod report;
mod request;

pub(crate) use accepted_drain::{AcceptedShare, RemindOfShutdown};
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
    window: u64,
    /// Accepted channels that have not been notified yet. Some may have closed by then.
    accepted: CloseWindow<Key>,
    /// Outgoing channels that have not been notified yet. `None` until no accepted channel of the
    /// group is left.
    outgoing: Option<CloseWindow<Key>>,
    /// Accepted channels of this loop that have not ended.
    accepted_left: usize,
    /// The loop's part in the decision that no accepted channel of the group is left.
    share: AcceptedShare,
    /// Whether all mail that was sent before the request has been handled.
    mail_reached: bool,
    report: ShutdownReport,
    /// The counters at the beginning, and what closing at the deadline has added to them.
    before: Before,
    forced_unclean: u64,
}

/// The channels that a shutdown finds.
pub(super) struct FoundChannels {
    /// Open accepted channels, to be notified.
    pub(super) accepted: Vec<Key>,
    /// The number of open channels, accepted and outgoing.
    pub(super) open: usize,
    /// The number of accepted channels whose handlers have not ended, whether open or not.
    pub(super) accepted_left: usize,
}

/// The loop's counters that a shutdown reports.
struct Before {
    handshakes: u64,
    bytes_unsent: u64,
    closes_unclean: u64,
    tasks_dropped: u64,
}

impl Before {
    fn read(metrics: &Metrics) -> Self {
        Before {
            handshakes: metrics.handshakes.read(),
            bytes_unsent: metrics.bytes_unsent.read(),
            closes_unclean: metrics.closes_unclean.read(),
            tasks_dropped: metrics.channel_tasks_dropped.read(),
        }
    }
}

impl Shutdown {
    pub(super) fn new(
        (request, at, share): (ShutdownRequest, u64, AcceptedShare),
        now: u64,
        metrics: &Metrics,
        channels: FoundChannels,
    ) -> Self {
        let FoundChannels { accepted, open, accepted_left } = channels;
        Shutdown {
            began: at,
            last_task: now,
            busy: false,
            emptied: None,
            quiet: request.quiet,
            // A shutdown must end even at the end of time.
            until: at.saturating_add(request.timeout).min(END_OF_TIME),
            next_look: now,
            window: request.window,
            accepted: CloseWindow::new(accepted, at, request.window),
            outgoing: None,
            accepted_left,
            share,
            mail_reached: false,
            report: ShutdownReport { channels: open as u64, ..ShutdownReport::default() },
            before: Before::read(metrics),
            forced_unclean: 0,
        }
    }

    /// Records that the mail before the request has been handled.
    pub(super) fn reach_mail(&mut self) {
        self.mail_reached = true;
    }

    /// Returns whether a connection that was accepted before the request may still arrive.
    pub(super) fn takes_connections(&self) -> bool {
        !self.mail_reached
    }

    /// Returns whether new outgoing connections may be opened, for the replies of accepted
    /// channels.
    pub(super) fn takes_outgoing(&self) -> bool {
        self.outgoing.is_none()
    }

    /// Counts a channel that has opened since the shutdown began. `is_active` is `false` for one
    /// with filters, which counts when its handshake is complete.
    pub(super) fn note_opened(&mut self, is_outgoing: bool, is_active: bool) {
        self.accepted_left += usize::from(!is_outgoing);
        self.report.channels += u64::from(is_active);
    }

    /// Records that an accepted channel has ended.
    pub(super) fn note_accepted_ended(&mut self) {
        self.accepted_left = self.accepted_left.saturating_sub(1);
    }

    /// Returns whether all accepted channels of this loop have ended.
    pub(super) fn accepted_have_ended(&self) -> bool {
        self.accepted_left == 0 && self.mail_reached
    }

    /// Returns whether outgoing channels are to be notified now, because no accepted channel of the
    /// group is left.
    pub(super) fn outgoing_is_due(&mut self) -> bool {
        if self.accepted_have_ended() {
            self.share.release();
        }
        self.outgoing.is_none() && self.share.is_over()
    }

    /// Begins to notify outgoing channels, at their times in the window that began with the
    /// shutdown. Most of these times have passed if there were accepted channels.
    pub(super) fn begin_outgoing(&mut self, channels: Vec<Key>) {
        self.outgoing = Some(CloseWindow::new(channels, self.began, self.window));
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
        task.set_queue_key(None);
        task.abandon();
    }

    /// Returns the next channel to notify, if it is due.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Key> {
        self.accepted.pop_due(now).or_else(|| self.outgoing.as_mut()?.pop_due(now))
    }

    /// Returns the next channel to notify, whether it is due or not.
    pub(super) fn pop(&mut self) -> Option<Key> {
        self.accepted.pop().or_else(|| self.outgoing.as_mut()?.pop())
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
        let windows = [Some(&self.accepted), self.outgoing.as_ref()];
        let next = windows.into_iter().flatten().filter_map(CloseWindow::next_at).min();
        self.next_look = next.map_or(end, |at| at.min(end));
    }

    /// Counts a channel that the deadline has closed. `unclean_before` is the number of unclean
    /// closes before that.
    pub(super) fn note_forced(&mut self, unclean_before: u64, metrics: &Metrics) {
        self.report.forced += 1;
        self.forced_unclean += metrics.closes_unclean.read() - unclean_before;
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
        let (before, after) = (&self.before, Before::read(metrics));
        let report = &mut self.report;
        // A channel with filters opens when its handshake is complete.
        report.channels += after.handshakes - before.handshakes;
        report.incomplete = after.closes_unclean - before.closes_unclean - self.forced_unclean;
        report.graceful = report.channels.saturating_sub(report.forced + report.incomplete);
        report.unsent_bytes = after.bytes_unsent - before.bytes_unsent;
        report.tasks_cancelled += after.tasks_dropped - before.tasks_dropped;
        report.took = Duration::from_nanos(now.saturating_sub(self.began));
        self.report
    }
}
