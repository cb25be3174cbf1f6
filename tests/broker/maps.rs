//! Maps with replicas on several nodes.

use crate::{
    faulty::{Events, Faulty},
    members::Numbered,
    support::{
        journal::Journal,
        loops::{advance, manual_group, the_loop},
        wait::{SECOND, done, wait_until},
    },
};
use netwheel::{
    Error, EventLoopGroup,
    broker::{
        BrokerError, MapBuilder, MapChange, MapCondition, MapEvent, MapTopic, MemoryBroker, TopicName, Topics,
    },
    error::Resource,
    testing::ManualClock,
};

/// A node with the map of users.
struct MapNode {
    topics: Topics,
    broker: Faulty,
    users: MapTopic,
    events: Journal<String>,
}

struct MapNodes {
    nodes: Vec<MapNode>,
    store: MemoryBroker,
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
        MapNodes { nodes: nodes.collect(), store, clock, group }
    }

    /// Lets time pass in steps that are shorter than the interval of renewals.
    fn pass(&self, steps: u32) {
        (0..steps).for_each(|_| advance(the_loop(&self.group), &self.clock, 2 * SECOND));
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
    assert!(!done(b.users.release("ann")).unwrap());
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
    nodes.pass(15);
    assert_eq!(b.users.entries_with_prefix("a").len(), 1);
    assert!(done(b.users.remove("ann")).unwrap() && !done(b.users.remove("ann")).unwrap());
    assert_eq!(a.users.position(), Some(done(b.users.update(Vec::new())).unwrap().position));
}

fn broker_error(error: &Error) -> &BrokerError {
    BrokerError::of(error).unwrap_or_else(|| panic!("{error}"))
}

#[test]
fn a_node_sets_its_entries_again_after_its_lease_has_ended() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    for key in ["ann", "bob"] {
        assert!(done(a.users.hold(key, "a", None)).unwrap().is_some());
    }
    let before = a.topics.authority();
    a.broker.set_cut(true);
    nodes.pass(8);
    wait_until("the lease has ended", || b.users.is_empty());
    assert_eq!(a.users.len(), 2, "the replica of a node that is cut off stays");
    let refused = done(a.users.hold("eve", "a", None)).unwrap_err();
    assert_eq!(broker_error(&refused), &BrokerError::LeaseEnded);
    assert!(done(b.users.hold("bob", "b", Some(MapCondition::Absent))).unwrap().is_some());
    a.broker.set_cut(false);
    nodes.pass(3);
    wait_until("it is set again", || b.value("ann").as_deref() == Some("a"));
    wait_until("it is lost", || a.events.all().contains(&"lost bob to b".to_owned()));
    assert!(a.users.holds("ann") && !a.users.holds("bob"));
    assert!(a.topics.authority().is_some() && a.topics.authority() != before);
    assert_eq!(a.users.get("ann").unwrap().owner, a.topics.authority());
    assert_eq!(a.value("bob").as_deref(), Some("b"));
    assert_eq!(a.topics.metrics().entries_lost, 1);
}

#[test]
fn a_node_whose_entries_are_refused_goes_on_with_another_lease() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    assert!(done(a.users.hold("ann", "a", None)).unwrap().is_some());
    let first = a.topics.authority().unwrap();
    a.broker.refuse_entries_of(first.clone());
    let refused = done(a.users.hold("bob", "a", None)).unwrap_err();
    assert_eq!(broker_error(&refused), &BrokerError::LeaseEnded);
    wait_until("the lease is lost", || a.topics.metrics().leases_lost == 1);
    assert_eq!(a.topics.authority(), None);
    nodes.pass(2);
    wait_until("another lease has begun", || a.topics.authority().is_some_and(|id| id != first));
    assert!(done(a.users.hold("bob", "a", None)).unwrap().is_some());
    wait_until("both entries are there", || b.users.len() == 2);
    assert_eq!((a.topics.metrics().leases_lost, a.topics.metrics().leases_taken), (1, 0));
}

