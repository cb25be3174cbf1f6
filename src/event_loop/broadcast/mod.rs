//! The broadcasts of a loop that are in progress or waiting.
//!
//! Plain data. `turn::delivery_phase` makes the deliveries. Runs on the loop's thread.

mod lanes;

use super::mail::LoopMail;
use crate::channel::Delivery;
use lanes::Lanes;

/// The maximum number of broadcasts that a turn takes from the queue in addition to its tasks.
/// Moving a broadcast to its lane is cheap, and a flood must not keep broadcasts of other groups in
/// the queue.
const BROADCASTS_PER_TURN: u64 = 1024;

/// The broadcasts of a loop that are in progress or waiting.
#[derive(Default)]
pub(crate) struct Broadcasts {
    pub(super) lanes: Lanes,
    /// The broadcast that is being delivered directly, without waiting in a lane.
    pub(super) at_once: Option<Box<Delivery>>,
    /// Mail that waits for earlier deliveries to its channel.
    pub(super) held: Option<LoopMail>,
    /// The number of deliveries left in this turn.
    pub(super) left: usize,
    /// The number of broadcasts that this turn has taken from the queue.
    pub(super) taken: u64,
    /// The time at which deliveries end for this turn.
    pub(super) until: Option<u64>,
}

impl Broadcasts {
    /// Returns whether a broadcast or mail is waiting for the next turn.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lanes.is_empty() || self.held.is_some()
    }

    /// Returns the number of this turn's broadcasts that do not count as tasks.
    #[inline]
    pub(super) fn beside_tasks(&self) -> u64 {
        self.taken.min(BROADCASTS_PER_TURN)
    }

    /// Returns whether the queue has to wait.
    #[inline]
    pub(super) fn holds_queue(&self) -> bool {
        self.held.is_some()
    }
}
