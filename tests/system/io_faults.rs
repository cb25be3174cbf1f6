//! System calls of a server and a client that fail: strace injects errors into the calls that move
//! bytes and open connections. A fault affects at most the channel that it hits. All other channels
//! lose no byte, and the error is reported once.
//!
//! strace cannot shorten a write without losing bytes, because the kernel does not execute a call
//! that strace fails. So short writes here are real ones, caused by a small `SO_SNDBUF` and a peer
//! that reads slowly. The tests do not fail `close` either: Linux closes the descriptor even if
//! `close` returns an error. `accept_exhaustion.rs` tests faults of `accept4`, and `poll_faults.rs`
//! faults of the poll.
//!
//! Linux only. Where strace is missing, the tests say so and pass, except where `CI=true`.

#![cfg(target_os = "linux")]

use crate::support::{
    loops::{end, metrics, one_loop},
    process::{Process, play, plays, strace_works},
    random::Random,
    tcp::{ANY_PORT, assert_same, connect, patient, ping},
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    codec::LengthField,
    net::TcpOptions,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
};
use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    ops::ControlFlow,
    sync::{Mutex, mpsc},
    thread,
    time::Duration,
};

/// The size of a frame that is copied and sent with `send`, and of one that is kept and sent with
/// `sendmsg`.
const SMALL: usize = 100;
const LARGE: usize = 8 * 1024;

// ---- the child ---------------------------------------------------------------------------------

/// Carries the handlers' reports. Standard output would add a `write` to the loop's calls.
type Report = mpsc::Sender<String>;

/// Echoes each frame. Reports each frame that was not sent, each error and the end.
struct Echo {
    report: Report,
    peer: u16,
}

impl Echo {
    fn say(&self, what: &str) -> Result {
        self.report.send(format!("{what} of {}", self.peer)).map_err(|e| Error::other(format!("{e:#}")))
    }
}

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        let (report, peer) = (self.report.clone(), self.peer);
        ctx.write_tracked(message)?.on_complete(move |sent| {
            if let Err(e) = sent {
                let _ = report.send(format!("unsent: {e:#} of {peer}"));
            }
        });
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        ctx.close();
        self.say(&format!("error: {error:#}"))
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.say("inactive")
    }
}

fn frames() -> LengthField {
    LengthField::u32().max_len(64 * 1024)
}

/// The child: an echo server for frames on one loop. At the end of its input it prints its
/// counters.
fn serve_frames(tcp: TcpOptions) {
    env_logger::init();
    let group = one_loop();
    let (report, reports) = mpsc::channel::<String>();
    let printer = thread::spawn(move || reports.iter().for_each(|line| println!("{line}")));
    let server = ServerBootstrap::new(&group)
        .tcp_options(tcp)
        .pipeline(move |peer| {
            let peer = peer.address().map_or(0, |address| address.port());
            Pipeline::codec(frames()).handler(Echo { report: report.clone(), peer })
        })
        .bind(ANY_PORT)
        .unwrap();
    println!("listening on {}", server.local_address());
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    let counted = metrics(&group);
    end(&group);
    drop(server);
    printer.join().unwrap();
    println!("turns {}", counted.turns);
    println!("failed {}", counted.channel_errors);
    println!("blocked {}", counted.writes_blocked);
    println!("descriptors {}", fs::read_dir("/proc/self/fd").unwrap().count());
}

#[test]
fn frame_server() {
    if plays("frame_server") {
        serve_frames(TcpOptions::new());
    }
}

#[test]
fn frame_server_with_a_small_send_buffer() {
    if plays("frame_server_with_a_small_send_buffer") {
        serve_frames(TcpOptions::new().send_buffer(1024));
    }
}

/// The server, whose kernel fails `call` with `error` at the times that `when` gives. `None` where
/// strace is missing.
struct Faulty {
    child: Process,
    address: SocketAddr,
    random: Random,
}

/// Output and counters of the child when it has ended.
struct Account {
    said: String,
    log: String,
    turns: u64,
    failed: u64,
    blocked: u64,
    descriptors: u64,
}

