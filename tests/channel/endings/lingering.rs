//! After a graceful close the socket lingers until the peer has read everything, or the close
//! timeout expires.

use crate::support::{
    loops::{Gate, advance, settle, single, watch},
    random::Random,
    wait::{PATIENCE, done, ms, wait_until, wait_until_or},
};
use bytes::Bytes;
use netwheel::{
    admission::Admission, channel::ChannelOptions, codec::RawBytes, group::EventLoopGroupBuilder,
    metrics::LoopMetrics, net::TcpOptions, prelude::*, shutdown::ShutdownOptions, testing::ManualClock,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const BYE: &[u8] = b"bye";
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes that fit into the server's send buffer but not into the receive buffer of a slow consumer.
const BACKLOG: usize = 100 * 1024;
const SEND_BUFFER: usize = 512 * 1024;
const RECEIVE_BUFFER: usize = 4 * 1024;

/// Answers the first byte with its `backlog` and a farewell, and closes.
struct Farewell {
    backlog: Bytes,
}

impl Handler for Farewell {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        ctx.write(self.backlog.clone())?;
        ctx.close_with(BYE.into())
    }
}

/// A server on one loop with a manual clock.
struct House {
    event_loop: EventLoop,
    clock: ManualClock,
    server: Server,
    group: EventLoopGroup,
}

impl House {
    fn new(backlog: usize) -> Self {
        Self::with(backlog, |group| group, |server| server)
    }

    fn with(
        backlog: usize,
        group: impl FnOnce(EventLoopGroupBuilder) -> EventLoopGroupBuilder,
        admission: impl FnOnce(Admission) -> Admission,
    ) -> Self {
        let clock = ManualClock::new();
        let (group, event_loop) = single(group(EventLoopGroup::builder().clock(clock.clone())));
        let backlog = Bytes::from(vec![b'.'; backlog]);
        let server = ServerBootstrap::new(&group)
            .admission(admission(Admission::new()))
            .channel_options(ChannelOptions::new().close_timeout(CLOSE_TIMEOUT))
            .tcp_options(TcpOptions::new().send_buffer(SEND_BUFFER))
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Farewell { backlog: backlog.clone() }))
            .bind("127.0.0.1:0")
            .unwrap();
        House { event_loop, clock, server, group }
    }

    fn metrics(&self) -> LoopMetrics {
        self.event_loop.metrics()
    }

    #[track_caller]
    fn wait_until(&self, what: &str, is_met: impl Fn(&Self) -> bool) {
        wait_until_or(
            || format!("{what}: {:#?}", self.metrics()),
            || {
                let is_met = is_met(self);
                if !is_met {
                    settle(&self.event_loop);
                }
                is_met
            },
        );
    }

    /// Connects a peer and lets the server close the channel, with all output handed to the kernel.
    fn dismissed(&self) -> Peer {
        let closed = self.metrics().channels_closed;
        let mut peer = Peer::connect(self.server.local_address());
        peer.say("hello");
        self.wait_until("the close", |house| house.metrics().channels_closed > closed);
        peer
    }

    /// Connects peers whose channels all close in the same turn.
    fn dismissed_together(&self, n: usize) -> Vec<Peer> {
        let before = self.metrics();
        let mut peers: Vec<_> = (0..n).map(|_| Peer::connect(self.server.local_address())).collect();
        let accepted = before.accepted + n as u64;
        self.wait_until("the channels", |house| house.metrics().accepted == accepted);
        let gate = Gate::shut(&self.event_loop);
        peers.iter_mut().for_each(|peer| peer.say("hello"));
        drop(gate);
        let closed = before.channels_closed + n as u64;
        self.wait_until("the closes", |house| house.metrics().channels_closed == closed);
        settle(&self.event_loop);
        peers
    }
}

/// A slow consumer with a small receive buffer that reads only on request.
struct Peer(TcpStream);

impl Peer {
    fn connect(to: SocketAddr) -> Self {
        let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(RECEIVE_BUFFER).unwrap();
        socket.connect(&to.into()).unwrap();
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Peer(stream)
    }

    fn say(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).unwrap();
    }

    /// Reads until the end of the stream, which must not be a reset.
    #[track_caller]
    fn rest(&mut self) -> Vec<u8> {
        let mut all = Vec::new();
        self.0.read_to_end(&mut all).expect("the stream ends without an error");
        all
    }

    #[track_caller]
    fn expect_everything(&mut self, backlog: usize) {
        let all = self.rest();
        assert_eq!(all.len(), backlog + BYE.len());
        assert!(all.ends_with(BYE));
    }

    /// Sends until the server's kernel resets the connection.
    fn expect_reset(&mut self) {
        let mut end = None;
        wait_until("the reset", || {
            end = self.0.write_all(b"ping").err().map(|error| error.kind());
            end.is_some()
        });
        assert!(matches!(end, Some(ErrorKind::ConnectionReset | ErrorKind::BrokenPipe)), "{end:?}");
    }
}

