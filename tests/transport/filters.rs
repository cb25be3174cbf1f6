//! Byte filters of servers and clients over real sockets: handshakes, their time, announced
//! addresses, and what ends them.

use crate::support::{
    logs,
    loops::{end, metrics, one_loop, some_turns, the_loop, turn_until},
    tcp::{ANY_PORT, connect, read_n, read_to_end},
    wait::{done, ms, receive},
};
use bytes::Bytes;
use netwheel::{
    admission::{Admission, IpFilter, IpRule},
    codec::RawBytes,
    error::PeerError,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::ManualClock,
};
use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

const HELLO: &[u8] = b"hello";

/// Each side sends a hello and waits for that of the peer. Then all bits of data are flipped with
/// its key.
struct Xor {
    key: u8,
    established: bool,
    /// The address that it announces.
    announced: Option<SocketAddr>,
}

impl Xor {
    fn new(key: u8) -> Self {
        Xor { key, established: false, announced: None }
    }
}

impl Filter for Xor {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend_from_slice(HELLO);
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let mut data = 0;
        if !self.established {
            if input.len() < HELLO.len() {
                return Ok(0);
            }
            if !input.starts_with(HELLO) {
                ctx.output().extend_from_slice(b"alert");
                return Err(PeerError::Corrupted("no hello").into());
            }
            if let Some(announced) = self.announced {
                ctx.announce(announced, SocketAddr::from(([198, 51, 100, 1], 443)));
            }
            ctx.set_info(self.key);
            self.established = true;
            // Data may follow in the same segment. Only more input calls the filter again.
            data = HELLO.len();
        }
        input[data..].iter_mut().for_each(|byte| *byte ^= self.key);
        ctx.deliver(&input[data..]);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend(plain.iter().map(|byte| byte ^ self.key));
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }

    fn state(&self) -> FilterState {
        if self.established { FilterState::Established } else { FilterState::Handshaking }
    }
}

