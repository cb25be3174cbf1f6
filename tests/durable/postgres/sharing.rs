//! What one node learns of the changes of others.

use super::{
    server::server,
    stores::{
        NOW, Nodes, changed, commit, end, for_each_kind_of_nodes, keyed, load, node, patiently, periodic,
        renew_until, renewed, start, timer,
    },
};
use crate::support::wait::PATIENCE;
use netwheel::durable::{
    PostgresStore, StoreError, TimerId, TimerStore,
    postgres::Client,
    store::{Change, Outcome, TimerRow},
};
use std::{
    collections::BTreeSet,
    sync::{Arc, Barrier},
    thread,
    time::{Duration, Instant},
};

const LEASE: Duration = Duration::from_secs(60);

/// Returns the ids and due times of timers that others have changed.
fn found(store: &mut (impl TimerStore + ?Sized)) -> Vec<(TimerId, i64)> {
    let rows = changed(store, 1000);
    assert!(rows.iter().all(|row| row.epoch == 1));
    rows.iter().map(|row| (row.key.id, row.key.due)).collect()
}

for_each_kind_of_nodes! {
    the_owner_finds_what_others_start_and_move
    an_end_that_is_not_of_the_stored_run_changes_nothing
}

fn the_owner_finds_what_others_start_and_move(nodes: &Nodes) {
    let mut owner = nodes.node(LEASE);
    let owner = &mut *owner;
    renewed(owner);
    assert_eq!(changed(owner, 1000), []);
    let own = start(owner, timer(10));
    assert_eq!(changed(owner, 1000), [], "it knows what it has started");

    let mut other = nodes.node(LEASE);
    let row = start(&mut *other, timer(20));
    start(&mut *other, timer(2000));
    let Outcome::Done(None) = commit(&mut *other, Change::Move { id: own.key.id, due: 30 }) else { panic!() };
    assert_eq!(found(owner), [(row.key.id, 20), (own.key.id, 30)], "in the order of firing");
    assert_eq!(found(owner), [], "each change once");
    // The owner has loaded the timer before it was moved, so its claim misses it.
    let claim = Change::Claim { held: own.held() };
    assert!(matches!(commit(owner, claim), Outcome::Missing));
}

/// The engine has not heard that another node has moved the timer. It gets the timer again.
fn an_end_that_is_not_of_the_stored_run_changes_nothing(nodes: &Nodes) {
    let (mut owner, mut other) = (nodes.node(LEASE), nodes.node(LEASE));
    renewed(&mut *owner);
    changed(&mut *owner, 1000);
    let row = start(&mut *owner, timer(10));
    assert!(matches!(commit(&mut *owner, Change::Claim { held: row.held() }), Outcome::Done(None)));
    commit(&mut *other, Change::Move { id: row.key.id, due: 20 });
    assert!(matches!(commit(&mut *owner, end(row.held())), Outcome::Missing));
    let again = changed(&mut *owner, 1000);
    assert_eq!(again.iter().map(|row| row.key.due).collect::<Vec<_>>(), [20]);
    assert!(matches!(commit(&mut *owner, end(again[0].held())), Outcome::Done(None)));
    assert_eq!(load(&mut *owner), []);
}

/// A transaction that began before a query and ends after it is not missed, however long it takes.
/// While it is open, changes behind it are not returned again and again.
#[test]
fn changes_of_others_are_found_once_beside_a_slow_transaction() {
    let Some(server) = server() else { return };
    let mut owner = node(server, "late", LEASE);
    renewed(&mut owner);
    changed(&mut owner, 1000);
    let insert = "INSERT INTO late.timers
        (partition, topic, state, due, scheduled, attempts, payload, changed_by, changed_in)
        VALUES (0, 1, 0, 7, 7, 0, 'null', 0, pg_current_xact_id()::text::bigint)";
    let mut slow = server.client();
    slow.batch_execute("BEGIN").unwrap();
    slow.batch_execute(insert).unwrap();
    let mut quick = server.client();
    for _ in 0..4 {
        quick.batch_execute(insert).unwrap();
        assert_eq!(found(&mut owner).len(), 1);
    }
    slow.batch_execute("COMMIT").unwrap();
    assert_eq!(found(&mut owner).len(), 1);
    assert_eq!(found(&mut owner), []);
}

/// Starts timers that are due at 7, 1000 in each transaction.
fn start_thousands(store: &mut PostgresStore, thousands: usize) -> Vec<TimerRow> {
    let mut rows = Vec::new();
    for _ in 0..thousands {
        let mut changes: Vec<Change> = (0..1000).map(|_| Change::Start(timer(7))).collect();
        for outcome in patiently(|| store.commit(&mut changes, NOW)) {
            let Outcome::Started(row) = outcome else { panic!("{outcome:?}") };
            rows.push(row);
        }
    }
    rows
}

