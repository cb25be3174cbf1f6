//! A chat server: rooms, direct messages, heartbeats, idle timeouts; JSON lines over TCP or a Unix socket.
//!
//! ```text
//! cargo run --release --features json --example im_server
//! nc 127.0.0.1 9000            # in two other terminals, and type:
//! {"type":"login","user":"ann"}
//! {"type":"join","room":"lobby"}
//! {"type":"say","room":"lobby","text":"hello"}
//! ```
//!
//! With `--unix PATH` it also listens there (`nc -U PATH`); who comes by either way is in the same rooms.
//!
//! Both see what is said. docs/im-protocol.md has every message; `im_client` is a client for people, `im_bots` a
//! crowd. Ctrl-C says goodbye to everybody and ends it: at once, or with `--drain 30s` to one after the other over that
//! time, so that they do not all come back at the same instant. At the end it prints what became of them.
//!
//! Strangers may connect, so every client is bounded: it has to log in before long, `pace.rs` slows
//! down clients that cost too much, and unacknowledged direct messages count against a budget. The
//! `attack` example tests this.
//!
//! Reading order: `wire.rs` (bytes to requests), `session.rs` (one client), `pace.rs` (its rate
//! limits), `name.rs` (rules for names), `direct.rs` (messages that wait for their
//! acknowledgement), `directory.rs` (a question that blocks), `hub.rs` and `room.rs` (shared
//! state), `presence.rs` (announcements of joins and leaves), `slow_consumer.rs` (clients that do
//! not keep up), and this file, which puts them together.

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
use netwheel::UnixAddress;
use netwheel::{
    Admission, Completion, ShutdownOptions, TimeLimits, TrafficLimits, Watchdog, WorkerPool, prelude::*,
    stage::Json,
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

/// Bytes of one read. Requests are short, and one client's share of a turn should be, too.
const READ_SIZE: usize = 16 * 1024;
/// Bytes of a line that has begun, which have to come within `--line-timeout` unless the line ends.
const LINE_PROGRESS: usize = 64;

/// A chat server; docs/im-protocol.md says what it speaks.
#[derive(Parser)]
struct Options {
    /// Where to listen; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:9000")]
    listen: String,
    /// Also listens on a Unix socket; one that nobody listens on any more is replaced.
    #[cfg(unix)]
    #[arg(long, value_name = "PATH")]
    unix: Option<std::path::PathBuf>,
    /// Number of event loops, each with a thread of its own; 0: two for every processor.
    #[arg(long, default_value_t = 0)]
    threads: usize,
    /// Sends a ping to a client that was sent nothing for so long.
    #[arg(long, default_value = "20s", value_parser = at_least_a_millisecond)]
    heartbeat: Duration,
    /// Closes a client that has sent nothing for so long.
    #[arg(long, default_value = "60s", value_parser = at_least_a_millisecond)]
    idle_timeout: Duration,
    /// Sends a direct message again that is not acknowledged for so long: three times, then it is undelivered.
    #[arg(long, default_value = "5s", value_parser = at_least_a_millisecond)]
    ack_timeout: Duration,
    /// Direct messages from one client, and to one client, that may wait for their acknowledgement.
    #[arg(long, default_value_t = 100)]
    max_unacked: usize,
    /// Bytes of direct messages from one client, and to one client, that may wait for their
    /// acknowledgement.
    #[arg(long, default_value_t = 512 * 1024)]
    max_unacked_bytes: usize,
    /// Bytes of direct messages of all clients that may wait for their acknowledgement.
    #[arg(long, default_value_t = hub::MAX_UNACKED_BYTES)]
    max_unacked_bytes_total: usize,
    /// Closes a connection that has not logged in after this time; 0s: never.
    #[arg(long, default_value = "30s", value_parser = humantime::parse_duration)]
    login_timeout: Duration,
    /// Closes a client that neither ends a line it has begun nor sends 64 bytes of it in this time;
    /// 0s: never.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    line_timeout: Duration,
    /// Requests per second of one client; a faster one is not read from for a while. Twice as many
    /// may come at once. 0: any number.
    #[arg(long, default_value_t = 100)]
    rate: u32,
    /// Deliveries per second that one client may cause (a message to a room costs one for each
    /// member and KiB), likewise.
    #[arg(long, default_value_t = 20_000)]
    delivery_rate: u32,
    /// Bytes per second that are read from one client; half of them may come at once. 0: any
    /// number.
    #[arg(long, default_value_t = 128 * 1024)]
    input_rate: u32,
    /// The pause after each message to a room in which a member does not keep up; 0s: none.
    #[arg(long, default_value = "100ms", value_parser = humantime::parse_duration)]
    congestion_pause: Duration,
    /// How long a lookup takes: a sleep, which stands for a database.
    #[arg(long, default_value = "50ms", value_parser = humantime::parse_duration)]
    lookup_time: Duration,
    /// Lookups of one client that may be under way.
    #[arg(long, default_value_t = 2)]
    max_lookups: usize,
    /// Threads that work on lookups.
    #[arg(long, default_value_t = 4)]
    lookup_threads: usize,
    /// Lookups, of all clients, that may wait for such a thread; more are refused.
    #[arg(long, default_value_t = 64)]
    lookup_queue: usize,
    /// What becomes of a client that does not read as fast as the others talk.
    #[arg(long, value_enum, default_value_t = SlowConsumer::Close)]
    slow_consumer: SlowConsumer,
    /// Bytes that may wait for a client that does not read. A full room's list of members takes about 1.4 MB.
    #[arg(long, default_value_t = 4 * 1024 * 1024)]
    max_outbound: usize,
    /// Bytes that may wait for all clients together; beyond it clients that do not keep up are
    /// dealt with as above.
    #[arg(long, default_value_t = 512 * 1024 * 1024)]
    max_outbound_total: usize,
    /// Closes a client if a write to it makes no progress for this long; 0s: never.
    #[arg(long, default_value = "60s", value_parser = humantime::parse_duration)]
    write_timeout: Duration,
    /// Clients that may be connected; further ones are closed at once. Without it: as many as there are descriptors for.
    /// Those on the Unix socket are counted by themselves: there may be as many again.
    #[arg(long)]
    max_connections: Option<usize>,
    /// Clients of one IP address that may be connected; an IPv6 address counts as its /64. Without it: any number, as on
    /// the Unix socket, where clients have no address.
    #[arg(long)]
    max_per_ip: Option<usize>,
    /// Percent of its busy time that a loop spends on I/O while tasks wait.
    #[arg(long, default_value_t = 50)]
    io_ratio: u32,
    /// Bytes of the longest line that a client may send.
    #[arg(long, default_value_t = 65536)]
    max_line: usize,
    /// Over how long clients are told goodbye, one after the other, when it ends; 0s: all at once.
    #[arg(long, default_value = "0s", value_parser = humantime::parse_duration)]
    drain: Duration,
    /// How long a client that is closed may take to read what it was sent before.
    #[arg(long, default_value = "5s", value_parser = at_least_a_millisecond)]
    close_timeout: Duration,
    /// Prints connections and messages per second so often.
    #[arg(long, value_parser = at_least_a_millisecond)]
    stats: Option<Duration>,
    /// Says so (as a warning in the log: RUST_LOG=warn) when a loop is stuck for so long, and in what; 0s: never.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    watchdog: Duration,
}

fn at_least_a_millisecond(text: &str) -> std::result::Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|e| e.to_string())?;
    if time < Duration::from_millis(1) { Err("1ms or more".to_owned()) } else { Ok(time) }
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
    // Before it says where it listens, for then it may be stopped.
    let (end, ended) = mpsc::channel();
    let interrupted = end.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Ok(())))).map_err(Error::other)?;
    let limit = descriptors::raise_limit();
    say!("{limit}");
    if options.max_connections.is_none() && limit.connections() == Some(0) {
        return Err("too few descriptors (`ulimit -n`): set --max-connections to try all the same".into());
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
    // Ctrl-C, or a listener has failed.
    let result = ended.recv().unwrap_or(Ok(()));
    say!("stopping");
    let shutdown = ShutdownOptions::new()
        .quiet(Duration::ZERO)
        .window(options.drain)
        .timeout(options.drain.saturating_add(options.close_timeout));
    say!("{}", group.shut_down(shutdown).wait()?);
    result
}