impl Faulty {
    fn start(role: &str, call: &str, error: &str, when: &str) -> Option<Self> {
        let trace = format!("trace={call}");
        let inject = format!("inject={call}:error={error}:when={when}");
        let options = ["-e", &trace, "-e", &inject];
        if !strace_works(&["-e", &trace]) {
            return None;
        }
        let mut child = Process::strace(&options, &play(role));
        let address = child.stdout.wait_for("listening on ").parse().unwrap();
        Some(Faulty { child, address, random: Random::new(5) })
    }

    fn connect(&self) -> TcpStream {
        connect(self.address)
    }

    fn connect_with_a_small_receive_buffer(&self) -> TcpStream {
        use socket2::{Domain, Socket, Type};
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        socket.connect(&self.address.into()).unwrap();
        let stream = TcpStream::from(socket);
        patient(&stream);
        stream
    }

    fn frame(&mut self, n: usize) -> Vec<u8> {
        let mut frame = (n as u32).to_be_bytes().to_vec();
        frame.extend_from_slice(&self.random.bytes(n));
        frame
    }

    /// Does one round trip of a frame.
    #[track_caller]
    fn ping(&mut self, peer: &mut TcpStream, n: usize) {
        let frame = self.frame(n);
        ping(peer, &frame);
    }

    #[track_caller]
    fn end(mut self) -> Account {
        drop(self.child.take_stdin());
        let (said, log) = self.child.succeed();
        let count = |what: &str| -> u64 {
            let line = said.lines().find_map(|line| line.strip_prefix(what));
            line.unwrap_or_else(|| panic!("no {what:?} in {said}")).parse().unwrap()
        };
        let [turns, failed, blocked, descriptors] =
            ["turns ", "failed ", "blocked ", "descriptors "].map(count);
        Account { said, log, turns, failed, blocked, descriptors }
    }
}

/// Waits until the server has closed the connection. Returns whether it closed without sending
/// anything.
#[track_caller]
fn is_ended(peer: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    match peer.read_to_end(&mut rest) {
        Ok(_) => {}
        Err(e) if e.kind() == ErrorKind::ConnectionReset => {}
        Err(e) => panic!("{e}"),
    }
    rest.is_empty()
}

// ---- faults that cost one channel --------------------------------------------------------------

/// Connects three peers, the second of which meets the fault at its second frame. Returns the
/// server's account and the port of the second peer.
fn one_of_three(call: &str, error: &str, code: i32, size: usize) -> Option<(Account, u16)> {
    // Each round trip makes one such call, whichever peer it comes from.
    let mut faulty = Faulty::start("frame_server", call, error, "5")?;
    let mut peers = [(); 3].map(|()| faulty.connect());
    for peer in &mut peers {
        faulty.ping(peer, size);
    }
    faulty.ping(&mut peers[0], size);
    let victim = peers[1].local_addr().unwrap().port();
    let frame = faulty.frame(size);
    peers[1].write_all(&frame).unwrap();
    assert!(is_ended(&mut peers[1]), "{call} {error}: no part of the echo is sent");
    for peer in [0, 2] {
        faulty.ping(&mut peers[peer], size);
    }
    let mut later = faulty.connect();
    faulty.ping(&mut later, size);
    drop((peers, later));
    let account = faulty.end();
    let (said, reason) = (&account.said, format!("(os error {code})"));
    assert_eq!(said.matches("error: ").count(), 1, "{call} {error}: {said}");
    assert_eq!(said.matches(&format!("inactive of {victim}")).count(), 1, "{said}");
    assert_eq!(said.matches("inactive of ").count(), 4, "{said}");
    let told = said.lines().find(|line| line.starts_with("error: ")).unwrap();
    assert!(told.contains(&reason) && told.ends_with(&format!(" of {victim}")), "{told}");
    assert_eq!(account.failed, 1);
    assert!(account.turns < 200, "{} turns", account.turns);
    Some((account, victim))
}

const EPIPE: i32 = 32;
const ECONNRESET: i32 = 104;
const ETIMEDOUT: i32 = 110;
const ENOBUFS: i32 = 105;
const ENOMEM: i32 = 12;