#[test]
fn a_slow_consumer_that_keeps_sending_reads_everything_and_the_farewell() {
    let house = House::new(BACKLOG);
    let mut peer = house.dismissed();
    // The gauge of lingering sockets is set at the end of the turn.
    settle(&house.event_loop);
    assert_eq!((house.metrics().channels, house.metrics().lingering), (0, 1));
    for _ in 0..10 {
        peer.say("ping");
        settle(&house.event_loop);
    }
    assert_eq!(house.metrics().lingering, 1);
    peer.expect_everything(BACKLOG);
    // The peer may still send afterwards.
    peer.say("thanks");
    drop(peer);
    house.wait_until("the end", |house| house.event_loop.connections() == 0);
    let metrics = house.metrics();
    assert_eq!((metrics.lingering, metrics.lingering_cut, metrics.timers_pending), (0, 0, 0));
    assert_eq!((metrics.channels_closed, metrics.closes_unsent), (1, 0));
    assert_eq!(metrics.messages_read, 1, "bytes after the close are not messages");
}

#[test]
fn a_lingering_socket_discards_further_input_and_other_peers_are_served() {
    // More than a turn discards, and more than both kernels buffer.
    const MANY: usize = 24 * 1024 * 1024;
    let house = House::new(BACKLOG);
    let mut flood = house.dismissed();
    let mut socket = flood.0.try_clone().unwrap();
    let sender = std::thread::spawn(move || socket.write_all(&vec![b'x'; MANY]));
    house.dismissed().expect_everything(BACKLOG);
    sender.join().unwrap().expect("the server discards it");
    flood.expect_everything(BACKLOG);
    let metrics = house.metrics();
    assert_eq!((metrics.bytes_read, metrics.messages_read), (2 * "hello".len() as u64, 2));
}

#[test]
fn a_peer_that_reads_only_after_sending_everything_reads_everything() {
    // More than both kernels buffer: both sides block unless the closing server discards its input.
    const MANY: usize = 24 * 1024 * 1024;
    const LONG: usize = 8 * 1024 * 1024;
    let house = House::new(LONG);
    let mut peer = Peer::connect(house.server.local_address());
    peer.0.write_all(&vec![b'x'; MANY]).expect("the server discards it");
    peer.expect_everything(LONG);
}

#[test]
fn a_lingering_socket_is_closed_at_the_close_timeout() {
    let house = House::new(BACKLOG);
    let mut peer = house.dismissed();
    advance(&house.event_loop, &house.clock, CLOSE_TIMEOUT - ms(1));
    peer.say("still here");
    settle(&house.event_loop);
    assert_eq!((house.event_loop.connections(), house.metrics().lingering), (1, 1));
    advance(&house.event_loop, &house.clock, ms(1));
    assert_eq!((house.event_loop.connections(), house.metrics().lingering), (0, 0));
    peer.expect_reset();
}

#[test]
fn the_close_timeout_counts_from_the_request_even_after_a_slow_flush() {
    const LONG: usize = 16 * 1024 * 1024 - 64 * 1024;
    let house = House::new(LONG);
    let mut peer = Peer::connect(house.server.local_address());
    peer.say("hello");
    house.wait_until("a full kernel", |house| house.metrics().timers_pending == 1);
    assert_eq!((house.metrics().channels, house.metrics().lingering), (1, 0));
    advance(&house.event_loop, &house.clock, CLOSE_TIMEOUT - ms(1));
    peer.expect_everything(LONG);
    house.wait_until("the flush", |house| house.metrics().lingering == 1);
    assert_eq!(house.metrics().timers_pending, 1);
    advance(&house.event_loop, &house.clock, ms(1));
    assert_eq!((house.event_loop.connections(), house.metrics().timers_pending), (0, 0));
}

