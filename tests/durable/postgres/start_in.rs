//! Timers that are started in transactions of the program, in PostgreSQL.

use super::{
    server::{Server, server},
    stores::{load, node, renew_until, renewed},
};
use crate::{
    support::{
        loops::{end, one_loop},
        wait::{HOUR, done, ms, receive},
    },
    timers::{Runs, sending},
};
use netwheel::{
    Error, EventLoopGroup,
    durable::{
        Due, DurableTimers, Late, PostgresStore, Retry, StoreError, TimerFilter, TimerStore, Topic,
        postgres::{Client, NoTls},
    },
};
use std::{
    sync::mpsc::channel,
    time::{Duration, SystemTime},
};

fn opened(server: &Server, schema: &str) -> (EventLoopGroup, DurableTimers, Runs) {
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let timers =
        DurableTimers::builder(server.builder(schema).open().unwrap()).topic(topic).start(&group).unwrap();
    (group, timers, runs)
}

/// A client of the program, with a table of its own in the schema.
fn client(server: &Server, schema: &str) -> Client {
    let mut client = server.client();
    let sql = format!("CREATE TABLE IF NOT EXISTS {schema}.orders (id bigint PRIMARY KEY)");
    client.batch_execute(&sql).unwrap();
    client
}

fn number(client: &mut Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).unwrap().get(0)
}

fn pending(timers: &DurableTimers) -> u64 {
    done(timers.counts()).unwrap().iter().map(|topic| topic.pending).sum()
}

#[track_caller]
fn store_error<T>(result: Result<T, Error>) -> StoreError {
    let error = result.err().expect("the store refuses it");
    StoreError::of(&error).unwrap_or_else(|| panic!("{error:?}")).clone()
}

#[test]
fn a_timer_is_stored_with_the_row_of_its_order_or_not_at_all() {
    let Some(server) = server() else { return };
    let schema = "start_in_order";
    let (group, timers, runs) = opened(server, schema);
    let mut client = client(server, schema);
    let insert = format!("INSERT INTO {schema}.orders VALUES ($1)");
    for id in 1..=4i64 {
        let mut order = client.transaction().unwrap();
        order.execute(&insert, &[&id]).unwrap();
        let timer = timers.at("topic", ms(0), &format!("order {id}")).key(format!("order-{id}"));
        timer.start_in(&mut order).unwrap();
        if id % 2 == 0 { order.commit() } else { order.rollback() }.unwrap();
    }
    assert_eq!([receive(&runs), receive(&runs)], ["order 2", "order 4"]);
    assert_eq!(number(&mut client, &format!("SELECT sum(id)::bigint FROM {schema}.orders")), 6);
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());
    end(&group);
}

#[test]
fn the_row_is_the_one_that_the_store_writes() {
    let Some(server) = server() else { return };
    let schema = "start_in_row";
    let (group, timers, runs) = opened(server, schema);
    let mut client = client(server, schema);
    let at = SystemTime::now() + HOUR;
    let one = || timers.at("topic", at, "payload");
    let daily = || timers.cron("topic", "0 9 * * *", "Asia/Shanghai", "p").unwrap();
    done(one().key("a").start()).unwrap();
    one().key("b").start_in(&mut client).unwrap();
    done(daily().key("c").start()).unwrap();
    daily().key("d").start_in(&mut client).unwrap();
    let columns = format!(
        "SELECT string_agg(column_name::text, ', ') FROM information_schema.columns
        WHERE table_schema = '{schema}' AND table_name = 'timers'
        AND column_name NOT IN ('id', 'key', 'partition', 'changed_by', 'changed_in')"
    );
    let columns: String = client.query_one(&columns, &[]).unwrap().get(0);
    let kinds = format!("SELECT count(*) FROM (SELECT DISTINCT {columns} FROM {schema}.timers) k");
    assert_eq!(number(&mut client, &kinds), 2);
    assert_eq!(pending(&timers), 4);

    // Keys are known in both directions.
    let id = done(timers.find("topic", "b")).unwrap().unwrap().id;
    assert_eq!(done(one().key("b").start()).unwrap(), id);
    let id = done(timers.find("topic", "a")).unwrap().unwrap().id;
    assert_eq!(one().key("a").start_in(&mut client).unwrap(), id);
    assert!(done(timers.cancel(id)).unwrap());
    assert_eq!(one().key("a").start_in(&mut client).unwrap(), id);
    let weekly = timers.cron("topic", "0 9 * * MON", "Asia/Shanghai", "p").unwrap();
    assert!(matches!(store_error(weekly.key("d").start_in(&mut client)), StoreError::OtherSchedule));
    assert_eq!(pending(&timers), 3);
    assert!(done(timers.run_key("topic", "b")).unwrap());
    assert_eq!(receive(&runs), "payload");
    done(timers.close()).unwrap();
    end(&group);
}