/// C-31: an error in a flush is reported to `error` once. The completion of the write fails with
/// the same error as the channel closes.
///
/// C-55: a shortage of memory may be temporary, but then the kernel waits by itself and returns
/// `EAGAIN`. A write that fails with another error has failed, as with mio, tokio and Netty.
#[test]
fn a_failed_write_costs_its_channel_and_reports_the_error() {
    for (error, code) in
        [("EPIPE", EPIPE), ("ECONNRESET", ECONNRESET), ("ENOBUFS", ENOBUFS), ("ENOMEM", ENOMEM)]
    {
        for (call, size) in [("sendto", SMALL), ("sendmsg", LARGE)] {
            let Some((account, victim)) = one_of_three(call, error, code, size) else { return };
            let unsent: Vec<_> = account.said.lines().filter(|line| line.starts_with("unsent: ")).collect();
            assert_eq!(unsent.len(), 1, "{unsent:?}");
            let told = format!("(os error {code}) of {victim}");
            assert!(
                unsent[0].starts_with("unsent: writing failed: ") && unsent[0].ends_with(&told),
                "{unsent:?}"
            );
        }
    }
}

#[test]
fn a_failed_read_costs_its_channel_and_reports_the_error() {
    for (error, code) in
        [("ECONNRESET", ECONNRESET), ("ETIMEDOUT", ETIMEDOUT), ("ENOBUFS", ENOBUFS), ("ENOMEM", ENOMEM)]
    {
        let Some((account, _)) = one_of_three("recvfrom", error, code, SMALL) else { return };
        assert!(account.said.contains("error: reading failed: "), "{}", account.said);
        assert!(!account.said.contains("unsent: "), "{}", account.said);
    }
}

/// C-11, C-72: connections that cannot be registered or configured do not become channels. Their
/// sockets are closed, one line reports all of them, and accepting continues.
#[test]
fn connections_that_cannot_be_set_up_are_closed_without_affecting_others() {
    let faults = [
        ("epoll_ctl", "ENOSPC", "1000", 0),
        // By the fifth call the listener has been set up.
        ("epoll_ctl", "ENOSPC", "5..14", 10),
        ("epoll_ctl", "ENOMEM", "5..14", 10),
        ("setsockopt", "ENOBUFS", "5..14", 10),
    ];
    let mut descriptors = Vec::new();
    for (call, error, when, fail) in faults {
        let Some(mut faulty) = Faulty::start("frame_server", call, error, when) else { return };
        let mut peers: Vec<TcpStream> = Vec::new();
        let mut ended = 0;
        for _ in 0..20 {
            let mut peer = faulty.connect();
            let frame = faulty.frame(SMALL);
            let mut back = vec![0; frame.len()];
            let sent = peer.write_all(&frame).and_then(|()| peer.read_exact(&mut back));
            match sent {
                Ok(()) => {
                    assert_same(&back, &frame);
                    peers.push(peer);
                }
                Err(e) => {
                    // The end of the stream would look like that of an empty response.
                    assert!(call != "epoll_ctl" || e.kind() == ErrorKind::ConnectionReset, "{e}");
                    ended += 1;
                }
            }
        }
        assert_eq!(ended, fail, "{call} {error}");
        for peer in &mut peers {
            faulty.ping(peer, LARGE);
        }
        drop(peers);
        let account = faulty.end();
        assert_eq!(account.said.matches("inactive of ").count(), 20 - fail, "{}", account.said);
        // One line in ten seconds.
        let lines = account.log.matches("is closed: ").count();
        assert!(if fail == 0 { lines == 0 } else { (1..=3).contains(&lines) }, "{}", account.log);
        assert_eq!(account.failed, 0);
        descriptors.push(account.descriptors);
    }
    assert!(descriptors.iter().all(|open| *open == descriptors[0]), "{descriptors:?}");
}

// ---- faults without effect ---------------------------------------------------------------------

