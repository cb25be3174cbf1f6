//! A chat server with rooms, direct messages, heartbeats and idle timeouts. It speaks JSON lines
//! over TCP or a Unix socket.
//!
//! ```text
//! cargo run --release --features json --example im_server
//! nc 127.0.0.1 9000            # in two other terminals, and type:
//! {"type":"login","user":"ann"}
//! {"type":"join","room":"lobby"}
//! {"type":"say","room":"lobby","text":"hello"}
//! ```
//!
//! Both clients see each message. With `--unix PATH` the server also listens on a Unix socket (`nc
//! -U PATH`); clients on both listeners share the same rooms. docs/im-protocol.md describes all
//! messages. `im_client` is a terminal client, `im_bots` is a load test. With the feature `tls`,
//! `--tls-cert FILE --tls-key FILE` encrypts the TCP connections.
//!
//! Ctrl-C shuts the server down: every client receives a `bye`. By default all clients receive it
//! at once. With `--drain 30s` the closes are spread over that time, so that clients do not all
//! reconnect at the same instant. At the end the server prints a summary of the closed connections.
//!
//! Clients are not trusted, so every client is bounded. It has to log in within a time limit,
//! `pace.rs` slows down expensive clients, and unacknowledged direct messages count against a
//! budget. The `attack` example tests these bounds.
//!
//! Reading order: `wire.rs` (bytes to requests), `session.rs` (one client), `pace.rs` (rate limits
//! of a client), `name.rs` (rules for names), `direct.rs` (direct messages waiting for an
//! acknowledgement), `directory.rs` (a blocking lookup), `hub.rs` and `room.rs` (shared state),
//! `presence.rs` (announcements of joins and leaves), `slow_consumer.rs` (clients that do not keep
//! up), and this file, which connects the parts.

mod byte_budget;
#[path = "../im/descriptors.rs"]
mod descriptors;
mod direct;
mod directory;
mod hub;
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
mod wire;

use clap::Parser;
use hub::Hub;
#[cfg(unix)]
use netwheel::net::{ListenerOptions, UnixAddress};
#[cfg(feature = "tls")]
use netwheel::tls::{TlsCertificate, TlsServer};
use netwheel::{
    Completion, admission::Admission, channel::TimeLimits, diagnostics::Watchdog, prelude::*,
    shutdown::ShutdownOptions, stage::Json, time::Periodic, traffic::TrafficLimits, worker_pool::WorkerPool,
};
use output::{Output, complain, say};
use pace::Rates;
use protocol::{Reply, Request};
use session::{Session, Settings};
use slow_consumer::SlowConsumer;
use std::{
    process::ExitCode,
    sync::{Arc, atomic::Ordering, mpsc},
    time::{Duration, Instant},
};
use wire::Lines;

/// Bytes per read. Requests are short, and one client should use only a small share of a turn.
const READ_SIZE: usize = 16 * 1024;
/// Bytes of an incomplete line that must arrive within `--line-timeout`, unless the line ends.
const LINE_PROGRESS: usize = 64;

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
    let mut group = EventLoopGroup::builder()
        .threads(options.threads)
        .name("im")
        .io_ratio(options.io_ratio)
        .max_group_outbound(options.max_outbound_total)
        .workers(&directory);
    if !options.watchdog.is_zero() {
        group = group.watchdog(Watchdog::new(options.watchdog));
    }
    let group = group.build()?;
    let hub = Arc::new(Hub::new(options.max_unacked_bytes_total));
    announce(&group, &hub)?;
    for closed in listen(&group, &hub, &options)? {
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
    say!("{}", group.shutdown(shutdown).wait()?);
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

/// Binds all listeners to the same hub. Returns a `Completion` per listener that completes when the
/// listener has ended.
fn listen(group: &EventLoopGroup, hub: &Arc<Hub>, options: &Options) -> Result<Vec<Completion>> {
    let settings = Settings {
        heartbeat: options.heartbeat,
        idle_timeout: options.idle_timeout,
        ack_timeout: options.ack_timeout,
        max_unacked: options.max_unacked,
        max_unacked_bytes: options.max_unacked_bytes,
        login_timeout: options.login_timeout,
        rates: Rates {
            requests: options.rate,
            deliveries: options.delivery_rate,
            congestion: options.congestion_pause,
        },
        lookup_time: options.lookup_time,
        max_lookups: options.max_lookups,
    };
    let idle = IdleTimeouts::new().reader(settings.idle_timeout).writer(settings.heartbeat);
    let limits = time_limits(options);
    let mut traffic = TrafficLimits::new();
    if options.input_rate > 0 {
        traffic = traffic.read(options.input_rate.into()).read_burst(options.input_rate as usize / 2 + 1);
    }
    let (hub, max_line) = (hub.clone(), options.max_line);
    let mut admission = Admission::new();
    if let Some(connections) = options.max_connections {
        admission = admission.max_connections(connections);
    }
    if let Some(connections) = options.max_per_ip {
        admission = admission.max_connections_per_ip(connections);
    }
    // Each unacknowledged direct message has a timeout, and each lookup is a task too.
    let tasks = options.max_unacked.saturating_add(options.max_lookups).saturating_add(8);
    let channel_options = options
        .slow_consumer
        .channel_options(options.max_outbound)?
        .close_timeout(options.close_timeout)
        .read_size(READ_SIZE)
        .reads_per_turn(2)
        .max_scheduled_tasks(tasks);
    let bootstrap = ServerBootstrap::new(group)
        .listener_options(ListenerOptions::new().backlog(4096).remove_stale_socket(true))
        .admission(admission)
        .channel_options(channel_options)
        .pipeline(move |_peer| {
            Pipeline::codec(Lines::new(max_line))
                .idle(idle)
                .time_limits(limits)
                .traffic(traffic)
                .stage(Json::<Request, Reply>::new())
                .handler(Session::new(hub.clone(), settings))
        });
    // Bind both listeners before either address is printed.
    #[cfg(unix)]
    let unix = match &options.unix {
        Some(path) => Some(bootstrap.clone().bind(UnixAddress::path(path)?)?),
        None => None,
    };
    // The Unix socket stays without TLS: its bytes do not leave the machine.
    #[cfg(feature = "tls")]
    let bootstrap = match (&options.tls_cert, &options.tls_key) {
        (Some(chain), Some(key)) => {
            let certificate = TlsCertificate::from_pem_files(chain, key)?;
            bootstrap.tls(TlsServer::builder(certificate).build()?)
        }
        _ => bootstrap,
    };
    let tcp = bootstrap.bind(&*options.listen)?;
    say!("listening on {}", tcp.local_address());
    #[cfg(unix)]
    if let Some(unix) = unix {
        say!("listening on {}", unix.local_address());
        return Ok(vec![tcp.closed(), unix.closed()]);
    }
    Ok(vec![tcp.closed()])
}

/// Returns the deadlines of a connection.
fn time_limits(options: &Options) -> TimeLimits {
    let mut limits = TimeLimits::new();
    if !options.login_timeout.is_zero() {
        limits = limits.first_message(options.login_timeout);
    }
    if !options.line_timeout.is_zero() {
        limits = limits.progress(LINE_PROGRESS, options.line_timeout);
    }
    if !options.write_timeout.is_zero() {
        limits = limits.write(options.write_timeout);
    }
    limits
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
