//! Lists, moves, cancels and starts durable timers of a store, and pauses topics, for operators.
//!
//! ```text
//! cargo run --features durable-sqlite --example timers -- demo.db demo
//! cargo run --features durable-sqlite --example timers -- demo.db start demo 10m '"tea"' --key tea
//! cargo run --features durable-sqlite --example timers -- demo.db list --due
//! cargo run --features durable-sqlite --example timers -- demo.db move 2 3d
//! cargo run --features durable-sqlite --example timers -- demo.db run 2
//! cargo run --features durable-sqlite --example timers -- demo.db pause demo
//! cargo run --features durable-sqlite --example timers -- demo.db retry-dead demo --over 10m
//! ```
//!
//! `demo` has a topic whose handler prints, and runs until Ctrl-C. The other commands never fire a
//! timer: they open the store with `DurableTimersBuilder::paused`. `run` makes a timer or a dead
//! letter due now. It fires when its program runs again.
//!
//! A file belongs to one program at a time, so stop its program first, or give the program commands
//! of its own: they are methods of `DurableTimers`. With the feature `durable-postgres`, the store
//! may be a URL such as `postgres://im@127.0.0.1/im`. Its nodes can stay running, and learn of a
//! command within about a second.

#[path = "../support/output.rs"]
mod output;
mod store;

use clap::{Parser, Subcommand};
use netwheel::{
    durable::{
        Due, DurableTimers, DurableTimersBuilder, Late, Retry, TimerFilter, TimerId, TimerInfo, TimerState,
        Topic, TopicCounts, When,
    },
    prelude::*,
};
use output::{Output, complain, say};
use serde_json::value::RawValue;
use std::{
    io::{self, Write},
    process::ExitCode,
    sync::mpsc,
    time::{Duration, SystemTime},
};

/// Characters of a payload or an error in a list.
const MAX_SHOWN: usize = 100;
/// Time limit for the last runs and for closing the store.
const CLOSE: Duration = Duration::from_secs(10);
/// Period of the timer that `demo` starts.
const PERIOD: Duration = Duration::from_secs(2);

/// Lists, moves, cancels and starts durable timers of a store, and pauses topics.
///
/// An SQLite file belongs to one program at a time: stop the program that has it open, or let that
/// program do the same with its `DurableTimers`. The nodes of a PostgreSQL server can stay running.
/// They learn of commands when they renew their leases, about once per second.
#[derive(Parser)]
struct Options {
    /// SQLite file, or URL of a PostgreSQL server. `start` and `demo` create the file.
    store: String,
    /// Schema with the timers on a PostgreSQL server.
    #[arg(long, default_value = "netwheel")]
    schema: String,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// List timers in the order of their ids, or of their due times.
    List {
        /// Only timers of this topic.
        #[arg(long)]
        topic: Option<String>,
        /// Only timers with this idempotency key.
        #[arg(long)]
        key: Option<String>,
        /// Only dead letters: timers whose last attempt failed.
        #[arg(long)]
        dead: bool,
        /// The next timers that are due. With `--dead`, the letters in the order of their deaths.
        #[arg(long)]
        due: bool,
        /// Maximum number of timers.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Only timers with greater ids, for the next page.
        #[arg(long, value_name = "ID", conflicts_with = "due")]
        after: Option<i64>,
    },
    /// Print the numbers of pending timers and dead letters of each topic, and whether it is
    /// paused.
    Counts,
    /// Pause a topic: its timers stay and do not fire, also after a restart. Runs that have begun
    /// go on.
    Pause { topic: String },
    /// Let a paused topic go on. Timers whose time has passed are late.
    Resume { topic: String },
    /// Try all dead letters of a topic again, the oldest first. Prints their number.
    RetryDead {
        topic: String,
        /// The letters are due in the course of this time, so that they do not run all at once.
        #[arg(long, value_parser = humantime::parse_duration, default_value = "0s")]
        over: Duration,
    },
    /// Remove all dead letters of a topic. Prints their number.
    RemoveDead { topic: String },
    /// Remove a timer or a dead letter.
    Cancel { id: i64 },
    /// Move a timer or a dead letter to another time.
    Move {
        id: i64,
        /// A duration from now, such as 3d or 10m, or a time in UTC, such as 2027-01-31T09:00:00Z.
        #[arg(value_parser = when)]
        when: When,
    },
    /// Make a timer or a dead letter due now. It fires when its program runs.
    Run { id: i64 },
    /// Store a timer.
    Start {
        topic: String,
        /// A duration from now, such as 3d or 10m, or a time in UTC, such as 2027-01-31T09:00:00Z.
        #[arg(value_parser = when)]
        when: When,
        /// The payload as JSON, such as '"tea"'.
        #[arg(value_parser = json)]
        payload: Box<RawValue>,
        /// Idempotency key: a second start with the same key stores nothing.
        #[arg(long)]
        key: Option<String>,
    },
    /// Fire the timers of a topic until Ctrl-C, and print their payloads. Starts one that is due
    /// every two seconds, unless it is stored already.
    Demo {
        #[arg(long, default_value = "demo")]
        topic: String,
    },
}