/// The rest of the stream is lost, so its end must not look like that of a complete one.
#[test]
fn a_close_whose_bytes_are_not_accepted_in_time_is_a_reset() {
    let house = House::new(16 * 1024 * 1024);
    let mut peer = Peer::connect(house.server.local_address());
    peer.say("hello");
    house.wait_until("a full kernel", |house| house.metrics().timers_pending == 1);
    advance(&house.event_loop, &house.clock, CLOSE_TIMEOUT);
    assert_eq!(house.event_loop.connections(), 0);
    let error = peer.0.read_to_end(&mut Vec::new()).expect_err("the stream looks complete");
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[test]
fn above_the_limit_the_oldest_lingering_socket_is_closed() {
    let house = House::with(0, |group| group.max_lingering(3), |admission| admission);
    let mut peers: Vec<_> = (0..5).map(|_| house.dismissed()).collect();
    let metrics = house.metrics();
    assert_eq!((metrics.lingering, metrics.lingering_cut), (3, 2));
    assert_eq!(house.event_loop.connections(), 3);
    for (n, peer) in peers.iter_mut().enumerate() {
        peer.expect_everything(0);
        if n < 2 {
            peer.expect_reset();
        } else {
            peer.say("ping");
        }
    }
    drop(peers);
    house.wait_until("the end", |house| house.event_loop.connections() == 0);
    assert_eq!(house.metrics().lingering_cut, 2);
}

#[test]
fn more_sockets_than_the_limit_may_begin_to_linger_in_one_turn() {
    let house = House::with(0, |group| group.max_lingering(2), |admission| admission);
    let mut peers = house.dismissed_together(7);
    let metrics = house.metrics();
    assert_eq!((metrics.lingering, metrics.lingering_cut, metrics.channels), (2, 5, 0));
    assert_eq!(house.event_loop.connections(), 2, "every handler has ended");
    peers.iter_mut().for_each(|peer| peer.expect_everything(0));
    drop(peers);
    house.wait_until("the end", |house| house.event_loop.connections() == 0);
}

/// Random closes, alone and together, ends of peers, and expired close timeouts.
#[test]
fn the_lingering_sockets_agree_with_a_model() {
    for seed in 0..20 {
        let mut random = Random::new(seed);
        let limit = random.between(1, 4);
        let house = House::with(0, |group| group.max_lingering(limit), |admission| admission);
        // The batches of sockets that closed together, oldest first: how many of them linger.
        let (mut cut, mut batches) = (0, Vec::<(usize, Vec<Peer>)>::new());
        for _ in 0..12 {
            match random.between(0, 4) {
                0 if !batches.is_empty() => {
                    let (ended, _) = batches.remove(random.between(0, batches.len() - 1));
                    let left = batches.iter().map(|(n, _)| n).sum::<usize>() as u64;
                    assert!(ended <= limit);
                    house.wait_until("the end of a batch", |house| house.metrics().lingering == left);
                }
                1 => {
                    advance(&house.event_loop, &house.clock, CLOSE_TIMEOUT);
                    batches.iter_mut().for_each(|(n, _)| *n = 0);
                }
                _ => {
                    let n = random.between(1, 2 * limit + 1);
                    batches.push((n, house.dismissed_together(n)));
                    let mut surplus = batches.iter().map(|(n, _)| *n).sum::<usize>().saturating_sub(limit);
                    cut += surplus as u64;
                    for (lingering, _) in &mut batches {
                        let oldest = surplus.min(*lingering);
                        *lingering -= oldest;
                        surplus -= oldest;
                    }
                }
            }
            let lingering = batches.iter().map(|(n, _)| n).sum::<usize>();
            let metrics = house.metrics();
            assert_eq!((metrics.lingering, metrics.lingering_cut), (lingering as u64, cut), "seed {seed}");
            // The loop publishes this number at the end of its turn.
            house.wait_until("the connections", |house| house.event_loop.connections() == lingering);
        }
    }
}

#[test]
fn a_limit_or_close_timeout_of_zero_disables_lingering() {
    let house = House::with(0, |group| group.max_lingering(0), |admission| admission);
    let _peer = house.dismissed();
    house.wait_until("the end", |house| house.event_loop.connections() == 0);
    let (group, event_loop) = single(EventLoopGroup::builder());
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().close_timeout(Duration::ZERO))
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Farewell { backlog: Bytes::new() }))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = Peer::connect(server.local_address());
    peer.say("hello");
    peer.expect_everything(0);
    while event_loop.connections() > 0 {
        settle(&event_loop);
    }
}

#[test]
fn lingering_sockets_count_towards_the_connection_limit() {
    let house = House::with(0, |group| group, |admission| admission.max_connections(2));
    let mut peers = vec![house.dismissed(), house.dismissed()];
    for _ in 0..10 {
        let mut late = Peer::connect(house.server.local_address());
        let _ = late.0.write(b"hello");
        assert_eq!(late.0.read(&mut [0; 9]).unwrap_or(0), 0, "the connection is rejected");
    }
    assert_eq!((house.metrics().rejected_limit, house.event_loop.connections()), (10, 2));
    drop(peers.pop());
    house.wait_until("a free connection slot", |house| house.event_loop.connections() == 1);
    house.dismissed().expect_everything(0);
}

