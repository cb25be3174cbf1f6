//! A task on its way from a handle to its channel.
//!
//! Invariant: the state that the handle and the loop share ends once. Any thread.

use super::{
    periodic::{Periodic, Repeat},
    task_key::TaskKey,
    task_time::TaskTime,
};
use crate::{
    error::{Error, Result},
    sync::Random,
};
use std::{any::Any, sync::Arc};

/// The state of a task that its handle and the loop share.
pub(crate) trait TaskEntry: Send + Sync {
    /// Returns whether the task waits for a run.
    fn is_waiting(&self) -> bool;

    /// Ends the task, which will not run. No-op if it has ended.
    fn end(&self, why: Error);

    /// Stores the key by which the channel finds the task. Called once.
    fn set_key(&self, key: TaskKey);

    /// Stores when the next run is due.
    fn set_deadline(&self, deadline: u64);
}

/// A task on its way from a handle to its channel.
pub(crate) struct HandleTask {
    pub(crate) start: TaskStart,
    pub(crate) task: Box<dyn Any + Send>,
    pub(crate) entry: Arc<dyn TaskEntry>,
}

/// When a task of a handle runs.
pub(crate) enum TaskStart {
    Once(TaskTime),
    /// Counted from this time of the loop.
    Periodic(Periodic, u64),
}

impl TaskStart {
    /// Returns the time of the first run, and the repetition.
    ///
    /// # Errors
    /// [`Error::Setting`] if the settings of the period are out of range.
    pub(crate) fn begin(self, random: &Random) -> Result<(TaskTime, Option<Repeat>)> {
        match self {
            TaskStart::Once(when) => Ok((when, None)),
            TaskStart::Periodic(periodic, from) => {
                let (repeat, first) = Repeat::new(periodic, from, random)?;
                Ok((TaskTime::Exact(first), Some(repeat)))
            }
        }
    }
}
