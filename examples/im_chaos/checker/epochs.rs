//! The epochs of a room, as the bots have seen them.

use netwheel::broker::Position;

/// Epochs in the order in which they were first seen, each with its lowest offset.
#[derive(Debug, Clone, Default)]
pub(super) struct RoomEpochs(Vec<(u64, u64)>);

impl RoomEpochs {
    /// Records a message.
    pub(super) fn note(&mut self, position: Position) {
        let at = self.begin(position.epoch);
        let lowest = &mut self.0[at].1;
        *lowest = position.offset.min(*lowest);
    }

    /// Records an epoch, and returns its place.
    pub(super) fn begin(&mut self, epoch: u64) -> usize {
        self.place(epoch).unwrap_or_else(|| {
            self.0.push((epoch, u64::MAX));
            self.0.len() - 1
        })
    }

    /// Returns the place of an epoch: later ones have higher places.
    pub(super) fn place(&self, epoch: u64) -> Option<usize> {
        self.0.iter().position(|(known, _)| *known == epoch)
    }

    /// Returns whether the store has lost a message: a later epoch begins at its offset or before.
    pub(super) fn has_lost(&self, position: Position) -> bool {
        let later = self.place(position.epoch).map_or(0, |place| place + 1);
        self.0.iter().skip(later).any(|(_, lowest)| *lowest <= position.offset)
    }

    /// Returns whether a position lies behind another one.
    pub(super) fn is_behind(&self, position: Position, other: Position) -> bool {
        if position.epoch == other.epoch {
            return position.offset > other.offset;
        }
        self.place(position.epoch) > self.place(other.epoch)
    }

    /// Returns whether a notice covers a message. The member was at `seen`, and continues
    /// behind `next`.
    pub(super) fn is_covered(&self, message: Position, seen: Position, next: Position) -> bool {
        if message.epoch == seen.epoch && message.offset > seen.offset {
            // If `next` is not behind `seen`, the store has lost the rest of the epoch.
            let was_rewound = next.offset <= seen.offset && self.has_lost(message);
            return next.epoch != seen.epoch || was_rewound || message.offset <= next.offset;
        }
        if message.epoch == next.epoch {
            return next.epoch != seen.epoch && message.offset <= next.offset;
        }
        let [message, seen, next] = [message, seen, next].map(|position| self.place(position.epoch));
        seen < message && message < next
    }
}
