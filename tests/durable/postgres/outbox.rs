//! A node that starts timers in transactions of its own is killed at random moments, and its
//! connections are terminated. The timers that have fired are those whose rows were committed.

use super::server::{Server, server};
use crate::support::{
    loops::one_loop,
    process::{Process, play, plays},
    wait::ms,
};
use netwheel::{
    Error,
    durable::{
        Due, DurableTimers, Late, PostgresStore, Retry, Topic,
        postgres::{Client, NoTls},
    },
};
use std::io;

const SCHEMA: &str = "outbox";

/// Kills in the gate; `KILLS` sets another number.
const KILLS: usize = 8;

/// The follow-up of an order has its number and this one.
const FOLLOW_UP: i64 = 1 << 40;

/// The node as a child process. It reads the parameters of a connection, then a mode: `orders`
/// places orders until the process is killed, `drain` ends when no timer is pending.
#[test]
fn a_shop() {
    if !plays("a_shop") {
        return;
    }
    let mut lines = io::stdin().lines().map(Result::unwrap);
    let (config, mode) = (lines.next().unwrap(), lines.next().unwrap());
    let group = one_loop();
    let store = PostgresStore::builder(&config).schema(SCHEMA).partitions(8).lease(ms(600));
    let topic = Topic::new("order", Late::RunOnce, Retry::backoff(100).initial(ms(20)), run);
    let timers = DurableTimers::builder(store.open().unwrap()).topic(topic).start(&group).unwrap();
    let mut number: i64 = lines.next().unwrap().parse().unwrap();
    if mode == "orders" {
        loop {
            // After a terminated connection, the client cannot know whether its last transaction
            // was committed. The test compares the tables instead.
            let Ok(mut client) = Client::connect(&config, NoTls) else { continue };
            while !client.is_closed() {
                number += 1;
                println!("order {number}");
                let _ = place(&timers, &mut client, number);
            }
        }
    }
    while !timers.counts().wait().is_ok_and(|counts| counts.iter().all(|topic| topic.pending == 0)) {}
    println!("drained");
    timers.close().wait().unwrap();
}

fn place(timers: &DurableTimers, client: &mut Client, number: i64) -> Result<(), Error> {
    let mut order = client.transaction().map_err(Error::other)?;
    let sql = format!("INSERT INTO {SCHEMA}.orders VALUES ($1)");
    order.execute(&sql, &[&number]).map_err(Error::other)?;
    timers
        .at("order", ms(number.unsigned_abs() % 4), &number)
        .key(number.to_string())
        .start_in(&mut order)?;
    if number % 5 == 0 { order.rollback() } else { order.commit() }.map_err(Error::other)
}

fn run(due: Due<i64>) {
    let (timers, number) = (due.timers(), *due.payload());
    due.done_with(move |transaction| {
        let client = transaction.postgres()?;
        let fired = format!("INSERT INTO {SCHEMA}.fired VALUES ($1)");
        client.execute(&fired, &[&number]).map_err(Error::other)?;
        if number < FOLLOW_UP && number % 2 == 0 {
            let follow_up = number + FOLLOW_UP;
            let order = format!("INSERT INTO {SCHEMA}.orders VALUES ($1)");
            client.execute(&order, &[&follow_up]).map_err(Error::other)?;
            timers.at("order", ms(1), &follow_up).start_in(transaction)?;
        }
        Ok(())
    });
}

fn shop(server: &Server, mode: &str, number: i64) -> Process {
    let mut process = Process::start(&play("a_shop"));
    process.say(&format!("{}\n{mode}\n{number}\n", server.config()));
    process
}

#[test]
fn after_kills_and_lost_connections_the_timers_of_committed_orders_have_fired() {
    let Some(server) = server() else { return };
    let mut client = server.client();
    // The store creates its tables beside these.
    let tables = format!(
        "CREATE SCHEMA {SCHEMA};
        CREATE TABLE {SCHEMA}.orders (number bigint PRIMARY KEY);
        CREATE TABLE {SCHEMA}.fired (number bigint)"
    );
    client.batch_execute(&tables).unwrap();
    let terminate = format!(
        "SELECT pg_terminate_backend(pid) FROM pg_locks JOIN pg_class c ON c.oid = relation
        JOIN pg_namespace n ON n.oid = relnamespace WHERE nspname = '{SCHEMA}' AND pid <> pg_backend_pid()"
    );
    let mut random = fastrand::Rng::new();
    let kills = std::env::var("KILLS").map_or(KILLS, |kills| kills.parse().expect("KILLS is a number"));
    let mut number = 0;
    for _ in 0..kills {
        let mut process = shop(server, "orders", number);
        for _ in 0..random.u32(1..6) {
            for _ in 0..random.u32(1..40) {
                number = process.stdout.wait_for("order ").trim().parse().unwrap();
            }
            // Those of transactions that are open at the moment.
            if random.bool() {
                client.batch_execute(&terminate).unwrap();
            }
        }
        drop(process); // kill -9
        // It may have begun some more orders.
        number += 1000;
    }
    let mut process = shop(server, "drain", number);
    process.stdout.wait_for("drained");
    process.succeed();
    let mut count = |sql: &str| -> i64 {
        let sql = sql.replace('$', SCHEMA);
        client.query_one(&sql, &[]).unwrap().get(0)
    };
    let orders = count("SELECT count(*) FROM $.orders");
    assert_eq!(count("SELECT count(*) FROM $.fired"), orders, "fired twice, or not at all");
    assert_eq!(
        count(
            "SELECT count(*) FROM $.orders FULL JOIN $.fired USING (number) WHERE orders.number IS NULL OR fired.number IS NULL"
        ),
        0
    );
    let first = "SELECT count(*) FROM $.orders WHERE number < (1::bigint << 40) AND number % 2 = 0";
    assert_eq!(count("SELECT count(*) FROM $.orders WHERE number > (1::bigint << 40)"), count(first));
    assert_eq!(count("SELECT coalesce(sum(pending + dead), 0)::bigint FROM $.counts"), 0);
    assert_eq!(count("SELECT count(*) FROM $.timers"), 0);
    eprintln!("{kills} kills, {orders} orders with timers");
}
