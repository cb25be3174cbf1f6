//! Whole topics: pauses, dead letters, and listings by due time.

use super::{
    contract::{NOW, Store, commit, counts, end, keyed, load, start, timer},
    server::server,
};
use crate::new_timers::with;
use crate::{
    support::{
        loops::{end as end_loops, one_loop},
        wait::{done, receive},
    },
    timers::sending,
};
use netwheel::durable::{
    DurableTimers, TimerFilter, TimerInfo, TimerState,
    store::{Change, DeadLetters, LoadRange, NewTimer, Outcome, TimerRow, TopicSet},
};
use std::{collections::BTreeSet, time::Duration};

/// Turns a new timer into a dead letter.
fn dead_letter(store: &mut Store, timer: NewTimer, at: i64) -> TimerRow {
    let row = start(store, timer);
    let change = Change::DeadLetter { held: row.held(), next: None, error: "no".to_owned() };
    assert!(matches!(store.commit(&mut [change], at).unwrap()[..], [Outcome::Done(None)]));
    row
}

fn letters(until: i64, keep: u64, limit: usize) -> DeadLetters {
    with(DeadLetters::new("a"), |letters| {
        letters.until = until;
        letters.keep = keep;
        letters.limit = limit;
    })
}

fn listed(store: &mut Store, filter: TimerFilter) -> Vec<i64> {
    store.list(&filter).unwrap().iter().map(|timer| timer.id.get()).collect()
}

pub(super) fn a_pause_is_stored_with_its_topic(store: &mut Store) {
    let paused = |store: &mut Store| -> Vec<bool> {
        store.counts().unwrap().iter().map(|topic| topic.is_paused).collect()
    };
    assert!(store.set_paused("b", true).unwrap());
    assert!(store.set_paused("b", true).unwrap());
    assert_eq!(paused(store), [false, true]);
    assert!(!store.set_paused("c", true).unwrap());
    assert!(!store.set_paused("a\0", true).unwrap());
    store.attach(&["b".to_owned()]).unwrap();
    assert_eq!(paused(store), [false, true]);
    assert!(store.set_paused("b", false).unwrap());
    assert_eq!(paused(store), [false, false]);
}

pub(super) fn a_load_leaves_out_other_topics(store: &mut Store) {
    start(store, timer(0, 1));
    let row = start(store, timer(1, 2));
    let topics: TopicSet = [1].into_iter().collect();
    let range = with(LoadRange::new(topics, 10), |range| range.limit = 10);
    assert_eq!(store.load(range).unwrap().rows, [row]);
    let none = store.load(with(range, |range| range.topics = TopicSet::default())).unwrap();
    assert!(none.rows.is_empty() && none.is_complete);
}

pub(super) fn the_oldest_dead_letters_are_removed(store: &mut Store) {
    // They die in another order than that of their ids.
    let rows: Vec<TimerRow> = [5, 3, 1, 4, 2].map(|at| dead_letter(store, timer(0, 0), NOW + at)).to_vec();
    dead_letter(store, timer(1, 0), NOW);
    start(store, timer(0, 0));
    let left = |store: &mut Store| listed(store, TimerFilter::new().topic("a").state(TimerState::Dead));
    let ids = |places: &[usize]| -> Vec<i64> { places.iter().map(|n| rows[*n].key.id.get()).collect() };
    assert_eq!(store.remove_dead(&letters(i64::MAX, 4, 1000), NOW).unwrap(), 1);
    assert_eq!(left(store), ids(&[0, 1, 3, 4]));
    assert_eq!(store.remove_dead(&letters(i64::MAX, 4, 1000), NOW).unwrap(), 0);
    assert_eq!(store.remove_dead(&letters(NOW + 2, 0, 1000), NOW).unwrap(), 1);
    assert_eq!(left(store), ids(&[0, 1, 3]));
    assert_eq!(store.remove_dead(&letters(i64::MAX, 0, 2), NOW).unwrap(), 2);
    assert_eq!(left(store), ids(&[0]));
    assert_eq!(counts(store), [(1, 1), (0, 1)]);
    let other = with(letters(i64::MAX, 0, 1000), |letters| letters.topic = "c".to_owned());
    assert_eq!(store.remove_dead(&other, NOW).unwrap(), 0);
}

