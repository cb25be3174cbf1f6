//! Timers that are started in transactions of the program, on an SQLite file.

use crate::{
    support::{
        loops::{end, one_loop},
        process::are_installed,
        wait::{HOUR, done, ms, receive},
    },
    timers::{File, Runs, sending, started},
};
use netwheel::{
    Error, EventLoopGroup,
    durable::{
        Due, DurableTimers, Late, Retry, SqliteStore, StoreError, TimerFilter, TimerId, Topic,
        rusqlite::{Connection, OpenFlags, TransactionBehavior},
    },
};
use std::{
    process::Command,
    sync::mpsc::channel,
    time::{Duration, Instant, SystemTime},
};

/// A program's own connection to the file, with a table of its own.
fn database(file: &File) -> Connection {
    let connection = Connection::open(file.path()).unwrap();
    connection.execute_batch("CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY)").unwrap();
    connection
}

fn pending(timers: &DurableTimers) -> u64 {
    done(timers.counts()).unwrap().iter().map(|topic| topic.pending).sum()
}

#[track_caller]
fn store_error<T>(result: Result<T, Error>) -> StoreError {
    let error = result.err().expect("the store refuses it");
    StoreError::of(&error).unwrap_or_else(|| panic!("{error:?}")).clone()
}

/// Repeats a start that found the file locked: on a slow disk, the other connection can hold the
/// lock for longer than either of them waits.
fn until_free(start: impl Fn() -> Result<TimerId, Error>) {
    loop {
        match start() {
            Ok(_) => return,
            Err(error) => {
                let error = store_error(Err::<TimerId, _>(error));
                assert!(matches!(error, StoreError::Busy(_)), "{error:?}");
            }
        }
    }
}

#[test]
fn a_timer_is_stored_with_the_row_of_its_order_or_not_at_all() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let mut database = database(&file);
    let order = |database: &mut Connection, id: i64, is_kept: bool| {
        let order = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        order.execute("INSERT INTO orders VALUES (?1)", [id]).unwrap();
        let timer = timers.at("topic", ms(0), &format!("order {id}")).key(format!("order-{id}"));
        let id = timer.start_in(&order).unwrap();
        if is_kept { order.commit() } else { order.rollback() }.unwrap();
        id
    };
    order(&mut database, 1, false);
    order(&mut database, 2, true);
    order(&mut database, 3, false);
    order(&mut database, 4, true);
    assert_eq!([receive(&runs), receive(&runs)], ["order 2", "order 4"]);
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());
    let orders: i64 = database.query_row("SELECT sum(id) FROM orders", [], |row| row.get(0)).unwrap();
    assert_eq!(orders, 6);
    end(&group);
}

