//! The handle to a channel and its handler, so that one session can call another one.
//!
//! Invariants: the handler is called only on its own loop, between its callbacks. A task whose
//! channel is gone is dropped, with the values that it holds. A caller that waits for an answer
//! gets a result in any case.

use super::{
    Context, handle_task,
    handler::{Handler, RemoteTask},
};
use crate::{
    channel::{Channel, Confirmation, Delay, Mail, Periodic, ScheduledTask},
    error::{Error, Result},
    sync::{Completer, Completion},
};
use std::fmt;

/// A handle to a channel and its handler `H`, for other channels and threads.
///
/// Returned by [`Context::handler_ref`]. A [`Channel`] handle knows only the messages of its
/// channel. This one also reaches the handler: a session can pass a value to another session, which
/// may be on another loop, and neither needs a lock.
///
/// | method | answer |
/// |---|---|
/// | [`execute`](HandlerRef::execute) | none |
/// | [`call`](HandlerRef::call) | the return value of the closure |
/// | [`request`](HandlerRef::request) | later, when the handler uses the [`Completer`] that it gets |
/// | [`schedule`](HandlerRef::schedule) | the return value of the closure, which runs after a delay |
/// | [`schedule_periodic`](HandlerRef::schedule_periodic) | the error that ends the task |
///
/// ```
/// use netwheel::{HandlerRef, prelude::*};
///
/// struct Session { unread: Vec<String> }
///
/// fn tell(other: &HandlerRef<Session>, text: String) -> Result {
///     other.execute(move |session, ctx| {
///         ctx.write(bytes::Bytes::from_static(b"you have mail\n"))?;
///         session.unread.push(text);
///         Ok(())
///     })
/// }
/// # impl Handler for Session {
/// #     type Read = bytes::Bytes;
/// #     type Write = bytes::Bytes;
/// #     fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
/// # }
/// ```
#[doc(alias = "Remote")]
#[doc(alias = "ActorRef")]
pub struct HandlerRef<H: Handler> {
    channel: Channel<H::Write>,
}

impl<H: Handler> HandlerRef<H> {
    /// `channel` must be one whose handler is an `H`.
    fn new(channel: Channel<H::Write>) -> Self {
        HandlerRef { channel }
    }

    /// Returns the handle to the channel.
    pub fn channel(&self) -> &Channel<H::Write> {
        &self.channel
    }

    /// Runs `task` with the handler, on the channel's loop, between two callbacks.
    ///
    /// Requests of one thread to a channel are handled in order. An error of the task goes to
    /// [`Handler::error`]. The task is dropped if the channel closes before it runs, or if its
    /// pipeline is [replaced](Context::replace_pipeline) by one with another type of handler. Use
    /// [`call`](HandlerRef::call) to learn about that.
    ///
    /// # Errors
    /// [`Closed`](Error::Closed) if the channel is closed,
    /// [`PipelineReplaced`](Error::PipelineReplaced) if its handler is no longer an `H`,
    /// [`Full`](Error::Full) if the loop's queue is full. The task is dropped.
    pub fn execute(
        &self,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + Send + 'static,
    ) -> Result {
        self.check_handler()?;
        self.channel.deliver(Mail::Run(RemoteTask::<H>::boxed(task)))
    }

