//! The broadcasts of a loop that are in progress or waiting.
//!
//! Plain data. `turn::delivery_phase` makes the deliveries. Runs on the loop's thread.

mod lanes;

use super::mail::LoopMail;
use crate::channel::Delivery;
use lanes::Lanes;

/// Broadcasts that a turn takes from the queue in addition to its tasks. Moving a broadcast to its
/// lane is cheap, and a flood must not keep broadcasts of other groups in the queue.
const BROADCASTS_PER_TURN: u64 = 1024;

/// The broadcasts of a loop that are in progress or waiting.
#[derive(Default)]
pub(crate) struct Broadcasts {
    pub(super) lanes: Lanes,
    /// The broadcast that is being delivered without waiting in a lane.
    pub(super) at_once: Option<Box<Delivery>>,
    /// Mail that waits for earlier deliveries to its channel.
    pub(super) held: Option<LoopMail>,
    /// Deliveries left in this turn.
    pub(super) left: usize,
    /// Broadcasts that this turn has taken from the queue.
    pub(super) taken: u64,
    /// The time at which deliveries end for this turn.
    pub(super) until: Option<u64>,
}

impl Broadcasts {
    /// Whether something waits for the next turn.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.lanes.is_empty() || self.held.is_some()
    }

    /// Broadcasts of this turn that do not count as tasks.
    #[inline]
    pub(super) fn beside_tasks(&self) -> u64 {
        self.taken.min(BROADCASTS_PER_TURN)
    }

    /// Whether the queue has to wait.
    #[inline]
    pub(super) fn holds_queue(&self) -> bool {
        self.held.is_some()
    }
}
