//! Handlers that kill the program.

use crate::{
    support::{
        loops::one_loop,
        process::{play, plays},
        wait::{ms, wait_until},
    },
    timers::File,
};
use netwheel::durable::{
    Due, DurableTimers, Late, Retry, SqliteStore, TimerFilter, TimerState, Topic, rusqlite::Connection,
};
use std::process::{Command, Output};

const FILE: &str = "NETWHEEL_CRASHES_FILE";

/// A program with a handler that kills it, and with one that does not. Ends when nothing is
/// pending.
#[test]
fn program() {
    if !plays("program") {
        return;
    }
    let group = one_loop();
    let deadly = Topic::new("deadly", Late::RunOnce, Retry::backoff(2).initial(ms(20)), |due: Due<u32>| {
        println!("deadly {}", due.attempt());
        std::process::abort();
    });
    let other = Topic::new("other", Late::RunOnce, Retry::never(), |due: Due<u32>| {
        println!("other {}", due.attempt());
        due.done();
    });
    let timers = DurableTimers::builder(SqliteStore::open(std::env::var(FILE).unwrap()).unwrap());
    let timers = timers.topic(deadly).topic(other).start(&group).unwrap();
    let pending = TimerFilter::new().state(TimerState::Pending);
    wait_until("no timer is pending", || timers.list(pending.clone()).wait().unwrap().is_empty());
    timers.close().wait().unwrap();
}

fn run(file: &File) -> Output {
    let mut command = play("program");
    command.splice(1..1, [format!("{FILE}={}", file.path().display())]);
    Command::new(&command[0]).args(&command[1..]).output().unwrap()
}

/// Stores a deadly timer and another one, both due at once, without firing them.
fn prepare(file: &File) {
    let group = one_loop();
    let [deadly, other] = ["deadly", "other"]
        .map(|name| Topic::new(name, Late::RunOnce, Retry::never(), |due: Due<u32>| due.done()));
    let timers = file.open().topic(deadly).topic(other).paused().start(&group).unwrap();
    timers.at("deadly", ms(0), &1u32).start().wait().unwrap();
    timers.at("other", ms(1), &2u32).start().wait().unwrap();
    timers.close().wait().unwrap();
}

fn is_open(file: &File) -> bool {
    let connection = Connection::open(file.path()).unwrap();
    connection.query_row("SELECT is_open FROM timer_store", [], |row| row.get(0)).unwrap()
}

#[test]
fn a_handler_that_aborts_becomes_a_dead_letter_after_its_attempts_and_the_others_fire() {
    let file = File::new();
    prepare(&file);
    assert!(!is_open(&file));
    let mut said = Vec::new();
    let is_ended = (0..10).any(|_| {
        let output = run(&file);
        let text = String::from_utf8(output.stdout).unwrap();
        let lines = text.lines().filter_map(|line| {
            let at = line.find("deadly ").or_else(|| line.find("other "))?;
            Some(line[at..].to_owned())
        });
        said.extend(lines);
        output.status.success()
    });
    assert!(is_ended, "{said:?}");
    let attempts: Vec<_> = said.iter().filter(|line| line.starts_with("deadly")).collect();
    assert_eq!(attempts, ["deadly 1", "deadly 1", "deadly 2", "deadly 3"]);
    assert_eq!(said.iter().filter(|line| *line == "other 1").count(), 1, "{said:?}");
    assert!(!is_open(&file));
    let connection = Connection::open(file.path()).unwrap();
    let (attempts, error): (u32, String) = connection
        .query_row("SELECT attempts, error FROM timers WHERE state = 1", [], |row| {
            Ok((row.get(0)?, row.get(1)?))
        })
        .unwrap();
    assert_eq!((attempts, error.as_str()), (3, "the program ended during the run"));
}

/// An operator looks at the store between two crashes.
#[test]
fn a_program_that_fires_nothing_does_not_hide_that_the_last_one_has_crashed() {
    let file = File::new();
    prepare(&file);
    assert!(!run(&file).status.success());
    assert!(is_open(&file));
    let group = one_loop();
    let timers = file.open().paused().start(&group).unwrap();
    timers.close().wait().unwrap();
    assert!(is_open(&file));
}
