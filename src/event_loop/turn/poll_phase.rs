//! The part of a turn around the poll, in two halves. This lets a driver other than the kernel run
//! a loop.
//!
//! ```text
//!  fall_asleep ──► Wait ──► the driver polls, or lets a rest pass ──► resume(wait, cause, events)
//! ```
//!
//! The first half ends with the published sleep: from then on a submitter writes to the waker. The
//! second half begins with the result of the poll. The driver may run other loops in between.
//! [`Turn::turn`] is the driver of the kernel, and the only code that blocks the loop's thread.
//!
//! # Sleep
//! A loop does not sleep if work was carried over. Otherwise it sleeps until the earliest of three
//! times: the first deadline in the heap, the next occupied tick of the wheel, and the next step of
//! a shutdown. It publishes that time in [`WakeUp`](crate::sync::WakeUp) *before* it checks the
//! queue for the last time. A submitter queues first and reads `WakeUp` afterwards. So one of them
//! sees the other, and only the first of many submitters writes to the waker. A timer that is
//! submitted from another thread and is due after the end of the sleep does not wake the loop.
//!
//! # Causes
//! Each return of the poll has one [`WakeCause`]. Only [`WakeCause::Premature`] counts as a sign of
//! a spin. [`SpinGuard`](crate::event_loop::poll::SpinGuard) decides on the reaction. A wakeup by
//! the waker does not change that count. If there was no work, it is counted as spurious. A failed
//! poll is replaced immediately. The loop then rests for 10 ms. The rest doubles with each further
//! failure, up to a second.
//!
//! Invariants: the driver answers each [`Wait`] with [`Turn::resume`], except [`Wait::Rest`], after
//! which it calls [`Turn::fall_asleep`] again. A loop on a manual clock never waits for real time,
//! except for the limit that the owner of a manual loop has set. Runs on the loop's thread.
//!
//! The two halves are inlined into each driver, so that the driver of the kernel does not pay for
//! another one.

use super::Turn;
use crate::{
    channel::driver::Ready,
    event_loop::{
        Selector, WakeCause,
        budget::Span,
        poll::{RebuildCause, Remedy},
        shutdown::Shutdown,
    },
    machine::race_point,
};
use std::{io, time::Duration};

/// The rest after each premature return once new polls do not help. Short enough to keep serving,
/// long enough to free the core.
const REST: Duration = Duration::from_millis(1);

/// The rest after the first failed poll. It doubles with each further failure in a row.
const POLL_ERROR_REST: Duration = Duration::from_millis(10);

/// The longest rest after a failed poll, as in Netty.
const MAX_POLL_ERROR_REST: Duration = Duration::from_secs(1);

/// How a loop waits between the two halves of a turn. Times are in nanoseconds of the loop's clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Takes the present events without sleeping, because work is waiting.
    NotAtAll,
    /// Sleeps until an event or until this time.
    Until(u64),
    /// Sleeps until an event.
    Forever,
    /// Does not poll before this time, because the poll fails or returns without a reason. The
    /// driver then calls [`Turn::fall_asleep`] again. On a manual clock it may do so earlier, when
    /// the loop was woken.
    Rest(u64),
}

impl Turn {
    /// Runs one turn on the poll of the operating system. Returns whether it was the last.
    pub(crate) fn turn(&mut self) -> bool {
        let wait = self.fall_asleep();
        let timeout = match wait {
            Wait::NotAtAll => Some(Duration::ZERO),
            Wait::Rest(until) => {
                self.let_rest_pass(until);
                return false;
            }
            _ if !self.real_time => self.sleep.timeout_in_manual_time(),
            Wait::Until(deadline) => Some(Duration::from_nanos(deadline - self.io.services.now)),
            Wait::Forever => None,
        };
        let mut polled = self.io.selector.poll(timeout);
        if !self.real_time && timeout.is_some() && matches!(polled, Ok(None)) {
            // The limit of the loop's owner has passed, wherever the loop's own time stands.
            polled = Ok(Some(WakeCause::Deadline));
        }
        let events = self.io.selector.take_events();
        let last = self.resume(wait, polled, Selector::ready_sources(&events));
        self.io.selector.put_events(events);
        last
    }

