//! Compares netwheel with other event loops: prints the tables of docs/performance.md.
//!
//! ```sh
//! # everything; into target/peers
//! cargo run --release --manifest-path benches/peers/Cargo.toml
//! # renews the data and the picture
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --out docs
//! # some servers and scenarios
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- \
//!     --servers epoll,tokio,netwheel --scenarios frames
//! # instructions, system calls, allocations
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --count
//! # writes the data in `docs` into the tables of README.md and docs/performance.md
//! cargo run --release --manifest-path benches/peers/Cargo.toml -- --fill --out docs
//! # a moment of each: checks that it works
//! cargo run --manifest-path benches/peers/Cargo.toml -- --test
//! ```
//!
//! Builds the servers and the load generator, and runs the server on one CPU and the load on
//! another. Measures one server after the other, round by round, so that temporary disturbances of
//! the machine affect all of them. Prints Markdown to stdout and progress to stderr. Servers that
//! are not installed are left out with a message. Writes `peers.csv`, `peers.md`, `peers.svg` and
//! `versions.csv`. With `--count` it does not measure time. It counts the cost of an operation
//! under valgrind and strace, which does not depend on the load of the machine, and writes
//! `counts.csv`. Fails if a server lost, duplicated or changed a byte. Linux only.

mod count;
mod counts;
mod measure;
mod netty;
mod pages;
mod peer;
mod picture;
mod process;
mod results;
mod scenario;
mod tables;
mod tool;
mod versions;
mod workshop;

use clap::Parser;
use count::count;
use counts::Counts;
use measure::measure;
use pages::Data;
use peer::PEERS;
use process::{Cpus, descriptor_limit};
use results::Results;
use scenario::{SCENARIOS, Scenario};
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};
use versions::Versions;
use workshop::{Server, Workshop};

/// Compares netwheel with other event loops.
#[derive(Parser)]
#[command(name = "peers")]
struct Options {
    /// Rounds in which each server is measured in each scenario.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Seconds of each measurement; at most 40, because some scenarios have connections with an
    /// idle timeout of 60 s.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Measures only these servers, comma-separated.
    #[arg(long, value_delimiter = ',')]
    servers: Vec<String>,
    /// Measures only scenarios whose names start with one of these, comma-separated.
    #[arg(long, value_delimiter = ',')]
    scenarios: Vec<String>,
    /// Directory for the data and the picture.
    #[arg(long, default_value = "target/peers")]
    out: PathBuf,
    /// Counts instead of measuring time: instructions, allocations and system calls per operation,
    /// with valgrind and strace. Ignores rounds and seconds.
    #[arg(long)]
    count: bool,
    /// Measures nothing, and fills the tables of README.md and docs/performance.md with the data in
    /// the directory.
    #[arg(long)]
    fill: bool,
    /// Prints the names of scenarios and servers.
    #[arg(long)]
    list: bool,
    /// Checks only that it works: one short round with few connections, unoptimised.
    #[arg(long)]
    test: bool,
}

/// Most seconds of unmeasured load before each measurement.
const WARM_UP: f64 = 0.7;

/// Durations of the measurements.
struct Pace {
    rounds: u32,
    seconds: f64,
    /// Unmeasured load before each measurement, in seconds.
    warmup: f64,
    /// Whether servers that need it are warmed up before the first round.
    warm: bool,
}

fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|e| e.to_string())?;
    if (0.05..=40.0).contains(&seconds) { Ok(seconds) } else { Err("0.05 to 40".into()) }
}

