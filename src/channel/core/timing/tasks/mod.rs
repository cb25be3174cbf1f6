//! The tasks of a channel: scheduled exactly on the loop's heap, scheduled coarsely on its wheel,
//! or waiting for an answer of a worker or a completion. The close timeout is kept beside them.
//!
//! Invariants: each task has at most one entry in the heap, on the wheel, or with the source of its
//! answer. The entry identifies the task by its slot. A task runs once, or again and again if it is
//! periodic, or is dropped when it is cancelled or the channel closes. A periodic task keeps its
//! slot and its key while it runs. The number of tasks is limited. Scheduling, cancelling and
//! running take constant time. Runs on the channel's loop. Owns the tasks, but neither heap, wheel
//! nor clock. A channel without tasks pays one word.

mod kept_task;
#[cfg(all(test, not(netwheel_loom)))]
mod tests;

pub(crate) use kept_task::continues;

use crate::{
    channel::{
        ChannelTimer, Delay, Due, HandleTask, Periodic, Repeat, TaskEntry, TaskKey, TaskTime, TimerToken,
        core::services::LoopServices, timers::TimerPlace,
    },
    error::{Error, Resource, Result, drop_guarded},
    id::Key,
    timer::QueueKey,
};
use kept_task::KeptTask;
use slab::Slab;
use std::{any::Any, sync::Arc};

impl TaskTime {
    /// Returns the time of a task that is scheduled on its loop.
    #[inline]
    pub(crate) fn after(delay: Delay, services: &LoopServices) -> Self {
        if delay.is_coarse() {
            return TaskTime::at(delay, services.now);
        }
        // The time of the turn would be too early after a long callback.
        TaskTime::at(delay, services.time.now())
    }
}

/// The largest number of stages in a pipeline.
pub(crate) const MAX_STAGES: u32 = u32::BITS;

#[derive(Default)]
pub(crate) struct Tasks {
    tasks: Slab<Timer>,
    /// The timer of the close timeout.
    close: Option<QueueKey>,
    /// The stages that pause reading: a bit for each position.
    paused: u32,
    /// Stages whose pause notices the end of the peer's stream, one bit each: some of `paused`.
    watched: u32,
}

struct Timer {
    /// Where the task waits, or the number of a kept task. Identifies the task in its slot.
    place: TimerPlace,
    task: TimerTask,
}

enum TimerTask {
    /// Runs once, and has no handle.
    Plain(Box<dyn Any>),
    Kept(Box<KeptTask>),
}

/// A task whose time has come.
pub(crate) enum DueTask {
    /// Has left its slot. Its handle, if it has one, tells whether it has begun.
    Once(Box<dyn Any>, Option<Arc<dyn TaskEntry>>),
    /// Keeps its slot. [`Tasks::rearm`] or [`Tasks::cancel`] follows.
    Periodic(TaskKey, Box<dyn Any>),
}

impl Tasks {
    fn take(&mut self, key: TaskKey) -> Option<Timer> {
        self.find(key)?;
        Some(self.tasks.remove(key.slot as usize))
    }

    fn find(&mut self, key: TaskKey) -> Option<&mut Timer> {
        let timer = self.tasks.get_mut(key.slot as usize)?;
        (key.place != TimerPlace::Nowhere && timer.place == key.place).then_some(timer)
    }

    /// Makes room for a task.
    ///
    /// # Errors
    /// [`Error::Full`] if there are `limit` tasks.
    fn reserve(&mut self, limit: usize, services: &mut LoopServices) -> Result {
        if self.tasks.len() >= limit {
            self.drop_cancelled(services);
            if self.tasks.len() >= limit {
                return Err(Error::Full { resource: Resource::ChannelTasks, limit });
            }
        }
        Ok(())
    }

    /// Drops the tasks that their handles have cancelled, without waiting for the mail about them.
    #[cold]
    fn drop_cancelled(&mut self, services: &mut LoopServices) {
        self.tasks.retain(|_, timer| match &timer.task {
            TimerTask::Kept(kept) if kept.was_cancelled() => {
                take_out(services, kept.place);
                false
            }
            _ => true,
        });
    }

    /// Schedules a task. Drops it and returns `None` if there are `limit` tasks.
    pub(crate) fn arm(
        &mut self,
        channel: Key,
        limit: usize,
        services: &mut LoopServices,
        when: TaskTime,
        task: Box<dyn Any>,
    ) -> Option<TaskKey> {
        if self.reserve(limit, services).is_err() {
            drop_guarded(task);
            return None;
        }
        let entry = self.tasks.vacant_entry();
        let slot = entry.key() as u32;
        let place = enter(services, channel, slot, when);
        entry.insert(Timer { place, task: TimerTask::Plain(task) });
        Some(TaskKey { slot, place })
    }

