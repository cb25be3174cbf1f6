//! Tasks that get the handler back: scheduled ones, and results of blocking work.

use super::{Context, HandlerTask};
use crate::{
    Error, Result,
    channel::TaskKey,
    clock::nanos,
    error::SendError,
    pipeline::{
        handler::Handler,
        offload::{Answer, Offloaded},
    },
};
use std::time::Duration;

impl<H: Handler> Context<'_, H> {
    /// Runs `task` with this handler on this loop after `delay`. The task is dropped with the channel.
    ///
    /// It never runs within this call: a delay of zero runs it later in this turn or in the next one.
    /// The precision is the loop's lag: the loop sleeps in whole milliseconds and never wakes early.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # struct Session { user: Option<String> }
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes;
    /// #   type Write = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
    ///     ctx.schedule(std::time::Duration::from_secs(10), |me, ctx| {
    ///         if me.user.is_none() {
    ///             ctx.close();
    ///         }
    ///         Ok(())
    ///     });
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// The number of tasks and [timeouts](Context::timeout) of a channel is limited by
    /// [`max_scheduled_tasks`](crate::ChannelOptions::max_scheduled_tasks). A task beyond the limit is
    /// dropped, and [`Handler::error`] gets [`Full`](crate::Error::Full) when the running callback has
    /// returned. The returned key then names no task.
    pub fn schedule(
        &mut self,
        delay: Duration,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        // The time of the turn would be too early after a long callback.
        let deadline = self.services.time.now().saturating_add(nanos(delay));
        self.state.schedule(self.services, deadline, HandlerTask::boxed(task))
    }

    /// Schedules like [`schedule`](Context::schedule), but on the loop's wheel: coarse, and cheap to
    /// cancel.
    ///
    /// Use it for timeouts, which are many and are mostly cancelled. Arming and cancelling take the
    /// same few nanoseconds whatever their number. The task runs at the end of the wheel tick into
    /// which its deadline falls ([`wheel_tick`](crate::EventLoopGroupBuilder::wheel_tick), 100 ms by
    /// default). It is never early, and late by at most one tick and the loop's lag. The delay counts
    /// from the time of this turn ([`now`](Context::now)), so no clock is read.
    ///
    /// ```
    /// # use netwheel::{TaskKey, prelude::*};
    /// # struct Session { answer: Option<TaskKey> }
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes;
    /// #   type Write = bytes::Bytes;
    /// #   fn read(&mut self, ctx: &mut Context<'_, Self>, _: bytes::Bytes) -> Result {
    /// #       if let Some(answer) = self.answer.take() { ctx.cancel(answer); }
    /// #       Ok(())
    /// #   }
    /// # }
    /// # impl Session {
    /// # fn ask(&mut self, ctx: &mut Context<'_, Self>) -> Result {
    /// ctx.write("are you there?".into())?;
    /// self.answer = Some(ctx.timeout(std::time::Duration::from_secs(5), |_, ctx| {
    ///     ctx.close();
    ///     Ok(())
    /// }));
    /// # Ok(())
    /// # }
    /// # }
    /// ```
    pub fn timeout(
        &mut self,
        delay: Duration,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        let deadline = self.services.now.saturating_add(nanos(delay));
        self.state.time_out(self.services, deadline, HandlerTask::boxed(task))
    }

    /// Runs `work`, which may block, on a thread of the group's [`WorkerPool`](crate::WorkerPool).
    /// Then runs `then` with this handler and the result of the work, on this loop.
    ///
    /// Only `work` and its result are sent to another thread. `then` stays on the loop, so it may
    /// hold values that are not `Send`. Like a task of [`schedule`](Context::schedule) it never runs
    /// within a callback, and counts towards
    /// [`max_scheduled_tasks`](crate::ChannelOptions::max_scheduled_tasks) until it has run. The works
    /// of one channel run in parallel if the pool has threads. Their results are delivered in the
    /// order in which they are ready, also when the loop's queue is full.
    ///
    /// If the work panics, `then` gets [`Error::Panicked`].
    ///
    /// When the channel starts to close or the task is [cancelled](Context::cancel), the result is
    /// dropped. `then` is dropped as well: at once after a cancel, otherwise when the channel is
    /// closed. Work that has not started by then is dropped without running, by a worker or when the
    /// pool needs its place in the queue. Running work is not interrupted. A shutdown of the loop
    /// cancels scheduled tasks but not offloaded work: a handler that stays open in
    /// [`shutdown`](Handler::shutdown) gets the result.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # struct Session { user: Option<String> }
    /// # fn look_up(_: &[u8]) -> std::io::Result<String> { Ok(String::new()) }
    /// # impl Handler for Session {
    /// #   type Read = bytes::Bytes;
    /// #   type Write = bytes::Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, token: bytes::Bytes) -> Result {
    ///     ctx.offload(
    ///         move || look_up(&token), // on a worker: may block
    ///         |me, ctx, user| {
    ///             me.user = Some(user??); // on the loop: the work may have panicked, or failed
    ///             ctx.write("welcome".into())
    ///         },
    ///     )?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns the work and drops `then`: with [`Error::Full`] if the pool's queue is full or the
    /// channel has reached its limit of tasks; with [`Error::Closed`] if the channel is closing; with
    /// [`Error::Io`] if no thread can be started.
    pub fn offload<T, W>(
        &mut self,
        work: W,
        then: impl FnOnce(&mut H, &mut Context<'_, H>, Result<T>) -> Result + 'static,
    ) -> Result<TaskKey, SendError<W>>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let (state, services) = (&mut *self.state, &mut *self.services);
        if !state.status.is_open() {
            return Err(SendError::new(work, Error::Closed));
        }
        let answer = Answer::new();
        let cell = answer.downgrade();
        let task = HandlerTask::boxed(move |me: &mut H, ctx: &mut Context<'_, H>| match answer.take() {
            Some(result) => then(me, ctx, result),
            None => Ok(()),
        });
        let key = match state.await_worker(services, task) {
            Ok(key) => key,
            Err(reason) => return Err(SendError::new(work, reason)),
        };
        let work = Offloaded::new(work, cell, services.outlet.clone(), state.key(), key);
        match services.workers.submit(work) {
            Ok(()) => Ok(key),
            Err(refused) => {
                state.cancel(services, key);
                Err(refused.map(|offload| offload.work))
            }
        }
    }

    /// Cancels a scheduled task, a timeout or offloaded work, and drops it at once.
    ///
    /// Returns `false` if the task has run, was cancelled, or is running. If a worker has started the
    /// work, its result is dropped.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.cancel(self.services, task)
    }
}
