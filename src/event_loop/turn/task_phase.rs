//! The task phase of a turn: the loop's queue.
//!
//! The time of the phase follows from the I/O time of this turn and `io_ratio`, at most
//! `max_task_time`. Time asleep does not count as I/O. With an `io_ratio` of 100 the phase handles
//! the entries that were waiting when it began. When the phase ends, threads that wait for space in
//! the queue are woken. If there are none, that costs one fence and one load.
//!
//! Invariants: entries are handled in the order of the queue. The phase ends with the entry that
//! exceeds its share, or a few short entries later (`Pace`), but not before its floor (`budget`). A
//! panic in a task is counted, and logged with the location where the task was submitted. Neither
//! that panic nor one in the handling of another entry reaches the loop. Runs on the loop's thread.

use super::Turn;
use crate::{
    error::{drop_guarded, panic_message},
    event_loop::{
        budget::{Limit, Share, Site, Span},
        mail::LoopMail,
        poll::RebuildCause,
    },
    id::Key,
    log_throttle::{PANICS, log_throttled},
};
use log::Level;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

impl Turn {
    /// Handles the waiting entries of the queue, within `share`. Returns whether there were any.
    /// The clock has just been read.
    pub(in crate::event_loop) fn run_tasks(&mut self, share: Share) -> bool {
        self.look_for_shutdown();
        let began = self.io.services.now;
        let mut limit = Limit::new(share.until(began), began);
        // Without a time limit, only the entries that wait now are handled: tasks that keep
        // submitting tasks must not starve the I/O.
        let mut left = if limit.is_time() { usize::MAX } else { self.shared.mailbox.len() };
        let waited = self.broadcasts.is_waiting();
        let mut ran = self.begin_broadcasts();
        if self.broadcasts.holds_queue() {
            left = 0;
        }
        // Broadcasts have their own share.
        limit = limit.later(self.io.services.now - began);
        let (mut read_at, mut drained) = (ran, false);
        loop {
            let (before, beside) = (self.io.services.now, self.broadcasts.beside_tasks());
            let next = limit.next_reading(ran - beside, self.task_pace.batch());
            let mut enough = beside.saturating_add(next);
            self.guarded(|turn, current| {
                while ran < enough && left > 0 {
                    let Some(site) = turn.run_next(current, &mut ran, &mut left) else {
                        drained = true;
                        break;
                    };
                    if !turn.task_pace.trusts(site) {
                        enough = enough.min(ran);
                    }
                }
            });
            if ran < enough || ran == read_at {
                break;
            }
            self.lap(Span::Tasks);
            let took = self.io.services.now - before;
            let now_beside = self.broadcasts.beside_tasks();
            if now_beside > beside {
                limit = limit.later(took);
            } else {
                self.task_pace.measured(ran - read_at, took);
            }
            read_at = ran;
            if limit.is_reached(ran - now_beside, self.io.services.now) {
                break;
            }
        }
        let delivered = self.end_broadcasts();
        if ran == 0 && !waited {
            return false;
        }
        if ran != read_at || delivered {
            self.lap(Span::Flushing);
        }
        self.stopwatch.rename(Span::Flushing);
        self.shared.mailbox.announce_room();
        if !drained && !self.inbox.is_empty() {
            self.shared.metrics.tasks_deferred.add(1);
        }
        self.shared.metrics.tasks_run.add(ran);
        true
    }

    /// Handles the next entry of the queue. Returns its call site, or `None` if the queue is empty.
    /// Counts the entry in `ran` before it runs, so that an entry that panics counts. Sets `left`
    /// to zero if the queue has to wait.
    #[inline(always)]
    fn run_next(&mut self, current: &mut Option<Key>, ran: &mut u64, left: &mut usize) -> Option<Site> {
        let mut mail = self.inbox.take();
        *ran += u64::from(mail.is_some());
        *left -= 1;
        *current = mail.as_ref().and_then(LoopMail::source);
        // Runs in place, because another move would cost as much as a small task.
        if let Some(LoopMail::Task(task)) = &mut mail {
            let origin = task.origin();
            self.run_task(origin, || task.run());
            return Some(Site::of(origin));
        }
        let mail = mail?;
        let site = mail.site();
        self.handle_mail(mail);
        if self.broadcasts.holds_queue() {
            *left = 0;
        }
        Some(site)
    }

    pub(in crate::event_loop) fn handle_mail(&mut self, mail: LoopMail) {
        match mail {
            LoopMail::Channel(key, mail) => {
                if !self.catch_up(key) {
                    self.hold(LoopMail::Channel(key, mail));
                    return;
                }
                let Turn { sources, io, shared, .. } = self;
                if let Some(slot) = sources.channel(key) {
                    slot.call(io, &shared.metrics, |core, services| core.handle_mail(services, mail));
                } else {
                    drop_guarded(mail);
                }
            }
            LoopMail::Broadcast(delivery) => self.begin_broadcast(delivery),
            LoopMail::Task(mut task) => self.run_task(task.origin(), || task.run()),
            LoopMail::Schedule(deadline, task) => self.schedule(deadline, task),
            LoopMail::Unschedule(task) => {
                if let Some(place) = task.queue_key() {
                    drop_guarded(self.io.services.queue.cancel(place));
                    task.set_queue_key(None);
                }
            }
            LoopMail::AtTurnEnd(task) => self.at_end.push_back(task),
            LoopMail::Open(source) => self.open(source),
            LoopMail::Source(mail) => self.deliver_mail(mail),
            LoopMail::Adopt(connection) => self.adopt(*connection),
            LoopMail::Rebuild(completer) => {
                let result = self.rebuild(RebuildCause::Asked);
                completer.complete(result);
            }
            LoopMail::Shutdown => self.reach_shutdown(),
        }
    }

    #[inline]
    fn run_task(&mut self, origin: &'static Location<'static>, body: impl FnOnce()) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_task();
        }
        let run = || catch_unwind(AssertUnwindSafe(body));
        if let Err(panic) = self.shared.activity.in_task(origin, run) {
            self.shared.metrics.tasks_panicked.add(1);
            let message = panic_message(panic);
            let name = &self.shared.name;
            log_throttled!(
                self.io.services,
                PANICS,
                Level::Error,
                "{name}: the task submitted at {origin} panicked: {message}"
            );
        }
    }
}
