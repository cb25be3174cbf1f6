//! A task on its way through the queue, with the place where it was submitted.
//!
//! Invariant: the closure is called at most once, or dropped. Created on the submitting thread, run
//! on the loop's thread.

use crate::sync::TaskCell;
use std::panic::Location;

/// A closure to run on the loop.
pub(crate) struct Task {
    body: TaskCell,
    origin: &'static Location<'static>,
}

impl Task {
    #[inline]
    pub(super) fn new(body: impl FnOnce() + Send + 'static, origin: &'static Location<'static>) -> Self {
        Task { body: TaskCell::new(body), origin }
    }

    /// Returns the source location where the task was submitted, for reports.
    #[inline]
    pub(super) fn origin(&self) -> &'static Location<'static> {
        self.origin
    }

    /// Calls the closure, unless it has been called already.
    #[inline]
    pub(super) fn run(&mut self) {
        self.body.run();
    }
}
