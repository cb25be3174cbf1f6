//! Scheduled tasks, and the cancellation of all tasks.

use super::{Context, HandlerTask};
use crate::{
    Result,
    channel::{Delay, TaskKey, TaskTime},
    pipeline::handler::Handler,
};

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

    /// Cancels a task of this channel and drops it at once: a scheduled one, or one that waits for
    /// a result.
    ///
    /// Returns `false` if the task has run, was cancelled, or is running. A result that arrives
    /// later is dropped.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.cancel(self.services, task)
    }
}
