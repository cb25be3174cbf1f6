//! The operations on a channel while one of its callbacks or tasks runs.
//!
//! There is one context type. A callback of handler `H` gets a `Context<'_, H>`. Code that does not
//! know the handler gets a [`ChannelContext`], which is a context of the stand-in [`AnyHandler`].
//! All methods are inherent: a `Deref` to a part would defeat two-phase borrows, so that
//! `ctx.write(ctx.id().to_string())` would not compile.
//!
//! The methods are grouped by subject: `output`, `input`, `state`, `settings`, `tasks`,
//! `results` and `replace`.
//! They delegate to `ChannelState`, which belongs to the channel layer and knows no handler.
//!
//! Invariants: a context borrows the channel for one callback, on the channel's loop. No method
//! calls the handler before the running callback has returned.

mod any_handler;
mod handler_task;
mod input;
mod output;
mod replace;
mod results;
mod settings;
mod start_filter;
mod state;
mod tasks;

pub use any_handler::{AnyHandler, ChannelContext};
pub(in crate::pipeline) use handler_task::{
    RemotePeriodicTask, RemoteTask, run_as, run_as_any, run_periodic_as, run_periodic_as_any,
};

use super::Handler;
use crate::channel::{ChannelState, LoopServices, Push};
use std::marker::PhantomData;

/// The channel during a callback or task of handler `H`.
///
/// Writes messages, changes settings of the channel, schedules tasks, and creates handles for other
/// threads. No method calls the handler: events that a method causes follow when the running
/// callback has returned.
///
/// Getters take `&self`, so they can be used in the arguments of a write. A function that is
/// generic over the handler works in the callbacks of every handler that writes the same messages,
/// and in the tasks of [`Channel::execute`](crate::Channel::execute), which get a
/// [`ChannelContext`].
///
/// ```
/// use netwheel::{codec::RawBytes, prelude::*, testing::EmbeddedChannel};
/// use bytes::Bytes;
///
/// fn bye<H: Handler<Write = Bytes>>(ctx: &mut Context<'_, H>) -> Result {
///     ctx.write(format!("bye, {}\n", ctx.id()).into())?;
///     ctx.close();
///     Ok(())
/// }
///
/// struct Session;
///
/// impl Handler for Session {
///     type Read = Bytes;
///     type Write = Bytes;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
///         bye(ctx)
///     }
/// }
///
/// let mut session = EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(Session));
/// session.channel().execute(|ctx| bye(ctx))?; // another thread may do this
/// session.run_pending();
/// assert!(session.is_closed());
/// # Ok::<(), netwheel::Error>(())
/// ```
#[doc(alias = "ChannelHandlerContext")]
pub struct Context<'a, H: Handler> {
    links: &'a mut dyn Push<H::Write>,
    state: &'a mut ChannelState,
    pub(in crate::pipeline) services: &'a mut LoopServices,
    handler: PhantomData<fn(&mut H)>,
}

impl<'a, H: Handler> Context<'a, H> {
    #[inline]
    pub(in crate::pipeline) fn new(
        links: &'a mut dyn Push<H::Write>,
        state: &'a mut ChannelState,
        services: &'a mut LoopServices,
    ) -> Self {
        Context { links, state, services, handler: PhantomData }
    }

    /// Returns the same context without the handler's type, for code that knows only the messages.
    ///
    /// Tasks that are scheduled on the result run without the handler.
    ///
    /// ```
    /// # use netwheel::{ChannelContext, prelude::*};
    /// # use bytes::Bytes;
    /// fn greet(ctx: &mut ChannelContext<'_, Bytes>) -> Result {
    ///     ctx.write("hello\n".into())
    /// }
    /// # struct Session;
    /// # impl Handler for Session {
    /// #   type Read = Bytes; type Write = Bytes;
    /// #   fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result { Ok(()) }
    ///
    /// fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
    ///     greet(&mut ctx.erase())
    /// }
    /// # }
    /// ```
    #[inline]
    pub fn erase(&mut self) -> ChannelContext<'_, H::Write> {
        Context::new(&mut *self.links, &mut *self.state, &mut *self.services)
    }
}