/// Nothing but the server knows of a transaction that the program has begun with a statement.
#[test]
fn a_client_without_a_transaction_gets_one_and_one_with_a_transaction_keeps_it() {
    let Some(server) = server() else { return };
    let schema = "start_in_client";
    let (group, timers, runs) = opened(server, schema);
    let mut client = client(server, schema);
    timers.at("topic", ms(0), "alone").start_in(&mut client).unwrap();
    assert_eq!(receive(&runs), "alone");
    client.batch_execute("BEGIN").unwrap();
    timers.at("topic", ms(0), "undone").start_in(&mut client).unwrap();
    client.batch_execute("ROLLBACK; BEGIN").unwrap();
    timers.at("topic", ms(0), "kept").start_in(&mut client).unwrap();
    client.batch_execute("COMMIT").unwrap();
    assert_eq!(receive(&runs), "kept");
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());
    end(&group);
}

#[test]
fn connections_to_other_databases_are_refused() {
    let Some(server) = server() else { return };
    let schema = "start_in_elsewhere";
    let (group, timers, _runs) = opened(server, schema);
    server.client().batch_execute("CREATE DATABASE start_in_empty; ").unwrap();
    server.client().batch_execute("CREATE DATABASE start_in_other").unwrap();
    let config = |database: &str| server.config().replace("dbname=postgres", &format!("dbname={database}"));
    // A store with the same schema.
    let other = PostgresStore::builder(&config("start_in_other")).schema(schema).open().unwrap();
    for database in ["start_in_empty", "start_in_other"] {
        let mut client = Client::connect(&config(database), NoTls).unwrap();
        let refused = timers.at("topic", HOUR, "x").start_in(&mut client);
        assert!(matches!(store_error(refused), StoreError::OtherStore), "{database}");
    }
    #[cfg(feature = "rusqlite-040")]
    {
        let file = netwheel::durable::rusqlite::Connection::open_in_memory().unwrap();
        let refused = timers.at("topic", HOUR, "x").start_in(&file);
        assert!(matches!(store_error(refused), StoreError::OtherStore));
    }
    drop(other);
    assert_eq!(pending(&timers), 0);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn an_open_transaction_of_the_program_delays_no_other_start() {
    let Some(server) = server() else { return };
    let schema = "start_in_open";
    let (group, timers, runs) = opened(server, schema);
    let mut client = client(server, schema);
    let mut open = client.transaction().unwrap();
    for n in 0..200 {
        timers.at("topic", ms(0), &format!("open {n}")).start_in(&mut open).unwrap();
    }
    // More than there are partitions.
    for n in 0..200 {
        let text = n.to_string();
        done(timers.at("topic", ms(0), &text).start()).unwrap();
        assert_eq!(receive(&runs), text);
    }
    let mut second = server.client();
    timers.at("topic", ms(0), "second").start_in(&mut second).unwrap();
    assert_eq!(receive(&runs), "second");
    open.commit().unwrap();
    let mut fired: Vec<String> = (0..200).map(|_| receive(&runs)).collect();
    fired.sort();
    fired.dedup();
    assert_eq!(fired.len(), 200);
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());
    end(&group);
}

