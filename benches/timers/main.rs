//! Cost of a timer, by the number of resident timers: start, cancel, re-arm, expire.
//!
//! ```sh
//! cd benches
//! cargo bench --bench timers                      # minutes; into benches/target/timers
//! cargo bench --bench timers -- --out ../docs     # renews data and picture of docs/timers.md
//! cargo bench --bench timers -- --test            # a moment: checks that it works
//! cargo bench --bench timers_memory               # bytes per timer, in a separate program
//! ```
//!
//! Compares the wheel and the scheduled queue with a bare wheel (the lower limit) and with a bare
//! wheel that has keys and order. Also compares them with the standard library and with other
//! crates. Time is simulated. The rounds of all lines are interleaved, so that temporary
//! disturbances of the machine affect all of them. The results are medians, with minimum and
//! maximum in parentheses. Ratios are within the same round. Writes `timers.csv` and `timers.svg`.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

mod keyed;
mod peers;
mod picture;
mod script;
mod stores;

use clap::Parser;
use netwheel::{Error, Result};
use script::{COLUMNS, Calls, Figures, Script, time_cancels, time_expiries, time_next_expiry};
use std::{fmt::Write as _, fs, path::PathBuf};

#[derive(Parser)]
#[command(name = "timers", about = "Measures the cost of a timer")]
struct Settings {
    /// Directory for the data and the picture.
    #[arg(long, default_value = "target/timers")]
    out: PathBuf,
    /// Rounds; every line is measured once in each. Half as many with a million timers, a third
    /// with ten million.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Maximum number of timers.
    #[arg(long, default_value_t = 10_000_000)]
    most: usize,
    /// Measures only the lines whose name contains this, and the limit.
    #[arg(long, default_value = "")]
    only: String,
    /// Checks only that it works, in a moment.
    #[arg(long)]
    test: bool,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Numbers of resident timers.
const RESIDENT: [usize; 5] = [1_000, 10_000, 100_000, 1_000_000, 10_000_000];

/// With more timers than this, only wheels are measured.
const MOST_OF_OTHERS: usize = 1_000_000;

struct Line {
    name: &'static str,
    measure: fn(&Script) -> Figures,
    is_wheel: bool,
}

const LIMIT: &str = "bare wheel, the limit";

fn lines() -> Vec<Line> {
    let line = |name, measure, is_wheel| Line { name, measure, is_wheel };
    vec![
        line("netwheel Wheel, 16 ms x 4096", Script::measure::<stores::Fitted>, true),
        line(LIMIT, Script::measure::<stores::Bare>, true),
        line("bare wheel, with keys and order", Script::measure::<keyed::Keyed>, true),
        line("netwheel Wheel, 100 ms x 512", Script::measure::<stores::Default>, true),
        line("netwheel ScheduledQueue", Script::measure::<stores::Queue>, false),
        line("std BinaryHeap, lazy", Script::measure::<stores::LazyHeap>, false),
        line("std BTreeMap", Script::measure::<stores::Tree>, false),
        line("tokio_util DelayQueue", Script::measure::<peers::Delays>, false),
        line("hierarchical_hash_wheel_timer", Script::measure::<peers::QuadWheel>, false),
    ]
}

/// Measurements of one line at one number of timers: a row for each round.
pub(crate) struct Series {
    name: &'static str,
    timers: usize,
    rounds: Vec<Figures>,
    /// Measurements of the limit, in the same rounds.
    limits: Vec<Figures>,
}

/// Minimum, median and maximum.
type Spread = [f64; 3];

fn spread(values: impl Iterator<Item = f64>) -> Spread {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

impl Series {
    fn cost(&self, column: usize) -> Spread {
        spread(self.rounds.iter().map(|figures| figures[column]))
    }

    fn ratio(&self, column: usize) -> Spread {
        let pairs = self.rounds.iter().zip(&self.limits);
        spread(pairs.map(|(ours, limit)| ours[column] / limit[column]))
    }
}

fn measure(settings: &Settings) -> Vec<Series> {
    let chosen = |line: &Line| line.name == LIMIT || line.name.contains(&settings.only);
    let lines: Vec<Line> = lines().into_iter().filter(chosen).collect();
    let mut all = Vec::new();
    for timers in RESIDENT.into_iter().filter(|timers| *timers <= settings.most) {
        let script = Script::new(timers);
        let lines: Vec<&Line> =
            lines.iter().filter(|line| line.is_wheel || timers <= MOST_OF_OTHERS).collect();
        let rounds = match timers {
            10_000_000.. => settings.rounds.div_ceil(3),
            1_000_000.. => settings.rounds.div_ceil(2),
            _ => settings.rounds,
        };
        let mut results: Vec<Vec<Figures>> = lines.iter().map(|_| Vec::new()).collect();
        for round in 1..=rounds {
            for (line, results) in lines.iter().zip(&mut results) {
                let figures = (line.measure)(&script);
                eprintln!("{timers} timers, round {round} of {rounds}: {}: {figures:.1?}", line.name);
                results.push(figures);
            }
        }
        let limit = lines.iter().position(|line| line.name == LIMIT).expect("the limit is always measured");
        let limits = results[limit].clone();
        let series = lines.iter().zip(results);
        all.extend(series.map(|(line, rounds)| Series {
            name: line.name,
            timers,
            rounds,
            limits: limits.clone(),
        }));
    }
    all
}

fn print(all: &[Series]) {
    let heading = |first: &str| {
        println!();
        println!("| timers | {first} | {} |", COLUMNS.join(" | "));
        println!("|---:|---|{}", "---:|".repeat(COLUMNS.len()));
    };
    let cells = |cell: &dyn Fn(usize) -> String| (0..COLUMNS.len()).map(cell).collect::<Vec<_>>().join(" | ");
    heading("nanoseconds (and the ratio to the limit)");
    for series in all {
        let cell = |column| format!("{:.1} ({:.2})", series.cost(column)[1], series.ratio(column)[1]);
        println!("| {} | {} | {} |", series.timers, series.name, cells(&cell));
    }
    heading("nanoseconds (lowest..highest)");
    for series in all {
        let cell = |column| {
            let [low, median, high] = series.cost(column);
            format!("{median:.1} ({low:.1}..{high:.1})")
        };
        println!("| {} | {} | {} |", series.timers, series.name, cells(&cell));
    }
    heading(&format!("ratio to: {LIMIT} (lowest..highest)"));
    for series in all.iter().filter(|series| series.name != LIMIT) {
        let cell = |column| {
            let [low, median, high] = series.ratio(column);
            format!("{median:.2} ({low:.2}..{high:.2})")
        };
        println!("| {} | {} | {} |", series.timers, series.name, cells(&cell));
    }
}

/// Prints the duration of the longest call, which a mean does not show.
fn print_calls(timers: usize, rounds: usize) {
    let script = Script::new(timers);
    type Time<'a> = &'a dyn Fn() -> Calls;
    let series: [(&str, Time<'_>); 4] = [
        ("Wheel::expire, all in one slot of level 1", &|| time_expiries(timers)),
        ("Wheel::cancel", &|| time_cancels::<stores::Default>(&script)),
        ("ScheduledQueue::cancel", &|| time_cancels::<stores::Queue>(&script)),
        ("std BinaryHeap, lazy: cancel", &|| time_cancels::<stores::LazyHeap>(&script)),
    ];
    println!();
    println!("| {timers} timers, nanoseconds of a call | calls | mean | 999 of 1000 | longest |");
    println!("|---|---:|---:|---:|---:|");
    for (name, time) in series {
        let calls = Calls::least(rounds, time);
        let (mean, most, longest) = (calls.mean(), calls.within(999), calls.within(1000));
        println!("| {name} | {} | {mean:.0} | {most} | {longest} |", calls.count());
    }
    let next_expiry = spread((0..rounds).map(|_| time_next_expiry(timers)))[1];
    println!("| Wheel::next_expiry | | {next_expiry:.1} | | |");
}

fn csv(all: &[Series]) -> String {
    let mut rows =
        String::from("timers,line,operation,ns,ns_lowest,ns_highest,ratio,ratio_lowest,ratio_highest\n");
    for series in all {
        for (column, operation) in COLUMNS.iter().enumerate() {
            let ([low, median, high], [least, ratio, most]) = (series.cost(column), series.ratio(column));
            let name = series.name.replace(',', "");
            let row = writeln!(
                rows,
                "{},{name},{operation},{median:.2},{low:.2},{high:.2},{ratio:.3},{least:.3},{most:.3}",
                series.timers
            );
            row.expect("writing to a string succeeds");
        }
    }
    rows
}

fn main() -> Result {
    let mut settings = Settings::parse();
    if settings.test {
        (settings.rounds, settings.most) = (1, 1_000);
    }
    let all = measure(&settings);
    print(&all);
    print_calls(settings.most.min(1_000_000), settings.rounds);
    let io = |e| Error::other(format!("writing to {}: {e}", settings.out.display()));
    fs::create_dir_all(&settings.out).map_err(io)?;
    fs::write(settings.out.join("timers.csv"), csv(&all)).map_err(io)?;
    picture::draw(&settings.out.join("timers.svg"), &all)?;
    eprintln!("written to {}", settings.out.display());
    Ok(())
}
