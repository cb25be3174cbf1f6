//! Violations of invariants that the world finds in its own state.

use super::World;

impl World {
    /// Reports a violation of an invariant. The run fails after the current event.
    pub(crate) fn violate(&mut self, violation: impl FnOnce() -> String) {
        self.violation.get_or_insert_with(violation);
    }

    pub(in crate::machine::simulated) fn note_dropped_output(&mut self) {
        self.dropped_output += 1;
    }

    /// Checks that a node without threads and loops has no open socket.
    pub(crate) fn check_remains(&mut self) {
        let Some(node) = self.ended_on.take() else { return };
        let is_over = self.nodes[node].is_up
            && self.threads_of(node).is_empty()
            && self.started.iter().all(|started| started.machine.node() != node)
            && !self.runs_loops(node);
        let open = if is_over { self.open_sockets(node) } else { 0 };
        if open > 0 {
            self.violate(|| format!("node {node}: all programs have ended and {open} sockets are open"));
        }
    }

    pub(in crate::machine::simulated) fn note_channel(
        &mut self,
        event_loop: u32,
        index: u32,
        generation: u32,
    ) {
        let last = self.channels.entry(event_loop).or_default().insert(index, generation);
        if last.is_some_and(|last| last == generation) {
            self.violate(|| format!("two channels have slot {index} and generation {generation}"));
        }
    }

    /// Forgets the channels of a loop that has ended.
    pub(crate) fn forget_channels(&mut self, event_loop: u32) {
        self.channels.remove(&event_loop);
    }

    pub(crate) fn take_violation(&mut self) -> Option<String> {
        self.violation.take()
    }
}
