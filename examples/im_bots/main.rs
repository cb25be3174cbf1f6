//! A load test for the chat server: opens thousands of connections, talks, and checks every
//! delivery.
//!
//! ```text
//! cargo run --release --features full --example im_server
//! cargo run --release --features json --example im_bots -- --clients 10000 --rooms 100 --seconds 30
//! ```
//!
//! Most bots join a room and talk, both in the room and in direct messages to each other. A share
//! of the bots behaves differently:
//!
//! - Some do not acknowledge direct messages (`--no-ack`). The server has to give up those
//!   messages.
//! - Slow bots (`--slow 5%`) join a room and do not read while the others talk. The server has to
//!   close them, or report how many lines they have missed. Other bots must not lose messages.
//! - Passive bots (`--passive 50%`) join a room and receive the number of messages instead of
//!   messages. In the end it has to be the right one.
//! - Quiet bots (`--quiet`) join no room and only answer heartbeats.
//! - Silent bots (`--silent`) send nothing after their login. The server has to close them after
//!   its idle timeout.
//!
//! The run waits for all of these outcomes. It takes about a minute with the server's defaults, and
//! less with `im_server --heartbeat 5s --idle-timeout 20s`.
//!
//! With the feature `tls`, `--tls` or `--tls-ca FILE` encrypts the connections. With the feature
//! `websocket`, `--ws` connects like a browser, to the address that the server prints for browsers,
//! and `--wss` does so with TLS.
//!
//! A room has no history, so a bot that comes back would miss messages. Bots therefore do not
//! reconnect, and the server must not have a `--max-connection-age` that is reached during the run.
//!
//! Progress is printed to standard error, and a table to standard output. The exit status is 0 if
//! every message reached every member of its room once and in order, and every direct message ended
//! once with the right outcome. The slow bots must also have been handled, and the silent bots
//! closed in time. Ctrl-C ends the run early and prints the table of the results so far. Direct
//! messages in flight at that moment are counted separately.
//!
//! `--storm` plays a reconnect storm instead, and prints how the server has coped with it (see
//! docs/guide/storms.md):
//!
//! ```text
//! taskset -c 0 target/release/examples/im_server --threads 1 --login-cost 2ms
//! taskset -c 1 target/release/examples/im_bots --storm --clients 5000
//! ```
//!
//! Reading order: `plan.rs` (the roles of the bots), `bot.rs` (one user), `talker.rs` (the main
//! thread's handle to a talking bot), `tally.rs`, `directs.rs` and `slow.rs` (counters), this file
//! (the phases of a run), `report.rs` (output), `storm/` (the reconnect storm).

mod bot;
#[path = "../im/descriptors.rs"]
mod descriptors;
mod directs;
#[path = "../im/message_id.rs"]
mod message_id;
#[path = "../support/output.rs"]
mod output;
mod passive;
mod plan;
#[path = "../im/protocol.rs"]
mod protocol;
mod report;
mod slow;
mod storm;
mod talker;
mod tally;
#[cfg(feature = "tls")]
#[path = "../im/tls.rs"]
mod tls;
#[cfg(unix)]
#[path = "../im/unix.rs"]
mod unix;

