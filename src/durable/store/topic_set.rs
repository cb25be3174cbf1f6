//! `TopicSet`: some of the topics of a program.

use std::fmt;

/// The number of topics that a program may have.
const LIMIT: usize = 256;

/// The number of topics for which one word has a bit.
const BITS: usize = u64::BITS as usize;

/// A set of topics, by their indexes in the list given to
/// [`TimerStore::attach`](super::TimerStore::attach).
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct TopicSet {
    words: [u64; LIMIT / BITS],
}

impl TopicSet {
    /// The largest number of topics of a program.
    pub const LIMIT: usize = LIMIT;

    /// All topics.
    pub const ALL: TopicSet = TopicSet { words: [u64::MAX; LIMIT / BITS] };

    /// Returns whether the set has no topics.
    pub fn is_empty(&self) -> bool {
        *self == TopicSet::default()
    }

    /// Returns whether the set has a topic.
    pub fn contains(&self, topic: usize) -> bool {
        self.words.get(topic / BITS).is_some_and(|word| word >> (topic % BITS) & 1 == 1)
    }

    /// Returns the topics in order.
    pub fn iter(&self) -> impl Iterator<Item = usize> + '_ {
        (0..LIMIT).filter(|topic| self.contains(*topic))
    }

    /// Adds a topic. Indexes beyond [`LIMIT`](TopicSet::LIMIT) are not indexes of a topic.
    pub(in crate::durable) fn insert(&mut self, topic: usize) {
        if let Some(word) = self.words.get_mut(topic / BITS) {
            *word |= 1 << (topic % BITS);
        }
    }

    /// Removes a topic.
    pub(in crate::durable) fn remove(&mut self, topic: usize) {
        if let Some(word) = self.words.get_mut(topic / BITS) {
            *word &= !(1 << (topic % BITS));
        }
    }

    /// Returns the topics that are in this set only.
    pub(in crate::durable) fn without(&self, other: &TopicSet) -> TopicSet {
        let mut words = self.words;
        words.iter_mut().zip(other.words).for_each(|(word, other)| *word &= !other);
        TopicSet { words }
    }
}

impl FromIterator<usize> for TopicSet {
    fn from_iter<I: IntoIterator<Item = usize>>(topics: I) -> Self {
        let mut set = TopicSet::default();
        topics.into_iter().for_each(|topic| set.insert(topic));
        set
    }
}

impl fmt::Debug for TopicSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_added_and_leaves_out_what_another_has() {
        let all: TopicSet = [0, 63, 64, 255].into_iter().collect();
        assert_eq!(all.iter().collect::<Vec<_>>(), [0, 63, 64, 255]);
        assert!(!all.contains(1) && !all.contains(256));
        let some: TopicSet = [63, 255, 7].into_iter().collect();
        assert_eq!(format!("{:?}", all.without(&some)), "{0, 64}");
        assert!(all.without(&all).is_empty() && !all.is_empty());
        let mut rest = all;
        [64, 256].into_iter().for_each(|topic| rest.remove(topic));
        assert_eq!(format!("{rest:?}"), "{0, 63, 255}");
    }

    #[test]
    fn an_index_that_no_topic_has_is_left_out() {
        let set: TopicSet = [LIMIT, usize::MAX].into_iter().collect();
        assert!(set.is_empty());
    }
}
