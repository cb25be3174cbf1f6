//! The stand-in for a handler whose type is not known.

use super::Context;
use crate::{error::Result, pipeline::handler::Handler};
use std::{convert::Infallible, marker::PhantomData};

/// Stands for a handler of unknown type that writes messages of type `M`.
///
/// It is the handler type of a [`ChannelContext`] and has no state. Programs cannot create one: the
/// tasks of a [`ChannelContext`] get it in place of the handler.
#[derive(Debug)]
pub struct AnyHandler<M>(PhantomData<fn(M)>);

/// The context of code that knows the messages of a channel, but not its handler.
///
/// The argument of [`Channel::execute`](crate::Channel::execute) and
/// [`Channel::schedule`](crate::Channel::schedule), and the result of [`Context::erase`]. It has
/// all methods of [`Context`]. The tasks that it schedules get an [`AnyHandler`] as their first
/// argument, which can be ignored. Code that needs its handler there takes a `Context<'_, H>`.
///
/// ```
/// # use netwheel::prelude::*;
/// # use std::time::Duration;
/// fn remind(channel: &Channel<bytes::Bytes>) -> Result {
///     channel.execute(|ctx| {
///         ctx.schedule(Duration::from_secs(10), |_, ctx| ctx.write("still here?\n".into()));
///         Ok(())
///     })
/// }
/// ```
pub type ChannelContext<'a, M> = Context<'a, AnyHandler<M>>;

impl<M> AnyHandler<M> {
    pub(super) fn new() -> Self {
        AnyHandler(PhantomData)
    }
}

impl<M: 'static> Handler for AnyHandler<M> {
    type Read = Infallible;
    type Write = M;

    fn read(&mut self, _: &mut Context<'_, Self>, message: Infallible) -> Result {
        match message {}
    }
}
