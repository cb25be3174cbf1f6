//! The queue of events, by time.
//!
//! Invariants: events at one instant are in an order that the seed draws. A loop has few entries,
//! however often its deadline changes: an entry that is earlier than the deadline is put back when
//! it comes up. So the length of the queue does not depend on the number of turns.

use super::{Action, World};
use std::{cmp::Ordering, collections::BinaryHeap};

/// Kinds of actions as an entry stores them.
const LOOP: u32 = 0;
const THREAD: u32 = 1;
const ARRIVE: u32 = 2;
const ACKNOWLEDGED: u32 = 3;
const DATAGRAM: u32 = 4;
const EDGE: u32 = 5;
const CONNECT: u32 = 6;
const STRIKE: u32 = 7;
const RESTART: u32 = 8;
const CONNECTED: u32 = 9;
const ESTABLISHED: u32 = 10;
const RESET: u32 = 11;
const END_ACKNOWLEDGED: u32 = 12;
const REFUSED: u32 = 13;

/// An action and its time. A third smaller than with the action itself.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u64,
    /// A drawn number, then a count.
    order: u64,
    kind: u32,
    a: u32,
    b: u32,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Entry {
    /// The earliest entry is the greatest, because the heap returns that first.
    #[inline]
    fn cmp(&self, other: &Self) -> Ordering {
        (other.at, other.order).cmp(&(self.at, self.order))
    }
}

impl Entry {
    fn new(at: u64, order: u64, action: Action) -> Self {
        let (kind, a, b) = match action {
            Action::Loop { index, life } => (LOOP, index, life as usize),
            Action::Thread { index, ticket } => (THREAD, index, ticket as usize),
            Action::Arrive(socket) => (ARRIVE, socket, 0),
            Action::Acknowledged { socket, bytes } => (ACKNOWLEDGED, socket, bytes),
            Action::Datagram(index) => (DATAGRAM, index, 0),
            Action::Edge(socket) => (EDGE, socket, 0),
            Action::Connect { socket, attempt } => (CONNECT, socket, attempt as usize),
            Action::Connected { socket, server } => (CONNECTED, socket, server),
            Action::Established { socket, attempt } => (ESTABLISHED, socket, attempt as usize),
            Action::Reset(socket) => (RESET, socket, 0),
            Action::EndAcknowledged(socket) => (END_ACKNOWLEDGED, socket, 0),
            Action::Refused(index) => (REFUSED, index, 0),
            Action::Strike => (STRIKE, 0, 0),
            Action::Restart { node, life } => (RESTART, node, life as usize),
        };
        // Indices and buffers are far below 2^32.
        Entry { at, order, kind, a: a as u32, b: b as u32 }
    }

    fn action(&self) -> Action {
        let (a, b) = (self.a as usize, self.b as usize);
        match self.kind {
            LOOP => Action::Loop { index: a, life: self.b },
            THREAD => Action::Thread { index: a, ticket: self.b },
            ARRIVE => Action::Arrive(a),
            ACKNOWLEDGED => Action::Acknowledged { socket: a, bytes: b },
            DATAGRAM => Action::Datagram(a),
            EDGE => Action::Edge(a),
            CONNECT => Action::Connect { socket: a, attempt: self.b },
            CONNECTED => Action::Connected { socket: a, server: b },
            ESTABLISHED => Action::Established { socket: a, attempt: self.b },
            RESET => Action::Reset(a),
            END_ACKNOWLEDGED => Action::EndAcknowledged(a),
            REFUSED => Action::Refused(a),
            RESTART => Action::Restart { node: a, life: self.b },
            _ => Action::Strike,
        }
    }
}

#[derive(Default)]
pub(super) struct Queue {
    heap: BinaryHeap<Entry>,
    /// Counts all entries, and so breaks ties of the drawn order.
    entered: u32,
}

impl Queue {
    pub(super) fn push(&mut self, at: u64, drawn: u32, action: Action) {
        self.entered = self.entered.wrapping_add(1);
        let order = u64::from(drawn) << 32 | u64::from(self.entered);
        self.heap.push(Entry::new(at, order, action));
    }

