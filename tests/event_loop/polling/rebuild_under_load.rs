//! Repeated rebuilds of the poll under load: a thousand connections, tasks from other threads,
//! timers. Nothing is lost, duplicated, reordered or early.

use crate::support::{
    loops::{on, settle, settle_until, single},
    resources::need_descriptors,
    tcp::connect,
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    Completion, Context, EventLoop, EventLoopGroup, Handler, Pipeline, Result, Server, ServerBootstrap,
    codec::RawBytes,
    diagnostics::{PollRebuild, RebuildCause},
    net::{ListenerOptions, TcpOptions},
    time::{MissedRuns, Periodic, ScheduledTask},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    thread::Scope,
    time::{Duration, Instant},
};

const CONNECTIONS: usize = 1000;

/// Number of threads, each of which writes to and reads from its share of the connections.
const DRIVERS: usize = 2;

/// Minimum number of round trips of each connection.
const ROUNDS: usize = 8;

/// Round trips after the last rebuild. A loss in the last rebuild would go unnoticed without them,
/// because a further rebuild reports readiness again.
const AFTERWARDS: usize = 2;

/// Minimum number of rebuilds.
const REBUILDS: usize = 100;

/// One of this many connections sends more than a socket takes at once, so that the server has to
/// wait for the peer.
const LARGE_EVERY: usize = 50;
const LARGE: usize = 512 * 1024;

/// Send buffer of the server's sockets. Smaller than the part of a large message that the peer
/// leaves unread.
const SEND_BUFFER: usize = 64 * 1024;

/// Counters of one run, and the flags that end it.
#[derive(Default)]
struct Run {
    over: AtomicBool,
    /// Set when the last rebuild is complete.
    rebuilt: AtomicBool,
    rounds: [AtomicUsize; DRIVERS],
    rebuilds: AtomicUsize,
    early: AtomicUsize,
}

impl Run {
    fn note_early(&self, due: Instant) {
        if Instant::now() < due {
            self.early.fetch_add(1, SeqCst);
        }
    }

    fn is_over(&self) -> bool {
        self.over.load(SeqCst)
    }

    /// Waits until the run is long enough, or has failed in a way that prevents progress.
    fn until_enough(&self, event_loop: &EventLoop) {
        let begun = Instant::now();
        let enough = || {
            self.rebuilds.load(SeqCst) >= REBUILDS
                && self.rounds.iter().all(|n| n.load(SeqCst) >= ROUNDS)
                // The server has had to wait for a peer.
                && event_loop.metrics().writes_blocked > 0
        };
        while !enough() && begun.elapsed() < 5 * PATIENCE {
            done(event_loop.schedule(ms(10), || ()).unwrap().completion()).unwrap();
        }
        self.over.store(true, SeqCst);
    }
}

// ---- the server --------------------------------------------------------------------------------

#[derive(Default)]
struct Counts {
    reads: AtomicU64,
    timers: AtomicU64,
    early: AtomicU64,
}

/// Echoes its input, and starts a timer of the channel for every read.
struct Echo(Arc<Counts>);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0.reads.fetch_add(1, SeqCst);
        let due = Instant::now() + ms(2);
        ctx.schedule(ms(2), move |me, _| {
            me.0.timers.fetch_add(1, SeqCst);
            me.0.early.fetch_add(u64::from(Instant::now() < due), SeqCst);
            Ok(())
        });
        ctx.write(message)
    }
}

fn serve(group: &EventLoopGroup) -> (Server, Arc<Counts>) {
    let counts = Arc::new(Counts::default());
    let theirs = counts.clone();
    let server = ServerBootstrap::new(group)
        .listener_options(ListenerOptions::new().backlog(CONNECTIONS as u32))
        .tcp_options(TcpOptions::new().send_buffer(SEND_BUFFER))
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Echo(theirs.clone())));
    (server.bind("127.0.0.1:0").unwrap(), counts)
}

// ---- the load ----------------------------------------------------------------------------------

/// Returns the message of one connection in one round. Length and contents are unique to them.
fn request(connection: usize, round: usize) -> Vec<u8> {
    let large = connection.is_multiple_of(LARGE_EVERY) && round.is_multiple_of(4);
    let length = if large { LARGE } else { 1 + (connection * 7 + round * 13) % 600 };
    (0..length).map(|n| (connection ^ (round * 31) ^ (n * 17)) as u8).collect()
}

