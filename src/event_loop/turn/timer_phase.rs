//! The timer phase of a turn: the heap, the wheel, and the tasks for the end of the turn.
//!
//! The heap runs first, by deadline and then by age. The entries of the wheel follow, and the tasks
//! of `schedule_at_turn_end` come last. A periodic task that catches up on missed runs makes one of
//! them per turn, so that I/O proceeds in between.
//!
//! Invariants: timers have a share of their own, as large as that of tasks, and run in every turn
//! in which they are due. Heap, wheel and end of turn have a floor each (`budget`), and run at most
//! 1024 entries each. Remaining entries keep the next poll from sleeping. A timer that is armed
//! while timers run waits for the next turn. A panic that neither a channel nor a task catches ends
//! one timer and its source. Runs on the loop's thread.

use super::Turn;
use crate::{
    channel::{Due, Scheduled, TimerToken},
    event_loop::{
        budget::{Limit, Share, Site, Span},
        shared::LifeState,
        sources::Slot,
    },
    id::Key,
    timer,
};
use std::sync::Arc;

/// The maximum number of entries per turn, for each of scheduled tasks, wheel entries, and tasks
/// for the end of the turn.
const TIMERS_PER_TURN: u64 = 1024;

impl Turn {
    /// Puts a task into the heap, unless it has been cancelled.
    pub(in crate::event_loop) fn schedule(&mut self, deadline: u64, task: Arc<dyn Scheduled>) {
        if let Some(shutdown) = &mut self.shutdown
            && !(task.lasts() && shutdown.takes_outgoing())
        {
            self.io.services.tally.timers_cancelled += u64::from(task.is_waiting());
            shutdown.cancel(&*task);
        } else if task.is_waiting() {
            let place = self.io.services.queue.insert(deadline, Due::Task(task.clone()));
            task.set_queue_key(Some(place));
        }
    }

    /// Runs due timers within `share`. Returns whether there were any.
    pub(in crate::event_loop) fn run_timers(&mut self, share: Share) -> bool {
        let now = self.io.services.now;
        let is_due = |turn: &Self| turn.io.services.next_deadline().is_some_and(|at| at <= now);
        if !is_due(self) && self.at_end.is_empty() {
            self.timers_left = false;
            return false;
        }
        // A shutdown request may wait in the queue behind slow tasks. It cancels timers, so due
        // timers must not run first.
        if self.shutdown.is_none() && self.shared.state() >= LifeState::ShuttingDown {
            self.timers_left = true;
            return false;
        }
        // The clock was read when the tasks ended.
        self.stopwatch.rename(Span::Timers);
        let until = share.until(self.io.services.now);
        let fired = self.run_heap(now, until);
        let (expired, moves) = self.run_wheel(now, until);
        let ended = self.run_at_end(until);
        self.lap(Span::Flushing);
        self.timers_left = is_due(self) || !self.at_end.is_empty();
        self.shared.metrics.timers_fired.add(fired);
        self.shared.metrics.wheel_fired.add(expired);
        fired + expired + moves + ended > 0
    }

    /// Calls `run` for each entry until it returns `None` or the limit is reached. `run` returns
    /// the call site of the entry. Returns the number of entries.
    fn run_due_entries(
        &mut self,
        until: Option<u64>,
        mut run: impl FnMut(&mut Turn, &mut Option<Key>) -> Option<Site>,
    ) -> u64 {
        let limit = Limit::new(until, self.io.services.now);
        let (mut ran, mut read_at) = (0, 0);
        loop {
            let mut enough = limit.next_reading(ran, self.timer_pace.batch()).min(TIMERS_PER_TURN);
            self.guarded(|turn, current| {
                while ran < enough {
                    // Counted first, so that a panicking entry counts.
                    ran += 1;
                    let Some(site) = run(turn, current) else {
                        ran -= 1;
                        break;
                    };
                    if !turn.timer_pace.trusts(site) {
                        enough = enough.min(ran);
                    }
                }
            });
            if ran < enough || ran == read_at {
                break;
            }
            let before = self.io.services.now;
            self.lap(Span::Timers);
            self.timer_pace.measured(ran - read_at, self.io.services.now - before);
            read_at = ran;
            if ran >= TIMERS_PER_TURN || limit.is_reached(ran, self.io.services.now) {
                break;
            }
        }
        ran
    }