/// Echoes, and reports the calls and the address of its peer.
struct Echo(mpsc::Sender<(&'static str, Option<SocketAddr>)>);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.send(("active", ctx.peer_address())).map_err(|_| "the test has ended".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

type Calls = mpsc::Receiver<(&'static str, Option<SocketAddr>)>;

/// Starts a server, and returns the reports of its pipeline factory and its handlers.
fn serve(bootstrap: ServerBootstrap) -> (Server, Calls) {
    serve_at("127.0.0.1:0", bootstrap)
}

fn serve_at(address: &str, bootstrap: ServerBootstrap) -> (Server, Calls) {
    let (told, calls) = mpsc::channel();
    let server = bootstrap
        .pipeline(move |peer| {
            told.send(("pipeline", peer.address())).unwrap();
            Pipeline::codec(RawBytes).handler(Echo(told.clone()))
        })
        .bind(address)
        .unwrap();
    (server, calls)
}

fn client(group: &EventLoopGroup) -> ClientBootstrap {
    ClientBootstrap::new(group).filter(|_| Xor::new(7))
}

struct Quiet;

impl Handler for Quiet {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

fn handshake(to: SocketAddr) -> TcpStream {
    let mut peer = connect(to);
    peer.write_all(HELLO).unwrap();
    assert_eq!(read_n(&mut peer, HELLO.len()), HELLO);
    peer
}

fn xor(bytes: &[u8], key: u8) -> Vec<u8> {
    bytes.iter().map(|byte| byte ^ key).collect()
}

#[test]
fn the_pipeline_is_made_and_active_is_called_when_all_filters_are_established() {
    let group = one_loop();
    // Two filters: the second one starts its handshake through the first one.
    let (server, calls) = serve(ServerBootstrap::new(&group).filter(|_| Xor::new(1)).filter(|_| Xor::new(2)));
    let mut peer = connect(server.local_address());
    assert_eq!(read_n(&mut peer, 5), HELLO);
    peer.write_all(HELLO).unwrap();
    assert_eq!(read_n(&mut peer, 5), xor(HELLO, 1));
    some_turns(&group);
    assert!(calls.try_recv().is_err(), "nothing of the program is called before");
    let address = Some(peer.local_addr().unwrap());
    let in_one_segment = [xor(b"hello", 1), xor(b"data", 3)].concat();
    peer.write_all(&in_one_segment).unwrap();
    assert_eq!(receive(&calls), ("pipeline", address));
    assert_eq!(receive(&calls), ("active", address));
    assert_eq!(read_n(&mut peer, 4), xor(b"data", 3));
    turn_until(&group, |metrics| (metrics.handshakes, metrics.handshakes_failed) == (1, 0));
    end(&group);
}

#[test]
fn a_failed_handshake_sends_the_alert_and_makes_no_pipeline() {
    let group = one_loop();
    let (server, calls) = serve(ServerBootstrap::new(&group).filter(|_| Xor::new(7)));
    let mut peer = connect(server.local_address());
    peer.write_all(b"GET / HTTP/1.1").unwrap();
    assert_eq!(read_to_end(&mut peer), b"helloalert");
    turn_until(&group, |metrics| metrics.channels == 0);
    let metrics = metrics(&group);
    assert_eq!((metrics.handshakes, metrics.handshakes_failed, metrics.handshakes_timed_out), (0, 1, 0));
    assert!(calls.try_recv().is_err());
    end(&group);
}

/// Is established from the start, and marks the end of its output.
struct Ending;

impl Filter for Ending {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend_from_slice(b"end");
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// The log blames the program, as it does without filters, and not the handshake of the peer.
#[test]
fn a_failing_pipeline_factory_is_logged_as_a_warning_and_the_output_ends_regularly() {
    logs::collect();
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .filter(|_| Ending)
        .pipeline(|_| Err::<Pipeline<Bytes>, _>(Error::other("no pipeline today")))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    assert_eq!(read_to_end(&mut peer), b"end");
    let lines = logs::lines_with("no pipeline today");
    assert!(lines.len() == 1 && lines[0].starts_with("WARN"), "{lines:?}");
    end(&group);
}

#[test]
fn a_connect_completes_when_the_filters_are_established() {
    let group = one_loop();
    // Both ends use the first address of the name.
    let (server, calls) = serve_at("localhost:0", ServerBootstrap::new(&group).filter(|_| Xor::new(7)));
    let (told, echoed) = mpsc::channel();
    struct Client(mpsc::Sender<Bytes>);
    impl Handler for Client {
        type Read = Bytes;
        type Write = Bytes;

        fn read(&mut self, _: &mut Context<'_, Self>, message: Bytes) -> Result {
            self.0.send(message).map_err(|_| "the test has ended".into())
        }
    }
    let hosts = mpsc::channel();
    let bootstrap = client(&group).pipeline(move |peer| {
        hosts.0.send((peer.host().map(str::to_string), peer.info::<u8>().copied())).unwrap();
        Pipeline::codec(RawBytes).handler(Client(told.clone()))
    });
    let to = format!("localhost:{}", server.local_address().port());
    let channel = done(bootstrap.connect(&to)).unwrap();
    assert_eq!(receive(&hosts.1), (Some("localhost".to_string()), Some(7)));
    assert_eq!(receive(&calls).0, "pipeline");
    channel.write("ping".into()).unwrap();
    assert_eq!(receive(&echoed), "ping");
    turn_until(&group, |metrics| metrics.connected == 1);
    end(&group);
}

#[test]
fn a_connect_fails_with_the_cause_of_a_failed_handshake() {
    let group = one_loop();
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let bootstrap = client(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let connecting = bootstrap.connect(listener.local_addr().unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"no hello").unwrap();
    let error = done(connecting).unwrap_err();
    assert!(matches!(error, Error::Peer(PeerError::Corrupted("no hello"))), "{error:?}");
    assert_eq!(read_to_end(&mut peer), b"helloalert");
    turn_until(&group, |metrics| metrics.channels == 0 && metrics.connect_errors == 1);
    end(&group);
}

#[test]
fn cancelling_a_connect_during_the_handshake_closes_the_connection() {
    let group = one_loop();
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let bootstrap = client(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let connecting = bootstrap.connect(listener.local_addr().unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    assert_eq!(read_n(&mut peer, 5), HELLO);
    drop(connecting);
    assert!(read_to_end(&mut peer).is_empty());
    turn_until(&group, |metrics| metrics.channels == 0 && metrics.timers_pending == 0);
    assert_eq!(the_loop(&group).connections(), 0);
    end(&group);
}

/// S-02.
#[test]
fn a_connect_fails_when_the_handshake_takes_too_long() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let bootstrap = client(&group)
        .handshake_timeout(Duration::from_secs(3))
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let connecting = bootstrap.connect(listener.local_addr().unwrap());
    let (mut peer, _) = listener.accept().unwrap();
    assert_eq!(read_n(&mut peer, 5), HELLO);
    clock.advance(Duration::from_secs(3));
    let error = done(connecting).unwrap_err();
    let after = Duration::from_secs(3);
    assert!(
        matches!(error, Error::TimedOut { operation: "the handshake", after: a, .. } if a == after),
        "{error:?}"
    );
    end(&group);
}

/// S-02.
#[test]
fn half_finished_handshakes_are_closed_after_their_time_and_leave_nothing() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (server, calls) = serve(ServerBootstrap::new(&group).filter(|_| Xor::new(7)));
    const PEERS: usize = 1000;
    let mut peers: Vec<_> = (0..PEERS).map(|_| connect(server.local_address())).collect();
    for peer in &mut peers {
        peer.write_all(b"hel").unwrap();
        assert_eq!(read_n(peer, HELLO.len()), HELLO);
    }
    turn_until(&group, |metrics| metrics.channels == PEERS as u64);
    clock.advance(Duration::from_secs(10));
    peers.iter_mut().for_each(|peer| assert!(read_to_end(peer).is_empty()));
    drop(peers);
    turn_until(&group, |metrics| metrics.channels == 0 && metrics.timers_pending == 0);
    turn_until(&group, |metrics| metrics.lingering == 0);
    let metrics = metrics(&group);
    assert_eq!((metrics.handshakes_failed, metrics.handshakes_timed_out), (PEERS as u64, PEERS as u64));
    assert_eq!(the_loop(&group).connections(), 0);
    assert!(calls.try_recv().is_err());
    end(&group);
}

#[test]
fn a_handshake_that_waits_for_its_share_of_a_turn_goes_before_new_ones() {
    const PEERS: usize = 8;
    let mut by_hand = EventLoopGroup::builder().handshakes_per_turn(1).build_manual().unwrap();
    let (server, calls) = serve(ServerBootstrap::new(by_hand.group()).filter(|_| Xor::new(7)));
    let mut peers: Vec<_> = (0..PEERS).map(|_| connect(server.local_address())).collect();
    while by_hand.event_loop().metrics().channels < PEERS as u64 {
        by_hand.run_once(ms(10));
    }
    // Two in the first turn, then one more in each turn.
    let mut order = Vec::new();
    let mut served = Vec::new();
    for (at, peer) in peers.iter_mut().enumerate() {
        peer.write_all(HELLO).unwrap();
        order.push(peer.local_addr().ok());
        if at > 0 {
            by_hand.run_once(ms(10));
            served.extend(calls.try_iter().filter(|call| call.0 == "pipeline").map(|call| call.1));
        }
    }
    assert_eq!(served, order[..served.len()], "one after the other");
    assert_eq!(served.len(), PEERS - 1);
}

#[test]
fn limits_and_filters_apply_to_the_announced_address() {
    let group = one_loop();
    let clients = Arc::new(AtomicUsize::new(0));
    // The first two connections are of one client, the third one is of a denied client.
    let addresses = [[192, 0, 2, 1], [192, 0, 2, 1], [203, 0, 113, 9], [192, 0, 2, 2]];
    let admission = Admission::new()
        .ip_filter(IpFilter::new([IpRule::deny("203.0.113.0/24").unwrap()]))
        .max_connections_per_ip(1);
    let next = clients.clone();
    let (server, calls) = serve(ServerBootstrap::new(&group).admission(admission).filter(move |_| Xor {
        announced: Some((addresses[next.fetch_add(1, SeqCst)], 5000).into()),
        ..Xor::new(7)
    }));
    let one = handshake(server.local_address());
    let announced = Some(SocketAddr::from(([192, 0, 2, 1], 5000)));
    assert_eq!(receive(&calls), ("pipeline", announced));
    assert_eq!(receive(&calls), ("active", announced));
    // The real address of all connections is the same, and no longer counts.
    for _ in 0..2 {
        assert!(read_to_end(&mut handshake(server.local_address())).is_empty());
        turn_until(&group, |metrics| metrics.channels == 1 && metrics.lingering == 0);
    }
    let after = metrics(&group);
    assert_eq!((after.rejected_limit, after.rejected_filter), (1, 1));
    let _other = handshake(server.local_address());
    assert_eq!(receive(&calls).1, Some(SocketAddr::from(([192, 0, 2, 2], 5000))));
    drop(one);
    end(&group);
}

#[test]
fn a_shutdown_closes_handshaking_channels_at_once() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (server, calls) = serve(ServerBootstrap::new(&group).filter(|_| Xor::new(7)));
    let mut peer = connect(server.local_address());
    assert_eq!(read_n(&mut peer, 5), HELLO);
    let listener = std::net::TcpListener::bind(ANY_PORT).unwrap();
    let bootstrap = client(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let connecting = bootstrap.connect(listener.local_addr().unwrap());
    let (mut accepted, _) = listener.accept().unwrap();
    assert_eq!(read_n(&mut accepted, 5), HELLO);
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO));
    assert!(matches!(done(connecting).unwrap_err(), Error::ShutDown));
    assert!(read_to_end(&mut peer).is_empty());
    done(ended).unwrap();
    assert!(calls.try_recv().is_err());
}

#[test]
fn a_handshake_timeout_out_of_range_is_refused() {
    let group = one_loop();
    let timeout = Duration::from_micros(999);
    let server = ServerBootstrap::new(&group)
        .handshake_timeout(timeout)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet))
        .bind(ANY_PORT);
    let bootstrap =
        client(&group).handshake_timeout(timeout).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let connecting = done(bootstrap.connect("127.0.0.1:9"));
    for error in [server.unwrap_err(), connecting.unwrap_err()] {
        assert!(error.to_string().starts_with("handshake_timeout is 999µs"), "{error}");
    }
    end(&group);
}