pub(super) fn the_key_of_a_removed_dead_letter_is_remembered(store: &mut Store) {
    let row = dead_letter(store, keyed(0, "k"), NOW);
    assert_eq!(store.remove_dead(&letters(NOW, 0, 10), NOW).unwrap(), 1);
    let Outcome::AlreadyStarted { id, .. } = commit(store, Change::Start(keyed(0, "k"))) else { panic!() };
    assert_eq!(id, row.key.id);
}

pub(super) fn dead_letters_are_pending_again_at_the_given_times(store: &mut Store) {
    let rows: Vec<TimerRow> = [3, 1, 2].map(|at| dead_letter(store, timer(0, 0), NOW + at)).to_vec();
    assert_eq!(counts(store), [(0, 3), (0, 0)]);
    let retried = store.retry_dead(&letters(NOW + 3, 0, 2), &[100, 200]).unwrap();
    let retried: Vec<TimerRow> = retried.into_iter().map(|row| row.unwrap()).collect();
    let times: Vec<_> =
        retried.iter().map(|row| (row.key.id, row.key.due, row.scheduled, row.attempts)).collect();
    assert_eq!(times, [(rows[1].key.id, 100, 100, 0), (rows[2].key.id, 200, 200, 0)]);
    assert_eq!(load(store, 1000), retried);
    assert_eq!(counts(store), [(2, 1), (0, 0)]);
    assert!(matches!(commit(store, end(retried[0].held(), None)), Outcome::Done(None)));
    assert!(store.retry_dead(&letters(NOW, 0, 2), &[1, 2]).unwrap().is_empty());
}

pub(super) fn timers_are_listed_by_due_time_in_pages(store: &mut Store) {
    let mut expected = Vec::new();
    for n in 0..40 {
        let due = (n * 7) % 10;
        let row = start(store, timer(usize::from(n % 3 == 0), due));
        expected.push((due, row.key.id.get()));
    }
    expected.sort_unstable();
    let dead: Vec<i64> = [2, 1].map(|at| dead_letter(store, timer(0, 0), NOW + at).key.id.get()).to_vec();
    let next = TimerFilter::new().state(TimerState::Pending).by_due().limit(7);
    let mut found: Vec<TimerInfo> = store.list(&next).unwrap();
    while let page = store.list(&next.clone().after_due(found.last().unwrap())).unwrap()
        && !page.is_empty()
    {
        found.extend(page);
    }
    let ids: Vec<i64> = found.iter().map(|timer| timer.id.get()).collect();
    let in_order: Vec<i64> = expected.iter().map(|(_, id)| *id).collect();
    assert_eq!(ids, in_order);
    // With dead letters, by the time of their deaths.
    let all = listed(store, TimerFilter::new().by_due());
    assert_eq!(all, [in_order, vec![dead[1], dead[0]]].concat());
    let letters = TimerFilter::new().state(TimerState::Dead).by_due();
    assert_eq!(listed(store, letters.clone()), [dead[1], dead[0]]);
    assert!(listed(store, letters.clone().topic("b")).is_empty());
    assert_eq!(listed(store, letters.topic("a").limit(1)), [dead[1]]);
    let row = start(store, keyed(3, "k"));
    assert_eq!(listed(store, TimerFilter::new().key("k").by_due()), [row.key.id.get()]);
    // The order of ids again.
    assert!(listed(store, TimerFilter::new().by_due().after(row.key.id)).is_empty());
}