#[test]
fn lingering_continues_on_a_rebuilt_poll() {
    let house = House::new(BACKLOG);
    let mut peer = house.dismissed();
    let report = done(house.event_loop.rebuild_poll().unwrap()).unwrap();
    assert_eq!((report.moved, report.closed), (2, 0), "the listener and the socket");
    peer.say("ping");
    settle(&house.event_loop);
    peer.expect_everything(BACKLOG);
    drop(peer);
    house.wait_until("the end", |house| house.event_loop.connections() == 0);
}

#[test]
fn a_shutdown_without_a_quiet_period_does_not_wait_for_lingering_sockets() {
    let house = House::new(BACKLOG);
    let mut peer = house.dismissed();
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(CLOSE_TIMEOUT);
    let report = done(house.group.shutdown(options)).unwrap();
    assert_eq!((report.channels, report.took), (0, Duration::ZERO), "{report}");
    peer.expect_reset();
    assert_eq!((house.event_loop.connections(), house.metrics().lingering), (0, 0));
}

#[test]
fn sockets_linger_for_the_quiet_period_of_a_shutdown() {
    const QUIET: Duration = Duration::from_secs(2);
    const LAST: Duration = Duration::from_secs(4);
    for leave in [false, true] {
        let house = House::new(BACKLOG);
        let mut peers: Vec<_> = (0..2).map(|_| Peer::connect(house.server.local_address())).collect();
        house.wait_until("the channels", |house| house.metrics().channels == 2);
        let options = ShutdownOptions::new().quiet_period(QUIET).timeout(10 * QUIET).drain_window(2 * LAST);
        let ended = house.group.shutdown(options);
        // `settle` would submit tasks, which restart the quiet period, so it is not used here.
        let lingers = |sockets| {
            watch(&house.event_loop, |metrics| metrics.lingering == sockets);
            let turns = house.metrics().turns;
            // The turn that has closed the channel looks at the clock once more before it ends.
            wait_until("two more turns", || {
                house.clock.advance(Duration::ZERO);
                house.metrics().turns >= turns + 2
            });
        };
        lingers(1);
        house.clock.advance(LAST);
        lingers(2);
        house.clock.advance(QUIET - ms(1));
        for peer in &mut peers {
            peer.say("ping");
            assert!(peer.rest().is_empty());
        }
        assert!(!ended.is_done());
        let took = if leave {
            drop(peers);
            LAST + QUIET - ms(1)
        } else {
            house.clock.advance(ms(1));
            LAST + QUIET
        };
        let report = done(ended).unwrap();
        assert_eq!((report.graceful, report.took), (2, took), "{report}");
        assert_eq!(house.event_loop.connections(), 0);
    }
}

#[cfg(target_os = "linux")]
mod traced {
    use super::*;
    use crate::support::process::{Process, play, plays, strace_works, thread_of};

    /// The child process: a server that closes when its peers do.
    #[test]
    fn closing_server() {
        if !plays("traced::closing_server") {
            return;
        }
        let (group, _) = single(EventLoopGroup::builder().name("closing"));
        let server = ServerBootstrap::new(&group)
            .pipeline(|_| Pipeline::codec(RawBytes).handler(Farewell { backlog: Bytes::new() }))
            .bind("127.0.0.1:0")
            .unwrap();
        println!("listening on {}", server.local_address());
        std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
        done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(CLOSE_TIMEOUT)))
            .unwrap();
    }

    #[test]
    fn a_peer_that_closes_first_costs_no_extra_system_call() {
        if !strace_works(&[]) {
            return;
        }
        let mut server = Process::start(&play("traced::closing_server"));
        let to: SocketAddr = server.stdout.wait_for("listening on ").parse().unwrap();
        // The loop's thread starts with its first connection at the latest.
        let mut first = Peer::connect(to);
        first.say("hello");
        first.expect_everything(0);
        let Some(mut strace) = Process::attach(&[], &thread_of(server.id(), "closing-0")) else { return };
        drop(Peer::connect(to));
        let calls = strace.stderr.wait_until("the close", |text| {
            let accepted = text.find("accept4(")?;
            let close = accepted + text[accepted..].find("close(")?;
            let end = close + text[close..].find('\n')?;
            Some((text[accepted..end].to_owned(), end))
        });
        // After the end of the stream, the socket is only deregistered and closed. In debug builds
        // the standard library checks a descriptor before closing it.
        let (_, end) = calls.split_once(", \"\", ").expect("the end of the stream is read");
        let made = end.lines().skip(1).filter_map(|line| line.split('(').next());
        let made: Vec<_> = made.filter(|call| *call != "fcntl").collect();
        assert_eq!(made, ["epoll_ctl", "close"], "{calls}");
    }
}