#[test]
fn the_row_is_the_one_that_the_store_writes() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let database = database(&file);
    let at = SystemTime::now() + HOUR;
    let one = || timers.at("topic", at, "payload");
    let daily = || timers.cron("topic", "0 9 * * *", "Asia/Shanghai", "p").unwrap();
    let ids = [
        done(one().key("a").start()).unwrap(),
        one().key("b").start_in(&database).unwrap(),
        done(one().start()).unwrap(),
        one().start_in(&database).unwrap(),
        done(daily().key("c").start()).unwrap(),
        daily().key("d").start_in(&database).unwrap(),
    ];
    assert_eq!(ids.map(|id| id.get()), [1, 2, 3, 4, 5, 6]);
    let list = done(timers.list(TimerFilter::new())).unwrap();
    for pair in list.chunks(2) {
        let mut same = pair[0].clone();
        (same.id, same.key) = (pair[1].id, pair[1].key.clone());
        assert_eq!(same, pair[1]);
    }
    assert_eq!(pending(&timers), 6);
    let columns = "SELECT group_concat(name) FROM pragma_table_info('timers')";
    let columns: String = database.query_row(columns, [], |row| row.get(0)).unwrap();
    let columns = columns.replace("id,", "").replace("key,", "");
    let kinds = format!("SELECT count(*) FROM (SELECT DISTINCT {columns} FROM timers)");
    assert_eq!(database.query_row(&kinds, [], |row| row.get::<_, i64>(0)), Ok(2));
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn keys_are_known_in_both_directions() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let database = database(&file);
    let start = |key: &str| timers.at("topic", HOUR, "x").key(key);
    let first = done(start("pending").start()).unwrap();
    assert_eq!(start("pending").start_in(&database).unwrap(), first);
    let second = start("in").start_in(&database).unwrap();
    assert_eq!(done(start("in").start()).unwrap(), second);
    let ended = done(start("ended").start()).unwrap();
    assert!(done(timers.cancel(ended)).unwrap());
    assert_eq!(start("ended").start_in(&database).unwrap(), ended);
    assert_eq!(pending(&timers), 2);
    assert!(done(timers.run_key("topic", "in")).unwrap());
    assert_eq!(receive(&runs), "x");

    let every = |period| timers.every("topic", period, "x");
    let id = every(HOUR).start_in(&database).unwrap();
    assert_eq!(every(HOUR).start_in(&database).unwrap(), id);
    assert!(matches!(store_error(every(2 * HOUR).start_in(&database)), StoreError::OtherSchedule));
    let replaced = every(HOUR).replace_payload().start_in(&database);
    assert!(matches!(replaced, Err(Error::Setting(_))), "{replaced:?}");
    done(timers.close()).unwrap();
    end(&group);
}

