//! Overload control on a manual clock: the order in which an overloaded loop refuses work, and
//! established channels, which it serves. The handlers take time by advancing the clock.

use crate::support::{
    tcp::{ANY_PORT, assert_reset, connect, read_n, read_to_end},
    wait::{PATIENCE, SECOND, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, EventLoop,
    admission::{Admission, RejectReason, Work},
    codec::Line,
    filter::{Filter, FilterContext, FilterState},
    group::ManualEventLoop,
    metrics::LoopMetrics,
    prelude::*,
    testing::ManualClock,
};
use std::{
    io::Write,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

const TARGET: Duration = ms(50);

fn by_hand() -> (ManualEventLoop, ManualClock) {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().clock(clock.clone()).seed(1).overload_target(TARGET);
    (group.build_manual().unwrap(), clock)
}

/// Runs turns until `is_met`. Bytes may take a moment to pass through the kernel.
#[track_caller]
fn turn_until(by_hand: &mut ManualEventLoop, mut is_met: impl FnMut(&LoopMetrics) -> bool) {
    let event_loop = by_hand.event_loop().clone();
    let began = Instant::now();
    while !is_met(&event_loop.metrics()) {
        by_hand.run_once(ms(1));
        assert!(began.elapsed() < PATIENCE, "{:?}", event_loop.metrics());
    }
}

/// A server for lines: `login` asks for admission, `slow` takes 30 ms, `join` joins the group. All
/// are echoed.
#[derive(Clone)]
struct Session {
    clock: ManualClock,
    group: ChannelGroup<Bytes>,
    hints: Arc<Mutex<Vec<Duration>>>,
}

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        match &line[..] {
            b"slow" => self.clock.advance(ms(30)),
            b"join" => assert!(self.group.join(ctx.channel())),
            b"login" => {
                if let Err(refused) = ctx.admit(Work::Login) {
                    self.hints.lock().unwrap().push(refused.retry_after());
                    return ctx.write("refu".into());
                }
            }
            _ => {}
        }
        ctx.write(line.slice(..4.min(line.len())))
    }
}

fn shed(metrics: &LoopMetrics) -> [u64; 4] {
    [metrics.shed_accepts, metrics.shed_handshakes, metrics.shed_logins, metrics.shed_bulk]
}

struct Storm {
    by_hand: ManualEventLoop,
    clock: ManualClock,
    address: SocketAddr,
    established: Vec<TcpStream>,
    _subscriber: TcpStream,
    bulk: ChannelGroup<Bytes>,
    is_busy: bool,
    _server: Server,
    rejected: Arc<Mutex<Vec<RejectReason>>>,
    hints: Arc<Mutex<Vec<Duration>>>,
}

impl Storm {
    /// Starts a server with five established channels.
    fn new() -> Self {
        let (mut by_hand, clock) = by_hand();
        let bulk = ChannelGroup::builder().bulk(true).build().unwrap();
        let rejected: Arc<Mutex<Vec<RejectReason>>> = Arc::default();
        let hints: Arc<Mutex<Vec<Duration>>> = Arc::default();
        let session = Session { clock: clock.clone(), group: bulk.clone(), hints: Arc::clone(&hints) };
        let all = Arc::clone(&rejected);
        let admission =
            Admission::new().on_rejected(move |rejection| all.lock().unwrap().push(rejection.reason));
        let server = ServerBootstrap::new(by_hand.group())
            .admission(admission)
            .pipeline(move |_| Pipeline::codec(Line::new()).handler(session.clone()))
            .bind(ANY_PORT)
            .unwrap();
        let address = server.local_address();
        let established: Vec<TcpStream> = (0..5).map(|_| connect(address)).collect();
        let mut subscriber = connect(address);
        subscriber.write_all(b"join\n").unwrap();
        turn_until(&mut by_hand, |metrics| metrics.channels == 6 && metrics.messages_read == 1);
        Storm {
            by_hand,
            clock,
            address,
            established,
            _subscriber: subscriber,
            bulk,
            is_busy: false,
            _server: server,
            rejected,
            hints,
        }
    }

    fn event_loop(&self) -> EventLoop {
        self.by_hand.event_loop().clone()
    }

    fn metrics(&self) -> LoopMetrics {
        self.event_loop().metrics()
    }