/// Does round trips on a share of the connections until the run ends, and a few more afterwards.
fn drive(run: &Run, driver: usize, first: usize, streams: &mut [TcpStream]) {
    let (mut round, mut left) = (0, AFTERWARDS);
    while left > 0 {
        // Read before the round: the last rebuild is reported before this is set.
        left -= usize::from(run.rebuilt.load(SeqCst));
        let requests: Vec<_> = (0..streams.len()).map(|n| request(first + n, round)).collect();
        for (stream, request) in streams.iter_mut().zip(&requests) {
            stream.write_all(request).unwrap();
        }
        for (n, (stream, request)) in streams.iter_mut().zip(&requests).enumerate() {
            let mut back = vec![0; request.len()];
            stream.read_exact(&mut back).unwrap_or_else(|e| panic!("connection {}: {e}", first + n));
            assert!(back == *request, "connection {} in round {round}", first + n);
        }
        round += 1;
        run.rounds[driver].store(round, SeqCst);
    }
}

/// Submits tasks and timers from another thread. Returns how many tasks were accepted and how many
/// ran in order, and how many timers were started and how many fired.
fn submit(run: &Run, event_loop: &EventLoop) -> Submitted {
    let ran = Arc::new(AtomicU64::new(0));
    let disorder = Arc::new(AtomicU64::new(0));
    let (mut given, mut timers, mut fired) = (0, 0, 0);
    while !run.is_over() {
        let mut waiting = Vec::new();
        for n in 0..20 {
            let due = Instant::now() + ms(n % 5);
            let timer = event_loop.schedule(ms(n % 5), move || Instant::now() >= due).unwrap();
            waiting.push(timer.completion());
        }
        for _ in 0..50 {
            let (ran, disorder, n) = (ran.clone(), disorder.clone(), given);
            let task = move || {
                disorder.fetch_add(u64::from(ran.fetch_add(1, SeqCst) != n), SeqCst);
            };
            // The last task wakes the loop. The lazy ones before it may have left it asleep.
            if given % 50 < 25 {
                event_loop.execute_lazily(task).unwrap();
            } else {
                event_loop.execute(task).unwrap();
            }
            given += 1;
        }
        for completion in waiting {
            timers += 1;
            fired += u64::from(done(completion).unwrap());
        }
    }
    settle(event_loop);
    assert_eq!(disorder.load(SeqCst), 0);
    Submitted { given, ran: ran.load(SeqCst), timers, fired }
}

struct Submitted {
    given: u64,
    ran: u64,
    timers: u64,
    /// Timers that fired on time, not early.
    fired: u64,
}

/// A task at a fixed rate that catches up on missed runs.
struct Beat {
    task: ScheduledTask,
    runs: Arc<AtomicU64>,
    begun: Instant,
}

const PERIOD: Duration = ms(4);

impl Beat {
    fn start(run: &Arc<Run>, event_loop: &EventLoop) -> Self {
        let runs = Arc::new(AtomicU64::new(0));
        let (count, run, begun) = (runs.clone(), run.clone(), Instant::now());
        let body = move || {
            let n = count.fetch_add(1, SeqCst);
            run.note_early(begun + PERIOD * u32::try_from(n + 1).unwrap());
            Ok(())
        };
        let task =
            event_loop.schedule_periodic(Periodic::fixed_rate(PERIOD).missed_runs(MissedRuns::CatchUp), body);
        Beat { task: task.unwrap(), runs, begun }
    }

    /// Waits until it has run for every period that has passed.
    fn catch_up(self, event_loop: &EventLoop) {
        // Its first deadline was computed slightly after `begun`, so one run may not be due yet.
        let due = (self.begun.elapsed().as_millis() / PERIOD.as_millis()) as u64 - 1;
        settle_until(event_loop, |_| self.runs.load(SeqCst) >= due);
        assert!(self.task.cancel());
    }
}

/// Rebuilds the poll every few milliseconds. The request comes alternately from the loop itself and
/// from this thread.
fn rebuild<'s>(
    scope: &'s Scope<'s, '_>,
    run: &'s Arc<Run>,
    event_loop: &'s EventLoop,
) -> Receiver<PollRebuild> {
    let (reports, reported) = channel();
    scope.spawn(move || {
        let _told = RebuiltAtDrop(run);
        for n in 0.. {
            if run.is_over() {
                break;
            }
            let again = |me: &EventLoop| me.rebuild_poll().unwrap();
            let me = event_loop.clone();
            let rebuilt: Completion<PollRebuild> = if n % 2 == 0 {
                done(event_loop.schedule(ms(3), || ()).unwrap().completion()).unwrap();
                again(event_loop)
            } else {
                done(event_loop.schedule(ms(3), move || again(&me)).unwrap().completion()).unwrap()
            };
            note(run, &reports, done(rebuilt).unwrap());
        }
    });
    reported
}

