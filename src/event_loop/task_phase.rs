//! The task phase of a turn: the loop's queue.
//!
//! Always holds: entries are handled in the order of the queue; a phase runs at least 64 entries, if they wait, and
//! at most 64 beyond its share; a panic in a task is logged with the place where the task was given, counted, and
//! goes no further, nor does any other that handling an entry ends with. Runs on the loop's thread.

use super::{
    budget::{Share, TASKS_PER_CHECK},
    rebuild::RebuildCause,
    shared::LoopMail,
    stopwatch::Span,
    turn::Turn,
};
use crate::{
    Error,
    error::{drop_guarded, panic_message},
    log_throttle::{PANICS, log_throttled},
};
use log::Level;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};

impl Turn {
    /// Handles what waits in the queue, within `share`; whether there was anything. The clock was read just before.
    pub(super) fn run_tasks(&mut self, share: Share) -> bool {
        let until = share.until(self.io.services.now);
        // Without a time limit it is what waits now: tasks that give new tasks for ever must not keep out the I/O.
        let mut left = if until.is_some() { usize::MAX } else { self.shared.mailbox.len() };
        let (mut ran, mut drained) = (0u64, false);
        self.begin_deliveries();
        if self.delivering.is_some() {
            ran = 1;
            if !self.deliver() {
                left = 0;
            }
        }
        loop {
            let enough = ran + TASKS_PER_CHECK as u64;
            self.guarded(|turn, current| {
                while ran < enough && left > 0 {
                    let mut mail = turn.inbox.take();
                    ran += u64::from(mail.is_some());
                    left -= 1;
                    *current = mail.as_ref().and_then(LoopMail::channel);
                    match &mut mail {
                        // Run where it is: to move it once more would cost as much as a small task does.
                        Some(LoopMail::Task(task)) => turn.run_task(task.origin(), || task.run()),
                        _ => match mail {
                            Some(mail) => {
                                turn.handle_mail(mail);
                                if turn.delivering.is_some() {
                                    left = 0;
                                }
                            }
                            None => {
                                drained = true;
                                break;
                            }
                        },
                    }
                }
            });
            if ran < enough {
                break;
            }
            self.lap(Span::Tasks);
            if until.is_some_and(|until| self.io.services.now >= until) {
                break;
            }
        }
        if ran == 0 {
            return false;
        }
        if !ran.is_multiple_of(TASKS_PER_CHECK as u64) {
            self.lap(Span::Flushing);
        }
        self.watch.rename(Span::Flushing);
        self.shared.mailbox.announce_room();
        if !drained && !self.inbox.is_empty() {
            self.shared.metrics.tasks_deferred.add(1);
        }
        self.shared.metrics.tasks_run.add(ran);
        true
    }

    pub(super) fn handle_mail(&mut self, mail: LoopMail) {
        match mail {
            LoopMail::Channel(key, mail) => {
                let Turn { sources, io, shared, .. } = self;
                if let Some(slot) = sources.channel(key) {
                    slot.core.handle_mail(&mut io.services, mail);
                    slot.settle(io, &shared.metrics);
                } else {
                    drop_guarded(mail);
                }
            }
            LoopMail::Broadcast(delivery) => {
                self.begin_broadcast(delivery);
            }
            LoopMail::Task(mut task) => self.run_task(task.origin(), || task.run()),
            LoopMail::BoxedTask(task, origin) => self.run_task(origin, task),
            LoopMail::Schedule(deadline, task) => self.schedule(deadline, task),
            LoopMail::Unschedule(task) => {
                if let Some(place) = task.place() {
                    drop_guarded(self.io.services.queue.cancel(place));
                    task.set_place(None);
                }
            }
            LoopMail::AtTurnEnd(task) => self.at_end.push_back(task),
            LoopMail::Listen(listening) => self.listen(*listening),
            LoopMail::Adopt(accepted) => self.adopt(*accepted),
            LoopMail::Connect(connecting) => self.connect(*connecting),
            // The listener came through this queue before what is asked of it; it has a key unless it was refused.
            LoopMail::CloseListener(server) => {
                if let Some(key) = server.key.get() {
                    self.close_listener(*key);
                }
            }
            // So did the connection; if it is there by now, it is no longer in the making.
            LoopMail::CancelConnect(attempt) => {
                if let Some(key) = attempt.0.get() {
                    self.fail_connect(*key, Error::Cancelled);
                }
            }
            LoopMail::Accepting(server, accepting) => {
                if let Some(key) = server.key.get() {
                    self.set_accepting(*key, accepting);
                }
            }
            LoopMail::OpenDatagram(opening) => self.open_datagram(*opening),
            LoopMail::Datagram(shared, mail) => self.datagram_mail(&shared, *mail),
            #[cfg(unix)]
            LoopMail::EventSource(mail) => self.source_mail(*mail),
            LoopMail::Rebuild(completer) => {
                let result = self.rebuild(RebuildCause::Asked);
                completer.complete(result);
            }
            LoopMail::Shutdown => self.begin_shutdown(),
        }
    }

    #[inline]
    fn run_task(&mut self, origin: &'static Location<'static>, body: impl FnOnce()) {
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_task();
        }
        let run = || catch_unwind(AssertUnwindSafe(body));
        if let Err(panic) = self.shared.whereabouts.in_task(origin, run) {
            self.shared.metrics.tasks_panicked.add(1);
            let message = panic_message(panic);
            let name = &self.shared.name;
            log_throttled!(
                self.io.services,
                PANICS,
                Level::Error,
                "{name}: the task given at {origin} panicked: {message}"
            );
        }
    }
}
