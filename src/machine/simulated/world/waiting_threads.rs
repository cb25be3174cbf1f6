//! What the world knows of the threads of its nodes.

use super::{Action, World};
use std::cmp::Reverse;

/// A thread as the world knows it.
pub(crate) struct ThreadState {
    pub(super) node: usize,
    pub(super) ticket: u64,
    /// The condition that the thread waits for; 0 for none.
    waits_for: usize,
    pub(super) has_ended: bool,
    pub(super) panic: Option<String>,
}

impl World {
    /// Adds a thread of a node, and returns its index. It may run at once.
    pub(crate) fn add_thread(&mut self, node: usize) -> usize {
        let index = self.threads.len();
        self.threads.push(ThreadState { node, ticket: 0, waits_for: 0, has_ended: false, panic: None });
        self.schedule(self.now(), Action::Thread { index, ticket: 0 });
        index
    }

    /// Lets a thread wait for a condition, or for a time.
    pub(crate) fn block_thread(&mut self, index: usize, condition: usize, deadline: Option<u64>) {
        let state = &mut self.threads[index];
        state.ticket += 1;
        state.waits_for = condition;
        let ticket = state.ticket;
        if let Some(deadline) = deadline {
            self.schedule(deadline, Action::Thread { index, ticket });
        }
    }

    /// Lets the threads run that wait for a condition.
    pub(crate) fn notify(&mut self, condition: usize) {
        for index in 0..self.threads.len() {
            let state = &mut self.threads[index];
            if state.waits_for == condition && condition != 0 && !state.has_ended {
                state.waits_for = 0;
                state.ticket += 1;
                let ticket = state.ticket;
                self.schedule(self.now(), Action::Thread { index, ticket });
            }
        }
    }

    /// Chooses the first thread of a node that runs `within` this time, and advances the time to
    /// it. The caller runs it.
    pub(crate) fn preempting_thread(&mut self, node: usize, within: u64) -> Option<usize> {
        let until = self.now.saturating_add(within);
        if self.nodes[node].stalled_until > self.now {
            return None;
        }
        let runs = |action: &Action| match *action {
            Action::Thread { index, ticket } => {
                self.threads[index].node == node && self.threads[index].ticket == ticket
            }
            _ => false,
        };
        let due = self.queue.iter().filter(|Reverse((at, .., action))| *at <= until && runs(action));
        let Reverse((at, .., Action::Thread { index, .. })) = *due.max()? else { return None };
        // The entry of the queue is stale from now on.
        self.threads[index].ticket += 1;
        self.threads[index].waits_for = 0;
        self.now = self.now.max(at);
        Some(index)
    }

    /// Returns the threads of a node that have not ended.
    pub(crate) fn threads_of(&self, node: usize) -> Vec<usize> {
        let alive =
            self.threads.iter().enumerate().filter(|(_, state)| state.node == node && !state.has_ended);
        alive.map(|(index, _)| index).collect()
    }

    /// Notes that a thread has ended, with the message of its panic if there was one.
    pub(crate) fn end_thread(&mut self, index: usize, panic: Option<String>) {
        let state = &mut self.threads[index];
        state.has_ended = true;
        state.ticket += 1;
        state.panic = panic;
    }

    /// Takes the message of a thread that has panicked.
    pub(crate) fn take_panic(&mut self) -> Option<(usize, String)> {
        self.threads.iter_mut().find_map(|state| Some((state.node, state.panic.take()?)))
    }
}
