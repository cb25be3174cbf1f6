//! A chat server with rooms, direct messages, heartbeats and idle timeouts. It speaks JSON lines
//! over TCP or a Unix socket, and the same objects over WebSocket to its page for browsers.
//!
//! ```text
//! cargo run --release --features full --example im_server
//! nc 127.0.0.1 9000            # in two other terminals, and type:
//! {"type":"login","user":"ann"}
//! {"type":"join","room":"lobby"}
//! {"type":"say","room":"lobby","text":"hello"}
//! ```
//!
//! Both clients see each message. With `--unix PATH` the server also listens on a Unix socket (`nc
//! -U PATH`); clients on all listeners share the same rooms. docs/im-protocol.md describes all
//! messages. The page is at the link that the server prints (`--http ADDRESS`, `--https ADDRESS`);
//! `/dashboard` shows what the loops do, and `/metrics` has their metrics. `im_client` is a
//! terminal client, `im_bots` is a load test. With the feature `tls`, `--tls-cert FILE --tls-key
//! FILE` encrypts the TCP connections.
//!
//! Ctrl-C shuts the server down: every client receives a `bye`. By default all clients receive it
//! at once. With `--drain 30s` the closes are spread over that time, so that clients do not all
//! reconnect at the same instant. At the end the server prints a summary of the closed connections.
//!
//! Clients are not trusted, so every client is bounded. It has to log in within a time limit,
//! `pace.rs` slows down expensive clients, and unacknowledged direct messages count against a
//! budget. The `attack` example tests these bounds.
//!
//! Reading order: `listeners.rs` (what listens, and its limits), `web/` (pages, dashboard, frames),
//! `wire.rs` (bytes to requests), `session.rs` (one client), `pace.rs` (rate limits
//! of a client), `name.rs` (rules for names), `direct.rs` (direct messages waiting for an
//! acknowledgement), `directory.rs` (a blocking lookup), `hub.rs` and `room.rs` (shared state),
//! `presence.rs` (announcements of joins and leaves), `slow_consumer.rs` (clients that do not keep
//! up), `later/` (reminders,
//! and messages for users that are not connected), and this file, which connects the parts.

mod byte_budget;
#[path = "../im/descriptors.rs"]
mod descriptors;
mod direct;
mod directory;
mod hub;
mod latency;
mod later;
mod listeners;
#[path = "../im/message_id.rs"]
mod message_id;
mod name;
#[path = "../support/output.rs"]
mod output;
mod pace;
mod presence;
#[path = "../im/protocol.rs"]
mod protocol;
#[path = "../im/request.rs"]
mod request;
mod room;
mod session;
mod slow_consumer;
#[path = "../support/token_bucket.rs"]
mod token_bucket;
mod web;
mod wire;

use clap::Parser;
use hub::Hub;
use later::Later;
use netwheel::{
    diagnostics::Watchdog, prelude::*, shutdown::ShutdownOptions, time::Periodic, worker_pool::WorkerPool,
};
use output::{Output, complain, say};
use slow_consumer::SlowConsumer;
use std::{
    process::ExitCode,
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};

