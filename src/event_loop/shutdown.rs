//! The end of a loop.
//!
//! In order: listeners close; waiting scheduled tasks are cancelled; every channel's handler is told
//! ([`Handler::shutdown`](crate::Handler::shutdown)) and, unless it says otherwise, closes after its pending
//! bytes are sent; tasks still run. When all channels are gone and no task ran for the quiet period, or the
//! timeout is over, no more is accepted: what waits in the queue is run, channels that are left are closed, the
//! termination completes. Runs on the loop's thread.

use super::{
    shared::{LifeState, LoopMail},
    sources::Slot,
    turn::Turn,
};
use crate::{
    channel::{Due, Flags},
    error::drop_guarded,
    sync::Phase,
};

/// A shutdown that is going on; times of the loop in nanoseconds.
pub(crate) struct Shutdown {
    /// When the turn ended in which the last task ran, or shutdown began.
    last_task: u64,
    /// Whether a task ran in this turn.
    busy: bool,
    quiet: u64,
    until: u64,
    /// When to look next whether it is over.
    next_look: u64,
}

impl Shutdown {
    pub(crate) fn note_task(&mut self) {
        self.busy = true;
    }

    /// When to look next whether it is over.
    pub(crate) fn next_look(&self) -> u64 {
        self.next_look
    }

    fn quiet_until(&self) -> u64 {
        self.last_task.saturating_add(self.quiet)
    }
}

impl Turn {
    pub(super) fn begin_shutdown(&mut self) {
        if self.shutdown.is_some() {
            return;
        }
        let Some(request) = self.shared.shutdown_request() else { return };
        let now = self.io.services.now;
        let until = now.saturating_add(request.timeout);
        self.shutdown =
            Some(Shutdown { last_task: now, busy: false, quiet: request.quiet, until, next_look: now });
        for due in self.io.services.queue.clear() {
            // What was cancelled by its handle has been counted.
            let waits = !matches!(&due, Due::Task(task) if !task.is_waiting());
            self.io.services.tally.timers_cancelled += u64::from(waits);
            match due {
                Due::Task(task) => {
                    task.set_place(None);
                    task.abandon();
                }
                other => drop_guarded(other),
            }
        }
        for key in self.sources.keys() {
            let Turn { sources, io, shared, .. } = self;
            match sources.get(key) {
                Some(Slot::Channel(slot)) => {
                    // Its close timeout was cleared with the other timers.
                    slot.core.state.unset(Flags::CLOSE_ARMED);
                    slot.core.handle_shutdown(&mut io.services);
                    slot.core.state.want_attention(&mut io.services);
                    slot.settle(io, &shared.metrics);
                }
                Some(Slot::Listener(_)) => self.close_listener(key),
                Some(Slot::Connecting(_)) => self.fail_connect(key, crate::Error::ShutDown),
                None => {}
            }
        }
    }

    /// At the end of a turn: whether it was the last.
    pub(super) fn proceed_with_shutdown(&mut self) -> bool {
        let Some(shutdown) = &mut self.shutdown else { return false };
        if std::mem::take(&mut shutdown.busy) {
            // Not the time of the turn: before this task, others may have taken long.
            shutdown.last_task = self.io.services.time.now();
        }
        let (until, quiet_until) = (shutdown.until, shutdown.quiet_until());
        let empty = self.sources.len() == 0 && self.inbox.is_empty();
        let mut now = self.io.services.now;
        let waits_for = if empty { quiet_until.min(until) } else { until };
        if now < waits_for {
            // The time may be up although no poll has slept: look at the clock, not at the time of the last poll.
            now = self.time().now();
            if now < waits_for {
                if let Some(shutdown) = &mut self.shutdown {
                    shutdown.next_look = waits_for;
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
        self.shared.whereabouts.enter_phase(Phase::Shutdown);
        self.shared.advance(LifeState::ShutDown);
        self.shared.mailbox.close();
        // From here on nothing is accepted; what was accepted before is run.
        let mut left = self.shared.mailbox.len();
        while left > 0
            && let Some(mail) = self.inbox.take()
        {
            left -= 1;
            self.run_last(mail);
        }
        self.close_all();
        while self.shared.mailbox.len() > 0 {
            match self.inbox.take() {
                Some(mail) => self.run_last(mail),
                // Another thread is just about to put it in.
                None => std::thread::yield_now(),
            }
        }
        for due in self.io.services.queue.clear() {
            if let Due::Task(task) = due {
                task.abandon();
            }
        }
        self.shared.metrics.fold(&mut self.io.services.tally);
    }

    fn run_last(&mut self, mail: LoopMail) {
        match mail {
            LoopMail::Task(_) | LoopMail::Channel(..) | LoopMail::Schedule(..) | LoopMail::AtTurnEnd(_) => {
                self.handle_mail(mail);
                self.run_at_end();
            }
            LoopMail::Listen(_) | LoopMail::Connect(_) | LoopMail::Adopt(_) => self.handle_mail(mail),
            LoopMail::CloseListener(_)
            | LoopMail::Accepting(..)
            | LoopMail::Unschedule(_)
            | LoopMail::Rebuild(_)
            | LoopMail::Shutdown => {}
        }
    }

    fn close_all(&mut self) {
        for key in self.sources.keys() {
            let Turn { sources, io, shared, .. } = self;
            match sources.get(key) {
                Some(Slot::Channel(slot)) => {
                    // What the kernel takes at once may still go.
                    slot.flush(io, &shared.metrics);
                    slot.core.state.request_close_now();
                    slot.close(io, &shared.metrics);
                }
                Some(Slot::Listener(_)) => self.close_listener(key),
                Some(Slot::Connecting(_)) => self.fail_connect(key, crate::Error::ShutDown),
                None => {}
            }
        }
        self.tell_inactive();
    }
}
