//! `LeaseSweep`: removes the entries of nodes from the maps of all partitions.

use super::script_calls::ScriptCalls;
use crate::{
    broker::store::{NodeId, Partition},
    error::{Error, Result},
    machine::Mutex,
    sync::{Completer, Completion, completion},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering},
};

/// A sweep that is under way. The last step completes it.
struct LeaseSweep {
    operations: Arc<ScriptCalls>,
    state: Mutex<LeaseSweepState>,
}

struct LeaseSweepState {
    /// Nodes that are not swept yet.
    left: Vec<NodeId>,
    swept: Vec<NodeId>,
    /// The partitions of the present node that are not swept yet.
    partitions: usize,
    /// Whether a partition of the present node was not swept.
    has_failed: bool,
    /// The first error of all nodes.
    error: Option<Error>,
    completer: Option<Completer<Vec<NodeId>>>,
}

/// The calls of [`ScriptCalls::some_owners`] that ask all partitions.
const OWNER_TURNS: usize = 16;

/// The owners of entries in some partitions, which are asked one after the other.
struct OwnerSearch {
    operations: Arc<ScriptCalls>,
    left: Vec<Partition>,
    found: BTreeSet<NodeId>,
    /// The first error. Owners that were found at other servers are swept all the same.
    error: Option<Error>,
    completer: Completer<Vec<NodeId>>,
}

impl OwnerSearch {
    fn next_partition(mut self) {
        let Some(partition) = self.left.pop() else {
            let is_failure = self.found.is_empty();
            return self.completer.complete(match self.error {
                Some(error) if is_failure => Err(error),
                _ => Ok(self.found.into_iter().collect()),
            });
        };
        let owners = self.operations.owners(partition);
        owners.on_complete(move |owners| {
            match owners {
                Ok(owners) => self.found.extend(owners),
                Err(error) => _ = self.error.get_or_insert(error),
            }
            self.next_partition();
        });
    }
}

impl ScriptCalls {
    /// Reads which nodes own entries in some partitions. The next call asks other ones.
    ///
    /// The first server may have lost the leases of nodes that have ended, and any server may have
    /// got the entries of such nodes back. Nothing else would remove these entries.
    pub(super) fn some_owners(self: &Arc<Self>) -> Completion<Vec<NodeId>> {
        let turn = self.owner_turn.fetch_add(1, Ordering::Relaxed) % OWNER_TURNS;
        let is_asked = |partition: &Partition| usize::from(partition.get()) % OWNER_TURNS == turn;
        let left = self.start.partitions.all().filter(is_asked).collect();
        let (completer, done) = completion(None);
        OwnerSearch { operations: self.clone(), left, found: BTreeSet::new(), error: None, completer }
            .next_partition();
        done
    }

    /// Removes the entries of nodes, one node after the other. Completes with these nodes.
    pub(super) fn sweep_all(self: &Arc<Self>, nodes: Vec<NodeId>) -> Completion<Vec<NodeId>> {
        let (completer, done) = completion(None);
        let state = LeaseSweepState {
            left: nodes,
            swept: Vec::new(),
            partitions: 0,
            has_failed: false,
            error: None,
            completer: Some(completer),
        };
        Arc::new(LeaseSweep { operations: self.clone(), state: Mutex::new(state) }).next_node();
        done
    }
}

impl LeaseSweep {
    fn change<R>(&self, change: impl FnOnce(&mut LeaseSweepState) -> R) -> R {
        change(&mut self.state.lock())
    }

    fn next_node(self: &Arc<Self>) {
        let partitions = self.operations.start.partitions;
        let (node, done) = self.change(|state| match state.left.pop() {
            Some(node) => {
                state.partitions = partitions.get().into();
                (Some(node), None)
            }
            None => {
                let result = state.error.take().map_or_else(|| Ok(state.swept.clone()), Err);
                (None, state.completer.take().map(|completer| (completer, result)))
            }
        });
        if let Some((completer, result)) = done {
            completer.complete(result);
        }
        if let Some(node) = node {
            partitions.all().for_each(|partition| self.clone().sweep_partition(partition, node.clone()));
        }
    }

    fn sweep_partition(self: Arc<Self>, partition: Partition, node: NodeId) {
        let step = self.operations.sweep(partition, &node);
        step.on_complete(move |result| match result {
            Ok(left) if left > 0 => self.sweep_partition(partition, node),
            result => self.finish_partition(node, result.map(drop)),
        });
    }

    fn finish_partition(self: Arc<Self>, node: NodeId, result: Result<()>) {
        let has_failed = self.change(|state| {
            state.partitions -= 1;
            if let Err(error) = result {
                state.has_failed = true;
                state.error.get_or_insert(error);
            }
            (state.partitions == 0).then(|| std::mem::take(&mut state.has_failed))
        });
        match has_failed {
            None => {}
            // The next sweep tries this node again. The entries of others may be at servers that
            // work.
            Some(true) => self.next_node(),
            Some(false) => {
                let noted = self.operations.forget_lease(&node);
                noted.on_complete(move |noted| {
                    self.change(|state| match noted {
                        Ok(()) => state.swept.push(node),
                        Err(error) => _ = state.error.get_or_insert(error),
                    });
                    self.next_node();
                });
            }
        }
    }
}
