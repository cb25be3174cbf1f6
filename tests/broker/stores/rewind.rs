//! A Redis that has lost messages which it had acknowledged.
//!
//! The position of a lost message must not be valid, whichever node publishes first.

use super::{
    node::{Node, topic},
    redis_process::RedisProcess,
};
use netwheel::broker::{Position, store::Epochs};

const UNSAFE: &[&str] = &["--appendonly", "yes", "--appendfsync", "no"];

fn newest(epochs: &Epochs, top: u64) -> Position {
    epochs.at(top)
}

/// 5 of 8 messages are lost in a crash. The next messages come from a node without members, which
/// has seen none of them, and more of them come than were lost.
#[test]
fn a_reader_of_lost_messages_is_told_after_new_ones_were_stored() {
    let Some(mut redis) = RedisProcess::start(UNSAFE) else { return };
    let first = Node::start(redis.broker());
    let safe: Vec<Position> =
        (0..3).map(|number| first.publish(format!("safe {number}")).unwrap().position).collect();
    redis.save_file();
    let lost: Vec<Position> =
        (0..5).map(|number| first.publish(format!("lost {number}")).unwrap().position).collect();
    redis.kill();
    redis.lose_writes();
    redis.restart();

    let other = Node::start(redis.broker());
    for number in 0..10 {
        other.publish_at_last(&format!("new {number}"));
    }
    assert_eq!(other.read(0).unwrap().top, 13, "the topic has grown beyond the lost messages");
    for position in lost {
        assert!(!other.recovers(position), "{position} is lost");
    }
    for position in safe {
        assert!(other.recovers(position), "{position} is safe, and so is what follows");
    }
    let history = other.read(3).unwrap();
    assert_eq!(history.epochs.as_slice().len(), 2, "one restart is one new epoch");
    let texts: Vec<_> = history.messages.iter().map(|message| message.payload.clone()).collect();
    assert_eq!(texts, (0..10).map(|number| format!("new {number}")).collect::<Vec<_>>());
}

/// The node with members comes first: the position that it has seen is beyond the top.
#[test]
fn a_node_that_has_seen_lost_messages_begins_an_epoch() {
    let Some(mut redis) = RedisProcess::start(UNSAFE) else { return };
    let node = Node::start(redis.broker());
    node.publish("safe").unwrap();
    redis.save_file();
    let lost = node.publish("lost").unwrap().position;
    redis.kill();
    redis.lose_writes();
    redis.restart();

    let other = Node::start(redis.broker());
    other.follow();
    let top = other.top(Some(lost));
    assert_eq!((top.top, top.epochs.as_slice().len()), (1, 2));
    assert!(!top.epochs.is_valid(lost, top.top));
    other.wait_for(|event| format!("{event:?}").contains("EpochBegan").then_some(()));
    assert_eq!(other.top(Some(lost)).epochs, top.epochs, "it is recorded once");
}

/// A restart without a loss: a new epoch, in which all old positions are valid.
#[test]
fn a_restart_without_a_loss_is_no_false_alarm() {
    let Some(mut redis) = RedisProcess::start(&["--appendonly", "yes", "--appendfsync", "always"]) else {
        return;
    };
    let node = Node::start(redis.broker());
    let positions: Vec<Position> = (0..3).map(|n| node.publish(format!("{n}")).unwrap().position).collect();
    redis.kill();
    redis.restart();
    node.publish_at_last("again");
    for position in positions {
        assert!(node.recovers(position), "{position}");
    }
}

/// Everything is lost: no persistence, `FLUSHALL`, and deleted keys.
#[test]
fn a_reader_is_told_when_keys_are_gone() {
    let Some(mut redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let node = Node::start(redis.broker());
    let partition = node.partitions.of(&topic()).get();
    let key = |kind: &str| format!("{{netwheel:{partition}}}:{kind}:lobby");
    for loss in ["restart", "FLUSHALL", &format!("DEL {}", key("topic")), &format!("DEL {}", key("stream"))] {
        let before: Vec<Position> =
            (0..3).map(|_| Position::clone(&node.publish_at_last("before"))).collect();
        if loss == "restart" {
            redis.kill();
            redis.restart();
        } else {
            redis.ask(loss);
        }
        let told = |position: Position| !node.recovers(position);
        if loss != "restart" {
            assert!(told(before[0]) && told(before[1]), "{loss}");
        }
        for _ in 0..5 {
            node.publish_at_last("after");
        }
        assert!(told(before[0]) && told(before[1]), "{loss}, and then new messages");
        // What follows the newest message is complete if only the stream was deleted.
        assert_eq!(told(before[2]), !loss.contains("stream"), "{loss}");
        let history = node.read(0).unwrap();
        assert!(node.recovers(newest(&history.epochs, history.top)));
    }
}

/// An id that was remembered for a lost message does not count.
#[test]
fn a_repetition_of_a_lost_message_is_stored() {
    use crate::support::wait::done;
    use netwheel::broker::{Broker, MessageId};

    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let node = Node::start(redis.broker());
    let publish = || {
        let mut publication = node.publication("once");
        publication.id = Some(MessageId::new("ann", "1").unwrap());
        done(node.broker.publish(publication)).unwrap()
    };
    let first = publish();
    assert!(!first.is_duplicate && publish().is_duplicate);
    let partition = node.partitions.of(&topic()).get();
    redis.ask(&format!("DEL {{netwheel:{partition}}}:topic:lobby"));
    let again = publish();
    assert!(!again.is_duplicate && again.position.epoch != first.position.epoch);
    assert!(publish().is_duplicate);
}
