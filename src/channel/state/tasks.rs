//! Tasks of the handler that wait for their time or for a worker, and the close timeout.

use super::{ChannelState, Pending};
use crate::{
    Result,
    channel::{services::LoopServices, tasks::When, timers::TaskKey},
    timer::QueueKey,
};
use std::any::Any;

impl ChannelState {
    /// Has a task run at `deadline`, exactly. Beyond the limit it is dropped, of which the handler is told later.
    pub(crate) fn schedule(
        &mut self,
        services: &mut LoopServices,
        deadline: u64,
        task: Box<dyn Any>,
    ) -> TaskKey {
        self.arm(services, When::Exact(deadline), task)
    }

    /// Has a task run in the tick of the wheel after `deadline`. Beyond the limit it is dropped, of which the handler is
    /// told later.
    pub(crate) fn time_out(
        &mut self,
        services: &mut LoopServices,
        deadline: u64,
        task: Box<dyn Any>,
    ) -> TaskKey {
        self.arm(services, When::Coarse(deadline), task)
    }

    fn arm(&mut self, services: &mut LoopServices, when: When, task: Box<dyn Any>) -> TaskKey {
        let (channel, limit) = (self.key(), self.config.max_scheduled_tasks);
        let timers = self.timers.get_or_insert_default();
        timers.arm(channel, limit, services, when, task).unwrap_or_else(|| {
            self.status.set(Pending::TASK_REFUSED);
            TaskKey::NONE
        })
    }

    /// Limits how long a closing channel waits for its peer.
    pub(crate) fn arm_close(&mut self, services: &mut LoopServices) {
        let (key, deadline) = (self.key(), services.now.saturating_add(self.config.close_timeout_ns));
        self.timers.get_or_insert_default().arm_close(key, services, deadline);
    }

    /// Cancels a task; whether it was waiting.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        self.timers.as_mut().is_some_and(|timers| timers.cancel(services, key))
    }

    /// Takes the timer of the close timeout, if it is armed. It is no longer cancelled with the
    /// channel.
    pub(crate) fn take_close_timer(&mut self) -> Option<QueueKey> {
        self.timers.as_mut()?.take_close()
    }

    /// Takes out the task whose entry has come due.
    pub(crate) fn take_due_task(&mut self, slot: u32) -> Option<Box<dyn Any>> {
        self.timers.as_mut()?.take_due(slot)
    }

    /// Has a task wait for the answer of a worker.
    ///
    /// # Errors
    /// If as many tasks wait as may; it is dropped.
    pub(crate) fn await_worker(
        &mut self,
        services: &mut LoopServices,
        task: Box<dyn Any>,
    ) -> Result<TaskKey> {
        let limit = self.config.max_scheduled_tasks;
        self.timers.get_or_insert_default().await_worker(limit, services, task)
    }

    /// Takes a task whose answer is there; none if it was cancelled.
    pub(crate) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.timers.as_mut()?.take_answered(key)
    }

    /// Drops the tasks that wait for their time; how many that were. Those that wait for an answer stay.
    pub(crate) fn cancel_timed_tasks(&mut self, services: &mut LoopServices) -> usize {
        self.timers.as_mut().map_or(0, |timers| timers.cancel_timed(services))
    }

    /// Drops the tasks that wait, and with them the close timeout; how many that were.
    pub(crate) fn cancel_tasks(&mut self, services: &mut LoopServices) -> usize {
        self.timers.take().map_or(0, |mut timers| timers.cancel_all(services))
    }
}
