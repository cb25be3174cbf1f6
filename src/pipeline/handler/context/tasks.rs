//! Scheduled tasks, and the cancellation of all tasks.

use super::{
    Context,
    handler_task::{HandlerTask, PeriodicHandlerTask},
};
use crate::{
    channel::{Delay, Periodic, TaskKey, TaskTime},
    error::Result,
    pipeline::handler::Handler,
};
use std::time::Instant;

impl<H: Handler> Context<'_, H> {
    /// Runs `task` with this handler on this loop after `delay`. The task is dropped with the
    /// channel.
    ///
    /// It never runs within this call: a delay of zero runs it later in this turn or in the next
    /// one. The task is never early. [`Delay`] says how late it may be: a `Duration` has the
    /// precision of the loop, and [`Delay::coarse`] is for timeouts, which are many and are mostly
    /// cancelled.
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
    /// The number of tasks of a channel is limited by
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks). A task beyond
    /// the limit is dropped, and [`Handler::error`] gets [`Full`](crate::Error::Full) when the
    /// running callback has returned. The returned key then names no task.
    #[doc(alias = "timeout")]
    #[doc(alias = "scheduleTask")]
    pub fn schedule(
        &mut self,
        delay: impl Into<Delay>,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        let when = TaskTime::after(delay.into(), self.services);
        self.state.schedule(self.services, when, HandlerTask::boxed(task))
    }

    /// Runs `task` with this handler on this loop again and again, as `periodic` says. A `Duration`
    /// is the period of a [fixed rate](Periodic::fixed_rate).
    ///
    /// The task ends with the channel, and when the pipeline is
    /// [replaced](Context::replace_pipeline). It also ends when it is [cancelled](Context::cancel)
    /// or returns an error, which goes to [`Handler::error`].
    /// [`Error::Cancelled`](crate::Error::Cancelled) does not: a task returns it to end itself. A
    /// panic closes the channel.
    ///
    /// Runs are not early, and not within a callback. A run that is late does not move the next
    /// ones of a fixed rate. [`MissedRuns`](crate::time::MissedRuns) determines the handling of
    /// runs whose time has passed. The task counts as one of
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks).
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # struct Ticker;
    /// # impl Handler for Ticker {
    /// #   type Read = bytes::Bytes;
    /// #   type Write = bytes::Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
    ///     let second = std::time::Duration::from_secs(1);
    ///     ctx.schedule_periodic(second, |_me, ctx| ctx.write("tick".into()))?;
    ///     Ok(())
    /// }
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if the period or delay is zero or shorter than the
    /// jitter. [`Error::Full`](crate::Error::Full) if the limit of tasks is reached.
    /// [`Error::Closed`](crate::Error::Closed) if the channel is closing. The task is dropped.
    #[doc(alias = "scheduleAtFixedRate")]
    #[doc(alias = "scheduleWithFixedDelay")]
    #[doc(alias = "interval")]
    pub fn schedule_periodic(
        &mut self,
        periodic: impl Into<Periodic>,
        task: impl FnMut(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> Result<TaskKey> {
        self.state.schedule_periodic(self.services, periodic.into(), PeriodicHandlerTask::boxed(task))
    }

    /// Returns the time at which a scheduled task is due next, on the loop's clock. `None` if it
    /// has ended, is running, or waits for a result.
    pub fn deadline(&self, task: TaskKey) -> Option<Instant> {
        let deadline = self.state.timing.task_deadline(self.services, task)?;
        Some(self.services.time.instant(deadline))
    }

    /// Cancels a task of this channel and drops it at once: a scheduled one, or one that waits for
    /// a result. A periodic task that is running is dropped after the run.
    ///
    /// Returns `false` if the task has run, was cancelled, or is running and not periodic. A result
    /// that arrives later is dropped.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.timing.cancel(self.services, task)
    }
}
