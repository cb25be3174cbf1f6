//! Plays random operations against the whole API, and checks invariants that hold in every order of
//! events. `docs/stress.md` describes it.
//!
//! A round is made from a seed: groups with settings at the edges of their ranges, servers,
//! relays, hundreds of connections, and threads with lists of steps. The seed repeats the steps;
//! the timing differs.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

mod check;
#[path = "../../../tests/testing/simulated_play/filter.rs"]
mod filter;
mod frame;
mod life;
mod link;
mod network;
mod plan;
mod play;
mod player;
mod report;
mod resources;
mod round;
mod stream;
mod supervisor;
mod token;
mod watchdog;
mod world;

use clap::Parser;
use plan::Plan;
use report::{Invariant, Report};
use resources::Resources;
use std::{
    process::{ExitCode, exit},
    sync::{Arc, atomic::Ordering::SeqCst},
    time::{Duration, Instant},
};
use watchdog::Watchdog;

/// Plays random operations against the whole API of netwheel, and checks invariants.
#[derive(Parser, Clone)]
struct Arguments {
    /// The seed of the first round, by default a random one; each next round has the next seed.
    #[arg(long)]
    seed: Option<u64>,
    /// Ends after this time.
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<u64>,
    /// Ends after this number of rounds, each with a seed of its own.
    #[arg(long, visible_alias = "seeds", value_name = "N")]
    rounds: Option<u64>,
    /// Plays every round with the same seed.
    #[arg(long)]
    repeat: bool,
    /// Counts violations and goes on, instead of ending at the first.
    #[arg(long)]
    keep_going: bool,
    /// Does not look at these invariants, of which a violation is known already.
    #[arg(long, value_enum, value_name = "INVARIANT", value_delimiter = ',')]
    allow: Vec<Invariant>,
    /// The time that one round may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 60)]
    round_limit: u64,
    /// Seconds between two lines of progress.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    progress: u64,
    /// Prints the plan of the first round, and ends.
    #[arg(long)]
    plan: bool,
}

/// The exit code after a violation.
const VIOLATED: u8 = 1;

fn main() -> ExitCode {
    // A panic of a handler is caught by its loop, and reported as a violation.
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or("off")).init();
    let arguments = Arguments::parse();
    let first = arguments.seed.unwrap_or_else(|| fastrand::u64(..1 << 40));
    if arguments.plan {
        println!("{:#?}", Plan::new(first));
        return ExitCode::SUCCESS;
    }
    println!("first seed {first}");
    if arguments.keep_going {
        return supervisor::run(&arguments, first);
    }
    play(&arguments, first)
}

/// What all rounds have done.
#[derive(Default)]
struct Totals {
    rounds: u64,
    operations: u64,
    messages: u64,
}

fn play(arguments: &Arguments, first: u64) -> ExitCode {
    let began = Instant::now();
    let mut printed = Instant::now();
    let mut totals = Totals::default();
    let mut baseline: Option<Resources> = None;
    let is_over = |totals: &Totals| match (arguments.rounds, arguments.seconds) {
        (None, None) => totals.rounds >= 100,
        (rounds, seconds) => {
            rounds.is_some_and(|rounds| totals.rounds >= rounds)
                || seconds.is_some_and(|seconds| began.elapsed() >= Duration::from_secs(seconds))
        }
    };
    while !is_over(&totals) {
        let seed = if arguments.repeat { first } else { first.wrapping_add(totals.rounds) };
        let report = round(arguments, seed, baseline.as_ref());
        totals.rounds += 1;
        totals.operations += report.count.load(SeqCst);
        totals.messages += report.messages.load(SeqCst);
        if !report.is_clean() {
            return violated(&report, &totals, began);
        }
        drop(report);
        // The first round makes what lasts as long as the process.
        if baseline.is_none() {
            baseline = Some(Resources::settled(None, Duration::from_millis(500)));
        }
        if printed.elapsed() >= Duration::from_secs(arguments.progress) {
            printed = Instant::now();
            print_totals(&totals, began);
        }
    }
    print_totals(&totals, began);
    ExitCode::SUCCESS
}

fn round(arguments: &Arguments, seed: u64, baseline: Option<&Resources>) -> Arc<Report> {
    let report = Arc::new(Report::new(seed, &arguments.allow));
    let limit = Duration::from_secs(arguments.round_limit);
    let watchdog = Watchdog::start(report.clone(), limit, |report| {
        // The threads of the round cannot be ended.
        print!("{report}");
        print_invariants(report);
        exit(VIOLATED.into());
    });
    round::play(Plan::new(seed), &report, &watchdog);
    drop(watchdog);
    if let Some(baseline) = baseline.filter(|_| report.is_clean()) {
        let now = Resources::settled(Some(baseline), watchdog::MAX_WAIT);
        if let Some(rest) = now.left_behind(baseline) {
            report.violation(Invariant::Resources, rest);
        }
    }
    report
}

fn violated(report: &Report, totals: &Totals, began: Instant) -> ExitCode {
    print!("{report}");
    print_totals(totals, began);
    print_invariants(report);
    // Threads of the round may still run, or hang.
    exit(VIOLATED.into())
}

/// The line that the supervisor reads.
fn print_invariants(report: &Report) {
    println!("violated by seed {}: {:?}", report.seed, report.invariants());
}

fn print_totals(totals: &Totals, began: Instant) {
    let Totals { rounds, operations, messages } = totals;
    let elapsed = began.elapsed();
    let per_hour = |count: u64| count as f64 / elapsed.as_secs_f64() * 3600.0;
    println!(
        "{:.0?}: {rounds} rounds, {operations} operations, {messages} messages; per hour {:.0} rounds, {:.0} operations",
        elapsed,
        per_hour(*rounds),
        per_hour(*operations)
    );
}
