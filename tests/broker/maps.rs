//! Maps with replicas on several nodes.

use crate::{
    faulty::Faulty,
    support::{
        journal::Journal,
        loops::{manual_group, the_loop},
        wait::{done, wait_until},
    },
};
use netwheel::{
    EventLoopGroup,
    broker::{MapBuilder, MapCondition, MapEvent, MapTopic, MemoryBroker, Topics},
    testing::ManualClock,
};
use std::time::Duration;

/// A node with the map of users.
struct MapNode {
    topics: Topics,
    broker: Faulty,
    users: MapTopic,
    events: Journal<String>,
}

struct MapNodes {
    nodes: Vec<MapNode>,
    clock: ManualClock,
    group: EventLoopGroup,
}

fn describe(event: MapEvent<'_>) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match event {
        MapEvent::Changed { key, before, now, .. } => {
            let value = |entry: Option<&netwheel::broker::MapEntry>| {
                entry.map_or("-".to_owned(), |entry| text(&entry.value))
            };
            format!("{} {}>{}", text(key), value(before), value(now))
        }
        MapEvent::Lost { key, by, .. } => {
            format!("lost {} to {}", text(key), by.map_or("nobody", |by| by.name()))
        }
        MapEvent::Interrupted(_) => "interrupted".to_owned(),
        MapEvent::Resumed => "resumed".to_owned(),
        MapEvent::EpochChanged(_) => "epoch".to_owned(),
        other => format!("{other:?}"),
    }
}

impl MapNodes {
    fn new(number: usize) -> Self {
        Self::with(number, |map| map)
    }

    fn with(number: usize, settings: impl Fn(MapBuilder) -> MapBuilder) -> Self {
        let (group, clock) = manual_group();
        let store = MemoryBroker::new();
        let nodes = ["a", "b", "c"].into_iter().take(number).map(|name| {
            let broker = Faulty::new(&store, the_loop(&group));
            let topics = Topics::builder(&group, broker.clone()).node(name).build().unwrap();
            let events = Journal::new();
            let users = topics.map("users").on_event({
                let events: Journal<String> = events.clone();
                move |event| events.push(describe(event))
            });
            let users = settings(users).open().unwrap();
            done(users.ready()).unwrap();
            MapNode { topics, broker, users, events }
        });
        MapNodes { nodes: nodes.collect(), clock, group }
    }

    fn advance(&self, by: Duration) {
        crate::support::loops::advance(the_loop(&self.group), &self.clock, by);
    }
}

impl MapNode {
    fn value(&self, key: &str) -> Option<String> {
        self.users.get(key).map(|entry| String::from_utf8_lossy(&entry.value).into_owned())
    }
}

#[test]
fn an_entry_that_one_node_holds_is_on_all_nodes() {
    let MapNodes { nodes, .. } = MapNodes::new(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    let held = done(a.users.hold("ann", "1", Some(MapCondition::Absent))).unwrap();
    assert!(held.is_some() && a.users.holds("ann"));
    wait_until("it arrives", || b.value("ann").as_deref() == Some("1"));
    assert_eq!(b.users.get("ann").unwrap().owner, a.topics.authority());
    assert_eq!(done(b.users.hold("ann", "2", Some(MapCondition::Absent))).unwrap(), None);
    assert!(!b.users.holds("ann"));
    assert_eq!(done(b.users.release("ann")).unwrap(), false);
    assert!(done(a.users.release("ann")).unwrap());
    wait_until("it is removed", || b.users.is_empty());
    assert_eq!(b.events.all(), ["ann ->1", "ann 1>-"]);
}

#[test]
fn a_node_takes_an_entry_over() {
    let MapNodes { nodes, .. } = MapNodes::new(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    let at = done(a.users.hold("ann", "1", None)).unwrap().unwrap();
    assert!(done(b.users.hold("ann", "2", Some(MapCondition::Unchanged(at)))).unwrap().is_some());
    wait_until("it is lost", || a.events.all().len() == 3);
    assert_eq!(a.events.all(), ["ann ->1", "ann 1>2", "lost ann to b"]);
    assert!(!a.users.holds("ann") && b.users.holds("ann"));
}

#[test]
fn entries_without_an_owner_stay() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    let at = done(a.users.set("ann", "1")).unwrap();
    assert_eq!(done(b.users.set("bob", "2")).unwrap().offset, at.offset + 1);
    wait_until("both arrive", || a.users.len() == 2 && b.users.len() == 2);
    nodes.advance(Duration::from_secs(30));
    assert_eq!(b.users.entries_with_prefix("a").len(), 1);
    assert!(done(b.users.remove("ann")).unwrap() && !done(b.users.remove("ann")).unwrap());
    let _ = &b.broker;
}