/// A chat server; docs/im-protocol.md describes the protocol.
#[derive(Parser)]
struct Options {
    /// Address to listen on; port 0 selects a free port.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: String,
    /// Also listen on this Unix socket; a stale socket file is replaced.
    #[cfg(unix)]
    #[arg(long, value_name = "PATH")]
    unix: Option<std::path::PathBuf>,
    /// Address for browsers: pages, WebSocket, metrics; "none" turns it off. The default is
    /// 127.0.0.1:8080, or a free port if that is in use.
    #[arg(long, value_name = "ADDRESS")]
    http: Option<String>,
    /// Address for browsers, encrypted; needs --tls-cert and --tls-key.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_cert", value_name = "ADDRESS")]
    https: Option<std::net::SocketAddr>,
    /// Encrypt the TCP connections with TLS: certificate chain in PEM format.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_key", value_name = "FILE")]
    tls_cert: Option<std::path::PathBuf>,
    /// Private key of the certificate, in PEM format.
    #[cfg(feature = "tls")]
    #[arg(long, requires = "tls_cert", value_name = "FILE")]
    tls_key: Option<std::path::PathBuf>,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Send a ping to a client after this time without output to it.
    #[arg(long, default_value = "20s", value_parser = at_least_a_millisecond)]
    heartbeat: Duration,
    /// Close a client after this time without input from it.
    #[arg(long, default_value = "60s", value_parser = at_least_a_millisecond)]
    idle_timeout: Duration,
    /// Resend a direct message after this time without an acknowledgement; after three resends it
    /// is undelivered.
    #[arg(long, default_value = "5s", value_parser = at_least_a_millisecond)]
    ack_timeout: Duration,
    /// Maximum number of unacknowledged direct messages from one client, and to one client.
    #[arg(long, default_value_t = 100)]
    max_unacked: usize,
    /// Maximum bytes of unacknowledged direct messages from one client, and to one client.
    #[arg(long, default_value_t = 512 * 1024)]
    max_unacked_bytes: usize,
    /// Maximum bytes of unacknowledged direct messages of all clients.
    #[arg(long, default_value_t = hub::MAX_UNACKED_BYTES)]
    max_unacked_bytes_total: usize,
    /// Close a connection that has not logged in within this time; 0s disables the limit.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    login_timeout: Duration,
    /// Close a client that neither completes a line nor sends 64 bytes of it within this time; 0s
    /// disables the limit.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    line_timeout: Duration,
    /// Requests per second of one client, with bursts of twice as many. Reading from a faster
    /// client pauses. 0 disables the limit.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Deliveries per second that one client may cause, with the same bursts and pauses. A message
    /// to a room costs one delivery per member and KiB. 0 disables the limit.
    #[arg(long, default_value_t = 20_000)]
    delivery_rate: u32,
    /// Bytes per second read from one client, with bursts of half a second's worth. 0 disables the
    /// limit.
    #[arg(long, default_value_t = 128 * 1024)]
    input_rate: u32,
    /// Pause reading from a client for this time after each message to a room in which a member
    /// does not keep up; 0s disables the pause.
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    congestion_pause: Duration,
    /// File for reminders, and for direct messages to users that are not connected. Without it,
    /// reminders are lost when the server ends, and such messages are refused.
    #[arg(long, value_name = "FILE")]
    timers: Option<std::path::PathBuf>,
    /// Time for which a direct message, or a reminder that is due, is kept for a user that is not
    /// connected.
    #[arg(long, default_value = "7d", value_parser = at_least_a_millisecond)]
    expiry: Duration,
    /// Duration of a lookup: a sleep that stands for a database query.
    #[arg(long, default_value = "50ms", value_parser = humantime::parse_duration)]
    lookup_time: Duration,
    /// Maximum concurrent lookups of one client.
    #[arg(long, default_value_t = 2)]
    max_lookups: usize,
    /// Number of threads for lookups.
    #[arg(long, default_value_t = 4)]
    lookup_threads: usize,
    /// Maximum number of lookups of all clients that may wait for a thread; further ones are
    /// refused.
    #[arg(long, default_value_t = 64)]
    lookup_queue: usize,
    /// Policy for a client that reads more slowly than messages arrive.
    #[arg(long, value_enum, default_value_t = SlowConsumer::Close)]
    slow_consumer: SlowConsumer,
    /// Maximum bytes queued for one client. The list of members of a full room takes about 1.4 MB.
    #[arg(long, default_value_t = 4 * 1024 * 1024)]
    max_outbound: usize,
    /// Maximum bytes queued for all clients together; above it, --slow-consumer applies to clients
    /// that do not keep up.
    #[arg(long, default_value_t = 512 * 1024 * 1024)]
    max_outbound_total: usize,
    /// Close a client if a write to it makes no progress for this time; 0s disables the limit.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    write_timeout: Duration,
    /// Maximum number of clients; further connections are closed immediately. The default is
    /// derived from the limit of open files. The Unix socket has a separate count with the same
    /// limit.
    #[arg(long)]
    max_connections: Option<usize>,
    /// Maximum number of clients from one IP address; IPv6 addresses are grouped by their /64
    /// prefix. Unlimited by default, and always unlimited on the Unix socket.
    #[arg(long)]
    max_per_ip: Option<usize>,
    /// Percentage of its busy time that a loop spends on I/O while tasks wait.
    #[arg(long, default_value_t = 50)]
    io_ratio: u32,
    /// Maximum length in bytes of a line from a client.
    #[arg(long, default_value_t = 65536)]
    max_line: usize,
    /// Time over which the connections are closed during shutdown; 0s closes all at once.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// Time limit for a client that is being closed to read its queued messages.
    #[arg(long, default_value = "5s", value_parser = at_least_a_millisecond)]
    close_timeout: Duration,
    /// Print connections and messages per second at this interval.
    #[arg(long, value_parser = at_least_a_millisecond)]
    stats: Option<Duration>,
    /// Log a warning (RUST_LOG=warn) if a loop is blocked for this time, with the callback it is
    /// in; 0s disables the watchdog.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    watchdog: Duration,
}

