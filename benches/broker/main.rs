//! Costs of topics over several nodes.
//!
//! ```sh
//! cd benches
//! cargo bench --bench broker                      # minutes; tables as in docs/nodes.md
//! cargo bench --bench broker -- --only deliveries,quiet
//! cargo bench --bench broker -- --test            # seconds: checks that it works
//! ```
//!
//! | part | measurement |
//! |---|---|
//! | `deliveries` | deliveries per second and CPU time per delivery of one node in memory, one with SQLite, one and three with Redis; commands of Redis per message |
//! | `latency` | the time from `publish` to a member on the same node, one message at a time |
//! | `resumes` | commands of Redis when 1,000 members resume in a room, and when 1,000 names are taken |
//! | `restart` | commands and traffic when a node with 10,000 users starts again beside two others |
//! | `quiet` | the cost per second of 10,000 topics without messages |
//!
//! The nodes are parts of this process, each with an event loop and connections of its own.
//! `redis-server` (with `appendfsync everysec`, on loopback) and the receiver of the members'
//! messages are other processes. All share the machine, so deliveries per second depend on all of
//! them; CPU times are those of the nodes and of Redis alone. Parts with Redis are left out where
//! `redis-server` is missing.

#![forbid(unsafe_code)]
#![allow(missing_docs, reason = "a program, not a library")]

mod cluster;
mod deliveries;
mod latency;
mod members;
mod quiet;
mod receiver;
mod redis;
mod restart;
mod resumes;
mod wait;

use clap::{Parser, ValueEnum};
use netwheel::Result;
use std::{net::SocketAddr, path::PathBuf};

#[derive(Parser)]
#[command(name = "broker", about = "Measures what topics over several nodes cost")]
struct Settings {
    /// Parts to run. All if none is given.
    #[arg(long, value_enum, value_delimiter = ',')]
    only: Vec<Part>,
    /// Directory for the store of SQLite. Its file system is measured.
    #[arg(long, default_value = "target/broker")]
    dir: PathBuf,
    /// Rounds of `deliveries`; everything is measured once in each.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Seconds of each measurement of `deliveries`.
    #[arg(long, default_value_t = 5.0)]
    seconds: f64,
    /// Rooms in `deliveries`.
    #[arg(long, default_value_t = 10)]
    rooms: usize,
    /// Members of all rooms together in `deliveries`.
    #[arg(long, default_value_t = 300)]
    members: usize,
    /// Messages of `latency`.
    #[arg(long, default_value_t = 2000)]
    messages: usize,
    /// Members in `resumes`, and names.
    #[arg(long, default_value_t = 1000)]
    resumes: usize,
    /// Users of the node in `restart`. The two others have half as many each.
    #[arg(long, default_value_t = 10_000)]
    users: usize,
    /// Topics in `quiet`.
    #[arg(long, default_value_t = 10_000)]
    topics: usize,
    /// Seconds of `quiet`.
    #[arg(long, default_value_t = 30)]
    quiet_seconds: u64,
    /// Checks only that it works, in seconds.
    #[arg(long)]
    test: bool,
    /// What a child process does, for this program itself.
    #[command(subcommand)]
    child: Option<Role>,
    /// Passed by `cargo bench`; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Part {
    Deliveries,
    Latency,
    Resumes,
    Restart,
    Quiet,
}

#[derive(clap::Subcommand)]
enum Role {
    /// Receives the messages of members, and prints the number of bytes.
    #[command(hide = true)]
    Receive {
        /// Connections to each of the addresses.
        connections: usize,
        addresses: Vec<SocketAddr>,
    },
}

fn main() -> Result {
    let mut settings = Settings::parse();
    if let Some(Role::Receive { connections, addresses }) = &settings.child {
        return receiver::play(*connections, addresses);
    }
    if settings.test {
        (settings.rounds, settings.seconds) = (1, 0.1);
        (settings.rooms, settings.members, settings.messages) = (2, 12, 20);
        (settings.resumes, settings.users, settings.topics, settings.quiet_seconds) = (20, 100, 100, 1);
    }
    let has_redis = redis::is_installed();
    if !has_redis {
        println!("redis-server is not installed: the parts with Redis are left out");
    }
    let is_chosen = |part| settings.only.is_empty() || settings.only.contains(&part);
    if is_chosen(Part::Deliveries) {
        deliveries::measure(&settings, has_redis)?;
    }
    if is_chosen(Part::Latency) {
        latency::measure(&settings, has_redis)?;
    }
    if is_chosen(Part::Resumes) && has_redis {
        resumes::measure(&settings)?;
    }
    if is_chosen(Part::Restart) && has_redis {
        restart::measure(&settings)?;
    }
    if is_chosen(Part::Quiet) && has_redis {
        quiet::measure(&settings)?;
    }
    Ok(())
}
