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
//! Reading order: `wire.rs` (bytes to requests), `session.rs` (one client), `direct.rs` (messages that wait for their
//! acknowledgement), `directory.rs` (a question that blocks), `hub.rs` (what clients share), `slow_consumer.rs` (who does
//! not keep up), and this file, which puts them together.

#[path = "../im/descriptors.rs"]
mod descriptors;
mod direct;
mod directory;
mod hub;
#[path = "../im/protocol.rs"]
mod protocol;
mod session;
mod slow_consumer;
mod wire;

use clap::Parser;
use hub::Hub;
#[cfg(unix)]
use netwheel::UnixAddress;
use netwheel::{Admission, Completion, ShutdownOptions, Watchdog, WorkerPool, prelude::*, stage::Json};
use protocol::{Reply, Request};
use session::{Session, Settings};
use slow_consumer::SlowConsumer;
use std::{
    sync::{Arc, atomic::Ordering, mpsc},
    time::Duration,
};
use wire::Lines;

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
    /// How long a lookup takes: a sleep, which stands for a database.
    #[arg(long, default_value = "50ms", value_parser = humantime::parse_duration)]
    lookup_time: Duration,
    /// Lookups of one client that may be under way.
    #[arg(long, default_value_t = 4)]
    max_lookups: usize,
    /// Threads that work on lookups.
    #[arg(long, default_value_t = 4)]
    lookup_threads: usize,
    /// Lookups, of all clients, that may wait for such a thread; more are refused.
    #[arg(long, default_value_t = 1024)]
    lookup_queue: usize,
    /// What becomes of a client that does not read as fast as the others talk.
    #[arg(long, value_enum, default_value_t = SlowConsumer::Close)]
    slow_consumer: SlowConsumer,
    /// Bytes that may wait for a client that does not read. A full room's list of members takes about 1.4 MB.
    #[arg(long, default_value_t = 4 * 1024 * 1024)]
    max_outbound: usize,
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

fn main() -> Result {
    env_logger::init();
    let mut options = Options::parse();
    // Before it says where it listens, for then it may be stopped.
    let (end, ended) = mpsc::channel();
    let interrupted = end.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Ok(())))).map_err(Error::other)?;
    let connections = descriptors::raise_limit();
    println!("{}", descriptors::describe(connections));
    options.max_connections = options.max_connections.or(connections.and_then(|n| usize::try_from(n).ok()));
    let directory = WorkerPool::builder()
        .threads(options.lookup_threads)
        .max_pending(options.lookup_queue)
        .name("directory")
        .build()?;
    let mut group = EventLoopGroup::builder()
        .threads(options.threads)
        .name("im")
        .io_ratio(options.io_ratio)
        .workers(&directory);
    if !options.watchdog.is_zero() {
        group = group.watchdog(Watchdog::new(options.watchdog));
    }
    let group = group.build()?;
    let hub = Arc::new(Hub::default());
    for closed in listen(&group, &hub, &options)? {
        let failed = end.clone();
        closed.on_complete(move |result| drop(failed.send(result)));
    }
    if let Some(period) = options.stats {
        print_stats(&group, &hub, period)?;
    }
    // Ctrl-C, or a listener has failed.
    let result = ended.recv().unwrap_or(Ok(()));
    println!("stopping");
    let shutdown = ShutdownOptions::new()
        .quiet(Duration::ZERO)
        .window(options.drain)
        .timeout(options.drain.saturating_add(options.close_timeout));
    println!("{}", group.shut_down(shutdown).wait()?);
    result
}

/// Listens wherever it is to, with one hub behind all of it; what completes when one of the listeners has ended.
fn listen(group: &EventLoopGroup, hub: &Arc<Hub>, options: &Options) -> Result<Vec<Completion>> {
    let settings = Settings {
        heartbeat: options.heartbeat,
        idle_timeout: options.idle_timeout,
        ack_timeout: options.ack_timeout,
        max_unacked: options.max_unacked,
        lookup_time: options.lookup_time,
        max_lookups: options.max_lookups,
    };
    let idle = IdleTimeouts::new().reader(settings.idle_timeout).writer(settings.heartbeat);
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
    let channel_options = options.slow_consumer.channel_options(options.max_outbound)?;
    let bootstrap = ServerBootstrap::new(group)
        .backlog(4096)
        .remove_stale_socket(true)
        .admission(admission)
        .channel_options(channel_options.close_timeout(options.close_timeout).max_scheduled_tasks(tasks))
        .pipeline(move |_peer| {
            Pipeline::new()
                .idle(idle)
                .codec(Lines::new(max_line))
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
    println!("listening on {}", tcp.local_address());
    #[cfg(unix)]
    if let Some(unix) = unix {
        println!("listening on {}", unix.local_address());
        return Ok(vec![tcp.closed(), unix.closed()]);
    }
    Ok(vec![tcp.closed()])
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
        println!("{connections} connections, {said:.1} messages/s, {delivered:.1} deliveries/s");
        before = now;
        Ok(())
    };
    // The task runs until the loop ends; nobody cancels it.
    drop(group.next().schedule_at_fixed_rate(period, period, line)?);
    Ok(())
}