/// Sets the flag for the drivers when it is dropped, also if the thread panics.
struct RebuiltAtDrop<'a>(&'a Run);

impl Drop for RebuiltAtDrop<'_> {
    fn drop(&mut self) {
        self.0.rebuilt.store(true, SeqCst);
    }
}

fn note(run: &Run, reports: &Sender<PollRebuild>, report: PollRebuild) {
    reports.send(report).unwrap();
    run.rebuilds.fetch_add(1, SeqCst);
}

// ---- the test ----------------------------------------------------------------------------------

#[test]
fn rebuilds_under_load_lose_nothing() {
    // Both ends of each connection are in this process, and the test harness has descriptors of its
    // own.
    need_descriptors(2 * CONNECTIONS + 200);
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, counts) = serve(&group);
    let mut streams: Vec<_> = (0..CONNECTIONS).map(|_| connect(server.local_address())).collect();
    while event_loop.metrics().channels < CONNECTIONS as u64 {
        settle(&event_loop);
    }

    let run = Arc::new(Run::default());
    let beat = Beat::start(&run, &event_loop);
    let (submitted, reports) = std::thread::scope(|scope| {
        let share = CONNECTIONS / DRIVERS;
        let (run, event_loop) = (&run, &event_loop);
        for (driver, streams) in streams.chunks_mut(share).enumerate() {
            scope.spawn(move || drive(run, driver, driver * share, streams));
        }
        let submitters = [0, 1].map(|_| scope.spawn(move || submit(run, event_loop)));
        let reports = rebuild(scope, run, event_loop);
        run.until_enough(event_loop);
        let submitted = submitters.map(|submitter| submitter.join().unwrap());
        (submitted, reports.iter().collect::<Vec<_>>())
    });
    beat.catch_up(&event_loop);

    let rounds = run.rounds.each_ref().map(|rounds| rounds.load(SeqCst));
    assert!(rounds.iter().all(|rounds| *rounds >= ROUNDS), "{rounds:?} rounds");
    for Submitted { given, ran, timers, fired } in submitted {
        assert!(given > 0 && timers > 0);
        assert_eq!((given, timers), (ran, fired), "all tasks ran, all timers fired, none was early");
    }
    // The channels' timers fire 2 ms after the last read.
    settle_until(&event_loop, |_| counts.timers.load(SeqCst) >= counts.reads.load(SeqCst));
    assert_eq!(counts.timers.load(SeqCst), counts.reads.load(SeqCst));
    assert_eq!((counts.early.load(SeqCst), run.early.load(SeqCst)), (0, 0), "early timers");

    assert!(reports.len() >= REBUILDS, "{} rebuilds", reports.len());
    for (n, report) in (1..).zip(&reports) {
        assert_eq!((report.old_poll, report.new_poll), (n, n + 1));
        assert_eq!((report.moved, report.closed), (CONNECTIONS + 1, 0), "all connections and the listener");
        assert_eq!(report.cause, RebuildCause::Asked);
    }
    let metrics = on(&event_loop, {
        let me = event_loop.clone();
        move || me.metrics()
    });
    let rebuilds = reports.len() as u64;
    assert_eq!(metrics.rebuilds, rebuilds);
    assert_eq!(metrics.sources_moved, rebuilds * (CONNECTIONS as u64 + 1));
    assert_eq!((metrics.sources_lost, metrics.wakes_premature, metrics.rests), (0, 0, 0), "{metrics:?}");
    assert_eq!(metrics.channels, CONNECTIONS as u64);
    assert!(metrics.writes_blocked > 0, "the server never had to wait for a peer");
    let sent: usize = (0..CONNECTIONS)
        .map(|n| (0..rounds[n * DRIVERS / CONNECTIONS]).map(|round| request(n, round).len()).sum::<usize>())
        .sum();
    assert_eq!(
        (metrics.bytes_read, metrics.bytes_written),
        (sent as u64, sent as u64),
        "no byte is duplicated"
    );
}
