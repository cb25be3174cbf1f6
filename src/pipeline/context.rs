//! What a handler's callbacks may do.

use super::{Handler, Remote};
use crate::{
    Result,
    channel::{Scope, TaskKey},
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
    scope: Scope<'a, H::Out>,
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
    pub(crate) fn new(scope: Scope<'a, H::Out>) -> Self {
        Context { scope, handler: PhantomData }
    }

    /// A handle to this channel and its handler, for other channels and threads.
    pub fn remote(&mut self) -> Remote<H> {
        Remote::new(self.scope.channel())
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
    /// #   type In = bytes::Bytes;
    /// #   type Out = bytes::Bytes;
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
    /// #   type In = bytes::Bytes;
    /// #   type Out = bytes::Bytes;
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
}

impl<'a, H: Handler> Deref for Context<'a, H> {
    type Target = Scope<'a, H::Out>;

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