/// A failed start undoes its own changes, and nothing else.
#[test]
fn a_transaction_goes_on_after_a_start_that_failed() {
    let file = File::new();
    let (group, timers, _runs) = started(&file);
    let mut database = database(&file);
    let order = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    order.execute("INSERT INTO orders VALUES (1)", []).unwrap();
    timers.every("topic", HOUR, "x").start_in(&order).unwrap();
    assert!(timers.every("topic", 2 * HOUR, "x").start_in(&order).is_err());
    assert!(timers.at("unknown", HOUR, "x").start_in(&order).is_err());
    order.commit().unwrap();
    assert_eq!(pending(&timers), 1);
    assert_eq!(database.query_row("SELECT count(*) FROM orders", [], |row| row.get::<_, i64>(0)), Ok(1));
    // In a savepoint that is rolled back too.
    let mut order = database.transaction().unwrap();
    let savepoint = order.savepoint().unwrap();
    timers.at("topic", HOUR, "x").start_in(&savepoint).unwrap();
    savepoint.finish().unwrap();
    timers.at("topic", HOUR, "x").start_in(&order).unwrap();
    order.commit().unwrap();
    assert_eq!(pending(&timers), 2);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn connections_to_other_databases_are_refused() {
    let (file, other) = (File::new(), File::new());
    let (group, timers, _runs) = started(&file);
    drop(SqliteStore::open(other.path()).unwrap());
    let copy = File::new();
    std::fs::copy(file.path(), copy.path()).unwrap();
    let strangers = [
        Connection::open_in_memory().unwrap(),
        Connection::open(File::new().path()).unwrap(),
        Connection::open(other.path()).unwrap(),
        Connection::open(copy.path()).unwrap(),
    ];
    for stranger in &strangers {
        let refused = timers.at("topic", HOUR, "x").start_in(stranger);
        assert!(matches!(store_error(refused), StoreError::OtherStore));
    }
    // No other connection reaches a store in memory.
    let (topic, _runs) = sending("topic");
    let in_memory =
        DurableTimers::builder(SqliteStore::in_memory().unwrap()).topic(topic).start(&group).unwrap();
    let refused = in_memory.at("topic", HOUR, "x").start_in(&strangers[0]);
    assert!(matches!(store_error(refused), StoreError::OtherStore));

    // The transaction of another store is in another file.
    let strange = DurableTimers::builder(SqliteStore::open(other.path()).unwrap()).start(&group).unwrap();
    let handle = timers.clone();
    let refused =
        strange.transaction(move |transaction| Ok(handle.at("topic", HOUR, "x").start_in(transaction)));
    assert!(matches!(store_error(done(refused).unwrap()), StoreError::OtherStore));
    done(strange.close()).unwrap();

    // A link leads to the same file, and a connection that only reads writes nothing.
    #[cfg(unix)]
    {
        let link = file.path().with_extension("link");
        std::os::unix::fs::symlink(file.path(), &link).unwrap();
        timers.at("topic", HOUR, "x").start_in(&Connection::open(link).unwrap()).unwrap();
    }
    let reader = Connection::open_with_flags(file.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    assert!(matches!(store_error(timers.at("topic", HOUR, "x").start_in(&reader)), StoreError::Failed(_)));
    assert!(reader.is_autocommit());
    done(timers.close()).unwrap();
    end(&group);
}

/// Timers of other connections fire in time, before and after those of the store.
#[test]
fn timers_of_both_kinds_fire_while_both_are_started() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let path = file.path();
    let expected = std::thread::scope(|scope| {
        let own = scope.spawn(|| {
            for n in 0..300 {
                let start = || done(timers.at("topic", ms(n % 20), &format!("own {n}")).start());
                until_free(start);
            }
        });
        let database = Connection::open(path).unwrap();
        for n in 0..300 {
            let payload = format!("other {n}");
            until_free(|| timers.at("topic", ms(n % 20), &payload).start_in(&database));
        }
        own.join().unwrap();
        600
    });
    let mut fired: Vec<String> = (0..expected).map(|_| receive(&runs)).collect();
    fired.sort();
    fired.dedup();
    assert_eq!(fired.len(), expected);
    done(timers.close()).unwrap();
    assert_eq!(runs.try_recv().ok(), None);
    end(&group);
}

/// More timers than one look returns, while the loop cannot take them.
#[test]
fn thousands_of_timers_in_one_transaction_fire_once() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let mut database = database(&file);
    let many = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    for n in 0..5000 {
        timers.at("topic", ms(0), &n.to_string()).start_in(&many).unwrap();
    }
    many.commit().unwrap();
    let mut fired: Vec<u32> = (0..5000).map(|_| receive(&runs).parse().unwrap()).collect();
    fired.sort_unstable();
    assert_eq!(fired, (0..5000).collect::<Vec<_>>());
    done(timers.close()).unwrap();
    assert_eq!((runs.try_recv().ok(), timers.metrics().stale), (None, 0));
    end(&group);
}

/// The timers get no notification of a commit that comes long after the start.
#[test]
fn a_transaction_that_takes_long_is_found_when_it_is_committed() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let mut database = database(&file);
    let slow = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
    timers.at("topic", ms(0), "slow").start_in(&slow).unwrap();
    // The looks see nothing of it, while the store can only read.
    let before = Instant::now();
    while before.elapsed() < ms(300) {
        assert!(runs.try_recv().is_err());
        done(timers.counts()).unwrap();
    }
    slow.commit().unwrap();
    assert_eq!(receive(&runs), "slow");
    done(timers.close()).unwrap();
    end(&group);
}

/// A timer of each run, in the transaction that ends it.
fn chain(group: &EventLoopGroup, store: SqliteStore) -> (DurableTimers, Runs) {
    let (sender, runs) = channel();
    let topic =
        Topic::new("topic", Late::RunOnce, Retry::backoff(3).initial(ms(1)), move |due: Due<String>| {
            let (timers, attempt) = (due.timers(), due.attempt());
            sender.send(due.payload().clone()).unwrap();
            let left = due.payload().parse::<u32>().unwrap().checked_sub(1);
            due.done_with(move |transaction| {
                if let Some(left) = left {
                    timers.at("topic", ms(0), &left.to_string()).start_in(transaction)?;
                }
                // The timer of the first attempt is rolled back.
                if attempt == 1 { Err(Error::other("the first time")) } else { Ok(()) }
            });
        });
    (DurableTimers::builder(store).topic(topic).start(group).unwrap(), runs)
}