fn when(text: &str) -> Result<When, String> {
    if let Ok(time) = humantime::parse_rfc3339_weak(text) {
        return Ok(time.into());
    }
    let delay = humantime::parse_duration(text);
    delay.map(When::from).map_err(|e| format!("neither a duration ({e}) nor a time in UTC"))
}

fn json(text: &str) -> Result<Box<RawValue>, String> {
    let payload: Result<Box<RawValue>, _> = serde_json::from_str(text);
    payload.map_err(|e| format!("not JSON: {e}; quote a text twice: '\"tea\"'"))
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(options);
    if let Err(error) = &result {
        complain!("timers: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: Options) -> Result {
    let creates = matches!(options.action, Action::Start { .. } | Action::Demo { .. });
    let builder = store::open(&options.store, &options.schema, creates)?;
    let group = EventLoopGroup::builder().threads(1).name("timers").build()?;
    let timers = match &options.action {
        Action::Demo { topic } => return demo(builder, &group, topic),
        Action::Start { topic, .. } => builder.topic(unused(topic)).paused().start(&group)?,
        _ => builder.paused().start(&group)?,
    };
    let result = operate(&timers, options.action);
    close(&timers)?;
    result
}

/// Returns the topic of a timer to start. Its handler is not called while the timers are paused.
fn unused(name: &str) -> Topic {
    Topic::new(name, Late::RunOnce, Retry::never(), |due: Due<Box<RawValue>>| due.fail("no handler"))
}

fn operate(timers: &DurableTimers, action: Action) -> Result {
    match action {
        Action::List { topic, key, dead, due, limit, after } => {
            let mut filter = TimerFilter::new();
            if let Some(topic) = topic {
                filter = filter.topic(topic);
            }
            if let Some(key) = key {
                filter = filter.key(key);
            }
            if dead || due {
                filter = filter.state(if dead { TimerState::Dead } else { TimerState::Pending });
            }
            if let Some(after) = after {
                filter = filter.after(TimerId::new(after));
            }
            list(timers, if due { filter.by_due() } else { filter }, limit)
        }
        Action::Counts => {
            for topic in timers.counts().wait()? {
                let paused = if topic.is_paused { ", paused" } else { "" };
                let TopicCounts { topic, pending, dead, .. } = topic;
                print(format_args!("{topic:?}: {pending} pending, {dead} dead{paused}"))?;
            }
            Ok(())
        }
        Action::Pause { topic } => known_topic(&topic, "paused", timers.pause(&topic).wait()?),
        Action::Resume { topic } => known_topic(&topic, "resumed", timers.resume(&topic).wait()?),
        Action::RetryDead { topic, over } => {
            print(format_args!("{} dead letters are due", timers.retry_dead(&topic, over).wait()?))
        }
        Action::RemoveDead { topic } => {
            print(format_args!("{} dead letters removed", timers.remove_dead(&topic).wait()?))
        }
        Action::Cancel { id } => known(id, "cancelled", timers.cancel(TimerId::new(id)).wait()?),
        Action::Move { id, when } => known(id, "moved", timers.move_to(TimerId::new(id), when).wait()?),
        Action::Run { id } => known(id, "due now", timers.run_now(TimerId::new(id)).wait()?),
        Action::Start { topic, when, payload, key } => {
            let mut timer = timers.at(&topic, when, &payload);
            if let Some(key) = key {
                timer = timer.key(key);
            }
            print(format_args!("{}", timer.start().wait()?))
        }
        Action::Demo { .. } => unreachable!("a demo fires timers"),
    }
}

/// Prints the effect of a command, or fails if the timer does not exist.
fn known(id: i64, what: &str, exists: bool) -> Result {
    if exists {
        print(format_args!("{id}: {what}"))
    } else {
        Err(Error::other(format!("there is no timer {id}")))
    }
}

fn known_topic(topic: &str, what: &str, exists: bool) -> Result {
    if exists {
        print(format_args!("{topic:?}: {what}"))
    } else {
        Err(Error::other(format!("there is no topic {topic:?}")))
    }
}

/// Prints timers, and reads them in pages.
fn list(timers: &DurableTimers, filter: TimerFilter, limit: usize) -> Result {
    let is_by_due = filter.selected_by_due().is_some();
    let (mut left, mut filter) = (limit, filter);
    while left > 0 {
        let page = left.min(TimerFilter::MAX_LIMIT);
        filter = filter.limit(page);
        let found = timers.list(filter.clone()).wait()?;
        for timer in &found {
            print_timer(timer)?;
        }
        let Some(last) = found.last().filter(|_| found.len() == page) else { break };
        left -= found.len();
        filter = if is_by_due { filter.after_due(last) } else { filter.after(last.id) };
    }
    Ok(())
}

fn print_timer(timer: &TimerInfo) -> Result {
    let state = if timer.state == TimerState::Dead { "dead" } else { "pending" };
    // The year of a due time is at most 9999, which is also the last one of this format.
    let due = humantime::format_rfc3339_millis(timer.due);
    let mut line = format!("{} {state} {due} {:?} {}", timer.id, timer.topic, shown(&timer.payload));
    if let Some(key) = &timer.key {
        line += &format!(" key {key:?}");
    }
    if let Some(schedule) = &timer.schedule {
        line += &format!(" schedule {schedule:?}");
    }
    if timer.attempts > 0 {
        line += &format!(" attempts {}", timer.attempts);
    }
    if let Some(error) = &timer.error {
        line += &format!(" error {:?}", shown(error));
    }
    print(format_args!("{line}"))
}

/// Returns the beginning of a text, without characters that would control the terminal.
fn shown(text: &str) -> String {
    let clean = |c: char| if c.is_control() { ' ' } else { c };
    let mut beginning: String = text.chars().take(MAX_SHOWN).map(clean).collect();
    if text.chars().nth(MAX_SHOWN).is_some() {
        beginning.push('…');
    }
    beginning
}

/// Prints a line of a result. Unlike `say!`, waits for a slow reader instead of dropping lines.
fn print(line: std::fmt::Arguments<'_>) -> Result {
    match writeln!(io::stdout().lock(), "{line}") {
        // The reader has seen enough, for example `head`.
        Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|e| Error::io("writing to standard output", e)),
    }
}

/// Fires timers until Ctrl-C.
fn demo(builder: DurableTimersBuilder, group: &EventLoopGroup, topic: &str) -> Result {
    let (end, ended) = mpsc::channel::<()>();
    ctrlc::set_handler(move || {
        let _ = end.send(());
    })
    .map_err(Error::other)?;
    let print = |due: Due<Box<RawValue>>| {
        let late = humantime::format_duration(due.lateness());
        let missed = due.missed();
        let time = humantime::format_rfc3339_millis(SystemTime::now());
        let payload = shown(due.payload().get());
        say!("{time} timer {} fires, {late} late, {missed} missed: {payload}", due.id());
        due.done();
    };
    let timers = builder.topic(Topic::new(topic, Late::RunOnce, Retry::never(), print)).start(group)?;
    let id = timers.every(topic, PERIOD, "every two seconds").key("demo").start().wait()?;
    say!("timer {id} is due every {}; Ctrl-C ends", humantime::format_duration(PERIOD));
    // Also ends if the handler was dropped.
    let _ = ended.recv();
    say!("stopping; missed runs are made up for at the next start");
    close(&timers)
}

fn close(timers: &DurableTimers) -> Result {
    timers
        .close()
        .wait_timeout(CLOSE)
        .unwrap_or_else(|_| Err(Error::other("the store was not closed in time")))
}
