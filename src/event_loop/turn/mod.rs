//! One turn of a loop, and the order of things in it.
//!
//! ```text
//!  poll ─► ready I/O ─► tasks within the ioRatio budget ─► due timers ─► flush, close ─┐
//!   ▲                                                                                  │
//!   └──────────── sleep until the next deadline, or not at all if work waits ──────────┘
//! ```
//!
//! Always holds: every turn polls; what a bound cuts off is carried over and keeps the next poll from sleeping; tasks
//! and timers have a budget each (`budget`), so that neither keeps the other out, nor the I/O. docs/fairness.md
//! states all bounds. The clock is read after the poll, after the I/O if there are tasks or due timers, while these
//! run (`pace`), and before a sleep: twice in a turn that only moves bytes (`stopwatch`). Runs on the loop's thread
//! and owns everything that the loop owns.

mod guard;
mod poll_phase;
mod rebuild;
mod task_phase;
mod timer_phase;

pub use rebuild::{RebuildCause, RebuildReport};

use super::{
    broadcast::Broadcasts,
    budget::{Budget, Pace, Share, Span, Stopwatch},
    closing::{Ended, Leaving, close_on_worker},
    io::Io,
    load::Assignment,
    poll::{Sleep, SpinGuard, WakeCause},
    shared::{LoopMail, LoopShared},
    shutdown::Shutdown,
    sources::{Slot, Sources},
};
use crate::{
    channel::{Scheduled, driver::Ready},
    clock::TimeSource,
    error::caught,
    id::Key,
    log_throttle::{PANICS, log_throttled},
    sync::{Inbox, Phase},
};
use log::Level;
use std::{collections::VecDeque, sync::Arc};

/// Sources that are read without an event in one turn; the rest has its turn in the next.
const LISTED_PER_TURN: usize = 1024;

pub(crate) struct Turn {
    pub(crate) shared: Arc<LoopShared>,
    pub(crate) inbox: Inbox<LoopMail>,
    pub(crate) sources: Sources,
    pub(crate) io: Io,
    pub(crate) budget: Budget,
    /// Decide when tasks, timers and deliveries are interrupted to read the clock.
    pub(super) task_pace: Pace,
    pub(super) timer_pace: Pace,
    pub(super) deliver_pace: Pace,
    pub(crate) spin: SpinGuard,
    pub(crate) watch: Stopwatch,
    pub(crate) shutdown: Option<Shutdown>,
    pub(crate) sleep: Sleep,
    /// Whether time passes by itself.
    pub(crate) real_time: bool,
    /// A bound was hit in the last turn: timers, or what is to run after them, are still due.
    pub(crate) timers_left: bool,
    pub(super) broadcasts: Broadcasts,
    /// What is to run once the timers of this turn have.
    pub(crate) at_end: VecDeque<Arc<dyn Scheduled>>,
    /// When a rest is over that was requested because the poll fails or returns for no reason.
    pub(super) rest_until: Option<u64>,
    /// Polls in a row that failed.
    pub(crate) poll_failures: u32,
    /// Whether it was said that the poll fails, and not yet that it works again.
    pub(crate) failure_logged: bool,
}

impl Turn {
    /// Turns until the loop has shut down.
    pub(crate) fn run(&mut self) {
        while !self.turn() {}
    }

    /// Runs the phases that follow the poll: channels, tasks, timers, flush and close. `handled` is the
    /// number of sources that were ready. Returns whether the turn was the last.
    #[inline]
    pub(super) fn run_phases(&mut self, cause: Option<WakeCause>, handled: u64) -> bool {
        self.watch.note_events(handled);
        let did_io = handled > 0;
        let mut worked = self.tell_channels();
        if let Some(share) = self.end_io(did_io) {
            self.shared.activity.enter_phase(Phase::Tasks);
            worked |= self.run_tasks(share);
            self.shared.activity.enter_phase(Phase::Timers);
            worked |= self.run_timers(share);
        }
        if worked || did_io {
            self.spin.worked();
            self.sleep.worked(self.io.services.now);
        } else if cause == Some(WakeCause::Waker) {
            self.shared.metrics.wakes_in_vain.add(1);
            if self.spin.woken_in_vain(self.io.services.now) {
                let say = |turn: &mut Self| {
                    log::warn!("{}: woken again and again with nothing to do", turn.shared.name);
                };
                self.guarded_once(None, say);
            }
        }
        self.shared.activity.enter_phase(Phase::Flush);
        self.attend();
        self.tell_inactive();
        self.update_gauges();
        let last = self.proceed_with_shutdown();
        self.shared.activity.rest();
        last
    }

