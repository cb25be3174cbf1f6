//! The tasks of a channel: scheduled exactly on the loop's heap, scheduled coarsely on its wheel,
//! or waiting for an answer of a worker or a completion. The close timeout is kept beside them.
//!
//! Invariants: each task has exactly one entry in the heap, on the wheel, or with the source of its
//! answer. The entry identifies the task by its slot. It runs once, or is dropped when it is
//! cancelled or the channel closes. The number of tasks is limited. Scheduling, cancelling and
//! running take constant time. Runs on the channel's loop. Owns the tasks, but neither heap, wheel
//! nor clock. A channel without tasks pays one word.

use super::{
    services::LoopServices,
    timers::{ChannelTimer, Delay, Due, TaskKey, TimerPlace, TimerToken},
};
use crate::{
    Error, Result,
    clock::nanos,
    error::{Resource, drop_guarded},
    id::Key,
    timer::QueueKey,
};
use slab::Slab;
use std::any::Any;

/// The time of a task: at a deadline, or in the tick of the wheel after it.
pub(crate) enum TaskTime {
    Exact(u64),
    Coarse(u64),
}

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

    /// Returns the time of a task whose delay counts from `now`.
    #[inline]
    pub(crate) fn at(delay: Delay, now: u64) -> Self {
        let deadline = now.saturating_add(nanos(delay.duration()));
        if delay.is_coarse() { TaskTime::Coarse(deadline) } else { TaskTime::Exact(deadline) }
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
    place: TimerPlace,
    task: Box<dyn Any>,
}

impl Tasks {
    /// Inserts a task and returns its slot.
    fn enter(&mut self, task: Box<dyn Any>) -> u32 {
        self.tasks.insert(Timer { place: TimerPlace::Nowhere, task }) as u32
    }

    fn place(&mut self, slot: u32, place: TimerPlace) -> TaskKey {
        self.tasks[slot as usize].place = place;
        TaskKey { slot, place }
    }

    fn take(&mut self, key: TaskKey) -> Option<Timer> {
        let slot = key.slot as usize;
        let found = key.place != TimerPlace::Nowhere
            && self.tasks.get(slot).is_some_and(|timer| timer.place == key.place);
        found.then(|| self.tasks.remove(slot))
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
        if self.tasks.len() >= limit {
            drop_guarded(task);
            return None;
        }
        let slot = self.enter(task);
        let token = TimerToken::new(channel, ChannelTimer::Task(slot));
        let place = match when {
            TaskTime::Exact(deadline) => {
                TimerPlace::Exact(services.queue.insert(deadline, Due::Channel(token)))
            }
            TaskTime::Coarse(deadline) => TimerPlace::Wheel(services.wheel.insert(deadline, token)),
        };
        Some(self.place(slot, place))
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
    /// If there are `limit` tasks; `make` is dropped.
    pub(in crate::channel) fn await_answer(
        &mut self,
        limit: usize,
        services: &mut LoopServices,
        make: impl FnOnce(TaskKey) -> Box<dyn Any>,
    ) -> Result<TaskKey> {
        if self.tasks.len() >= limit {
            drop_guarded(make);
            return Err(Error::Full { resource: Resource::ChannelTasks, limit });
        }
        services.awaited += 1;
        let place = TimerPlace::Answer(services.awaited);
        let entry = self.tasks.vacant_entry();
        let key = TaskKey { slot: entry.key() as u32, place };
        entry.insert(Timer { place, task: make(key) });
        Ok(key)
    }

    /// Removes and returns a task whose answer has arrived, unless it was cancelled.
    pub(in crate::channel) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.take(key).map(|timer| timer.task)
    }

    /// Records whether the stage at a position pauses reading. Returns whether any stage does.
    pub(in crate::channel) fn set_paused(&mut self, stage: u32, on: bool) -> bool {
        let bit = 1 << (stage - 1);
        self.paused = if on { self.paused | bit } else { self.paused & !bit };
        self.watched &= !bit;
        self.paused != 0
    }

    /// Lets the pause of the stage at a position notice the end of the peer's stream.
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