/// EINTR once, often enough in a row to use up a turn's writes, and every other time.
#[test]
fn interrupted_calls_are_repeated() {
    for (call, size) in [("sendto", SMALL), ("sendmsg", LARGE), ("recvfrom", SMALL), ("recvfrom", LARGE)] {
        for when in ["3", "2..50", "1+2"] {
            let Some(mut faulty) = Faulty::start("frame_server", call, "EINTR", when) else { return };
            let mut peers = [(); 3].map(|()| faulty.connect());
            for _ in 0..20 {
                for peer in &mut peers {
                    faulty.ping(peer, size);
                }
            }
            drop(peers);
            let account = faulty.end();
            assert_eq!(account.failed, 0, "{call} {when}: {}", account.said);
            assert!(!account.said.contains("error: ") && !account.said.contains("unsent: "));
            assert!(account.turns < 600, "{call} {when}: {} turns", account.turns);
        }
    }
}

/// T-05, with a kernel that accepts a part of each round at once, and interrupts every other write.
#[test]
fn t_05_short_and_interrupted_writes_lose_nothing() {
    const ROUNDS: u64 = 12;
    for call in ["sendto", "sendmsg"] {
        let role = "frame_server_with_a_small_send_buffer";
        let Some(mut faulty) = Faulty::start(role, call, "EINTR", "1+2") else { return };
        let mut stream = faulty.connect_with_a_small_receive_buffer();
        let mut other = faulty.connect();
        for _ in 0..ROUNDS {
            let sizes: Vec<_> = (0..16).map(|_| faulty.random.between(1, 24 * 1024)).collect();
            let sent: Vec<u8> = sizes.iter().flat_map(|n| faulty.frame(*n)).collect();
            assert!(sent.len() > 100 * 1024, "more than the buffers of both ends hold");
            stream.write_all(&sent).unwrap();
            // The reply to this ping comes a turn after the replies to the stream were written,
            // which have filled the buffers.
            for _ in 0..2 {
                faulty.ping(&mut other, SMALL);
            }
            let mut back = Vec::with_capacity(sent.len());
            while back.len() < sent.len() {
                let mut some = [0; 700];
                let n = stream.read(&mut some).unwrap();
                assert!(n > 0, "the stream ended after {} bytes of {}", back.len(), sent.len());
                back.extend_from_slice(&some[..n]);
                if back.len() % 64 == 0 {
                    faulty.ping(&mut other, SMALL);
                }
            }
            assert_same(&back, &sent);
        }
        drop((stream, other));
        let account = faulty.end();
        assert!(account.blocked >= ROUNDS, "the kernel took everything at once: {}", account.blocked);
        assert_eq!(account.failed, 0, "{}", account.said);
    }
}

/// Faults leak no descriptors.
#[test]
fn failed_channels_leak_no_descriptors() {
    let mut counts = Vec::new();
    for when in ["1000", "1+2"] {
        let Some(mut faulty) = Faulty::start("frame_server", "sendto", "EPIPE", when) else { return };
        let mut ended = 0;
        for _ in 0..20 {
            let mut peer = faulty.connect();
            let frame = faulty.frame(SMALL);
            peer.write_all(&frame).unwrap();
            let mut back = vec![0; frame.len()];
            ended += usize::from(peer.read_exact(&mut back).is_err());
        }
        assert_eq!(ended, if when == "1000" { 0 } else { 10 });
        counts.push(faulty.end().descriptors);
    }
    assert_eq!(counts[0], counts[1]);
}

// ---- clients -----------------------------------------------------------------------------------

struct Hello;

impl Handler for Hello {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write("hello".into())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

/// The child: a client that stays connected to the address that it reads, and reports its attempts.
#[test]
fn reconnecting_client() {
    if !plays("reconnecting_client") {
        return;
    }
    let mut address = String::new();
    io::stdin().read_line(&mut address).unwrap();
    // The harness has started a line already.
    println!();
    let group = one_loop();
    let (report, reports) = mpsc::channel::<String>();
    let printer = thread::spawn(move || reports.iter().for_each(|line| println!("{line}")));
    let report = Mutex::new(report);
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(frames()).handler(Hello))
        .reconnect(Backoff::new().initial(Duration::from_millis(1)).jitter(false))
        .on_event(move |event| {
            let line = match event {
                ReconnectEvent::Failed { error, .. } => format!("failed: {error:#}"),
                ReconnectEvent::Connected { attempt, .. } => format!("connected at {attempt}"),
                _ => return ControlFlow::Continue(()),
            };
            report.lock().unwrap().send(line).unwrap();
            ControlFlow::Continue(())
        })
        .connect(address.trim())
        .unwrap();
    io::stdin().read_to_end(&mut Vec::new()).unwrap();
    client.close();
    done(client.closed()).unwrap();
    end(&group);
    drop(client);
    printer.join().unwrap();
}

