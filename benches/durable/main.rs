//! Speed and size of durable timers, as ratios to the bare store on the same disk.
//!
//! ```sh
//! cd benches
//! cargo bench --bench durable                       # minutes; into benches/target/durable
//! cargo bench --bench durable -- --only starts,lone
//! cargo bench --bench durable -- --dir /var/tmp     # the file system to measure
//! cargo bench --bench durable -- --out ../docs      # renews data and picture of docs/durable-timers.md
//! cargo bench --bench durable -- --test             # seconds: checks that it works
//! cargo bench --bench durable -- --postgres "host=127.0.0.1 user=postgres dbname=postgres"
//! ```
//!
//! | part | measurement |
//! |---|---|
//! | `starts` | starts per second of 1, 10, 100 and 1000 concurrent starters, and commits of as many rows in the bare store |
//! | `lone` | how long a start takes on an idle store, and a commit of one row in the bare store |
//! | `lateness` | the time from due to the handler, at a steady rate |
//! | `beside` | the time from due to the handler, beside a topic with a slow handler and a concurrency limit |
//! | `size` | memory, file and reopening after `kill -9` with many pending timers; many timers due in one second |
//! | `--postgres` | instead of the others, on a server of PostgreSQL: starts per second, many timers due at once, many pending timers |
//!
//! The bare store is [`SqliteStore`](netwheel::durable::SqliteStore) without loop and threads. Its
//! measurements alternate with those of the timers, so that disturbances of the machine affect
//! both. Ratios are within the same round. The needed space is about 200 bytes for each pending
//! timer. Writes `durable-timers.csv` and `durable-timers.svg`.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

mod bare;
mod beside;
mod burst;
mod child;
mod figures;
mod fill;
mod lag;
mod lateness;
mod lone;
mod picture;
mod postgres;
mod reopen;
mod report;
mod size;
mod starts;

use clap::{Parser, ValueEnum};
use netwheel::{Error, Result};
use report::Report;
use std::{
    fs,
    path::{Path, PathBuf},
};

#[derive(Parser)]
#[command(name = "durable", about = "Measures speed and size of durable timers")]
struct Settings {
    /// Directory for the data and the picture.
    #[arg(long, default_value = "target/durable")]
    out: PathBuf,
    /// Directory for the stores. Its file system is measured.
    #[arg(long, default_value = "target/durable")]
    dir: PathBuf,
    /// Parts to run. All if none is given.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Numbers of concurrent starters in `starts`.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 10, 100, 1000])]
    starters: Vec<usize>,
    /// Rounds of `starts`; everything is measured once in each.
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Milliseconds of each measurement of `starts`.
    #[arg(long, default_value_t = 1000)]
    millis: u64,
    /// Measurements of `lone`.
    #[arg(long, default_value_t = 1000)]
    lone: usize,
    /// Timers per second in `lateness`.
    #[arg(long, default_value_t = 10_000)]
    rate: usize,
    /// Seconds of `lateness`.
    #[arg(long, default_value_t = 10)]
    seconds: usize,
    /// Pending timers in `size`.
    #[arg(long, default_value_t = 10_000_000)]
    pending: u64,
    /// Timers that are due in one second in `size`.
    #[arg(long, default_value_t = 100_000)]
    burst: u64,
    /// Number of restarts after `kill -9` in `size`.
    #[arg(long, default_value_t = 5)]
    restarts: usize,
    /// Parameters or URL of a PostgreSQL server to measure instead. Schemas that begin with
    /// `netwheel_bench` are created and removed. Writes no files.
    #[arg(long, value_name = "CONFIG")]
    postgres: Option<String>,
    /// Checks only that it works, in seconds.
    #[arg(long)]
    test: bool,
    /// What a child process does, for this program itself.
    #[command(subcommand)]
    child: Option<child::Role>,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Starts,
    Lone,
    Lateness,
    Beside,
    Size,
}

/// The topic of all timers.
const TOPIC: &str = "remind";

/// The payload of all timers; 64 bytes of JSON with its quotation marks.
const TEXT: &str = "The meeting with the customer begins in a quarter of an hour.!";

/// A directory for stores that is removed at the end.
struct Place(PathBuf);

impl Place {
    fn new(dir: &Path) -> Result<Self> {
        let place = dir.join(format!("stores-{}", std::process::id()));
        fs::create_dir_all(&place).map_err(|e| Error::other(format!("creating {}: {e}", place.display())))?;
        Ok(Place(place))
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("{} stays: {error}", self.0.display());
        }
    }
}

fn main() -> Result {
    let mut settings = Settings::parse();
    if let Some(role) = &settings.child {
        return role.play();
    }
    if settings.test {
        (settings.rounds, settings.millis, settings.lone) = (1, 30, 10);
        (settings.rate, settings.seconds) = (1000, 1);
        (settings.pending, settings.burst, settings.restarts) = (10_000, 2_000, 1);
    }
    let mut report = Report::default();
    if let Some(config) = &settings.postgres {
        return postgres::measure(&settings, config, &mut report);
    }
    let place = Place::new(&settings.dir)?;
    let is_chosen = |part| settings.only.is_empty() || settings.only.contains(&part);
    if is_chosen(Part::Starts) {
        starts::measure(&settings, &place, &mut report)?;
    }
    if is_chosen(Part::Lone) {
        lone::measure(&settings, &place, &mut report)?;
    }
    if is_chosen(Part::Lateness) {
        lateness::measure(&settings, &place, &mut report)?;
    }
    if is_chosen(Part::Beside) {
        beside::measure(&settings, &place, &mut report)?;
    }
    if is_chosen(Part::Size) {
        size::measure(&settings, &place, &mut report)?;
    }
    let io = |e| Error::other(format!("writing to {}: {e}", settings.out.display()));
    fs::create_dir_all(&settings.out).map_err(io)?;
    fs::write(settings.out.join("durable-timers.csv"), report.csv()).map_err(io)?;
    picture::draw(&settings.out.join("durable-timers.svg"), &report)?;
    eprintln!("written to {}", settings.out.display());
    Ok(())
}