    /// Runs turns until `is_met`. While the loop is busy, each of them takes 60 ms.
    #[track_caller]
    fn turn_until(&mut self, mut is_met: impl FnMut(&LoopMetrics) -> bool) {
        let event_loop = self.event_loop();
        let began = Instant::now();
        while !is_met(&event_loop.metrics()) {
            if self.is_busy {
                let clock = self.clock.clone();
                event_loop.execute(move || clock.advance(ms(60))).unwrap();
            }
            self.by_hand.run_once(ms(1));
            assert!(began.elapsed() < PATIENCE, "{:?}", event_loop.metrics());
        }
    }

    /// Sends a line on each established channel and waits for all answers.
    fn exchange(&mut self, line: &str) -> Vec<Vec<u8>> {
        let before = self.metrics().messages_read;
        for peer in &mut self.established {
            peer.write_all(line.as_bytes()).unwrap();
        }
        let lines = self.established.len() as u64;
        self.turn_until(|metrics| metrics.messages_read == before + lines);
        self.established.iter_mut().map(|peer| read_n(peer, 5)).collect()
    }

    /// Opens connections, and returns them when each is accepted or refused.
    fn connect(&mut self, to: SocketAddr, n: u64) -> Vec<TcpStream> {
        let before = self.metrics();
        let peers = (0..n).map(|_| connect(to)).collect();
        self.turn_until(|metrics| {
            metrics.accepted - before.accepted + metrics.shed_accepts - before.shed_accepts == n
        });
        peers
    }

    /// Lets the loop be idle until it limits nothing. Returns the time that took.
    fn recover(&mut self) -> Duration {
        self.is_busy = false;
        let began = self.clock.elapsed();
        while self.metrics().overload_level > 0 {
            self.clock.advance(ms(10));
            self.by_hand.run_once(Duration::ZERO);
            assert!(self.clock.elapsed() - began < 60 * SECOND, "{:?}", self.metrics());
        }
        self.clock.elapsed() - began
    }
}

#[test]
fn an_overloaded_loop_refuses_deferrable_work_in_order_and_serves_established_channels() {
    let mut storm = Storm::new();
    assert_eq!((storm.metrics().overload_level, shed(&storm.metrics())), (0, [0; 4]));
    storm.is_busy = true;
    // The level at the first refusal of each class.
    let mut levels = [None; 4];
    for _ in 0..200 {
        drop(storm.connect(storm.address, 2));
        assert!(storm.exchange("slow\n").iter().all(|answer| answer == b"slow\n"), "established channels");
        storm.exchange("login\n");
        for _ in 0..4 {
            if let Err(refused) = storm.bulk.broadcast("news".into()) {
                assert!(refused.retry_after().is_some() && !refused.is_full() && !refused.is_closed());
                assert!(matches!(refused.error(), Error::Overloaded(_)));
                assert_eq!(refused.into_inner(), "news", "the message is returned");
            }
        }
        let metrics = storm.metrics();
        for (level, refused) in levels.iter_mut().zip(shed(&metrics)) {
            if refused > 0 {
                level.get_or_insert(metrics.overload_level);
            }
        }
        if levels.iter().flatten().count() == 3 {
            break;
        }
    }
    let [accepts, handshakes, logins, bulk] = levels;
    assert!(accepts.is_some_and(|level| level >= 1) && logins.is_some_and(|level| level >= 3), "{levels:?}");
    assert_eq!((bulk, handshakes), (Some(4), None), "no connection has a handshake");
    let metrics = storm.metrics();
    assert_eq!(metrics.overload_level, 4);
    assert!(metrics.shed_accepts > 0 && metrics.rejected_limit == 0);
    assert_eq!(storm.rejected.lock().unwrap().len() as u64, metrics.shed_accepts);
    assert!(storm.rejected.lock().unwrap().iter().all(|r| matches!(r, RejectReason::Overloaded(_))));
    assert_eq!(storm.hints.lock().unwrap().len() as u64, metrics.shed_logins);
    let hints = storm.hints.lock().unwrap().clone();
    assert!(hints.iter().all(|hint| (ms(100)..=60 * SECOND).contains(hint)), "{hints:?}");
    assert!(hints.windows(2).any(|pair| pair[0] != pair[1]), "hints differ between clients");

    let took = storm.recover();
    assert!(took <= 3 * SECOND, "{took:?}");
    let before = shed(&storm.metrics());
    storm.established = storm.connect(storm.address, 1);
    assert_eq!(storm.exchange("login\n"), [b"logi\n"]);
    assert!(storm.bulk.broadcast("news".into()).is_ok());
    assert_eq!(shed(&storm.metrics()), before, "nothing is refused any more");
}

