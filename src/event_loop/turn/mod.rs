//! One turn of a loop: its phases and their order.
//!
//! ```text
//!  poll ─► ready I/O ─► tasks within their budget ─► due timers ─► flush, close ─┐
//!   ▲                                                                            │
//!   └────────── sleep until the next deadline, unless work is waiting ───────────┘
//! ```
//!
//! | phase | module | bound |
//! |---|---|---|
//! | poll | `poll_phase` | 1024 events |
//! | I/O | `io_phase` | `reads_per_turn`, 8 MiB per turn, `max_io_time` |
//! | tasks | `task_phase` | the share given by `io_ratio`, at most `max_task_time` |
//! | broadcasts | `delivery_phase` | 4096 members, `max_task_time` |
//! | timers | `timer_phase` | the same share as tasks, 1024 entries of each kind |
//! | flush and close | `flush_phase` | `writes_per_turn` for each channel, once |
//!
//! `connections` opens channels, `source_calls` calls the other sources, `guard` catches panics,
//! and `rebuild` moves to a new poll. `shutdown_phase` notifies channels before the tasks of a
//! turn, and ends the loop.
//!
//! The clock is read after the poll. It is read after the I/O if there are tasks or due timers, and
//! while these run ([`Pace`]). It is read once more before a sleep. So a turn that only moves bytes
//! reads it twice, and [`Stopwatch`] derives the time of each phase from the same readings. The I/O
//! reads it once per 64 units of work, and between any two units while they are slow.
//!
//! Invariants: every turn polls. Work beyond a bound is carried over and keeps the next poll from
//! sleeping. Tasks and timers have a budget each ([`Budget`]), so neither starves the other, or the
//! I/O. docs/fairness.md states all bounds. Runs on the loop's thread, and owns everything that the
//! loop owns.

mod ages;
mod connections;
mod delivery_phase;
mod flush_phase;
mod guard;
mod io_phase;
mod poll_phase;
mod rebuild;
mod shutdown_phase;
mod source_calls;
mod task_phase;
mod timer_phase;

#[cfg(feature = "simulation")]
pub(crate) use poll_phase::Wait;

use super::{
    WakeCause,
    ages::Ages,
    broadcast::Broadcasts,
    budget::{Budget, Pace, Share, Span, Stopwatch},
    connection::Connection,
    io::Io,
    mail::LoopMail,
    poll::{Sleep, SpinGuard},
    shared::LoopShared,
    shutdown::Shutdown,
    sources::Sources,
};
use crate::{
    admission::OverloadController,
    channel::Scheduled,
    clock::TimeSource,
    sync::{Inbox, LoopPhase},
};
use std::{collections::VecDeque, sync::Arc};

pub(crate) struct Turn {
    pub(crate) shared: Arc<LoopShared>,
    pub(crate) inbox: Inbox<LoopMail>,
    pub(crate) sources: Sources,
    pub(crate) io: Io,
    pub(crate) budget: Budget,
    /// `None` without overload control.
    pub(crate) overload: Option<Box<OverloadController>>,
    /// Decide when tasks, timers and deliveries are interrupted to read the clock.
    pub(super) task_pace: Pace,
    pub(super) timer_pace: Pace,
    pub(super) deliver_pace: Pace,
    pub(crate) spin: SpinGuard,
    pub(crate) stopwatch: Stopwatch,
    pub(crate) shutdown: Option<Shutdown>,
    /// Made with the first channel that has a maximum age.
    pub(super) ages: Option<Box<Ages>>,
    pub(crate) sleep: Sleep,
    /// Whether the clock advances without the program.
    pub(crate) real_time: bool,
    /// Whether the last turn reached a bound, so that timers or tasks for the end of the turn are
    /// still due.
    pub(crate) timers_left: bool,
    /// A connection that a listener has accepted, until its channel is opened.
    pub(super) accepted: Option<Connection>,
    pub(super) broadcasts: Broadcasts,
    /// Tasks to run after the timers of this turn.
    pub(crate) at_end: VecDeque<Arc<dyn Scheduled>>,
    /// When a rest ends that was requested because the poll fails or returns without a reason.
    pub(super) rest_until: Option<u64>,
    /// The number of consecutive failed polls.
    pub(crate) poll_failures: u32,
    /// Whether a failure of the poll was logged, but not its recovery.
    pub(crate) failure_logged: bool,
}