/// A transaction that does not end does not hold the changes behind it back.
#[test]
fn many_changes_of_others_are_found_during_a_long_transaction() {
    let Some(server) = server() else { return };
    let [mut owner, mut other] = [(); 2].map(|()| node(server, "long_running", LEASE));
    renew_until(&mut owner, 8);
    changed(&mut owner, 1000);
    let mut long = server.client();
    long.batch_execute("BEGIN; SELECT pg_current_xact_id()").unwrap();
    start_thousands(&mut other, 12);
    assert_eq!(found(&mut owner).len(), 12_000);
    long.batch_execute(
        "INSERT INTO long_running.timers
        (partition, topic, state, due, scheduled, attempts, payload, changed_by, changed_in)
        VALUES (0, 1, 0, 7, 7, 0, 'null', 0, pg_current_xact_id()::text::bigint); COMMIT",
    )
    .unwrap();
    assert_eq!(found(&mut owner).len(), 1);
}

/// The timer of the refused claim is in the last of the transactions.
#[test]
fn a_timer_that_is_read_again_does_not_hide_other_changes() {
    let Some(server) = server() else { return };
    let [mut owner, mut other] = [(); 2].map(|()| node(server, "read_again", LEASE));
    renew_until(&mut owner, 8);
    changed(&mut owner, 1000);
    let rows = start_thousands(&mut owner, 12);
    for rows in rows.chunks(1000) {
        let moves = rows.iter().map(|row| Change::Move { id: row.key.id, due: 8 });
        let mut changes: Vec<Change> = moves.collect();
        patiently(|| other.commit(&mut changes, NOW));
    }
    let claim = commit(&mut owner, Change::Claim { held: rows[11_999].held() });
    assert!(matches!(claim, Outcome::Missing), "{claim:?}");
    let all: BTreeSet<_> = found(&mut owner).into_iter().collect();
    assert_eq!(all.len(), 12_000);
}

/// The changes of others are found with two statements, of which the second one fails.
#[test]
fn changes_of_a_look_that_fails_are_found_by_the_next_one() {
    let Some(server) = server() else { return };
    let [mut owner, mut other] = [(); 2].map(|()| node(server, "half", LEASE));
    renew_until(&mut owner, 8);
    changed(&mut owner, 1000);
    let row = start(&mut owner, timer(10));
    commit(&mut other, Change::Move { id: row.key.id, due: 20 });
    assert_eq!(found(&mut owner), [(row.key.id, 20)]);
    assert!(matches!(commit(&mut owner, Change::Claim { held: row.held() }), Outcome::Missing));
    let new = start(&mut other, timer(30));
    let mut client = server.client();
    client
        .batch_execute(
            "CREATE FUNCTION half.may_read() RETURNS boolean LANGUAGE plpgsql VOLATILE AS $$ BEGIN
                IF current_query() LIKE '%WHERE id = ANY($1)%' THEN
                    RAISE SQLSTATE '40001';
                END IF;
                RETURN true;
            END $$;
            ALTER TABLE half.timers RENAME TO stored;
            CREATE VIEW half.timers AS SELECT * FROM half.stored WHERE half.may_read()",
        )
        .unwrap();
    let error = owner.changed_by_others(1000, usize::MAX).unwrap_err();
    assert!(matches!(error, StoreError::Busy(_)), "{error}");
    client.batch_execute("DROP VIEW half.timers; ALTER TABLE half.stored RENAME TO timers").unwrap();
    assert_eq!(found(&mut owner), [(row.key.id, 20), (new.key.id, 30)]);
}

/// Ends the sessions of all stores of a schema.
fn cut(client: &mut Client, schema: &str) {
    let sql = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name LIKE 'netwheel%' AND query LIKE '%' || $1 || '.%'";
    assert!(!client.query(sql, &[&schema]).unwrap().is_empty());
}

/// The answer to a commit was lost, so the engine repeats it.
#[test]
fn an_end_that_is_repeated_after_a_lost_answer_changes_nothing() {
    let Some(server) = server() else { return };
    let mut store = node(server, "repeated", LEASE);
    renewed(&mut store);
    changed(&mut store, i64::MAX);
    let once = start(&mut store, timer(1));
    let every = start(&mut store, periodic(1));
    let changes = || [end(once.held()), Change::End { held: every.held(), next: Some(6), effect: None }];
    store.commit(&mut changes(), NOW).unwrap();
    cut(&mut server.client(), "repeated");
    let error = store.commit(&mut changes(), NOW).unwrap_err();
    assert!(error.is_transient(), "{error}");
    for outcome in store.commit(&mut changes(), NOW).unwrap() {
        assert!(matches!(outcome, Outcome::Missing), "{outcome:?}");
    }
    // The next run of the periodic timer, which the engine does not know.
    assert_eq!(found(&mut store), [(every.key.id, 6)]);
    assert_eq!(load(&mut store).len(), 1);
}

/// The answer to a start was lost, so the engine does not know the timer.
#[test]
fn timers_of_a_lost_session_are_found() {
    let Some(server) = server() else { return };
    let mut store = node(server, "lost", LEASE);
    renewed(&mut store);
    changed(&mut store, i64::MAX);
    let row = start(&mut store, timer(1));
    cut(&mut server.client(), "lost");
    assert!(matches!(store.renew(&BTreeSet::new()), Err(StoreError::Busy(_))));
    renewed(&mut store);
    assert_eq!(changed(&mut store, i64::MAX), [row]);
}

