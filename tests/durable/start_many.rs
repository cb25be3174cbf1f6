//! Many starts with one completion.

use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, sending, started},
};
use netwheel::{
    Error,
    durable::{DurableTimers, SqliteStore, TimerId},
    error::Resource,
};
use std::collections::BTreeSet;

#[test]
fn many_timers_are_stored_in_few_transactions_and_fire() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let texts: BTreeSet<String> = (0..3000).map(|n| n.to_string()).collect();
    let before = timers.metrics();
    let ids = done(timers.start_many(texts.iter().map(|text| timers.at("topic", HOUR, text)))).unwrap();
    let after = timers.metrics();
    assert_eq!((after.commits - before.commits, after.started - before.started), (3, 3000));
    let ids: Vec<TimerId> = ids.into_iter().map(Result::unwrap).collect();
    assert!(ids.is_sorted());
    assert_eq!(done(timers.counts()).unwrap()[0].pending, 3000);
    let soon = texts.iter().map(|text| timers.at("topic", ms(0), text));
    assert!(done(timers.start_many(soon)).unwrap().iter().all(Result::is_ok));
    let fired: BTreeSet<String> = texts.iter().map(|_| receive(&runs)).collect();
    assert_eq!(fired, texts);
    done(timers.close()).unwrap();
    end(&group);
}

/// They take several transactions, and a close that comes after them waits for all.
#[test]
fn many_starts_are_stored_before_the_store_closes() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let starts = timers.start_many((0..5000).map(|_| timers.at("topic", HOUR, "x")));
    let closed = timers.close();
    let results = done(starts).unwrap();
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 5000);
    done(closed).unwrap();
    end(&group);
}

#[test]
fn each_of_many_timers_has_its_own_result() {
    let group = one_loop();
    let (topic, _runs) = sending("topic");
    let open = |topic| {
        let store = SqliteStore::in_memory().unwrap();
        DurableTimers::builder(store).topic(topic).max_waiting(5).start(&group).unwrap()
    };
    let timers = open(topic);
    let (topic, _other_runs) = sending("topic");
    let other = open(topic);
    let start = |topic: &str| timers.at(topic, HOUR, "x");
    let starts = [
        start("topic").key("k"),
        start("unknown"),
        start("topic").key("k"),
        other.at("topic", HOUR, "x"),
        start("topic"),
    ];
    let results = done(timers.start_many(starts)).unwrap();
    let ids: Vec<Option<i64>> = results.iter().map(|id| id.as_ref().ok().map(|id| id.get())).collect();
    assert_eq!(ids, [Some(1), None, Some(1), None, Some(2)]);
    assert!(matches!(results[1], Err(Error::Setting(_))) && matches!(results[3], Err(Error::Setting(_))));
    assert_eq!(done(timers.start_many([])).unwrap().len(), 0);
    assert!(done(timers.start_many([start("unknown")])).unwrap()[0].is_err());

    // All permits are free again. One more start than there are stores nothing.
    assert_eq!(done(timers.start_many((0..5).map(|_| start("topic")))).unwrap().len(), 5);
    let full = done(timers.start_many((0..6).map(|_| start("topic"))));
    assert!(matches!(full, Err(Error::Full { resource: Resource::TimerOperations, limit: 5, .. })));
    assert_eq!(done(timers.counts()).unwrap()[0].pending, 7);
    done(timers.close()).unwrap();
    let refused = done(timers.start_many([start("topic"), start("topic")])).unwrap();
    assert!(refused.iter().all(|id| matches!(id, Err(Error::ShutDown))), "{refused:?}");
    end(&group);
}

/// Requests that come later are not delayed by more than one transaction.
#[test]
fn other_requests_go_on_between_the_transactions_of_many_starts() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let text = "x".repeat(1000);
    // On a busy machine this thread may be too slow to see it.
    let is_seen = (0..5).any(|_| {
        let many = timers.start_many((0..20_000).map(|_| timers.at("topic", HOUR, &text)));
        done(timers.at("topic", ms(0), "meanwhile").start()).unwrap();
        assert_eq!(receive(&runs), "meanwhile");
        let is_seen = !many.is_done();
        assert_eq!(done(many).unwrap().len(), 20_000);
        is_seen
    });
    assert!(is_seen);
    done(timers.close()).unwrap();
    end(&group);
}
