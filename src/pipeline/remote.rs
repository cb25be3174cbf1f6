//! The handle of a channel that knows its handler, so that one session can call another one.
//!
//! Invariants: the handler is called only on its own loop, between its callbacks. A task whose
//! channel is gone is dropped, with the values that it holds.

use super::handler::{Context, Handler, RemoteTask};
use crate::{
    Error, Result,
    channel::{Channel, Mail},
};
use std::fmt;

/// A handle to a channel and its handler `H`, for other channels and other threads; from [`Context::remote`].
///
/// A [`Channel`] can be written to by everybody who knows what is written. This can do more, for those who know the
/// handler too: a session hands something to another session, which may be on another loop, and neither needs a lock.
///
/// ```
/// use netwheel::{Remote, prelude::*};
///
/// struct Session { unread: Vec<String> }
///
/// fn tell(other: &Remote<Session>, text: String) -> Result {
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
pub struct Remote<H: Handler> {
    channel: Channel<H::Write>,
}

impl<H: Handler> Remote<H> {
    /// `channel` must be one whose handler is an `H`.
    pub(crate) fn new(channel: Channel<H::Write>) -> Self {
        Remote { channel }
    }

    /// The channel.
    pub fn channel(&self) -> &Channel<H::Write> {
        &self.channel
    }

    /// Runs `task` on the channel's loop, with its handler; in order with what else one thread asks of the channel.
    ///
    /// An error that it returns goes to the handler's [`error`](Handler::error). If the channel closes first, it is
    /// dropped: a task that somebody waits for should hold something that tells so when it is dropped. Likewise if its
    /// pipeline is [replaced](crate::Context::replace_pipeline) by one with another type of handler.
    ///
    /// # Errors
    /// If the channel is closed, its handler is no `H` any more ([`PipelineReplaced`](Error::PipelineReplaced)), or the loop's queue is full;
    /// the task is dropped.
    pub fn execute(
        &self,
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + Send + 'static,
    ) -> Result {
        if !self.channel.fits_handler::<H>() {
            return Err(Error::PipelineReplaced);
        }
        self.channel.deliver(Mail::Run(RemoteTask::<H>::boxed(task)))
    }
}

impl<H: Handler> Context<'_, H> {
    /// A handle to this channel and its handler, for other channels and threads.
    pub fn remote(&self) -> Remote<H> {
        Remote::new(self.channel())
    }
}

impl<H: Handler> Clone for Remote<H> {
    fn clone(&self) -> Self {
        Remote { channel: self.channel.clone() }
    }
}

impl<H: Handler> fmt::Debug for Remote<H> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote")
            .field("handler", &std::any::type_name::<H>())
            .field("channel", &self.channel)
            .finish()
    }
}
