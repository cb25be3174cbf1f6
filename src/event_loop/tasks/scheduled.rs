//! Scheduled tasks of a loop, and the handle that cancels them.
//!
//! A periodic task is one entry, which is put back with its number after each run. Every task that
//! has not ended is counted, so that their number can be limited.
//!
//! Invariants: a closure runs on the loop's thread, never twice at once, and never after a
//! successful cancel. A cancel drops the closure immediately, on any thread. The entry in the heap
//! is removed immediately if the cancel is on the loop's thread, and otherwise later by the loop.

use super::{local, periodic::Repeat};
use crate::{
    Error, Result,
    channel::Scheduled,
    clock::TimeSource,
    error::{Resource, caught, drop_guarded, panic_message},
    event_loop::{LoopMail, LoopShared},
    log_throttle::{LogAt, PANICS, TASKS_FAILED, Topic, log_throttled},
    sync::{Completer, Completion},
    timer::QueueKey,
};
use log::Level;
use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering},
};

/// A handle to a scheduled task of an [`EventLoop`](crate::EventLoop). Dropping the handle does not
/// cancel the task.
pub struct ScheduledTask<T = ()> {
    entry: Arc<TaskEntry<T>>,
    completion: Completion<T>,
}

pub(in crate::event_loop) struct TaskEntry<T> {
    shared: Arc<LoopShared>,
    state: Mutex<TaskState<T>>,
    /// The position in the loop's heap. Set and read only by the loop.
    place: Mutex<Option<QueueKey>>,
    /// The source location where the task was scheduled, for reports.
    origin: &'static Location<'static>,
    /// Whether a shutdown keeps the task until outgoing connections end.
    lasts: bool,
}

enum TaskState<T> {
    Waiting(TaskBody<T>, Completer<T>, TaskPermit),
    /// The loop is running the body.
    Running,
    /// Cancelled during a run: the task must not run again.
    CancelledRunning,
    Ended,
}

/// A permit for one scheduled task of a loop. Dropping it releases the permit.
pub(in crate::event_loop) struct TaskPermit(Arc<LoopShared>);

pub(in crate::event_loop) enum TaskBody<T> {
    Once(Box<dyn FnOnce() -> T + Send>),
    /// The body of a periodic task, which has no value. Its completion can only fail, and `T` is
    /// `()`.
    Again {
        body: Box<dyn FnMut() -> Result + Send>,
        repeat: Repeat,
    },
}

impl<T: Send + 'static> TaskEntry<T> {
    #[track_caller]
    pub(in crate::event_loop) fn new(body: TaskBody<T>, completer: Completer<T>, permit: TaskPermit) -> Self {
        TaskEntry {
            shared: permit.0.clone(),
            state: Mutex::new(TaskState::Waiting(body, completer, permit)),
            place: Mutex::new(None),
            origin: Location::caller(),
            lasts: false,
        }
    }

    /// Marks the task as part of a reply in flight. See [`Scheduled::lasts`].
    pub(in crate::event_loop) fn lasting(self) -> Self {
        TaskEntry { lasts: true, ..self }
    }

    fn lock(&self) -> MutexGuard<'_, TaskState<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the task before its next run. Drops and completes values only after the lock is
    /// released.
    fn cancel(&self, why: Error) -> bool {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, TaskState::Ended) {
            TaskState::Waiting(body, completer, permit) => {
                drop(state);
                drop_guarded(body);
                drop(permit);
                completer.complete(Err(why));
                true
            }
            TaskState::Running => {
                *state = TaskState::CancelledRunning;
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }
}

