//! `Epochs`: the list of a topic's epochs, and the rule by which positions are valid.
//!
//! Invariants: there is at least one epoch and at most [`Epochs::LIMIT`]. Ids differ, and are from
//! 1 to 2^53 - 1. The first offsets are at least 1 and do not decrease. Pure.

use super::{error::BrokerError, position::Position};

/// One epoch of a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Epoch {
    /// The id: random, at least 1, below 2^53.
    pub id: u64,
    /// The offset of the first message that is stored in the epoch.
    pub first: u64,
}

impl Epoch {
    /// Creates an epoch.
    pub const fn new(id: u64, first: u64) -> Self {
        Epoch { id, first }
    }

    /// Makes an id of a random number.
    pub const fn id_from(random: u64) -> u64 {
        random % (ID_END - 1) + 1
    }
}

/// The end of the ids: integers up to here are exact in the numbers of JavaScript.
const ID_END: u64 = 1 << 53;

/// The epochs of a topic, in the order of their first offsets.
///
/// A message belongs to the epoch in which it was stored. `last` of an epoch is the offset before
/// the first one of the next epoch, and of the newest epoch the top of the topic. A position is
/// *valid* if its epoch is in the list, and its offset is from `first - 1` to `last`. A reader with
/// a valid position has seen no message that the store has lost. Everything behind the position
/// follows, across epochs, as far as the history reaches.
///
/// ```
/// use netwheel::broker::{Position, store::{Epoch, Epochs}};
///
/// // Five messages were stored in the epoch 7. The store lost the last two of them, and went on.
/// let mut epochs = Epochs::new(vec![Epoch::new(7, 1)])?;
/// epochs.begin(8, 3);
/// let top = 10;
/// assert!(epochs.is_valid(Position::new(7, 3), top));
/// assert!(!epochs.is_valid(Position::new(7, 5), top), "the message 7:5 is lost");
/// assert_eq!(epochs.resume_point(Position::new(7, 5), top), Position::new(7, 3));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Epochs(Vec<Epoch>);

impl Epochs {
    /// The largest number of epochs that are kept.
    pub const LIMIT: usize = 32;

    /// Creates a list, with the oldest epoch first.
    ///
    /// # Errors
    ///
    /// [`BrokerError::Failed`] if the list cannot be one of a topic.
    pub fn new(epochs: Vec<Epoch>) -> Result<Self, BrokerError> {
        let are_ids = epochs.iter().all(|epoch| (1..ID_END).contains(&epoch.id) && epoch.first >= 1);
        let rise = epochs.windows(2).all(|pair| pair[0].first <= pair[1].first);
        let differ = (1..epochs.len()).all(|at| !epochs[..at].iter().any(|epoch| epoch.id == epochs[at].id));
        if epochs.is_empty() || epochs.len() > Self::LIMIT || !are_ids || !rise || !differ {
            return Err(BrokerError::failed(format_args!("wrong list of epochs: {epochs:?}")));
        }
        Ok(Epochs(epochs))
    }

    /// Creates the list of a topic without messages.
    ///
    /// `id` is one of [`Epoch::id_from`].
    pub fn first(id: u64) -> Self {
        Epochs(vec![Epoch::new(id, 1)])
    }

    /// Begins an epoch behind the top of the topic. Beyond the limit, the oldest epoch is removed.
    ///
    /// `id` is one of [`Epoch::id_from`]. An id that is in the list, and a top below that of an
    /// earlier call, are ignored.
    pub fn begin(&mut self, id: u64, top: u64) {
        let first = top.saturating_add(1).max(self.newest().first);
        if self.0.iter().any(|epoch| epoch.id == id) {
            return;
        }
        if self.0.len() == Self::LIMIT {
            self.0.remove(0);
        }
        self.0.push(Epoch::new(id, first));
    }

    /// Removes epochs whose positions cannot be resumed any more, because the messages behind them
    /// are not in the history. `oldest` is the offset of the oldest message in the history, or the
    /// one behind the top if the history is empty.
    pub fn trim(&mut self, oldest: u64) {
        let unused = self.0.windows(2).take_while(|pair| pair[1].first < oldest).count();
        self.0.drain(..unused);
    }

    /// Returns the epochs, with the oldest one first.
    pub fn as_slice(&self) -> &[Epoch] {
        &self.0
    }

    /// Returns the epoch of the next message.
    pub fn newest(&self) -> Epoch {
        // There is at least one.
        self.0[self.0.len() - 1]
    }

    /// Returns whether the list has an epoch.
    pub fn has(&self, id: u64) -> bool {
        self.0.iter().any(|epoch| epoch.id == id)
    }

    /// Returns the epoch of the message with an offset. The oldest one for messages before it.
    pub fn of(&self, offset: u64) -> u64 {
        let of = self.0.iter().rev().find(|epoch| epoch.first <= offset);
        of.unwrap_or(&self.0[0]).id
    }

    /// Returns the position behind the top.
    pub fn at(&self, top: u64) -> Position {
        Position::new(self.newest().id, top)
    }

    /// Returns whether the position is valid.
    pub fn is_valid(&self, position: Position, top: u64) -> bool {
        self.range(position.epoch, top).is_some_and(|(first, last)| {
            first <= position.offset.saturating_add(1) && position.offset <= last
        })
    }

