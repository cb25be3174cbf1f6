//! Tasks of a datagram channel: those of a context, and those from other threads.

use super::{DatagramContext, any_handler::AnyDatagramHandler};
use crate::{channel::continues, datagram::handler::DatagramHandler, error::Result};
use std::{any::Any, ops::ControlFlow};

/// A scheduled task of handler `H`.
pub(super) struct DatagramTask<H: DatagramHandler>(DatagramClosure<H>);

/// A periodic task of handler `H`.
pub(super) struct PeriodicDatagramTask<H: DatagramHandler>(PeriodicDatagramClosure<H>);

type PeriodicDatagramClosure<H> = Box<dyn FnMut(&mut H, &mut DatagramContext<'_, H>) -> Result>;
type DatagramClosure<H> = Box<dyn FnOnce(&mut H, &mut DatagramContext<'_, H>) -> Result>;

/// A task from another thread, which does not know the handler.
pub(in crate::datagram) type RemoteDatagramTask =
    Box<dyn FnOnce(&mut DatagramContext<'_, AnyDatagramHandler>) -> Result + Send>;

impl<H: DatagramHandler> DatagramTask<H> {
    /// Returns the task as a channel keeps it.
    pub(super) fn boxed(
        task: impl FnOnce(&mut H, &mut DatagramContext<'_, H>) -> Result + 'static,
    ) -> Box<dyn Any> {
        Box::new(DatagramTask::<H>(Box::new(task)))
    }
}

impl<H: DatagramHandler> PeriodicDatagramTask<H> {
    /// Returns the task as a channel keeps it.
    pub(super) fn boxed(
        task: impl FnMut(&mut H, &mut DatagramContext<'_, H>) -> Result + 'static,
    ) -> Box<dyn Any> {
        Box::new(PeriodicDatagramTask::<H>(Box::new(task)))
    }
}

/// Runs a task of handler `H`, or of a context whose handler type was erased.
pub(in crate::datagram) fn run<H: DatagramHandler>(
    task: Box<dyn Any>,
    handler: &mut H,
    ctx: &mut DatagramContext<'_, H>,
) -> Result {
    let task = match task.downcast::<DatagramTask<H>>() {
        Ok(task) => return (task.0)(handler, ctx),
        Err(task) => task,
    };
    match task.downcast::<DatagramTask<AnyDatagramHandler>>() {
        Ok(task) => (task.0)(&mut AnyDatagramHandler::new(), &mut ctx.erase()),
        Err(_) => unreachable!("tasks are scheduled by a context of this channel"),
    }
}

/// Runs a periodic task of handler `H`, or of a context whose handler type was erased. Returns
/// whether it goes on.
pub(in crate::datagram) fn run_periodic<H: DatagramHandler>(
    task: &mut dyn Any,
    handler: &mut H,
    ctx: &mut DatagramContext<'_, H>,
) -> Result<ControlFlow<()>> {
    if let Some(task) = task.downcast_mut::<PeriodicDatagramTask<H>>() {
        return continues((task.0)(handler, ctx));
    }
    match task.downcast_mut::<PeriodicDatagramTask<AnyDatagramHandler>>() {
        Some(task) => continues((task.0)(&mut AnyDatagramHandler::new(), &mut ctx.erase())),
        None => unreachable!("tasks are scheduled by a context of this channel"),
    }
}