/// Returns the first `n` bytes, or none if the connection is closed.
fn read_up_to(stream: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut bytes = vec![0; n];
    match stream.read_exact(&mut bytes) {
        Ok(()) => bytes,
        Err(_) => Vec::new(),
    }
}

#[test]
fn a_client_without_a_socket_or_a_route_retries() {
    let faults = [
        ("socket", "EMFILE", 24),
        ("socket", "ENFILE", 23),
        ("socket", "ENOBUFS", ENOBUFS),
        ("connect", "EADDRNOTAVAIL", 99),
        ("connect", "ENETUNREACH", 101),
        ("connect", "EINTR", 4),
        ("setsockopt", "ENOBUFS", ENOBUFS),
    ];
    for (call, error, code) in faults {
        let trace = format!("trace={call}");
        let inject = format!("inject={call}:error={error}:when=1..3");
        if !strace_works(&["-e", &trace]) {
            return;
        }
        let listener = TcpListener::bind(ANY_PORT).unwrap();
        let mut child = Process::strace(&["-e", &trace, "-e", &inject], &play("reconnecting_client"));
        child.say(&format!("{}\n", listener.local_addr().unwrap()));
        // An attempt that fails after its connect appears here as a connection without data.
        let hello = loop {
            let (mut stream, _) = listener.accept().unwrap();
            patient(&stream);
            let hello = read_up_to(&mut stream, 9);
            if !hello.is_empty() {
                break hello;
            }
        };
        assert_eq!(hello, b"\0\0\0\x05hello");
        let (said, _) = child.succeed();
        let failed: Vec<_> = said.lines().filter(|line| line.starts_with("failed: ")).collect();
        assert!((1..=3).contains(&failed.len()), "{call} {error}: {said}");
        assert!(failed.iter().all(|line| line.ends_with(&format!("(os error {code})"))), "{failed:?}");
        let at = format!("connected at {}", failed.len() + 1);
        assert!(said.lines().any(|line| line == at), "{said}");
    }
}

/// The child: connects once to the address that it reads, on a manually driven loop.
#[test]
fn client_that_cannot_register() {
    if !plays("client_that_cannot_register") {
        return;
    }
    let mut address = String::new();
    io::stdin().read_line(&mut address).unwrap();
    println!();
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let descriptors = || fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let bootstrap = ClientBootstrap::new(by_hand.group());
    let bootstrap = bootstrap.pipeline(|_| Pipeline::codec(frames()).handler(Hello));
    let connected = by_hand.run_until(bootstrap.connect(address.trim()));
    println!("failed: {:#}", connected.unwrap_err());
    println!("left open: {}", descriptors() - before);
}

/// C-11: an outbound connection that cannot be registered fails its connect, and its socket is
/// closed.
#[test]
fn a_connect_that_cannot_be_registered_fails_and_leaves_no_socket() {
    // The first call is for the loop's waker.
    let options = ["-e", "trace=epoll_ctl", "-e", "inject=epoll_ctl:error=ENOSPC:when=2"];
    if !strace_works(&options) {
        return;
    }
    let listener = TcpListener::bind(ANY_PORT).unwrap();
    let mut child = Process::strace(&options, &play("client_that_cannot_register"));
    child.say(&format!("{}\n", listener.local_addr().unwrap()));
    let (mut stream, _) = listener.accept().unwrap();
    patient(&stream);
    assert!(is_ended(&mut stream), "the peer sees the end of the stream without any bytes");
    let (said, _) = child.succeed();
    assert!(
        said.contains("failed: watching a connection failed: ") && said.contains("(os error 28)"),
        "{said}"
    );
    assert!(said.contains("left open: 0\n"), "{said}");
}
