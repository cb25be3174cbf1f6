//! What the world knows of the threads of its nodes.
//!
//! Invariant: the place of a thread that has ended is used again. So the number of places is that
//! of the threads that live at the same time.

use super::{
    World,
    alarm::Alarm,
    queue::{TimedAction, narrow},
};
use std::collections::BTreeMap;

/// The identity of a condition variable: its address. A waiter borrows it, so no two have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Condition(pub(crate) usize);

/// A thread as the world knows it.
#[derive(Default)]
struct ThreadState {
    name: String,
    node: usize,
    alarm: Alarm,
    waits_for: Option<Condition>,
    is_used: bool,
}

#[derive(Default)]
pub(super) struct WaitingThreads {
    all: Vec<ThreadState>,
    /// The places of threads that have ended.
    free: Vec<usize>,
    /// The threads that wait, by condition.
    waiting: BTreeMap<Condition, Vec<usize>>,
    /// The condition that a loop waits for within its turn.
    loop_waits_for: Option<Condition>,
    /// The node and the message of a thread that has panicked.
    panic: Option<(usize, String)>,
}

impl WaitingThreads {
    /// Ends the wait of a thread.
    fn stop_waiting(&mut self, index: usize) {
        let state = &mut self.all[index];
        state.alarm.clear();
        let Some(condition) = state.waits_for.take() else { return };
        if let Some(waiting) = self.waiting.get_mut(&condition) {
            waiting.retain(|thread| *thread != index);
            if waiting.is_empty() {
                self.waiting.remove(&condition);
            }
        }
    }
}

impl World {
    /// Adds a thread of a node, and returns its index. It may run at once.
    pub(crate) fn add_thread(&mut self, node: usize, name: &str) -> usize {
        let threads = &mut self.threads;
        let index = threads.free.pop().unwrap_or_else(|| {
            threads.all.push(ThreadState::default());
            threads.all.len() - 1
        });
        let state = &mut threads.all[index];
        name.clone_into(&mut state.name);
        (state.node, state.is_used) = (node, true);
        self.schedule_thread(index, self.now());
        index
    }

    fn schedule_thread(&mut self, index: usize, at: u64) {
        let at = at.max(self.now);
        if self.threads.all[index].alarm.set(at) {
            self.schedule(at, TimedAction::Thread(narrow(index)));
        }
    }

    /// Handles an entry of a thread. Returns the thread if it runs now.
    pub(super) fn thread_comes_up(&mut self, index: u32) -> Option<usize> {
        let index = index as usize;
        let state = &mut self.threads.all[index];
        let due = state.alarm.entry_came_up()?;
        let at = due.max(self.nodes[state.node].stalled_until);
        if at > self.now {
            self.schedule_thread(index, at);
            return None;
        }
        // It waits for nothing, also if its time has passed without a notification: the address of
        // its condition may be that of another condition later.
        self.threads.stop_waiting(index);
        Some(index)
    }

    /// Lets a thread wait for a condition, or for a time.
    pub(crate) fn block_thread(&mut self, index: usize, condition: Option<Condition>, deadline: Option<u64>) {
        self.threads.stop_waiting(index);
        self.threads.all[index].waits_for = condition;
        if let Some(condition) = condition {
            self.threads.waiting.entry(condition).or_default().push(index);
        }
        if let Some(deadline) = deadline {
            self.schedule_thread(index, deadline);
        }
    }

    /// Lets the threads run that wait for a condition.
    pub(crate) fn notify(&mut self, condition: Condition) {
        if self.threads.loop_waits_for == Some(condition) {
            self.threads.loop_waits_for = None;
        }
        for index in self.threads.waiting.remove(&condition).unwrap_or_default() {
            self.threads.all[index].waits_for = None;
            self.schedule_thread(index, self.now());
        }
    }

    /// Lets a loop wait for a condition within its turn.
    pub(crate) fn begin_wait_of_loop(&mut self, condition: Condition) {
        self.threads.loop_waits_for = Some(condition);
    }

    /// Returns whether a loop waits for a condition that was not notified.
    pub(crate) fn loop_waits(&self) -> bool {
        self.threads.loop_waits_for.is_some()
    }

    pub(crate) fn end_wait_of_loop(&mut self) {
        self.threads.loop_waits_for = None;
    }

