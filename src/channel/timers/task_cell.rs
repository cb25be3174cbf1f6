//! The state of a scheduled task that its handle and its loop share.
//!
//! Invariants: a task ends once, with one result. A body that was taken for a run is not run by
//! anything else. A cancel drops a waiting body immediately, on the cancelling thread. The
//! program's values are dropped, and completions completed, after the lock was released. Any thread
//! cancels; only the loop runs the task.

use super::scheduled_task::NEVER;
use crate::{
    error::{Error, drop_guarded},
    machine::Mutex,
    sync::{Completer, Completion, completion},
};
use std::sync::atomic::{AtomicU64, Ordering};

/// A task with the body `B`, which holds its permit, and a result of type `T`.
pub(crate) struct TaskCell<B, T> {
    state: Mutex<TaskState<B, T>>,
    /// When the next run is due, in nanoseconds of the loop.
    deadline: AtomicU64,
}

enum TaskState<B, T> {
    Waiting(B, Completer<T>),
    /// The loop is running the body of a periodic task.
    Running,
    /// Cancelled during a run: the task must not run again.
    CancelledRunning,
    Ended,
}

impl<B, T> TaskCell<B, T> {
    /// Creates a waiting task and the completion of its result.
    pub(crate) fn new(event_loop: u32, body: B, deadline: u64) -> (Self, Completion<T>) {
        let (completer, completion) = completion(Some(event_loop));
        let state = Mutex::new(TaskState::Waiting(body, completer));
        (TaskCell { state, deadline: AtomicU64::new(deadline) }, completion)
    }

    /// Ends the task before its next run. Returns whether this call ended it.
    pub(crate) fn end(&self, why: Error) -> bool {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, TaskState::Ended) {
            TaskState::Waiting(body, completer) => {
                drop(state);
                drop_guarded(body);
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

    /// Takes the body of a one-shot task for its run. From here on the task cannot be cancelled.
    pub(crate) fn take(&self) -> Option<(B, Completer<T>)> {
        self.begin(TaskState::Ended)
    }

    /// Takes the body of a periodic task for one run, after which the caller puts it back.
    pub(crate) fn borrow(&self) -> Option<(B, Completer<T>)> {
        self.begin(TaskState::Running)
    }

    fn begin(&self, during_run: TaskState<B, T>) -> Option<(B, Completer<T>)> {
        let mut state = self.state.lock();
        match std::mem::replace(&mut *state, during_run) {
            TaskState::Waiting(body, completer) => Some((body, completer)),
            other => {
                *state = other;
                None
            }
        }
    }

    /// Puts a borrowed body back after a run that succeeded.
    ///
    /// # Errors
    /// `body` and `completer` if the task was cancelled during the run. The caller ends it.
    pub(crate) fn put_back(&self, body: B, completer: Completer<T>) -> Result<(), (B, Completer<T>)> {
        let mut state = self.state.lock();
        if matches!(*state, TaskState::Running) {
            *state = TaskState::Waiting(body, completer);
            return Ok(());
        }
        *state = TaskState::Ended;
        Err((body, completer))
    }

    /// Ends a task whose body is borrowed, after its last run.
    pub(crate) fn end_run(&self, body: B, completer: Completer<T>, why: Error) {
        *self.state.lock() = TaskState::Ended;
        drop_guarded(body);
        completer.complete(Err(why));
    }

    /// Returns whether the task is waiting for a run.
    pub(crate) fn is_waiting(&self) -> bool {
        matches!(*self.state.lock(), TaskState::Waiting(..))
    }

    /// Sets when the next run is due.
    pub(crate) fn set_deadline(&self, deadline: u64) {
        self.deadline.store(deadline, Ordering::Relaxed);
    }

    /// Returns when the next run is due. `None` if there is none, or none within the range of time.
    pub(crate) fn deadline(&self) -> Option<u64> {
        let deadline = self.deadline.load(Ordering::Relaxed);
        (deadline != NEVER && self.is_waiting()).then_some(deadline)
    }
}