use bot::{Bot, Report};
use clap::Parser;
#[cfg(feature = "tls")]
use netwheel::tls::TlsClient;
#[cfg(feature = "websocket")]
use netwheel::websocket::{Message, WebSocketClient, WebSocketSettings};
use netwheel::{
    Peer, codec::Line, net::Address, pipeline::IntoPipeline, prelude::*, shutdown::ShutdownOptions,
    stage::Json,
};
use output::{Output, complain};
use plan::{Plan, Share, Shares};
use protocol::{Reply, Request};
use report::{Outcome, Progress};
use std::{
    net::{Ipv4Addr, SocketAddr, ToSocketAddrs},
    process::ExitCode,
    sync::{
        Arc,
        atomic::Ordering,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};
use storm::StormOptions;
use talker::Talker;

/// Maximum length in bytes of a line that a bot reads.
const MAX_LINE: usize = 1024 * 1024;
/// Maximum number of connections being opened, from the first packet until the bot is in its room.
/// Smaller than a listener's backlog.
const IN_FLIGHT: usize = 256;
/// Number of failed connections after which the run is aborted.
const TOO_MANY_FAILURES: usize = 100;
/// Time that the main thread waits for reports in each step.
const STEP: Duration = Duration::from_millis(2);
/// Time without a delivery after which missing deliveries are considered lost.
const DRAIN: Duration = Duration::from_secs(5);
/// Extra time to wait for late events: the close of a silent client, or the end of a direct
/// message.
const LATE: Duration = Duration::from_secs(5);

/// A load test for the chat server: connects, talks, and checks every delivery.
#[derive(Parser)]
struct Options {
    /// Address of the server: HOST:PORT, or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:9000")]
    connect: String,
    /// Number of connections. With --storm the default is 20000, reduced to the limit of open
    /// files.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    #[arg(default_value_if("storm", "true", "20000"))]
    clients: u32,
    /// Number of rooms.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rooms: u32,
    /// Messages per second of all clients together. Each is delivered to all members of a room,
    /// except direct messages.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// Time to talk, in seconds. Messages that are late are still sent, which may take longer.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Maximum number of deliveries in flight; talking pauses above it. 0 disables the limit, which
    /// is a harder test for the server, but on a slow machine all clients may fall behind.
    #[arg(long, default_value_t = 0)]
    under_way: u64,
    /// Percentage of messages that are direct messages to one other client.
    #[arg(long, default_value = "10%")]
    direct: Share,
    /// Percentage of talking clients that do not acknowledge direct messages.
    #[arg(long, default_value = "5%")]
    no_ack: Share,
    /// Percentage of clients in rooms that do not read while the others talk. The run fails unless
    /// enough is said that the server has to act. Kernel buffers hold 200 KiB on a Unix socket and
    /// several MiB over TCP, in addition to the server's `--max-outbound`.
    #[arg(long, default_value = "0%")]
    slow: Share,
    /// Percentage of the other clients in rooms that are passive: they receive the number of
    /// messages instead of messages.
    #[arg(long, default_value = "0%")]
    passive: Share,
    /// Minimum size in bytes of a message to a room.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=60_000))]
    size: u16,
    /// Percentage of clients that send nothing after their login.
    #[arg(long, default_value = "1%")]
    silent: Share,
    /// Time by which the server may be late in closing silent clients, in addition to one tick of
    /// its wheel. Use more than a second only on a busy machine.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Percentage of clients that join no room and only answer heartbeats.
    #[arg(long, default_value = "1%")]
    quiet: Share,
    /// Number of event loops, each on its own thread; 0 selects two per processor.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Number of local addresses to connect from (127.0.0.1, 127.0.0.2, …). One address has too few
    /// ports for very many connections. 0 lets the system choose.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=254))]
    source_addresses: u8,
    /// Connect over WebSocket, to the address for browsers.
    #[cfg(feature = "websocket")]
    #[arg(long)]
    ws: bool,
    /// Connect over WebSocket and TLS.
    #[cfg(all(feature = "websocket", feature = "tls"))]
    #[arg(long)]
    wss: bool,
    #[cfg(feature = "tls")]
    #[command(flatten)]
    tls: tls::TlsOptions,
    #[command(flatten)]
    storm: StormOptions,
}

impl Options {
    /// Returns the WebSocket client to connect with, if any.
    #[cfg(feature = "websocket")]
    fn websocket(&self) -> Result<Option<WebSocketClient>> {
        #[cfg(feature = "tls")]
        let wanted = self.ws || self.wss;
        #[cfg(not(feature = "tls"))]
        let wanted = self.ws;
        if !wanted {
            return Ok(None);
        }
        // The protocol has its own heartbeat.
        let settings = WebSocketSettings::new().max_message(MAX_LINE).ping_interval(Duration::ZERO);
        WebSocketClient::new(&self.connect).with(settings).map(Some)
    }

    /// Returns the TLS client to connect with, if any. `resumption` lets it resume sessions.
    #[cfg(feature = "tls")]
    fn tls(&self, resumption: bool) -> Result<Option<TlsClient>> {
        #[cfg(feature = "websocket")]
        let required = self.wss;
        #[cfg(not(feature = "websocket"))]
        let required = false;
        self.tls.client(&self.connect, required, resumption)
    }
}

/// State of the main thread during a run.
struct Run {
    plan: Arc<Plan>,
    reports: Receiver<Report>,
    progress: Progress,
    talkers: Vec<Talker>,
    /// Channels of the bots that do not read.
    slow: Vec<Channel<Request>>,
    /// Number of bots that are ready.
    ready: usize,
    /// Number of connections that failed.
    failed: usize,
    outcome: Outcome,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(&options);
    if let Err(e) = &result {
        complain!("{e:#}");
    }
    output.finish();
    if result.is_ok_and(|wrong| wrong.is_empty()) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: &Options) -> Result<Vec<String>> {
    if options.storm.storm {
        return storm::run(options);
    }
    let limit = descriptors::raise_limit();
    if limit.connections().is_some_and(|allowed| allowed < u64::from(options.clients)) {
        return Err(format!("too many clients: {limit}").into());
    }
    let clients = options.clients as usize;
    let Options { silent, quiet, slow, passive, no_ack, .. } = *options;
    let shares = Shares { silent, quiet, slow, passive, no_ack };
    let plan = Arc::new(Plan::new(clients, options.rooms, options.size.into(), options.grace, shares));
    let (report, reports) = mpsc::channel();
    let interrupted = report.clone();
    ctrlc::set_handler(move || drop(interrupted.send(Report::Interrupted))).map_err(Error::other)?;

    let group = EventLoopGroup::builder().threads(options.threads).name("bots").build()?;
    let mut run = Run::new(plan.clone(), reports);
    let connect = connector(&group, options, &plan, report)?;
    run.open(clients, connect)?;
    run.talk(options);
    run.drain();
    run.wait_for_slow();
    run.wait_for_passive();
    run.wait_for_directs();
    run.wait_for_silent();
    plan.over.store(true, Ordering::Release);
    let wrong = report::print_table(&plan, &run.outcome);
    group
        .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)))
        .wait()?;
    Ok(wrong)
}

