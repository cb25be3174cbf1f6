//! The methods of a loop's handle that schedule tasks.
//!
//! Invariant: a scheduled task reaches the heap through the loop's queue, on whichever thread it is
//! submitted. So it keeps its order among the tasks of that thread. Any thread calls these methods.
//! `scheduled` has the entries, and `periodic` computes their next runs.

use super::{
    Periodic, ScheduledTask,
    periodic::Repeat,
    scheduled::{TaskBody, TaskEntry, TaskPermit},
};
use crate::{
    Error, Result,
    channel::Scheduled,
    clock::nanos,
    event_loop::{EventLoop, LifeState, LoopMail},
    sync::completion,
};
use std::{sync::Arc, time::Duration};

impl EventLoop {
    /// Runs `task` on the loop after `delay`; its value is what the task's completion gets.
    ///
    /// Never early; late by the loop's lag (at most a millisecond of sleep granularity when it is idle). A delay
    /// beyond 584 years waits for ever. Scheduled by a task that runs because it was due, it waits for the next turn
    /// at least, even without a delay. An `Err` that is the task's value is logged and counted like
    /// that of a [periodic task](EventLoop::schedule_at_fixed_rate), if its type is `Result<(),
    /// netwheel::Error>`.
    ///
    /// # Errors
    /// If so many tasks are scheduled that there is no room for another one, if the loop's queue is full, or if the
    /// loop is shutting down.
    #[track_caller]
    pub fn schedule<T: Send + 'static>(
        &self,
        delay: Duration,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        let deadline = self.after(delay);
        self.submit_scheduled(
            TaskBody::Once(Box::new(task)),
            |entry| LoopMail::Schedule(deadline, entry),
            deadline,
        )
    }

    /// Runs `task` after `initial_delay` and then every `period`, measured from start to start; runs that are
    /// missed are skipped.
    ///
    /// It ends when it is cancelled, when it returns an error or panics (its completion then fails with that),
    /// or with the loop. An error is also logged, with the location of this call, and counted
    /// ([`tasks_failed`](crate::LoopMetrics::tasks_failed)), because the completion may have been
    /// dropped. [`Error::Cancelled`] is neither logged nor counted: a task returns it to end
    /// itself.
    ///
    /// # Errors
    /// If `period` is zero, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_at_fixed_rate(
        &self,
        initial_delay: Duration,
        period: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        self.schedule_at_fixed_rate_with(Periodic::new(), initial_delay, period, task)
    }

    /// As [`schedule_at_fixed_rate`](EventLoop::schedule_at_fixed_rate), with a choice about missed runs and jitter.
    ///
    /// # Errors
    /// If `period` is zero or shorter than the jitter, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_at_fixed_rate_with(
        &self,
        options: impl Into<Periodic>,
        initial_delay: Duration,
        period: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        let (repeat, first) =
            Repeat::at_rate(period, self.after(initial_delay), options.into(), &self.shared.random)?;
        let body = TaskBody::Again { body: Box::new(task), repeat };
        self.submit_scheduled(body, |entry| LoopMail::Schedule(first, entry), first)
    }

    /// Runs `task` after `initial_delay` and then again and again, `delay` after each run has ended.
    ///
    /// # Errors
    /// If `delay` is zero, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_with_fixed_delay(
        &self,
        initial_delay: Duration,
        delay: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        self.schedule_with_fixed_delay_with(Periodic::new(), initial_delay, delay, task)
    }

    /// As [`schedule_with_fixed_delay`](EventLoop::schedule_with_fixed_delay), with a choice about jitter.
    ///
    /// # Errors
    /// If `delay` is zero or shorter than the jitter, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_with_fixed_delay_with(
        &self,
        options: impl Into<Periodic>,
        initial_delay: Duration,
        delay: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        let (repeat, first) =
            Repeat::with_delay(delay, self.after(initial_delay), options.into(), &self.shared.random)?;
        let body = TaskBody::Again { body: Box::new(task), repeat };
        self.submit_scheduled(body, |entry| LoopMail::Schedule(first, entry), first)
    }

    /// Runs `task` once at the end of a turn: when the tasks and timers of the turn in which it reaches the loop have
    /// run, before what they wrote is sent. For what gathers up the work of a turn. If there are more of these than
    /// the timers' share of the turn has room for (64 have it always), the rest runs at the end of the next one.
    ///
    /// # Errors
    /// As of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_at_turn_end<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        self.submit_scheduled(TaskBody::Once(Box::new(task)), LoopMail::AtTurnEnd, 0)
    }

    /// As [`schedule`](EventLoop::schedule), whatever the length of the queue and the number of scheduled tasks: for what
    /// the loop has taken on before, and which has this one timer at most.
    ///
    /// # Errors
    /// If the loop is shutting down.
    #[track_caller]
    pub(crate) fn schedule_always(
        &self,
        delay: Duration,
        task: impl FnOnce() + Send + 'static,
    ) -> Result<ScheduledTask> {
        if self.shared.state() >= LifeState::ShuttingDown {
            return Err(Error::ShutDown);
        }
        let deadline = self.after(delay);
        let (completer, completion) = completion(Some(self.shared.id));
        let entry =
            TaskEntry::new(TaskBody::Once(Box::new(task)), completer, TaskPermit::always(&self.shared));
        let entry = Arc::new(entry);
        let mail = LoopMail::Schedule(deadline, entry.clone());
        self.shared.submit_always(mail)?;
        Ok(ScheduledTask::new(entry, completion))
    }

    /// The loop's time after `delay`.
    fn after(&self, delay: Duration) -> u64 {
        self.shared.time.now().saturating_add(nanos(delay))
    }

    /// Gives the loop a task that can be cancelled, which it has to know of before `when`.
    #[track_caller]
    fn submit_scheduled<T: Send + 'static>(
        &self,
        body: TaskBody<T>,
        mail: impl FnOnce(Arc<dyn Scheduled>) -> LoopMail,
        when: u64,
    ) -> Result<ScheduledTask<T>> {
        if self.shared.state() >= LifeState::ShuttingDown {
            return Err(Error::ShutDown);
        }
        let permit = TaskPermit::take(&self.shared)?;
        let (completer, completion) = completion(Some(self.shared.id));
        let entry = Arc::new(TaskEntry::new(body, completer, permit));
        self.shared.submit(mail(entry.clone()), when)?;
        Ok(ScheduledTask::new(entry, completion))
    }
}