/// Starts the periodic task that announces joins and leaves.
fn announce(group: &EventLoopGroup, hub: &Arc<Hub>) -> Result {
    let hub = hub.clone();
    let mut missed = 0;
    let task = move || {
        hub.announcer.announce(Instant::now());
        // At most one line per period, however many deliveries failed.
        let unreached = hub.counters.unreached.load(Ordering::Relaxed);
        if unreached > missed {
            log::warn!("{} deliveries were not made: the queues of loops are full", unreached - missed);
            missed = unreached;
        }
        Ok(())
    };
    // The task runs until the loop ends.
    drop(group.next().schedule_with_fixed_delay(presence::PERIOD, presence::PERIOD, task)?);
    Ok(())
}

/// Listens wherever it is to, with one hub behind all of it; what completes when one of the listeners has ended.
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
    // Each direct message that waits for its acknowledgement has a timeout, and each lookup is a task, too.
    let tasks = options.max_unacked.saturating_add(options.max_lookups).saturating_add(8);
    let channel_options = options
        .slow_consumer
        .channel_options(options.max_outbound)?
        .close_timeout(options.close_timeout)
        .read_size(READ_SIZE)
        .reads_per_turn(2)
        .max_scheduled_tasks(tasks);
    let bootstrap = ServerBootstrap::new(group)
        .backlog(4096)
        .remove_stale_socket(true)
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
    // Both have to be there before anybody is told of one.
    #[cfg(unix)]
    let unix = match &options.unix {
        Some(path) => Some(bootstrap.clone().bind(UnixAddress::path(path)?)?),
        None => None,
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
    // The task runs until the loop ends; nobody cancels it.
    drop(group.next().schedule_at_fixed_rate(period, period, line)?);
    Ok(())
}
