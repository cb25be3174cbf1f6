//! The queue of events, by time.
//!
//! Invariant: events at one instant are in an order that the seed draws.

use super::{World, alarm::Alarm};
use crate::machine::simulated::ids::SocketId;
use std::{cmp::Ordering, collections::BinaryHeap};

/// Something that happens at a time. Its numbers have 32 bits, because the queue is long.
#[derive(Debug, Clone, Copy)]
pub(in crate::machine::simulated) enum TimedAction {
    /// A loop may run.
    Loop(u32),
    /// A thread may run.
    Thread(u32),
    /// The head of a socket's output arrives at its peer.
    Arrive(SocketId),
    /// The peer has taken bytes of a socket's output.
    Acknowledged {
        socket: SocketId,
        bytes: u32,
    },
    /// A datagram arrives.
    Datagram(u32),
    Edge(SocketId),
    /// A request for a connection arrives, or is sent again.
    Connect {
        socket: SocketId,
        attempt: u32,
    },
    /// The answer to a request arrives at the client.
    Connected {
        socket: SocketId,
        server: SocketId,
    },
    /// The client's confirmation arrives at the server.
    Established {
        socket: SocketId,
        attempt: u32,
    },
    /// A reset arrives from a node that does not know the connection.
    Reset(SocketId),
    /// The timer of a socket's retransmissions and probes expires.
    Retransmit(SocketId),
    /// The peer has the end of the stream.
    EndAcknowledged(SocketId),
    /// A node answers that the port of a datagram is unreachable.
    Refused(u32),
    /// A fault that the driver brings about.
    Strike,
    /// A node that was killed starts again, unless another restart was planned since, or the
    /// restart was cancelled.
    Restart {
        node: u32,
        number: u32,
    },
}

/// Returns an index or a size for a [`TimedAction`].
pub(super) fn narrow(n: usize) -> u32 {
    u32::try_from(n).expect("a simulation has fewer than 2^32 of each kind")
}

/// An action and its time.
#[derive(Debug, Clone, Copy)]
struct Entry {
    at: u64,
    /// Orders entries at one time: a drawn number, then a count.
    order: (u32, u32),
    action: TimedAction,
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

#[derive(Default)]
pub(super) struct ActionQueue {
    heap: BinaryHeap<Entry>,
    /// Counts all entries, and so breaks ties of the drawn order.
    entered: u32,
}

impl ActionQueue {
    fn push(&mut self, at: u64, drawn: u32, action: TimedAction) {
        self.entered = self.entered.wrapping_add(1);
        self.heap.push(Entry { at, order: (drawn, self.entered), action });
    }

    /// Removes the first action at or before `end`.
    pub(super) fn pop(&mut self, end: u64) -> Option<(u64, TimedAction)> {
        if self.heap.peek().is_none_or(|first| first.at > end) {
            return None;
        }
        self.heap.pop().map(|entry| (entry.at, entry.action))
    }

    pub(super) fn clear(&mut self) {
        self.heap = BinaryHeap::new();
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.heap.len()
    }
}

/// A loop as the queue knows it. Its place is used again after its end.
#[derive(Default)]
pub(super) struct LoopState {
    pub(super) node: usize,
    pub(super) alarm: Alarm,
    is_used: bool,
}

impl World {
    pub(super) fn schedule(&mut self, at: u64, action: TimedAction) {
        let drawn = self.order.u32(..);
        self.queue.push(at.max(self.now), drawn, action);
    }

    /// Lets a loop run at `at`, unless it runs earlier.
    pub(crate) fn schedule_loop(&mut self, index: usize, at: u64) {
        let at = at.max(self.nodes[self.loops[index].node].stalled_until).max(self.now);
        let alarm = &mut self.loops[index].alarm;
        if alarm.due().is_some_and(|due| due <= at) {
            return;
        }
        if alarm.set(at) {
            self.schedule(at, TimedAction::Loop(narrow(index)));
        }
    }

    /// Handles an entry of a loop. Returns the loop if it runs now.
    pub(super) fn loop_comes_up(&mut self, index: u32) -> Option<usize> {
        let index = index as usize;
        let state = &mut self.loops[index];
        let due = state.alarm.entry_came_up()?;
        state.alarm.clear();
        let at = due.max(self.nodes[state.node].stalled_until);
        if at > self.now {
            self.schedule_loop(index, at);
            return None;
        }
        Some(index)
    }

    /// Returns whether loops run on the node.
    pub(super) fn runs_loops(&self, node: usize) -> bool {
        self.loops.iter().any(|state| state.is_used && state.node == node)
    }

    /// Returns whether a loop runs as soon as its node does.
    pub(crate) fn runs_next(&self, index: usize) -> bool {
        let state = &self.loops[index];
        let soon = self.now.max(self.nodes[state.node].stalled_until);
        state.alarm.due().is_some_and(|due| due <= soon)
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
        state.alarm.clear();
        state.is_used = false;
        self.ended_on = Some(state.node);
    }

    /// Lets a loop that sleeps look at the clock.
    pub(super) fn wake_sleeping_loop(&mut self, index: usize) {
        if self.loops[index].alarm.due().is_some() {
            self.schedule_loop(index, self.now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{super::WorldStep, Entry};
    use crate::machine::simulated::{faults::FaultSource, world::World};
    use std::net::IpAddr;

    #[test]
    fn an_entry_is_small() {
        assert!(size_of::<Entry>() <= 32, "{}", size_of::<Entry>());
    }

    #[test]
    fn a_loop_has_few_entries_however_often_its_deadline_moves() {
        let mut world = World::new(1, FaultSource::default());
        let node = world.add_node("one", IpAddr::from([10, 0, 0, 1]));
        let index = world.add_loop(node);
        for turn in 1..=1000 {
            world.schedule_loop(index, world.now() + 30_000_000_000);
            world.schedule_loop(index, world.now() + 1_000);
            assert!(matches!(world.next_step(u64::MAX), WorldStep::Loop(_)));
            assert_eq!(world.now(), turn * 1_000);
        }
        assert!(world.queue.len() <= 2, "{}", world.queue.len());
        // The last deadline is exact, although its entry was made for an earlier one.
        world.schedule_loop(index, 40_000_000_000);
        assert!(matches!(world.next_step(u64::MAX), WorldStep::Loop(_)));
        assert_eq!(world.now(), 40_000_000_000);
    }

    #[test]
    fn a_loop_in_the_place_of_another_one_has_its_own_deadline() {
        let mut world = World::new(1, FaultSource::default());
        let node = world.add_node("one", IpAddr::from([10, 0, 0, 1]));
        let first = world.add_loop(node);
        world.schedule_loop(first, 1_000);
        world.remove_loop(first);
        let second = world.add_loop(node);
        assert_eq!(first, second);
        world.schedule_loop(second, 5_000);
        assert!(matches!(world.next_step(4_000), WorldStep::Idle));
        assert!(matches!(world.next_step(6_000), WorldStep::Loop(ran) if ran == second));
        assert_eq!(world.now(), 5_000);
        assert!(matches!(world.next_step(u64::MAX), WorldStep::Idle));
    }
}
