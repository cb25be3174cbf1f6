//! The view that a handler has of its datagram channel.
//!
//! Runs on the channel's loop. A scheduled task receives the handler that scheduled it.

use super::scope::DatagramScope;
use crate::{
    Result,
    channel::{TaskKey, TaskTime},
    clock::nanos,
};
use std::{
    any::Any,
    marker::PhantomData,
    ops::{Deref, DerefMut},
    time::Duration,
};

/// The channel as seen by a callback of handler `H`. Adds tasks that have access to the handler to
/// [`DatagramScope`].
pub struct DatagramContext<'a, H> {
    scope: DatagramScope<'a>,
    handler: PhantomData<fn(&mut H)>,
}

/// A scheduled task of handler `H`.
pub(super) struct DatagramTask<H>(DatagramClosure<H>);

type DatagramClosure<H> = Box<dyn FnOnce(&mut H, &mut DatagramContext<'_, H>) -> Result>;

impl<H> DatagramTask<H> {
    pub(super) fn run(self, handler: &mut H, ctx: &mut DatagramContext<'_, H>) -> Result {
        (self.0)(handler, ctx)
    }
}

impl<'a, H: 'static> DatagramContext<'a, H> {
    pub(super) fn new(scope: DatagramScope<'a>) -> Self {
        DatagramContext { scope, handler: PhantomData }
    }

    /// Schedules `task` to run on this loop after `delay`, with access to this handler. The task is
    /// dropped with the channel.
    ///
    /// Otherwise like [`Context::schedule`](crate::Context::schedule), including the limit of
    /// tasks.
    pub fn schedule(
        &mut self,
        delay: Duration,
        task: impl FnOnce(&mut H, &mut DatagramContext<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        let task: Box<dyn Any> = Box::new(DatagramTask::<H>(Box::new(task)));
        // Counts from now, not from the beginning of the turn: after a long callback that would be
        // too early.
        let deadline = self.scope.services.time.now().saturating_add(nanos(delay));
        let DatagramScope { state, services, .. } = &mut self.scope;
        state.arm(services, TaskTime::Exact(deadline), task)
    }

    /// Like [`schedule`](DatagramContext::schedule), but coarse and on the loop's wheel. Meant for
    /// timeouts, which are numerous and mostly cancelled. See
    /// [`Context::timeout`](crate::Context::timeout).
    pub fn timeout(
        &mut self,
        delay: Duration,
        task: impl FnOnce(&mut H, &mut DatagramContext<'_, H>) -> Result + 'static,
    ) -> TaskKey {
        let task: Box<dyn Any> = Box::new(DatagramTask::<H>(Box::new(task)));
        let DatagramScope { state, services, .. } = &mut self.scope;
        let deadline = services.now.saturating_add(nanos(delay));
        state.arm(services, TaskTime::Coarse(deadline), task)
    }
}

impl<'a, H> Deref for DatagramContext<'a, H> {
    type Target = DatagramScope<'a>;

    fn deref(&self) -> &Self::Target {
        &self.scope
    }
}

impl<H> DerefMut for DatagramContext<'_, H> {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.scope
    }
}
