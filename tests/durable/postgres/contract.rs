//! The contract of `TimerStore`, for each store.

use super::{server::server, topics::*};
use crate::new_timers::with;
use netwheel::durable::{
    StoreError, StoreTransaction, TimerFilter, TimerId, TimerState, TimerStore,
    store::{Begun, Change, DueKey, Effect, Held, LoadRange, Loaded, NewTimer, Outcome, TimerRow, TopicSet},
};
use std::collections::BTreeSet;

pub(super) const NOW: i64 = 1_700_000_000_000;

/// Defines each test for all stores.
macro_rules! for_each_store {
    ($($name:ident)*) => {
        for_each_database! { $($name)* }
        mod memory {
            $(#[test] fn $name() {
                super::$name(&mut super::opened(netwheel::durable::MemoryDisk::new().open().unwrap()));
            })*
        }
        mod database {
            $(#[test] fn $name() {
                super::$name(&mut super::opened(netwheel::durable::MemoryDatabase::new().open().unwrap()));
            })*
        }
    };
}

/// Defines each test for the stores in a database.
macro_rules! for_each_database {
    ($($name:ident)*) => {
        #[cfg(feature = "rusqlite-040")]
        mod sqlite {
            $(#[test] fn $name() {
                super::$name(&mut super::opened(netwheel::durable::SqliteStore::in_memory().unwrap()));
            })*
        }
        mod postgres {
            $(#[test] fn $name() {
                if let Some(server) = super::server() {
                    let schema = concat!("contract_", stringify!($name));
                    super::$name(&mut super::opened(server.builder(schema).open().unwrap()));
                }
            })*
        }
    };
}

for_each_store! {
    a_start_is_loaded_in_the_order_of_due_times
    loads_are_limited_and_continue
    loads_are_limited_by_bytes_and_continue
    loads_are_merged_from_many_topics
    a_key_stores_one_timer
    the_key_of_an_ended_timer_is_remembered
    a_new_schedule_replaces_the_old_one
    a_new_schedule_keeps_a_run_whose_time_has_come
    a_new_schedule_and_an_end_are_made_in_order
    the_last_of_several_schedules_counts
    a_payload_is_replaced_and_nothing_else
    a_new_payload_and_an_end_are_made_in_order
    a_periodic_start_does_not_change_a_one_shot_timer
    an_end_removes_a_timer_or_moves_it_to_its_next_run
    a_change_of_another_run_is_missing
    a_retry_keeps_the_scheduled_time
    an_attempt_is_counted_once_at_its_begin_or_its_end
    a_begun_run_goes_on_unmarked_after_its_end_or_a_move
    periodic_timers_far_away_are_found_unless_moved
    dead_letters_are_listed_and_run_again
    a_dead_run_of_a_periodic_timer_is_a_copy
    a_key_finds_its_timer
    commands_move_and_cancel
    changes_of_one_timer_are_made_in_order
    many_changes_share_a_transaction
    pages_of_a_listing_are_complete
    texts_of_any_kind_are_stored
    unknown_topics_are_counted_and_not_loaded
    a_pause_is_stored_with_its_topic
    a_load_leaves_out_other_topics
    the_oldest_dead_letters_are_removed
    the_key_of_a_removed_dead_letter_is_remembered
    dead_letters_are_pending_again_at_the_given_times
    timers_are_listed_by_due_time_in_pages
}

/// Effects with SQL. `memory.rs` has those of the memory store.
mod sql {
    use super::*;

    for_each_database! {
        effects_are_stored_with_the_end_or_not_at_all
        an_effect_that_ends_the_transaction_stops_the_store
        a_transaction_of_the_program_is_stored_or_undone
    }
}

/// A store with the topics "a" and "b", which owns everything.
pub(super) fn opened(mut store: impl TimerStore + 'static) -> Box<dyn TimerStore> {
    assert_eq!(store.attach(&["a".to_owned(), "b".to_owned()]).unwrap().len(), 2);
    store.renew(&BTreeSet::new()).unwrap();
    Box::new(store)
}

pub(super) type Store = Box<dyn TimerStore>;

pub(super) fn timer(topic: usize, due: i64) -> NewTimer {
    NewTimer::new(topic, due, due.to_string().into_bytes())
}

pub(super) fn keyed(due: i64, key: &str) -> NewTimer {
    with(timer(0, due), |timer| timer.idempotency_key = Some(key.to_owned()))
}

fn periodic(due: i64, schedule: &str) -> NewTimer {
    with(keyed(due, "periodic"), |timer| timer.schedule = Some(schedule.to_owned()))
}

pub(super) fn commit(store: &mut Store, change: Change) -> Outcome {
    let mut outcomes = store.commit(&mut [change], NOW).unwrap();
    assert_eq!(outcomes.len(), 1);
    outcomes.remove(0)
}

