//! Plays reconnect storms against chat servers: with and without overload control, and with
//! tokio-tungstenite. `docs/storms.md` describes it.
//!
//! ```sh
//! # everything; into target/storm
//! cargo run --release --manifest-path benches/storm/Cargo.toml
//! # renews the data and the pictures of docs/storms.md
//! cargo run --release --manifest-path benches/storm/Cargo.toml -- --out docs
//! # two minutes
//! cargo run --release --manifest-path benches/storm/Cargo.toml -- \
//!     --rounds 1 --clients 2000 --handshakes 2000 --manners hinted
//! # draws the seconds of `im_bots --storm --out DIRECTORY`
//! cargo run --release --manifest-path benches/storm/Cargo.toml -- \
//!     --draw DIRECTORY/storm-seconds.csv
//! # checks that it works
//! cargo run --manifest-path benches/storm/Cargo.toml -- --test
//! ```
//!
//! Builds the servers and `im_bots`, and runs a server on one CPU and the clients on another. Plays
//! each storm against one server after the other, round by round. Prints Markdown to stdout and
//! progress to stderr. Writes `storms.csv` (each round), and two pictures of the last round:
//! `storm-control.svg` and `storm-without.svg`. Linux only.

mod figures;
mod picture;
mod process;
mod servers;
mod storm;
mod tables;
mod workshop;

use clap::Parser;
use figures::{Results, Seconds};
use process::Cpus;
use servers::SERVERS;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process::ExitCode,
};
use storm::Storm;
use workshop::Workshop;

/// Plays reconnect storms against chat servers.
#[derive(Parser)]
struct Options {
    /// Directory for the data and the pictures.
    #[arg(long, default_value = "target/storm")]
    out: PathBuf,
    /// Checks only that it works: few clients.
    #[arg(long)]
    test: bool,
    /// Rounds in which each storm is played against each server.
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// Servers, separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = SERVERS.map(|server| server.name.to_owned()))]
    servers: Vec<String>,
    /// Clients of a storm of logins.
    #[arg(long, default_value_t = 9000)]
    clients: u32,
    /// Clients of a storm of handshakes, without a cost of the login; 0 leaves it out.
    #[arg(long, default_value_t = 10_000)]
    handshakes: u32,
    /// Clients that are established before, and talk.
    #[arg(long, default_value_t = 1000)]
    established: u32,
    /// Messages per second of the established clients, each to a room of ten.
    #[arg(long, default_value_t = 500)]
    rate: u32,
    /// Seconds for which only the established clients talk, before a storm and after it.
    #[arg(long, default_value_t = 5)]
    calm: u32,
    /// Processor time of a login in microseconds.
    #[arg(long, default_value_t = 2000)]
    login_micros: u64,
    /// Offered load, as a multiple of the capacity.
    #[arg(long, default_value_t = 5.0)]
    offered: f64,
    /// Behaviours of the clients of a storm of logins (`im_bots --manners`), separated by commas.
    #[arg(long, value_delimiter = ',', default_values_t = ["hinted", "naive", "polite"].map(str::to_owned))]
    manners: Vec<String>,
    /// Only draws a file of `im_bots --storm --out`, as an SVG beside it.
    #[arg(long, value_name = "FILE")]
    draw: Option<PathBuf>,
}

fn main() -> ExitCode {
    let mut options = Options::parse();
    if options.test {
        options.rounds = 1;
        (options.clients, options.established, options.rate) = (200, 50, 100);
        (options.handshakes, options.offered, options.calm) = (0, 2.0, 1);
        options.manners.truncate(1);
    }
    let done = match &options.draw {
        Some(file) => draw(file),
        None => play(&options),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("storm: {error}");
            ExitCode::FAILURE
        }
    }
}

fn draw(file: &Path) -> io::Result<()> {
    let seconds = Seconds::parse(&fs::read_to_string(file)?)?;
    picture::draw(&file.with_extension("svg"), "A reconnect storm", &seconds)
}

fn play(options: &Options) -> io::Result<()> {
    let workshop = Workshop::open(options.test)?;
    let cpus = Cpus::choose()?;
    let mut servers = Vec::new();
    for server in SERVERS.iter().filter(|server| options.servers.iter().any(|name| name == server.name)) {
        if workshop.is_able(server) {
            servers.push(server);
        } else {
            eprintln!("storm: {} is left out: this im_server has no overload control", server.name);
        }
    }
    fs::create_dir_all(&options.out)?;
    let mut results = Results::default();
    for round in 1..=options.rounds {
        for storm in Storm::all(options) {
            for server in servers.iter().filter(|server| storm.suits(server)) {
                eprintln!("storm: round {round} of {}: {}, {}", options.rounds, storm.name, server.name);
                let folder = workshop.shelf.join("last");
                storm.play(server, &workshop, &cpus, &folder)?;
                let text = fs::read_to_string(folder.join("storm.csv"))?;
                results.add(&storm.name, server.name, round, &text)?;
                let text = fs::read_to_string(folder.join("storm-seconds.csv"))?;
                if let Some(name) = server.picture.filter(|_| storm.is_drawn) {
                    let seconds = Seconds::parse(&text)?;
                    picture::draw(&options.out.join(name), &storm.title(server), &seconds)?;
                }
            }
        }
    }
    fs::write(options.out.join("storms.csv"), results.csv())?;
    let tables = tables::markdown(&results);
    fs::write(options.out.join("storms-tables.md"), &tables)?;
    print!("{tables}");
    Ok(())
}
