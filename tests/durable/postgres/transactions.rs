//! Transactions: effects, locks, round trips.

use super::{
    server::server,
    stores::{NOW, commit, end, keyed, load, node, patiently, renewed, start, timer},
};
use crate::support::wait::wait_until;
use netwheel::{
    Error,
    durable::{
        StoreError, StoreTransaction, TimerStore,
        store::{Change, Effect, Outcome, TimerRow},
    },
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

const LEASE: Duration = Duration::from_secs(60);

fn execute(sql: &'static str) -> Option<Effect> {
    Some(Box::new(move |tx: &mut StoreTransaction<'_>| {
        tx.postgres()?.batch_execute(sql).map_err(Error::other)
    }))
}

/// An effect that ignores an error of the server, and one whose constraint fails only at the end of
/// the transaction, undo their own writes and no others.
#[test]
fn an_effect_cannot_spoil_the_transaction() {
    let Some(server) = server() else { return };
    let mut store = node(server, "spoil", LEASE);
    renewed(&mut store);
    let mut client = server.client();
    client
        .batch_execute(
            "CREATE TABLE spoil.parents (id integer PRIMARY KEY);
            CREATE TABLE spoil.children (
                parent integer REFERENCES spoil.parents DEFERRABLE INITIALLY DEFERRED
            )",
        )
        .unwrap();
    let rows: Vec<TimerRow> = (0..5).map(|due| start(&mut store, timer(due))).collect();
    let ignores = |tx: &mut StoreTransaction<'_>| {
        let _ = tx.postgres()?.batch_execute("SELECT 1 / 0");
        Ok(())
    };
    let orphan = "INSERT INTO spoil.children VALUES (1)";
    let family = "INSERT INTO spoil.children VALUES (2); INSERT INTO spoil.parents VALUES (2)";
    let more = "INSERT INTO spoil.children VALUES (3); INSERT INTO spoil.parents VALUES (3)";
    let effects = [execute(family), execute(orphan), Some(Box::new(ignores) as Effect), execute(more), None];
    let changes = rows.iter().zip(effects);
    let mut changes: Vec<Change> =
        changes.map(|(row, effect)| Change::End { held: row.held(), next: None, effect }).collect();
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    let is_done: Vec<bool> = outcomes.iter().map(|outcome| matches!(outcome, Outcome::Done(None))).collect();
    assert_eq!(is_done, [true, false, false, true, true], "{outcomes:?}");
    assert!(matches!(&outcomes[2], Outcome::Refused(StoreError::Effect(_))));
    let children = client.query("SELECT parent FROM spoil.children ORDER BY 1", &[]).unwrap();
    assert_eq!(children.iter().map(|row| row.get(0)).collect::<Vec<i32>>(), [2, 3]);
    assert_eq!(load(&mut store).len(), 2);
}

/// The statements of an effect take longer than its time limit, so the connection is given up and
/// the transaction repeated.
#[test]
fn an_effect_that_is_too_slow_fails_after_three_attempts() {
    let Some(server) = server() else { return };
    let limit = Duration::from_millis(300);
    // The limit is for the effect, and making the tables may take longer.
    drop(server.builder("slow_effect").partitions(4).open().unwrap());
    let builder = || server.builder("slow_effect").partitions(4).lease(LEASE).request_timeout(limit);
    let mut opened = None;
    wait_until("it is opened", || {
        opened = builder().open().ok();
        opened.is_some()
    });
    let mut store = opened.unwrap();
    patiently(|| store.attach(&["topic".to_owned()]));
    renewed(&mut store);
    let [slow, other] = [1, 2].map(|due| start(&mut store, timer(due)));
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let effect: Effect = Box::new(move |tx: &mut StoreTransaction<'_>| {
        counter.fetch_add(1, Ordering::Relaxed);
        (0..2).try_for_each(|_| tx.postgres()?.batch_execute("SELECT pg_sleep(0.2)").map_err(Error::other))
    });
    let mut changes =
        [Change::End { held: slow.held(), next: None, effect: Some(effect) }, end(other.held())];
    let outcomes = patiently(|| store.commit(&mut changes, NOW));
    assert!(matches!(&outcomes[0], Outcome::Refused(StoreError::Effect(_))), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Done(None)), "{outcomes:?}");
    assert_eq!(calls.load(Ordering::Relaxed), 3);
    assert_eq!(load(&mut store), [slow]);
}