    /// Removes the first action at or before `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<(u64, Action)> {
        if self.heap.peek().is_none_or(|first| first.at > end) {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.action()))
    }

    /// Returns the first action at or before `end` that is one of those. Looks at all entries.
    pub(super) fn first(&self, end: u64, is_meant: impl Fn(Action) -> bool) -> Option<(u64, Action)> {
        let meant = self.heap.iter().filter(|entry| entry.at <= end && is_meant(entry.action()));
        meant.max().map(|entry| (entry.at, entry.action()))
    }
}

/// When a loop runs next.
#[derive(Default)]
pub(super) struct LoopState {
    pub(super) node: usize,
    /// Counts the loops that had this place before.
    pub(super) life: u32,
    pub(super) due: Option<u64>,
    /// The times of the loop's entries in the queue. The earliest is the last.
    entries: Vec<u64>,
    is_used: bool,
}

impl World {
    pub(super) fn schedule(&mut self, at: u64, action: Action) {
        let drawn = self.order.u32(..);
        self.queue.push(at.max(self.now), drawn, action);
    }

    /// Lets a loop run at `at`, unless it runs earlier.
    pub(crate) fn schedule_loop(&mut self, index: usize, at: u64) {
        let at = at.max(self.nodes[self.loops[index].node].stalled_until).max(self.now);
        let state = &mut self.loops[index];
        if state.due.is_some_and(|due| due <= at) {
            return;
        }
        state.due = Some(at);
        self.enter_loop(index, at);
    }

    /// Adds an entry for a loop, unless it has one that is early enough.
    fn enter_loop(&mut self, index: usize, at: u64) {
        let state = &mut self.loops[index];
        if state.entries.last().is_some_and(|entry| *entry <= at) {
            return;
        }
        state.entries.push(at);
        let life = state.life;
        self.schedule(at, Action::Loop { index, life });
    }

    /// Handles an entry of a loop. Returns whether the loop runs now.
    pub(super) fn loop_is_due(&mut self, index: usize, life: u32) -> bool {
        let now = self.now;
        let state = &mut self.loops[index];
        if state.life != life {
            return false;
        }
        state.entries.pop();
        let Some(due) = state.due else { return false };
        if due > now {
            self.enter_loop(index, due);
            return false;
        }
        state.due = None;
        let until = self.nodes[state.node].stalled_until;
        if until > now {
            self.schedule_loop(index, until);
            return false;
        }
        true
    }

    /// Returns whether loops run on the node.
    pub(super) fn runs_loops(&self, node: usize) -> bool {
        self.loops.iter().any(|state| state.is_used && state.node == node)
    }

    /// Returns whether a loop runs as soon as its node does.
    pub(crate) fn runs_next(&self, index: usize) -> bool {
        let state = &self.loops[index];
        let soon = self.now.max(self.nodes[state.node].stalled_until);
        state.due.is_some_and(|due| due <= soon)
    }

    /// Adds a loop that runs on the node, and returns its index.
    pub(crate) fn add_loop(&mut self, node: usize) -> usize {
        let free = self.loops.iter().position(|state| !state.is_used);
        let index = free.unwrap_or_else(|| {
            self.loops.push(LoopState::default());
            self.loops.len() - 1
        });
        let state = &mut self.loops[index];
        (state.node, state.is_used) = (node, true);
        index
    }

    /// Frees the place of a loop that has ended.
    pub(crate) fn remove_loop(&mut self, index: usize) {
        let state = &mut self.loops[index];
        self.ended_on = Some(state.node);
        *state = LoopState { life: state.life.wrapping_add(1), ..LoopState::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Step, World};
    use crate::machine::simulated::Faults;
    use std::net::IpAddr;

    #[test]
    fn a_loop_has_few_entries_however_often_its_deadline_moves() {
        let mut world = World::new(1, Faults::default());
        let node = world.add_node("one", IpAddr::from([10, 0, 0, 1]));
        let index = world.add_loop(node);
        for turn in 1..=1000 {
            world.schedule_loop(index, world.now() + 30_000_000_000);
            world.schedule_loop(index, world.now() + 1_000);
            assert!(matches!(world.next_step(u64::MAX), Step::Loop(_)));
            assert_eq!(world.now(), turn * 1_000);
        }
        assert!(world.queue.heap.len() <= 2, "{}", world.queue.heap.len());
        // The last deadline is exact, although its entry was made for an earlier one.
        world.schedule_loop(index, 40_000_000_000);
        assert!(matches!(world.next_step(u64::MAX), Step::Loop(_)));
        assert_eq!(world.now(), 40_000_000_000);
    }
}