#[track_caller]
pub(super) fn start(store: &mut Store, timer: NewTimer) -> TimerRow {
    match commit(store, Change::Start(timer)) {
        Outcome::Started(row) => row,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
fn rescheduled(store: &mut Store, timer: NewTimer) -> TimerRow {
    changed(commit(store, Change::Start(timer)))
}

#[track_caller]
fn changed(outcome: Outcome) -> TimerRow {
    match outcome {
        Outcome::AlreadyStarted { changed: Some(row), .. } => row,
        other => panic!("{other:?}"),
    }
}

#[track_caller]
pub(super) fn moved(outcome: Outcome) -> TimerRow {
    match outcome {
        Outcome::Done(Some(row)) => row,
        other => panic!("{other:?}"),
    }
}

pub(super) fn end(held: Held, next: Option<i64>) -> Change {
    Change::End { held, next, effect: None }
}

pub(super) fn load(store: &mut Store, until: i64) -> Vec<TimerRow> {
    let range = with(LoadRange::new(TopicSet::ALL, until), |range| range.limit = 1000);
    store.load(range).unwrap().rows
}

fn dues(rows: &[TimerRow]) -> Vec<i64> {
    rows.iter().map(|row| row.key.due).collect()
}

/// Pending timers and dead letters of the topics "a" and "b".
pub(super) fn counts(store: &mut Store) -> [(u64, u64); 2] {
    let counts = store.counts().unwrap();
    let of =
        |name: &str| counts.iter().find(|topic| topic.topic == name).map(|t| (t.pending, t.dead)).unwrap();
    [of("a"), of("b")]
}

fn a_start_is_loaded_in_the_order_of_due_times(store: &mut Store) {
    let late = start(store, timer(0, 300));
    let early = start(store, timer(1, 100));
    let same = start(store, timer(0, 300));
    assert_eq!((early.topic, early.scheduled, early.attempts), (1, 100, 0));
    assert_eq!(load(store, 300), [early.clone(), late.clone(), same]);
    assert_eq!(load(store, 299), [early]);
    assert_eq!(counts(store), [(2, 0), (1, 0)]);
    assert_eq!(late.payload, b"300");
}

fn loads_are_limited_and_continue(store: &mut Store) {
    let mut starts: Vec<Change> = (0..25).map(|n| Change::Start(timer(n % 2, 100 + n as i64 / 5))).collect();
    store.commit(&mut starts, NOW).unwrap();
    let (mut after, mut found) = (DueKey::FIRST, Vec::new());
    loop {
        let range = with(LoadRange::new(TopicSet::ALL, 1000), |range| {
            range.after = after;
            range.limit = 4;
        });
        let Loaded { rows, is_complete: is_last, .. } = store.load(range).unwrap();
        assert!(is_last || rows.len() == 4);
        after = rows.last().map_or(after, |row| row.key);
        found.extend(rows);
        if is_last {
            break;
        }
    }
    let all = load(store, 1000);
    assert_eq!((found.len(), &found), (25, &all));
    assert!(all.is_sorted_by_key(|row| row.key));
}

fn a_key_stores_one_timer(store: &mut Store) {
    let first = start(store, keyed(100, "k"));
    let again = commit(store, Change::Start(keyed(200, "k")));
    assert!(matches!(again, Outcome::AlreadyStarted { id, changed: None } if id == first.key.id));
    let mut both = [Change::Start(keyed(1, "twice")), Change::Start(keyed(2, "twice"))];
    let outcomes = store.commit(&mut both, NOW).unwrap();
    let [Outcome::Started(row), Outcome::AlreadyStarted { id, changed: None }] = &outcomes[..] else {
        panic!("{outcomes:?}");
    };
    assert_eq!((row.key.id, row.key.due), (*id, 1));
    let other_topic = with(keyed(300, "k"), |timer| timer.topic = 1);
    assert_eq!(start(store, other_topic).idempotency_key.as_deref(), Some("k"));
    assert_eq!(counts(store), [(2, 0), (1, 0)]);
}

fn a_key_finds_its_timer(store: &mut Store) {
    let [first, other] = [keyed(100, "k"), with(keyed(200, "k"), |timer| timer.topic = 1)];
    let ids = [first, other].map(|timer| start(store, timer).key.id);
    start(store, keyed(300, "l"));
    start(store, timer(0, 400));
    let mut found = |filter: TimerFilter| -> Vec<TimerId> {
        store.list(&filter).unwrap().into_iter().map(|info| info.id).collect()
    };
    let key = TimerFilter::new().key("k");
    assert_eq!(found(key.clone()), ids);
    assert_eq!(found(key.clone().topic("b")), ids[1..]);
    assert_eq!(found(key.clone().topic("c")), []);
    assert_eq!(found(key.clone().state(TimerState::Pending).after(ids[0])), ids[1..]);
    assert_eq!(found(key.state(TimerState::Dead)), []);
    assert_eq!(found(TimerFilter::new().key("k\0")), []);
}

fn the_key_of_an_ended_timer_is_remembered(store: &mut Store) {
    let row = start(store, keyed(100, "k"));
    commit(store, end(row.held(), None));
    let again = commit(store, Change::Start(keyed(200, "k")));
    assert!(matches!(again, Outcome::AlreadyStarted { id, .. } if id == row.key.id));
    // A day later it is forgotten.
    let later = NOW + 25 * 3_600_000;
    let outcomes = store.commit(&mut [Change::Start(keyed(300, "k"))], later).unwrap();
    assert!(matches!(&outcomes[0], Outcome::Started(new) if new.key.id > row.key.id));
    // A periodic timer that was cancelled can be started again.
    let row = start(store, periodic(100, "every 5"));
    commit(store, Change::Cancel(row.key.id));
    start(store, periodic(100, "every 5"));
}

fn a_new_schedule_replaces_the_old_one(store: &mut Store) {
    let row = start(store, periodic(NOW + 100, "every 5"));
    let same = commit(store, Change::Start(periodic(NOW + 400, "every 5")));
    assert!(matches!(same, Outcome::AlreadyStarted { changed: None, .. }));
    let changed = rescheduled(store, periodic(NOW + 500, "every 7"));
    assert_eq!(changed.key, DueKey::new(NOW + 500, row.key.id));
    assert_eq!(changed.schedule.as_deref(), Some("every 7"));
    assert_eq!(load(store, NOW + 1000), [changed]);
    assert_eq!(counts(store), [(1, 0), (0, 0)]);
}

fn a_new_schedule_keeps_a_run_whose_time_has_come(store: &mut Store) {
    let row = start(store, periodic(NOW - 100, "every 500"));
    let changed = rescheduled(store, periodic(NOW + 700, "every 700"));
    assert_eq!((changed.key, changed.scheduled), (row.key, NOW - 100));
    assert_eq!(
        (changed.schedule.as_deref(), changed.payload),
        (Some("every 700"), b"1700000000700".to_vec())
    );
    let error = "no".to_owned();
    let retried = moved(commit(store, Change::Retry { held: row.held(), due: NOW + 50, error }));
    let changed = rescheduled(store, periodic(NOW + 900, "every 900"));
    assert_eq!((changed.key, changed.scheduled, changed.attempts), (retried.key, NOW - 100, 1));
    assert_eq!(load(store, NOW + 1000), [changed]);
    let dead = Change::DeadLetter { held: retried.held(), next: None, error: "no".to_owned() };
    assert!(matches!(commit(store, dead), Outcome::Done(None)));
    let alive = rescheduled(store, periodic(NOW + 300, "every 300"));
    assert_eq!((alive.key.due, alive.scheduled, alive.attempts), (NOW + 300, NOW + 300, 0));
    assert_eq!(counts(store), [(1, 0), (0, 0)]);
}

fn a_new_schedule_and_an_end_are_made_in_order(store: &mut Store) {
    let row = start(store, periodic(NOW - 100, "every 500"));
    let mut changes = [Change::Start(periodic(NOW + 700, "every 700")), end(row.held(), Some(NOW + 400))];
    let mut outcomes = store.commit(&mut changes, NOW).unwrap().into_iter();
    let kept = changed(outcomes.next().unwrap());
    assert_eq!((kept.key, kept.schedule.as_deref()), (row.key, Some("every 700")));
    let row = moved(outcomes.next().unwrap());
    assert_eq!((row.key.due, row.schedule.as_deref()), (NOW + 400, Some("every 700")));

    let mut changes = [end(row.held(), Some(NOW + 900)), Change::Start(periodic(NOW + 200, "every 200"))];
    let mut outcomes = store.commit(&mut changes, NOW).unwrap().into_iter();
    assert_eq!(moved(outcomes.next().unwrap()).key.due, NOW + 900);
    let last = changed(outcomes.next().unwrap());
    assert_eq!((last.key.due, last.schedule.as_deref()), (NOW + 200, Some("every 200")));
    assert_eq!(load(store, NOW + 1000), [last]);
}

fn begin(held: Held, is_counted: bool) -> Change {
    Change::Begin { held, is_counted }
}

fn an_attempt_is_counted_once_at_its_begin_or_its_end(store: &mut Store) {
    let row = start(store, timer(0, 100));
    let state = |store: &mut Store| load(store, 1000).first().map(|row| (row.attempts, row.begun));
    for (is_counted, expected) in [
        (false, (0, Begun::Noted)),
        (true, (1, Begun::Counted)),
        // An answer was lost, and the change is repeated.
        (true, (1, Begun::Counted)),
        (false, (1, Begun::Counted)),
    ] {
        assert!(matches!(commit(store, begin(row.held(), is_counted)), Outcome::Done(None)));
        assert_eq!(state(store), Some(expected));
    }
    let retry = |held, due| Change::Retry { held, due, error: "no".to_owned() };
    let row = moved(commit(store, retry(row.held(), 200)));
    assert_eq!((row.attempts, row.begun), (1, Begun::Noted));
    let row = moved(commit(store, retry(row.held(), 300)));
    assert_eq!((row.attempts, row.begun), (2, Begun::No));
    assert!(matches!(commit(store, begin(row.held(), true)), Outcome::Done(None)));
    let stale = with(row.held(), |held| held.key = with(row.key, |key| key.due = 200));
    assert!(matches!(commit(store, begin(stale, true)), Outcome::Missing));
    let dead_letter = Change::DeadLetter { held: row.held(), next: None, error: "no".to_owned() };
    assert!(matches!(commit(store, dead_letter), Outcome::Done(None)));
    assert_eq!(store.list(&TimerFilter::new()).unwrap()[0].attempts, 3);
    let row = moved(commit(store, Change::Move { id: row.key.id, due: 400 }));
    assert_eq!((row.attempts, row.begun), (0, Begun::No));
}

fn a_begun_run_goes_on_unmarked_after_its_end_or_a_move(store: &mut Store) {
    let mut row = start(store, periodic(100, "every 5"));
    for (change, attempts_of_dead) in [(0, None), (1, None), (2, None), (3, Some(1))] {
        assert!(matches!(commit(store, begin(row.held(), true)), Outcome::Done(None)));
        let (held, next) = (row.held(), row.key.due + 5);
        row = moved(commit(
            store,
            match change {
                0 => end(held, Some(next)),
                1 => Change::SkipTo { held, next },
                2 => Change::Move { id: row.key.id, due: next },
                _ => Change::DeadLetter { held, next: Some(next), error: "no".to_owned() },
            },
        ));
        assert_eq!((row.attempts, row.begun, row.scheduled), (0, Begun::No, next));
        let dead = store.list(&TimerFilter::new().state(TimerState::Dead)).unwrap();
        assert_eq!(dead.first().map(|info| info.attempts), attempts_of_dead);
    }
}

fn periodic_timers_far_away_are_found_unless_moved(store: &mut Store) {
    let far = |number: i64| {
        with(periodic(NOW + number, "every 5"), |timer| timer.idempotency_key = Some(format!("key {number}")))
    };
    let rows: Vec<TimerRow> = (0..6).map(|number| start(store, far(number))).collect();
    start(store, timer(0, NOW + 3));
    moved(commit(store, Change::Move { id: rows[3].key.id, due: NOW + 3 }));
    moved(commit(store, Change::Retry { held: rows[4].held(), due: NOW + 10, error: "no".to_owned() }));
    let found = |store: &mut Store, after, limit| {
        let found = store.far_periodic(after, limit).unwrap();
        assert!(found.iter().all(|row| row.payload.is_empty() && row.schedule.is_some()));
        found.iter().map(|row| row.key.due - NOW).collect::<Vec<_>>()
    };
    assert_eq!(found(store, DueKey::end_of(NOW), 100), [1, 2, 5]);
    assert_eq!(found(store, DueKey::end_of(NOW), 2), [1, 2]);
    assert_eq!(found(store, rows[2].key, 2), [5]);
    // The next run follows from the schedule again.
    let next = moved(commit(
        store,
        Change::SkipTo {
            held: with(rows[3].held(), |held| held.key = with(rows[3].key, |key| key.due = NOW + 3)),
            next: NOW + 8,
        },
    ));
    assert_eq!(found(store, rows[5].key, 100), [8]);
    moved(commit(store, Change::Move { id: next.key.id, due: NOW + 9 }));
    assert!(found(store, rows[5].key, 100).is_empty());
    let key = "key 3";
    let rescheduled =
        with(periodic(NOW + 9, "every 7"), |timer| timer.idempotency_key = Some(key.to_owned()));
    changed(commit(store, Change::Start(rescheduled)));
    assert_eq!(found(store, rows[5].key, 100), [9]);
}

fn an_end_removes_a_timer_or_moves_it_to_its_next_run(store: &mut Store) {
    let once = start(store, timer(0, 100));
    assert!(matches!(commit(store, end(once.held(), None)), Outcome::Done(None)));
    let row = start(store, periodic(100, "every 5"));
    let next = moved(commit(store, end(row.held(), Some(105))));
    assert_eq!((next.key.due, next.scheduled, next.key.id), (105, 105, row.key.id));
    let skipped = moved(commit(store, Change::SkipTo { held: next.held(), next: 150 }));
    assert_eq!(load(store, 1000), [skipped]);
    assert_eq!(counts(store), [(1, 0), (0, 0)]);
}

fn a_change_of_another_run_is_missing(store: &mut Store) {
    let row = start(store, periodic(100, "every 5"));
    assert!(matches!(commit(store, Change::Claim { held: row.held() }), Outcome::Done(_)));
    moved(commit(store, end(row.held(), Some(105))));
    let error = || "no".to_owned();
    for change in [
        end(row.held(), Some(105)),
        Change::Claim { held: row.held() },
        Change::Retry { held: row.held(), due: 200, error: error() },
        Change::DeadLetter { held: row.held(), next: None, error: error() },
        Change::SkipTo { held: row.held(), next: 300 },
        Change::Cancel(TimerId::new(i64::MAX)),
        Change::Move { id: TimerId::new(i64::MAX), due: 1 },
    ] {
        let text = format!("{change:?}");
        assert!(matches!(commit(store, change), Outcome::Missing), "{text}");
    }
    assert_eq!(dues(&load(store, 1000)), [105]);
}

fn a_retry_keeps_the_scheduled_time(store: &mut Store) {
    let row = start(store, timer(0, 100));
    let change = Change::Retry { held: row.held(), due: 200, error: "no\0 luck".to_owned() };
    let again = moved(commit(store, change));
    assert_eq!((again.key.due, again.scheduled, again.attempts), (200, 100, 1));
    let info = &store.list(&TimerFilter::new()).unwrap()[0];
    assert_eq!((info.attempts, info.state), (1, TimerState::Pending));
    assert!(info.error.as_ref().unwrap().ends_with(" luck"));
}

fn dead_letters_are_listed_and_run_again(store: &mut Store) {
    let row = start(store, timer(0, 100));
    start(store, timer(0, 100));
    let dead_letter = Change::DeadLetter { held: row.held(), next: None, error: "broken".to_owned() };
    assert!(matches!(commit(store, dead_letter), Outcome::Done(None)));
    assert_eq!(counts(store), [(1, 1), (0, 0)]);
    let dead = store.list(&TimerFilter::new().state(TimerState::Dead)).unwrap();
    assert_eq!((dead.len(), dead[0].id, dead[0].attempts), (1, row.key.id, 1));
    assert_eq!((dead[0].error.as_deref(), dead[0].topic.as_str()), (Some("broken"), "a"));
    let again = moved(commit(store, Change::Move { id: row.key.id, due: 500 }));
    assert_eq!((again.key.due, again.scheduled, again.attempts), (500, 500, 0));
    assert_eq!(counts(store), [(2, 0), (0, 0)]);
    assert_eq!(dues(&load(store, 1000)), [100, 500]);
}

fn a_dead_run_of_a_periodic_timer_is_a_copy(store: &mut Store) {
    let row = start(store, periodic(100, "every 5"));
    let dead_letter = Change::DeadLetter { held: row.held(), next: Some(105), error: "broken".to_owned() };
    let next = moved(commit(store, dead_letter));
    assert_eq!((next.key.id, next.key.due, next.attempts), (row.key.id, 105, 0));
    let dead = store.list(&TimerFilter::new().state(TimerState::Dead)).unwrap();
    assert_eq!((dead.len(), dead[0].schedule.as_deref(), dead[0].key.as_deref()), (1, None, None));
    assert_ne!(dead[0].id, row.key.id);
    assert_eq!(dead[0].payload, "100");
    assert_eq!(counts(store), [(1, 1), (0, 0)]);
    commit(store, Change::Cancel(dead[0].id));
    assert_eq!(counts(store), [(1, 0), (0, 0)]);
}

fn commands_move_and_cancel(store: &mut Store) {
    let row = start(store, timer(0, 100));
    let later = moved(commit(store, Change::Move { id: row.key.id, due: 900 }));
    assert_eq!((later.key.due, later.scheduled), (900, 900));
    assert!(matches!(commit(store, Change::Cancel(row.key.id)), Outcome::Done(None)));
    assert!(matches!(commit(store, Change::Cancel(row.key.id)), Outcome::Missing));
    assert_eq!((load(store, 1000), counts(store)), (Vec::new(), [(0, 0), (0, 0)]));
}

/// Writes to a table of the program, in the store's database.
fn execute(transaction: &mut StoreTransaction<'_>, sql: &str) -> netwheel::Result {
    #[cfg(feature = "rusqlite-040")]
    if let Ok(connection) = transaction.sqlite() {
        return connection.execute_batch(sql).map_err(netwheel::Error::other);
    }
    transaction.postgres()?.batch_execute(sql).map_err(netwheel::Error::other)
}

fn count_rows(transaction: &mut StoreTransaction<'_>, sql: &str) -> netwheel::Result<i64> {
    #[cfg(feature = "rusqlite-040")]
    if let Ok(connection) = transaction.sqlite() {
        return connection.query_row(sql, [], |row| row.get(0)).map_err(netwheel::Error::other);
    }
    Ok(transaction.postgres()?.query_one(sql, &[]).map_err(netwheel::Error::other)?.get(0))
}

fn effect(run: impl FnMut(&mut StoreTransaction<'_>) -> netwheel::Result + Send + 'static) -> Option<Effect> {
    Some(Box::new(run))
}

fn effects_are_stored_with_the_end_or_not_at_all(store: &mut Store) {
    let rows: Vec<TimerRow> = (0..5).map(|n| start(store, timer(0, n))).collect();
    let table = std::thread::current().name().unwrap().replace("::", "_");
    let create = format!("CREATE TABLE {table} (n INTEGER NOT NULL)");
    let insert = format!("INSERT INTO {table} VALUES (7)");
    let broken = format!("INSERT INTO {table} VALUES (8); INSERT INTO {table} VALUES (NULL)");
    let lost = format!("INSERT INTO {table} VALUES (9)");
    let mut changes = [
        Change::End {
            held: rows[0].held(),
            next: None,
            effect: effect(move |tx| execute(tx, &create).and_then(|()| execute(tx, &insert))),
        },
        Change::End { held: rows[1].held(), next: None, effect: effect(move |tx| execute(tx, &broken)) },
        Change::End {
            held: rows[2].held(),
            next: None,
            effect: effect(move |tx| {
                execute(tx, &lost)?;
                panic!("on purpose")
            }),
        },
        end(rows[3].held(), None),
    ];
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    assert!(matches!(outcomes[0], Outcome::Done(None)), "{outcomes:?}");
    assert!(matches!(outcomes[1], Outcome::Refused(StoreError::Effect(_))), "{outcomes:?}");
    assert!(matches!(outcomes[2], Outcome::Refused(StoreError::Effect(_))), "{outcomes:?}");
    assert!(matches!(outcomes[3], Outcome::Done(None)), "{outcomes:?}");
    assert_eq!(counts(store)[0], (3, 0));
    let (sender, found) = std::sync::mpsc::channel();
    let count = format!("SELECT count(*) FROM {table}");
    let counting = effect(move |tx| sender.send(count_rows(tx, &count)?).map_err(netwheel::Error::other));
    commit(store, Change::End { held: rows[4].held(), next: None, effect: counting });
    assert_eq!(found.recv().unwrap(), 1);
    assert_eq!(dues(&load(store, 1000)), [1, 2]);
}

/// The store cannot know what such an effect has committed.
fn an_effect_that_ends_the_transaction_stops_the_store(store: &mut Store) {
    for sql in ["COMMIT", "ROLLBACK"] {
        let rows = [start(store, timer(0, 1)), start(store, timer(0, 2))];
        let effect = effect(move |tx| execute(tx, sql));
        let mut changes =
            [end(rows[0].held(), None), Change::End { held: rows[1].held(), next: None, effect }];
        let error = store.commit(&mut changes, NOW).unwrap_err();
        assert!(!error.is_transient(), "{sql}: {error}");
    }
}

/// A timer that is larger than the limit is alone in its answer.
fn loads_are_limited_by_bytes_and_continue(store: &mut Store) {
    let sizes = [100, 100, 5000, 100, 100, 100, 900];
    let sized = |(n, size): (usize, &usize)| {
        let key = Some(format!("{n:010}"));
        with(timer(n % 2, 100 + n as i64), |timer| {
            timer.payload = vec![b'1'; size - 10];
            timer.idempotency_key = key;
        })
    };
    let mut starts: Vec<Change> = sizes.iter().enumerate().map(sized).map(Change::Start).collect();
    store.commit(&mut starts, NOW).unwrap();
    // With the second limits, some payloads are small enough for three of them.
    for (limit, max_bytes) in [(100, 300), (3, 900)] {
        let mut range = with(LoadRange::new(TopicSet::ALL, 1000), |range| {
            range.limit = limit;
            range.max_bytes = max_bytes;
        });
        let mut answers = Vec::new();
        loop {
            let Loaded { rows, is_complete, .. } = store.load(range).unwrap();
            answers.push(rows.iter().map(|row| row.payload.len() + 10).collect::<Vec<_>>());
            if is_complete {
                break;
            }
            range.after = rows.last().unwrap().key;
        }
        assert_eq!(answers, [&[100, 100][..], &[5000], &[100, 100, 100], &[900]]);
    }
}

fn loads_are_merged_from_many_topics(store: &mut Store) {
    let names: Vec<String> = (0..40).map(|number| format!("topic {number}")).collect();
    store.attach(&names).unwrap();
    let due = |number: i64| number * 7919 % 50;
    let mut changes: Vec<Change> =
        (0..300).map(|number| Change::Start(timer(number as usize * 31 % 40, due(number)))).collect();
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    let mut expected: Vec<(DueKey, usize)> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Started(row) => (row.key, row.topic),
            other => panic!("{other:?}"),
        })
        .collect();
    expected.sort_unstable();
    let mut range = with(LoadRange::new(TopicSet::ALL, 49), |range| range.limit = 7);
    let mut loaded = Vec::new();
    loop {
        let Loaded { rows, is_complete, .. } = store.load(range).unwrap();
        assert!(rows.iter().all(|row| row.payload == row.key.due.to_string().as_bytes()));
        loaded.extend(rows.iter().map(|row| (row.key, row.topic)));
        match rows.last() {
            Some(last) if !is_complete => range.after = last.key,
            _ => break,
        }
    }
    assert_eq!(loaded, expected);
}

fn the_last_of_several_schedules_counts(store: &mut Store) {
    start(store, periodic(NOW + 1, "every 1"));
    let schedules = ["every 2", "every 1", "every 3", "every 1"];
    let starts = schedules.map(|schedule| Change::Start(periodic(NOW + 1, schedule)));
    store.commit(&mut { starts }, NOW).unwrap();
    assert_eq!(load(store, NOW + 1000)[0].schedule.as_deref(), Some("every 1"));
}

fn replacing(timer: NewTimer, payload: &str) -> NewTimer {
    with(timer, |timer| {
        timer.payload = payload.into();
        timer.replaces_payload = true;
    })
}

fn a_payload_is_replaced_and_nothing_else(store: &mut Store) {
    // A stored timer, a run whose time has come, a periodic timer, and a dead letter.
    let [later, due] = [(NOW + 1000, "later"), (NOW - 1, "due")].map(|(due, key)| keyed(due, key));
    for timer in [later, due, periodic(NOW + 1000, "every 5")] {
        let before = start(store, timer.clone());
        let moved = with(timer, |timer| timer.due = NOW + 5000);
        let after = rescheduled(store, replacing(moved, "new"));
        assert_eq!(after, with(before, |row| row.payload = b"new".into()));
        assert!(load(store, i64::MAX).contains(&after));
    }
    let held = start(store, keyed(NOW, "dead")).held();
    commit(store, Change::DeadLetter { held, next: None, error: "e".to_owned() });
    let known = commit(store, Change::Start(replacing(keyed(NOW, "dead"), "new")));
    assert!(matches!(known, Outcome::AlreadyStarted { changed: None, .. }), "{known:?}");
    let dead = store.list(&TimerFilter::new().state(TimerState::Dead)).unwrap().remove(0);
    assert_eq!((dead.payload.as_str(), dead.error.as_deref()), ("new", Some("e")));
    // Without a key, and with an unknown one, it is a start like any other.
    start(store, replacing(timer(0, NOW), "new"));
    start(store, replacing(keyed(NOW, "other"), "new"));
    assert_eq!(counts(store), [(5, 1), (0, 0)]);
}

fn a_new_payload_and_an_end_are_made_in_order(store: &mut Store) {
    let run = start(store, periodic(NOW, "every 5"));
    let replace = |payload| Change::Start(replacing(periodic(NOW, "every 5"), payload));
    let mut changes = [replace("1"), end(run.held(), Some(NOW + 5)), replace("2")];
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    let texts = |row: &TimerRow| (row.key.due, String::from_utf8(row.payload.clone()).unwrap());
    assert_eq!(texts(&changed(outcomes[0].clone())), (NOW, "1".to_owned()));
    assert_eq!(texts(&moved(outcomes[1].clone())), (NOW + 5, "1".to_owned()));
    assert_eq!(texts(&changed(outcomes[2].clone())), (NOW + 5, "2".to_owned()));
}

fn a_periodic_start_does_not_change_a_one_shot_timer(store: &mut Store) {
    let row = start(store, keyed(NOW + 1, "periodic"));
    let outcome = commit(store, Change::Start(periodic(NOW + 2, "every 1")));
    assert!(
        matches!(outcome, Outcome::AlreadyStarted { id, changed: None } if id == row.key.id),
        "{outcome:?}"
    );
    assert_eq!(load(store, NOW + 1000), [row]);
}

fn a_transaction_of_the_program_is_stored_or_undone(store: &mut Store) {
    let table = std::thread::current().name().unwrap().replace("::", "_");
    let create = format!("CREATE TABLE {table} (n INTEGER NOT NULL)");
    store.transaction(&mut effect(move |tx| execute(tx, &create)).unwrap()).unwrap();
    let broken = format!("INSERT INTO {table} VALUES (1); INSERT INTO {table} VALUES (NULL)");
    let error = store.transaction(&mut effect(move |tx| execute(tx, &broken)).unwrap()).unwrap_err();
    assert!(matches!(error, StoreError::Effect(_)), "{error}");
    let error = store.transaction(&mut effect(|_| panic!("on purpose")).unwrap()).unwrap_err();
    assert!(matches!(error, StoreError::Effect(_)), "{error}");
    let (sender, found) = std::sync::mpsc::channel();
    let count = format!("SELECT count(*) FROM {table}");
    let counting = move |tx: &mut StoreTransaction<'_>| {
        sender.send(count_rows(tx, &count)?).map_err(netwheel::Error::other)
    };
    store.transaction(&mut effect(counting).unwrap()).unwrap();
    assert_eq!(found.recv().unwrap(), 0);
}