    /// Returns whether a message at the position belongs to the topic. For messages of the newest
    /// epoch, the top does not matter.
    pub fn has_message(&self, position: Position) -> bool {
        self.range(position.epoch, u64::MAX)
            .is_some_and(|(first, last)| (first..=last).contains(&position.offset))
    }

    /// Returns whether the store has lost messages without having begun an epoch since: a node has
    /// seen a position of the newest epoch that is beyond the top.
    pub fn was_rewound(&self, seen: Position, top: u64) -> bool {
        self.newest().id == seen.epoch && seen.offset > top
    }

    /// Returns the position behind which a reader has seen nothing of the topic: `seen` itself if
    /// it is valid. Otherwise the end of its epoch, or the beginning of the oldest one.
    pub fn resume_point(&self, seen: Position, top: u64) -> Position {
        let oldest = self.0[0];
        match self.range(seen.epoch, top) {
            Some((first, last)) if first <= seen.offset.saturating_add(1) => {
                Position::new(seen.epoch, seen.offset.min(last))
            }
            _ => Position::new(oldest.id, (oldest.first - 1).min(top)),
        }
    }

    /// Returns the first and the last offset of an epoch. An epoch without messages has a last
    /// offset below the first one.
    fn range(&self, id: u64, top: u64) -> Option<(u64, u64)> {
        let at = self.0.iter().position(|epoch| epoch.id == id)?;
        let last = self.0.get(at + 1).map_or(top, |next| next.first - 1);
        Some((self.0[at].first, last))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(list: &[(u64, u64)]) -> Epochs {
        Epochs::new(list.iter().map(|(id, first)| Epoch::new(*id, *first)).collect()).unwrap()
    }

    #[test]
    fn positions_are_valid_within_their_epoch() {
        let epochs = epochs(&[(7, 1), (8, 4), (9, 4), (5, 6)]);
        let valid = |epoch| (0..20).filter(move |offset| epochs.is_valid(Position::new(epoch, *offset), 9));
        assert_eq!(valid.clone()(7).collect::<Vec<_>>(), [0, 1, 2, 3]);
        assert_eq!(valid.clone()(8).collect::<Vec<_>>(), [3], "an epoch without messages has one position");
        assert_eq!(valid.clone()(9).collect::<Vec<_>>(), [3, 4, 5]);
        assert_eq!(valid.clone()(5).collect::<Vec<_>>(), [5, 6, 7, 8, 9]);
        assert_eq!(valid(6).count(), 0);
    }

    #[test]
    fn a_message_has_one_epoch() {
        let epochs = epochs(&[(7, 1), (8, 4), (9, 4), (5, 6)]);
        for offset in 1..20 {
            let of =
                [5, 6, 7, 8, 9].into_iter().filter(|epoch| epochs.has_message(Position::new(*epoch, offset)));
            assert_eq!(of.collect::<Vec<_>>(), [epochs.of(offset)]);
        }
    }

    #[test]
    fn a_reader_resumes_where_its_messages_are_lost() {
        let epochs = epochs(&[(7, 11), (8, 14)]);
        let resume = |epoch, offset| epochs.resume_point(Position::new(epoch, offset), 15);
        assert_eq!(resume(7, 12), Position::new(7, 12));
        assert_eq!(resume(7, 99), Position::new(7, 13));
        assert_eq!(resume(8, u64::MAX), Position::new(8, 15));
        assert_eq!(resume(3, 99), Position::new(7, 10), "an unknown epoch");
        assert_eq!(resume(7, 2), Position::new(7, 10), "before its epoch");
        assert!(!epochs.was_rewound(Position::new(7, 99), 15), "the epoch 8 says so already");
        assert!(epochs.was_rewound(Position::new(8, 16), 15));
        assert!(!epochs.was_rewound(Position::new(8, 15), 15));
    }

    #[test]
    fn old_epochs_are_removed() {
        let mut all = epochs(&[(7, 1), (8, 4), (9, 4), (5, 6)]);
        all.trim(4);
        assert_eq!(all, epochs(&[(7, 1), (8, 4), (9, 4), (5, 6)]), "7:3 can be resumed");
        all.trim(5);
        assert_eq!(all, epochs(&[(9, 4), (5, 6)]));
        all.trim(100);
        assert_eq!(all, epochs(&[(5, 6)]));
        for id in 100..200 {
            all.begin(id, 10);
        }
        assert_eq!(all.as_slice().len(), Epochs::LIMIT);
        assert_eq!(all.newest(), Epoch::new(199, 11));
    }

    #[test]
    fn wrong_lists_are_refused() {
        let epoch = Epoch::new;
        assert!(Epochs::new(vec![]).is_err());
        assert!(Epochs::new(vec![epoch(0, 1)]).is_err());
        assert!(Epochs::new(vec![epoch(1 << 53, 1)]).is_err());
        assert!(Epochs::new(vec![epoch(1, 0)]).is_err());
        assert!(Epochs::new(vec![epoch(1, 2), epoch(2, 1)]).is_err());
        assert!(Epochs::new(vec![epoch(1, 1), epoch(1, 2)]).is_err());
        assert!(Epochs::new((1..=33).map(|id| epoch(id, id)).collect()).is_err());
    }

    #[test]
    fn ids_fit_in_the_numbers_of_javascript() {
        assert_eq!(Epoch::id_from(0), 1);
        assert!(
            [u64::MAX, ID_END, ID_END - 1, ID_END - 2]
                .iter()
                .all(|n| (1..ID_END).contains(&Epoch::id_from(*n)))
        );
    }
}