fn main() -> ExitCode {
    match run(&Options::parse()) {
        Ok(0) => ExitCode::SUCCESS,
        Ok(errors) => {
            eprintln!("peers: {errors} errors, see the tables");
            ExitCode::FAILURE
        }
        Err(e) => {
            eprintln!("peers: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the number of errors that servers made.
fn run(options: &Options) -> io::Result<u64> {
    let mut scenarios = chosen(options)?;
    if options.list {
        println!("scenarios");
        scenarios.iter().for_each(|scenario| println!("  {:24} {}", scenario.name, scenario.about));
        println!("servers");
        PEERS.iter().for_each(|peer| println!("  {:24} {}", peer.name, peer.about));
        return Ok(0);
    }
    if options.fill {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        return Data::read(&options.out)?.fill(&root).map(|()| 0);
    }
    let limit = descriptor_limit();
    scenarios.retain(|scenario| {
        let needed = scenario.load.descriptors();
        if needed > limit {
            eprintln!(
                "peers: {} is left out: it needs {needed} descriptors, the limit is {limit}",
                scenario.name
            );
        }
        needed <= limit
    });
    let pace = if options.test {
        Pace { rounds: 1, seconds: 0.2, warmup: 0.05, warm: false }
    } else {
        let warmup = WARM_UP.min(options.seconds / 2.0);
        Pace { rounds: options.rounds, seconds: options.seconds, warmup, warm: true }
    };
    let cpus = Cpus::choose()?;
    let workshop = Workshop::open(options.test)?;
    let names: Vec<&str> = options.servers.iter().map(String::as_str).collect();
    let servers = workshop.servers(&names)?;
    if options.count {
        return count_all(options, &scenarios, &servers, &workshop, &cpus);
    }
    let mut versions = Versions::default();
    servers.iter().try_for_each(|server| versions.add(server.peer, &workshop.here))?;
    let mut results = Results::default();
    let mut page = Page::default();
    page.print(&tables::preamble(&pace, &cpus, &versions));
    for family in scenario::families(&scenarios) {
        measure(&family, &servers, &workshop.loadgen, &cpus, &pace, &mut results)?;
        family.iter().for_each(|scenario| page.print(&tables::of_scenario(scenario, &results)));
    }
    page.print(&tables::summary(&scenarios, &results));
    write(options, "peers.md", &page.0)?;
    write(options, "versions.csv", &versions.csv())?;
    write(options, "peers.csv", &results.csv())?;
    picture::draw(&options.out.join("peers.svg"), &scenarios, &results)?;
    eprintln!("peers: data and picture are in {}", options.out.display());
    Ok(results.errors())
}

/// The text that goes to stdout and into `peers.md`.
struct Page(String);

impl Default for Page {
    fn default() -> Self {
        Page(tables::INTRODUCTION.to_string())
    }
}

impl Page {
    fn print(&mut self, text: &str) {
        print!("{text}");
        self.0.push_str(text);
    }
}

/// Like `run`, but counts.
fn count_all(
    options: &Options,
    scenarios: &[Scenario],
    servers: &[Server],
    workshop: &Workshop,
    cpus: &Cpus,
) -> io::Result<u64> {
    let tools = tool::usable();
    let mut counts = Counts::default();
    println!("{}", counts::preamble(&tools));
    for scenario in scenarios.iter().filter(|scenario| scenario.load.operations > 0) {
        count(scenario, servers, &tools, workshop, cpus, &mut counts)?;
        print!("{}", counts.table(scenario));
    }
    print!("{}", counts.summary(scenarios));
    write(options, "counts.csv", &counts.csv())?;
    eprintln!("peers: data is in {}", options.out.display());
    Ok(0)
}

fn write(options: &Options, name: &str, text: &str) -> io::Result<()> {
    fs::create_dir_all(&options.out)
        .and_then(|()| fs::write(options.out.join(name), text))
        .map_err(|e| io::Error::other(format!("writing to {}: {e}", options.out.display())))
}

fn chosen(options: &Options) -> io::Result<Vec<Scenario>> {
    for name in &options.servers {
        if !PEERS.iter().any(|peer| peer.name == name) {
            return Err(io::Error::other(format!("there is no server {name}; --list names them")));
        }
    }
    let begins = |name: &str| options.scenarios.iter().any(|beginning| name.starts_with(beginning));
    let mut chosen: Vec<Scenario> =
        SCENARIOS.iter().filter(|s| options.scenarios.is_empty() || begins(s.name)).cloned().collect();
    if chosen.is_empty() {
        return Err(io::Error::other("no scenario's name starts with this; --list names them"));
    }
    if options.test {
        chosen.iter_mut().for_each(|scenario| scenario.load.shrink());
    }
    Ok(chosen)
}