#[test]
fn missed_events_are_one_snapshot_with_its_differences_as_events() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    for key in ["ann", "bob"] {
        done(a.users.set(key, "1")).unwrap();
    }
    a.broker.set_events(Events::Lose);
    done(b.users.update(vec![MapChange::set("ann", "2"), MapChange::remove("bob")])).unwrap();
    done(b.users.set("eve", "2")).unwrap();
    a.broker.set_events(Events::Pass);
    let snapshots = a.topics.metrics().snapshots;
    nodes.pass(11);
    wait_until("the replica is complete", || a.value("eve").is_some());
    assert_eq!(a.events.all(), ["ann ->1", "bob ->1", "ann 1>2", "bob 1>-", "eve ->2"]);
    assert_eq!(a.topics.metrics().snapshots, snapshots + 1);
    assert_eq!(a.users.position(), b.users.position());
}

#[test]
fn an_interruption_is_reported_and_missed_changes_follow() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    a.broker.set_cut(true);
    assert!(matches!(broker_error(&done(a.users.set("x", "1")).unwrap_err()), BrokerError::Unreachable(_)));
    done(b.users.set("ann", "1")).unwrap();
    a.broker.set_cut(false);
    wait_until("the replica is complete", || a.value("ann").is_some());
    assert_eq!(a.events.all(), ["interrupted", "resumed", "ann ->1"]);
    assert!(a.users.position().is_some());
}

#[test]
fn reordered_and_doubled_events_are_applied_once() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    a.broker.set_events(Events::Hold);
    for value in ["1", "2", "3"] {
        done(b.users.set("ann", value)).unwrap();
    }
    wait_until("they are held", || a.broker.held() == 3);
    a.broker.release_reversed();
    a.broker.set_events(Events::Double);
    done(b.users.set("ann", "4")).unwrap();
    wait_until("the replica is complete", || a.value("ann").as_deref() == Some("4"));
    let events = a.events.all();
    assert_eq!(events.last().map(String::as_str), Some("ann 3>4"), "{events:?}");
}

#[test]
fn a_store_that_loses_the_map_gets_the_held_entries_again() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    assert!(done(a.users.hold("ann", "a", None)).unwrap().is_some());
    done(b.users.set("bob", "b")).unwrap();
    nodes.store.lose_topic(&TopicName::new("users").unwrap());
    nodes.pass(11);
    wait_until("it is set again", || b.value("ann").is_some() && b.value("bob").is_none());
    let events = b.events.all();
    assert!(events.contains(&"epoch".to_owned()), "{events:?}");
    assert!(a.users.holds("ann") && a.users.get("ann").is_some());
}

#[test]
fn an_entry_that_is_released_while_the_broker_is_away_is_removed_later() {
    let nodes = MapNodes::new(2);
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    assert!(done(a.users.hold("ann", "a", None)).unwrap().is_some());
    a.broker.set_cut(true);
    assert!(done(a.users.release("ann")).is_err() && !a.users.holds("ann"));
    a.broker.set_cut(false);
    wait_until("it is removed", || b.users.is_empty());
}

#[test]
fn the_last_handle_releases_what_the_node_holds_and_ends_following() {
    let MapNodes { mut nodes, .. } = MapNodes::new(2);
    let b = nodes.pop().unwrap();
    let MapNode { topics, users, .. } = nodes.pop().unwrap();
    assert!(done(users.hold("ann", "a", None)).unwrap().is_some());
    let (again, other) = (topics.map("users").open().unwrap(), users.clone());
    drop((users, other));
    assert!(again.holds("ann"), "there is another handle");
    wait_until("it arrives", || b.value("ann").is_some());
    drop(again);
    wait_until("it is released", || b.users.is_empty());
    assert_eq!(topics.metrics().topics, 0);
    assert_eq!(topics.metrics().followed_partitions, 0);
    let again = topics.map("users").open().unwrap();
    done(again.ready()).unwrap();
    assert!(again.is_empty());
}

