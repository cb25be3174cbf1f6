//! Goes on after violations: rounds run in a child process, which ends at a violation, and the next
//! child goes on with the next seed.

use crate::{Arguments, VIOLATED};
use clap::ValueEnum;
use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    process::{Command, ExitCode, Stdio},
    time::{Duration, Instant},
};

/// The rounds that violate one invariant.
#[derive(Default)]
struct Found {
    first: Option<Duration>,
    seeds: Vec<u64>,
}

pub(crate) fn run(arguments: &Arguments, first: u64) -> ExitCode {
    let began = Instant::now();
    let limit = arguments.seconds.map(Duration::from_secs);
    let last = arguments.rounds.map(|rounds| first.wrapping_add(rounds));
    let (mut seed, mut found) = (first, BTreeMap::<String, Found>::new());
    loop {
        let left = limit.map(|limit| limit.saturating_sub(began.elapsed()).as_secs());
        let rounds = last.map(|last| last.wrapping_sub(seed));
        if left == Some(0) || rounds == Some(0) {
            break;
        }
        match child(arguments, seed, left, rounds) {
            Some((violated, what)) => {
                for invariant in what {
                    let found = found.entry(invariant).or_default();
                    found.first.get_or_insert_with(|| began.elapsed());
                    found.seeds.push(violated);
                }
                seed = violated.wrapping_add(1);
            }
            None => break,
        }
    }
    println!("{:.0?}: {} violated invariants", began.elapsed(), found.len());
    for (invariant, Found { first, seeds }) in &found {
        let first = first.unwrap_or_default();
        println!(
            "{invariant}: {} rounds, first after {first:.0?}, seeds {:?}",
            seeds.len(),
            &seeds[..seeds.len().min(8)]
        );
    }
    if found.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(VIOLATED) }
}

/// Plays from `seed` on, and returns the seed and the violated invariants.
fn child(
    arguments: &Arguments,
    seed: u64,
    seconds: Option<u64>,
    rounds: Option<u64>,
) -> Option<(u64, Vec<String>)> {
    let mut command = Command::new(std::env::current_exe().expect("the path of this program"));
    command.arg("--seed").arg(seed.to_string());
    for (name, value) in [("--seconds", seconds), ("--rounds", rounds)] {
        if let Some(value) = value {
            command.arg(name).arg(value.to_string());
        }
    }
    command.arg("--round-limit").arg(arguments.round_limit.to_string());
    command.arg("--progress").arg(arguments.progress.to_string());
    for invariant in &arguments.allow {
        let value = invariant.to_possible_value().expect("no variant is skipped");
        command.arg("--allow").arg(value.get_name());
    }
    let mut child = command.stdout(Stdio::piped()).spawn().expect("this program can be started");
    let output = BufReader::new(child.stdout.take().expect("it is piped"));
    let mut violation = None;
    let mut last_seed = seed;
    for line in output.lines().map_while(Result::ok) {
        println!("{line}");
        if let Some((number, what)) =
            line.strip_prefix("violated by seed ").and_then(|rest| rest.split_once(": "))
        {
            last_seed = number.parse().unwrap_or(last_seed);
            let names = what.trim_matches(['[', ']']).split(", ").map(str::to_owned);
            violation = Some((last_seed, names.collect()));
        }
    }
    let status = child.wait().expect("it was started");
    match violation {
        Some(violation) => Some(violation),
        None if status.success() => None,
        None => Some((last_seed, vec![format!("the program ended with {status}")])),
    }
}