#[test]
fn refused_connections_are_reset_and_a_farewell_replaces_the_reset() {
    let mut storm = Storm::new();
    storm.is_busy = true;
    while storm.metrics().shed_accepts == 0 {
        let mut peers = storm.connect(storm.address, 4);
        // The limit lets the first ones in.
        if storm.metrics().shed_accepts > 0 {
            assert_reset(&mut peers[3]);
        }
    }
    let farewell = Admission::new().farewell(|rejection| match rejection.reason {
        RejectReason::Overloaded(refused) => {
            Some(format!("retry after {} ms\n", refused.retry_after().as_millis()).into())
        }
        _ => None,
    });
    let session = Session { clock: storm.clock.clone(), group: ChannelGroup::new(), hints: Arc::default() };
    let polite = ServerBootstrap::new(storm.by_hand.group())
        .admission(farewell)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(session.clone()))
        .bind(ANY_PORT)
        .unwrap();
    let mut peers = storm.connect(polite.local_address(), 9);
    let words = String::from_utf8(read_to_end(&mut peers[8])).unwrap();
    assert!(words.starts_with("retry after ") && words.ends_with(" ms\n"), "{words}");
}

#[test]
fn a_single_slow_callback_limits_nothing() {
    let mut storm = Storm::new();
    for _ in 0..20 {
        storm.exchange("slow\n");
        for _ in 0..20 {
            storm.clock.advance(ms(10));
            storm.by_hand.run_once(Duration::ZERO);
        }
        assert_eq!(storm.metrics().overload_level, 0);
    }
}

#[test]
fn without_a_target_nothing_is_refused() {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
    let session = Session { clock: clock.clone(), group: ChannelGroup::new(), hints: Arc::default() };
    let server = ServerBootstrap::new(by_hand.group())
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(session.clone()))
        .bind(ANY_PORT)
        .unwrap();
    let mut peer = connect(server.local_address());
    for n in 1..=50 {
        peer.write_all(b"slow\nlogin\n").unwrap();
        turn_until(&mut by_hand, |metrics| metrics.messages_read == 2 * n);
        assert_eq!(read_n(&mut peer, 10), b"slow\nlogi\n");
    }
    let metrics = by_hand.event_loop().metrics();
    assert_eq!((metrics.overload_level, shed(&metrics)), (0, [0; 4]));
}

#[test]
fn a_target_out_of_range_is_refused() {
    for (target, text) in
        [(Duration::ZERO, "0ns"), (Duration::from_micros(999), "999µs"), (11 * SECOND, "11s")]
    {
        let error = EventLoopGroup::builder().overload_target(target).build().unwrap_err();
        assert_eq!(error.to_string(), format!("overload_target is {text}; it must be 1 ms to 10 s"));
    }
}

/// A filter whose handshake has this number of steps. Each is a read of exclamation marks, and
/// takes 5 ms.
struct Steps {
    clock: ManualClock,
    left: u32,
}

impl Filter for Steps {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let marks = input.iter().take_while(|byte| **byte == b'!').count();
        let at = if self.left > 0 { marks } else { 0 };
        if at > 0 {
            self.clock.advance(ms(5));
            self.left -= 1;
        }
        ctx.deliver(&input[at..]);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }

    fn state(&self) -> FilterState {
        if self.left == 0 { FilterState::Established } else { FilterState::Handshaking }
    }
}

/// Records the order in which sessions open, by the number that each peer sends behind its
/// handshake.
struct Numbered(Arc<Mutex<Vec<u8>>>);

impl Handler for Numbered {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, number: Bytes) -> Result {
        self.0.lock().unwrap().push(number[0]);
        ctx.write(number)
    }
}