impl<T: Send + 'static> Scheduled for TaskEntry<T> {
    fn lasts(&self) -> bool {
        self.lasts
    }

    fn run(&self, time: &TimeSource) -> Option<u64> {
        let (body, completer, permit) = {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, TaskState::Ended) {
                // A one-shot task that has started cannot be cancelled. Its state is `Ended` from
                // here on.
                TaskState::Waiting(body, completer, permit) => {
                    if matches!(body, TaskBody::Again { .. }) {
                        *state = TaskState::Running;
                    }
                    (body, completer, permit)
                }
                other => {
                    *state = other;
                    return None;
                }
            }
        };
        match body {
            TaskBody::Once(body) => {
                drop(permit);
                match catch_unwind(AssertUnwindSafe(body)) {
                    Ok(value) => {
                        if let Some(Err(error)) = (&value as &dyn Any).downcast_ref::<Result>() {
                            self.failed(error, time);
                        }
                        completer.complete(Ok(value));
                    }
                    Err(panic) => completer.complete(Err(self.panicked(panic, time))),
                }
                None
            }
            TaskBody::Again { mut body, mut repeat } => {
                let result = match catch_unwind(AssertUnwindSafe(&mut body)) {
                    Ok(result) => {
                        if let Err(error) = &result {
                            self.failed(error, time);
                        }
                        result
                    }
                    Err(panic) => Err(self.panicked(panic, time)),
                };
                let mut state = self.lock();
                if result.is_ok() && matches!(*state, TaskState::Running) {
                    let next = repeat.next(time.now(), &self.shared.random);
                    *state = TaskState::Waiting(TaskBody::Again { body, repeat }, completer, permit);
                    return Some(next);
                }
                *state = TaskState::Ended;
                drop(state);
                drop(permit);
                drop_guarded(body);
                completer.complete(Err(result.err().unwrap_or(Error::Cancelled)));
                None
            }
        }
    }

    fn abandon(&self) {
        self.cancel(Error::ShutDown);
    }

    fn origin(&self) -> &'static Location<'static> {
        self.origin
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.lock(), TaskState::Waiting(..))
    }

    fn set_place(&self, place: Option<QueueKey>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    fn place(&self) -> Option<QueueKey> {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> TaskEntry<T> {
    #[cold]
    fn panicked(&self, panic: Box<dyn Any + Send>, time: &TimeSource) -> Error {
        let message = panic_message(panic);
        self.shared.metrics.tasks_panicked.add(1);
        self.log(PANICS, "panicked", &message, time);
        Error::panicked(message)
    }

    /// Logs the error, because the completion may have been dropped. `Cancelled` means that the
    /// task ended itself.
    #[cold]
    fn failed(&self, error: &Error, time: &TimeSource) {
        if matches!(error, Error::Cancelled) {
            return;
        }
        self.shared.metrics.tasks_failed.add(1);
        self.log(TASKS_FAILED, "failed", error, time);
    }

    fn log(&self, topic: Topic, how: &str, why: &dyn fmt::Display, time: &TimeSource) {
        let (name, origin) = (&self.shared.name, self.origin);
        let at = LogAt { log: &self.shared.log, now: time.now() };
        // The program's logger may panic, and so may the `Display` of its error. The completion
        // still gets it.
        let log = || {
            log_throttled!(at, topic, Level::Error, "{name}: the task scheduled at {origin} {how}: {why:#}")
        };
        if caught(log).is_some() {
            self.shared.metrics.io_panics.add(1);
        }
    }
}

impl TaskPermit {
    /// Takes a permit.
    ///
    /// # Errors
    /// [`Error::Full`] if the limit of scheduled tasks is reached.
    pub(in crate::event_loop) fn take(shared: &Arc<LoopShared>) -> Result<Self> {
        let limit = shared.max_scheduled_tasks;
        if shared.scheduled_tasks.fetch_add(1, Ordering::Relaxed) >= limit {
            shared.scheduled_tasks.fetch_sub(1, Ordering::Relaxed);
            return Err(Error::Full { resource: Resource::ScheduledTasks, limit });
        }
        Ok(TaskPermit(shared.clone()))
    }

    /// Takes a permit even if the limit is reached.
    pub(in crate::event_loop) fn always(shared: &Arc<LoopShared>) -> Self {
        shared.scheduled_tasks.fetch_add(1, Ordering::Relaxed);
        TaskPermit(shared.clone())
    }
}

impl Drop for TaskPermit {
    fn drop(&mut self) {
        self.0.scheduled_tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl<T: Send + 'static> ScheduledTask<T> {
    pub(in crate::event_loop) fn new(entry: Arc<TaskEntry<T>>, completion: Completion<T>) -> Self {
        ScheduledTask { entry, completion }
    }

    /// Cancels the task. May be called from any thread.
    ///
    /// Returns `true` if this call ended the task: a one-shot task will not run, and a periodic
    /// task will not run again. Its closure is dropped before this returns, or after the current
    /// run if there is one. Returns `false` if the task has ended, was cancelled before, or is a
    /// one-shot task that is running.
    pub fn cancel(&self) -> bool {
        let cancelled = self.entry.cancel(Error::Cancelled);
        if cancelled {
            self.entry.shared.metrics.timers_cancelled.add_shared(1);
            self.leave_heap();
        }
        cancelled
    }

    /// Removes the empty entry from the heap.
    fn leave_heap(&self) {
        let shared = &self.entry.shared;
        let Some(queue) = local::queue_of(shared.id) else {
            // The loop need not wake up for this.
            shared.submit_quietly(LoopMail::Unschedule(self.entry.clone()));
            return;
        };
        // `None` if the entry is still in the queue. The loop then finds that the task has ended.
        if let Some(place) = self.entry.place() {
            self.entry.set_place(None);
            drop_guarded(queue.cancel(place));
            shared.metrics.timers_pending.set(queue.len() as u64);
        }
    }

    /// Returns whether the task has ended: it has run, failed or was cancelled.
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }

    /// Returns the completion of the task. It delivers the value of a one-shot task, or the error
    /// that ended a periodic task. It fails with [`Error::Cancelled`] if the task was cancelled,
    /// and with [`Error::ShutDown`] if a shutdown ended it.
    pub fn completion(self) -> Completion<T> {
        self.completion
    }
}

impl<T> fmt::Debug for ScheduledTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledTask").field("origin", &format_args!("{}", self.entry.origin)).finish()
    }
}
