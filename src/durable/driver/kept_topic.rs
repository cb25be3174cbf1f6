//! `KeptTopic`: the settings of a topic that the thread of the store needs.

use crate::durable::{
    dead_work::REMOVED_AT_ONCE,
    policy::KeepDead,
    store::{DeadLetters, TopicCounts, TopicSet},
};

/// The name of a topic, and how long its dead letters are kept.
#[derive(Debug)]
pub(in crate::durable) struct KeptTopic {
    pub(in crate::durable) name: String,
    pub(in crate::durable) keep: KeepDead,
}

impl KeptTopic {
    /// Returns the letters to remove: the old ones, and those beyond the number to keep.
    pub(super) fn surplus(&self, now: i64) -> impl Iterator<Item = DeadLetters> + '_ {
        let letters = |until, keep| DeadLetters {
            until,
            keep,
            limit: REMOVED_AT_ONCE,
            ..DeadLetters::new(self.name.as_str())
        };
        let old = self.keep.millis.map(move |millis| letters(now.saturating_sub(millis), 0));
        let many = self.keep.letters.map(move |keep| letters(i64::MAX, keep));
        old.into_iter().chain(many)
    }
}

/// Returns which of the topics are paused.
pub(in crate::durable) fn paused(counts: &[TopicCounts], topics: &[KeptTopic]) -> TopicSet {
    let paused = counts.iter().filter(|counts| counts.is_paused);
    paused.filter_map(|counts| topics.iter().position(|topic| topic.name == counts.topic)).collect()
}