impl Options {
    fn has_https(&self) -> bool {
        #[cfg(feature = "tls")]
        let has = self.https.is_some();
        #[cfg(not(feature = "tls"))]
        let has = false;
        has
    }
}

fn at_least_a_millisecond(text: &str) -> std::result::Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_millis(1) { Err("must be at least 1ms".to_owned()) } else { Ok(time) }
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(options);
    if let Err(error) = &result {
        complain!("im_server: {error:#}");
    }
    output.finish();
    if result.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(mut options: Options) -> Result {
    // Install the handler before the address is printed, because a script may then send the signal
    // immediately.
    let (end, ended) = mpsc::channel();
    let interrupted = end.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Ok(())))).map_err(Error::other)?;
    let limit = descriptors::raise_limit();
    say!("{limit}");
    if options.max_connections.is_none() && limit.connections() == Some(0) {
        return Err("too few descriptors (`ulimit -n`): set --max-connections to start regardless".into());
    }
    let connections = limit.connections().and_then(|n| usize::try_from(n).ok());
    options.max_connections = options.max_connections.or(connections);
    let directory = WorkerPool::builder()
        .threads(options.lookup_threads)
        .max_pending(options.lookup_queue)
        .name("directory")
        .build()?;
    let hub = Arc::new(Hub::new(options.max_unacked_bytes_total));
    let mut group = EventLoopGroup::builder()
        .threads(options.threads)
        .name("im")
        .io_ratio(options.io_ratio)
        .max_group_outbound(options.max_outbound_total)
        .workers(&directory);
    if !options.watchdog.is_zero() {
        let hub = hub.clone();
        group = group.watchdog(Watchdog::new(options.watchdog).on_stall(move |stall| {
            hub.counters.stalls.fetch_add(1, Ordering::Relaxed);
            log::warn!("{stall}");
        }));
    }
    let group = group.build()?;
    announce(&group, &hub)?;
    let later = Later::start(options.timers.as_deref(), options.expiry, &hub, &group)?;
    hub.set_later(later.clone());
    match &options.timers {
        Some(file) => say!("reminders and messages are kept in {}", file.display()),
        None => say!("reminders are kept in memory; --timers FILE keeps them, and messages, on disk"),
    }
    for closed in listeners::listen(&group, &hub, &options)? {
        let failed = end.clone();
        closed.on_complete(move |result| drop(failed.send(result)));
    }
    if let Some(period) = options.stats {
        print_stats(&group, &hub, period)?;
    }
    // Received on Ctrl-C, or when a listener has failed.
    let result = ended.recv().unwrap_or(Ok(()));
    say!("stopping");
    let shutdown = ShutdownOptions::new()
        .quiet_period(Duration::ZERO)
        .drain_window(options.drain)
        .timeout(options.drain.saturating_add(options.close_timeout));
    // Before the loops, so that handlers can answer.
    let closed = later.close();
    say!("{}", group.shutdown(shutdown).wait()?);
    closed?;
    result
}

/// Schedules the periodic task that announces joins and leaves.
fn announce(group: &EventLoopGroup, hub: &Arc<Hub>) -> Result {
    let hub = hub.clone();
    let mut missed = 0;
    let task = move || {
        hub.announcer.announce(Instant::now());
        // Log at most one line per period, regardless of the number of failed deliveries.
        let unreached = hub.counters.unreached.load(Ordering::Relaxed);
        if unreached > missed {
            log::warn!("{} deliveries were dropped because the queue of a loop was full", unreached - missed);
            missed = unreached;
        }
        Ok(())
    };
    // Dropping the handle does not cancel the task.
    drop(group.next().schedule_periodic(Periodic::fixed_delay(presence::PERIOD), task)?);
    Ok(())
}

fn print_stats(group: &EventLoopGroup, hub: &Arc<Hub>, period: Duration) -> Result {
    let hub = hub.clone();
    let mut before = (0, 0);
    let line = move || {
        let counters = &hub.counters;
        let connections = counters.connections.load(Ordering::Relaxed);
        let now = (counters.messages.load(Ordering::Relaxed), counters.deliveries.load(Ordering::Relaxed));
        let rate = |now: u64, before: u64| (now - before) as f64 / period.as_secs_f64();
        let (said, delivered) = (rate(now.0, before.0), rate(now.1, before.1));
        say!("{connections} connections, {said:.1} messages/s, {delivered:.1} deliveries/s");
        before = now;
        Ok(())
    };
    // Dropping the handle does not cancel the task.
    drop(group.next().schedule_periodic(period, line)?);
    Ok(())
}
