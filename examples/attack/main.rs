//! Attacks on the chat server, and their effect on innocent clients in other rooms.
//!
//! ```text
//! cargo build --release --features full --examples
//! target/release/examples/attack                      # all attacks, about two minutes
//! target/release/examples/attack --attack tiny-requests --seconds 30
//! target/release/examples/attack --quick --bound 1s   # less than 20 seconds
//! ```
//!
//! For each attack the program starts its own `im_server` on a free loopback port. Innocent clients
//! talk in small rooms and number their messages. Then the attack starts. At the end the program
//! prints a Markdown table: the latency of the innocent clients, their losses, and the memory of
//! the server. The exit status is 1 if an innocent client lost a message or was disconnected, or if
//! the 99th percentile of their latency exceeded `--bound`.
//!
//! `--server PATH` attacks another build of the server. `--before PATH` runs each attack against
//! that build first, for a comparison in the table. All attacks are bounded in time and in
//! connections. Only loopback addresses are used; other addresses are refused.
//!
//! Reading order: `innocents.rs` (the measured clients), `server.rs` (the child process),
//! `attacks.rs` (the attacks), `crowd.rs` and `wire.rs` (connections of the attackers), `report.rs`
//! (the result).

mod attacks;
mod crowd;
#[path = "../im/descriptors.rs"]
mod descriptors;
mod innocents;
#[path = "../im/message_id.rs"]
mod message_id;
#[path = "../support/output.rs"]
mod output;
#[path = "../im/protocol.rs"]
mod protocol;
mod report;
mod server;
mod wire;

use attacks::{Attack, Scene};
use clap::Parser;
use innocents::Innocents;
use netwheel::{EventLoopGroup, Result, shutdown::ShutdownOptions};
use output::{Output, complain};
use report::{Bounds, Report};
use server::Server;
use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Time limit for the innocent clients to receive their last messages after an attack.
const DRAIN: Duration = Duration::from_secs(20);

/// Attacks the chat server over loopback and measures the effect on innocent clients in other
/// rooms.
#[derive(Parser)]
struct Options {
    /// Attacks to run; `all` runs each attack once.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    attack: Vec<Selection>,
    /// Server to start; the default is the im_server next to this program.
    #[arg(long, value_name = "PATH")]
    server: Option<PathBuf>,
    /// Another build of the server, against which each attack runs first. The bounds do not apply
    /// to it.
    #[arg(long, value_name = "PATH")]
    before: Option<PathBuf>,
    /// Number of event loops of the server.
    #[arg(long, default_value_t = 4)]
    threads: usize,
    /// Duration of each attack in seconds.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Number of members of the attacked room.
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u32).range(2..=10_000))]
    members: u32,
    /// Number of connections for attacks that use many.
    #[arg(long, default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=5000))]
    connections: u32,
    /// Number of innocent clients, in rooms of four.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(4..=1000))]
    innocents: u32,
    /// Messages per second of each innocent client.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rate: u32,
    /// Upper bound for the 99th percentile of the innocent clients' latency.
    #[arg(long, default_value = "50ms", value_parser = humantime::parse_duration)]
    bound: Duration,
    /// Upper bound for the server's peak resident memory, in MB.
    #[arg(long, default_value_t = 600)]
    max_rss: u64,
    /// Short run: 1 second per attack, 200 members, 50 connections. `all` skips the attacks that
    /// need longer.
    #[arg(long)]
    quick: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Selection {
    All,
    JoinLeaveFlood,
    Stampede,
    FastTalker,
    TinyRequests,
    SlowConsumers,
    Pause,
    UnreadLog,
    SlowLogin,
    Unacknowledged,
    Lookups,
    /// Only the innocent clients, as a baseline.
    None,
}

