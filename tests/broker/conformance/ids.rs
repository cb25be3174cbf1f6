//! The ids of messages.

use super::{
    Store,
    recorder::{Connection, texts, topic},
};
use crate::support::wait::done;
use netwheel::{
    Error,
    broker::{
        MessageId, TopicName,
        store::{Publication, Published},
    },
};
use std::time::Duration;

fn publish(node: &Connection, topic: &TopicName, payload: &'static str, sender: &str, id: &str) -> Published {
    publish_within(Duration::from_secs(3600), node, topic, payload, sender, id)
}

fn publish_within(
    window: Duration,
    node: &Connection,
    topic: &TopicName,
    payload: &'static str,
    sender: &str,
    id: &str,
) -> Published {
    let mut publication = Publication::new(topic.clone(), payload.into());
    publication.id = Some(MessageId::new(sender, id).unwrap());
    publication.window = window;
    done(node.broker.publish(publication)).unwrap()
}

pub(super) fn repeated_ids_are_one_message(store: &dyn Store) {
    let (one, other, lobby) = (Connection::new(store), Connection::new(store), topic("lobby"));
    let first = publish(&one, &lobby, "a", "ann", "1");
    assert!(!first.is_duplicate);
    let again = publish(&other, &lobby, "b", "ann", "1");
    assert_eq!(again, Published::duplicate(first.position), "also on another node");
    assert!(!publish(&one, &lobby, "c", "bob", "1").is_duplicate, "another sender");
    assert!(!publish(&one, &lobby, "d", "ann", "2").is_duplicate, "another id");
    assert!(!publish(&one, &topic("other"), "e", "ann", "1").is_duplicate, "another topic");
    assert_eq!(texts(&one.read_all(&lobby)), ["a", "c", "d"]);
}

pub(super) fn ids_are_forgotten_after_the_window(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    let second = Duration::from_secs(1);
    assert!(!publish_within(second, &node, &lobby, "a", "ann", "1").is_duplicate);
    assert!(!publish(&node, &lobby, "b", "ann", "2").is_duplicate);
    store.pass(Duration::from_millis(1500));
    let again = publish(&node, &lobby, "c", "ann", "1");
    assert_eq!((again.is_duplicate, again.position.offset), (false, 3));
    assert!(publish(&node, &lobby, "d", "ann", "2").is_duplicate, "its window is longer");
}

/// Nothing is stored then, also when the message is sent again.
pub(super) fn a_window_out_of_range_is_refused(store: &dyn Store) {
    let (node, lobby) = (Connection::new(store), topic("lobby"));
    for window in [Duration::ZERO, Duration::from_millis(999), Duration::from_secs(24 * 3600 + 1)] {
        for _ in 0..2 {
            let mut publication = Publication::new(lobby.clone(), "a".into());
            publication.id = Some(MessageId::new("ann", "1").unwrap());
            publication.window = window;
            let refused = done(node.broker.publish(publication));
            assert!(matches!(refused, Err(Error::Setting(_))), "{window:?}: {refused:?}");
        }
    }
    let mut publication = Publication::new(lobby.clone(), "a".into());
    publication.limits = publication.limits.messages(1_000_001);
    assert!(matches!(done(node.broker.publish(publication)), Err(Error::Setting(_))));
    assert!(texts(&node.read_all(&lobby)).is_empty());
}