/// The transactions of the new cluster count from the beginning, so all timers seem to have changed
/// later than any of them.
#[test]
fn timers_of_a_restored_dump_do_not_count_as_changed() {
    let Some(server) = server() else { return };
    let [mut owner, mut other] = [(); 2].map(|()| node(server, "restored", LEASE));
    renew_until(&mut owner, 8);
    start_thousands(&mut other, 1);
    let row = start(&mut other, timer(9));
    changed(&mut owner, 1000);
    let restored = "UPDATE restored.timers SET changed_in = changed_in + 1000000000";
    server.client().batch_execute(restored).unwrap();
    assert_eq!(found(&mut owner), []);
    commit(&mut other, Change::Move { id: row.key.id, due: 8 });
    assert_eq!(found(&mut owner), [(row.key.id, 8)]);
}

/// Keys in opposite orders would make transactions wait for each other.
#[test]
fn batches_with_the_same_keys_do_not_deadlock() {
    let Some(server) = server() else { return };
    drop(node(server, "opposite", LEASE));
    let barrier = Arc::new(Barrier::new(2));
    let nodes = [false, true].map(|is_reversed| {
        let barrier = barrier.clone();
        thread::spawn(move || {
            let mut store = node(server, "opposite", LEASE);
            let mut failed = 0;
            for round in 0..10 {
                let key = |n: i64| keyed(n, &format!("{round} {n}"));
                let mut starts: Vec<Change> = (0..500).map(|n| Change::Start(key(n))).collect();
                if is_reversed {
                    starts.reverse();
                }
                barrier.wait();
                failed += usize::from(store.commit(&mut starts, NOW).is_err());
            }
            failed
        })
    });
    assert_eq!(nodes.map(|node| node.join().unwrap()), [0, 0]);
    let count = server.client().query_one("SELECT count(*) FROM opposite.timers", &[]).unwrap();
    assert_eq!(count.get::<_, i64>(0), 5000);
}

#[test]
fn one_of_many_starts_with_the_same_key_is_stored() {
    let Some(server) = server() else { return };
    let barrier = Arc::new(Barrier::new(4));
    drop(node(server, "keys", LEASE));
    let nodes = [0, 1, 2, 3].map(|_| {
        let barrier = barrier.clone();
        thread::spawn(move || {
            let mut store = node(server, "keys", LEASE);
            renewed(&mut store);
            let mut started = Vec::new();
            for round in 0..20 {
                barrier.wait();
                match commit(&mut store, Change::Start(keyed(1, &round.to_string()))) {
                    Outcome::Started(row) => {
                        started.push(row.key.id);
                        // Other nodes may see the timer, its end, or neither at first.
                        let ended = commit(&mut store, end(row.held()));
                        assert!(matches!(ended, Outcome::Done(None) | Outcome::Refused(_)), "{ended:?}");
                    }
                    Outcome::AlreadyStarted { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
            started.len()
        })
    });
    let started: usize = nodes.into_iter().map(|node| node.join().unwrap()).sum();
    assert_eq!(started, 20);
}

/// A node asks for changes every second, and may have millions of timers.
#[test]
fn a_search_for_changes_does_not_read_the_other_timers() {
    const TIMERS: i32 = 10_000;
    const INDEX: &str = "SELECT idx_scan, idx_blks_hit + idx_blks_read
        FROM pg_stat_user_indexes JOIN pg_statio_user_indexes USING (indexrelid)
        WHERE pg_stat_user_indexes.indexrelid = 'waiting.timers_changed'::regclass";
    let Some(server) = server() else { return };
    let mut owner = node(server, "waiting", LEASE);
    renewed(&mut owner);
    changed(&mut owner, 1000);
    let mut client = server.client();
    let insert = "INSERT INTO waiting.timers
        (partition, topic, state, due, scheduled, attempts, payload, changed_by, changed_in)
        SELECT 0, 1, 0, 7, 7, 0, 'null', 0, pg_current_xact_id()::text::bigint
        FROM generate_series(1, $1)";
    client.execute(insert, &[&TIMERS]).unwrap();
    client.batch_execute("VACUUM ANALYZE waiting.timers").unwrap();
    while !changed(&mut owner, 1000).is_empty() {}
    let mut counted = || {
        let row = client.query_one(INDEX, &[]).unwrap();
        (row.get::<_, i64>(0), row.get::<_, i64>(1))
    };
    // The server publishes the numbers of a session from time to time.
    let mut known = counted();
    let mut searches_until_next = || {
        let before = known;
        let end = Instant::now() + PATIENCE;
        while known.0 == before.0 {
            assert!(Instant::now() < end, "the server counts its searches");
            assert_eq!(changed(&mut owner, 1000), []);
            known = counted();
        }
        (known.0 - before.0, known.1 - before.1)
    };
    // The first numbers may contain the blocks that the starts have read.
    let least = (0..3).map(|_| searches_until_next()).map(|(searches, blocks)| blocks / searches).min();
    // Those on the way to a place of the index. All entries are in about forty blocks.
    assert!(least.is_some_and(|blocks| blocks <= 6), "a search reads {least:?} blocks");
}