    /// Chooses the first thread of a node that runs before `until`, and advances the time to it.
    /// The caller runs it.
    pub(crate) fn next_thread_of(&mut self, node: usize, until: u64) -> Option<usize> {
        if self.nodes[node].stalled_until > self.now {
            return None;
        }
        let due = |state: &ThreadState| state.alarm.due().filter(|_| state.node == node);
        let first = self.threads.all.iter().filter_map(due).min().filter(|first| *first <= until)?;
        let all = self.threads.all.iter().enumerate();
        let soonest: Vec<usize> =
            all.filter(|(_, state)| due(state) == Some(first)).map(|(index, _)| index).collect();
        let index = soonest[self.draw(0..soonest.len() as u64) as usize];
        self.threads.stop_waiting(index);
        self.now = self.now.max(first);
        Some(index)
    }

    /// Returns the threads of a node that have not ended.
    pub(crate) fn threads_of(&self, node: usize) -> Vec<usize> {
        let all = self.threads.all.iter().enumerate();
        all.filter(|(_, state)| state.node == node && state.is_used).map(|(index, _)| index).collect()
    }

    /// Returns the name of a thread and of its node, for a report.
    pub(crate) fn thread_name(&self, index: usize) -> String {
        let state = &self.threads.all[index];
        format!("node {}: the thread {:?}", self.nodes[state.node].name, state.name)
    }

    /// Notes that a thread has ended, with the message of its panic if there was one.
    pub(crate) fn end_thread(&mut self, index: usize, panic: Option<String>) {
        self.threads.stop_waiting(index);
        let state = &mut self.threads.all[index];
        state.is_used = false;
        let node = state.node;
        self.threads.free.push(index);
        self.ended_on = Some(node);
        if let Some(message) = panic {
            self.threads.panic.get_or_insert((node, message));
        }
    }

    /// Takes the node and the message of a thread that has panicked.
    pub(crate) fn take_panic(&mut self) -> Option<(usize, String)> {
        self.threads.panic.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::simulated::{faults::FaultSource, world::WorldStep};
    use std::net::Ipv4Addr;

    const CONDITION: Condition = Condition(77);

    fn world_with_thread() -> (World, usize) {
        let mut world = World::new(1, FaultSource::default());
        let node = world.add_node("one", Ipv4Addr::LOCALHOST.into());
        let thread = world.add_thread(node, "main");
        assert!(matches!(world.next_step(0), WorldStep::Thread(ran) if ran == thread));
        (world, thread)
    }

    #[test]
    fn a_thread_whose_time_has_passed_waits_for_its_condition_no_longer() {
        let (mut world, thread) = world_with_thread();
        world.block_thread(thread, Some(CONDITION), Some(100));
        assert!(matches!(world.next_step(100), WorldStep::Thread(ran) if ran == thread));
        // Another condition may have the same address by now.
        world.notify(CONDITION);
        assert!(matches!(world.next_step(1000), WorldStep::Idle));
    }

    #[test]
    fn waits_with_long_timeouts_do_not_fill_the_queue() {
        let (mut world, thread) = world_with_thread();
        let day = 86_400_000_000_000;
        for n in 1..=10_000 {
            world.block_thread(thread, Some(CONDITION), Some(world.now() + day));
            world.spend(1_000);
            world.notify(CONDITION);
            assert!(matches!(world.next_step(u64::MAX), WorldStep::Thread(ran) if ran == thread));
            assert_eq!(world.now(), n * 1_000);
        }
        assert!(world.queue.len() <= 2, "{}", world.queue.len());
    }

    #[test]
    fn threads_that_end_do_not_fill_the_queue_or_the_list() {
        let (mut world, first) = world_with_thread();
        world.end_thread(first, None);
        for n in 1..=10_000 {
            let thread = world.add_thread(0, "worker");
            assert!(matches!(world.next_step(u64::MAX), WorldStep::Thread(ran) if ran == thread));
            world.block_thread(thread, Some(CONDITION), Some(world.now() + 1_000_000_000));
            world.notify(CONDITION);
            assert!(matches!(world.next_step(u64::MAX), WorldStep::Thread(ran) if ran == thread));
            assert_eq!(world.now(), 0, "thread {n}");
            world.end_thread(thread, None);
        }
        assert_eq!(world.threads.all.len(), 1);
        assert!(world.queue.len() <= 2, "{}", world.queue.len());
    }
}
