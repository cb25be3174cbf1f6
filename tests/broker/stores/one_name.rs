//! Two processes with one node name over a simulated Redis, as in a deploy whose new process starts
//! before the old one has ended.

use super::simulated::redis;
use netwheel::{
    EventLoopGroup, Result,
    broker::{RedisBroker, Topics},
    redis::RedisClient,
    testing::{
        redis::Persistence,
        simulation::{Exploration, Faults, Journal, Simulation, sleep},
    },
};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const USERS: usize = 20;

/// Holds the same entries as the other process, and records its metrics and the owner of the
/// entries.
fn hold_all(begin: Duration, records: &Journal<(u64, bool)>) -> Result {
    sleep(begin);
    let group = EventLoopGroup::builder().threads(1).build()?;
    let broker = RedisBroker::new(RedisClient::builder(&group, "redis://redis").connect()?);
    let topics = Topics::builder(&group, broker).node("a").partitions(4).build()?;
    let users = topics.map("users").open()?;
    users.ready().wait()?;
    while topics.authority().is_none() {
        sleep(SECOND / 10);
    }
    for n in 0..USERS {
        users.hold(format!("user-{n}"), "here", None).wait()?;
    }
    sleep(10 * SECOND);
    let entries = users.entries();
    let owns_all = entries.len() == USERS && entries.iter().all(|entry| entry.owner == topics.authority());
    records.push((topics.metrics().map_updates, owns_all));
    sleep(100 * SECOND);
    Ok(())
}

#[test]
fn two_processes_with_one_name_do_not_fight_for_the_entries() {
    let result =
        Exploration::new(3).first_seed(1).faults(Faults::none()).run(|simulation: &mut Simulation| {
            redis(simulation, Persistence::Always);
            let records = Journal::new();
            for (name, address, begin) in [("old", "10.0.0.2", SECOND), ("new", "10.0.0.3", 5 * SECOND)] {
                let records: Journal<(u64, bool)> = records.clone();
                simulation.node(name, address, move || hold_all(begin, &records));
            }
            simulation.run_until("both have looked", 60 * SECOND, || records.len() == 2)?;
            let records = records.with(<[_]>::to_vec);
            assert!(records[1].1, "the new process owns all entries");
            for (updates, _) in records {
                // One for each entry, and some until the old process knows.
                assert!(updates < 2 * USERS as u64, "{updates} updates");
            }
            Ok(())
        });
    result.unwrap_or_else(|failure| panic!("{failure}"));
}
