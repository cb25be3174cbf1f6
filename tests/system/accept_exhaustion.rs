//! A listener without descriptors or memory for its connections pauses, logs that at intervals, and
//! continues when resources are available. An error that concerns only one connection does not
//! delay the others.
//!
//! Linux only. Where strace is missing, the tests that need it say so and pass, except where
//! `CI=true`.

#![cfg(target_os = "linux")]

use crate::own_process;
use crate::support::{
    logs,
    process::{Process, play, plays, strace_works},
    resources::DescriptorLimit,
    servers::Echo,
    tcp::connect,
    wait::PATIENCE,
};
use netwheel::{
    codec::RawBytes, group::ManualEventLoop, metrics::LoopMetrics, net::UnixAddress, prelude::*,
    shutdown::ShutdownOptions, testing::ManualClock,
};
use std::{
    io::{self, Read, Write},
    net::TcpStream,
    os::{linux::net::SocketAddrExt, unix::net::UnixStream},
    time::{Duration, Instant},
};

/// An echo server on a manually driven loop with a manual clock.
struct Counted {
    by_hand: ManualEventLoop,
    clock: ManualClock,
    server: Server,
}

impl Counted {
    fn new() -> Self {
        let clock = ManualClock::new();
        let by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
        let bootstrap = ServerBootstrap::new(by_hand.group()).accepting(false);
        let server = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Echo)).bind("127.0.0.1:0");
        Counted { by_hand, clock, server: server.unwrap() }
    }

    fn metrics(&self) -> LoopMetrics {
        self.by_hand.event_loop().metrics()
    }

    /// Runs turns until nothing is left to do.
    fn settle(&mut self) {
        while self.by_hand.run_once(Duration::ZERO) > 0 {}
    }

    fn advance(&mut self, by: Duration) {
        self.clock.advance(by);
        self.settle();
    }

    /// Runs turns until `is_met`.
    fn run_until(&mut self, what: &str, is_met: impl Fn(&LoopMetrics) -> bool) {
        let begun = Instant::now();
        while !is_met(&self.metrics()) {
            assert!(begun.elapsed() < PATIENCE, "{what}: {:?}", self.metrics());
            self.by_hand.run_once(Duration::from_millis(10));
        }
    }

    fn ping(&mut self, peer: &mut TcpStream) {
        let before = self.metrics().bytes_written;
        peer.write_all(b"hello").unwrap();
        self.run_until("an echo", |metrics| metrics.bytes_written == before + 5);
        let mut back = [0; 5];
        peer.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    }

    /// Returns the log lines about accepting on this server.
    fn lines(&self) -> Vec<String> {
        logs::lines_with(&format!("accepting on {}", self.server.local_address()))
    }
}

/// C-72: the listener pauses and resumes by itself, and open connections are served during the
/// pause.
#[test]
fn a_listener_without_descriptors_neither_spins_nor_hangs() {
    own_process!();
    logs::collect();
    let mut counted = Counted::new();
    let address = counted.server.local_address();
    counted.server.set_accepting(true).unwrap();
    let mut there = connect(address);
    counted.run_until("the first connection", |metrics| metrics.accepted == 1);
    counted.ping(&mut there);

    // Twenty clients connect, but there are descriptors for only five.
    counted.server.set_accepting(false).unwrap();
    counted.settle();
    let mut come: Vec<_> = (0..20).map(|_| connect(address)).collect();
    let limit = DescriptorLimit::leave(5);
    counted.server.set_accepting(true).unwrap();
    counted.settle();
    let metrics = counted.metrics();
    assert_eq!((metrics.accepted, metrics.accept_errors), (6, 1));

    // While the clock stands still, the listener does not retry, whatever else the loop does: the
    // loop would sleep.
    for _ in 0..1000 {
        assert_eq!(counted.by_hand.run_once(Duration::ZERO), 0, "the loop must not spin");
    }
    counted.ping(&mut there);
    assert_eq!(counted.metrics().accept_errors, 1);

    // A minute of this: two attempts per second, after a few quicker ones, and a log line at
    // intervals.
    let turns = counted.metrics().turns;
    for _ in 0..6000 {
        counted.advance(Duration::from_millis(10));
    }
    let metrics = counted.metrics();
    assert_eq!(metrics.accepted, 6);
    assert!((120..=128).contains(&metrics.accept_errors), "{} attempts", metrics.accept_errors);
    // For each advance, one turn that finds nothing to do, and one more turn for each attempt.
    assert!(metrics.turns - turns <= 6000 + 2 * 128, "{} turns", metrics.turns - turns);
    let lines = counted.lines();
    assert!((2..=12).contains(&lines.len()), "{lines:#?}");
    assert!(lines[0].starts_with("WARN"), "{}", lines[0]);
    let suppressed = logs::lines_with("failed accepts: ");
    assert!(!suppressed.is_empty(), "the suppressed lines are counted");
    assert!(suppressed[0].contains(" more lines were suppressed in the last 10"), "{suppressed:?}");
    counted.ping(&mut there);

    // A connection that closes releases its descriptor, and that of its peer, for waiting
    // connections.
    drop(come.remove(0));
    counted.run_until("a close", |metrics| metrics.channels_closed == 1);
    counted.advance(Duration::from_millis(500));
    assert_eq!(counted.metrics().accepted, 8);

    // When there are descriptors again, all connections are served within a second.
    drop(limit);
    counted.advance(Duration::from_secs(1));
    assert_eq!(counted.metrics().accepted, 21);
    for peer in come.iter_mut().chain([&mut there]) {
        counted.ping(peer);
    }
    // The next connection does not wait for a timer.
    let mut next = connect(address);
    counted.run_until("the next connection", |metrics| metrics.accepted == 22);
    counted.ping(&mut next);
}

