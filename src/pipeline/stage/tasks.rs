//! Tasks of a stage: a delay, a worker's result or a completion gives the stage back.
//!
//! They are tasks of the channel, like those of the handler: dropped with the channel or its
//! pipeline, cancelled by key, and bounded by `max_scheduled_tasks`.

use super::{Stage, context::StageContext};
use crate::{
    channel::{Delay, Periodic, TaskKey, TaskTime},
    error::{Result, SendError},
    pipeline::{
        answer_waker::{await_completion, key_of},
        offload::offload,
    },
    sync::{Completer, Completion},
};
use std::any::Any;

type StageClosure<S> = Box<dyn FnOnce(&mut S, &mut StageContext<'_, S>) -> Result>;

type PeriodicStageClosure<S> = Box<dyn FnMut(&mut S, &mut StageContext<'_, S>) -> Result>;

/// A task of a stage `S`.
pub(in crate::pipeline) struct StageTask<S: Stage> {
    /// The position of the stage, because a pipeline may have several stages of one type.
    pub(in crate::pipeline) position: u32,
    pub(in crate::pipeline) task: StageClosure<S>,
}

/// A periodic task of a stage `S`.
pub(in crate::pipeline) struct PeriodicStageTask<S: Stage> {
    pub(in crate::pipeline) position: u32,
    pub(in crate::pipeline) task: PeriodicStageClosure<S>,
}

impl<S: Stage> StageTask<S> {
    /// Returns the task as a channel keeps it.
    fn boxed(
        position: u32,
        task: impl FnOnce(&mut S, &mut StageContext<'_, S>) -> Result + 'static,
    ) -> Box<dyn Any> {
        Box::new(StageTask::<S> { position, task: Box::new(task) })
    }
}

impl<S: Stage> StageContext<'_, S> {
    /// Runs `task` on this loop after `delay`, with this stage. The task is dropped with the
    /// channel or its pipeline.
    ///
    /// The task never runs within this call: a delay of zero means later in this turn, or in the
    /// next one. It is never early. [`Delay`] says how late it may be.
    ///
    /// The tasks of all stages and of the handler count towards
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks). Beyond that
    /// limit the task is dropped, the returned key refers to nothing, and
    /// [`Error::Full`](crate::Error::Full) goes to [`error`](Stage::error) after the running
    /// callback.
    pub fn schedule(
        &mut self,
        delay: impl Into<Delay>,
        task: impl FnOnce(&mut S, &mut StageContext<'_, S>) -> Result + 'static,
    ) -> TaskKey {
        let task = StageTask::<S>::boxed(self.position, task);
        let when = TaskTime::after(delay.into(), self.services);
        self.state.schedule(self.services, when, task)
    }

    /// Runs `task` with this stage on this loop again and again, as `periodic` says.
    ///
    /// Works like [`Context::schedule_periodic`](crate::Context::schedule_periodic). An error that
    /// the task returns goes to [`error`](Stage::error).
    ///
    /// # Errors
    /// The errors of [`Context::schedule_periodic`](crate::Context::schedule_periodic).
    pub fn schedule_periodic(
        &mut self,
        periodic: impl Into<Periodic>,
        task: impl FnMut(&mut S, &mut StageContext<'_, S>) -> Result + 'static,
    ) -> Result<TaskKey> {
        let task = PeriodicStageTask::<S> { position: self.position, task: Box::new(task) };
        self.state.schedule_periodic(self.services, periodic.into(), Box::new(task))
    }

    /// Runs `work`, which may block, on the group's [`WorkerPool`](crate::worker_pool::WorkerPool).
    /// Then runs `then` on this loop, with this stage and the result of the work.
    ///
    /// Works like [`Context::offload`](crate::Context::offload), with the stage in place of the
    /// handler. [`Stage`] has an example.
    ///
    /// # Errors
    /// The errors of [`Context::offload`](crate::Context::offload): the work is handed back, and
    /// `then` is dropped.
    pub fn offload<T, W>(
        &mut self,
        work: W,
        then: impl FnOnce(&mut S, &mut StageContext<'_, S>, Result<T>) -> Result + 'static,
    ) -> Result<TaskKey, SendError<W>>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let position = self.position;
        offload(self.state, self.services, work, |answer| {
            StageTask::<S>::boxed(position, move |me, ctx| match answer.take() {
                Some(result) => then(me, ctx, result),
                None => Ok(()),
            })
        })
    }

    /// Runs `then` with this stage and the result of `completion`, on this loop.
    ///
    /// Works like [`Context::on_complete`](crate::Context::on_complete): the completion belongs to
    /// the task, so cancelling the task or closing the channel drops it, which cancels an operation
    /// that can be cancelled. Beyond
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks) both are
    /// dropped, and [`Error::Full`](crate::Error::Full) goes to [`error`](Stage::error) after the
    /// running callback.
    pub fn on_complete<T: 'static>(
        &mut self,
        completion: Completion<T>,
        then: impl FnOnce(&mut S, &mut StageContext<'_, S>, Result<T>) -> Result + 'static,
    ) -> TaskKey {
        let position = self.position;
        let task = await_completion(self.state, self.services, completion, |completion| {
            StageTask::<S>::boxed(position, move |me, ctx| match completion.take() {
                Some(result) => then(me, ctx, result),
                None => Ok(()),
            })
        });
        key_of(self.state, task)
    }

    /// Creates a completion and the completer that delivers its result, for
    /// [`on_complete`](StageContext::on_complete): another thread that holds the completer can give
    /// this stage a value.
    ///
    /// Waiting for the completion on this loop fails with
    /// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), because this channel is assumed to
    /// complete it.
    pub fn completer<T>(&self) -> (Completer<T>, Completion<T>) {
        Completer::new(self.state.id().event_loop)
    }

    /// Cancels a task and drops it. Returns `false` if it has run, is running or was cancelled.
    ///
    /// Offloaded work that has started is not interrupted; its result is dropped.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.timing.cancel(self.services, task)
    }
}
