//! Scheduled tasks of a loop.
//!
//! A periodic task is one entry, which is put back with its number after each run. Every task that
//! has not ended is counted, so that their number can be limited.
//!
//! Invariants: a closure runs on the loop's thread, never twice at once, and never after a
//! successful cancel. A cancel drops the closure immediately, on any thread. The entry in the heap
//! is removed immediately if the cancel is on the loop's thread, and otherwise later by the loop.

use super::local;
use crate::{
    channel::{Repeat, Scheduled, TaskCell, TaskControl},
    clock::TimeSource,
    error::{Error, Resource, Result, caught, drop_guarded, panic_message},
    event_loop::{mail::LoopMail, shared::LoopShared},
    log_throttle::{LogAt, LogTopic, PANICS, TASKS_FAILED, log_throttled},
    machine::Mutex,
    sync::Completion,
    timer::QueueKey,
};
use log::Level;
use std::{
    any::Any,
    fmt,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{Arc, atomic::Ordering},
};

pub(in crate::event_loop) struct TaskEntry<T> {
    shared: Arc<LoopShared>,
    cell: TaskCell<PermittedBody<T>, T>,
    /// The position in the loop's heap. Set and read only by the loop.
    queue_key: Mutex<Option<QueueKey>>,
    /// The source location where the task was scheduled, for reports.
    origin: &'static Location<'static>,
    is_periodic: bool,
    /// Whether a shutdown keeps the task until outgoing connections end.
    lasts: bool,
}

/// A body and its permit, which are dropped in this order.
struct PermittedBody<T>(TaskBody<T>, TaskPermit);

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
    pub(in crate::event_loop) fn new(
        body: TaskBody<T>,
        deadline: u64,
        permit: TaskPermit,
        lasts: bool,
    ) -> (Arc<Self>, Completion<T>) {
        let shared = permit.0.clone();
        let is_periodic = matches!(body, TaskBody::Again { .. });
        let (cell, completion) = TaskCell::new(shared.id, PermittedBody(body, permit), deadline);
        let (queue_key, origin) = (Mutex::new(None), Location::caller());
        (Arc::new(TaskEntry { shared, cell, queue_key, origin, is_periodic, lasts }), completion)
    }

    /// Removes the empty entry of a cancelled task from the heap.
    fn leave_heap(self: Arc<Self>) {
        let shared = self.shared.clone();
        let Some(queue) = local::queue_of(shared.id) else {
            // The loop need not wake up for this.
            shared.submit_quietly(LoopMail::Unschedule(self));
            return;
        };
        // `None` if the entry is still in the queue. The loop then finds that the task has ended.
        if let Some(queue_key) = self.queue_key() {
            self.set_queue_key(None);
            drop_guarded(queue.cancel(queue_key));
            shared.metrics.timers_pending.set(queue.len() as u64);
        }
    }

    fn run_once(&self, time: &TimeSource) {
        let Some((PermittedBody(TaskBody::Once(body), permit), completer)) = self.cell.take() else { return };
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
    }

    /// Runs a periodic task. Returns its next deadline if it continues.
    fn run_again(&self, time: &TimeSource) -> Option<u64> {
        let (mut body, completer) = self.cell.borrow()?;
        let PermittedBody(TaskBody::Again { body: run, repeat }, _) = &mut body else { return None };
        let result = match catch_unwind(AssertUnwindSafe(run)) {
            Ok(result) => {
                if let Err(error) = &result {
                    self.failed(error, time);
                }
                result
            }
            Err(panic) => Err(self.panicked(panic, time)),
        };
        if let Err(error) = result {
            self.cell.end_run(body, completer, error);
            return None;
        }
        let next = repeat.next(time.now(), &self.shared.random);
        self.cell.set_deadline(next);
        let Err((body, completer)) = self.cell.put_back(body, completer) else { return Some(next) };
        self.cell.end_run(body, completer, Error::Cancelled);
        None
    }
}

impl<T: Send + 'static> Scheduled for TaskEntry<T> {
    fn lasts(&self) -> bool {
        self.lasts
    }

    fn run(&self, time: &TimeSource) -> Option<u64> {
        if self.is_periodic {
            return self.run_again(time);
        }
        self.run_once(time);
        None
    }

    fn abandon(&self) {
        self.cell.end(Error::ShutDown);
    }

    fn origin(&self) -> &'static Location<'static> {
        self.origin
    }

    fn is_waiting(&self) -> bool {
        self.cell.is_waiting()
    }

    fn set_queue_key(&self, queue_key: Option<QueueKey>) {
        *self.queue_key.lock() = queue_key;
    }

    fn queue_key(&self) -> Option<QueueKey> {
        *self.queue_key.lock()
    }
}

impl<T: Send + 'static> TaskControl for TaskEntry<T> {
    fn cancel(self: Arc<Self>) -> bool {
        let cancelled = self.cell.end(Error::Cancelled);
        if cancelled {
            self.shared.metrics.timers_cancelled.add_shared(1);
            self.leave_heap();
        }
        cancelled
    }

    fn deadline(&self) -> Option<u64> {
        self.cell.deadline()
    }

    fn time(&self) -> &TimeSource {
        &self.shared.time
    }

    fn origin(&self) -> &'static Location<'static> {
        self.origin
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

    fn log(&self, topic: LogTopic, how: &str, why: &dyn fmt::Display, time: &TimeSource) {
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
