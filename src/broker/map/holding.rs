//! `Holding`: one entry that this node holds, changes or still has to remove. Pure.

use super::follower::MapFollower;
use crate::broker::store::{MapCondition, MapEntry, NodeId, Position};
use bytes::Bytes;
use std::collections::VecDeque;

/// A request of the program. `C` is its caller.
#[derive(Debug)]
pub(super) enum HoldRequest<C> {
    Hold {
        value: Bytes,
        condition: Option<MapCondition>,
        caller: C,
    },
    Release {
        caller: C,
    },
    /// The program has dropped its last handle: the entries of all earlier requests are removed.
    Abandon,
}

impl<C> HoldRequest<C> {
    pub(super) fn into_caller(self) -> Option<C> {
        match self {
            HoldRequest::Hold { caller, .. } | HoldRequest::Release { caller } => Some(caller),
            HoldRequest::Abandon => None,
        }
    }
}

#[derive(Debug)]
pub(super) struct Holding<C> {
    /// The value, while the node holds the entry.
    pub(super) value: Option<Bytes>,
    /// The position at which the node has set the entry.
    pub(super) at: Option<Position>,
    /// What the replica has to cover before it decides about the entry.
    pub(super) since: Option<Since>,
    /// What the program has asked for, in order.
    pub(super) requests: VecDeque<HoldRequest<C>>,
    /// Whether the entry is in the batch that is under way.
    pub(super) is_sent: bool,
    /// Whether the key is in the queue of requests.
    pub(super) is_requested: bool,
    /// Whether the key is in the queue of entries to be restored.
    pub(super) is_restoring: bool,
}

impl<C> Default for Holding<C> {
    fn default() -> Self {
        Holding {
            value: None,
            at: None,
            since: None,
            requests: VecDeque::new(),
            is_sent: false,
            is_requested: false,
            is_restoring: false,
        }
    }
}

/// The time of an operation of this node: its position if that is known, and the number of the next
/// read, whose answer is certainly newer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Since {
    pub(super) position: Option<Position>,
    pub(super) read: u64,
}

impl Since {
    /// Returns whether the replica is not older.
    pub(super) fn is_covered(self, follower: &MapFollower) -> bool {
        follower.covers(self.position, self.read)
    }
}

/// The result of comparing a held entry with the replica.
#[derive(Debug)]
pub(super) enum HoldingAction {
    /// The entry is as it should be, or is restored once the node has a lease.
    None,
    /// The node has nothing to do with the key.
    Forget,
    /// The replica is too old to decide.
    Wait(Since),
    /// The node does not hold the entry any more.
    Lose(Option<NodeId>),
    Set(MapCondition),
    Remove(Position),
}

/// The name and the id by which the entries of this node are recognized.
#[derive(Debug)]
pub(super) struct Identity {
    /// The name of the node.
    pub(super) name: String,
    /// The id of the node while it has a lease.
    pub(super) node: Option<NodeId>,
}

impl Identity {
    /// Returns whether this is the owner of an entry that the node sets now.
    pub(super) fn owns(&self, owner: Option<&NodeId>) -> bool {
        owner.is_some() && owner == self.node.as_ref()
    }

    /// Returns whether the owner is another incarnation of the node. Its lease has ended if this
    /// one has a lease.
    fn is_former(&self, owner: Option<&NodeId>) -> bool {
        owner.is_some_and(|owner| owner.name() == self.name)
    }
}

impl<C> Holding<C> {
    /// Returns whether the outcome of an operation is unknown, and the replica does not show it
    /// yet.
    pub(super) fn is_doubtful(&self, follower: &MapFollower) -> bool {
        self.since.is_some_and(|since| since.position.is_none() && !since.is_covered(follower))
    }

    /// Returns the bytes of the longest value that the node holds or is asked to hold.
    pub(super) fn longest_value(&self) -> usize {
        let requested = self.requests.iter().filter_map(|request| match request {
            HoldRequest::Hold { value, .. } => Some(value.len()),
            HoldRequest::Release { .. } | HoldRequest::Abandon => None,
        });
        requested.chain(self.value.as_ref().map(Bytes::len)).max().unwrap_or(0)
    }

    /// The program does not need the entry any more. Requests that are not answered yet keep their
    /// order, and the value of the last one is dropped after them.
    pub(super) fn abandon(&mut self, unused: &mut Vec<Bytes>) {
        unused.extend(self.value.take());
        let is_answered = !self.is_sent && self.requests.is_empty();
        if !is_answered && !matches!(self.requests.back(), Some(HoldRequest::Abandon)) {
            self.requests.push_back(HoldRequest::Abandon);
        }
    }

    /// Takes the callers of all requests, which fail. A release has its effect all the same.
    pub(super) fn take_callers(&mut self, unused: &mut Vec<Bytes>) -> Vec<C> {
        let mut callers = Vec::with_capacity(self.requests.len());
        for request in self.requests.drain(..) {
            match &request {
                HoldRequest::Hold { value, .. } => unused.push(value.clone()),
                HoldRequest::Release { .. } | HoldRequest::Abandon => unused.extend(self.value.take()),
            }
            callers.extend(request.into_caller());
        }
        callers
    }

    /// Decides on the next change, apart from the requests of the program.
    pub(super) fn action(&self, key: &[u8], identity: &Identity, follower: &MapFollower) -> HoldingAction {
        if let Some(since) = self.since
            && !since.is_covered(follower)
        {
            return HoldingAction::Wait(since);
        }
        let found = follower.replica().get(key);
        let owner = found.and_then(|found| found.owner.as_ref());
        let is_mine = identity.owns(owner);
        // The node's own entry was set later, so the store has lost it.
        let is_older = |found: &MapEntry| {
            let before = |at: Position| found.position.epoch == at.epoch && found.position.offset < at.offset;
            self.at.is_some_and(before)
        };
        let may_be_replaced = identity.is_former(owner) || found.is_some_and(is_older);
        match (&self.value, found) {
            (Some(_), Some(_)) if is_mine => HoldingAction::None,
            (Some(_), Some(_)) if may_be_replaced && identity.node.is_none() => HoldingAction::None,
            (Some(_), Some(found)) if may_be_replaced => {
                HoldingAction::Set(MapCondition::Unchanged(found.position))
            }
            (Some(_), Some(_)) => HoldingAction::Lose(owner.cloned()),
            (Some(_), None) if identity.node.is_none() => HoldingAction::None,
            (Some(_), None) => HoldingAction::Set(MapCondition::Absent),
            (None, Some(found)) if is_mine => HoldingAction::Remove(found.position),
            (None, _) => HoldingAction::Forget,
        }
    }
}
