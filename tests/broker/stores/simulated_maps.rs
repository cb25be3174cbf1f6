//! Three nodes with one map over a simulated Redis, amid kills, power failures and cuts.
//!
//! The replica of a node is the sum of its events. When the faults are over, all replicas are equal
//! to the map in the store, and each node owns in the map exactly the entries that it holds.

use super::simulated::{faults, redis};
use netwheel::{
    EventLoopGroup, Result,
    broker::{MapCondition, MapEntry, MapEvent, MapTopic, RedisBroker, Topics},
    bytes::Bytes,
    redis::RedisClient,
    testing::{
        redis::Persistence,
        simulation::{Exploration, Explored, Failure, Journal, Simulation, sleep, sometimes},
    },
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

const NODES: [(&str, &str); 3] = [("a", "10.0.0.2"), ("b", "10.0.0.3"), ("c", "10.0.0.4")];

/// The map of one node as text, with the keys that it holds.
type Shown = (Vec<String>, Vec<String>);

/// What the programs record.
#[derive(Clone, Default)]
struct Records {
    violations: Journal<String>,
    /// What each node shows at the end of a round, by its name.
    shown: Journal<(&'static str, Shown)>,
    is_quiet: Journal<()>,
}

fn show(users: &MapTopic) -> Shown {
    let entries = users.entries();
    let text = |entry: &MapEntry| {
        let owner = entry.owner.as_ref().map_or("-", |owner| owner.name());
        format!("{:?}={:?} of {owner}", entry.key, entry.value)
    };
    let holds =
        entries.iter().filter(|entry| users.holds(&entry.key)).map(|entry| format!("{:?}", entry.key));
    (entries.iter().map(text).collect(), holds.collect())
}

/// Holds and releases entries.
fn play(name: &'static str, records: &Records) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let broker = RedisBroker::new(RedisClient::builder(&group, "redis://redis").connect()?);
    let topics = Topics::builder(&group, broker).node(name).partitions(4).build()?;
    let shadow: Arc<Mutex<BTreeMap<Bytes, MapEntry>>> = Arc::default();
    let users = topics.map("users").on_event({
        let (shadow, violations) = (shadow.clone(), records.violations.clone());
        move |event| match event {
            MapEvent::Changed { key, before, now, .. } => {
                let mut shadow = shadow.lock().unwrap();
                if shadow.get(key) != before {
                    violations.push(format!("{name}: {key:?} was {before:?} before"));
                }
                match now {
                    Some(entry) => drop(shadow.insert(key.clone(), entry.clone())),
                    None => drop(shadow.remove(key)),
                }
            }
            MapEvent::Lost { .. } => sometimes("an entry is lost to another node"),
            MapEvent::EpochChanged(_) => sometimes("the store has lost entries"),
            _ => {}
        }
    });
    let users = users.open()?;
    for round in 0_usize.. {
        sleep(SECOND / 5);
        let key = format!("user-{}", round % 5);
        if records.is_quiet.is_empty() {
            let shown = users.get(&key).map(|entry| MapCondition::Unchanged(entry.position));
            let _ = match (round / 5) % 4 {
                0 => users.hold(key, name, Some(MapCondition::Absent)).wait().map(drop),
                1 => users.hold(key, name, shown.or(Some(MapCondition::Absent))).wait().map(drop),
                2 => users.release(key).wait().map(drop),
                _ => users.hold(key, name, Some(MapCondition::Absent)).wait().map(drop),
            };
        } else if users.position().is_some() {
            let entries: Vec<MapEntry> = shadow.lock().unwrap().values().cloned().collect();
            let Ok(mut stored) = topics.broker().snapshot(users.name(), None).wait() else { continue };
            stored.entries.sort_by(|one, other| one.key.cmp(&other.key));
            if entries == users.entries() && entries == stored.entries {
                records.shown.push((name, show(&users)));
            }
        }
    }
    Ok(())
}

/// Whether the last rounds of all nodes agree.
fn is_settled(records: &Records) -> bool {
    let last = |name: &str| {
        records
            .shown
            .with(|shown| shown.iter().rev().find(|(of, _)| *of == name).map(|(_, shown)| shown.clone()))
    };
    let shown: Vec<Shown> = NODES.iter().filter_map(|(name, _)| last(name)).collect();
    if shown.len() != NODES.len() || shown.iter().any(|(entries, _)| *entries != shown[0].0) {
        return false;
    }
    // Each entry is held by its owner only.
    NODES.iter().zip(&shown).all(|((name, _), (entries, holds))| {
        let of_node = entries.iter().filter(|entry| entry.ends_with(&format!(" of {name}")));
        of_node.map(|entry| entry.split('=').next().unwrap_or_default()).eq(holds.iter().map(String::as_str))
    })
}

fn scenario(simulation: &mut Simulation, persistence: Persistence) -> std::result::Result<(), Failure> {
    let records = Records::default();
    redis(simulation, persistence);
    for (name, address) in NODES {
        let records = records.clone();
        simulation.node(name, address, move || play(name, &records));
    }
    let violations = records.violations.clone();
    simulation.check("events", move || {
        violations.with(|violations| violations.first().map_or(Ok(()), |first| Err(first.clone())))
    });
    simulation.run_for(40 * SECOND)?;
    simulation.heal();
    records.is_quiet.push(());
    simulation.run_until("all nodes have the same map", 120 * SECOND, || is_settled(&records))
}

fn run(exploration: Exploration, persistence: Persistence) -> Explored {
    exploration
        .all_faults_together()
        .faults(faults(30_000))
        .run(|simulation| scenario(simulation, persistence))
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// Explores always the same runs, because the test asks for states that not every run reaches.
#[test]
fn all_nodes_have_the_same_map_after_faults() {
    let explored = run(Exploration::new(4).first_seed(1).run_twice(false), Persistence::EverySecond);
    assert!(explored.reached("an entry is lost to another node") > 0);
}

/// Each time other runs.
#[test]
fn maps_hold_in_new_runs() {
    for persistence in [Persistence::Always, Persistence::Never] {
        run(Exploration::new(1), persistence);
    }
}
