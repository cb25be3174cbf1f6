//! A Redis that has lost messages which it had acknowledged.
//!
//! The position of a lost message must not be valid, whichever node publishes first.

use super::{
    node::{Node, topic},
    redis_process::RedisProcess,
};
use crate::support::wait::done;
use netwheel::{
    broker::{
        Broker, MessageId, Position, RedisBroker,
        store::{Epochs, MapChange, MapUpdate},
    },
    codec::RespValue,
};
use std::time::Duration;

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

/// A node with members asks first after the metadata was lost. The messages of the lost epoch do
/// not come back in the new one.
#[test]
fn messages_without_metadata_are_gone_also_after_a_question_for_the_top() {
    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let node = Node::start(redis.broker());
    let partition = node.partitions.of(&topic()).get();
    for next in ["read", "publish"] {
        for number in 0..3 {
            node.publish(format!("{number}")).unwrap();
        }
        redis.ask(&format!("DEL {{netwheel:{partition}}}:topic:lobby"));
        assert_eq!(node.top(None).top, 0, "{next}");
        if next == "publish" {
            assert_eq!(node.publish("new").unwrap().position.offset, 1);
        }
        let history = node.read(0).unwrap();
        let expected = u64::from(next == "publish");
        let found = (history.top, history.messages.len() as u64, history.oldest);
        assert_eq!(found, (expected, expected, 1), "{next}");
    }
}

/// Returns how long a key of the topic lives, in ms.
fn life(redis: &RedisProcess, node: &Node<RedisBroker>, kind: &str) -> i64 {
    let partition = node.partitions.of(&topic()).get();
    match redis.ask(&format!("PTTL {{netwheel:{partition}}}:{kind}:lobby")) {
        RespValue::Integer(left) => left,
        other => panic!("{other:?}"),
    }
}

/// A question about a map creates its metadata, so a client that asks about one map after another
/// must not fill the memory for days.
#[test]
fn the_metadata_of_a_map_without_entries_lives_for_hours_only() {
    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let node = Node::start(redis.broker());
    let hour = 3_600_000;
    let change = |change| done(node.broker.change(MapUpdate::new(topic(), vec![change]))).unwrap();
    done(node.broker.snapshot(&topic(), None)).unwrap();
    node.top(None);
    assert!((hour..=2 * hour).contains(&life(&redis, &node, "topic")), "{}", life(&redis, &node, "topic"));
    change(MapChange::set("ann", "here"));
    node.top(None);
    assert_eq!(life(&redis, &node, "topic"), -1, "it does not expire");
    change(MapChange::remove("ann"));
    assert!((hour..=2 * hour).contains(&life(&redis, &node, "topic")));
}

/// Messages do not outlive the metadata of their topic.
#[test]
fn metadata_lives_longer_than_messages() {
    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let minute = Duration::from_secs(60);
    let node = Node::start(redis.broker().keep_idle(minute));
    let left = |kind: &str| life(&redis, &node, kind);
    let publish = |age: Duration| {
        let mut publication = node.publication("x");
        publication.limits = publication.limits.age(age);
        done(node.broker.publish(publication)).unwrap();
        assert!(left("topic") >= left("stream"), "{age:?}: {} and {}", left("topic"), left("stream"));
    };
    node.read(0).unwrap();
    publish(10 * minute);
    publish(24 * 60 * minute);
    let before = left("stream");
    node.top(None);
    node.read(0).unwrap();
    publish(Duration::from_secs(1));
    let passed = minute.as_millis() as i64;
    assert!(left("topic") >= before - passed, "it is not shortened");
}

/// An id that is remembered counts only with the epochs of its topic.
#[test]
fn metadata_lives_longer_than_message_ids() {
    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let minute = Duration::from_secs(60);
    let node = Node::start(redis.broker().keep_idle(minute));
    let mut publication = node.publication("x");
    publication.id = Some(MessageId::new("ann", "1").unwrap());
    publication.limits = publication.limits.age(minute);
    publication.window = 10 * minute;
    done(node.broker.publish(publication)).unwrap();
    let left = |key: &str| match redis.ask(&format!("PTTL {key}")) {
        RespValue::Integer(left) => left,
        other => panic!("{other:?}"),
    };
    let found = |pattern: &str| match redis.ask(&format!("KEYS {pattern}")) {
        RespValue::Array(keys) if keys.len() == 1 => {
            String::from_utf8(keys[0].as_bytes().unwrap().to_vec()).unwrap()
        }
        other => panic!("{other:?}"),
    };
    let id = left(&found("*:id:*"));
    assert!(id > 9 * 60_000, "{id}");
    assert!(left(&found("*:topic:lobby")) >= id);
}

/// Nearly all of many messages are beyond a limit. The script does not read each of them.
#[test]
fn trimming_reads_few_messages() {
    let Some(redis) = RedisProcess::start(&["--appendonly", "no"]) else { return };
    let node = Node::start(redis.broker());
    let publish = |bytes: u64| {
        let mut publication = node.publication("xxxx");
        publication.limits = publication.limits.messages(100_000).bytes(bytes);
        node.broker.publish(publication)
    };
    let all: Vec<_> = (0..3000).map(|_| publish(1 << 20)).collect();
    for published in all {
        done(published).unwrap();
    }
    redis.ask("CONFIG RESETSTAT");
    done(publish(10)).unwrap();
    let stats = redis.ask("INFO commandstats");
    let stats = String::from_utf8_lossy(stats.as_bytes().unwrap()).into_owned();
    let calls = stats.split("cmdstat_xrange:calls=").nth(1).and_then(|rest| rest.split(',').next());
    let calls: u32 = calls.expect(&stats).parse().unwrap();
    assert!(calls <= 13, "{calls} calls of XRANGE");
    let history = node.read(0).unwrap();
    assert_eq!((history.oldest, history.messages.len()), (3000, 2));
}
