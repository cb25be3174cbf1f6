//! The operations of a handler's callbacks.

use super::Handler;
use crate::{
    Error, Result,
    channel::{Scope, TaskKey},
    error::SendError,
    pipeline::offload::{Answer, Offloaded},
};
use std::{
    any::Any,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// The channel, as a callback of handler `H` sees it: everything of [`Scope`], and tasks that get the handler
/// back.
pub struct Context<'a, H: Handler> {
    scope: Scope<'a, H::Write>,
    handler: PhantomData<fn(&mut H)>,
}

/// A scheduled task of handler `H`.
pub(crate) struct HandlerTask<H: Handler>(HandlerClosure<H>);

type HandlerClosure<H> = Box<dyn FnOnce(&mut H, &mut Context<'_, H>) -> Result>;

impl<H: Handler> HandlerTask<H> {
    pub(crate) fn run(self, handler: &mut H, ctx: &mut Context<'_, H>) -> Result {
        (self.0)(handler, ctx)
    }
}

impl<'a, H: Handler> Context<'a, H> {
    pub(crate) fn new(scope: Scope<'a, H::Write>) -> Self {
        Context { scope, handler: PhantomData }
    }

    /// Runs `task` on this loop after `delay`, with this very handler; dropped with the channel.
    ///
    /// It is never run from within this call: a delay of zero means later in this turn or in the next one. It is
    /// exact to the loop's lag (the loop sleeps in whole milliseconds and never wakes early).
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
    /// A channel may have so many of these and of [timeouts](Context::timeout) as
    /// [`max_scheduled_tasks`](crate::ChannelOptions::max_scheduled_tasks) says. One more is dropped, and the handler's
    /// [`error`](Handler::error) is told [`Full`](crate::Error::Full) when the running callback has returned; the key
    /// that is returned then names nothing.
    pub fn schedule(
        &mut self,
        delay: Duration,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        let task: Box<dyn Any> = Box::new(HandlerTask::<H>(Box::new(task)));
        self.scope.schedule_any(delay, task)
    }

    /// As [`schedule`](Context::schedule), but coarse: on the loop's wheel, where arming and cancelling take the same few
    /// nanoseconds however many there are.
    ///
    /// For timeouts, which are many and are mostly cancelled. It runs when the tick of the wheel
    /// ([`wheel_tick`](crate::EventLoopGroupBuilder::wheel_tick), 100 ms unless set otherwise) is over into which its
    /// deadline falls: never early, late by at most a tick and the loop's lag. The delay counts from the time of this
    /// turn ([`now`](Scope::now)), so that no clock is read.
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
        let task: Box<dyn Any> = Box::new(HandlerTask::<H>(Box::new(task)));
        self.scope.time_out_any(delay, task)
    }

    /// Runs `work`, which may block, on a thread of the group's [`WorkerPool`](crate::WorkerPool), and then `then` on this
    /// loop, with this very handler and what the work has returned.
    ///
    /// Only `work` and what it returns are sent to another thread; `then` stays here, so it may hold what is not `Send`.
    /// It is a task of the channel as those of [`schedule`](Context::schedule) are: never run from within a callback, and
    /// counted by [`max_scheduled_tasks`](crate::ChannelOptions::max_scheduled_tasks) until it has run. Works of one
    /// channel run at the same time if the pool has threads; their answers come in the order in which they are ready. An
    /// answer reaches the channel also when the loop's queue is full.
    ///
    /// If the work panics `then` gets [`Error::Panicked`], and nobody else notices.
    ///
    /// When the channel begins to close, or the task is [cancelled](Scope::cancel), nobody waits for the answer any more:
    /// it is dropped. Once the channel is closed, or at once after a cancel, `then` is dropped too, and a work that has not
    /// begun is dropped unrun, on a worker or when its place in the queue is wanted. One that runs is not interrupted. A
    /// shutdown of the loop does not cancel it, as it does scheduled tasks: a handler that stays open in
    /// [`shutdown`](Handler::shutdown) has the answer, one that closes has not.
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
    /// The work comes back, and `then` is dropped: with [`Error::Full`] if the pool has as many works waiting as it may, or
    /// the channel as many tasks; with [`Error::Closed`] if the channel is closing; with [`Error::Io`] if no thread can be
    /// started.
    pub fn offload<T, W>(
        &mut self,
        work: W,
        then: impl FnOnce(&mut H, &mut Context<'_, H>, Result<T>) -> Result + 'static,
    ) -> Result<TaskKey, SendError<W>>
    where
        T: Send + 'static,
        W: FnOnce() -> T + Send + 'static,
    {
        let Scope { state, services, .. } = &mut self.scope;
        if !state.status.is_open() {
            return Err(SendError::new(work, Error::Closed));
        }
        let answer = Answer::new();
        let cell = answer.downgrade();
        let task = move |me: &mut H, ctx: &mut Context<'_, H>| match answer.take() {
            Some(result) => then(me, ctx, result),
            None => Ok(()),
        };
        let task: Box<dyn Any> = Box::new(HandlerTask::<H>(Box::new(task)));
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
}

impl<'a, H: Handler> Deref for Context<'a, H> {
    type Target = Scope<'a, H::Write>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.scope
    }
}

impl<H: Handler> DerefMut for Context<'_, H> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.scope
    }
}