    /// Schedules a task that repeats.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is not open, [`Error::Setting`] if `periodic` is out of
    /// range, or [`Error::Full`] if there are `limit` tasks. `task` is dropped.
    pub(crate) fn arm_periodic(
        &mut self,
        channel: Key,
        limit: usize,
        services: &mut LoopServices,
        periodic: Periodic,
        open: bool,
        task: Box<dyn Any>,
    ) -> Result<TaskKey> {
        let repeat = if open {
            let repeat = Repeat::new(periodic, services.time.now(), &services.random);
            repeat.and_then(|repeat| self.reserve(limit, services).map(|()| repeat))
        } else {
            Err(Error::Closed)
        };
        match repeat {
            Ok((repeat, first)) => {
                let kept = KeptTask::new(task, Some(repeat), None);
                Ok(self.keep(channel, services, TaskTime::Exact(first), kept))
            }
            Err(refused) => {
                drop_guarded(task);
                Err(refused)
            }
        }
    }

    /// Schedules a task of a handle, unless it was cancelled on its way.
    pub(in crate::channel) fn accept(
        &mut self,
        channel: Key,
        limit: usize,
        services: &mut LoopServices,
        task: HandleTask,
    ) {
        let HandleTask { start, task, entry } = task;
        let accepted = self.reserve(limit, services).and_then(|()| start.begin(&services.random));
        let (when, repeat) = match accepted {
            Ok(accepted) => accepted,
            Err(reason) => {
                entry.end(reason);
                drop_guarded(task);
                return;
            }
        };
        entry.set_deadline(when.deadline());
        let key = self.keep(channel, services, when, KeptTask::new(task, repeat, Some(entry.clone())));
        // The key first: a cancel on another thread either finds the key, and sends mail, or is
        // seen here.
        entry.set_key(key);
        if !entry.is_waiting() {
            self.cancel(services, key);
        }
    }

    fn keep(
        &mut self,
        channel: Key,
        services: &mut LoopServices,
        when: TaskTime,
        mut kept: KeptTask,
    ) -> TaskKey {
        services.numbered += 1;
        let number = TimerPlace::Kept(services.numbered);
        let entry = self.tasks.vacant_entry();
        let slot = entry.key() as u32;
        kept.place = enter(services, channel, slot, when);
        entry.insert(Timer { place: number, task: TimerTask::Kept(Box::new(kept)) });
        TaskKey { slot, place: number }
    }

    /// Schedules the next run of a periodic task, after a run that succeeded, unless it was
    /// cancelled in that run.
    pub(crate) fn rearm(
        &mut self,
        channel: Key,
        services: &mut LoopServices,
        key: TaskKey,
        task: Box<dyn Any>,
    ) {
        let now = services.time.now();
        let next = match self.find(key) {
            Some(Timer { task: TimerTask::Kept(kept), .. }) => kept.put_back(task, now, &services.random),
            _ => Err(task),
        };
        match next {
            Ok((kept, next)) => {
                // A missed run waits for the next turn. In front of other due timers, it would end
                // the timers of this turn.
                let at = TaskTime::Exact(next.max(services.now));
                kept.place = enter(services, channel, key.slot, at);
            }
            Err(task) => {
                self.cancel(services, key);
                drop_guarded(task);
            }
        }
    }

    /// Schedules the close timeout, unless it is scheduled already.
    pub(in crate::channel) fn arm_close(&mut self, channel: Key, services: &mut LoopServices, deadline: u64) {
        let token = TimerToken::new(channel, ChannelTimer::CloseTimeout);
        self.close.get_or_insert_with(|| services.queue.insert(deadline, Due::Channel(token)));
    }

    /// Takes the timer of the close timeout, which is then no longer cancelled with the channel.
    pub(in crate::channel) fn take_close(&mut self) -> Option<QueueKey> {
        self.close.take()
    }

    /// Keeps the task that `make` creates for its key, until its answer arrives.
    ///
    /// # Errors
    /// [`Error::Full`] if there are `limit` tasks; `make` is dropped.
    pub(in crate::channel) fn await_answer(
        &mut self,
        limit: usize,
        services: &mut LoopServices,
        make: impl FnOnce(TaskKey) -> Box<dyn Any>,
    ) -> Result<TaskKey> {
        if let Err(full) = self.reserve(limit, services) {
            drop_guarded(make);
            return Err(full);
        }
        services.numbered += 1;
        let place = TimerPlace::Answer(services.numbered);
        let entry = self.tasks.vacant_entry();
        let key = TaskKey { slot: entry.key() as u32, place };
        entry.insert(Timer { place, task: TimerTask::Plain(make(key)) });
        Ok(key)
    }