#[test]
fn a_run_starts_the_next_timer_in_the_transaction_that_ends_it() {
    let file = File::new();
    for store in [SqliteStore::open(file.path()).unwrap(), SqliteStore::in_memory().unwrap()] {
        let group = one_loop();
        let (timers, runs) = chain(&group, store);
        done(timers.at("topic", ms(0), "3").start()).unwrap();
        let fired: Vec<String> = (0..8).map(|_| receive(&runs)).collect();
        assert_eq!(fired, ["3", "3", "2", "2", "1", "1", "0", "0"]);
        done(timers.close()).unwrap();
        assert_eq!((runs.try_recv().ok(), timers.metrics().pending), (None, 0));
        end(&group);
    }
}

#[test]
fn a_transaction_of_the_store_starts_timers() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    let handle = timers.clone();
    let start = |is_kept: bool| {
        let handle = handle.clone();
        done(timers.transaction(move |transaction| {
            let id = handle.at("topic", ms(0), "kept").start_in(transaction)?;
            if is_kept { Ok(id) } else { Err(Error::other("undone")) }
        }))
    };
    assert!(start(false).is_err());
    start(true).unwrap();
    assert_eq!(receive(&runs), "kept");
    drop(handle);
    done(timers.close()).unwrap();
    end(&group);
}

/// Closing the last other connection neither empties nor removes the log of the store.
#[test]
fn the_store_goes_on_after_other_connections_and_a_shell_were_closed() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    for n in 0..3 {
        let database = database(&file);
        timers.at("topic", HOUR, "in").start_in(&database).unwrap();
        drop(database);
        done(timers.at("topic", HOUR, "own").start()).unwrap();
        assert_eq!(pending(&timers), 2 * (n + 1));
    }
    if are_installed(&["sqlite3"]) {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE); SELECT count(*) FROM timers;";
        let output = Command::new("sqlite3").arg(file.path()).arg(sql).output().unwrap();
        assert!(String::from_utf8_lossy(&output.stdout).ends_with("6\n"), "{output:?}");
        done(timers.at("topic", ms(0), "after").start()).unwrap();
        assert_eq!(receive(&runs), "after");
    }
    done(timers.close()).unwrap();
    drop(group);
    let (group, timers, _runs) = started(&file);
    assert_eq!(pending(&timers), 6);
    let damage = "PRAGMA integrity_check";
    let text = database(&file).query_row(damage, [], |row| row.get::<_, String>(0));
    assert_eq!(text.as_deref(), Ok("ok"));
    done(timers.close()).unwrap();
    end(&group);
}

/// A program that only writes rows, such as a second process, gives no hint.
#[test]
fn rows_of_another_process_are_found_within_about_a_second() {
    let file = File::new();
    let (group, timers, runs) = started(&file);
    // The hint of this handle goes to timers that do not fire.
    let copied: Connection = database(&file);
    timers.at("topic", HOUR, "template").start_in(&copied).unwrap();
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64;
    let sql = "BEGIN IMMEDIATE;
        INSERT INTO timers (topic, state, due, scheduled, attempts, payload)
            SELECT topic, 0, $now, $now, 0, '\"foreign\"' || '' FROM timers;
        UPDATE topics SET pending = pending + 1; COMMIT"
        .replace("$now", &now.to_string())
        .replace("'\"foreign\"' || ''", "CAST('\"foreign\"' AS BLOB)");
    let begun = std::time::Instant::now();
    copied.execute_batch(&sql).unwrap();
    assert_eq!(receive(&runs), "foreign");
    // The interval of looking for such rows is the promise, and the file changes in real time. Ten
    // intervals are enough on a slow machine.
    assert!(begun.elapsed() < Duration::from_secs(10));
    done(timers.close()).unwrap();
    end(&group);
}
