//! A crowd for the chat server: opens thousands of connections, talks, and checks what everybody hears.
//!
//! ```text
//! cargo run --release --features json --example im_server
//! cargo run --release --features json --example im_bots -- --clients 10000 --rooms 100 --seconds 30
//! ```
//!
//! Most bots join a room and talk, in the room and in direct messages to each other. A share of them acknowledges no
//! direct message, and the server has to give up what it sends to those. A slow share (`--slow 5%`) joins rooms, and reads
//! nothing while the others talk: the server has to close those, or to tell them how much they have missed, and nobody
//! else may lose anything by them. A quiet share joins nothing and only answers
//! heartbeats; a silent share sends nothing after its login, and the server has to drop it when its idle timeout is
//! over. The run lasts until all that is over too: a minute with the server's defaults, less with
//! `im_server --heartbeat 5s --idle-timeout 20s`.
//!
//! Progress goes to standard error, a table to standard output. The exit status is 0 if every message reached
//! every member of its room once and in order, every direct message ended once and in the right way, the slow were dealt
//! with, and the silent were dropped in time. Ctrl-C ends the run early and prints the table of what was done until then; the direct
//! messages that are under way at that moment are counted apart.
//!
//! Reading order: `plan.rs` (who does what), `bot.rs` (one user), `talker.rs` (what it is made to do), `tally.rs`,
//! `directs.rs` and `slow.rs` (what is counted), this file (the phases of a run), `report.rs` (what is printed).

mod bot;
#[path = "../im/descriptors.rs"]
mod descriptors;
mod directs;
#[path = "../im/message_id.rs"]
mod message_id;
#[path = "../support/output.rs"]
mod output;
mod plan;
#[path = "../im/protocol.rs"]
mod protocol;
mod report;
mod slow;
mod talker;
mod tally;
#[cfg(unix)]
#[path = "../im/unix.rs"]
mod unix;

use bot::{Bot, Report};
use clap::Parser;
use netwheel::{Address, Peer, codec::Line, prelude::*, stage::Json};
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
use talker::Talker;

/// The longest line that a bot reads.
const MAX_LINE: usize = 1024 * 1024;
/// Connections on their way at the same time, from the first packet until the bot is in its room: fewer than a
/// listener's backlog.
const IN_FLIGHT: usize = 256;
/// After so many connections that failed it is not worth going on.
const TOO_MANY_FAILURES: usize = 100;
/// How long the main thread sleeps between two looks at what there is to do.
const STEP: Duration = Duration::from_millis(2);
/// How long the last deliveries may take when nothing arrives any more.
const DRAIN: Duration = Duration::from_secs(5);
/// How long what is late is waited for: a silent client, to see how late it is; the end of a direct message.
const LATE: Duration = Duration::from_secs(5);

/// A crowd for the chat server: connects, talks, and checks what everybody hears.
#[derive(Parser)]
struct Options {
    /// The server: HOST:PORT, or unix:PATH.
    #[arg(long, default_value = "127.0.0.1:9000")]
    connect: String,
    /// Number of connections.
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(1..))]
    clients: u32,
    /// Number of rooms that they talk in.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..))]
    rooms: u32,
    /// Messages per second that all of them together say; each goes to all members of a room, but for direct ones.
    #[arg(long, default_value_t = 200.0)]
    rate: f64,
    /// How long they talk, in seconds. What is due by then is said, if that takes longer.
    #[arg(long, default_value_t = 30)]
    seconds: u64,
    /// Deliveries that may be under way; who talks waits for them. 0: any number, which tells more about the server, but
    /// on a machine that does not keep up everybody is slow some day.
    #[arg(long, default_value_t = 0)]
    under_way: u64,
    /// Share of the messages that are direct ones, to one other client.
    #[arg(long, default_value = "10%")]
    direct: Share,
    /// Share of clients, of those who talk, that do not acknowledge direct messages.
    #[arg(long, default_value = "5%")]
    no_ack: Share,
    /// Share of clients, of those who join a room, that read nothing while the others talk. The run fails unless so much is
    /// said that the server has to do something about them: their buffers take 200 KiB on a Unix socket, and several MiB over
    /// TCP, besides `--max-outbound` of the server.
    #[arg(long, default_value = "0%")]
    slow: Share,
    /// Bytes of what is said in a room, at least.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u16).range(..=60_000))]
    size: u16,
    /// Share of clients that send nothing after their login.
    #[arg(long, default_value = "1%")]
    silent: Share,
    /// How late, besides a tick of its wheel, the server may be to drop them. More than a second is for a machine that has
    /// something else to do.
    #[arg(long, default_value = "1s", value_parser = humantime::parse_duration)]
    grace: Duration,
    /// Share of clients that join no room and only answer heartbeats.
    #[arg(long, default_value = "1%")]
    quiet: Share,
    /// Number of event loops, each with a thread of its own; 0: two for every processor.
    #[arg(long, default_value_t = 1)]
    threads: usize,
    /// Local addresses to connect from (127.0.0.1, 127.0.0.2, …), for more connections than one address has
    /// ports; 0: the system chooses.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u8).range(0..=254))]
    source_addresses: u8,
}

