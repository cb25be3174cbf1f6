//! Connections that break while messages are in flight.

use super::{
    node::{Node, topic},
    redis_process::RedisProcess,
};
use crate::support::wait::done;
use netwheel::{
    broker::{Broker, BrokerError, MessageId, RedisBroker, store::BrokerEvent},
    reconnect::Backoff,
};
use std::{collections::BTreeSet, time::Duration};

/// Connections are killed again and again while messages with ids are published. Each is stored
/// once, and in the order of the calls.
#[test]
fn messages_with_ids_are_stored_once_and_in_order_amid_cuts() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    node.publish("begin").unwrap();
    let operator = redis.client();
    let mut published = Vec::new();
    for number in 0..2000 {
        let mut publication = node.publication(format!("{number}"));
        publication.id = Some(MessageId::new("ann", number.to_string()).unwrap());
        publication.limits = publication.limits.messages(10_000);
        published.push(node.broker.publish(publication));
        if number % 100 == 50 {
            done(operator.call(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])).unwrap();
        }
    }
    let offsets: Vec<u64> =
        published.into_iter().map(|published| done(published).unwrap().position.offset).collect();
    assert_eq!(offsets, (2..=2001).collect::<Vec<_>>());
    let mut texts = Vec::new();
    while texts.len() < 2000 {
        let history = node.read(1 + texts.len() as u64).unwrap();
        texts.extend(history.messages.into_iter().map(|message| message.payload));
    }
    assert_eq!(texts, (0..2000).map(|number| number.to_string()).collect::<Vec<_>>());
}

/// The client connects again when the ids of the messages are forgotten.
#[test]
fn messages_whose_ids_are_forgotten_are_not_sent_again() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let late = Duration::from_millis(1200);
    let client = redis
        .builder()
        .backoff(Backoff::new().initial(late).max_delay(late).jitter(false))
        .connect()
        .unwrap();
    let node = Node::start(RedisBroker::new(client));
    node.publish("begin").unwrap();
    let operator = redis.client();
    let mut published = Vec::new();
    for number in 0..2000 {
        let mut publication = node.publication(format!("{number}"));
        publication.id = Some(MessageId::new("ann", number.to_string()).unwrap());
        publication.window = Duration::from_secs(1);
        publication.limits = publication.limits.messages(10_000);
        published.push(node.broker.publish(publication));
        if number == 1500 {
            done(operator.call(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])).unwrap();
        }
    }
    for published in published {
        if let Err(error) = done(published) {
            assert!(matches!(BrokerError::of(&error), Some(BrokerError::Uncertain(_))), "{error}");
        }
    }
    let top = node.top(None).top;
    let (mut payloads, mut read) = (BTreeSet::new(), 0);
    while read < top {
        for message in node.read(read).unwrap().messages {
            read += 1;
            assert!(payloads.insert(message.payload), "a message is stored twice");
        }
    }
}

/// Without ids, a message whose reply is lost is uncertain, and is not sent again.
#[test]
fn messages_without_ids_are_stored_at_most_once_amid_cuts() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    let operator = redis.client();
    let mut published = Vec::new();
    for number in 0..2000 {
        published.push(node.broker.publish(node.publication(format!("{number}"))));
        if number % 100 == 50 {
            done(operator.call(["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"])).unwrap();
        }
    }
    let (mut stored, mut uncertain) = (0, 0);
    for published in published {
        match done(published) {
            Ok(_) => stored += 1,
            Err(error) => match BrokerError::of(&error) {
                Some(BrokerError::Uncertain(_)) => uncertain += 1,
                other => panic!("{other:?}"),
            },
        }
    }
    let top = node.top(None).top;
    assert!((stored..=stored + uncertain).contains(&top), "{top} of {stored} and {uncertain} messages");
}

#[test]
fn followers_are_told_of_interruptions() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    node.follow();
    let first = node.publish("a").unwrap();
    let is_first = |event: &BrokerEvent| format!("{event:?}").contains("\"a\"").then_some(());
    node.wait_for(is_first);
    redis.ask("CLIENT KILL TYPE pubsub");
    let partition = node.partitions.of(&topic());
    node.wait_for(|event| {
        matches!(event, BrokerEvent::Interrupted(cut, _) if *cut == partition).then_some(())
    });
    node.wait_for(|event| matches!(event, BrokerEvent::Following(back) if *back == partition).then_some(()));
    node.publish("b").unwrap();
    node.wait_for(|event| format!("{event:?}").contains("\"b\"").then_some(()));
    node.broker.follow(partition, false);
    node.publish("c").unwrap();
    assert!(node.recovers(first.position));
}

/// The server forgets its scripts again and again. Its replies say that it has not executed them.
#[test]
fn messages_are_stored_in_order_by_a_server_that_forgets_its_scripts() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    let operator = redis.client();
    let mut published = Vec::new();
    for number in 0..2000 {
        let mut publication = node.publication(format!("{number}"));
        publication.limits = publication.limits.messages(10_000);
        published.push(node.broker.publish(publication));
        if number % 100 == 50 {
            done(operator.call(["SCRIPT", "FLUSH"])).unwrap();
        }
    }
    let offsets: Vec<u64> =
        published.into_iter().map(|published| done(published).unwrap().position.offset).collect();
    assert_eq!(offsets, (1..=2000).collect::<Vec<_>>());
}