/// Returns a function that starts the `n`-th connection.
fn connector(
    group: &EventLoopGroup,
    options: &Options,
    plan: &Arc<Plan>,
    report: Sender<Report>,
) -> Result<Box<dyn Fn(usize)>> {
    let server = server_address(&options.connect)?;
    let (bots_plan, bots_report) = (plan.clone(), report.clone());
    let bot = move || Bot::new(bots_plan.clone(), bots_report.clone());
    let any = ClientBootstrap::new(group);
    #[cfg(feature = "tls")]
    let any = match options.tls(true)? {
        Some(tls) => any.tls(tls),
        None => any,
    };
    let sources = options.source_addresses;
    #[cfg(feature = "websocket")]
    if let Some(websocket) = options.websocket()? {
        let any = any.websocket(websocket, "/ws", move |accepted| {
            accepted.into_parts().1.stage(Json::<Reply, Request, Message>::new()).handler(bot())
        });
        return Ok(dialer(&any, sources, server, report));
    }
    let any = any.pipeline(move |_peer| {
        let lines = Pipeline::codec(Line::new().max_len(MAX_LINE));
        lines.stage(Json::<Reply, Request>::new()).handler(bot())
    });
    Ok(dialer(&any, sources, server, report))
}

/// Returns a function that starts the `n`-th connection, from one of `sources` local addresses.
fn dialer<F, P>(
    any: &ClientBootstrap<Arc<F>>,
    sources: u8,
    server: Address,
    report: Sender<Report>,
) -> Box<dyn Fn(usize)>
where
    F: Fn(&Peer) -> P + Send + Sync + 'static,
    P: IntoPipeline + 'static,
{
    let source = |n| any.clone().local_address(SocketAddr::from((Ipv4Addr::new(127, 0, 0, n), 0)));
    let mut bootstraps: Vec<_> = (1..=sources).map(source).collect();
    if bootstraps.is_empty() {
        bootstraps.push(any.clone());
    }
    Box::new(move |n: usize| {
        let report = report.clone();
        bootstraps[n % bootstraps.len()].connect(server.clone()).on_complete(move |result| {
            if let Err(e) = result {
                let _ = report.send(Report::Failed(format!("{e:#}")));
            }
        });
    })
}

