//! Tasks that get their handler back: those of a context, and those from other threads.

use super::{AnyHandler, Context};
use crate::{Result, pipeline::handler::Handler};
use std::any::Any;

/// A task of handler `H` that stays on its loop.
pub(in crate::pipeline) struct HandlerTask<H: Handler>(HandlerClosure<H>);

/// A task of handler `H` that any thread may give to its channel.
pub(in crate::pipeline) struct RemoteTask<H: Handler>(RemoteClosure<H>);

type HandlerClosure<H> = Box<dyn FnOnce(&mut H, &mut Context<'_, H>) -> Result>;
type RemoteClosure<H> = Box<dyn FnOnce(&mut H, &mut Context<'_, H>) -> Result + Send>;

impl<H: Handler> HandlerTask<H> {
    /// Returns the task as a channel keeps it.
    pub(in crate::pipeline) fn boxed(
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + 'static,
    ) -> Box<dyn Any> {
        Box::new(HandlerTask::<H>(Box::new(task)))
    }
}

impl<H: Handler> RemoteTask<H> {
    /// Returns the task as mail carries it.
    pub(in crate::pipeline) fn boxed(
        task: impl FnOnce(&mut H, &mut Context<'_, H>) -> Result + Send + 'static,
    ) -> Box<dyn Any + Send> {
        Box::new(RemoteTask::<H>(Box::new(task)))
    }
}

/// Runs a task of handler `H`. Returns a task of another handler.
pub(in crate::pipeline) fn run_as<H: Handler>(
    task: Box<dyn Any>,
    handler: &mut H,
    ctx: &mut Context<'_, H>,
) -> Result<Result, Box<dyn Any>> {
    let task = match task.downcast::<HandlerTask<H>>() {
        Ok(task) => return Ok((task.0)(handler, ctx)),
        Err(task) => task,
    };
    Ok((task.downcast::<RemoteTask<H>>()?.0)(handler, ctx))
}

/// Runs a task of a context whose handler type was erased. Returns a task of another handler.
pub(in crate::pipeline) fn run_as_any<H: Handler>(
    task: Box<dyn Any>,
    ctx: &mut Context<'_, H>,
) -> Result<Result, Box<dyn Any>> {
    run_as(task, &mut AnyHandler::new(), &mut ctx.erase())
}
