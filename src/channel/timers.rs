//! The tasks of one channel that wait: for their time, exact ones on the loop's heap, coarse ones on its wheel; or for the
//! answer of a worker.
//!
//! Always holds: every task here has exactly one entry in the heap, on the wheel or among the works of a pool, which knows it
//! by its slot; it is run once, or dropped when it is cancelled or the channel ends, whichever comes first. There is a limit to them. To
//! arm, cancel or run one takes the same time however many the channel has. Runs on the channel's loop; owns the tasks,
//! neither heap nor wheel nor clock. A channel without tasks pays one word.

use super::{
    services::{Due, LoopServices, WheelToken},
    state::{ChannelState, Flags},
};
use crate::{
    Error, Result,
    error::drop_guarded,
    id::Key,
    resource::CHANNEL_TASKS,
    timer::{QueueKey, WheelKey},
};
use slab::Slab;
use std::any::Any;

/// Names a scheduled task, a timeout or an offloaded work of a channel, to cancel it by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct TaskKey {
    slot: u32,
    place: TimerPlace,
}

/// Where it waits. It carries a generation: a late cancel finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum TimerPlace {
    Exact(QueueKey),
    WheelToken(WheelKey),
    /// Among the works of a pool; the loop's count of them.
    Worker(u64),
    /// Nowhere: it was refused.
    Nowhere,
}

impl TaskKey {
    /// Of a task that was refused: it names nothing.
    pub(crate) const NONE: TaskKey = TaskKey { slot: 0, place: TimerPlace::Nowhere };
}

/// When a task is to run: at a deadline, or in the tick of the wheel after it.
pub(crate) enum When {
    Exact(u64),
    WheelToken(u64),
}

#[derive(Default)]
pub(crate) struct Timers(Slab<Timer>);

struct Timer {
    place: TimerPlace,
    /// None: the close timeout, which concerns the loop.
    task: Option<Box<dyn Any>>,
}

impl Timers {
    /// Makes room for a task; its slot.
    fn enter(&mut self, task: Option<Box<dyn Any>>) -> u32 {
        self.0.insert(Timer { place: TimerPlace::Nowhere, task }) as u32
    }

    fn place(&mut self, slot: u32, place: TimerPlace) -> TaskKey {
        self.0[slot as usize].place = place;
        TaskKey { slot, place }
    }

    fn take(&mut self, key: TaskKey) -> Option<Timer> {
        let slot = key.slot as usize;
        let found = key.place != TimerPlace::Nowhere
            && self.0.get(slot).is_some_and(|timer| timer.place == key.place);
        found.then(|| self.0.remove(slot))
    }

    /// Has a task run at its time; none if there are `limit` of them, and the task is dropped.
    pub(crate) fn arm(
        &mut self,
        channel: Key,
        limit: usize,
        services: &mut LoopServices,
        when: When,
        task: Box<dyn Any>,
    ) -> Option<TaskKey> {
        if self.0.len() >= limit {
            drop_guarded(task);
            return None;
        }
        let slot = self.enter(Some(task));
        let place = match when {
            When::Exact(deadline) => {
                TimerPlace::Exact(services.queue.insert(deadline, Due::Channel(channel, slot)))
            }
            When::WheelToken(deadline) => {
                TimerPlace::WheelToken(services.wheel.insert(deadline, WheelToken::new(channel, slot)))
            }
        };
        Some(self.place(slot, place))
    }

