//! A task that needs more than a closure and a timer: it repeats, or a handle cancels it.
//!
//! Invariant: a handle and the loop share the state of such a task ([`TaskEntry`]), which ends
//! once. The loop keeps the closure, whose drop ends the task too.

use crate::{
    channel::{Repeat, TaskEntry, timers::TimerPlace},
    error::{Error, Result},
    sync::Random,
};
use std::{any::Any, ops::ControlFlow, sync::Arc};

pub(super) struct KeptTask {
    /// `None` while a periodic task runs.
    pub(super) task: Option<Box<dyn Any>>,
    /// The present entry in the heap or on the wheel.
    pub(super) place: TimerPlace,
    pub(super) entry: Option<Arc<dyn TaskEntry>>,
    repeat: Option<Repeat>,
}

impl KeptTask {
    pub(super) fn new(task: Box<dyn Any>, repeat: Option<Repeat>, entry: Option<Arc<dyn TaskEntry>>) -> Self {
        KeptTask { task: Some(task), place: TimerPlace::Nowhere, entry, repeat }
    }

    pub(super) fn repeats(&self) -> bool {
        self.repeat.is_some()
    }

    /// Takes the closure of a periodic task for a run.
    pub(super) fn begin_run(&mut self) -> Option<Box<dyn Any>> {
        self.place = TimerPlace::Nowhere;
        self.task.take()
    }

    /// Returns whether a handle has ended the task, which is not running.
    pub(super) fn was_cancelled(&self) -> bool {
        self.task.is_some() && self.entry.as_ref().is_some_and(|entry| !entry.is_waiting())
    }

    /// Puts the closure back after a run. Returns this task and its next deadline.
    ///
    /// # Errors
    /// The closure if the task was cancelled.
    pub(super) fn put_back(
        &mut self,
        task: Box<dyn Any>,
        now: u64,
        random: &Random,
    ) -> Result<(&mut Self, u64), Box<dyn Any>> {
        let Some(repeat) = &mut self.repeat else { return Err(task) };
        let next = repeat.next(now, random);
        if let Some(entry) = &self.entry {
            if !entry.is_waiting() {
                return Err(task);
            }
            entry.set_deadline(next);
        }
        self.task = Some(task);
        Ok((self, next))
    }
}

/// Returns whether a periodic task goes on after a run: `Cancelled` ends it, and is no error.
pub(crate) fn continues(run: Result) -> Result<ControlFlow<()>> {
    match run {
        Ok(()) => Ok(ControlFlow::Continue(())),
        Err(Error::Cancelled) => Ok(ControlFlow::Break(())),
        Err(error) => Err(error),
    }
}
