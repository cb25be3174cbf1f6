//! The tasks of a channel: scheduled exactly on the loop's heap, scheduled coarsely on its wheel,
//! or waiting for a worker. The close timeout is kept beside them.
//!
//! Invariants: each task has exactly one entry in the heap, on the wheel or in the worker pool,
//! which names it by its slot. It runs once, or is dropped when it is cancelled or the channel
//! closes. Their number is limited. Scheduling, cancelling and running take constant time. Runs on
//! the channel's loop. Owns the tasks, but neither heap, wheel nor clock. A channel without tasks
//! pays one word.

use super::{
    services::LoopServices,
    timers::{ChannelTimer, Due, TaskKey, TimerPlace, TimerToken},
};
use crate::{Error, Result, error::drop_guarded, id::Key, resource::CHANNEL_TASKS, timer::QueueKey};
use slab::Slab;
use std::any::Any;

/// The time of a task: at a deadline, or in the tick of the wheel after it.
pub(crate) enum When {
    Exact(u64),
    Coarse(u64),
}

#[derive(Default)]
pub(crate) struct Timers {
    tasks: Slab<Timer>,
    /// The timer of the close timeout.
    close: Option<QueueKey>,
}

struct Timer {
    place: TimerPlace,
    task: Box<dyn Any>,
}

impl Timers {
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
        when: When,
        task: Box<dyn Any>,
    ) -> Option<TaskKey> {
        if self.tasks.len() >= limit {
            drop_guarded(task);
            return None;
        }
        let slot = self.enter(task);
        let token = TimerToken::new(channel, ChannelTimer::Task(slot));
        let place = match when {
            When::Exact(deadline) => TimerPlace::Exact(services.queue.insert(deadline, Due::Channel(token))),
            When::Coarse(deadline) => TimerPlace::Wheel(services.wheel.insert(deadline, token)),
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

    /// Keeps a task until a worker has its answer.
    ///
    /// # Errors
    /// If there are `limit` tasks; the task is dropped.
    pub(in crate::channel) fn await_worker(
        &mut self,
        limit: usize,
        services: &mut LoopServices,
        task: Box<dyn Any>,
    ) -> Result<TaskKey> {
        if self.tasks.len() >= limit {
            drop_guarded(task);
            return Err(Error::Full { what: CHANNEL_TASKS, limit });
        }
        services.offloaded += 1;
        let slot = self.enter(task);
        Ok(self.place(slot, TimerPlace::Worker(services.offloaded)))
    }

    /// Removes and returns a task whose answer has arrived, unless it was cancelled.
    pub(in crate::channel) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.take(key).map(|timer| timer.task)
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

    /// Drops the scheduled tasks and returns their number. Offloaded work stays.
    pub(in crate::channel) fn cancel_timed(&mut self, services: &mut LoopServices) -> usize {
        let is_timed = |timer: &Timer| !matches!(timer.place, TimerPlace::Worker(_));
        let timed: Vec<_> =
            self.tasks.iter().filter(|(_, timer)| is_timed(timer)).map(|(slot, _)| slot).collect();
        for slot in &timed {
            let timer = self.tasks.remove(*slot);
            take_out(services, timer.place);
            drop_guarded(timer.task);
        }
        timed.len()
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
        // The worker finds that the task is gone.
        TimerPlace::Worker(_) | TimerPlace::Nowhere => {}
    }
}
