//! Settings of a storm.

use super::manners::Manners;
use std::{path::PathBuf, time::Duration};

#[derive(clap::Args)]
pub(crate) struct StormOptions {
    /// Reproduce a reconnect storm: established clients talk and measure, while all other clients
    /// lose their connection and connect again at the same moment.
    #[arg(long)]
    pub(crate) storm: bool,
    /// Number of clients that are established before the storm, and talk during it.
    #[arg(long, requires = "storm", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) established: u32,
    /// Behaviour of a client whose attempt has failed.
    #[arg(long, requires = "storm", value_enum, default_value_t = Manners::Naive)]
    pub(crate) manners: Manners,
    /// Delay of a naive client after a refusal, give or take a half, and the first delay of a
    /// polite one.
    #[arg(long, requires = "storm", default_value = "1s", value_parser = humantime::parse_duration)]
    pub(crate) retry_delay: Duration,
    /// Attempts per second of all clients, as a multiple of the logins per second that the server
    /// can do. It determines the time after which a client gives up an attempt.
    #[arg(long, requires = "storm", default_value_t = 5.0, value_parser = above_one)]
    pub(crate) offered: f64,
    /// Time after which a client gives up an attempt. The default follows from --offered.
    #[arg(long, requires = "storm", value_parser = humantime::parse_duration)]
    pub(crate) give_up: Option<Duration>,
    /// Number of clients that measure the capacity of the server before the storm, 16 at a time.
    #[arg(long, requires = "storm", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(16..))]
    pub(crate) probes: u32,
    /// Time for which only the established clients talk, before the storm and after it.
    #[arg(long, requires = "storm", default_value = "5s", value_parser = humantime::parse_duration)]
    pub(crate) calm: Duration,
    /// Duration of the storm at most. The default is three times the time in which the server could
    /// let all clients in.
    #[arg(long, requires = "storm", value_parser = humantime::parse_duration)]
    pub(crate) limit: Option<Duration>,
    /// An established client gives its connection up if a message is not answered for this time.
    #[arg(long, requires = "storm", default_value = "20s", value_parser = humantime::parse_duration)]
    pub(crate) dead_after: Duration,
    /// Round trip of the established clients (p99 of a second) up to which the server is back to
    /// normal.
    #[arg(long, requires = "storm", default_value = "50ms", value_parser = humantime::parse_duration)]
    pub(crate) normal: Duration,
    /// Directory for storm.csv (the result) and storm-seconds.csv (each second).
    #[arg(long, requires = "storm", value_name = "DIRECTORY")]
    pub(crate) out: Option<PathBuf>,
}

fn above_one(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(times) if times > 1.0 && times <= 1000.0 => Ok(times),
        _ => Err("must be more than 1 and at most 1000".to_owned()),
    }
}
