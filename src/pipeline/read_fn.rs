//! A closure as the handler of a pipeline.

use super::{ChannelContext, Context, handler::Handler};
use crate::error::Result;
use std::marker::PhantomData;

/// The handler of [`PipelineBuilder::on_read`](super::PipelineBuilder::on_read): a closure that is
/// called with each message.
pub(super) struct ReadFn<F, R, W> {
    on_read: F,
    messages: PhantomData<fn(R) -> W>,
}

impl<F, R, W> ReadFn<F, R, W> {
    pub(super) fn new(on_read: F) -> Self {
        ReadFn { on_read, messages: PhantomData }
    }
}

impl<F, R, W> Handler for ReadFn<F, R, W>
where
    F: FnMut(&mut ChannelContext<'_, W>, R) -> Result + 'static,
    R: 'static,
    W: 'static,
{
    type Read = R;
    type Write = W;

    #[inline]
    fn read(&mut self, ctx: &mut Context<'_, Self>, message: R) -> Result {
        (self.on_read)(&mut ctx.erase(), message)
    }
}
