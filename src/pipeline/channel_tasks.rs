//! Tasks of threads that know a channel's messages, but not its handler.

use super::{
    ChannelContext, handle_task,
    handler::{AnyHandler, RemoteTask},
};
use crate::{
    channel::{Channel, ChannelStats, Confirmation, Delay, Mail, Periodic, ScheduledTask},
    error::Result,
    sync::Completion,
};

impl<M: 'static> Channel<M> {
    /// Runs `task` on the channel's loop, between two callbacks of its handler.
    ///
    /// Requests of one thread to a channel are handled in order. An error of the task goes to
    /// [`Handler::error`](crate::Handler::error).
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed) if the channel is closed,
    /// [`PipelineReplaced`](crate::Error::PipelineReplaced) if its pipeline was replaced by one
    /// with another type of messages, [`Full`](crate::Error::Full) if the loop's queue is full. The
    /// task is dropped.
    pub fn execute(
        &self,
        task: impl FnOnce(&mut ChannelContext<'_, M>) -> Result + Send + 'static,
    ) -> Result {
        self.deliver(Mail::Run(RemoteTask::<AnyHandler<M>>::boxed(move |_, ctx| task(ctx))))
    }

    /// Runs `task` on the channel's loop after `delay`, between two callbacks of its handler.
    ///
    /// Returns a handle that [cancels](ScheduledTask::cancel) the task, tells its
    /// [remaining](ScheduledTask::remaining) delay, and whose
    /// [completion](ScheduledTask::completion) delivers its value. Dropping the handle does not
    /// cancel the task. Closing the channel does, and so does
    /// [replacing](crate::Context::replace_pipeline) its pipeline.
    ///
    /// Both kinds of [`Delay`] count from this call. The task is never early. An error of the task
    /// completes it, and also goes to [`Handler::error`](crate::Handler::error), which closes the
    /// channel by default. A panic closes the channel.
    ///
    /// ```
    /// use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
    /// use std::time::Duration;
    ///
    /// let mut session = EmbeddedChannel::new(Pipeline::codec(Line::new()).on_read(|_, _| Ok(())));
    /// let channel = session.channel();
    /// let second = Duration::from_secs(1);
    ///
    /// let greeting = channel.schedule(second, |ctx| {
    ///     ctx.write("hello".into())?;
    ///     Ok(ctx.id())
    /// })?;
    /// let goodbye = channel.schedule(2 * second, |ctx| Ok(ctx.close()))?;
    /// assert!(goodbye.cancel());
    ///
    /// session.advance(2 * second);
    /// assert_eq!(session.read_outbound(), "hello\n");
    /// assert_eq!(greeting.completion().wait()?, channel.id());
    /// assert!(channel.is_open());
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Full`](crate::Error::Full) if
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks) tasks of
    /// handles are pending. Otherwise the errors of [`execute`](Channel::execute). The task is
    /// dropped, and the channel is not affected. If tasks of the handler use up the remainder of
    /// that limit, the completion fails with `Full` when the task reaches the loop.
    #[doc(alias = "scheduleTask")]
    #[track_caller]
    pub fn schedule<T: Send + 'static>(
        &self,
        delay: impl Into<Delay>,
        task: impl FnOnce(&mut ChannelContext<'_, M>) -> Result<T> + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        handle_task::schedule::<AnyHandler<M>, T>(self, delay.into(), |_, ctx| task(ctx))
    }

    /// Runs `task` on the channel's loop again and again, as `periodic` says. A `Duration` is the
    /// period of a [fixed rate](Periodic::fixed_rate).
    ///
    /// The task ends with the channel, and when its pipeline is
    /// [replaced](crate::Context::replace_pipeline). It also ends when it is
    /// [cancelled](ScheduledTask::cancel), returns an error or panics. Its completion then fails
    /// with the reason. An error also goes to [`Handler::error`](crate::Handler::error), which
    /// closes the channel by default, except [`Cancelled`](crate::Error::Cancelled): a task returns
    /// it to end itself. A panic closes the channel.
    ///
    /// The task counts as one of
    /// [`max_scheduled_tasks`](crate::channel::ChannelOptions::max_scheduled_tasks). Runs are not
    /// early. Dropping the handle does not end the task.
    ///
    /// ```
    /// use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
    /// use std::time::Duration;
    ///
    /// let mut session = EmbeddedChannel::new(Pipeline::codec(Line::new()).on_read(|_, _| Ok(())));
    /// let second = Duration::from_secs(1);
    /// let tick = session.channel().schedule_periodic(second, |ctx| ctx.write("tick".into()))?;
    /// session.advance(3 * second);
    /// assert_eq!(session.read_outbound(), "tick\ntick\ntick\n");
    /// assert!(tick.cancel());
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Setting`](crate::Error::Setting) if the period or delay is zero or shorter than the
    /// jitter. Otherwise those of [`schedule`](Channel::schedule).
    #[doc(alias = "scheduleAtFixedRate")]
    #[doc(alias = "scheduleWithFixedDelay")]
    #[track_caller]
    pub fn schedule_periodic(
        &self,
        periodic: impl Into<Periodic>,
        mut task: impl FnMut(&mut ChannelContext<'_, M>) -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        handle_task::schedule_periodic::<AnyHandler<M>>(self, periodic.into(), move |_, ctx| task(ctx))
    }

    /// Returns the traffic of the channel so far, as its loop knows it behind this thread's earlier
    /// requests.
    ///
    /// The completion fails with [`Closed`](crate::Error::Closed) if the channel is closed and with
    /// [`Full`](crate::Error::Full) if the loop's queue is full. A handler reads the final values
    /// in [`inactive`](crate::Handler::inactive) ([`Context::stats`](crate::Context::stats)).
    pub fn stats(&self) -> Completion<ChannelStats> {
        let (confirmation, completion) = Confirmation::new(self.id().event_loop);
        let requested = self.execute(move |ctx| {
            confirmation.complete(Ok(ctx.stats()));
            Ok(())
        });
        match requested {
            Ok(()) => completion,
            Err(refused) => Completion::ready(Err(refused)),
        }
    }
}
