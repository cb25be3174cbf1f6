//! Blocking work that a handler passes to a worker, and the result that returns to the handler.
//!
//! `ctx.offload(work, then)` creates three parts:
//! - `then` becomes a task of the channel, like a scheduled task. It stays on the loop, is dropped
//!   with the channel, can be cancelled, and counts towards the limit of tasks.
//! - The task owns a cell for the result.
//! - `work` enters the queue of the pool with a weak reference to the cell.
//!
//! The worker looks at the cell first. If it is gone, the channel has closed or cancelled the task,
//! and the work is dropped without running. Otherwise the worker runs it, puts the result into the
//! cell and sends mail that names the task. A full queue accepts this mail, because there is at
//! most one for each task. The task then takes the result from its own cell.
//!
//! A shutdown does not cancel offloaded work, because that work may produce a reply that is in
//! flight. Closing the channel drops it, and the default `Handler::shutdown` closes the channel.
//!
//! Invariant: only the work and its result cross threads, so only they have to be `Send`. The work
//! runs on a worker, everything else on the loop.

use crate::{
    channel::{ChannelState, LoopServices, Mail, MailSender, TaskKey},
    error::{Error, Result, SendError, drop_guarded, panic_message},
    id::Key,
    machine::Mutex,
    worker_pool::Work,
};
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Weak},
};

/// Where the answer is put.
pub(in crate::pipeline) struct Answer<T>(Arc<Mutex<Option<Result<T>>>>);

impl<T> Answer<T> {
    /// The answer, once it is there.
    pub(in crate::pipeline) fn take(self) -> Option<Result<T>> {
        self.0.lock().take()
    }
}

/// A work of a channel.
struct Offloaded<W, T> {
    work: W,
    answer: Weak<Mutex<Option<Result<T>>>>,
    sender: Arc<dyn MailSender>,
    channel: Key,
    task: TaskKey,
}

/// Passes work to the group's pool. The task that `make` creates runs with the answer.
///
/// # Errors
/// The work, if the channel is closing, has reached its limit of tasks, or if the pool is full. The
/// task is dropped.
pub(in crate::pipeline) fn offload<T, W>(
    state: &mut ChannelState,
    services: &mut LoopServices,
    work: W,
    make: impl FnOnce(Answer<T>) -> Box<dyn Any>,
) -> Result<TaskKey, SendError<W>>
where
    T: Send + 'static,
    W: FnOnce() -> T + Send + 'static,
{
    let cell = Arc::new(Mutex::new(None));
    let answer = Arc::downgrade(&cell);
    let task = match state.await_answer(services, |_| make(Answer(cell))) {
        Ok(task) => task,
        Err(reason) => return Err(SendError::new(work, reason)),
    };
    let work = Offloaded { work, answer, sender: services.sender.clone(), channel: state.key(), task };
    match services.workers.submit(work) {
        Ok(()) => Ok(task),
        Err(refused) => {
            state.timing.cancel(services, task);
            Err(refused.map(|offloaded| offloaded.work))
        }
    }
}

impl<T: Send, W: FnOnce() -> T + Send> Work for Offloaded<W, T> {
    fn is_wanted(&self) -> bool {
        self.answer.strong_count() > 0
    }

    fn run(self: Box<Self>) -> bool {
        let Offloaded { work, answer, sender, channel, task } = *self;
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = result.map_err(|panic| Error::panicked(panic_message(panic)));
        let panicked = result.is_err();
        let Some(cell) = answer.upgrade() else {
            drop_guarded(result);
            return panicked;
        };
        *cell.lock() = Some(result);
        // If the channel closes at this moment, the result is dropped here.
        drop_guarded(cell);
        // If the loop has ended, so has the channel.
        let _ = sender.deliver(channel, Mail::Answer(task));
        panicked
    }
}
