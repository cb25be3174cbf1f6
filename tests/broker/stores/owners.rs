//! Removal of the entries of an ended node after a Redis server has lost data about the node.

use super::{
    node::{Node, topic},
    redis_process::RedisProcess,
};
use crate::support::wait::done;
use netwheel::{
    Result,
    broker::{
        Broker, BrokerError, NodeId, RedisBroker, TopicName,
        store::{BrokerEvent, Changed, MapChange, MapUpdate, NodeLease, TopicChange},
    },
    codec::{RespLimits, RespValue},
};
use std::time::Duration;

/// The calls of `end_lost_leases` that check the owners of entries in all partitions.
const TURNS: usize = 16;

fn begin<B: Broker>(at: &Node<B>, name: &str) -> NodeId {
    let node = NodeId::new(name, 1).unwrap();
    done(at.broker.renew(NodeLease::begin(node.clone(), Duration::from_secs(3600)))).unwrap();
    node
}

fn hold<B: Broker>(at: &Node<B>, topic: &TopicName, owner: &NodeId, keys: &[&str]) -> Result<Changed> {
    let changes = keys.iter().map(|key| MapChange::set((*key).to_owned(), "here")).collect();
    let mut update = MapUpdate::new(topic.clone(), changes);
    update.owner = Some(owner.clone());
    done(at.broker.change(update))
}

fn keys<B: Broker>(at: &Node<B>, topic: &TopicName) -> Vec<String> {
    let entries = done(at.broker.snapshot(topic, None)).unwrap().entries;
    let mut keys: Vec<_> =
        entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect();
    keys.sort();
    keys
}

/// The first server has the leases, and the entries are on the other one.
#[test]
fn entries_of_a_node_are_removed_although_its_lease_was_lost() {
    let (Some(a), Some(b)) = (RedisProcess::start(&[]), RedisProcess::start(&[])) else { return };
    let node = Node::start(RedisBroker::new(a.client()).server(b.client()));
    let is_on_other = |topic: &TopicName| node.partitions.of(topic).get() % 2 == 1;
    let users = (0..).map(|n| TopicName::new(format!("users{n}")).unwrap()).find(is_on_other).unwrap();
    let gone = begin(&node, "gone");
    hold(&node, &users, &gone, &["ann", "bob"]).unwrap();
    a.ask("DEL {netwheel}:leases {netwheel}:incarnations {netwheel}:ended");
    let alive = begin(&node, "alive");
    hold(&node, &users, &alive, &["bob", "cleo"]).unwrap();
    let ended: Vec<_> = (0..TURNS).flat_map(|_| done(node.broker.end_lost_leases()).unwrap()).collect();
    assert_eq!(ended, [gone]);
    assert_eq!(keys(&node, &users), ["bob", "cleo"]);
    done(node.broker.end_lease(&alive)).unwrap();
    assert!(keys(&node, &users).is_empty());
    let partition = node.partitions.of(&users).get();
    let owners = b.ask(&format!("SCARD {{netwheel:{partition}}}:owners"));
    assert_eq!(owners, RespValue::Integer(0), "no owner is left");
}

/// Neither node can be swept at the other server, which is down.
#[test]
fn entries_of_all_ended_nodes_are_removed_at_the_servers_that_work() {
    let (Some(a), Some(mut b)) = (RedisProcess::start(&[]), RedisProcess::start(&[])) else { return };
    let broker = RedisBroker::new(a.client()).server(b.client());
    let node = Node::start(broker.operation_timeout(Duration::from_secs(1)));
    // The first check of owners asks its partition.
    let is_on_first = |topic: &TopicName| usize::from(node.partitions.of(topic).get()) % TURNS == 0;
    let users = (0..).map(|n| TopicName::new(format!("users{n}")).unwrap()).find(is_on_first).unwrap();
    for name in ["one", "two"] {
        let owner = begin(&node, name);
        hold(&node, &users, &owner, &[name]).unwrap();
    }
    a.ask("DEL {netwheel}:leases {netwheel}:incarnations {netwheel}:ended");
    b.kill();
    assert!(done(node.broker.end_lost_leases()).is_err(), "the other server was not swept");
    assert!(keys(&node, &users).is_empty(), "{:?}", keys(&node, &users));
}

/// The node goes on with another incarnation, and sets its entries again.
#[test]
fn a_node_whose_list_of_entries_was_evicted_is_refused() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let node = Node::start(redis.broker().allow_eviction());
    let a = begin(&node, "a");
    hold(&node, &topic(), &a, &["ann"]).unwrap();
    let partition = node.partitions.of(&topic()).get();
    redis.ask(&format!("DEL {{netwheel:{partition}}}:owned:{a}"));
    let error = hold(&node, &topic(), &a, &["bob"]).unwrap_err();
    assert_eq!(BrokerError::of(&error), Some(&BrokerError::LeaseEnded));
    let again = NodeId::new("a", 2).unwrap();
    done(node.broker.end_lease(&a)).unwrap();
    done(node.broker.renew(NodeLease::begin(again.clone(), Duration::from_secs(3600)))).unwrap();
    hold(&node, &topic(), &again, &["ann"]).unwrap();
    done(node.broker.end_lease(&again)).unwrap();
    assert!(keys(&node, &topic()).is_empty());
    // A node that has removed all its entries is not refused.
    let b = begin(&node, "b");
    hold(&node, &topic(), &b, &["ann"]).unwrap();
    done(node.broker.change(MapUpdate::new(topic(), vec![MapChange::remove("ann")]))).unwrap();
    hold(&node, &topic(), &b, &["ann"]).unwrap();
}

/// A longer event would end the connections of all followers.
#[test]
fn removals_of_entries_with_long_keys_are_several_events() {
    let Some(redis) = RedisProcess::start(&[]) else { return };
    let limits = RespLimits::new().max_bulk_len(16 << 10);
    let client = redis.builder().resp_limits(limits).connect().unwrap();
    let node = Node::start(RedisBroker::new(client));
    node.follow();
    let a = begin(&node, "a");
    let names: Vec<_> = (0..100).map(|n| format!("{n:01000}")).collect();
    for names in names.chunks(10) {
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        hold(&node, &topic(), &a, &names).unwrap();
    }
    done(node.broker.end_lease(&a)).unwrap();
    assert!(keys(&node, &topic()).is_empty());
    let (mut removed, mut events) = (0, 0);
    node.wait_for(|event| {
        if let BrokerEvent::Interrupted(..) = event {
            panic!("{event:?}");
        }
        let BrokerEvent::Stored(event) = event else { return None };
        let TopicChange::Entries(_, changes) = &event.change else { return None };
        let removals = changes.iter().filter(|change| change.value.is_none()).count();
        removed += removals;
        events += usize::from(removals > 0);
        (removed == 100).then_some(())
    });
    assert_eq!(events, 7, "15 keys of 1016 bytes each");
}
