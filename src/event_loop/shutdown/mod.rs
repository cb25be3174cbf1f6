//! The end of a loop.
//!
//! In order: listeners close, connections in the making fail, the loop's scheduled tasks are cancelled; then each
//! channel, when its time in the window comes ([`CloseWindow`]), has its own tasks cancelled and its handler told
//! ([`Handler::shutdown`](crate::Handler::shutdown)), and closes after its pending bytes are sent unless the handler
//! says otherwise; tasks still run. When all channels are gone and no task ran for the quiet period, or the timeout is
//! over, no more is accepted: what waits in the queue is run, channels that are left are closed, the hooks run, the
//! termination completes.
//!
//! Always holds: a channel is told once at most, and every one that is still open at the end has been told; no channel
//! begins after the shutdown has begun; a turn tells a bounded number. Runs on the loop's thread.

mod close_window;
mod hooks;
mod options;
mod report;
mod request;

pub(crate) use hooks::ShutdownHooks;
pub use options::ShutdownOptions;
pub(crate) use options::ShutdownRequest;
pub use report::ShutdownReport;
pub(crate) use request::{end_and_report, end_gracefully};

use super::{
    shared::{LifeState, LoopMail},
    sources::{ChannelSlot, Slot},
    turn::Turn,
};
use crate::{
    channel::{Due, Scheduled},
    clock::END_OF_TIME,
    error::{caught, drop_guarded},
    id::Key,
    metrics::Metrics,
    sync::Phase,
};
use close_window::CloseWindow;
use std::time::Duration;

/// Channels that are told in one turn at most: a million of them must not make one endless turn.
const TELLS_PER_TURN: usize = 1024;

/// A shutdown that is going on; times of the loop in nanoseconds.
pub(crate) struct Shutdown {
    began: u64,
    /// When the turn ended in which the last task ran, or shutdown began.
    last_task: u64,
    /// Whether a task ran in this turn.
    busy: bool,
    /// The time at which the last channel ended.
    emptied: Option<u64>,
    quiet: u64,
    until: u64,
    /// When to look next: for whether it is over, or for whom to tell.
    next_look: u64,
    /// Channels that are still to be told; some may be gone by then.
    pace: CloseWindow<Key>,
    report: ShutdownReport,
    /// The counters when it began, and what closing at the deadline has added to them.
    before: Unsent,
    forced_unsent: u64,
}

/// What a loop has counted of closes that were not graceful.
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
    fn new(request: ShutdownRequest, now: u64, metrics: &Metrics, channels: Vec<Key>) -> Self {
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
            pace: CloseWindow::new(channels, now, request.window),
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

    /// When to look next whether there is something to do for it.
    pub(crate) fn next_look(&self) -> u64 {
        self.next_look
    }

    /// Returns when a shutdown without channels ends: after the quiet period. While sockets linger,
    /// the period counts from the end of the last channel.
    fn ends_when_empty(&mut self, lingering: usize, now: u64) -> u64 {
        let emptied = *self.emptied.get_or_insert(now);
        let since = if lingering > 0 { self.last_task.max(emptied) } else { self.last_task };
        since.saturating_add(self.quiet).min(END_OF_TIME).min(self.until)
    }

    /// The report, when nothing is left to count.
    fn report(mut self, now: u64, metrics: &Metrics) -> ShutdownReport {
        let after = Unsent::read(metrics);
        let report = &mut self.report;
        report.incomplete = after.channels - self.before.channels - self.forced_unsent;
        report.graceful = report.channels.saturating_sub(report.forced + report.incomplete);
        report.unsent_bytes = after.bytes - self.before.bytes;
        report.took = Duration::from_nanos(now.saturating_sub(self.began));
        self.report
    }
}

