//! A closed-loop load generator for echo and broadcast servers, also with TLS 1.3, HTTP/1.1 and
//! WebSocket: one thread, level-triggered epoll. It checks every byte that it receives, so a server
//! that replies incorrectly fails instead of appearing fast.
//!
//! ```text
//! loadgen echo --addr 127.0.0.1:7000 --connections 64 --size 64 --pid 4711
//! ```
//!
//! Measures for a given time, or does a given number of operations (`--operations`) on a server
//! whose instructions or system calls are counted. Prints named numbers, one per line or as one
//! JSON object. Exits with status 1 after any error. Linux only.

mod broadcast;
mod churn;
mod echo;
mod idle;
mod message;
mod report;
mod storm;
mod sys;
mod tls;
mod web;
mod wire;

use clap::{Parser, ValueEnum};
use report::Report;
use std::{io, net::SocketAddrV4, process::ExitCode};
use tls::Handshakes;

/// Load generator for echo and broadcast servers.
#[derive(Parser)]
pub(crate) struct Options {
    /// Kind of load.
    #[arg(value_enum)]
    mode: Mode,
    /// Address of the server: IPv4, on this machine.
    #[arg(long)]
    addr: SocketAddrV4,
    /// Connections (churn: at a time; broadcast: members).
    #[arg(long, default_value_t = 1)]
    connections: usize,
    /// Echo: additional connections that echo once and then stay idle.
    #[arg(long, default_value_t = 0)]
    idle: usize,
    /// Storm: additional connections that start their handshakes at the same time.
    #[arg(long, default_value_t = 0)]
    storm: usize,
    /// Uses TLS 1.3 with handshakes of this kind. Not for `broadcast`. Only `churn` resumes.
    #[arg(long, value_enum)]
    tls: Option<Handshakes>,
    /// Payload bytes of a message; broadcast: at least 20.
    #[arg(long, default_value_t = 64)]
    size: usize,
    /// Messages in flight per connection, or per sender.
    #[arg(long, default_value_t = 1, value_parser = at_least_one)]
    pipeline: usize,
    /// Broadcast: members that send.
    #[arg(long, default_value_t = 1)]
    senders: usize,
    /// Prefixes every payload with its length in 4 bytes, big-endian.
    #[arg(long)]
    frames: bool,
    /// Speaks this protocol. For `echo`, `idle` and, except `http`, `broadcast`.
    #[arg(long, value_enum, conflicts_with_all = ["frames", "tls"])]
    protocol: Option<web::Protocol>,
    /// Measured time in seconds.
    #[arg(long, default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Does exactly this many operations instead of measuring for a time, without a warm-up, to
    /// count the work of the server. The server may be as slow as under a debugger. Not for `idle`.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    operations: Option<u64>,
    /// Unmeasured time before the measurement, in seconds.
    #[arg(long, default_value_t = 1.0, value_parser = seconds)]
    warmup: f64,
    /// Process id of the server, whose CPU time and memory are then reported too.
    #[arg(long)]
    pid: Option<u32>,
    /// Prints one JSON object instead of lines.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Mode {
    /// Every connection keeps its messages in flight.
    Echo,
    /// Connect, one echo, close.
    Churn,
    /// Open, one echo each, then hold for the measured time.
    Idle,
    /// Every connection sends at a fixed rate while other connections do their handshakes. The
    /// latencies are measured from the time when a message should have been sent.
    Storm,
    /// The server forwards every frame of the senders to every member, including the sender.
    Broadcast,
}

impl Options {
    /// Returns the TLS configuration, if there is one.
    fn client(&self) -> io::Result<Option<tls::Tls>> {
        self.tls.map(tls::Tls::new).transpose()
    }

    /// Returns the protocol above TCP, if there is one.
    fn web(&self) -> Option<web::Web> {
        self.protocol.map(web::Web::new)
    }
}

/// Parses seconds, up to a day.
fn seconds(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().map_err(|e| e.to_string())?;
    if (0.0..=86_400.0).contains(&seconds) { Ok(seconds) } else { Err("0 to 86400 seconds".into()) }
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse::<usize>()
        .map_err(|e| e.to_string())
        .and_then(|n| if n > 0 { Ok(n) } else { Err("at least 1".into()) })
}

fn main() -> ExitCode {
    let options = Options::parse();
    match run(&options) {
        Ok(report) => {
            println!("{}", if options.json { report.json() } else { report.text() });
            if report.get("errors") > 0.0 { ExitCode::FAILURE } else { ExitCode::SUCCESS }
        }
        Err(e) => {
            eprintln!("loadgen: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(options: &Options) -> io::Result<Report> {
    if options.operations.is_some() && matches!(options.mode, Mode::Idle | Mode::Storm) {
        return Err(io::Error::other("--operations does not apply to this mode"));
    }
    let resumes = options.tls == Some(Handshakes::Resumed);
    if options.tls.is_some() && matches!(options.mode, Mode::Broadcast)
        || resumes && !matches!(options.mode, Mode::Churn)
    {
        return Err(io::Error::other("--tls with this value does not apply to this mode"));
    }
    let fits = match options.mode {
        Mode::Echo | Mode::Idle => true,
        Mode::Broadcast => options.protocol != Some(web::Protocol::Http),
        Mode::Churn | Mode::Storm => options.protocol.is_none(),
    };
    if !fits {
        return Err(io::Error::other("--protocol with this value does not apply to this mode"));
    }
    let needed = (options.connections + options.idle + options.storm) as u64 + 32;
    let limit = sys::raise_descriptor_limit();
    if limit < needed {
        return Err(io::Error::other(format!("{needed} descriptors are needed, the limit is {limit}")));
    }
    match options.mode {
        Mode::Echo => echo::run(options),
        Mode::Churn => churn::run(options),
        Mode::Idle => idle::run(options),
        Mode::Storm => storm::run(options),
        Mode::Broadcast => broadcast::run(options),
    }
}