/// Quartz: nodes wait for the lock rows of others until everything stands still.
#[test]
fn quartz_a_lock_of_others_does_not_stop_a_node() {
    let Some(server) = server() else { return };
    let lease = Duration::from_millis(600);
    let mut store = node(server, "locked", lease);
    renewed(&mut store);
    let row = start(&mut store, timer(1));
    let other = start(&mut store, timer(2));
    let mut client = server.client();
    let mut transaction = client.transaction().unwrap();
    transaction.query("SELECT FROM locked.timers WHERE id = $1 FOR UPDATE", &[&row.key.id.get()]).unwrap();
    let error = store.commit(&mut [end(row.held())], NOW).unwrap_err();
    assert!(error.is_transient(), "{error}");
    // The node goes on with everything else, and ends the timer later.
    renewed(&mut store);
    assert!(matches!(commit(&mut store, end(other.held())), Outcome::Done(None)));
    transaction.rollback().unwrap();
    assert!(matches!(commit(&mut store, end(row.held())), Outcome::Done(None)));
}

/// The number of requests does not grow with the number of changes.
#[test]
fn a_transaction_takes_few_round_trips() {
    let Some(server) = server() else { return };
    let mut store = node(server, "trips", LEASE);
    renewed(&mut store);
    let mut trips = |changes: &mut Vec<Change>| {
        // The first transaction of a kind prepares its statements.
        let before = store.requests();
        let outcomes = store.commit(changes, NOW).unwrap();
        let rows: Vec<TimerRow> = outcomes
            .into_iter()
            .filter_map(|outcome| match outcome {
                Outcome::Started(row) => Some(row),
                _ => None,
            })
            .collect();
        (store.requests() - before, rows)
    };
    let starts = |n| (0..n).map(|due| Change::Start(timer(due))).collect::<Vec<_>>();
    let (_, rows) = trips(&mut starts(1));
    trips(&mut vec![Change::Claim { held: rows[0].held() }, end(rows[0].held())]);
    trips(&mut vec![Change::Start(keyed(1, "first"))]);

    for size in [1, 500] {
        let (started, rows) = trips(&mut starts(size));
        let mut claims: Vec<Change> = rows.iter().map(|row| Change::Claim { held: row.held() }).collect();
        let mut ends: Vec<Change> = rows.iter().map(|row| end(row.held())).collect();
        let (claimed, ended) = (trips(&mut claims).0, trips(&mut ends).0);
        assert_eq!((started, claimed, ended), (3, 1, 4), "{size} changes");
    }
    let mut keyed: Vec<Change> = (0..500).map(|n| Change::Start(keyed(n, &n.to_string()))).collect();
    assert_eq!(trips(&mut keyed).0, 4);
    let (_, rows) = trips(&mut starts(300));
    let (claims, ends) = rows.split_at(100);
    let mut mixed: Vec<Change> = claims.iter().map(|row| Change::Claim { held: row.held() }).collect();
    mixed.extend(ends.iter().map(|row| end(row.held())));
    mixed.extend(starts(100));
    assert_eq!(trips(&mut mixed).0, 6);
    // Each effect takes two, and its own.
    let ends = rows[..10].iter().map(|row| Change::End {
        held: row.held(),
        next: None,
        effect: Some(Box::new(|_: &mut StoreTransaction<'_>| Ok(())) as Effect),
    });
    assert_eq!(trips(&mut ends.collect()).0, 4 + 2 * 10);
}

/// A renewal waits for the transaction, so this must not take as long as all effects together.
#[test]
fn effects_that_take_long_are_spread_over_several_transactions() {
    let Some(server) = server() else { return };
    let mut store = node(server, "spread", Duration::from_millis(1500));
    renewed(&mut store);
    let rows: Vec<TimerRow> = (0..5).map(|due| start(&mut store, timer(due))).collect();
    let new = |row: &TimerRow| Change::End {
        held: row.held(),
        next: None,
        effect: execute("SELECT pg_sleep(0.2)"),
    };
    let mut changes: Vec<Change> = rows.iter().map(new).collect();
    changes.push(Change::Start(timer(9)));
    let mut numbers = Vec::new();
    while !changes.is_empty() {
        let outcomes = patiently(|| store.commit(&mut changes, NOW));
        let is_done = |outcome: &Outcome| matches!(outcome, Outcome::Done(None) | Outcome::Started(_));
        assert!(outcomes.iter().all(is_done), "{outcomes:?}");
        numbers.push(outcomes.len());
        drop(changes.drain(..outcomes.len()));
    }
    // A quarter of a second is for two effects.
    assert!(numbers.len() >= 3 && numbers.iter().all(|number| (1..=3).contains(number)), "{numbers:?}");
    assert_eq!(load(&mut store).iter().map(|row| row.key.due).collect::<Vec<_>>(), [9]);
}