/// C-72 for a Unix socket: its listener pauses and resumes like a TCP listener.
#[test]
fn a_unix_listener_without_descriptors_resumes_when_there_are_some() {
    own_process!();
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
    let address = UnixAddress::abstract_name(format!("netwheel-exhaustion-{}", std::process::id())).unwrap();
    let bootstrap = ServerBootstrap::new(by_hand.group()).accepting(false);
    let bootstrap = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Echo));
    let server = bootstrap.bind(address.clone()).unwrap();
    let name =
        std::os::unix::net::SocketAddr::from_abstract_name(address.as_abstract_name().unwrap()).unwrap();
    let mut come: Vec<_> = (0..5).map(|_| UnixStream::connect_addr(&name).unwrap()).collect();
    let limit = DescriptorLimit::leave(2);
    server.set_accepting(true).unwrap();
    while by_hand.run_once(Duration::ZERO) > 0 {}
    let metrics = by_hand.event_loop().metrics();
    assert_eq!((metrics.accepted, metrics.accept_errors), (2, 1));
    for _ in 0..100 {
        assert_eq!(by_hand.run_once(Duration::ZERO), 0, "the loop must not spin");
    }
    drop(limit);
    clock.advance(Duration::from_secs(1));
    while by_hand.run_once(Duration::ZERO) > 0 {}
    let metrics = by_hand.event_loop().metrics();
    assert_eq!((metrics.accepted, metrics.accept_errors), (5, 1));
    for peer in &mut come {
        peer.write_all(b"hello").unwrap();
    }
    while by_hand.run_once(Duration::ZERO) > 0 {}
    for peer in &mut come {
        let mut back = [0; 5];
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        peer.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"hello");
    }
}

#[test]
fn descriptors_that_come_and_go_do_not_flood_the_log() {
    own_process!();
    logs::collect();
    let mut counted = Counted::new();
    let address = counted.server.local_address();
    let mut come: Vec<_> = (0..400).map(|_| connect(address)).collect();
    let _limit = DescriptorLimit::leave(0);
    counted.server.set_accepting(true).unwrap();
    counted.settle();
    // For a minute, an open connection closes every 300 ms, and its descriptor goes to a waiting
    // one.
    for n in 1..=200 {
        drop(come.pop());
        counted.advance(Duration::from_millis(300));
        assert!(counted.metrics().accepted <= n);
    }
    counted.advance(Duration::from_millis(500));
    let metrics = counted.metrics();
    assert_eq!(metrics.accepted, 200, "each descriptor is used");
    assert!(metrics.accept_errors <= 200 * 6, "{} attempts", metrics.accept_errors);
    let lines = counted.lines();
    assert!((1..=12).contains(&lines.len()), "{lines:#?}");
}

// ---- errors injected by strace -----------------------------------------------------------------

/// Returns the strace option that makes `times` accepts fail.
fn faults(error: &str, times: u32) -> String {
    format!("inject=accept4:error={error}:when=1..{times}")
}

/// The child: an echo server on its own loop. At the end of its input it prints its counters.
fn serve(group: &EventLoopGroup) {
    logs::collect();
    let bootstrap = ServerBootstrap::new(group);
    let server = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Echo)).bind("127.0.0.1:0");
    println!("listening on {}", server.unwrap().local_address());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let metrics = group.next().metrics();
    println!("errors {}", metrics.accept_errors);
    println!("turns {}", metrics.turns);
    println!("lines {}", logs::lines_with("accepting on").len());
    let end =
        group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
    end.wait_timeout(PATIENCE).expect("the server ends").expect("the server has not failed");
}

#[test]
fn echo_server() {
    if plays("echo_server") {
        serve(&EventLoopGroup::builder().threads(1).build().unwrap());
    }
}

#[test]
fn echo_server_whose_time_stands_still() {
    if plays("echo_server_whose_time_stands_still") {
        serve(&EventLoopGroup::builder().threads(1).clock(ManualClock::new()).build().unwrap());
    }
}

/// Starts a child whose first accepts fail, and does one echo. Returns its counts of errors, turns
/// and log lines.
fn after_faults(role: &str, error: &str, times: u32) -> Option<[u64; 3]> {
    let faults = faults(error, times);
    let options = ["-e", "trace=accept4", "-e", &faults];
    if !strace_works(&options) {
        return None;
    }
    let mut child = Process::strace(&options, &play(role));
    let mut peer = connect(child.stdout.wait_for("listening on ").parse().unwrap());
    peer.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    peer.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
    drop(child.take_stdin());
    let counts = ["errors ", "turns ", "lines "];
    let counts = counts.map(|what| child.stdout.wait_for(what).trim().parse().unwrap());
    child.succeed();
    Some(counts)
}

#[test]
fn every_shortage_pauses_the_listener_and_ends() {
    for error in ["ENFILE", "ENOBUFS", "ENOMEM", "EMFILE", "EINVAL"] {
        let Some([errors, turns, lines]) = after_faults("echo_server", error, 4) else { return };
        assert_eq!((errors, lines), (4, 1), "{error}");
        assert!(turns < 100, "{error}: {turns} turns");
    }
}

#[test]
fn an_aborted_connection_does_not_delay_the_next_accept() {
    for error in ["ECONNABORTED", "EPROTO", "EPERM", "ENETDOWN", "EHOSTUNREACH", "EINTR"] {
        // The clock of this child stands still, so a listener that waited for a timer would wait
        // indefinitely.
        let role = "echo_server_whose_time_stands_still";
        let Some([errors, _, lines]) = after_faults(role, error, 200) else { return };
        assert_eq!((errors, lines), (200, 0), "{error}");
    }
}