/// The main thread's side of a run.
struct Run {
    plan: Arc<Plan>,
    reports: Receiver<Report>,
    progress: Progress,
    talkers: Vec<Talker>,
    /// Those that do not read.
    slow: Vec<Channel<Request>>,
    /// Bots that are ready.
    ready: usize,
    /// Connections that came to nothing.
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
    let limit = descriptors::raise_limit();
    if limit.connections().is_some_and(|allowed| allowed < u64::from(options.clients)) {
        return Err(format!("too few: {limit}").into());
    }
    let clients = options.clients as usize;
    let Options { silent, quiet, slow, no_ack, .. } = *options;
    let shares = Shares { silent, quiet, slow, no_ack };
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
    run.wait_for_directs();
    run.wait_for_silent();
    plan.over.store(true, Ordering::Release);
    let wrong = report::print_table(&plan, &run.outcome);
    group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(5)).wait()?;
    Ok(wrong)
}

/// What begins the `n`-th connection.
fn connector(
    group: &EventLoopGroup,
    options: &Options,
    plan: &Arc<Plan>,
    report: Sender<Report>,
) -> Result<impl Fn(usize)> {
    let server = server_address(&options.connect)?;
    let (plan, bots_report) = (plan.clone(), report.clone());
    let pipeline = move |_peer: &Peer| {
        Pipeline::codec(Line::new().max_len(MAX_LINE))
            .stage(Json::<Reply, Request>::new())
            .handler(Bot::new(plan.clone(), bots_report.clone()))
    };
    let any = ClientBootstrap::new(group).pipeline(pipeline);
    let source = |n| any.clone().local_address(SocketAddr::from((Ipv4Addr::new(127, 0, 0, n), 0)));
    let mut bootstraps: Vec<_> = (1..=options.source_addresses).map(source).collect();
    if bootstraps.is_empty() {
        bootstraps.push(any);
    }
    Ok(move |n: usize| {
        let report = report.clone();
        bootstraps[n % bootstraps.len()].connect(server.clone()).on_complete(move |result| {
            if let Err(e) = result {
                let _ = report.send(Report::Failed(format!("{e:#}")));
            }
        });
    })
}

/// Resolved once, and not for each connection.
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

    /// Opens all connections, a bounded number at a time, until every bot is where its role wants it.
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

    /// Makes the talkers talk in turn, all together at so many messages per second, a share of them direct ones. How many it
    /// is in all does not depend on how fast this machine is.
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

    /// Deliveries that are still to come.
    fn under_way(&self) -> u64 {
        self.outcome.expected.saturating_sub(self.plan.tally.received.read())
    }

    /// Makes a talker send the run's `n`-th direct message: all talkers get one in turn, none its own.
    fn direct(&self, from: usize, n: usize) {
        let count = self.talkers.len();
        let to = n % count;
        let to = if to == from { (to + 1) % count } else { to };
        self.talkers[from].direct(&self.plan, &self.talkers[to]);
    }

    /// Waits for what is under way.
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

    /// Has the slow ones read again, and waits until it is known of each what it has lost.
    fn wait_for_slow(&mut self) {
        if self.slow.is_empty() {
            return;
        }
        for channel in self.slow.drain(..) {
            // One that is closed has nothing left to read.
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
                    "{} of {} slow ones know",
                    fates.slow - left,
                    fates.slow
                ));
            }
            self.progress.show(|| format!("waiting for {left} slow ones to read"));
            self.wait();
            let progress = self.plan.slows.progress();
            if progress != last.0 {
                last = (progress, Instant::now());
            }
        }
    }

    /// Waits until the server has told of every direct message how it ended, or should have.
    fn wait_for_directs(&mut self) {
        let until = Instant::now() + self.plan.directs.longest() + LATE;
        loop {
            let left = self.plan.directs.under_way();
            if left == 0 || self.outcome.interrupted || Instant::now() > until {
                return self.progress.end_phase(&format!("{left} direct messages under way"));
            }
            self.progress.show(|| format!("waiting for the end of {left} direct messages"));
            self.wait();
        }
    }

    /// Waits until the server has dropped the silent ones, or should have.
    fn wait_for_silent(&mut self) {
        loop {
            let silent = self.plan.tally.silent();
            let Some(until) = silent.until else { return };
            let (left, of) = (silent.logged_in - silent.dropped, silent.logged_in);
            if left == 0 || self.outcome.interrupted || Instant::now() > until + LATE {
                return self.progress.end_phase(&format!("{} of {of} silent ones dropped", of - left));
            }
            let seconds = until.saturating_duration_since(Instant::now()).as_secs();
            self.progress.show(|| {
                format!("waiting for the server to drop {left} silent ones, at most {seconds} s more")
            });
            self.wait();
        }
    }

    /// Sleeps for a moment, and takes in what the bots report.
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
