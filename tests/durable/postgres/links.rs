//! Slow links to the server.

use super::{
    proxy::Proxy,
    server::{config, server},
    stores::{NOW, node, timer},
};
use crate::new_timers::with;
use crate::support::{
    loops::{end, one_loop},
    wait::{done, ms, receive},
};
use netwheel::durable::{Due, DurableTimers, Late, PostgresStore, Retry, TimerStore, Topic, store::Change};
use std::{collections::BTreeSet, sync::mpsc::channel};

/// All timers together take several times the limit of a request, and a load of the usual size
/// does too.
#[test]
fn a_backlog_that_a_request_cannot_carry_is_loaded_in_parts() {
    let Some(server) = server() else { return };
    let mut store = node(server, "slow_link", ms(60_000));
    let payload = format!("\"{}\"", "x".repeat(20_000)).into_bytes();
    let large = |n: i64| with(timer(NOW + n), |timer| timer.payload = payload.clone());
    let mut starts: Vec<Change> = (0..100).map(|n| Change::Start(large(n))).collect();
    store.commit(&mut starts, NOW).unwrap();
    drop(store);

    let proxy = Proxy::to(server.port());
    let builder = PostgresStore::builder(&config(proxy.port)).schema("slow_link");
    let store = builder.lease(ms(1600)).request_timeout(ms(800)).open().unwrap();
    // 640 kB in the time of a request.
    proxy.limit(800_000);
    let group = one_loop();
    let (sender, runs) = channel();
    let timers = DurableTimers::builder(store)
        .topic(Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<String>| {
            sender.send(due.id()).unwrap();
            due.done();
        }))
        .start(&group)
        .unwrap();
    let mut fired = BTreeSet::new();
    while fired.len() < 100 {
        fired.insert(receive(&runs));
    }
    let _ = done(timers.close());
    end(&group);
}
