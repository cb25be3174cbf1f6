//! Work that blocks, on its way from a handler to a worker, and the answer on its way back.
//!
//! Always holds: only the work and its answer cross threads; what the handler does with the answer stays on the loop, among
//! the channel's tasks, and goes with the channel. The two know each other by a cell that the task owns: where that is gone,
//! nobody wants the work. The work runs on a worker, everything else on the loop.

use crate::{
    Error, Result,
    channel::{Mail, MailSender, TaskKey},
    error::{drop_guarded, panic_message},
    id::Key,
    worker_pool::Work,
};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, Weak},
};

/// Where the answer is put.
pub(in crate::pipeline) struct Answer<T>(Arc<Mutex<Option<Result<T>>>>);

impl<T> Answer<T> {
    pub(in crate::pipeline) fn new() -> Self {
        Answer(Arc::new(Mutex::new(None)))
    }

    /// The answer, once it is there.
    pub(in crate::pipeline) fn take(self) -> Option<Result<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// A work of a channel.
pub(in crate::pipeline) struct Offloaded<W, T> {
    pub(in crate::pipeline) work: W,
    answer: Weak<Mutex<Option<Result<T>>>>,
    outlet: Arc<dyn MailSender>,
    channel: Key,
    task: TaskKey,
}

impl<W, T> Offloaded<W, T> {
    pub(in crate::pipeline) fn new(
        work: W,
        answer: Weak<Mutex<Option<Result<T>>>>,
        outlet: Arc<dyn MailSender>,
        channel: Key,
        task: TaskKey,
    ) -> Self {
        Offloaded { work, answer, outlet, channel, task }
    }
}

impl<T> Answer<T> {
    pub(in crate::pipeline) fn downgrade(&self) -> Weak<Mutex<Option<Result<T>>>> {
        Arc::downgrade(&self.0)
    }
}

impl<T: Send, W: FnOnce() -> T + Send> Work for Offloaded<W, T> {
    fn is_wanted(&self) -> bool {
        self.answer.strong_count() > 0
    }

    fn run(self: Box<Self>) -> bool {
        let Offloaded { work, answer, outlet, channel, task } = *self;
        let result = catch_unwind(AssertUnwindSafe(work));
        let result = result.map_err(|panic| Error::Panicked(panic_message(panic)));
        let panicked = result.is_err();
        let Some(cell) = answer.upgrade() else {
            drop_guarded(result);
            return panicked;
        };
        *cell.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        // Should the channel go just now, what is in the cell is dropped here.
        drop_guarded(cell);
        // A loop that has ended has nobody left who would wait.
        let _ = outlet.deliver(channel, Mail::Answer(task));
        panicked
    }
}
