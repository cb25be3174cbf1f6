//! `MapState`: the replica of a map and the entries that this node holds. Pure, without I/O.
//!
//! Invariant: the entries of the node are compared with the replica after each step of it, so that
//! a loss is the next step behind the change that has caused it.

use super::{
    follower::{FollowStep, MapFollower, MapLimits},
    holdings::{HoldAnswer, HoldBatch, HoldStep, Holdings},
    replica::ReplicaChange,
    unused::Unused,
};
use crate::broker::store::{BrokerError, Changed, NodeId, Position, Snapshot};
use crate::error::Error;
use bytes::Bytes;

/// Something to do, in order.
#[derive(Debug)]
pub(super) enum MapStep<C> {
    Changed(ReplicaChange),
    Lost(Bytes, Option<NodeId>),
    /// The replica is complete. If a new epoch has begun, with its position.
    Loaded(Option<Position>),
    Interrupted(BrokerError),
    Resumed,
    /// Read a snapshot, and pass the answer with the number.
    Read(u64, Option<Position>),
    /// Make changes for the position that the node has seen, and pass the answer.
    Update(HoldBatch, Option<Position>),
    Answer(C, HoldAnswer),
    /// Nothing, so that the lock is released for a moment.
    Continue,
}

#[derive(Debug)]
pub(super) struct MapState<C> {
    pub(super) follower: MapFollower,
    pub(super) holdings: Holdings<C>,
}

impl<C> MapState<C> {
    pub(super) fn new(limits: MapLimits, name: String) -> Self {
        MapState { follower: MapFollower::new(limits), holdings: Holdings::new(name) }
    }

    /// A read was answered. Returns a snapshot that is not needed.
    pub(super) fn read_answered(&mut self, read: u64, answer: Result<Snapshot, Error>) -> Option<Snapshot> {
        let is_late = !self.follower.is_reading(read);
        let error = answer.as_ref().err().cloned();
        let unused = self.follower.answered(read, answer);
        let error = error.or_else(|| self.follower.failure().cloned().map(Error::from));
        if let Some(error) = error.filter(|_| !is_late) {
            self.holdings.load_failed(&error, &self.follower);
        }
        unused
    }

    /// A batch was answered.
    pub(super) fn update_answered(&mut self, batch: u64, result: Result<Changed, Error>) {
        self.holdings.answered(batch, result, &mut self.follower);
    }

    /// Time has passed.
    pub(super) fn retry(&mut self) {
        self.follower.retry();
        self.holdings.retry();
    }

    /// Returns whether the last read or an update has failed, and was not tried again.
    pub(super) fn has_failed(&self) -> bool {
        self.follower.has_failed() || self.holdings.has_failed()
    }

    pub(super) fn needs_retry(&self) -> bool {
        self.follower.needs_retry() || self.holdings.needs_retry()
    }

    /// Returns the next step.
    pub(super) fn next_step(&mut self) -> Option<MapStep<C>> {
        if let Some(step) = self.next_hold_step() {
            return Some(step);
        }
        if self.holdings.check_some(&self.follower) {
            return Some(MapStep::Continue);
        }
        if let Some(batch) = self.holdings.next_batch(&self.follower) {
            return Some(MapStep::Update(batch, self.follower.highest()));
        }
        // Requests may have been answered without a change. An entry may be lost then, too.
        if let Some(step) = self.next_hold_step() {
            return Some(step);
        }
        if let Some(step) = self.follower.next_step() {
            return Some(match step {
                FollowStep::Changed(change) => {
                    self.holdings.observe(&change.key, &self.follower);
                    MapStep::Changed(change)
                }
                FollowStep::Advanced(position) => {
                    self.holdings.advanced(position.offset, &self.follower);
                    MapStep::Continue
                }
                FollowStep::Loaded(epoch) => {
                    self.holdings.loaded();
                    MapStep::Loaded(epoch)
                }
                FollowStep::Interrupted(error) => MapStep::Interrupted(error),
                FollowStep::Resumed => MapStep::Resumed,
                FollowStep::Read(read, seen) => MapStep::Read(read, seen),
                FollowStep::Continue => MapStep::Continue,
            });
        }
        None
    }

    fn next_hold_step(&mut self) -> Option<MapStep<C>> {
        Some(match self.holdings.next_step()? {
            HoldStep::Answer(caller, answer) => MapStep::Answer(caller, answer),
            HoldStep::Lost(key, by) => MapStep::Lost(key, by),
        })
    }

    /// Returns keys and values that are not needed any more, to be dropped without a lock.
    pub(super) fn take_unused(&mut self) -> (Unused, Vec<Bytes>) {
        (self.follower.take_unused(), self.holdings.take_unused())
    }
}