    /// The first half of a turn: decides how long to wait, and publishes the sleep to submitters.
    #[inline(always)]
    pub(crate) fn fall_asleep(&mut self) -> Wait {
        if let Some(until) = self.rest_until
            && let Some(rest) = self.go_on_resting(until)
        {
            return rest;
        }
        self.shared.metrics.turns.add(1);
        let wait = self.choose_wait();
        if wait != Wait::NotAtAll {
            self.shared.load.turn_ended(self.io.services.now);
        }
        wait
    }

    #[inline(always)]
    fn choose_wait(&mut self) -> Wait {
        if self.has_work() || self.sleep.is_forbidden(self.io.services.now) {
            return Wait::NotAtAll;
        }
        // In a sampled turn, the clock was read before the flush. A sleep that begins a little
        // later ends that much later.
        if self.stopwatch.span() != Span::FlushingAndPolling {
            self.lap_at_poll(Span::Polling);
        }
        self.end_turn_time();
        let now = self.io.services.now;
        let deadline = self.sleep.until(self.next_deadline(), now);
        if let Some(deadline) = deadline
            && deadline <= now
        {
            let remedy = self.spin.overdue(deadline, now);
            self.guarded_once(None, |turn| turn.apply(remedy, "an overdue deadline does not run anything"));
            return Wait::NotAtAll;
        }
        // After publishing, the next submitter writes to the waker. If mail has already arrived,
        // that write is avoided.
        if !self.inbox.is_empty() {
            return Wait::NotAtAll;
        }
        race_point();
        self.shared.wake_up.about_to_sleep(deadline);
        // Mail that arrived before the sleep was published has not written to the waker.
        if !self.inbox.is_empty() {
            return Wait::NotAtAll;
        }
        if !self.real_time {
            // A manual clock may have been advanced just before the sleep was published.
            self.lap(Span::Polling);
            if deadline.is_some_and(|deadline| deadline <= self.io.services.now) {
                return Wait::NotAtAll;
            }
        }
        deadline.map_or(Wait::Forever, Wait::Until)
    }

    /// The second half of a turn: handles the result of the poll, then everything else. Returns
    /// whether the turn was the last.
    ///
    /// `polled` is the reason why the poll returned, or `None` if nothing has happened. `events`
    /// are the sources that are ready, by their tokens.
    #[inline(always)]
    pub(crate) fn resume(
        &mut self,
        wait: Wait,
        polled: io::Result<Option<WakeCause>>,
        events: impl Iterator<Item = (usize, Ready)>,
    ) -> bool {
        let cause = self.wake(wait, polled);
        let handled = self.handle_io(events);
        self.run_phases(cause, handled)
    }

    /// Begins the turn after the poll. Returns the cause of the wakeup, unless the poll failed.
    #[inline(always)]
    fn wake(&mut self, wait: Wait, polled: io::Result<Option<WakeCause>>) -> Option<WakeCause> {
        self.shared.wake_up.awake();
        self.shared.activity.begin_turn();
        self.lap_at_poll(Span::Flushing);
        // If the poll did not sleep, the last turn ends only here.
        self.end_turn_time();
        self.stopwatch.begin_turn();
        let now = self.io.services.now;
        self.shared.load.turn_began(now);
        self.shared.metrics.polls.add(1);
        let cause = match polled {
            Ok(Some(cause)) => cause,
            Ok(None) if matches!(wait, Wait::Until(deadline) if deadline <= now) => WakeCause::Deadline,
            Ok(None) => WakeCause::Premature,
            Err(e) => {
                self.guarded_once(None, |turn| turn.poll_failed(&e));
                let rest = POLL_ERROR_REST.saturating_mul(1 << self.poll_failures.min(16));
                self.poll_failures = self.poll_failures.saturating_add(1);
                self.rest(rest.min(MAX_POLL_ERROR_REST));
                return None;
            }
        };
        if self.poll_failures > 0 {
            self.poll_failures = 0;
            if std::mem::take(&mut self.failure_logged) {
                self.guarded_once(None, |turn| log::info!("{}: the poll has recovered", turn.shared.name));
            }
        }
        let metrics = &self.shared.metrics;
        let counter = match cause {
            WakeCause::Io => &metrics.wakes_io,
            WakeCause::Waker => &metrics.wakes_waker,
            WakeCause::Deadline => &metrics.wakes_deadline,
            WakeCause::Interrupted => &metrics.wakes_interrupted,
            WakeCause::NotAsleep => &metrics.polls_without_sleep,
            WakeCause::Premature => &metrics.wakes_premature,
        };
        counter.add(1);
        match cause {
            WakeCause::Deadline | WakeCause::Interrupted => self.spin.worked(),
            // Counts as work once the source is handled.
            WakeCause::Io => {}
            // Neither cause shows whether the loop spins.
            WakeCause::Waker | WakeCause::NotAsleep => {}
            WakeCause::Premature => {
                let remedy = self.spin.premature(now);
                let why = "the poll returns without a reason, and a new one did not help";
                self.guarded_once(None, |turn| turn.apply(remedy, why));
            }
        }
        Some(cause)
    }

