//! The ids of messages that are remembered, of all topics.
//!
//! Invariant: at most the limit. Pure.

use crate::broker::store::{message_id::MessageId, position::Position, topic_name::TopicName};
use std::{
    collections::{BTreeMap, VecDeque},
    time::{Duration, Instant},
};

#[derive(Debug)]
pub(super) struct MessageIds {
    limit: usize,
    ids: BTreeMap<(TopicName, MessageId), Remembered>,
    /// The ids in the order in which they were remembered, with the number of each.
    order: VecDeque<((TopicName, MessageId), u64)>,
    next: u64,
}

#[derive(Debug)]
struct Remembered {
    position: Position,
    at: Instant,
    window: Duration,
    number: u64,
}

impl Remembered {
    fn is_over(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.at) >= self.window
    }
}

impl MessageIds {
    pub(super) fn new(limit: usize) -> Self {
        MessageIds { limit, ids: BTreeMap::new(), order: VecDeque::new(), next: 0 }
    }

    /// Returns the position of the message with the id, within its window.
    pub(super) fn find(&self, topic: &TopicName, id: &MessageId, now: Instant) -> Option<Position> {
        let found = self.ids.get(&(topic.clone(), id.clone()))?;
        (!found.is_over(now)).then_some(found.position)
    }

    pub(super) fn remember(
        &mut self,
        topic: TopicName,
        id: MessageId,
        position: Position,
        window: Duration,
        now: Instant,
    ) {
        let number = self.next;
        self.next += 1;
        let key = (topic, id);
        self.ids.insert(key.clone(), Remembered { position, at: now, window, number });
        self.order.push_back((key, number));
        while let Some((key, number)) = self.order.front() {
            let found = self.ids.get(key).filter(|found| found.number == *number);
            let is_current = found.is_some();
            if is_current && self.order.len() <= self.limit && !found.is_some_and(|found| found.is_over(now))
            {
                break;
            }
            if is_current {
                self.ids.remove(key);
            }
            self.order.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_forgotten_after_their_window_and_beyond_the_limit() {
        let (topic, start) = (TopicName::new("a").unwrap(), Instant::now());
        let id = |n: u64| MessageId::new("ann", n.to_string()).unwrap();
        let mut ids = MessageIds::new(3);
        let minute = Duration::from_secs(60);
        for n in 0..4 {
            ids.remember(topic.clone(), id(n), Position::new(1, n), minute, start);
        }
        assert_eq!(ids.find(&topic, &id(0), start), None, "beyond the limit");
        assert_eq!(ids.find(&topic, &id(1), start), Some(Position::new(1, 1)));
        ids.remember(topic.clone(), id(1), Position::new(1, 9), minute, start);
        assert_eq!(ids.find(&topic, &id(1), start), Some(Position::new(1, 9)));
        assert_eq!(ids.find(&topic, &id(1), start + minute), None);
        ids.remember(topic.clone(), id(5), Position::new(1, 5), minute, start + minute);
        assert_eq!((ids.ids.len(), ids.order.len()), (1, 1));
    }
}
