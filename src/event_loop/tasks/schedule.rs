//! The methods of a loop's handle that schedule tasks.
//!
//! Invariant: a scheduled task reaches the heap through the loop's queue, on whichever thread it is
//! submitted. So it keeps its order among the tasks of that thread. Any thread calls these methods.
//! `scheduled` has the entries.

use super::scheduled::{TaskBody, TaskEntry, TaskPermit};
use crate::{
    channel::{NEVER, Periodic, Repeat, Scheduled, ScheduledTask},
    clock::nanos,
    error::{Error, Result},
    event_loop::{EventLoop, mail::LoopMail, shared::LifeState},
};
use std::{sync::Arc, time::Duration};

impl EventLoop {
    /// Runs `task` on the loop after `delay`. Its return value completes
    /// [`ScheduledTask::completion`].
    ///
    /// The task never runs early. It runs late by the loop's lag, and by at most a millisecond of
    /// sleep granularity if the loop is idle. A delay beyond 584 years never expires. If a
    /// scheduled task schedules another one, the new one runs in the next turn at the earliest,
    /// even without a delay.
    ///
    /// The delay is always [exact](crate::time::Delay::exact), because the loop's wheel holds only
    /// timers of channels. Timeouts that belong to a channel can be coarse
    /// ([`Channel::schedule`](crate::Channel::schedule)).
    ///
    /// If the task returns `Result<(), netwheel::Error>`, an `Err` is logged and counted like that
    /// of a [periodic task](EventLoop::schedule_periodic).
    ///
    /// # Errors
    /// [`Error::Full`] if the limit of scheduled tasks
    /// ([`max_scheduled_tasks`](crate::group::EventLoopGroupBuilder::max_scheduled_tasks)) is
    /// reached or the loop's queue is full. [`Error::ShutDown`] if the loop is shutting down.
    #[track_caller]
    pub fn schedule<T: Send + 'static>(
        &self,
        delay: Duration,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        let deadline = self.after(delay);
        let body = TaskBody::Once(Box::new(task));
        self.submit_scheduled(body, |entry| LoopMail::Schedule(deadline, entry), deadline, deadline)
    }

    /// Runs `task` again and again, as `periodic` says. A `Duration` is the period of a
    /// [fixed rate](Periodic::fixed_rate).
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, time::Periodic};
    /// use std::time::Duration;
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let event_loop = group.next();
    /// let second = Duration::from_secs(1);
    /// let tick = event_loop.schedule_periodic(second, || Ok(println!("tick")))?;
    /// let poll = event_loop.schedule_periodic(Periodic::fixed_delay(second), || Ok(println!("poll")))?;
    /// assert!(tick.cancel() && poll.cancel());
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// The task ends when it is cancelled, returns an error or panics, or when the loop ends. Its
    /// completion then fails with that error. The error is also logged, with the location of this
    /// call, and counted ([`tasks_failed`](crate::metrics::LoopMetrics::tasks_failed)), because the
    /// completion may have been dropped. [`Error::Cancelled`] is neither logged nor counted: a task
    /// returns it to end itself.
    ///
    /// # Errors
    /// [`Error::Setting`] if the period or delay is zero or shorter than the jitter. Otherwise like
    /// [`schedule`](EventLoop::schedule).
    #[doc(alias = "scheduleAtFixedRate")]
    #[doc(alias = "scheduleWithFixedDelay")]
    #[doc(alias = "scheduleRepeatedTask")]
    #[doc(alias = "schedule_at_fixed_rate")]
    #[doc(alias = "schedule_with_fixed_delay")]
    #[track_caller]
    pub fn schedule_periodic(
        &self,
        periodic: impl Into<Periodic>,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        let (repeat, first) = Repeat::new(periodic.into(), self.shared.time.now(), &self.shared.random)?;
        let body = TaskBody::Again { body: Box::new(task), repeat };
        self.submit_scheduled(body, |entry| LoopMail::Schedule(first, entry), first, first)
    }

    /// Runs `task` once at the end of the turn in which it reaches the loop. It runs after the
    /// tasks and timers of that turn, and before pending writes are flushed. Use it to combine the
    /// work of a turn.
    ///
    /// A turn runs at most 1024 of these tasks, within the time for timers. If that time is used
    /// up, it still runs 64 of them, or fewer if they take 100 µs, but at least one. The others run
    /// at the end of the next turn.
    ///
    /// # Errors
    /// The errors of [`schedule`](EventLoop::schedule).
    #[doc(alias = "schedule_at_turn_end")]
    #[track_caller]
    pub fn execute_at_turn_end<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        self.submit_scheduled(TaskBody::Once(Box::new(task)), LoopMail::AtTurnEnd, NEVER, 0)
    }

    /// Like [`schedule`](EventLoop::schedule), but ignores the limits of the queue and of scheduled
    /// tasks. For operations that the loop has already accepted, and that have at most this one
    /// timer.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the loop is shutting down.
    #[track_caller]
    pub(crate) fn schedule_always(
        &self,
        delay: Duration,
        task: impl FnOnce() + Send + 'static,
    ) -> Result<ScheduledTask> {
        self.schedule_always_at(self.after(delay), task)
    }

    /// Like [`schedule_always`](EventLoop::schedule_always), at a time of the loop.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the loop is shutting down.
    #[track_caller]
    pub(crate) fn schedule_always_at(
        &self,
        deadline: u64,
        task: impl FnOnce() + Send + 'static,
    ) -> Result<ScheduledTask> {
        if self.shared.state() >= LifeState::ShuttingDown {
            return Err(Error::ShutDown);
        }
        let permit = TaskPermit::always(&self.shared);
        let (entry, completion) = TaskEntry::new(TaskBody::Once(Box::new(task)), deadline, permit, false);
        let mail = LoopMail::Schedule(deadline, entry.clone());
        self.shared.submit_always(mail)?;
        Ok(ScheduledTask::new(entry, completion))
    }

    /// Returns the time of the loop's clock.
    pub(crate) fn now(&self) -> u64 {
        self.shared.time.now()
    }

    /// Like [`schedule_always_at`](EventLoop::schedule_always_at), for a task that belongs to a
    /// reply in flight: a time limit of an outgoing call. A shutdown cancels it together with
    /// outgoing connections, and not when it begins.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the loop has shut down.
    #[track_caller]
    pub(crate) fn schedule_for_reply(
        &self,
        deadline: u64,
        task: impl FnOnce() + Send + 'static,
    ) -> Result<ScheduledTask> {
        let (body, permit) = (TaskBody::Once(Box::new(task)), TaskPermit::always(&self.shared));
        let (entry, completion) = TaskEntry::new(body, deadline, permit, true);
        self.shared.submit_always(LoopMail::Schedule(deadline, entry.clone()))?;
        Ok(ScheduledTask::new(entry, completion))
    }

    /// Returns the loop's time after `delay`.
    pub(crate) fn after(&self, delay: Duration) -> u64 {
        self.shared.time.now().saturating_add(nanos(delay))
    }

    /// Submits a cancellable task with this deadline, which the loop has to receive before `when`.
    #[track_caller]
    fn submit_scheduled<T: Send + 'static>(
        &self,
        body: TaskBody<T>,
        mail: impl FnOnce(Arc<dyn Scheduled>) -> LoopMail,
        deadline: u64,
        when: u64,
    ) -> Result<ScheduledTask<T>> {
        if self.shared.state() >= LifeState::ShuttingDown {
            return Err(Error::ShutDown);
        }
        let permit = TaskPermit::take(&self.shared)?;
        let (entry, completion) = TaskEntry::new(body, deadline, permit, false);
        self.shared.submit(mail(entry.clone()), when)?;
        Ok(ScheduledTask::new(entry, completion))
    }
}