impl Turn {
    pub(super) fn begin_shutdown(&mut self) {
        if self.shutdown.is_some() {
            return;
        }
        let Some(request) = self.shared.shutdown_request() else { return };
        let mut channels = self.sources.keys();
        channels.retain(|key| match self.sources.get(*key) {
            // One whose socket is closed has only `inactive` to come.
            Some(Slot::Channel(slot)) => slot.driver.transport.is_some(),
            Some(Slot::Datagram(slot)) => slot.source().is_some(),
            // What they let go of is the program's, and may panic: the shutdown has to begin all the same.
            Some(Slot::Listener(_)) => {
                self.guarded_once(None, |turn| turn.close_listener(*key));
                false
            }
            Some(Slot::Connecting(_)) => {
                self.guarded_once(None, |turn| turn.fail_connect(*key, crate::Error::ShutDown));
                false
            }
            Some(Slot::Lingering(_)) => false,
            // Event sources work until the loop ends.
            #[cfg(unix)]
            Some(Slot::Foreign(_)) => false,
            None => false,
        });
        let now = self.io.services.now;
        let mut shutdown = Shutdown::new(request, now, &self.shared.metrics, channels);
        for due in self.io.services.queue.take_if(|due| matches!(due, Due::Task(_))) {
            if let Due::Task(task) = due {
                // What was cancelled by its handle has been counted.
                self.io.services.tally.timers_cancelled += u64::from(task.is_waiting());
                shutdown.cancel(&*task);
            }
        }
        self.shutdown = Some(shutdown);
        self.tell_channels();
    }

    /// Tells the channels whose time has come, within the bound of a turn; whether there were any. Comes before the
    /// timers, so that what was due at the same time does not run.
    pub(super) fn tell_channels(&mut self) -> bool {
        let now = self.io.services.now;
        let mut told = 0;
        while told < TELLS_PER_TURN
            && let Some(shutdown) = &mut self.shutdown
            && let Some(key) = shutdown.pace.pop_due(now)
        {
            self.guarded_once(Some(key), |turn| turn.tell(key));
            told += 1;
        }
        told > 0
    }