    pub(crate) fn has_work(&self) -> bool {
        self.timers_left
            || !self.io.services.attention.is_empty()
            || !self.io.carried_over.is_empty()
            || !self.io.held_handshakes.is_empty()
            || !self.io.inactive.is_empty()
            || !self.inbox.is_empty()
            || self.broadcasts.is_waiting()
    }

    #[inline(always)]
    fn next_deadline(&self) -> Option<u64> {
        let timers = self.io.services.next_deadline();
        let next = match (timers, self.shutdown.as_ref().map(Shutdown::next_look)) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        // Suppressed log lines are reported, and limits are lifted, even if nothing else happens.
        let look = self.overload.as_ref().and_then(|overload| overload.next_look());
        let extra = match (self.shared.log.due(), look) {
            (None, None) => return next,
            (Some(a), Some(b)) => a.min(b),
            (Some(at), None) | (None, Some(at)) => at,
        };
        Some(next.map_or(extra, |next| next.min(extra)))
    }

    fn apply(&mut self, remedy: Remedy, why: &str) {
        match remedy {
            Remedy::Nothing => {}
            Remedy::Rebuild => drop(self.rebuild(RebuildCause::Premature)),
            Remedy::Rest { tell } => {
                self.shared.metrics.rests.add(1);
                self.rest(REST);
                if tell {
                    log::warn!("{}: {why}; pausing for {REST:?} each time", self.shared.name);
                }
            }
        }
    }

    /// Handles a failed poll: opens a new one, which may work, but not a hundred thousand times a
    /// second.
    #[cold]
    fn poll_failed(&mut self, e: &io::Error) {
        self.shared.metrics.poll_errors.add(1);
        let first = self.spin.may_log_failure(self.io.services.now);
        self.failure_logged |= first;
        let level = if first { log::Level::Error } else { log::Level::Debug };
        log::log!(level, "{}: poll failed: {e:#}; opening a new one", self.shared.name);
        // If opening a poll fails, that is logged, and the failed poll is tried again.
        drop(self.rebuild(RebuildCause::PollFailed { first }));
    }

    // ---- rests ----------------------------------------------------------------------------------

    /// Requests a rest before the next poll. The work of this turn is done first.
    fn rest(&mut self, time: Duration) {
        self.rest_until = Some(self.io.services.now.saturating_add(crate::clock::nanos(time)));
    }

    /// Returns the remaining rest, or ends a rest that has passed.
    #[cold]
    fn go_on_resting(&mut self, until: u64) -> Option<Wait> {
        // The time of the rest does not belong to a phase.
        self.lap(Span::Polling);
        self.end_turn_time();
        if !self.real_time {
            // The clock may never advance again, so work and mail end the rest.
            self.shared.wake_up.about_to_sleep(Some(until));
            self.lap(Span::Polling);
        }
        let now = self.io.services.now;
        if now >= until || !self.real_time && self.has_work() {
            self.rest_until = None;
            return None;
        }
        self.shared.load.turn_ended(now);
        Some(Wait::Rest(until))
    }

    /// Waits for a rest to pass, or for the part of it that the owner of a manual loop allows.
    #[cold]
    #[allow(
        clippy::disallowed_methods,
        reason = "the driver of the kernel; with a manual clock the thread is parked instead"
    )]
    fn let_rest_pass(&mut self, until: u64) {
        let limit = self.sleep.at_most.map(Duration::from_nanos);
        if !self.real_time {
            self.shared.park(limit);
            return;
        }
        let left = Duration::from_nanos(until - self.io.services.now);
        if limit.is_some_and(|limit| limit < left) {
            std::thread::sleep(limit.unwrap_or_default());
            return;
        }
        std::thread::sleep(left);
        // The rest ends even if the clock disagrees: no clock may keep a loop from its poll.
        self.rest_until = None;
    }
}

#[cfg(all(test, not(netwheel_loom)))]
#[path = "poll_phase_tests.rs"]
mod tests;