    /// Reads the clock: what went on until now is charged to its phase, and `next` begins.
    pub(super) fn lap(&mut self, next: Span) {
        self.shared.metrics.clock_reads.add(1);
        // A clock that steps back must not turn the loop's time back.
        self.io.services.now = self.io.services.time.now().max(self.io.services.now);
        self.watch.lap(self.io.services.now, next, &self.shared.metrics);
    }

    /// Reads the clock in the middle of a phase.
    pub(super) fn lap_in_span(&mut self) {
        self.lap(self.watch.span());
    }

    /// Notes how long the turn took, once.
    pub(super) fn end_turn_time(&mut self) {
        if let Some(took) = self.watch.end_turn() {
            self.shared.metrics.turn_time.record(took);
            self.io.services.io_time.note_turn(took);
        }
    }

    // ---- I/O -----------------------------------------------------------------------------------------

    /// Handles what is ready; how many sources were.
    #[inline]
    pub(super) fn handle_io(&mut self, mut events: impl Iterator<Item = (usize, Ready)>) -> u64 {
        let was_cut = self.io.begin_turn();
        // Those that are listed while events are handled have had their share, and wait for the next turn.
        let listed = self.io.carried_over.len().min(LISTED_PER_TURN);
        // Sources that were cut off in the last turn go first. Otherwise new events could starve them.
        let mut handled = 0;
        if was_cut {
            handled = self.handle_listed(listed);
        }
        self.guarded(|turn, current| {
            for (token, ready) in events.by_ref() {
                if turn.io.services.io_is_over() {
                    turn.defer_event(token, ready);
                    continue;
                }
                handled += 1;
                turn.handle_event(token, ready, current);
            }
        });
        // Usually there are none.
        if listed > 0 && !was_cut {
            handled += self.handle_listed(listed);
        }
        self.shared.metrics.ready.add(handled);
        handled
    }

    /// Handles up to `left` listed sources while there is time, and returns their number.
    #[inline(never)]
    fn handle_listed(&mut self, mut left: usize) -> u64 {
        let mut handled = 0;
        self.guarded(|turn, current| {
            while left > 0 && !turn.io.services.io_is_over() {
                left -= 1;
                let Some(key) = turn.io.carried_over.pop_front() else { break };
                handled += 1;
                *current = Some(key);
                let Turn { sources, io, shared, .. } = &mut *turn;
                match sources.get(key) {
                    Some(Slot::Channel(slot)) => slot.read(io, &shared.metrics),
                    Some(Slot::Listener(_)) => turn.source_is_due(key),
                    Some(Slot::Connecting(_)) => turn.finish_connect(key, Ready::NONE),
                    Some(Slot::Datagram(slot)) => slot.proceed(io, &shared.metrics),
                    Some(Slot::Lingering(_)) => turn.drain_lingering(key),
                    #[cfg(unix)]
                    Some(Slot::Foreign(_)) => turn.event_source_proceeds(key),
                    None => {}
                }
            }
        });
        handled
    }

    fn handle_event(&mut self, token: usize, ready: Ready, current: &mut Option<Key>) {
        let Turn { sources, io, shared, .. } = self;
        // An event for a source that was closed earlier in this batch finds another generation, or nothing.
        let Some((key, slot)) = sources.by_token(token) else { return };
        *current = Some(key);
        match slot {
            Slot::Channel(slot) => slot.handle_ready(io, &shared.metrics, ready),
            Slot::Listener(_) => self.accept(key),
            Slot::Connecting(_) => self.finish_connect(key, ready),
            Slot::Datagram(slot) => slot.handle_ready(io, &shared.metrics, ready),
            Slot::Lingering(_) => self.handle_lingering(key, ready),
            #[cfg(unix)]
            Slot::Foreign(_) => self.event_source_is_ready(key, ready),
        }
    }

    /// The I/O of this turn is over: what it leaves to tasks, and once more to timers; none if neither waits.
    fn end_io(&mut self, did_io: bool) -> Option<Share> {
        let now = self.io.services.now;
        // I/O that was cut off has just read the clock. A timer that came due since the poll runs in this turn.
        let io_time = &self.io.services.io_time;
        let seen = if io_time.was_cut() { io_time.last_reading() } else { now };
        let due = self.timers_left || self.io.services.next_deadline().is_some_and(|at| at <= seen);
        if self.inbox.is_empty() && !self.broadcasts.is_waiting() && !due {
            return None;
        }
        // The time since the poll returned went into I/O, if there was any; time asleep is not I/O time.
        if did_io {
            self.watch.rename(Span::Io);
        }
        self.lap(Span::Tasks);
        let io_time = if did_io { self.io.services.now - now } else { 0 };
        Some(self.budget.after(io_time))
    }

