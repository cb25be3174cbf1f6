//! Tasks that get their handler back: those of a context, and those from other threads.

use super::{Context, any_handler::AnyHandler};
use crate::{channel::continues, error::Result, pipeline::handler::Handler};
use std::{any::Any, ops::ControlFlow};

/// A task of handler `H` that stays on its loop.
pub(in crate::pipeline) struct HandlerTask<H: Handler>(HandlerClosure<H>);

/// A task of handler `H` that any thread may give to its channel.
pub(in crate::pipeline) struct RemoteTask<H: Handler>(RemoteClosure<H>);

/// A periodic task of handler `H` that stays on its loop.
pub(super) struct PeriodicHandlerTask<H: Handler>(PeriodicClosure<H>);

/// A periodic task of handler `H` that any thread may give to its channel.
pub(in crate::pipeline) struct RemotePeriodicTask<H: Handler>(RemotePeriodicClosure<H>);

type HandlerClosure<H> = Box<dyn FnOnce(&mut H, &mut Context<'_, H>) -> Result>;
type RemoteClosure<H> = Box<dyn FnOnce(&mut H, &mut Context<'_, H>) -> Result + Send>;

type PeriodicClosure<H> = Box<dyn FnMut(&mut H, &mut Context<'_, H>) -> Result>;
type RemotePeriodicClosure<H> = Box<dyn FnMut(&mut H, &mut Context<'_, H>) -> Result<ControlFlow<()>> + Send>;

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

impl<H: Handler> PeriodicHandlerTask<H> {
    /// Returns the task as a channel keeps it.
    pub(super) fn boxed(task: impl FnMut(&mut H, &mut Context<'_, H>) -> Result + 'static) -> Box<dyn Any> {
        Box::new(PeriodicHandlerTask::<H>(Box::new(task)))
    }
}

impl<H: Handler> RemotePeriodicTask<H> {
    /// Returns the task as mail carries it.
    pub(in crate::pipeline) fn boxed(
        task: impl FnMut(&mut H, &mut Context<'_, H>) -> Result<ControlFlow<()>> + Send + 'static,
    ) -> Box<dyn Any + Send> {
        Box::new(RemotePeriodicTask::<H>(Box::new(task)))
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

/// Runs a periodic task of handler `H`. Returns whether it goes on, or `None` for a task of another
/// handler.
pub(in crate::pipeline) fn run_periodic_as<H: Handler>(
    task: &mut dyn Any,
    handler: &mut H,
    ctx: &mut Context<'_, H>,
) -> Option<Result<ControlFlow<()>>> {
    if let Some(task) = task.downcast_mut::<PeriodicHandlerTask<H>>() {
        return Some(continues((task.0)(handler, ctx)));
    }
    Some((task.downcast_mut::<RemotePeriodicTask<H>>()?.0)(handler, ctx))
}

/// Runs a periodic task of a context whose handler type was erased. Returns `None` for a task of
/// another handler.
pub(in crate::pipeline) fn run_periodic_as_any<H: Handler>(
    task: &mut dyn Any,
    ctx: &mut Context<'_, H>,
) -> Option<Result<ControlFlow<()>>> {
    run_periodic_as(task, &mut AnyHandler::new(), &mut ctx.erase())
}
