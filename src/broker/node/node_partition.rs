//! `NodePartition`: one partition of a node.
//!
//! Invariant: the broker is asked to follow, and not to follow, in the order in which topics were
//! added and removed.

use super::{
    followed::FollowedTopic,
    partition_watch::{Ask, PartitionWatch},
};
use crate::broker::store::{Sequence, TopicName};
use crate::sync::Locked;
use std::{collections::BTreeMap, sync::Arc};

#[derive(Default)]
pub(super) struct NodePartition(Locked<State>);

#[derive(Default)]
struct State {
    watch: PartitionWatch,
    /// Topics that are followed.
    topics: BTreeMap<TopicName, Arc<dyn FollowedTopic>>,
    /// Whether the broker was asked to follow.
    is_followed: bool,
    /// Whether events may be missing at the moment.
    is_interrupted: bool,
    /// Whether a thread passes the wish to the broker.
    is_passing: bool,
}

impl NodePartition {
    /// Adds a topic. Returns whether it is the first one.
    pub(super) fn add(&self, topic: Arc<dyn FollowedTopic>) -> bool {
        self.0.change(|state| {
            let is_first = state.topics.is_empty();
            state.watch.topic_added();
            let replaced = state.topics.insert(topic.name().clone(), topic);
            (is_first, replaced)
        })
    }

    pub(super) fn find(&self, topic: &TopicName) -> Option<Arc<dyn FollowedTopic>> {
        self.0.read(|state| state.topics.get(topic).cloned())
    }

    /// Notes an event. Returns its topic, and whether it reveals a gap.
    pub(super) fn event(
        &self,
        sequence: Sequence,
        topic: &TopicName,
    ) -> (Option<Arc<dyn FollowedTopic>>, bool) {
        self.0.change(|state| {
            let is_gap = state.watch.event(sequence);
            ((state.topics.get(topic).cloned(), is_gap), ())
        })
    }

    pub(super) fn topics(&self) -> Vec<Arc<dyn FollowedTopic>> {
        self.0.read(|state| state.topics.values().cloned().collect())
    }

    /// Removes a topic if it rests. Returns whether it was there, and the last one: another thread
    /// may have taken all topics before.
    pub(super) fn remove_resting(&self, topic: &Arc<dyn FollowedTopic>) -> bool {
        self.0.change(|state| match topic.rest() {
            None => (false, None),
            Some(contents) => {
                // Another one may have the name by now.
                let is_there = |found: &Arc<dyn FollowedTopic>| Arc::ptr_eq(found, topic);
                let found = state.topics.get(topic.name()).is_some_and(is_there);
                let removed = if found { state.topics.remove(topic.name()) } else { None };
                (removed.is_some() && state.topics.is_empty(), Some((removed, contents)))
            }
        })
    }

    /// Removes and returns all topics.
    pub(super) fn take_topics(&self) -> Vec<Arc<dyn FollowedTopic>> {
        let topics = self.0.change(|state| (std::mem::take(&mut state.topics), ()));
        topics.into_values().collect()
    }

    /// Passes to the broker whether the partition is to be followed, unless another thread does so.
    pub(super) fn pass_follow(&self, follow: impl Fn(bool)) {
        let mut is_first = true;
        while let Some(on) = self.0.change(|state| (state.next_follow(is_first), ())) {
            is_first = false;
            follow(on);
        }
    }

    /// Returns whether this ends an interruption.
    pub(super) fn following(&self) -> bool {
        self.0.change(|state| {
            state.watch.following();
            (std::mem::take(&mut state.is_interrupted), ())
        })
    }

    /// Returns whether this begins an interruption.
    pub(super) fn interrupted(&self) -> bool {
        self.0.change(|state| {
            let is_new = state.is_followed && !std::mem::replace(&mut state.is_interrupted, true);
            state.watch.interrupted();
            (is_new, ())
        })
    }

    pub(super) fn tick(&self, most: u64) {
        self.0.change(|state| (state.watch.tick(most), ()));
    }

    pub(super) fn next_ask(&self) -> Option<(u64, Ask)> {
        self.0.change(|state| (state.watch.next_ask(), ()))
    }

    pub(super) fn answered(&self, question: u64, sequence: Sequence) {
        self.0.change(|state| (state.watch.answered(question, sequence), ()));
    }

    pub(super) fn failed(&self, question: u64) {
        self.0.change(|state| (state.watch.failed(question), ()));
    }
}

impl State {
    fn next_follow(&mut self, is_first: bool) -> Option<bool> {
        if is_first && self.is_passing {
            return None;
        }
        let wanted = !self.topics.is_empty();
        let next = (wanted != self.is_followed).then_some(wanted);
        self.is_passing = next.is_some();
        self.is_followed = wanted;
        if next == Some(false) {
            self.watch.interrupted();
            self.is_interrupted = false;
        }
        next
    }
}
