//! Tasks of threads that know a channel's messages, but not its handler.

use super::handler::{AnyHandler, ChannelContext, RemoteTask};
use crate::{
    Result,
    channel::{Channel, ChannelStats, Confirmation, Delay, Mail, TaskTime},
    sync::Completion,
};
use std::any::Any;

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
        self.deliver(Mail::Run(any_task(task)))
    }

    /// Runs `task` on the channel's loop after `delay`. The task is dropped if the channel closes
    /// or its pipeline is replaced before.
    ///
    /// Both kinds of [`Delay`] count from this call.
    ///
    /// # Errors
    /// Those of [`execute`](Channel::execute).
    pub fn schedule(
        &self,
        delay: impl Into<Delay>,
        task: impl FnOnce(&mut ChannelContext<'_, M>) -> Result + Send + 'static,
    ) -> Result {
        let task = any_task(task);
        self.deliver(match TaskTime::at(delay.into(), self.now()) {
            TaskTime::Exact(deadline) => Mail::Schedule(deadline, task),
            TaskTime::Coarse(deadline) => Mail::ScheduleCoarse(deadline, task),
        })
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

fn any_task<M: 'static>(
    task: impl FnOnce(&mut ChannelContext<'_, M>) -> Result + Send + 'static,
) -> Box<dyn Any + Send> {
    RemoteTask::<AnyHandler<M>>::boxed(move |_, ctx| task(ctx))
}
