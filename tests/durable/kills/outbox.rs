//! Timers that are started in transactions of the program: after kills at any moment, the timers
//! that have fired are those whose rows were committed.

use super::{CALLS, KILLS_PER_STORE, child, distance_for, kills, start};
use crate::{
    support::{loops::one_loop, process::strace_works, wait::ms},
    timers::File,
};
use netwheel::{
    Error,
    durable::{
        Due, DurableTimers, Late, Retry, SqliteStore, Topic,
        rusqlite::{Connection, Transaction, TransactionBehavior},
    },
};
use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Write},
    process::Child,
};

/// Modes of a child: endless orders, a fixed number of them, and none.
const ENDLESS: &str = "outbox endless";
const FIXED: &str = "outbox fixed";
const DRAIN: &str = "outbox drain";

const FIXED_ORDERS: i64 = 12;

/// The follow-up of an order has its number and this one.
const FOLLOW_UP: i64 = 1 << 40;

pub(super) fn is_mode(mode: &str) -> bool {
    [ENDLESS, FIXED, DRAIN].contains(&mode)
}

/// The program: writes orders, each with its timer. A run writes a row, and for each second order a
/// follow-up with its timer.
pub(super) fn main(mode: &str) {
    let file = std::env::var(child::FILE).unwrap();
    let group = one_loop();
    let timers = DurableTimers::builder(SqliteStore::open(&file).unwrap()).max_commit_delay(ms(1));
    // Each kill may interrupt an attempt of the same timer.
    let retry = Retry::backoff(20).initial(ms(1));
    let timers = timers.topic(Topic::new("order", Late::RunOnce, retry, run)).start(&group).unwrap();
    let mut database = Connection::open(&file).unwrap();
    database
        .execute_batch(
            "CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY);
            CREATE TABLE IF NOT EXISTS fired (number INTEGER);",
        )
        .unwrap();
    // Numbers are not used again: the key of an ended timer is remembered.
    let sql = "SELECT coalesce(max(number), 0) FROM orders WHERE number < ?1";
    let last: i64 = database.query_row(sql, [FOLLOW_UP], |row| row.get(0)).unwrap();
    for number in (last + 1..).take_while(|number| match mode {
        ENDLESS => true,
        FIXED => *number <= FIXED_ORDERS,
        _ => false,
    }) {
        say(number);
        let order = database.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
        place(&timers, &order, number).unwrap();
        // Some transactions are undone, and so is one that is never ended.
        if number % 5 == 0 { order.rollback() } else { order.commit() }.unwrap();
    }
    while mode != ENDLESS && timers.counts().wait().unwrap()[0].pending > 0 {}
    timers.close().wait().unwrap();
}

/// Writes an order, and a timer that is due soon.
fn place(timers: &DurableTimers, order: &Transaction<'_>, number: i64) -> Result<(), Error> {
    order.execute("INSERT INTO orders VALUES (?1)", [number]).map_err(Error::other)?;
    let timer = timers.at("order", ms(number.unsigned_abs() % 4), &number);
    timer.key(number.to_string()).start_in(order).map(drop)
}

fn run(due: Due<i64>) {
    let (timers, number) = (due.timers(), *due.payload());
    due.done_with(move |transaction| {
        let insert = |table: &str, number: i64, connection: &Connection| {
            let sql = format!("INSERT INTO {table} VALUES (?1)");
            connection.execute(&sql, [number]).map(drop).map_err(Error::other)
        };
        insert("fired", number, transaction.sqlite()?)?;
        if number < FOLLOW_UP && number % 2 == 0 {
            let follow_up = number + FOLLOW_UP;
            insert("orders", follow_up, transaction.sqlite()?)?;
            timers.at("order", ms(1), &follow_up).start_in(transaction)?;
        }
        Ok(())
    });
}

fn say(number: i64) {
    if writeln!(std::io::stdout(), "@{number}").is_err() {
        std::process::exit(1);
    }
}

/// Kills a child after some orders. Returns whether it was killed.
fn kill_after(mut child: Child, mut orders: usize) -> bool {
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        if line.is_ok_and(|line| line.contains('@')) {
            orders = orders.saturating_sub(1);
        }
        if orders == 0 {
            child.kill().unwrap();
        }
    }
    !child.wait().unwrap().success()
}

/// Lets everything fire that is left, and checks the rows. Returns the number of orders.
fn drain_and_check(file: &File, what: &str) -> usize {
    assert!(!kill_after(start(file, DRAIN, 0, &[]), usize::MAX), "{what}: the last child failed");
    let database = Connection::open(file.path()).unwrap();
    let numbers = |table: &str| -> Vec<i64> {
        let mut statement = database.prepare(&format!("SELECT number FROM {table}")).unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    };
    let (orders, fired) = (numbers("orders"), numbers("fired"));
    let set = |numbers: &[i64]| numbers.iter().copied().collect::<BTreeSet<_>>();
    assert_eq!(set(&orders), set(&fired), "{what}");
    assert_eq!(fired.len(), orders.len(), "{what}: fired twice");
    let follow_ups = orders.iter().filter(|number| **number < FOLLOW_UP && **number % 2 == 0);
    assert_eq!(orders.iter().filter(|number| **number > FOLLOW_UP).count(), follow_ups.count(), "{what}");
    let count = |sql: &str| database.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
    assert_eq!(count("SELECT count(*) + (SELECT sum(pending + dead) FROM topics) FROM timers"), 0, "{what}");
    orders.len()
}

#[test]
fn after_kills_at_random_moments_the_timers_of_committed_orders_have_fired() {
    let mut random = fastrand::Rng::new();
    let mut orders = 0;
    let stores = kills().div_ceil(KILLS_PER_STORE);
    for _ in 0..stores {
        let file = File::new();
        for _ in 0..KILLS_PER_STORE {
            let child = start(&file, ENDLESS, 0, &[]);
            assert!(kill_after(child, random.usize(1..60)), "the child ends by a kill only");
        }
        orders += drain_and_check(&file, "random moments");
    }
    eprintln!("{} kills at random moments, {orders} orders with timers", stores * KILLS_PER_STORE);
    assert!(orders > stores);
}

#[test]
fn after_kills_at_system_calls_the_timers_of_committed_orders_have_fired() {
    if !strace_works(&["-e", "trace=fdatasync", "-e", "inject=fdatasync:signal=KILL:when=1"]) {
        return;
    }
    for (call, distance) in CALLS {
        let every = distance_for(*distance);
        let (mut killed, mut orders) = (0, 0);
        let mut when = 1 + fastrand::usize(..every);
        loop {
            let inject = format!("inject={call}:signal=KILL:when={when}");
            let trace = format!("trace={call}");
            let strace = ["strace", "-f", "-qq", "-o", "/dev/null", "-e", &trace, "-e", &inject];
            let file = File::new();
            if !kill_after(start(&file, FIXED, 0, &strace.map(str::to_owned)), usize::MAX) {
                break;
            }
            killed += 1;
            orders += drain_and_check(&file, &format!("{call} {when}"));
            when += every;
        }
        eprintln!("| `{call}` | {killed} | {orders} |");
    }
}