impl Selection {
    fn attacks(self) -> Vec<Attack> {
        match self {
            Selection::All => Attack::ALL.to_vec(),
            Selection::JoinLeaveFlood => vec![Attack::JoinLeaveFlood],
            Selection::Stampede => vec![Attack::Stampede],
            Selection::FastTalker => vec![Attack::FastTalker],
            Selection::TinyRequests => vec![Attack::TinyRequests],
            Selection::SlowConsumers => vec![Attack::SlowConsumers],
            Selection::Pause => vec![Attack::Pause],
            Selection::UnreadLog => vec![Attack::UnreadLog],
            Selection::SlowLogin => vec![Attack::SlowLogin],
            Selection::Unacknowledged => vec![Attack::Unacknowledged],
            Selection::Lookups => vec![Attack::Lookups],
            Selection::None => vec![Attack::None],
        }
    }
}

impl Options {
    fn shortened(mut self) -> Self {
        if self.quick {
            (self.seconds, self.members, self.connections) = (1, 200, 50);
        }
        self
    }

    fn attacks(&self) -> Vec<Attack> {
        let of = |selection: &Selection| match selection {
            Selection::All if self.quick => {
                Attack::ALL.into_iter().filter(|attack| attack.is_short()).collect()
            }
            selection => selection.attacks(),
        };
        self.attack.iter().flat_map(of).collect()
    }

    fn server(&self) -> Result<PathBuf> {
        if let Some(path) = &self.server {
            return Ok(path.clone());
        }
        let this = std::env::current_exe().map_err(netwheel::Error::other)?;
        let name = format!("im_server{}", std::env::consts::EXE_SUFFIX);
        Ok(this.with_file_name(name))
    }
}

/// The build of the server to attack.
#[derive(Clone, Copy)]
enum Build<'a> {
    /// Baseline for a comparison.
    Before(&'a Path),
    After(&'a Path),
}

fn main() -> ExitCode {
    let options = Options::parse().shortened();
    let output = Output::start();
    let result = run(&options);
    if let Err(error) = &result {
        complain!("attack: {error:#}");
    }
    output.finish();
    if matches!(result, Ok(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs the attacks one after the other. Returns whether all bounds hold.
fn run(options: &Options) -> Result<bool> {
    let wanted = u64::from(options.members + options.connections + options.innocents);
    let limit = descriptors::raise_limit();
    if limit.connections().is_some_and(|allowed| allowed < wanted) {
        return Err(format!("{limit}; this run needs {wanted} connections").into());
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = interrupted.clone();
    ctrlc::set_handler(move || interrupt.store(true, Ordering::Release)).map_err(netwheel::Error::other)?;
    let bounds = Bounds { latency: options.bound, rss_mb: options.max_rss };
    let mut report = Report::new(bounds);
    report.print_header();
    for attack in options.attacks() {
        if interrupted.load(Ordering::Acquire) {
            return Ok(false);
        }
        complain!("{}: {}", attack.name(), attack.describe());
        if let Some(before) = &options.before {
            report.add(run_attack(options, attack, Build::Before(before), &interrupted)?);
        }
        report.add(run_attack(options, attack, Build::After(&options.server()?), &interrupted)?);
    }
    Ok(report.print_verdict())
}

fn run_attack(
    options: &Options,
    attack: Attack,
    build: Build<'_>,
    interrupted: &Arc<AtomicBool>,
) -> Result<report::Row> {
    let (Build::Before(program) | Build::After(program)) = build;
    let server = Server::start(program, options.threads, attack)?;
    let group = EventLoopGroup::builder().threads(1).name("innocents").build()?;
    let innocents = Innocents::connect(&group, server.address(), options.innocents, options.rate)?;
    let scene = Scene {
        server: &server,
        address: server.address(),
        time: Duration::from_secs(options.seconds),
        until: Instant::now() + Duration::from_secs(options.seconds),
        members: options.members,
        connections: options.connections,
        interrupted,
        innocents: &innocents,
    };
    let remark = attack.run(scene)?;
    let rss_mb = server.peak_rss_mb();
    let finished = innocents.finish(DRAIN);
    let ending = server.stop();
    let measured = finished.measured();
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(1)))
        .wait()?;
    let is_bound = matches!(build, Build::After(_));
    Ok(report::Row { attack: attack.name(), is_bound, measured, rss_mb, remark, ending })
}