    /// Removes and returns a task whose answer has arrived, unless it was cancelled.
    pub(in crate::channel) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        match self.take(key)?.task {
            TimerTask::Plain(task) => Some(task),
            TimerTask::Kept(kept) => kept.task,
        }
    }

    /// Records whether the stage at a position pauses reading. Returns whether any stage does.
    pub(in crate::channel) fn set_paused(&mut self, stage: u32, on: bool) -> bool {
        let bit = 1 << (stage - 1);
        self.paused = if on { self.paused | bit } else { self.paused & !bit };
        self.watched &= !bit;
        self.paused != 0
    }

    /// Lets the pause of the stage at a position notice the end of the peer's stream.
    #[cfg(feature = "http")]
    pub(in crate::channel) fn watch_for_end(&mut self, stage: u32) {
        self.watched |= self.paused & 1 << (stage - 1);
    }

    /// Returns whether all stages that pause reading watch for the end of the peer's stream.
    pub(in crate::channel) fn watches_for_end(&self) -> bool {
        self.watched != 0 && self.watched == self.paused
    }

    /// Returns whether the stage at a position pauses reading.
    pub(in crate::channel) fn is_paused(&self, stage: u32) -> bool {
        self.paused & 1 << (stage - 1) != 0
    }

    /// Cancels a task. Returns whether it was waiting, or is periodic and running.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        let Some(timer) = self.take(key) else { return false };
        timer.drop_because(services, Error::Closed);
        true
    }

    /// Returns when a scheduled task is due next.
    pub(crate) fn deadline(&self, services: &LoopServices, key: TaskKey) -> Option<u64> {
        let timer = self.tasks.get(key.slot as usize).filter(|timer| timer.place == key.place)?;
        match timer.timer_place() {
            TimerPlace::Exact(key) => services.queue.deadline(key),
            TimerPlace::Wheel(key) => services.wheel.deadline(key),
            TimerPlace::Answer(_) | TimerPlace::Kept(_) | TimerPlace::Nowhere => None,
        }
    }

    /// Returns the task in `slot`, whose timer has expired.
    pub(crate) fn take_due(&mut self, slot: u32) -> Option<DueTask> {
        let timer = self.tasks.get_mut(slot as usize)?;
        if let TimerTask::Kept(kept) = &mut timer.task
            && kept.repeats()
        {
            let task = kept.begin_run()?;
            return Some(DueTask::Periodic(TaskKey { slot, place: timer.place }, task));
        }
        Some(match self.tasks.remove(slot as usize).task {
            TimerTask::Plain(task) => DueTask::Once(task, None),
            TimerTask::Kept(kept) => DueTask::Once(kept.task?, kept.entry),
        })
    }

    /// Drops all tasks and the close timeout, with the reason for their handles. Returns the number
    /// of tasks.
    pub(crate) fn cancel_all(&mut self, services: &mut LoopServices, why: &Error) -> usize {
        if let Some(close) = self.close.take() {
            drop(services.cancel_timer(close));
        }
        let cancelled = self.tasks.len();
        for timer in std::mem::take(&mut self.tasks).drain() {
            timer.drop_because(services, why.clone());
        }
        cancelled
    }
}

impl Timer {
    /// Returns where the timer of the task is.
    fn timer_place(&self) -> TimerPlace {
        match &self.task {
            TimerTask::Plain(_) => self.place,
            TimerTask::Kept(kept) => kept.place,
        }
    }

    fn drop_because(self, services: &mut LoopServices, why: Error) {
        take_out(services, self.timer_place());
        if let TimerTask::Kept(kept) = &self.task
            && let Some(entry) = &kept.entry
        {
            entry.end(why);
        }
        drop_guarded(self.task);
    }
}

/// Adds a timer for the task in `slot` to the heap or the wheel.
fn enter(services: &mut LoopServices, channel: Key, slot: u32, when: TaskTime) -> TimerPlace {
    let token = TimerToken::new(channel, ChannelTimer::Task(slot));
    match when {
        TaskTime::Exact(deadline) => TimerPlace::Exact(services.queue.insert(deadline, Due::Channel(token))),
        TaskTime::Coarse(deadline) => TimerPlace::Wheel(services.wheel.insert(deadline, token)),
    }
}

/// Removes the entry of a cancelled task from the heap or the wheel.
fn take_out(services: &mut LoopServices, place: TimerPlace) {
    match place {
        TimerPlace::Exact(key) => drop(services.cancel_timer(key)),
        TimerPlace::Wheel(key) => {
            services.tally.wheel_cancelled += u64::from(services.wheel.cancel(key).is_some())
        }
        // The answer finds that the task is gone.
        TimerPlace::Answer(_) | TimerPlace::Kept(_) | TimerPlace::Nowhere => {}
    }
}
