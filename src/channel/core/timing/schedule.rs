//! Tasks of the handler, either scheduled or waiting for an answer, and the close timeout.

use super::{
    super::{ChannelCore, ChannelState, services::LoopServices},
    Timing,
    tasks::DueTask,
};
use crate::{
    channel::{HandleTask, Pending, Periodic, TaskEntry, TaskKey, TaskTime},
    error::{Error, Result, drop_guarded},
    timer::QueueKey,
};
use std::{any::Any, sync::Arc};

impl ChannelCore {
    pub(super) fn handle_task(&mut self, services: &mut LoopServices, slot: u32) {
        match self.state.timing.take_due_task(slot) {
            Some(DueTask::Once(task, entry)) => self.run_due_task(services, task, entry),
            Some(DueTask::Periodic(key, task)) => self.run_periodic_task(services, key, task),
            None => {}
        }
    }

    fn run_due_task(
        &mut self,
        services: &mut LoopServices,
        task: Box<dyn Any>,
        entry: Option<Arc<dyn TaskEntry>>,
    ) {
        if self.state.status.is_open() {
            self.call(services, |links, state, services| links.run(state, services, task));
            return;
        }
        if let Some(entry) = entry {
            entry.end(Error::Closed);
        }
        drop_guarded(task);
    }

    /// Runs a periodic task, which keeps its slot during the run. So it can be cancelled in its own
    /// run.
    fn run_periodic_task(&mut self, services: &mut LoopServices, key: TaskKey, mut task: Box<dyn Any>) {
        let mut continues = false;
        if self.state.status.is_open() {
            self.call(services, |links, state, services| {
                continues = links.run_periodic(state, services, &mut *task)?.is_continue();
                Ok(())
            });
        }
        if continues && self.state.status.is_open() {
            self.state.rearm_task(services, key, task);
            return;
        }
        if self.state.status.is_open() {
            // It has ended, or does not fit the pipeline.
            drop_guarded(task);
            self.state.timing.cancel(services, key);
        } else {
            self.state.timing.cancel(services, key);
            drop_guarded(task);
        }
    }
}

impl Timing {
    /// Returns when a scheduled task is due next.
    pub(crate) fn task_deadline(&self, services: &LoopServices, key: TaskKey) -> Option<u64> {
        self.tasks.as_ref()?.deadline(services, key)
    }

    /// Cancels a task. Returns whether it was waiting.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        self.tasks.as_mut().is_some_and(|tasks| tasks.cancel(services, key))
    }

    /// Takes the timer of the close timeout, which is then no longer cancelled with the channel.
    pub(crate) fn take_close_timer(&mut self) -> Option<QueueKey> {
        self.tasks.as_mut()?.take_close()
    }

    /// Returns the task whose timer has expired.
    pub(crate) fn take_due_task(&mut self, slot: u32) -> Option<DueTask> {
        self.tasks.as_mut()?.take_due(slot)
    }

    /// Removes and returns a task whose answer has arrived, unless it was cancelled.
    pub(crate) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.tasks.as_mut()?.take_answered(key)
    }

    /// Drops all tasks and the close timeout, with the reason for their handles. Returns the number
    /// of tasks.
    #[inline]
    pub(crate) fn cancel_tasks(&mut self, services: &mut LoopServices, why: &Error) -> usize {
        if self.tasks.is_none() {
            return 0;
        }
        self.tasks.take().map_or(0, |mut tasks| tasks.cancel_all(services, why))
    }
}

impl ChannelState {
    /// Schedules a task. Beyond the limit the task is dropped and the handler notified later.
    pub(crate) fn schedule(
        &mut self,
        services: &mut LoopServices,
        when: TaskTime,
        task: Box<dyn Any>,
    ) -> TaskKey {
        let (channel, limit) = (self.key(), self.config.max_scheduled_tasks);
        let tasks = self.timing.tasks_mut();
        tasks.arm(channel, limit, services, when, task).unwrap_or_else(|| {
            self.note_refused_task();
            TaskKey::NONE
        })
    }

    /// Schedules a task that repeats.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closing, [`Error::Setting`] if `periodic` is out of
    /// range, or [`Error::Full`] if the limit of tasks is reached. `task` is dropped.
    pub(crate) fn schedule_periodic(
        &mut self,
        services: &mut LoopServices,
        periodic: Periodic,
        task: Box<dyn Any>,
    ) -> Result<TaskKey> {
        let (channel, limit, open) = (self.key(), self.config.max_scheduled_tasks, self.status.is_open());
        self.timing.tasks_mut().arm_periodic(channel, limit, services, periodic, open, task)
    }

    /// Schedules a task of a handle. Beyond the limit only its handle is notified.
    pub(crate) fn accept_task(&mut self, services: &mut LoopServices, task: HandleTask) {
        let (channel, limit) = (self.key(), self.config.max_scheduled_tasks);
        self.timing.tasks_mut().accept(channel, limit, services, task);
    }

    /// Schedules the next run of a periodic task.
    pub(crate) fn rearm_task(&mut self, services: &mut LoopServices, key: TaskKey, task: Box<dyn Any>) {
        let channel = self.key();
        match &mut self.timing.tasks {
            Some(tasks) => tasks.rearm(channel, services, key, task),
            None => drop_guarded(task),
        }
    }

    /// Limits how long a closing channel waits for its peer.
    pub(crate) fn arm_close(&mut self, services: &mut LoopServices) {
        let (key, deadline) = (self.key(), services.now.saturating_add(self.config.close_timeout_ns));
        self.timing.tasks_mut().arm_close(key, services, deadline);
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
        self.timing.tasks_mut().await_answer(limit, services, make)
    }

    /// Records that a task was dropped because the limit of tasks is reached. The handler is
    /// notified when the current callback has returned.
    pub(crate) fn note_refused_task(&mut self) {
        self.status.set(Pending::TASK_REFUSED);
    }
}
