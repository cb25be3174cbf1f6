//! The messages on the channel of a partition.
//!
//! A message has a head with numbers, which ends with a line end, the topic, and a content:
//!
//! - `M generation number epoch offset length`: a message. The content is the payload.
//! - `E …`: an epoch has begun behind the offset. The content is empty.
//! - `C …`: a map has changed. The content has the changes, each with a head of its own, a key, a
//!   value and an owner: `= length length length` or `- length 0 0`.
//! - `N key length`: a message that is not stored, made by [`notification`]. Without a key, `-`.
//!
//! `length` is that of the topic.

use crate::broker::store::{
    BrokerEvent, EntryChange, NodeId, Notification, Partition, Position, Sequence, StoredEvent,
    StoredMessage, TopicChange, TopicName,
};
use bytes::{Bytes, BytesMut};
use memchr::memchr;

/// Parses a message. `None` if it is not one of this version.
///
/// Payloads are copied, because the message shares the memory of a read buffer.
pub(super) fn parse(partition: Partition, mut message: Bytes) -> Option<BrokerEvent> {
    let head = take_line(&mut message)?;
    let mut words = std::str::from_utf8(&head).ok()?.split(' ');
    let kind = words.next()?;
    if kind == "N" {
        let key = words.next()?;
        let topic = take_topic(&mut message, last(words)?)?;
        let mut notification = Notification::new(topic, Bytes::copy_from_slice(&message));
        notification.key = if key == "-" { None } else { Some(key.parse().ok()?) };
        return Some(BrokerEvent::Notified(notification));
    }
    let mut number = || words.next()?.parse().ok();
    let sequence = Sequence::new(number()?, number()?);
    let position = Position::new(number()?, number()?);
    let topic = take_topic(&mut message, last(words)?)?;
    let change = match kind {
        "M" => TopicChange::Message(StoredMessage::new(position, Bytes::copy_from_slice(&message))),
        "E" => TopicChange::EpochBegan(position),
        "C" => TopicChange::Entries(position, changes_in(message)?),
        _ => return None,
    };
    Some(BrokerEvent::Stored(StoredEvent::new(partition, sequence, topic, change)))
}

/// Returns the message for a notification.
pub(super) fn notification(notification: &Notification) -> Bytes {
    let topic = notification.topic.as_str();
    let key = notification.key.map_or_else(|| "-".to_owned(), |key| key.to_string());
    let head = format!("N {key} {}\n{topic}", topic.len());
    let mut message = BytesMut::with_capacity(head.len() + notification.payload.len());
    message.extend_from_slice(head.as_bytes());
    message.extend_from_slice(&notification.payload);
    message.freeze()
}

fn changes_in(mut content: Bytes) -> Option<Vec<EntryChange>> {
    let mut changes = Vec::new();
    while !content.is_empty() {
        let head = take_line(&mut content)?;
        let mut words = std::str::from_utf8(&head).ok()?.split(' ');
        let kind = words.next()?;
        let mut part = |rest: &mut Bytes| take(rest, words.next()?.parse().ok()?);
        let [key, value, owner] = [part(&mut content)?, part(&mut content)?, part(&mut content)?];
        let [key, value] = [key, value].map(|part| Bytes::copy_from_slice(&part));
        let value = match kind {
            "=" => Some(value),
            "-" => None,
            _ => return None,
        };
        let mut change = EntryChange::new(key, value);
        if !owner.is_empty() {
            change.owner = Some(NodeId::parse(std::str::from_utf8(&owner).ok()?)?);
        }
        changes.push(change);
    }
    Some(changes)
}

/// Returns the last word as a length.
fn last<'a>(mut words: impl Iterator<Item = &'a str>) -> Option<usize> {
    let length = words.next()?.parse().ok()?;
    words.next().is_none().then_some(length)
}

fn take_topic(rest: &mut Bytes, length: usize) -> Option<TopicName> {
    let topic = take(rest, length)?;
    TopicName::new(std::str::from_utf8(&topic).ok()?).ok()
}

/// Takes the bytes before a line end, and the line end.
fn take_line(rest: &mut Bytes) -> Option<Bytes> {
    let end = memchr(b'\n', rest)?;
    let line = rest.split_to(end);
    let _ = rest.split_to(1);
    Some(line)
}

fn take(rest: &mut Bytes, length: usize) -> Option<Bytes> {
    (length <= rest.len()).then(|| rest.split_to(length))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(text: &str) -> Option<BrokerEvent> {
        parse(Partition::new(3), Bytes::copy_from_slice(text.as_bytes()))
    }

    fn stored(text: &str) -> StoredEvent {
        match parsed(text) {
            Some(BrokerEvent::Stored(event)) => {
                assert_eq!(event.partition.get(), 3);
                assert_eq!(event.sequence, Sequence::new(9, 1));
                assert_eq!(event.topic.as_str(), "a b");
                event
            }
            other => panic!("{text:?}: {other:?}"),
        }
    }

    #[test]
    fn events_are_those_that_the_scripts_publish() {
        let position = Position::new(22, 5);
        match stored("M 9 1 22 5 3\na bp\n").change {
            TopicChange::Message(message) => assert_eq!(message, StoredMessage::new(position, "p\n".into())),
            other => panic!("{other:?}"),
        }
        assert!(matches!(stored("E 9 1 22 5 3\na b").change, TopicChange::EpochBegan(at) if at == position));
        match stored("C 9 1 22 5 3\na b= 2 3 3\nk\nv vn:7- 0 0 0\n").change {
            TopicChange::Entries(at, changes) => {
                let mut set = EntryChange::new("k\n".into(), Some("v v".into()));
                set.owner = NodeId::parse("n:7");
                assert_eq!((at, changes), (position, vec![set, EntryChange::new("".into(), None)]));
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_notification_is_parsed_as_it_was_made() {
        for key in [None, Some(0), Some(u64::MAX)] {
            let mut made = Notification::new(TopicName::new("to pic").unwrap(), "\n\0".into());
            made.key = key;
            match parse(Partition::new(3), notification(&made)) {
                Some(BrokerEvent::Notified(parsed)) => assert_eq!(parsed, made),
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn other_messages_are_no_events() {
        for text in [
            "",
            "M",
            "M 1 2\n",
            "N - 9\nab",
            "N x 1\nab",
            "N - -1\nab",
            "N - 1 1\nab",
            "X 9 1 22 3 1\na",
            "M 9 1 22 3 0\na",
            "M 9 1 22 99999999999999999999 1\na",
            "M 9 1 22 3 1 1\na",
            "C 9 1 22 3 1\na= 9 1 0\nk",
            "C 9 1 22 3 1\na* 1 1 0\nkv",
            "C 9 1 22 3 1\na= 1 1 1\nkvo",
            "C 9 1 22 3 1\na= 1 1 0",
        ] {
            assert!(parsed(text).is_none(), "{text:?}");
        }
    }
}