fn changes_of_one_timer_are_made_in_order(store: &mut Store) {
    let row = start(store, keyed(100, "k"));
    let id = row.key.id;
    let mut changes = [
        Change::Move { id, due: 200 },
        end(row.held(), None),
        Change::Move { id, due: 300 },
        Change::Cancel(id),
        Change::Start(keyed(400, "k")),
        Change::Cancel(id),
    ];
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    let [first, second, third, fourth, fifth, sixth] = &outcomes[..] else { panic!("{outcomes:?}") };
    assert!(matches!(first, Outcome::Done(Some(row)) if row.key.due == 200));
    assert!(matches!(second, Outcome::Missing), "the run is another one: {second:?}");
    assert!(matches!(third, Outcome::Done(Some(row)) if row.key.due == 300));
    assert!(matches!(fourth, Outcome::Done(None)));
    assert!(matches!(fifth, Outcome::AlreadyStarted { id: ended, .. } if *ended == id));
    assert!(matches!(sixth, Outcome::Missing));
}

fn many_changes_share_a_transaction(store: &mut Store) {
    let mut starts: Vec<Change> = (0..500).map(|n| Change::Start(timer(0, n))).collect();
    let outcomes = store.commit(&mut starts, NOW).unwrap();
    let rows: Vec<TimerRow> = outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Outcome::Started(row) => row,
            other => panic!("{other:?}"),
        })
        .collect();
    assert!(rows.is_sorted_by_key(|row| row.key));
    // Of each five: ended, retried, dead_lettered, claimed, cancelled.
    let change = |row: &TimerRow| match row.key.due % 5 {
        0 => end(row.held(), None),
        1 => Change::Retry { held: row.held(), due: row.key.due + 1000, error: "again".to_owned() },
        2 => Change::DeadLetter { held: row.held(), next: None, error: "broken".to_owned() },
        3 => Change::Claim { held: row.held() },
        _ => Change::Cancel(row.key.id),
    };
    let mut changes: Vec<Change> = rows.iter().map(change).collect();
    changes.extend((0..100).map(|n| Change::Start(timer(1, n))));
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    assert!(outcomes[..500].iter().all(|outcome| matches!(outcome, Outcome::Done(_))));
    assert!(outcomes[500..].iter().all(|outcome| matches!(outcome, Outcome::Started(_))));
    assert_eq!(counts(store), [(200, 100), (100, 0)]);
    assert_eq!(load(store, 10_000).len(), 300);
}