/// Both nodes own partitions. A pause is known to a node when it has renewed its lease.
#[test]
fn a_pause_holds_for_all_nodes_and_so_does_its_end() {
    let Some(server) = server() else { return };
    let group = one_loop();
    let mut nodes = Vec::new();
    for _ in 0..2 {
        let (topic, runs) = sending("topic");
        let store = server.builder("pause").lease(Duration::from_secs(3)).partitions(8).open().unwrap();
        nodes.push((DurableTimers::builder(store).topic(topic).start(&group).unwrap(), runs));
    }
    // Each node starts timers in its own partitions.
    for (timers, runs) in &nodes {
        done(timers.at("topic", Duration::ZERO, "first").start()).unwrap();
        assert_eq!(receive(runs), "first");
    }
    for (timers, _) in &nodes {
        assert!(done(timers.pause("topic")).unwrap());
    }
    assert!(nodes.iter().all(|(timers, _)| done(timers.counts()).unwrap()[0].is_paused));
    for (timers, _) in &nodes {
        done(timers.at("topic", Duration::ZERO, "paused").start()).unwrap();
    }
    // One command of each node, so that the answers of the starts have been handled.
    for (timers, runs) in &nodes {
        assert!(!done(timers.cancel(netwheel::durable::TimerId::new(i64::MAX))).unwrap());
        assert!(runs.try_recv().is_err());
    }
    assert!(done(nodes[0].0.resume("topic")).unwrap());
    for (timers, runs) in &nodes {
        assert_eq!(receive(runs), "paused");
        done(timers.close()).unwrap();
    }
    end_loops(&group);
}

/// Several nodes remove surplus letters at the same time, and none below the limit.
#[test]
fn nodes_that_remove_dead_letters_together_keep_the_limit() {
    let Some(server) = server() else { return };
    let open = || {
        let mut store = server.builder("prune").open().unwrap();
        netwheel::durable::TimerStore::attach(&mut store, &["a".to_owned()]).unwrap();
        Box::new(store) as Store
    };
    let mut first = open();
    first.renew(&BTreeSet::new()).unwrap();
    for n in 0..200 {
        dead_letter(&mut first, timer(0, 0), NOW + n);
    }
    let removed: u64 = std::thread::scope(|scope| {
        let nodes: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| open().remove_dead(&letters(i64::MAX, 50, 1000), NOW).unwrap()))
            .collect();
        nodes.into_iter().map(|node| node.join().unwrap()).sum()
    });
    assert_eq!(removed, 150);
    let left = first.list(&TimerFilter::new().limit(1000)).unwrap();
    let left: BTreeSet<_> = left.into_iter().map(|timer| timer.due).collect();
    let oldest = std::time::UNIX_EPOCH + Duration::from_millis(NOW as u64 + 150);
    assert_eq!((left.len(), left.first()), (50, Some(&oldest)));
}

/// The listings for operators are read from indexes, also with many rows.
#[test]
fn listings_by_due_time_use_the_indexes() {
    let Some(server) = server() else { return };
    let mut store: Store = Box::new(server.builder("by_due").open().unwrap());
    store.attach(&["a".to_owned(), "b".to_owned()]).unwrap();
    store.renew(&BTreeSet::new()).unwrap();
    let mut client = server.client();
    client
        .batch_execute(
            "INSERT INTO by_due.timers
                (partition, topic, state, due, scheduled, attempts, payload, changed_by, changed_in)
            SELECT n % 64, 1 + n % 2, CASE WHEN n % 10 = 0 THEN 1 ELSE 0 END, n, n, 0, 'null', 0, 0
            FROM generate_series(1, 100000) n;
            ANALYZE by_due.timers",
        )
        .unwrap();
    for (state, index) in [("0", "timers_due"), ("1", "timers_dead_due")] {
        let sql = format!(
            "EXPLAIN SELECT f.id FROM by_due.topics w CROSS JOIN LATERAL (
                SELECT id, due FROM by_due.timers WHERE state = {state} AND topic = w.id
                    AND (due, id) > (50000, 0) ORDER BY due, id LIMIT 100
            ) f ORDER BY f.due, f.id LIMIT 100"
        );
        let plan: Vec<String> = client.query(&sql, &[]).unwrap().iter().map(|row| row.get(0)).collect();
        let plan = plan.join("\n");
        assert!(plan.contains(index) && !plan.contains("Seq Scan on timers"), "{plan}");
    }
    let next = store.list(&TimerFilter::new().state(TimerState::Pending).by_due()).unwrap();
    assert_eq!(next.len(), 100);
    assert!(next.is_sorted_by_key(|timer| timer.due));
}
