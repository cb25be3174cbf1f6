//! `im_chaos` in short runs: one fault, or the same program without Redis.

use crate::support::process::{Process, are_installed, example};
use std::{process::Command, time::Duration};

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