fn pages_of_a_listing_are_complete(store: &mut Store) {
    let mut starts: Vec<Change> = (0..10).map(|n| Change::Start(timer(n % 2, 50 - n as i64))).collect();
    store.commit(&mut starts, NOW).unwrap();
    let filter = TimerFilter::new().topic("b").limit(2);
    let mut found = store.list(&filter).unwrap();
    while let Some(last) = found.last().map(|info| info.id) {
        let page = store.list(&filter.clone().after(last)).unwrap();
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    assert_eq!(found.len(), 5);
    assert!(found.is_sorted_by_key(|info| info.id));
    assert!(found.iter().all(|info| info.topic == "b" && info.state == TimerState::Pending));
    assert_eq!(store.list(&TimerFilter::new().topic("none")).unwrap(), []);
    assert_eq!(store.list(&TimerFilter::new().topic("a\0")).unwrap(), []);
    assert_eq!(store.list(&TimerFilter::new().state(TimerState::Dead)).unwrap(), []);
}

/// A text that a store cannot keep fails alone, and the others are kept as they are.
fn texts_of_any_kind_are_stored(store: &mut Store) {
    let key = "Grüße '; DROP TABLE timers; -- \u{1f600}{schema}$1";
    let odd = with(keyed(100, key), |timer| timer.payload = vec![0, 255, 10]);
    let mut changes = [Change::Start(odd), Change::Start(keyed(200, "nul\0")), Change::Start(timer(9, 1))];
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    assert!(matches!(&outcomes[0], Outcome::Started(_)));
    assert!(matches!(&outcomes[1], Outcome::Started(_) | Outcome::Refused(_)));
    assert!(matches!(&outcomes[2], Outcome::Refused(_)));
    let loaded = load(store, 150);
    assert_eq!(
        (loaded[0].idempotency_key.as_deref(), &loaded[0].payload[..]),
        (Some(key), &[0, 255, 10][..])
    );
}

fn unknown_topics_are_counted_and_not_loaded(store: &mut Store) {
    start(store, timer(0, 100));
    start(store, timer(1, 100));
    let counts = store.attach(&["b".to_owned()]).unwrap();
    assert_eq!(counts.iter().map(|topic| topic.pending).sum::<u64>(), 2);
    let rows = load(store, 1000);
    assert_eq!((rows.len(), rows[0].topic, &rows[0].payload[..]), (1, 0, &b"100"[..]));
}