    fn tell(&mut self, key: Key) {
        let cancelled =
            self.with_datagram(
                key,
                |slot, io, metrics| {
                    if slot.is_open() { slot.handle_shutdown(io, metrics) } else { 0 }
                },
            );
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.report.tasks_cancelled += cancelled as u64;
        }
        let Turn { sources, io, shared, shutdown, .. } = self;
        // One that is closing is left to its close timeout, which is among its tasks.
        let Some(slot) = sources.channel(key).filter(|slot| slot.driver.core.state.status.is_open()) else {
            return;
        };
        // What is with a worker is a reply in flight, and no plan for later: it goes if the channel closes.
        let cancelled = slot.driver.core.state.cancel_timed_tasks(&mut io.services);
        if let Some(shutdown) = shutdown {
            shutdown.report.tasks_cancelled += cancelled as u64;
        }
        slot.call(io, &shared.metrics, |core, services| core.handle_shutdown(services));
    }

    /// At the end of a turn: whether it was the last.
    pub(super) fn proceed_with_shutdown(&mut self) -> bool {
        let event_sources = self.shared.metrics.event_sources.read() as usize;
        let Some(shutdown) = &mut self.shutdown else { return false };
        if std::mem::take(&mut shutdown.busy) {
            // Not the time of the turn: before this task, others may have taken long.
            shutdown.last_task = self.io.services.time.now();
        }
        let mut now = self.io.services.now;
        let lingering = self.io.lingering.len();
        let empty = self.sources.len() == lingering + event_sources && self.inbox.is_empty();
        let waits_for = if empty { shutdown.ends_when_empty(lingering, now) } else { shutdown.until };
        if now < waits_for {
            // The time may be up although no poll has slept: look at the clock, not at the time of the last poll.
            now = self.time().now();
            if now < waits_for {
                if let Some(shutdown) = &mut self.shutdown {
                    let next_tell = shutdown.pace.next_at();
                    shutdown.next_look = next_tell.map_or(waits_for, |at| at.min(waits_for));
                }
                return false;
            }
        }
        self.io.services.now = now.max(self.io.services.now);
        self.finish();
        true
    }

    /// Ends the loop although it is not its time: channels are told, then all is closed; nothing is waited for.
    pub(super) fn end_now(&mut self) {
        self.begin_shutdown();
        self.finish();
    }

    fn finish(&mut self) {
        self.shared.activity.enter_phase(Phase::Shutdown);
        self.io.lingering.stop();
        // Whose time would have come later: nobody's connection ends without a word.
        while let Some(key) = self.shutdown.as_mut().and_then(|shutdown| shutdown.pace.pop()) {
            self.guarded_once(Some(key), |turn| turn.tell(key));
        }
        self.shared.advance(LifeState::ShutDown);
        self.shared.mailbox.close();
        // From here on nothing is accepted; what was accepted before is run.
        while self.run_at_end(None) > 0 {}
        self.deliver_without_limit();
        let mut left = self.shared.mailbox.len();
        while left > 0
            && let Some(mail) = self.inbox.take()
        {
            left -= 1;
            self.guarded_once(mail.channel(), |turn| turn.run_last(mail));
        }
        self.close_all();
        while let Some(mail) = self.inbox.take() {
            self.guarded_once(mail.channel(), |turn| turn.run_last(mail));
        }
        // Retries of listeners that are closed.
        self.io.services.queue.clear().into_iter().for_each(drop_guarded);
        if let Some(shutdown) = self.shutdown.take() {
            let report = shutdown.report(self.io.services.time.now(), &self.shared.metrics);
            caught(|| log::info!("{}: shut down: {report}", self.shared.name));
            self.shared.set_report(report);
        }
        self.update_gauges_at_end();
    }

    fn run_last(&mut self, mail: LoopMail) {
        match mail {
            LoopMail::Task(_)
            | LoopMail::BoxedTask(..)
            | LoopMail::Channel(..)
            | LoopMail::Broadcast(_)
            | LoopMail::Schedule(..)
            | LoopMail::AtTurnEnd(_) => {
                self.handle_mail(mail);
                while self.run_at_end(None) > 0 {}
            }
            LoopMail::Listen(_)
            | LoopMail::Connect(_)
            | LoopMail::Adopt(_)
            | LoopMail::OpenDatagram(_)
            | LoopMail::Datagram(..) => self.handle_mail(mail),
            #[cfg(unix)]
            LoopMail::EventSource(_) => self.handle_mail(mail),
            LoopMail::CancelConnect(_)
            | LoopMail::CloseListener(_)
            | LoopMail::Accepting(..)
            | LoopMail::Unschedule(_)
            | LoopMail::Rebuild(_)
            | LoopMail::Shutdown => {}
        }
    }

    fn close_all(&mut self) {
        for key in self.sources.keys() {
            self.guarded_once(Some(key), |turn| turn.close_last(key));
        }
        self.tell_inactive();
    }

    fn close_last(&mut self, key: Key) {
        let Turn { sources, io, shared, shutdown, .. } = self;
        match sources.get(key) {
            Some(Slot::Channel(slot)) => {
                // What the kernel takes at once may still go.
                slot.driver.flush(io);
                if let Some(shutdown) = shutdown
                    && slot.is_to_be_forced()
                {
                    shutdown.report.forced += 1;
                    shutdown.forced_unsent += u64::from(slot.driver.core.state.pending_bytes() > 0);
                    slot.driver.core.state.request_close_now();
                }
                slot.close(io, &shared.metrics);
            }
            Some(Slot::Listener(_)) => self.close_listener(key),
            Some(Slot::Connecting(_)) => self.fail_connect(key, crate::Error::ShutDown),
            Some(Slot::Datagram(slot)) => {
                let before = Unsent::read(&shared.metrics).channels;
                if let Some(shutdown) = shutdown
                    && slot.is_open()
                {
                    shutdown.report.forced += 1;
                    slot.close(io, &shared.metrics);
                    shutdown.forced_unsent += Unsent::read(&shared.metrics).channels - before;
                } else {
                    slot.close(io, &shared.metrics);
                }
            }
            Some(Slot::Lingering(_)) => self.end_lingering(key),
            #[cfg(unix)]
            Some(Slot::Foreign(_)) => self.end_event_source(key, Err(crate::Error::ShutDown)),
            None => {}
        }
    }
}

impl ChannelSlot {
    /// At the deadline: whether it does not close by itself, now that what could be sent is sent.
    fn is_to_be_forced(&self) -> bool {
        let state = &self.driver.core.state;
        let closes =
            state.status.closes_at_once() || (state.status.closes_gracefully() && state.pending_bytes() == 0);
        self.driver.transport.is_some() && !closes
    }
}
