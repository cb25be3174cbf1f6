//! Tasks of the handler that wait for their time or for a worker, and the close timeout.

use super::{ChannelState, Pending};
use crate::{
    Result,
    channel::{services::LoopServices, tasks::TaskTime, timers::TaskKey},
    timer::QueueKey,
};
use std::any::Any;

impl ChannelState {
    /// Schedules a task on the heap. Beyond the limit the task is dropped and the handler notified
    /// later.
    pub(crate) fn schedule(
        &mut self,
        services: &mut LoopServices,
        deadline: u64,
        task: Box<dyn Any>,
    ) -> TaskKey {
        self.arm(services, TaskTime::Exact(deadline), task)
    }

    /// Schedules a task on the wheel. Beyond the limit the task is dropped and the handler notified
    /// later.
    pub(crate) fn time_out(
        &mut self,
        services: &mut LoopServices,
        deadline: u64,
        task: Box<dyn Any>,
    ) -> TaskKey {
        self.arm(services, TaskTime::Coarse(deadline), task)
    }

    fn arm(&mut self, services: &mut LoopServices, when: TaskTime, task: Box<dyn Any>) -> TaskKey {
        let (channel, limit) = (self.key(), self.config.max_scheduled_tasks);
        let tasks = self.tasks.get_or_insert_default();
        tasks.arm(channel, limit, services, when, task).unwrap_or_else(|| {
            self.status.set(Pending::TASK_REFUSED);
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

    /// Keeps a task until a worker has its answer.
    ///
    /// # Errors
    /// If the limit of tasks is reached; the task is dropped.
    pub(crate) fn await_worker(
        &mut self,
        services: &mut LoopServices,
        task: Box<dyn Any>,
    ) -> Result<TaskKey> {
        let limit = self.config.max_scheduled_tasks;
        self.tasks.get_or_insert_default().await_worker(limit, services, task)
    }

    /// Removes and returns a task whose answer has arrived, unless it was cancelled.
    pub(crate) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.tasks.as_mut()?.take_answered(key)
    }

    /// Drops the scheduled tasks and returns their number. Offloaded work stays.
    pub(crate) fn cancel_timed_tasks(&mut self, services: &mut LoopServices) -> usize {
        self.tasks.as_mut().map_or(0, |tasks| tasks.cancel_timed(services))
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