/// The server makes a start wait for the transaction that has its key. The others do not fail with
/// it.
#[test]
fn an_open_transaction_of_the_program_fails_no_start_with_another_key() {
    let Some(server) = server() else { return };
    let schema = "start_in_key";
    let group = one_loop();
    let (topic, _runs) = sending("topic");
    let store = server.builder(schema).request_timeout(ms(1000)).open().unwrap();
    let timers = DurableTimers::builder(store).topic(topic).start(&group).unwrap();
    let mut client = client(server, schema);
    let mut open = client.transaction().unwrap();
    let start = |key: &str| timers.at("topic", HOUR, "x").key(key);
    start("open").start_in(&mut open).unwrap();
    let keys = ["a", "b", "open", "c", "d"];
    let results = done(timers.start_many(keys.map(start))).unwrap();
    let failed: Vec<&str> =
        keys.iter().zip(&results).filter(|(_, result)| result.is_err()).map(|(key, _)| *key).collect();
    assert_eq!(failed, ["open"], "{results:?}");
    open.commit().unwrap();
    done(start("open").start()).unwrap();
    assert_eq!(pending(&timers), 5);
    done(timers.close()).unwrap();
    end(&group);
}

#[test]
fn a_run_starts_the_next_timer_in_the_transaction_that_ends_it() {
    let Some(server) = server() else { return };
    let group = one_loop();
    let (sender, runs) = channel();
    let topic = Topic::new("topic", Late::RunOnce, Retry::backoff(3).initial(ms(1)), move |due: Due<u32>| {
        let (timers, attempt, left) = (due.timers(), due.attempt(), *due.payload());
        sender.send(left).unwrap();
        due.done_with(move |transaction| {
            if left > 0 {
                timers.at("topic", ms(0), &(left - 1)).start_in(transaction)?;
            }
            // The timer of the first attempt is rolled back.
            if attempt == 1 { Err(Error::other("the first time")) } else { Ok(()) }
        });
    });
    let store = server.builder("start_in_chain").open().unwrap();
    let timers = DurableTimers::builder(store).topic(topic).start(&group).unwrap();
    done(timers.at("topic", ms(0), &2).start()).unwrap();
    assert_eq!((0..6).map(|_| receive(&runs)).collect::<Vec<_>>(), [2, 2, 1, 1, 0, 0]);
    done(timers.close()).unwrap();
    assert!(runs.try_recv().is_err());
    end(&group);
}

/// The program is none of the nodes that fire.
#[test]
fn timers_of_a_program_that_fires_nothing_are_fired_by_the_nodes() {
    let Some(server) = server() else { return };
    let schema = "start_in_program";
    let (group, node, runs) = opened(server, schema);
    let (topic, _none) = sending("topic");
    let store = server.builder(schema).open().unwrap();
    let program = DurableTimers::builder(store).topic(topic).paused().start(&group).unwrap();
    let mut client = client(server, schema);
    for n in 0..100 {
        program.at("topic", ms(0), &n.to_string()).start_in(&mut client).unwrap();
    }
    let mut fired: Vec<u32> = (0..100).map(|_| receive(&runs).parse().unwrap()).collect();
    fired.sort_unstable();
    assert_eq!(fired, (0..100).collect::<Vec<_>>());
    done(program.close()).unwrap();
    done(node.close()).unwrap();
    end(&group);
}

/// Now and then, nodes add the numbers of programs to those of partitions.
#[test]
fn the_numbers_of_timers_stay_right_when_they_are_added_up() {
    let Some(server) = server() else { return };
    let schema = "start_in_counts";
    let mut store = node(server, schema, Duration::from_secs(6));
    let group = one_loop();
    let (topic, _none) = sending("topic");
    let paused = server.builder(schema).open().unwrap();
    let timers = DurableTimers::builder(paused).topic(topic).paused().start(&group).unwrap();
    let mut clients = [client(server, schema), client(server, schema)];
    for client in &mut clients {
        timers.at("topic", HOUR, "x").start_in(client).unwrap();
    }
    let [client, other] = &mut clients;
    let mut open = other.transaction().unwrap();
    timers.at("topic", HOUR, "x").start_in(&mut open).unwrap();
    renew_until(&mut store, 8);
    for _ in 0..40 {
        renewed(&mut store);
    }
    let rows = format!("SELECT count(*) FROM {schema}.counts WHERE partition < 0");
    assert_eq!((number(client, &rows), store.counts().unwrap()[0].pending), (1, 2));
    open.commit().unwrap();
    assert_eq!(store.counts().unwrap()[0].pending, 3);
    assert_eq!((load(&mut store).len(), store.list(&TimerFilter::new()).unwrap().len()), (3, 3));
    done(timers.close()).unwrap();
    end(&group);
}
