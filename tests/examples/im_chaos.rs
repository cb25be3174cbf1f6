//! `im_chaos` in short runs: one fault, or the same program without Redis.

use crate::support::process::{Process, are_installed, example};
use std::{process::Command, thread, time::Duration};

/// Time limit of a run. The program itself gives up after a part of it.
const LIMIT: Duration = Duration::from_secs(300);

/// Runs the program to its end. Returns the table.
fn run(arguments: &[&str]) -> String {
    let out = tempfile::tempdir().unwrap();
    let mut command = Command::new(example("im_chaos"));
    command
        .args(arguments)
        .args(["--bots", "24", "--rooms", "3", "--rate", "30", "--duration", "300ms", "--patience", "30s"])
        .arg("--out")
        .arg(out.path());
    // With the programs that it starts: none is left if the test fails.
    let (table, _) = Process::start_group(&mut command).succeed_within(LIMIT);
    let rows = std::fs::read_to_string(out.path().join("chaos.csv")).unwrap().lines().count();
    assert_eq!(rows, table.lines().count() - 1, "{table}");
    let picture = std::fs::read_to_string(out.path().join("chaos.svg")).unwrap();
    assert!(picture.starts_with("<svg") && picture.contains("<polyline"), "{picture}");
    table
}

/// Returns the cells of a row of the table.
fn row<'a>(table: &'a str, fault: &str) -> Vec<&'a str> {
    let row = table.lines().find(|line| line.contains(fault));
    row.unwrap_or_else(|| panic!("no row {fault} in {table}")).split('|').map(str::trim).skip(2).collect()
}

#[test]
fn a_killed_redis_loses_no_message_that_it_has_on_disk() {
    if !are_installed(&["redis-server", "kill"]) {
        return;
    }
    let table = run(&["--faults", "kill-redis-always", "--down", "100ms"]);
    let cells = row(&table, "kill of Redis, AOF `always`");
    let [accepted, deliveries] = [0, 1].map(|cell| cells[cell].parse::<u64>().unwrap());
    assert!(accepted > 0, "{table}");
    // Each of the eight members of a room has received each message, without a notice.
    assert_eq!(deliveries, 8 * accepted, "{table}");
    assert_eq!(cells[2..8], ["0"; 6], "{table}");
}

#[test]
fn one_node_in_memory_has_the_same_checks() {
    let table = run(&["--nodes", "1", "--broker", "memory", "--faults", "reconnect-all"]);
    let cells = row(&table, "all clients of a node reconnect at once");
    assert_eq!(cells[2..8], ["0"; 6], "{table}");
}

#[test]
fn resumes_have_the_answers_that_must_come() {
    let check = |(fault, title, resumes): (&str, &str, u32)| {
        let table = run(&["--nodes", "1", "--broker", "memory", "--faults", fault]);
        let cells = row(&table, title);
        let [planned, wrong] = [cells.len() - 3, cells.len() - 2].map(|cell| cells[cell]);
        assert_eq!((planned, wrong), (resumes.to_string().as_str(), "0"), "{table}");
    };
    // At the same time, because most of a run is waiting.
    thread::scope(|scope| {
        for case in [
            ("resume-twice", "resume twice, no message between", 16),
            ("resume-at-once", "resume immediately", 80),
            ("resume-ahead", "resume ahead", 8),
            ("resume-foreign", "another user's", 8),
        ] {
            scope.spawn(move || check(case));
        }
    });
}

#[test]
fn members_are_told_of_a_loss_that_a_publisher_without_members_notices() {
    if !are_installed(&["redis-server", "kill"]) {
        return;
    }
    let table = run(&["--faults", "publishers-everysec", "--down", "100ms"]);
    let cells = row(&table, "publishers without members");
    let lost_by_redis = cells[3..6].iter().filter(|cell| **cell != "0").count();
    assert!(lost_by_redis > 0, "Redis has lost a second: {table}");
    assert_eq!(cells[cells.len() - 4], "0", "{table}");
}
