//! Scheduled tasks, and the cancellation of all tasks.

use super::{Context, HandlerTask};
use crate::{Result, channel::TaskKey, clock::nanos, pipeline::handler::Handler};
use std::time::Duration;

impl<H: Handler> Context<'_, H> {
    /// Runs `task` with this handler on this loop after `delay`. The task is dropped with the
    /// channel.
    ///
    /// It never runs within this call: a delay of zero runs it later in this turn or in the next
    /// one. The precision is the loop's lag: the loop sleeps in whole milliseconds and never wakes
    /// early.
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
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks). A task beyond
    /// the limit is dropped, and [`Handler::error`] gets [`Full`](crate::Error::Full) when the
    /// running callback has returned. The returned key then names no task.
    pub fn schedule(
        &mut self,
        delay: Duration,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        // The time of the turn would be too early after a long callback.
        let deadline = self.services.time.now().saturating_add(nanos(delay));
        self.state.schedule(self.services, deadline, HandlerTask::boxed(task))
    }

    /// Schedules like [`schedule`](Context::schedule), but on the loop's wheel: coarse, and cheap
    /// to cancel.
    ///
    /// Use it for timeouts, which are many and are mostly cancelled. Arming and cancelling take the
    /// same few nanoseconds whatever their number. The task runs at the end of the wheel tick into
    /// which its deadline falls ([`wheel_tick`](crate::group::EventLoopGroupBuilder::wheel_tick),
    /// 100 ms by default). It is never early, and late by at most one tick and the loop's lag. The
    /// delay counts from the time of this turn ([`now`](Context::now)), so no clock is read.
    ///
    /// ```
    /// # use netwheel::{channel::TaskKey, prelude::*};
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

    /// Cancels a task of this channel and drops it at once: a scheduled one, or one that waits for
    /// a result.
    ///
    /// Returns `false` if the task has run, was cancelled, or is running. A result that arrives
    /// later is dropped.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.cancel(self.services, task)
    }
}
