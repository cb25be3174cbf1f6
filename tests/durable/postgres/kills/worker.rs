//! The node that is killed. Its output, one write for each line:
//!
//! | line | meaning |
//! |---|---|
//! | `start N` | a start was submitted; its key is the number |
//! | `started N` | the start was stored |
//! | `ran N MICROS` | a handler was called, at this time of the system |
//! | `early N` | the handler was called before the timer was due |
//! | `held` | the handler does not answer |

use crate::{
    support::{
        loops::single,
        process::{play, plays},
        wait::{PATIENCE, ms},
    },
    wrong_clock::WrongClock,
};
use netwheel::{
    Error, EventLoop, EventLoopGroup,
    durable::{Due, DurableTimers, Late, PostgresStore, Retry, Topic},
};
use std::{
    io::{self, Write},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

pub(super) const LEASE: Duration = ms(2000);

/// The number of concurrent starts.
const STARTS: usize = 4;

/// The largest difference between the wall clock of a node and that of the server.
const LARGEST_SKEW: i64 = 3_600_000;

fn say(line: std::fmt::Arguments<'_>) {
    if io::stdout().write_all(format!("@{line}\n").as_bytes()).is_err() {
        std::process::exit(1);
    }
}

/// Returns the command that starts a worker.
pub(super) fn command() -> Vec<String> {
    play("a_worker")
}

/// The child process. The first line of its input has the settings. The command `hold` leaves the
/// next run without an answer, and `close` closes the timers.
#[test]
fn a_worker() {
    if !plays("a_worker") {
        return;
    }
    let mut lines = io::stdin().lines().map(Result::unwrap);
    let settings = lines.next().unwrap();
    let [config, schema, name, mode] = settings.split('|').collect::<Vec<_>>()[..] else {
        panic!("{settings}");
    };
    let clock = WrongClock::ahead_by(0);
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).wheel_tick(ms(1)));
    let holds = Arc::new(AtomicBool::new(false));
    let timers = open(config, schema, name, &group, &holds);
    set_clock(&event_loop, clock);
    if mode == "work" {
        (0..STARTS).for_each(|_| start(&event_loop, timers.clone(), fastrand::i64(1..)));
    }
    for line in lines {
        match line.as_str() {
            "hold" => holds.store(true, Ordering::Relaxed),
            "close" => timers.close().detach(),
            _ => panic!("{line}"),
        }
    }
}

/// Opens the store. Waits for a server that is being restarted.
fn open(
    config: &str,
    schema: &str,
    name: &str,
    group: &EventLoopGroup,
    holds: &Arc<AtomicBool>,
) -> DurableTimers {
    let end = Instant::now() + PATIENCE;
    loop {
        let builder = PostgresStore::builder(config).schema(schema).partitions(16).node(name);
        let opened = builder.lease(LEASE).drain_timeout(LEASE / 4).open();
        let topic = topic(schema, holds.clone());
        match opened.and_then(|store| DurableTimers::builder(store).topic(topic).start(group)) {
            Ok(timers) => return timers,
            Err(error) => assert!(Instant::now() < end, "{error}"),
        }
    }
}

fn topic(schema: &str, holds: Arc<AtomicBool>) -> Topic {
    let sql = format!("INSERT INTO {schema}.effects VALUES ($1, $2, '')");
    let held: Mutex<Vec<Due<i64>>> = Mutex::default();
    // Each kill may interrupt an attempt of the same timer.
    let retry = Retry::backoff(1000).initial(ms(10)).max_delay(ms(100));
    Topic::new("work", Late::RunOnce, retry, move |due: Due<i64>| {
        let (number, now) = (*due.payload(), SystemTime::now());
        if now < due.scheduled() {
            say(format_args!("early {number}"));
        }
        say(format_args!("ran {number} {}", now.duration_since(UNIX_EPOCH).unwrap().as_micros()));
        if holds.swap(false, Ordering::Relaxed) {
            say(format_args!("held"));
            return held.lock().unwrap().push(due);
        }
        let sql = sql.clone();
        due.done_with(move |transaction| {
            let inserted = transaction.postgres()?.execute(&sql, &[&number.to_string(), &number]);
            inserted.map(drop).map_err(Error::other)
        });
    })
}

/// Starts timers, one after the other. Repeats a start that failed: it may have been stored.
fn start(event_loop: &EventLoop, timers: DurableTimers, number: i64) {
    say(format_args!("start {number}"));
    let stored = timers.at("work", ms(fastrand::u64(..1000)), &number).key(number.to_string()).start();
    let event_loop = event_loop.clone();
    stored.on_complete(move |stored| {
        let next = if stored.is_ok() { fastrand::i64(1..) } else { number };
        if stored.is_ok() {
            say(format_args!("started {number}"));
        }
        let same_loop = event_loop.clone();
        let _ = event_loop.schedule(ms(fastrand::u64(1..60)), move || start(&same_loop, timers, next));
    });
}

/// Sets the wall clock of the node to random times.
fn set_clock(event_loop: &EventLoop, clock: WrongClock) {
    clock.set_ahead_by(fastrand::i64(-LARGEST_SKEW..=LARGEST_SKEW));
    let same_loop = event_loop.clone();
    let _ = event_loop.schedule(ms(fastrand::u64(1..1000)), move || set_clock(&same_loop, clock));
}
