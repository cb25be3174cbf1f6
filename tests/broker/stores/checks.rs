//! What a broker demands of its servers.

use super::{node::Node, redis_process::RedisProcess};
use crate::support::wait::done;
use netwheel::{
    Error,
    broker::{Broker, BrokerError, RedisBroker},
    redis::RedisClient,
};
use std::time::Duration;

fn refusal<B: Broker>(node: &Node<B>) -> BrokerError {
    let error = node.publish("x").unwrap_err();
    BrokerError::of(&error).unwrap_or_else(|| panic!("{error:?}")).clone()
}

#[test]
fn a_server_that_may_evict_keys_is_refused_unless_allowed() {
    let Some(redis) = RedisProcess::start(&["--maxmemory-policy", "allkeys-lru"]) else { return };
    let node = Node::start(redis.broker());
    match refusal(&node) {
        BrokerError::Unsuitable(why) => {
            assert!(why.contains("maxmemory-policy is allkeys-lru; it must be noeviction"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert!(node.read(0).is_err(), "every operation is refused");
    let allowing = Node::start(redis.broker().allow_eviction());
    allowing.publish("x").unwrap();
}

#[test]
fn a_node_with_another_number_of_partitions_is_refused() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::try_start(redis.broker(), 32).unwrap();
    node.publish("x").unwrap();
    let other = Node::try_start(redis.broker(), 64).unwrap();
    match refusal(&other) {
        BrokerError::Partitions { found, asked, .. } => assert_eq!((found, asked), (32, 64)),
        other => panic!("{other:?}"),
    }
    Node::try_start(redis.broker().prefix("other"), 64).unwrap().publish("x").unwrap();
    Node::try_start(redis.broker(), 32).unwrap().publish("x").unwrap();
}

#[test]
fn servers_have_their_places() {
    let (Some(a), Some(b)) = (RedisProcess::start(&[]), RedisProcess::start(&[])) else { return };
    let node = Node::start(RedisBroker::new(a.client()).server(b.client()));
    node.publish("x").unwrap();
    for partition in node.partitions.all() {
        done(node.broker.tops(partition, Vec::new())).unwrap();
    }
    let keys = |redis: &RedisProcess| format!("{:?}", redis.ask("KEYS *"));
    assert!(keys(&a).contains("{netwheel:2}") && !keys(&a).contains("{netwheel:3}"), "{}", keys(&a));
    assert!(keys(&b).contains("{netwheel:3}") && !keys(&b).contains("{netwheel:2}"), "{}", keys(&b));
    let swapped = Node::start(RedisBroker::new(b.client()).server(a.client()));
    assert!(matches!(refusal(&swapped), BrokerError::Unsuitable(_)));
    let alone = Node::start(a.broker());
    assert!(matches!(refusal(&alone), BrokerError::Unsuitable(_)));
}

#[test]
fn a_server_that_cannot_be_reached_is_checked_again() {
    let Some(mut redis) = RedisProcess::start(&[]) else { return };
    redis.kill();
    let node = Node::start(redis.broker().operation_timeout(Duration::from_millis(50)));
    assert!(matches!(refusal(&node), BrokerError::Unreachable(_)));
    redis.restart();
    node.publish_at_last("x");
}

#[test]
fn wrong_settings_are_refused_at_the_start() {
    let group = netwheel::EventLoopGroup::builder().threads(1).build().unwrap();
    let broker = || RedisBroker::new(RedisClient::builder(&group, "unix:///none").connect().unwrap());
    for broker in [
        broker().prefix(""),
        broker().prefix("a{b}"),
        broker().prefix("x".repeat(65)),
        broker().operation_timeout(Duration::from_millis(9)),
        broker().operation_timeout(Duration::from_secs(601)),
        broker().keep_idle(Duration::from_secs(59)),
        (0..16).fold(broker(), |many, _| {
            many.server(RedisClient::builder(&group, "unix:///none").connect().unwrap())
        }),
    ] {
        let shown = format!("{broker:?}");
        assert!(matches!(Node::try_start(broker, 64), Err(Error::Setting(_))), "{shown}");
    }
}

#[test]
fn a_broker_starts_once_and_ends() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    let again = Node::try_start(redis.broker(), 64).unwrap();
    drop(again);
    node.publish("x").unwrap();
    done(node.broker.close()).unwrap();
    assert_eq!(refusal(&node), BrokerError::Closed);
    done(node.broker.close()).unwrap();
}
