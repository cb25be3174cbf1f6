//! What a broker demands of its servers.

use super::{
    node::{Node, topic},
    redis_process::RedisProcess,
};
use crate::support::wait::{PATIENCE, done};
use bytes::Bytes;
use netwheel::{
    Error,
    broker::{
        Broker, BrokerError, RedisBroker,
        store::{BrokerEvent, MapChange, MapUpdate, Notification},
    },
    codec::RespLimits,
    redis::{RedisClient, RedisSettings},
};
use std::time::{Duration, Instant};

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
    let few = RespLimits::new().max_elements(6099);
    let few = RedisClient::builder(&group, "unix:///none").resp_limits(few).connect().unwrap();
    let small = RedisSettings::new().max_pending_bytes(1024 * 1024 - 1);
    let small = RedisClient::builder(&group, "unix:///none").settings(small).connect().unwrap();
    for broker in [
        broker().server(few),
        broker().server(small),
        broker().prefix(""),
        broker().prefix("a{b}"),
        broker().prefix("chat:3"),
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

/// A node without a subscription notices another process, whose settings are not suitable.
#[test]
fn another_process_is_checked_by_a_node_that_only_publishes() {
    let Some(mut redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    node.publish("x").unwrap();
    redis.kill();
    redis.arguments.extend(["--maxmemory-policy", "allkeys-lru"].map(str::to_owned));
    redis.restart();
    let begun = Instant::now();
    loop {
        let published = node.publish("x");
        if let Err(error) = published
            && let Some(BrokerError::Unsuitable(_)) = BrokerError::of(&error)
        {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "messages are still stored");
    }
}

#[test]
fn a_refused_subscription_is_tried_again() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    redis.ask("ACL SETUSER limited on >secret ~* resetchannels +@all");
    let client = redis.builder().user("limited", "secret").connect().unwrap();
    let node = Node::start(RedisBroker::new(client));
    let partition = node.partitions.of(&topic());
    node.broker.follow(partition, true);
    node.wait_for(|event| {
        let BrokerEvent::Interrupted(at, BrokerError::Refused(_)) = event else { return None };
        (*at == partition).then_some(())
    });
    redis.ask("ACL SETUSER limited allchannels");
    done(node.broker.end_lost_leases()).unwrap();
    node.wait_for(|event| matches!(event, BrokerEvent::Following(at) if *at == partition).then_some(()));
}

/// Such an event would end the connections of all followers.
#[test]
fn a_message_that_does_not_fit_into_an_event_is_refused() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker());
    node.follow();
    let large = Bytes::from(vec![b'x'; (1 << 20) - 511]);
    assert!(matches!(node.publish(large.clone()), Err(Error::Setting(_))));
    let update = MapUpdate::new(topic(), vec![MapChange::set("key", large.clone())]);
    assert!(matches!(done(node.broker.change(update)), Err(Error::Setting(_))));
    assert!(node.broker.notify(Notification::new(topic(), large.clone())).is_err());
    let published = node.publish(large.slice(1..)).unwrap();
    node.wait_for(|event| match event {
        BrokerEvent::Stored(event) => Some(event.sequence),
        BrokerEvent::Interrupted(..) => panic!("{event:?}"),
        _ => None,
    });
    assert_eq!(published.position.offset, 1, "nothing was stored before");
}

/// Returns updates that make a map of 18 MB, and the changes that make it smaller.
pub(super) fn large_map() -> (Vec<MapUpdate>, MapUpdate) {
    let value = Bytes::from(vec![b'x'; 4096]);
    let updates = (0..30).map(|round| {
        let change = |number| MapChange::set(format!("{round}.{number}"), value.clone());
        MapUpdate::new(topic(), (0..150).map(change).collect())
    });
    let removals = (0..6).flat_map(|round| (0..150).map(move |number| format!("{round}.{number}")));
    (updates.collect(), MapUpdate::new(topic(), removals.map(MapChange::remove).collect()))
}

/// Asserts that a snapshot of a map that is too large for a reply fails alone.
pub(super) fn a_map_that_is_too_large_fails_alone(broker: &dyn Broker) {
    let (updates, removal) = large_map();
    let updates: Vec<_> = updates.into_iter().map(|update| broker.change(update)).collect();
    let changed: Vec<_> = updates.into_iter().map(|update| done(update).unwrap()).collect();
    let error = done(broker.snapshot(&topic(), None)).unwrap_err();
    match BrokerError::of(&error) {
        Some(BrokerError::TooLarge(at, why)) => {
            assert_eq!(*at, changed[29].position);
            assert!(why.starts_with("4500 entries do not fit into a reply; at most 32764 with"), "{why}");
        }
        _ => panic!("{error:?}"),
    }
    done(broker.change(removal)).unwrap();
    assert_eq!(done(broker.snapshot(&topic(), None)).unwrap().entries.len(), 3600);
}

#[test]
fn a_map_that_is_larger_than_a_reply_does_not_end_the_connection() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let client = redis.client();
    let node = Node::start(RedisBroker::new(client.clone()));
    a_map_that_is_too_large_fails_alone(&node.broker);
    assert_eq!(client.stats().connects, 1);
}

fn many_entries(round: usize) -> MapUpdate {
    let change = |number| MapChange::set(format!("{round}.{number}"), "x");
    MapUpdate::new(topic(), (0..MapUpdate::LIMIT).map(change).collect())
}

/// Another node may have set more entries than a reply of this one may have.
#[test]
fn a_map_with_too_many_entries_for_this_node_fails_alone() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let other = Node::start(redis.broker());
    for round in 0..4 {
        done(other.broker.change(many_entries(round))).unwrap();
    }
    let client = redis.builder().resp_limits(RespLimits::new().max_elements(6208)).connect().unwrap();
    let node = Node::start(RedisBroker::new(client.clone()));
    let error = done(node.broker.snapshot(&topic(), None)).unwrap_err();
    assert!(matches!(BrokerError::of(&error), Some(BrokerError::TooLarge(..))), "{error:?}");
    assert_eq!(client.stats().connects, 1);
}

/// A map has at most as many entries as a reply of the client may have.
#[test]
fn a_map_fits_into_a_reply() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let client = redis.builder().resp_limits(RespLimits::new().max_elements(6208)).connect().unwrap();
    let node = Node::start(RedisBroker::new(client));
    let mut made = 0;
    for round in 0..4 {
        let changed = done(node.broker.change(many_entries(round))).unwrap();
        made += changed.made.iter().filter(|made| **made).count();
    }
    assert_eq!(made, 3100);
    assert_eq!(done(node.broker.snapshot(&topic(), None)).unwrap().entries.len(), 3100);
}