impl Turn {
    /// Runs turns until the loop has shut down.
    pub(crate) fn run(&mut self) {
        while !self.turn() {}
    }

    /// Runs the phases that follow the poll: channels, tasks, timers, flush and close. `handled` is
    /// the number of sources that were ready. Returns whether the turn was the last.
    #[inline(always)]
    pub(super) fn run_phases(&mut self, cause: Option<WakeCause>, handled: u64) -> bool {
        self.stopwatch.note_events(handled);
        let did_io = handled > 0;
        let mut worked = self.notify_channels();
        if let Some(share) = self.end_io(did_io) {
            self.shared.activity.enter_phase(LoopPhase::Tasks);
            worked |= self.run_tasks(share);
            self.shared.activity.enter_phase(LoopPhase::Timers);
            worked |= self.run_timers(share);
        }
        if worked || did_io {
            self.spin.worked();
            self.sleep.worked(self.io.services.now);
        } else if cause == Some(WakeCause::Waker) {
            self.shared.metrics.spurious_wakes.add(1);
            if self.spin.woken_in_vain(self.io.services.now) {
                let say = |turn: &mut Self| {
                    log::warn!("{}: the loop is woken repeatedly without any work", turn.shared.name);
                };
                self.guarded_once(None, say);
            }
        }
        self.shared.activity.enter_phase(LoopPhase::Flush);
        self.flush_channels();
        self.end_closed();
        self.update_gauges();
        let last = self.proceed_with_shutdown();
        self.shared.activity.rest();
        last
    }

    /// Reads the clock: charges the time until now to the current span, and begins `next`.
    pub(super) fn lap(&mut self, next: Span) {
        self.lap_at_poll(next);
    }

    /// Like [`Turn::lap`], inlined into the two readings that every turn makes.
    #[inline(always)]
    pub(super) fn lap_at_poll(&mut self, next: Span) {
        self.shared.metrics.clock_reads.add(1);
        // If the clock steps back, the loop's time must not.
        self.io.services.now = self.io.services.time.now().max(self.io.services.now);
        self.stopwatch.lap(self.io.services.now, next, &self.shared.metrics);
    }

    /// Reads the clock in the middle of a phase.
    pub(super) fn lap_in_span(&mut self) {
        self.lap(self.stopwatch.span());
    }

    /// Records the duration of the turn, once.
    #[inline]
    pub(super) fn end_turn_time(&mut self) {
        if let Some(took) = self.stopwatch.end_turn() {
            self.shared.metrics.turn_time.record(took);
            self.io.services.io_time.note_turn(took);
            if let Some(overload) = &mut self.overload {
                note_load(overload, took, &self.io);
            }
        }
    }

    /// Ends the I/O of this turn. Returns the share of the tasks, which is also that of the timers.
    /// Returns `None` if neither is waiting.
    #[inline(always)]
    fn end_io(&mut self, did_io: bool) -> Option<Share> {
        let now = self.io.services.now;
        // I/O that was cut off has just read the clock. A timer that became due since the poll runs
        // in this turn.
        let io_time = &self.io.services.io_time;
        let seen = if io_time.was_cut() { io_time.last_reading() } else { now };
        let due = self.timers_left || self.io.services.next_deadline().is_some_and(|at| at <= seen);
        if self.inbox.is_empty() && !self.broadcasts.is_waiting() && !due {
            return None;
        }
        // The time since the poll returned went into I/O, if there was any. Time asleep is not I/O
        // time.
        if did_io {
            self.stopwatch.rename(Span::Io);
        }
        self.lap(Span::Tasks);
        let io_time = if did_io { self.io.services.now - now } else { 0 };
        Some(self.budget.after(io_time))
    }

    pub(crate) fn time(&self) -> &TimeSource {
        &self.io.services.time
    }
}

/// Passes the duration of a turn to the overload control. Apart, so that the function that calls it
/// stays small enough to be inlined.
#[inline(never)]
fn note_load(overload: &mut OverloadController, took: u64, io: &Io) {
    let ended = io.services.now;
    overload.note_turn(ended.saturating_sub(took), ended, io.held_handshakes.len());
}
