//! What the world knows of the threads of its nodes.
//!
//! Invariant: the place of a thread that has ended is used again, with a later ticket. So the
//! number of places is that of the threads that live at the same time.

use super::{Action, World};
use std::collections::BTreeMap;

/// A thread as the world knows it.
#[derive(Default)]
struct ThreadState {
    node: usize,
    /// Counts the waits of all threads in this place. An entry of the queue with another ticket is
    /// out of date.
    ticket: u32,
    /// The condition that the thread waits for; 0 for none.
    waits_for: usize,
    has_ended: bool,
}

#[derive(Default)]
pub(super) struct WaitingThreads {
    all: Vec<ThreadState>,
    /// The places of threads that have ended.
    free: Vec<usize>,
    /// The threads that wait, by condition.
    waiting: BTreeMap<usize, Vec<usize>>,
    /// The node and the message of a thread that has panicked.
    panic: Option<(usize, String)>,
}

impl WaitingThreads {
    /// Ends the wait of a thread for a condition.
    fn stop_waiting(&mut self, index: usize) {
        let condition = std::mem::take(&mut self.all[index].waits_for);
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
    pub(crate) fn add_thread(&mut self, node: usize) -> usize {
        let threads = &mut self.threads;
        let index = threads.free.pop().unwrap_or_else(|| {
            threads.all.push(ThreadState::default());
            threads.all.len() - 1
        });
        let ticket = threads.all[index].ticket;
        threads.all[index] = ThreadState { node, ticket, ..ThreadState::default() };
        self.schedule(self.now(), Action::Thread { index, ticket });
        index
    }

    /// Returns whether an entry of the queue is up to date, and the node of the thread.
    pub(super) fn thread_is_due(&self, index: usize, ticket: u32) -> Option<usize> {
        let state = &self.threads.all[index];
        (state.ticket == ticket && !state.has_ended).then_some(state.node)
    }

    /// Notes that a thread runs. It waits for nothing, also if its time has passed without a
    /// notification: the address of its condition may be that of another condition later.
    pub(super) fn thread_runs(&mut self, index: usize) {
        self.threads.stop_waiting(index);
    }

    /// Lets a thread wait for a condition, or for a time.
    pub(crate) fn block_thread(&mut self, index: usize, condition: usize, deadline: Option<u64>) {
        self.threads.stop_waiting(index);
        let state = &mut self.threads.all[index];
        state.ticket = state.ticket.wrapping_add(1);
        state.waits_for = condition;
        let ticket = state.ticket;
        if condition != 0 {
            self.threads.waiting.entry(condition).or_default().push(index);
        }
        if let Some(deadline) = deadline {
            self.schedule(deadline, Action::Thread { index, ticket });
        }
    }

    /// Lets the threads run that wait for a condition.
    pub(crate) fn notify(&mut self, condition: usize) {
        for index in self.threads.waiting.remove(&condition).unwrap_or_default() {
            let state = &mut self.threads.all[index];
            state.waits_for = 0;
            state.ticket = state.ticket.wrapping_add(1);
            let ticket = state.ticket;
            self.schedule(self.now(), Action::Thread { index, ticket });
        }
    }

    /// Chooses the first thread of a node that runs `within` this time, and advances the time to
    /// it. The caller runs it.
    pub(crate) fn preempting_thread(&mut self, node: usize, within: u64) -> Option<usize> {
        let until = self.now.saturating_add(within);
        if self.nodes[node].stalled_until > self.now {
            return None;
        }
        let runs = |action: Action| match action {
            Action::Thread { index, ticket } => self.thread_is_due(index, ticket) == Some(node),
            _ => false,
        };
        let (at, Action::Thread { index, .. }) = self.queue.first(until, runs)? else { return None };
        // The entry of the queue is out of date from now on.
        self.threads.stop_waiting(index);
        let state = &mut self.threads.all[index];
        state.ticket = state.ticket.wrapping_add(1);
        self.now = self.now.max(at);
        Some(index)
    }

    /// Returns the threads of a node that have not ended.
    pub(crate) fn threads_of(&self, node: usize) -> Vec<usize> {
        let all = self.threads.all.iter().enumerate();
        all.filter(|(_, state)| state.node == node && !state.has_ended).map(|(index, _)| index).collect()
    }

    /// Notes that a thread has ended, with the message of its panic if there was one.
    pub(crate) fn end_thread(&mut self, index: usize, panic: Option<String>) {
        self.threads.stop_waiting(index);
        let state = &mut self.threads.all[index];
        state.has_ended = true;
        state.ticket = state.ticket.wrapping_add(1);
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
    use crate::machine::simulated::{Faults, Step, World};
    use std::net::Ipv4Addr;

    #[test]
    fn a_thread_whose_time_has_passed_waits_for_its_condition_no_longer() {
        let mut world = World::new(1, Faults::default());
        let node = world.add_node("one", Ipv4Addr::LOCALHOST.into());
        let thread = world.add_thread(node);
        assert!(matches!(world.next_step(0), Step::Thread(ran) if ran == thread));
        world.block_thread(thread, 77, Some(100));
        assert!(matches!(world.next_step(100), Step::Thread(ran) if ran == thread));
        // Another condition may have the same address by now.
        world.notify(77);
        assert!(matches!(world.next_step(1000), Step::Idle));
    }
}