    // ---- end of the turn -----------------------------------------------------------------------------

    /// Flushes and closes. Who gets attention again meanwhile has its turn in the next one.
    fn attend(&mut self) {
        if self.io.services.attention.is_empty() {
            if self.watch.span() == Span::Flushing {
                // Nothing to flush: what passes until the next reading is the poll's.
                self.watch.rename(Span::Polling);
            }
            return;
        }
        if self.watch.is_sampled() {
            self.watch.rename(Span::Io);
            self.lap(Span::FlushingAndPolling);
        }
        let mut attention = std::mem::take(&mut self.io.services.attention);
        let mut listed = attention.drain(..);
        self.guarded(|turn, current| {
            let Turn { sources, io, shared, .. } = turn;
            for key in listed.by_ref() {
                *current = Some(key);
                if let Some(slot) = sources.channel(key) {
                    slot.attend(io, &shared.metrics);
                }
            }
        });
        drop(listed);
        // Keeps the memory of the list; usually nobody was listed in between.
        attention.append(&mut self.io.services.attention);
        self.io.services.attention = attention;
    }

    /// Tells handlers that their channel is closed, and lets go of them.
    #[inline]
    pub(super) fn tell_inactive(&mut self) {
        if !self.io.inactive.is_empty() {
            self.tell_ended();
        }
    }

    #[inline(never)]
    fn tell_ended(&mut self) {
        for Ended { key, socket } in std::mem::take(&mut self.io.inactive) {
            // Removed first: whatever panics, nothing of it stays.
            match socket {
                Leaving::Closed => {
                    let slot = self.sources.remove(key);
                    self.end_handler(slot);
                }
                Leaving::Lingers(socket) => {
                    let mut slot = self.sources.replace(key, Slot::Lingering(socket));
                    let counted = assignment_of(&mut slot);
                    self.end_handler(slot);
                    self.linger(key, counted);
                }
                Leaving::Blocks(stream, time) => {
                    let mut slot = self.sources.remove(key);
                    let counted = assignment_of(&mut slot);
                    self.end_handler(slot);
                    close_on_worker(stream, time, counted, &self.io.services);
                }
            }
        }
    }

    /// Calls `inactive` and drops the handler.
    #[inline]
    fn end_handler(&mut self, mut slot: Option<Slot>) {
        self.guarded_once(None, |turn| match &mut slot {
            Some(Slot::Channel(slot)) => slot.core.handle_inactive(&mut turn.io.services),
            Some(Slot::Datagram(slot)) => {
                slot.handle_inactive(&mut turn.io.services, &turn.shared.metrics);
            }
            _ => {}
        });
        if let Some(message) = caught(|| drop(slot)) {
            let name = &self.shared.name;
            caught(|| {
                log_throttled!(
                    self.io.services,
                    PANICS,
                    Level::Error,
                    "{name}: dropping a handler panicked: {message}"
                );
            });
        }
    }

    /// Brings the gauges up to date, for the last time.
    #[cold]
    pub(super) fn update_gauges_at_end(&mut self) {
        self.update_gauges();
    }

    #[inline(always)]
    fn update_gauges(&mut self) {
        let metrics = &self.shared.metrics;
        metrics.timers_pending.set(self.io.services.queue.len() as u64);
        metrics.wheel_pending.set(self.io.services.wheel.len() as u64);
        let outbound = &mut self.io.services.outbound;
        outbound.exchange();
        metrics.outbound_bytes.set(outbound.used() as u64);
        if let Some(readings) = self.io.services.io_time.take_readings() {
            metrics.clock_reads.add(readings);
        }
        metrics.fold(&mut self.io.services.tally);
        let now = self.io.services.now;
        if self.shared.log.is_due(now) {
            self.guarded_once(None, |turn| turn.shared.log.report(now));
        }
    }

    pub(crate) fn time(&self) -> &TimeSource {
        &self.io.services.time
    }
}

/// Takes what counts the connection, because its socket outlives its handler.
fn assignment_of(slot: &mut Option<Slot>) -> Option<Assignment> {
    match slot {
        Some(Slot::Channel(slot)) => slot.assignment.take(),
        _ => None,
    }
}