#[test]
fn a_map_rests_as_soon_as_its_entries_are_released() {
    let MapNodes { mut nodes, group: _group, .. } = MapNodes::new(1);
    let MapNode { topics, users, broker, .. } = nodes.pop().unwrap();
    assert!(done(users.hold("ann", "a", None)).unwrap().is_some());
    broker.hold_changes();
    drop(users);
    assert_eq!(topics.metrics().topics, 1, "an entry is to be released");
    broker.release_changes();
    wait_until("the map is forgotten", || topics.metrics().topics == 0);
}

#[test]
fn entries_whose_answer_comes_after_the_last_handle_are_removed() {
    let MapNodes { mut nodes, group: _group, .. } = MapNodes::new(2);
    let b = nodes.pop().unwrap();
    let MapNode { topics, users, broker, .. } = nodes.pop().unwrap();
    broker.hold_changes();
    let held = ["first", "second"].map(|value| users.hold("ann", value, None));
    drop(users);
    broker.release_changes();
    assert!(held.into_iter().all(|held| done(held).unwrap().is_some()), "the program asked for them");
    wait_until("the map is forgotten", || topics.metrics().topics == 0);
    wait_until("the entry is removed", || b.users.position().unwrap().offset == 3 && b.users.is_empty());
}

#[test]
fn a_later_handle_does_not_hold_the_entries_of_an_earlier_one() {
    let MapNodes { mut nodes, group: _group, .. } = MapNodes::new(2);
    let b = nodes.pop().unwrap();
    let MapNode { topics, users, broker, .. } = nodes.pop().unwrap();
    broker.hold_changes();
    let held = ["ann", "bob"].map(|key| users.hold(key, "a", None));
    drop(users);
    let again = topics.map("users").open().unwrap();
    let kept = again.hold("bob", "b", None);
    broker.release_changes();
    for held in held.into_iter().chain([kept]) {
        assert!(done(held).unwrap().is_some());
    }
    wait_until("the other entry is removed", || b.value("ann").is_none() && b.value("bob").is_some());
    assert!(!again.holds("ann") && again.holds("bob"));
    assert_eq!(b.value("bob").as_deref(), Some("b"));
}

#[test]
fn an_update_that_reveals_a_loss_of_the_store_is_followed_by_a_snapshot() {
    let nodes = MapNodes::new(1);
    let a = &nodes.nodes[0];
    done(a.users.set("ann", "1")).unwrap();
    wait_until("it arrives", || a.value("ann").is_some());
    a.broker.set_events(Events::Lose);
    a.broker.fail_tops(true);
    nodes.store.lose_topic(&TopicName::new("users").unwrap());
    done(a.users.set("bob", "2")).unwrap();
    wait_until("the replica is complete", || a.value("bob").is_some() && a.value("ann").is_none());
}

#[test]
fn a_map_that_is_too_large_is_read_again_only_after_a_change() {
    let nodes = MapNodes::with(2, |map| map.max_bytes(40));
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    let before = a.topics.metrics().snapshots;
    done(b.users.set("eve", "x".repeat(40))).unwrap();
    wait_until("it is too large", || a.events.all() == ["interrupted"]);
    nodes.pass(20);
    assert_eq!(a.topics.metrics().snapshots, before + 1);
    a.broker.set_events(Events::Lose);
    done(b.users.set("eve", "2")).unwrap();
    nodes.pass(10);
    wait_until("it fits", || a.events.all() == ["interrupted", "resumed", "eve ->2"]);
    assert_eq!(a.topics.metrics().snapshots, before + 2);
}

