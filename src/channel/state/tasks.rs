//! Tasks of the handler, either scheduled or waiting for an answer, and the close timeout.

use super::{ChannelState, Pending};
use crate::{
    Error, Result,
    channel::{services::LoopServices, tasks::TaskTime, timers::TaskKey},
    error::drop_guarded,
    timer::QueueKey,
};
use std::any::Any;

impl ChannelState {
    /// Schedules a task. Beyond the limit the task is dropped and the handler notified later.
    pub(crate) fn schedule(
        &mut self,
        services: &mut LoopServices,
        when: TaskTime,
        task: Box<dyn Any>,
    ) -> TaskKey {
        let (channel, limit) = (self.key(), self.config.max_scheduled_tasks);
        let tasks = self.tasks.get_or_insert_default();
        tasks.arm(channel, limit, services, when, task).unwrap_or_else(|| {
            self.note_refused_task();
            TaskKey::NONE
        })
    }

    /// Limits how long a closing channel waits for its peer.
    pub(crate) fn arm_close(&mut self, services: &mut LoopServices) {
        let (key, deadline) = (self.key(), services.now.saturating_add(self.config.close_timeout_ns));
        self.tasks.get_or_insert_default().arm_close(key, services, deadline);
    }

    /// Cancels a task. Returns whether it was waiting.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        self.tasks.as_mut().is_some_and(|tasks| tasks.cancel(services, key))
    }

    /// Takes the timer of the close timeout, which is then no longer cancelled with the channel.
    pub(crate) fn take_close_timer(&mut self) -> Option<QueueKey> {
        self.tasks.as_mut()?.take_close()
    }

    /// Removes and returns the task whose timer has expired.
    pub(crate) fn take_due_task(&mut self, slot: u32) -> Option<Box<dyn Any>> {
        self.tasks.as_mut()?.take_due(slot)
    }

    /// Keeps the task that `make` creates for its key, until its answer arrives.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closing, [`Error::Full`] if the limit of tasks is
    /// reached; `make` is dropped.
    pub(crate) fn await_answer(
        &mut self,
        services: &mut LoopServices,
        make: impl FnOnce(TaskKey) -> Box<dyn Any>,
    ) -> Result<TaskKey> {
        if !self.status.is_open() {
            drop_guarded(make);
            return Err(Error::Closed);
        }
        let limit = self.config.max_scheduled_tasks;
        self.tasks.get_or_insert_default().await_answer(limit, services, make)
    }

    /// Records that a task was dropped because the limit of tasks is reached. The handler is
    /// notified when the current callback has returned.
    pub(crate) fn note_refused_task(&mut self) {
        self.status.set(Pending::TASK_REFUSED);
    }

    /// Removes and returns a task whose answer has arrived, unless it was cancelled.
    pub(crate) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.tasks.as_mut()?.take_answered(key)
    }

    /// Drops all tasks and the close timeout. Returns the number of tasks.
    #[inline]
    pub(crate) fn cancel_tasks(&mut self, services: &mut LoopServices) -> usize {
        if self.tasks.is_none() {
            return 0;
        }
        self.tasks.take().map_or(0, |mut tasks| tasks.cancel_all(services))
    }
}
