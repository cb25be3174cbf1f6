//! Transactions of the program.

use super::{NOW, dues, open, start, timer};
use crate::support::{
    loops::{end, one_loop},
    wait::{done, ms, receive},
};
use netwheel::durable::{
    Due, DurableTimers, Late, MemoryDisk, MemoryTransaction, Retry, StoreError, StoreTransaction, TimerStore,
    Topic,
    store::{Change, Effect, Outcome},
};
use std::sync::mpsc::channel;

fn effect(work: impl FnMut(&mut StoreTransaction<'_>) -> netwheel::Result + Send + 'static) -> Effect {
    Box::new(work)
}

fn put(name: &'static str) -> Effect {
    effect(move |transaction| {
        transaction.connection::<MemoryTransaction>()?.put(name, b"1");
        Ok(())
    })
}

/// How an effect fails.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Error,
    Panic,
    /// With an error whose text panics.
    PanicOfError,
}

const FAILURES: [Failure; 3] = [Failure::Error, Failure::Panic, Failure::PanicOfError];

#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("on purpose")
    }
}

impl std::error::Error for Unspeakable {}

/// Stores a row, and then fails.
fn broken(failure: Failure) -> Effect {
    effect(move |transaction| {
        transaction.connection::<MemoryTransaction>()?.put("broken", b"1");
        match failure {
            Failure::Error => Err(netwheel::Error::other("on purpose")),
            Failure::Panic => panic!("on purpose"),
            Failure::PanicOfError => Err(netwheel::Error::other(Unspeakable)),
        }
    })
}

#[test]
fn effects_are_stored_with_the_end_or_not_at_all() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    let rows = [1, 2, 3, 4, 5].map(|due| start(&mut store, timer(due)));
    let end = |n: usize, effect| Change::End { held: rows[n].held(), next: None, effect };
    let [error, panic, of_error] = FAILURES.map(|failure| Some(broken(failure)));
    let mut changes =
        [end(0, Some(put("first"))), end(1, error), end(2, panic), end(3, of_error), end(4, None)];
    let outcomes = store.commit(&mut changes, NOW).unwrap();
    let is_refused = |outcome: &Outcome| matches!(outcome, Outcome::Refused(StoreError::Effect(_)));
    assert_eq!(outcomes.iter().map(is_refused).collect::<Vec<_>>(), [false, true, true, true, false]);
    assert_eq!(disk.rows().into_keys().collect::<Vec<_>>(), ["first"]);
    assert_eq!(dues(&mut store), [2, 3, 4]);
}

#[test]
fn a_transaction_of_the_program_is_stored_or_undone() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    store.transaction(&mut put("stored")).unwrap();
    for failure in FAILURES {
        let error = store.transaction(&mut broken(failure)).unwrap_err();
        assert!(matches!(error, StoreError::Effect(_)), "{error}");
    }
    let mut change = effect(|transaction| {
        let rows = transaction.connection::<MemoryTransaction>()?;
        assert_eq!(rows.get("stored"), Some(&b"1"[..]));
        rows.put("stored", b"2");
        rows.put("more", b"3");
        assert_eq!(rows.rows().collect::<Vec<_>>(), [("more", &b"3"[..]), ("stored", &b"2"[..])]);
        assert!(rows.remove("more") && !rows.remove("more"));
        Ok(())
    });
    store.transaction(&mut change).unwrap();
    assert_eq!(disk.rows().into_iter().collect::<Vec<_>>(), [("stored".to_owned(), b"2".to_vec())]);
}

#[test]
fn the_transaction_of_another_store_is_refused() {
    let disk = MemoryDisk::new();
    let mut store = open(&disk);
    let mut foreign = effect(|transaction| transaction.connection::<String>().map(drop));
    let error = store.transaction(&mut foreign).unwrap_err();
    assert!(matches!(error, StoreError::Effect(_)), "{error}");
    drop(store);

    let group = one_loop();
    let topic = || Topic::new("topic", Late::RunOnce, Retry::never(), |due: Due<u32>| due.done());
    let timers = DurableTimers::builder(disk.open().unwrap()).topic(topic()).start(&group).unwrap();
    let other =
        DurableTimers::builder(MemoryDisk::new().open().unwrap()).topic(topic()).start(&group).unwrap();
    let of_other = other.clone();
    let started =
        timers.transaction(move |transaction| of_other.at("topic", ms(0), &1).start_in(transaction));
    let error = done(started).unwrap_err();
    assert!(format!("{error:#}").contains("not to the database"), "{error:#}");
    done(timers.close()).unwrap();
    done(other.close()).unwrap();
    end(&group);
}

/// A handler starts the next timer in the transaction that ends its own, and fails once.
#[test]
fn a_follow_up_starts_with_the_end_of_its_timer() {
    let disk = MemoryDisk::new();
    let group = one_loop();
    let (sender, runs) = channel();
    let handle = move |due: Due<u32>| {
        let (number, attempt, timers) = (*due.payload(), due.attempt(), due.timers());
        sender.send((number, attempt)).unwrap();
        due.done_with(move |transaction| {
            timers.at("chain", ms(0), &(number + 1)).start_in(&mut *transaction)?;
            let rows = transaction.connection::<MemoryTransaction>()?;
            rows.put(&number.to_string(), b"");
            if attempt == 1 && number == 1 {
                return Err(netwheel::Error::other("on purpose"));
            }
            Ok(())
        });
    };
    let retry = Retry::backoff(3).initial(ms(1));
    let topic = Topic::new("chain", Late::RunOnce, retry, handle);
    let timers = DurableTimers::builder(disk.open().unwrap()).topic(topic).start(&group).unwrap();
    done(timers.at("chain", ms(0), &0).start()).unwrap();
    let seen: Vec<(u32, u32)> = (0..5).map(|_| receive(&runs)).collect();
    assert_eq!(seen, [(0, 1), (1, 1), (1, 2), (2, 1), (3, 1)]);
    done(timers.close()).unwrap();
    assert_eq!(disk.rows().into_keys().take(3).collect::<Vec<_>>(), ["0", "1", "2"]);
    end(&group);
}