#[test]
fn the_limits_of_a_map_are_reached() {
    let nodes = MapNodes::with(2, |map| map.max_entries(3).max_bytes(40).max_held(2).max_pending(1));
    let (a, b) = (&nodes.nodes[0], &nodes.nodes[1]);
    for key in ["ann", "bob"] {
        assert!(done(a.users.hold(key, "1", None)).unwrap().is_some());
    }
    let refused = done(a.users.hold("eve", "1", None)).unwrap_err();
    assert!(matches!(refused, Error::Full { resource: Resource::HeldEntries, limit: 2, .. }), "{refused}");
    assert!(done(a.users.hold("ann", "2", None)).unwrap().is_some(), "it is held already");
    done(b.users.set("eve", "1")).unwrap();
    let refused = done(b.users.set("joe", "1")).unwrap_err();
    assert!(matches!(broker_error(&refused), BrokerError::Full(_)), "{refused}");
    assert_eq!(done(b.users.hold("joe", "1", Some(MapCondition::Absent))).unwrap(), None);
    let long = "x".repeat(40);
    done(b.users.set("eve", long.clone())).unwrap();
    wait_until("the map is too large", || a.events.all().contains(&"interrupted".to_owned()));
    assert_eq!(a.value("eve").as_deref(), Some("1"), "the replica stays");
    done(b.users.set("eve", "2")).unwrap();
    // The map is read again soon.
    advance(the_loop(&nodes.group), &nodes.clock, SECOND / 10);
    wait_until("it fits", || a.events.all().last().map(String::as_str) == Some("eve 1>2"));
    assert!(a.events.all().contains(&"resumed".to_owned()));
    let too_many = done(a.users.update(vec![MapChange::remove("x"); 1001])).unwrap_err();
    assert!(matches!(too_many, Error::Setting(_)), "{too_many}");
    let too_large = done(a.users.hold("ann", vec![0; 70_000], None)).unwrap_err();
    assert!(matches!(too_large, Error::Setting(_)), "{too_large}");
}

#[test]
fn operations_without_an_answer_are_limited() {
    let nodes = MapNodes::with(1, |map| map.max_pending(2));
    let a = &nodes.nodes[0];
    a.broker.hold_changes();
    let waiting = [a.users.hold("ann", "1", None), a.users.hold("bob", "1", None)];
    let refused = done(a.users.set("eve", "1")).unwrap_err();
    assert!(matches!(refused, Error::Full { resource: Resource::MapOperations, limit: 2, .. }), "{refused}");
    assert!(done(a.users.release("ann")).is_err());
    a.broker.release_changes();
    assert!(waiting.into_iter().all(|held| done(held).unwrap().is_some()));
    assert!(done(a.users.release("ann")).unwrap());
}

#[test]
fn settings_and_kinds_are_checked() {
    let MapNodes { nodes, .. } = MapNodes::new(1);
    let topics = &nodes[0].topics;
    let map = || topics.map("m");
    for map in [map().max_entries(0), map().max_bytes(0), map().max_held(0), map().max_pending(0)] {
        assert!(matches!(map.open(), Err(Error::Setting(_))));
    }
    assert!(matches!(topics.topic("users", Numbered).open(), Err(Error::Setting(_))));
    let lobby = topics.topic("lobby", Numbered).open().unwrap();
    assert!(matches!(topics.map("lobby").open(), Err(Error::Setting(_))));
    done(lobby.publish(netwheel::bytes::Bytes::from("one"))).unwrap();
    drop(lobby);
    let wrong = topics.map("lobby").open().unwrap();
    assert_eq!(broker_error(&done(wrong.ready()).unwrap_err()), &BrokerError::WrongKind);
}

#[test]
fn a_closed_node_refuses() {
    let MapNodes { nodes, .. } = MapNodes::new(2);
    let (a, b) = (&nodes[0], &nodes[1]);
    assert!(done(a.users.hold("ann", "a", None)).unwrap().is_some());
    a.broker.hold_changes();
    let sent = a.users.hold("bob", "1", None);
    let waiting = a.users.hold("bob", "2", None);
    done(a.topics.close()).unwrap();
    assert_eq!(broker_error(&done(waiting).unwrap_err()), &BrokerError::Closed);
    a.broker.release_changes();
    assert!(done(sent).is_err(), "the lease has ended");
    for refused in [done(a.users.hold("x", "1", None)).map(drop), done(a.users.set("x", "1")).map(drop)] {
        assert_eq!(broker_error(&refused.unwrap_err()), &BrokerError::Closed);
    }
    assert!(a.topics.map("other").open().is_err());
    wait_until("its entries are removed", || b.users.is_empty());
}