    /// Runs `task` with the handler, and returns its result to the caller.
    ///
    /// `task` runs like a task of [`execute`](HandlerRef::execute), but its error goes to the
    /// caller and not to [`Handler::error`]. Dropping the pending completion cancels the call:
    /// `task` is dropped without running, unless it has run. [`detach`](Completion::detach) lets it
    /// run. Waiting on the channel's own loop fails with [`WouldDeadlock`](Error::WouldDeadlock).
    ///
    /// The completion fails with the errors of [`execute`](HandlerRef::execute), and with
    /// [`Closed`](Error::Closed) if the task is dropped or panics.
    ///
    /// ```
    /// # use netwheel::{HandlerRef, prelude::*};
    /// # struct Session { unread: Vec<String> }
    /// # impl Handler for Session {
    /// #     type Read = bytes::Bytes;
    /// #     type Write = bytes::Bytes;
    /// #     fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
    /// # }
    /// async fn unread(session: &HandlerRef<Session>) -> Result<usize> {
    ///     session.call(|me, _| Ok(me.unread.len())).await
    /// }
    /// ```
    pub fn call<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result<T> + Send + 'static,
    ) -> Completion<T> {
        self.ask(|me, ctx, confirmation| {
            confirmation.complete(task(me, ctx));
            Ok(())
        })
    }

    /// Runs `task` with the handler, which answers now or later with the [`Completer`].
    ///
    /// Use it for protocols in which the answer is another message: the handler sends the request,
    /// keeps the completer, and completes it when the answer arrives; [`Completer`] has an example.
    /// `task` runs like a task of [`execute`](HandlerRef::execute), and its error goes to
    /// [`Handler::error`].
    ///
    /// Dropping the pending completion cancels the request. `task` is dropped without running if it
    /// has not run. Afterwards [`Completer::is_cancelled`] returns `true`, so the handler can
    /// remove its entry. A handler that keeps completers should limit their number, and let callers
    /// set a timeout, for example with [`Completion::wait_timeout`].
    ///
    /// The completion fails with the errors of [`execute`](HandlerRef::execute), or with
    /// [`Closed`](Error::Closed) if the task is dropped before it runs. It fails with
    /// [`Cancelled`](Error::Cancelled) if the completer is dropped, for example when the channel
    /// closes and drops its handler.
    pub fn request<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut H, &mut Context<'_, H>, Completer<T>) -> Result + Send + 'static,
    ) -> Completion<T> {
        self.ask(|me, ctx, confirmation| task(me, ctx, confirmation.into_completer()))
    }

    /// Runs `task` with the handler after `delay`, on the channel's loop.
    ///
    /// Like [`Channel::schedule`], with the handler. The task is dropped if the pipeline is
    /// [replaced](Context::replace_pipeline) before it runs.
    ///
    /// # Errors
    /// [`Full`](Error::Full) if too many tasks are pending, as for [`Channel::schedule`]. Otherwise
    /// the errors of [`execute`](HandlerRef::execute).
    #[track_caller]
    pub fn schedule<T: Send + 'static>(
        &self,
        delay: impl Into<Delay>,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result<T> + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        self.check_handler()?;
        handle_task::schedule(&self.channel, delay.into(), task)
    }

    /// Runs `task` with the handler again and again, as `periodic` says.
    ///
    /// Like [`Channel::schedule_periodic`], with the handler.
    ///
    /// # Errors
    /// [`Setting`](Error::Setting) if the period or delay is zero or shorter than the jitter.
    /// Otherwise those of [`schedule`](HandlerRef::schedule).
    #[track_caller]
    pub fn schedule_periodic(
        &self,
        periodic: impl Into<Periodic>,
        task: impl FnMut(&mut H, &mut Context<'_, H>) -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        self.check_handler()?;
        handle_task::schedule_periodic(&self.channel, periodic.into(), task)
    }

    /// # Errors
    /// [`Error::PipelineReplaced`] if the handler is no longer an `H`.
    fn check_handler(&self) -> Result {
        if self.channel.fits_handler::<H>() { Ok(()) } else { Err(Error::PipelineReplaced) }
    }

    /// Runs `task` unless it is cancelled before.
    fn ask<T: Send + 'static>(
        &self,
        task: impl FnOnce(&mut H, &mut Context<'_, H>, Confirmation<T>) -> Result + Send + 'static,
    ) -> Completion<T> {
        let (confirmation, completion) = Confirmation::cancellable(self.channel.id().event_loop);
        let sent = self.execute(move |me, ctx| {
            if confirmation.is_cancelled() {
                return Ok(());
            }
            task(me, ctx, confirmation)
        });
        match sent {
            Ok(()) => completion,
            Err(reason) => Completion::ready(Err(reason)),
        }
    }
}

impl<H: Handler> Context<'_, H> {
    /// Returns a handle to this channel and its handler, for other channels and threads.
    pub fn handler_ref(&self) -> HandlerRef<H> {
        HandlerRef::new(self.channel())
    }
}

impl<H: Handler> Clone for HandlerRef<H> {
    fn clone(&self) -> Self {
        HandlerRef { channel: self.channel.clone() }
    }
}

impl<H: Handler> fmt::Debug for HandlerRef<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerRef")
            .field("handler", &std::any::type_name::<H>())
            .field("channel", &self.channel)
            .finish()
    }
}