    /// Cancels a task; whether it was waiting.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        let Some(timer) = self.take(key) else { return false };
        take_out(services, timer.place);
        drop_guarded(timer.task);
        true
    }

    /// The task that is due in `slot`.
    pub(crate) fn take_due(&mut self, slot: u32) -> Option<Box<dyn Any>> {
        self.0.try_remove(slot as usize)?.task
    }

    /// Drops all tasks; how many there were.
    pub(crate) fn cancel_all(&mut self, services: &mut LoopServices) -> usize {
        let cancelled = self.0.len();
        for timer in std::mem::take(&mut self.0).drain() {
            take_out(services, timer.place);
            drop_guarded(timer.task);
        }
        cancelled
    }
}

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
        self.arm(services, When::WheelToken(deadline), task)
    }

    fn arm(&mut self, services: &mut LoopServices, when: When, task: Box<dyn Any>) -> TaskKey {
        let (channel, limit) = (self.key(), self.config.max_scheduled_tasks);
        let timers = self.timers.get_or_insert_default();
        timers.arm(channel, limit, services, when, task).unwrap_or_else(|| {
            self.set(Flags::TASK_REFUSED);
            TaskKey::NONE
        })
    }

    /// Limits how long a closing channel waits for its peer.
    pub(crate) fn arm_close(&mut self, services: &mut LoopServices) {
        if !self.has(Flags::CLOSE_ARMED) {
            self.set(Flags::CLOSE_ARMED);
            let deadline = services.now.saturating_add(self.config.close_timeout_ns);
            let place = TimerPlace::Exact(services.queue.insert(deadline, Due::Source(self.key())));
            // Among the tasks, so that it goes with the channel.
            let timers = self.timers.get_or_insert_default();
            let slot = timers.enter(None);
            timers.place(slot, place);
        }
    }

    /// Cancels a task; whether it was waiting.
    pub(crate) fn cancel(&mut self, services: &mut LoopServices, key: TaskKey) -> bool {
        self.timers.as_mut().is_some_and(|timers| timers.cancel(services, key))
    }

    /// Takes the timer of the close timeout, if it is armed. It is no longer cancelled with the
    /// channel.
    pub(crate) fn take_close_timer(&mut self) -> Option<QueueKey> {
        if !self.has(Flags::CLOSE_ARMED) {
            return None;
        }
        let timers = &mut self.timers.as_mut()?.0;
        let slot = timers.iter().find(|(_, timer)| timer.task.is_none()).map(|(slot, _)| slot)?;
        match timers.remove(slot).place {
            TimerPlace::Exact(key) => Some(key),
            _ => None,
        }
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
        let timers = self.timers.get_or_insert_default();
        if timers.0.len() >= limit {
            drop_guarded(task);
            return Err(Error::Full { what: CHANNEL_TASKS, limit });
        }
        services.offloaded += 1;
        let slot = timers.enter(Some(task));
        Ok(timers.place(slot, TimerPlace::Worker(services.offloaded)))
    }

    /// Takes a task whose answer is there; none if it was cancelled.
    pub(crate) fn take_answered(&mut self, key: TaskKey) -> Option<Box<dyn Any>> {
        self.timers.as_mut()?.take(key)?.task
    }

    /// Drops the tasks that wait for their time; how many that were. Those that wait for an answer stay.
    pub(crate) fn cancel_timed_tasks(&mut self, services: &mut LoopServices) -> usize {
        let Some(timers) = &mut self.timers else { return 0 };
        let is_timed = |timer: &Timer| !matches!(timer.place, TimerPlace::Worker(_));
        let timed: Vec<_> =
            timers.0.iter().filter(|(_, timer)| is_timed(timer)).map(|(slot, _)| slot).collect();
        for slot in &timed {
            let timer = timers.0.remove(*slot);
            take_out(services, timer.place);
            drop_guarded(timer.task);
        }
        timed.len()
    }

    /// Drops the tasks that wait, and with them the close timeout; how many that were.
    pub(crate) fn cancel_tasks(&mut self, services: &mut LoopServices) -> usize {
        self.timers.take().map_or(0, |mut timers| timers.cancel_all(services))
    }
}

/// Takes the entry of a task that will not run out of the heap or off the wheel.
fn take_out(services: &mut LoopServices, place: TimerPlace) {
    match place {
        TimerPlace::Exact(key) => drop(services.cancel_timer(key)),
        TimerPlace::WheelToken(key) => {
            services.tally.wheel_cancelled += u64::from(services.wheel.cancel(key).is_some())
        }
        // A worker that comes to it sees that nobody wants it.
        TimerPlace::Worker(_) | TimerPlace::Nowhere => {}
    }
}