    fn run_heap(&mut self, now: u64, until: Option<u64>) -> u64 {
        let mark = self.io.services.queue.mark();
        let mut behind = Vec::new();
        let fired = self.run_due_entries(until, |turn, current| {
            let due = turn.io.services.queue.pop_due_before(now, mark)?;
            let site = match &due.value {
                Due::Task(task) => Site::of(task.origin()),
                Due::Channel(_) | Due::Source(_) | Due::Ages => Site::CHANNEL,
            };
            turn.run_due(due, now, current, &mut behind);
            Some(site)
        });
        for (due, next) in behind {
            self.put_back(due, next);
        }
        fired
    }

    /// Runs one timer of the heap. A periodic timer whose next run is already due is added to
    /// `behind`.
    fn run_due(
        &mut self,
        due: timer::DueEntry<Due>,
        now: u64,
        current: &mut Option<Key>,
        behind: &mut Vec<(timer::DueEntry<Due>, u64)>,
    ) {
        self.shared.metrics.lag.record(self.io.services.now.saturating_sub(due.deadline));
        // The entry before this one may have been a timer of a channel.
        *current = None;
        match due.value {
            Due::Task(ref task) => {
                let task = task.clone();
                task.set_queue_key(None);
                if let Some(shutdown) = &mut self.shutdown {
                    shutdown.note_task();
                }
                let run = || task.run(&self.io.services.time);
                match self.shared.activity.in_task(task.origin(), run) {
                    // Makes up for missed runs, one per turn, so that I/O proceeds between them.
                    Some(next) if next <= now => behind.push((due, next)),
                    Some(next) => self.put_back(due, next),
                    None => {}
                }
            }
            Due::Channel(token) => self.run_channel_timer(token, current),
            Due::Source(key) => {
                *current = Some(key);
                self.call_source(key, |source, ctx| source.timer(ctx));
            }
            Due::Ages => self.run_ages(),
        }
    }

    /// Runs a timer of a channel, unless the channel is gone.
    fn run_channel_timer(&mut self, token: TimerToken, current: &mut Option<Key>) {
        let Turn { sources, io, shared, .. } = self;
        let Some((key, slot)) = sources.by_timer_token(token) else { return };
        *current = Some(key);
        match slot {
            Slot::Channel(slot) => slot.handle_timer(io, &shared.metrics, token.timer()),
            Slot::Other(_) | Slot::Lingering(_) => {
                self.call_source(key, |source, ctx| source.channel_timer(ctx, token.timer()))
            }
        }
    }

    /// Runs due entries of the wheel. Returns their number, and the number of calls that only moved
    /// entries towards their time.
    fn run_wheel(&mut self, now: u64, until: Option<u64>) -> (u64, u64) {
        let mut moves = 0;
        let ran = self.run_due_entries(until, |turn, current| {
            let wheel = &mut turn.io.services.wheel;
            let Some(token) = wheel.expire(now) else {
                if wheel.next_expiry().is_none_or(|at| at > now) {
                    return None;
                }
                moves += 1;
                return Some(Site::WHEEL);
            };
            let due = turn.io.services.wheel.current_time();
            turn.shared.metrics.lag.record(turn.io.services.now.saturating_sub(due));
            turn.run_channel_timer(token, current);
            Some(Site::WHEEL)
        });
        (ran - moves, moves)
    }

    /// Puts a periodic task back for its next run.
    fn put_back(&mut self, due: timer::DueEntry<Due>, next: u64) {
        let Due::Task(task) = &due.value else { return };
        let task = task.clone();
        let place = self.io.services.queue.reinsert(due, next);
        task.set_queue_key(Some(place));
    }

    /// Runs the tasks for the end of the turn. Returns their number.
    pub(in crate::event_loop) fn run_at_end(&mut self, until: Option<u64>) -> u64 {
        // Tasks that these tasks submit for the end of a turn arrive through the queue, so they run
        // in the next turn.
        self.run_due_entries(until, |turn, _| {
            let task = turn.at_end.pop_front()?;
            if let Some(shutdown) = &mut turn.shutdown {
                shutdown.note_task();
            }
            turn.shared.activity.in_task(task.origin(), || task.run(&turn.io.services.time));
            Some(Site::of(task.origin()))
        })
    }
}