    /// Cancels a task. Returns whether it was waiting.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        let Some(timer) = self.take(key) else { return false };
        take_out(services, timer.place);
        drop_guarded(timer.task);
        true
    }

    /// Removes and returns the task in `slot`, whose timer has expired.
    pub(crate) fn take_due(&mut self, slot: u32) -> Option<Box<dyn Any>> {
        self.tasks.try_remove(slot as usize).map(|timer| timer.task)
    }

    /// Drops all tasks and the close timeout. Returns the number of tasks.
    pub(crate) fn cancel_all(&mut self, services: &mut LoopServices) -> usize {
        if let Some(close) = self.close.take() {
            drop(services.cancel_timer(close));
        }
        let cancelled = self.tasks.len();
        for timer in std::mem::take(&mut self.tasks).drain() {
            take_out(services, timer.place);
            drop_guarded(timer.task);
        }
        cancelled
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
        TimerPlace::Answer(_) | TimerPlace::Nowhere => {}
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::{rc::Rc, time::Duration};

    const CHANNEL: Key = Key { index: 3, generation: 7 };

    fn services() -> LoopServices {
        LoopServices::detached(Duration::from_millis(100))
    }

    /// The timers in the heap, in the order of their deadlines.
    fn heap(services: &LoopServices) -> Vec<ChannelTimer> {
        let timer = |due| match due {
            Due::Channel(token) if token.is_for(CHANNEL) => token.timer(),
            _ => unreachable!("only this channel has timers"),
        };
        services.queue.clear().into_iter().map(timer).collect()
    }

    #[test]
    fn a_cancel_removes_only_the_entry_of_its_task() {
        let (mut tasks, mut services) = (Tasks::default(), services());
        let value = Rc::new(());
        let mut arm = |tasks: &mut Tasks, when| {
            tasks.arm(CHANNEL, 10, &mut services, when, Box::new(value.clone())).expect("below the limit")
        };
        let (exact, coarse) = (arm(&mut tasks, TaskTime::Exact(5)), arm(&mut tasks, TaskTime::Coarse(9)));
        assert_eq!((services.queue.len(), services.wheel.len()), (1, 1));
        assert!(tasks.cancel(&mut services, coarse) && !tasks.cancel(&mut services, coarse));
        assert_eq!((services.queue.len(), services.wheel.len(), Rc::strong_count(&value)), (1, 0, 2));
        assert!(tasks.take_due(exact.slot).is_some() && tasks.take_due(exact.slot).is_none());
        assert_eq!(heap(&services), [ChannelTimer::Task(exact.slot)]);
    }

    #[test]
    fn the_limit_counts_scheduled_and_offloaded_tasks_but_not_the_close_timeout() {
        let (mut tasks, mut services) = (Tasks::default(), services());
        tasks.arm_close(CHANNEL, &mut services, 1);
        assert!(tasks.arm(CHANNEL, 2, &mut services, TaskTime::Exact(5), Box::new(())).is_some());
        assert!(tasks.await_answer(2, &mut services, |_| Box::new(())).is_ok());
        assert!(tasks.arm(CHANNEL, 2, &mut services, TaskTime::Exact(5), Box::new(())).is_none());
        assert!(matches!(
            tasks.await_answer(2, &mut services, |_| Box::new(())),
            Err(Error::Full { resource: Resource::ChannelTasks, limit: 2 })
        ));
    }

    #[test]
    fn a_shutdown_cancels_scheduled_tasks_and_a_close_cancels_all() {
        let (mut tasks, mut services) = (Tasks::default(), services());
        tasks.arm_close(CHANNEL, &mut services, 100);
        tasks.arm_close(CHANNEL, &mut services, 1);
        tasks.arm(CHANNEL, 10, &mut services, TaskTime::Exact(5), Box::new(()));
        tasks.arm(CHANNEL, 10, &mut services, TaskTime::Coarse(5), Box::new(()));
        let offloaded = tasks.await_answer(10, &mut services, |_| Box::new(())).expect("below the limit");
        assert_eq!(tasks.cancel_timed(&mut services), 2);
        assert_eq!((services.queue.len(), services.wheel.len()), (1, 0), "the close timeout, armed once");
        assert!(tasks.take_answered(offloaded).is_some() && tasks.take_answered(offloaded).is_none());
        assert_eq!(tasks.cancel_all(&mut services), 0, "no tasks are left");
        assert_eq!(services.queue.len(), 0);
    }

    #[test]
    fn each_stage_pauses_for_itself_up_to_the_last_position() {
        let mut tasks = Tasks::default();
        for stage in [1, 2, MAX_STAGES] {
            assert!(!tasks.is_paused(stage));
            assert!(tasks.set_paused(stage, true) && tasks.set_paused(stage, true));
        }
        assert!(tasks.set_paused(2, false) && !tasks.is_paused(2) && tasks.is_paused(MAX_STAGES));
        assert!(tasks.set_paused(MAX_STAGES, false) && !tasks.set_paused(1, false));
    }

    #[test]
    fn a_close_timeout_that_was_taken_outlives_the_channel() {
        let (mut tasks, mut services) = (Tasks::default(), services());
        tasks.arm_close(CHANNEL, &mut services, 100);
        assert!(tasks.take_close().is_some() && tasks.take_close().is_none());
        tasks.cancel_all(&mut services);
        assert_eq!(heap(&services), [ChannelTimer::CloseTimeout]);
    }
}
