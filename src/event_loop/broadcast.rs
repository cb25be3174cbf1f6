//! Broadcasts that came through the loop's queue.
//!
//! Always holds: the members of a broadcast are written to in a row, and what stands behind it in the queue waits, so that
//! one thread's requests stay in order; a turn writes to a bounded number of them, and goes on in the next one. Runs on
//! the loop's thread; the delivery knows its members, the loop their channels.

use super::turn::Turn;
use crate::{
    channel::{Delivery, Outcome},
    error::drop_guarded,
};

/// Channels that the broadcasts of one turn come to at most. Their flush is what takes time, a few milliseconds if there are
/// so many; more of them at once would gather more messages for each, but keep everybody else waiting.
const DELIVERIES_PER_TURN: usize = 4096;

impl Turn {
    /// A turn's tasks begin.
    pub(super) fn begin_deliveries(&mut self) {
        self.deliveries_left = DELIVERIES_PER_TURN;
    }

    /// Begins a broadcast, while none is under way; whether it is over.
    pub(super) fn begin_broadcast(&mut self, delivery: Box<Delivery>) -> bool {
        self.shared.metrics.broadcasts.add(1);
        self.delivering = Some(delivery);
        self.deliver()
    }

    /// Goes on with the broadcast that is under way; whether it is over.
    pub(super) fn deliver(&mut self) -> bool {
        self.guarded(|turn, current| {
            let Turn { delivering: Some(delivery), deliveries_left, sources, io, shared, .. } = turn else {
                return;
            };
            while *deliveries_left > 0 {
                let Some(key) = delivery.next() else { break };
                *deliveries_left -= 1;
                *current = Some(key);
                match sources.channel(key) {
                    Some(slot) => {
                        delivery.write_to(&mut slot.core, &mut io.services);
                        slot.settle(io, &shared.metrics);
                    }
                    None => delivery.count(&mut io.services, Outcome::Gone),
                }
            }
        });
        if self.delivering.as_ref().is_some_and(|delivery| !delivery.is_done()) {
            self.shared.metrics.broadcasts_deferred.add(1);
            return false;
        }
        drop_guarded(self.delivering.take());
        true
    }

    /// The loop ends: goes on to the end of what is under way, and of what comes after.
    pub(super) fn deliver_without_limit(&mut self) {
        self.deliveries_left = usize::MAX;
        self.deliver();
    }
}