/// Resolves the server's address once for all connections.
fn server_address(text: &str) -> Result<Address> {
    #[cfg(unix)]
    if let Some(address) = unix::unix(text)? {
        return Ok(address.into());
    }
    let mut addresses = text.to_socket_addrs().map_err(|e| Error::io("resolving the server's address", e))?;
    let address = addresses.next().ok_or("the server's name has no address")?;
    Ok(address.into())
}

impl Run {
    fn new(plan: Arc<Plan>, reports: Receiver<Report>) -> Self {
        let said = vec![0; plan.rooms as usize];
        let outcome = Outcome { sent: 0, said, expected: 0, talked: Duration::ZERO, interrupted: false };
        let (talkers, slow) = (Vec::new(), Vec::new());
        Run { plan, reports, progress: Progress::new(), talkers, slow, ready: 0, failed: 0, outcome }
    }

    /// Opens all connections, at most `IN_FLIGHT` at a time, and waits until every bot is ready.
    fn open(&mut self, clients: usize, connect: impl Fn(usize)) -> Result {
        let mut begun = 0;
        let start = Instant::now();
        while self.ready + self.failed < clients && !self.outcome.interrupted {
            while begun < clients && begun - self.ready - self.failed < IN_FLIGHT {
                connect(begun);
                begun += 1;
            }
            self.wait();
            if self.failed > TOO_MANY_FAILURES {
                return Err("too many connections have failed".into());
            }
            self.progress.show(|| format!("opening: {} of {clients} ready", self.ready));
        }
        let seconds = start.elapsed().as_secs_f64();
        self.progress.end_phase(&format!("{} of {clients} ready after {seconds:.1} s", self.ready));
        Ok(())
    }

    /// Makes the talkers send messages in turn, at `rate` messages per second in total, a share of
    /// them direct. The total number of messages does not depend on the speed of the machine.
    fn talk(&mut self, options: &Options) {
        let Options { rate, direct, under_way, .. } = *options;
        let time = Duration::from_secs(options.seconds);
        let mut members: Vec<u64> = Vec::new();
        for talker in &self.talkers {
            let room = talker.seat.room as usize;
            members.resize(members.len().max(room + 1), 0);
            members[room] += 1;
        }
        let start = Instant::now();
        let (mut turn, mut directs) = (0, 0);
        let due = |elapsed: Duration| (elapsed.min(time).as_secs_f64() * rate) as usize;
        while (start.elapsed() < time || turn < due(time))
            && !self.outcome.interrupted
            && !self.talkers.is_empty()
        {
            let due = due(start.elapsed());
            while turn < due && (under_way == 0 || self.under_way() < under_way) {
                let next = turn % self.talkers.len();
                if direct.takes(turn) {
                    self.direct(next, directs);
                    directs += 1;
                } else if self.talkers[next].say(&self.plan) {
                    let room = self.talkers[next].seat.room as usize;
                    self.outcome.sent += 1;
                    self.outcome.said[room] += 1;
                    self.outcome.expected += members[room];
                }
                turn += 1;
            }
            self.wait();
            let received = self.plan.tally.received.read();
            let (sent, expected) = (self.outcome.sent, self.outcome.expected);
            self.progress.show(|| format!("talking: {sent} messages, {received} of {expected} deliveries"));
        }
        self.outcome.talked = start.elapsed();
        self.progress.end_phase(&format!("{} messages sent", self.outcome.sent));
    }

    /// Returns the number of deliveries in flight.
    fn under_way(&self) -> u64 {
        self.outcome.expected.saturating_sub(self.plan.tally.received.read())
    }