#[test]
fn a_standing_queue_of_handshakes_is_served_newest_first_and_its_oldest_are_reset() {
    const PEERS: usize = 100;
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).seed(1).handshakes_per_turn(1);
    let mut by_hand = builder.overload_target(TARGET).build_manual().unwrap();
    let (order, time): (Arc<Mutex<Vec<u8>>>, _) = (Arc::default(), clock.clone());
    let opened = order.clone();
    let server = ServerBootstrap::new(by_hand.group())
        .filter(move |_| Steps { clock: time.clone(), left: 1 })
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Numbered(opened.clone())))
        .bind(ANY_PORT)
        .unwrap();
    let mut peers: Vec<TcpStream> = (0..PEERS).map(|_| connect(server.local_address())).collect();
    turn_until(&mut by_hand, |metrics| metrics.accepted as usize == PEERS);
    for (n, peer) in peers.iter_mut().enumerate() {
        peer.write_all(&[b'!', n as u8 + b'a', b'\n']).unwrap();
        // The loop sees them one after the other, while no time passes but that of handshakes.
        if n % 10 == 0 {
            by_hand.run_once(ms(1));
        }
    }
    // Each turn takes 5 ms for its handshake, and 20 ms pass beside it.
    let event_loop = by_hand.event_loop().clone();
    turn_until(&mut by_hand, |metrics| {
        clock.advance(ms(20));
        (metrics.handshakes + metrics.handshakes_failed) as usize == PEERS
    });
    let metrics = event_loop.metrics();
    assert!(metrics.shed_handshakes > 10 && metrics.handshakes > 10, "{metrics:?}");
    assert_eq!(metrics.shed_handshakes, metrics.handshakes_failed);
    let served: Vec<usize> = order.lock().unwrap().iter().map(|n| usize::from(n - b'a')).collect();
    assert!(served.contains(&(PEERS - 1)), "the newest is served: {served:?}");
    for (n, peer) in peers.iter_mut().enumerate() {
        if served.contains(&n) {
            assert_eq!(read_n(peer, 2), [n as u8 + b'a', b'\n']);
        } else {
            assert_reset(peer);
        }
    }
    let late = served.iter().position(|n| *n > PEERS / 2).expect("a later one is served");
    assert!(late < served.len() / 2, "newest first: {served:?}");
}

/// The work of a begun handshake is not wasted, however long the queue of new ones is.
#[test]
fn begun_handshakes_are_completed_before_new_ones_begin_and_are_not_reset() {
    const BEGUN: usize = 20;
    const NEW: usize = 200;
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).seed(1).handshakes_per_turn(1);
    let mut by_hand = builder.overload_target(TARGET).build_manual().unwrap();
    let (order, time): (Arc<Mutex<Vec<u8>>>, _) = (Arc::default(), clock.clone());
    let opened = order.clone();
    let server = ServerBootstrap::new(by_hand.group())
        .filter(move |_| Steps { clock: time.clone(), left: 2 })
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Numbered(opened.clone())))
        .bind(ANY_PORT)
        .unwrap();
    let mut peers: Vec<TcpStream> = (0..BEGUN + NEW).map(|_| connect(server.local_address())).collect();
    turn_until(&mut by_hand, |metrics| metrics.accepted as usize == BEGUN + NEW);
    for peer in &mut peers[..BEGUN] {
        peer.write_all(b"!").unwrap();
        let read = by_hand.event_loop().metrics().bytes_read + 1;
        turn_until(&mut by_hand, |metrics| metrics.bytes_read == read);
    }
    // The queue of new handshakes then grows behind the begun ones.
    for (n, peer) in peers.iter_mut().enumerate() {
        peer.write_all(if n < BEGUN { b"!a\n" } else { b"!" }).unwrap();
        if n % 10 == 0 {
            by_hand.run_once(ms(1));
        }
    }
    turn_until(&mut by_hand, |metrics| {
        clock.advance(ms(20));
        metrics.handshakes_failed > 10 && metrics.handshakes as usize >= BEGUN
    });
    let metrics = by_hand.event_loop().metrics();
    assert_eq!(metrics.shed_handshakes, metrics.handshakes_failed);
    assert_eq!(order.lock().unwrap().len(), BEGUN, "{metrics:?}");
    for peer in &mut peers[..BEGUN] {
        assert_eq!(read_n(peer, 2), *b"a\n");
    }
}

/// Begun handshakes go first, but not with all shares of a turn, and not with its only share in
/// every turn.
#[test]
fn peers_that_send_handshakes_byte_by_byte_do_not_keep_others_from_beginning() {
    for shares in [1, 2, 3] {
        others_begin_beside_slow_peers(shares);
    }
}

