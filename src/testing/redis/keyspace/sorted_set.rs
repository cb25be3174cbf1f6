//! `SortedSet`: members with scores, in the order of both.

use bytes::Bytes;
use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

/// A score. Never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Score(f64);

impl Eq for Score {}

impl PartialOrd for Score {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Score {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.partial_cmp(&other.0).unwrap_or(Ordering::Equal)
    }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct SortedSet {
    scores: BTreeMap<Bytes, f64>,
    order: BTreeSet<(Score, Bytes)>,
}

impl SortedSet {
    pub(crate) fn len(&self) -> usize {
        self.scores.len()
    }

    pub(crate) fn score(&self, member: &[u8]) -> Option<f64> {
        self.scores.get(member).copied()
    }

    /// Sets the score of a member, which must not be NaN.
    pub(crate) fn set(&mut self, member: &Bytes, score: f64) {
        self.remove(member);
        self.scores.insert(member.clone(), score);
        self.order.insert((Score(score), member.clone()));
    }

    pub(crate) fn remove(&mut self, member: &Bytes) -> bool {
        let Some(score) = self.scores.remove(member) else { return false };
        self.order.remove(&(Score(score), member.clone()))
    }

    /// Iterates over the members by their scores, and members of one score by their bytes.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = (&Bytes, f64)> {
        self.order.iter().map(|(score, member)| (member, score.0))
    }
}