    /// Makes a talker send the `n`-th direct message of the run. The receivers are the other
    /// talkers in turn.
    fn direct(&self, from: usize, n: usize) {
        let count = self.talkers.len();
        let to = n % count;
        let to = if to == from { (to + 1) % count } else { to };
        self.talkers[from].direct(&self.plan, &self.talkers[to]);
    }

    /// Waits for the deliveries in flight.
    fn drain(&mut self) {
        let mut last = (self.plan.tally.received.read(), Instant::now());
        while last.0 < self.outcome.expected && last.1.elapsed() < DRAIN {
            self.wait();
            let received = self.plan.tally.received.read();
            if received != last.0 {
                last = (received, Instant::now());
            }
            self.progress.show(|| format!("draining: {received} of {} deliveries", self.outcome.expected));
        }
    }

    /// Lets the slow bots read again, and waits until the losses of each are known.
    fn wait_for_slow(&mut self) {
        if self.slow.is_empty() {
            return;
        }
        for channel in self.slow.drain(..) {
            // Fails for a closed channel, which has nothing left to read.
            let _ = channel.execute(|scope| {
                scope.set_auto_read(true);
                Ok(())
            });
        }
        let mut last = (self.plan.slows.progress(), Instant::now());
        loop {
            let fates = self.plan.slows.fates(&self.outcome.said);
            let left = fates.left_to_guess;
            if left == 0 || self.outcome.interrupted || last.1.elapsed() > DRAIN {
                return self.progress.end_phase(&format!(
                    "{} of {} slow clients accounted for",
                    fates.slow - left,
                    fates.slow
                ));
            }
            self.progress.show(|| format!("waiting for {left} slow clients to read"));
            self.wait();
            let progress = self.plan.slows.progress();
            if progress != last.0 {
                last = (progress, Instant::now());
            }
        }
    }

    /// Waits until the passive bots have the number of all messages.
    fn wait_for_passive(&mut self) {
        let until = Instant::now() + DRAIN;
        loop {
            let counted = self.plan.passives.counted(&self.outcome.said);
            if counted.behind == 0 || self.outcome.interrupted || Instant::now() > until {
                return;
            }
            self.progress.show(|| format!("waiting for the numbers of {} passive clients", counted.behind));
            self.wait();
        }
    }

    /// Waits until the server has reported the outcome of every direct message, or the deadline for
    /// that has passed.
    fn wait_for_directs(&mut self) {
        let until = Instant::now() + self.plan.directs.longest() + LATE;
        loop {
            let left = self.plan.directs.under_way();
            if left == 0 || self.outcome.interrupted || Instant::now() > until {
                return self.progress.end_phase(&format!("{left} direct messages in flight"));
            }
            self.progress.show(|| format!("waiting for {left} direct messages in flight"));
            self.wait();
        }
    }

    /// Waits until the server has closed the silent bots, or the deadline for that has passed.
    fn wait_for_silent(&mut self) {
        loop {
            let silent = self.plan.tally.silent();
            let Some(until) = silent.until else { return };
            let (left, of) = (silent.logged_in - silent.dropped, silent.logged_in);
            if left == 0 || self.outcome.interrupted || Instant::now() > until + LATE {
                return self.progress.end_phase(&format!("{} of {of} silent clients dropped", of - left));
            }
            let seconds = until.saturating_duration_since(Instant::now()).as_secs();
            self.progress.show(|| {
                format!("waiting for the server to drop {left} silent clients, at most {seconds} s more")
            });
            self.wait();
        }
    }

    /// Processes the reports of the bots, and waits up to [`STEP`] for the first one.
    fn wait(&mut self) {
        let mut next = self.reports.recv_timeout(STEP).ok();
        while let Some(report) = next {
            match report {
                Report::Ready(talker) => {
                    self.ready += 1;
                    self.talkers.extend(talker);
                }
                Report::Slow(channel) => {
                    self.ready += 1;
                    self.slow.push(channel);
                }
                Report::Failed(why) => {
                    if self.failed == 0 {
                        self.progress.end_phase(&format!("a connection failed: {why}"));
                    }
                    self.failed += 1;
                }
                Report::Interrupted => self.outcome.interrupted = true,
            }
            next = self.reports.try_recv().ok();
        }
    }
}