fn others_begin_beside_slow_peers(shares: usize) {
    const SLOW: usize = 10;
    const NEW: usize = 10;
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).seed(1).handshakes_per_turn(shares);
    let mut by_hand = builder.overload_target(TARGET).build_manual().unwrap();
    let (made, time) = (AtomicUsize::new(0), clock.clone());
    let server = ServerBootstrap::new(by_hand.group())
        .filter(move |_| {
            let is_slow = made.fetch_add(1, Relaxed) < SLOW;
            Steps { clock: time.clone(), left: if is_slow { u32::MAX } else { 1 } }
        })
        .handshake_timeout(1000 * SECOND)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Numbered(Arc::default())))
        .bind(ANY_PORT)
        .unwrap();
    let event_loop = by_hand.event_loop().clone();
    let mut slow: Vec<TcpStream> = (0..SLOW).map(|_| connect(server.local_address())).collect();
    turn_until(&mut by_hand, |metrics| metrics.accepted as usize == SLOW);
    slow.iter_mut().for_each(|peer| peer.write_all(b"!").unwrap());
    turn_until(&mut by_hand, |metrics| metrics.bytes_read as usize == SLOW);
    let mut new: Vec<TcpStream> = (0..NEW).map(|_| connect(server.local_address())).collect();
    turn_until(&mut by_hand, |metrics| metrics.accepted as usize == SLOW + NEW);
    for peer in &mut new {
        slow.iter_mut().for_each(|peer| peer.write_all(b"!").unwrap());
        peer.write_all(b"!a\n").unwrap();
        by_hand.run_once(ms(1));
    }
    turn_until(&mut by_hand, |metrics| {
        slow.iter_mut().for_each(|peer| peer.write_all(b"!").unwrap());
        metrics.handshakes as usize == NEW
    });
    assert_eq!(event_loop.metrics().shed_handshakes, 0);
    new.iter_mut().for_each(|peer| assert_eq!(read_n(peer, 2), *b"a\n"));
}

/// Only handshakes of accepted connections are shed. Others wait for their turn, however long the
/// queue is.
#[test]
fn an_outgoing_handshake_survives_a_storm_of_accepted_ones() {
    const PEERS: usize = 300;
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().clock(clock.clone()).seed(1).handshakes_per_turn(1);
    let mut by_hand = builder.overload_target(TARGET).build_manual().unwrap();
    let filter = move |time: &ManualClock| Steps { clock: time.clone(), left: 1 };
    let (time, of_client) = (clock.clone(), clock.clone());
    let server = ServerBootstrap::new(by_hand.group())
        .filter(move |_| filter(&time))
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Numbered(Arc::default())))
        .bind(ANY_PORT)
        .unwrap();
    let backend = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let connected = ClientBootstrap::new(by_hand.group())
        .filter(move |_| filter(&of_client))
        .handshake_timeout(1000 * SECOND)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Numbered(Arc::default())))
        .connect(backend.local_addr().unwrap());
    let mut accepted = None;
    backend.set_nonblocking(true).unwrap();
    wait_until("the outgoing connection is accepted", || {
        by_hand.run_once(ms(1));
        accepted = backend.accept().ok();
        accepted.is_some()
    });
    let mut peers: Vec<TcpStream> = (0..PEERS).map(|_| connect(server.local_address())).collect();
    turn_until(&mut by_hand, |metrics| metrics.accepted as usize == PEERS);
    // The outgoing one is among the old ones when the newest begin to be served first.
    for (n, peer) in peers.iter_mut().enumerate() {
        peer.write_all(b"!").unwrap();
        if n == 50 {
            accepted.as_mut().unwrap().0.write_all(b"!").unwrap();
        }
        if n % 10 == 0 {
            by_hand.run_once(ms(1));
        }
    }
    turn_until(&mut by_hand, |metrics| {
        clock.advance(ms(20));
        (metrics.handshakes + metrics.handshakes_failed) as usize == PEERS + 1
    });
    let metrics = by_hand.event_loop().metrics();
    assert!(metrics.shed_handshakes > 10, "the queue has stood: {metrics:?}");
    assert!(connected.is_done());
    connected.wait().unwrap();
}
