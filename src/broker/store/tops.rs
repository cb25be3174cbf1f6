//! `PartitionTops`: how far the topics of a partition have come.

use super::{epochs::Epochs, partition::Sequence, position::Position, topic_name::TopicName};

/// A topic, and how far a node has seen it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicSeen {
    /// The topic.
    pub topic: TopicName,
    /// The highest position that the node has seen.
    pub seen: Option<Position>,
}

impl TopicSeen {
    /// The largest number of topics in one request.
    pub const LIMIT: usize = 1000;

    /// Creates a question for a topic.
    pub fn new(topic: TopicName, seen: Option<Position>) -> Self {
        TopicSeen { topic, seen }
    }
}

/// How far a topic has come.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TopicTop {
    /// The epochs of the topic.
    pub epochs: Epochs,
    /// The offset of the newest message that was ever stored, or of the newest change of a map, or
    /// zero.
    pub top: u64,
}

impl TopicTop {
    /// Creates an answer for a topic.
    pub fn new(epochs: Epochs, top: u64) -> Self {
        TopicTop { epochs, top }
    }
}

/// How far a partition and topics in it have come, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct PartitionTops {
    /// The sequence of the newest event. Its number is zero if there was none.
    pub sequence: Sequence,
    /// The topics, in the order of the question.
    pub topics: Vec<TopicTop>,
}

impl PartitionTops {
    /// Creates an answer for a partition.
    pub fn new(sequence: Sequence, topics: Vec<TopicTop>) -> Self {
        PartitionTops { sequence, topics }
    }
}
