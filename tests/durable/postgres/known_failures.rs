//! Failures that users of other schedulers report, as tests.

use super::{
    processes::{Cluster, LEASE},
    proxy::Proxy,
    server::{config, server},
    stores::{commit, node, renewed, start, timer},
};
use crate::new_timers::with;
use crate::support::{
    loops::{end, one_loop},
    wait::{SECOND, done, receive},
};
use netwheel::durable::{Due, DurableTimers, Late, Retry, StoreError, TimerStore, Topic, store::Change};
use std::{
    collections::BTreeSet,
    sync::mpsc::channel,
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Two nodes acquire the same trigger, and it runs on both.
#[test]
fn quartz_two_nodes_acquire_the_same_trigger() {
    let Some(mut cluster) = Cluster::new("quartz") else { return };
    let mut nodes = cluster.nodes(3);
    nodes[0].ask("every 0 20 100", "stored");
    // Partitions move while the timers run.
    for round in 0..3 {
        let more = cluster.node(&format!("more {round}"));
        cluster.wait_for_owners(4);
        more.close();
        cluster.wait_for_owners(3);
    }
    let sql = "SELECT count(*) >= 400 FROM $.effects";
    cluster.wait_until("each timer has run 20 times", sql);
    nodes.into_iter().for_each(|node| node.close());
    let effects = cluster.effects();
    let doubled: Vec<_> = effects.iter().filter(|(_, times)| **times != 1).collect();
    assert_eq!(doubled, []);
}

/// The ring of the next seconds is lost with its process.
#[test]
fn xxl_job_ring_lost_with_the_process() {
    let Some(mut cluster) = Cluster::new("ring") else { return };
    let mut nodes = cluster.nodes(2);
    nodes[0].starts("work 0 50 1500 0", 50);
    nodes[0].process.signal("KILL");
    drop(nodes.remove(0));
    cluster.wait_for_all();
    cluster.assert_exactly_once(50);
    nodes.into_iter().for_each(|node| node.close());
}

/// A timer that is late by more than five seconds is skipped without a word.
#[test]
fn xxl_job_late_by_more_than_five_seconds_is_not_skipped_silently() {
    let Some(server) = server() else { return };
    let now = i64::try_from(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()).unwrap();
    let mut store = server.builder("behind").open().unwrap();
    store.attach(&["run".to_owned(), "skip".to_owned()]).unwrap();
    for topic in [0, 1] {
        let late = Change::Start(with(timer(now - 60_000), |timer| timer.topic = topic));
        store.commit(&mut [late], now).unwrap();
    }
    store.release().unwrap();
    let group = one_loop();
    let (sender, runs) = channel();
    let timers = DurableTimers::builder(store)
        .topic(Topic::new("run", Late::RunOnce, Retry::never(), move |due: Due<()>| {
            sender.send(due.lateness()).unwrap();
            due.done();
        }))
        .topic(Topic::new("skip", Late::Skip, Retry::never(), |_: Due<()>| panic!("it is skipped")))
        .start(&group)
        .unwrap();
    assert!(receive(&runs) >= 60 * SECOND);
    // Both runs have ended, and the skipped one is counted.
    done(timers.close()).unwrap();
    let metrics = timers.metrics();
    assert_eq!((metrics.fired, metrics.skipped), (1, 1));
    end(&group);
}

/// Without the row of the lock, every node runs everything, without an error.
#[test]
fn xxl_job_missing_lock_row_does_not_run_everything_everywhere() {
    let Some(server) = server() else { return };
    let mut store = node(server, "missing", LEASE);
    renewed(&mut store);
    let row = start(&mut store, timer(1));
    server.client().batch_execute("DELETE FROM missing.partitions WHERE id = 0 OR id = 1").unwrap();
    let error = store.renew(&BTreeSet::new()).unwrap_err();
    assert!(matches!(&error, StoreError::Failed(_)), "{error}");
    assert!(error.to_string().contains("6 of 8 partitions"), "{error}");
    server.client().batch_execute("DELETE FROM missing.partitions").unwrap();
    let claim = commit(&mut store, Change::Claim { held: row.held() });
    assert!(matches!(claim, netwheel::durable::store::Outcome::Refused(StoreError::StaleEpoch)), "{claim:?}");
}

/// A wait for a notification that never comes, or for a server that never answers.
#[test]
fn bullmq_sidekiq_no_wait_without_a_deadline() {
    let Some(mut cluster) = Cluster::new("silence") else { return };
    let proxy = Proxy::to(cluster.port());
    let mut node = cluster.node_at("behind the proxy", &config(proxy.port));
    cluster.wait_for_owners(1);
    node.starts("work 0 20 100 100", 20);
    node.process.stdout.wait_for("fired ");
    proxy.block();
    // Requests and connections of this time end by their deadlines, because the proxy closes none.
    cluster.execute(&format!("SELECT pg_sleep({})", 2.0 * LEASE.as_secs_f64()));
    let opened = Instant::now();
    proxy.open();
    cluster.wait_for_all();
    eprintln!("recovered after {:?}", opened.elapsed());
    cluster.assert_exactly_once(20);
    node.close();
}
