//! Maps with replicas.

use super::Store;
use crate::support::{
    journal::Journal,
    loops::end,
    wait::{done, wait_until},
};
use netwheel::{
    EventLoopGroup,
    broker::{MapCondition, MapEvent, MapTopic, Topics},
};

struct Replica {
    topics: Topics,
    users: MapTopic,
    losses: Journal<String>,
}

impl Replica {
    fn new(store: &dyn Store, group: &EventLoopGroup, name: &str) -> Self {
        let builder = Topics::builder(group, store.connect()).node(name);
        let topics = builder.partitions(store.partitions().get()).build().expect("the node starts");
        wait_until("the node has a lease", || topics.authority().is_some());
        let losses = Journal::new();
        let users = topics.map("users").on_event({
            let losses: Journal<String> = losses.clone();
            move |event| {
                if let MapEvent::Lost { key, by, .. } = event {
                    losses.push(format!("{key:?} to {by:?}"));
                }
            }
        });
        let users = users.open().expect("the map is opened");
        done(users.ready()).expect("the map is read");
        Replica { topics, users, losses }
    }

    fn shows(&self, expected: &[(&str, &str)]) -> bool {
        let entries = self.users.entries();
        let entries = entries.iter().map(|entry| (&entry.key[..], &entry.value[..]));
        entries.eq(expected.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())))
    }
}

/// Two nodes with one map: what both show, holds, takes over and releases.
pub(super) fn show_what_the_store_has(store: &dyn Store) {
    let group = EventLoopGroup::builder().threads(1).build().expect("a group");
    let [a, b] = ["a", "b"].map(|name| Replica::new(store, &group, name));
    assert!(done(a.users.hold("ann", "1", Some(MapCondition::Absent))).unwrap().is_some());
    done(b.users.set("bob", "2")).unwrap();
    for node in [&a, &b] {
        wait_until("both entries arrive", || node.shows(&[("ann", "1"), ("bob", "2")]));
    }
    let shown = b.users.get("ann").unwrap();
    assert_eq!(shown.owner, a.topics.authority());
    assert_eq!(done(b.users.hold("ann", "3", Some(MapCondition::Absent))).unwrap(), None);
    let unchanged = Some(MapCondition::Unchanged(shown.position));
    assert!(done(b.users.hold("ann", "3", unchanged)).unwrap().is_some());
    let by = b.topics.authority();
    a.losses.wait_until("it is lost", |losses| losses.len() == 1);
    assert_eq!(a.losses.all(), [format!("b\"ann\" to {:?}", by.as_ref())]);
    assert!(done(b.users.release("ann")).unwrap());
    assert!(!done(a.users.release("ann")).unwrap(), "it holds nothing");
    assert!(done(a.users.hold("eve", "4", None)).unwrap().is_some());
    let late = Replica::new(store, &group, "c");
    assert!(late.shows(&[("bob", "2"), ("eve", "4")]), "{:?}", late.users.entries());
    done(a.topics.close()).unwrap();
    wait_until("the entries of a closed node are removed", || late.shows(&[("bob", "2")]));
    drop((b, late));
    end(&group);
}
