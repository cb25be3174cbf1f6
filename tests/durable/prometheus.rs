//! The Prometheus text of durable timers.

#![cfg(feature = "prometheus")]

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, started},
};
use netwheel::{
    Error,
    durable::{DurableTimers, SqliteStore},
    prometheus,
};

#[test]
fn all_timers_of_a_program_are_in_one_text() {
    let file = File::new();
    let (group, first, runs) = started(&file);
    let second_group = one_loop();
    let second = DurableTimers::builder(SqliteStore::in_memory().unwrap()).start(&second_group).unwrap();
    let collector = first.collector("first").and(second.collector("second")).unwrap();
    done(first.at("topic", ms(1), "now").start()).unwrap();
    done(first.at("topic", HOUR, "later").start()).unwrap();
    assert_eq!(receive(&runs), "now");
    done(first.close()).unwrap();

    let scrape = prometheus::encode(&(&group, collector)).unwrap();
    assert!(scrape.contains("netwheel_turns_total{event_loop="), "{scrape}");
    for line in [
        "# TYPE netwheel_durable_fired counter",
        "# UNIT netwheel_durable_commit_time_seconds seconds",
        "netwheel_durable_started_total{timers=\"first\"} 2",
        "netwheel_durable_started_total{timers=\"second\"} 0",
        "netwheel_durable_fired_total{timers=\"first\"} 1",
        "netwheel_durable_pending{timers=\"first\"} 1",
        "netwheel_durable_lateness_seconds_count{timers=\"first\"} 1",
    ] {
        assert!(scrape.lines().any(|found| found == line), "{line} is missing:\n{scrape}");
    }
    done(second.close()).unwrap();
    end(&group);
    end(&second_group);
}

#[test]
fn two_timers_with_the_same_name_are_refused() {
    let group = one_loop();
    let timers = DurableTimers::builder(SqliteStore::in_memory().unwrap()).start(&group).unwrap();
    let refused = timers.collector("mine").and(timers.collector("mine")).unwrap_err();
    assert!(matches!(&refused, Error::Setting(e) if e.setting() == "name"), "{refused}");
    let refused = timers.collector("mine").and(prometheus::Collector::new(&group)).unwrap_err();
    assert!(matches!(&refused, Error::Setting(e) if e.setting() == "other"), "{refused}");
    done(timers.close()).unwrap();
    end(&group);
}
