//! Entries whose owner ends.

use super::{
    node::{Node, topic},
    redis_process::RedisProcess,
};
use crate::support::wait::done;
use netwheel::{
    Result,
    broker::{
        Broker, NodeId, RedisBroker, TopicName,
        store::{BrokerEvent, Changed, MapChange, MapUpdate, NodeLease, TopicChange},
    },
    codec::RespLimits,
};
use std::time::Duration;

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
