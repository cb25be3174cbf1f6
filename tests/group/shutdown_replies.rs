//! Replies in flight when a shutdown begins: they may need scheduled tasks, work on other threads
//! and outgoing connections of the same group.

use crate::support::{
    loops::{Gate, settle, single},
    servers::Quiet,
    tcp::{connect, patient, read_n, read_to_end},
    wait::{HOUR, PATIENCE, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    Completion, EventLoop,
    channel::CloseCause,
    codec::{Line, RawBytes},
    filter::{Filter, FilterContext, FilterState},
    group::Chooser,
    prelude::*,
    relay::Relay,
    shutdown::{ShutdownOptions, ShutdownReport},
    testing::ManualClock,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

const GREETING: &[u8] = b"hi\n";

fn within(timeout: Duration) -> ShutdownOptions {
    ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(timeout)
}

/// How a reply comes about.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    /// By a task that is scheduled twice in a row.
    Task,
    /// By work on another thread.
    Offload,
    /// By a call on a connection to the backend, which was open before the shutdown.
    OpenConnection,
    /// By a call on a connection that is opened during the shutdown.
    NewConnection,
    /// Like `NewConnection`, with a filter whose handshake takes a roundtrip.
    NewConnectionWithHandshake,
}

impl Way {
    fn connects(self) -> bool {
        matches!(self, Way::NewConnection | Way::NewConnectionWithHandshake)
    }
}

/// A filter whose handshake is a line of the server.
#[derive(Default)]
struct Greeted {
    is_greeted: bool,
}

impl Filter for Greeted {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if self.is_greeted {
            ctx.deliver(input);
            return Ok(input.len());
        }
        self.is_greeted = input.starts_with(GREETING);
        Ok(if self.is_greeted { GREETING.len() } else { 0 })
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }

    fn state(&self) -> FilterState {
        if self.is_greeted { FilterState::Established } else { FilterState::Handshaking }
    }
}

/// Replies to a line later. Closes after the reply if it was notified of a shutdown.
struct Later {
    way: Way,
    house: Arc<House>,
}

/// What the handlers of a test share.
struct House {
    group: EventLoopGroup,
    backend: SocketAddr,
    /// Lines that were read, and calls of `shutdown`.
    asked: AtomicUsize,
    notified: AtomicUsize,
    /// The channel that waits for a reply, and a connection to the backend.
    front: Mutex<Option<Channel<Bytes>>>,
    upstream: Mutex<Option<Channel<Bytes>>>,
    work: Mutex<Option<mpsc::Receiver<()>>>,
}

impl House {
    fn reply(&self) {
        let front = self.front.lock().unwrap().clone().unwrap();
        front.write("reply".into()).unwrap();
        front.close();
    }

    fn connect(self: &Arc<Self>, asks: bool, way: Way) -> Completion<Channel<Bytes>> {
        let house = self.clone();
        let mut bootstrap = ClientBootstrap::new(&self.group);
        if way == Way::NewConnectionWithHandshake {
            bootstrap = bootstrap.filter(|_| Greeted::default());
        }
        bootstrap
            .pipeline(move |_| Pipeline::codec(Line::new()).handler(Upstream { house: house.clone(), asks }))
            .connect(self.backend)
    }
}

impl Handler for Later {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        *self.house.front.lock().unwrap() = Some(ctx.channel());
        match self.way {
            Way::Task => {
                ctx.schedule(ms(100), |_, ctx| {
                    ctx.schedule(ms(100), |me: &mut Self, _| {
                        me.house.reply();
                        Ok(())
                    });
                    Ok(())
                });
            }
            Way::Offload => {
                let work = self.house.work.lock().unwrap().take().unwrap();
                ctx.offload(
                    move || work.recv_timeout(PATIENCE).unwrap_or_default(),
                    |me, _, done| {
                        done?;
                        me.house.reply();
                        Ok(())
                    },
                )?;
            }
            Way::OpenConnection => {
                self.house.upstream.lock().unwrap().as_ref().unwrap().write("ask".into())?;
            }
            Way::NewConnection | Way::NewConnectionWithHandshake => {}
        }
        self.house.asked.fetch_add(1, SeqCst);
        Ok(())
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.way.connects() {
            self.house.connect(true, self.way).detach();
        }
        self.house.notified.fetch_add(1, SeqCst);
        Ok(())
    }
}

/// A connection to the backend. Its handler does not know of shutdowns.
struct Upstream {
    house: Arc<House>,
    asks: bool,
}

impl Handler for Upstream {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.asks { ctx.write("ask".into()) } else { Ok(()) }
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        self.house.reply();
        Ok(())
    }
}

/// Shuts a group of two loops down while a reply is in flight.
fn shut_down_during(way: Way) -> ShutdownReport {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let (finish, work) = mpsc::channel();
    let house = Arc::new(House {
        group: group.clone(),
        backend: backend.local_addr().unwrap(),
        asked: AtomicUsize::new(0),
        notified: AtomicUsize::new(0),
        front: Mutex::default(),
        upstream: Mutex::default(),
        work: Mutex::new(Some(work)),
    });
    let mut upstream = None;
    if way == Way::OpenConnection {
        let connecting = house.connect(false, way);
        upstream = Some(backend.accept().unwrap().0);
        *house.upstream.lock().unwrap() = Some(done(connecting).unwrap());
    }
    let of_server = house.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Later { way, house: of_server.clone() }))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    peer.write_all(b"hello\n").unwrap();
    wait_until("the request", || house.asked.load(SeqCst) == 1);
    let report = group.shutdown(within(HOUR));
    wait_until("the shutdown", || house.notified.load(SeqCst) == 1);
    match way {
        Way::Task => {
            for _ in 0..2 {
                group.event_loops().iter().for_each(settle);
                clock.advance(ms(100));
            }
        }
        Way::Offload => finish.send(()).unwrap(),
        Way::OpenConnection | Way::NewConnection | Way::NewConnectionWithHandshake => {
            let mut upstream = upstream.unwrap_or_else(|| backend.accept().unwrap().0);
            if way == Way::NewConnectionWithHandshake {
                upstream.write_all(GREETING).unwrap();
            }
            assert_eq!(read_n(&mut upstream, 4), b"ask\n");
            upstream.write_all(b"answer\n").unwrap();
            assert_eq!(read_to_end(&mut upstream), b"", "closed after the reply");
        }
    }
    assert_eq!(read_to_end(&mut peer), b"reply\n", "{way:?}");
    done(report).unwrap()
}

#[test]
fn a_reply_in_flight_is_sent_before_the_end() {
    for (way, channels) in [
        (Way::Task, 1),
        (Way::Offload, 1),
        (Way::OpenConnection, 2),
        (Way::NewConnection, 2),
        (Way::NewConnectionWithHandshake, 2),
    ] {
        let report = shut_down_during(way);
        let counts = (report.channels, report.graceful, report.incomplete, report.forced);
        assert_eq!(counts, (channels, channels, 0, 0), "{way:?}: {report}");
        assert!(report.took < HOUR, "{way:?}: {report}");
    }
}

/// Ignores a shutdown, and writes a line first.
struct Stays;

impl Handler for Stays {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.schedule(HOUR, |_, _| Ok(()));
        ctx.write("bye".into())?;
        ctx.flush();
        Ok(())
    }
}

#[test]
fn idle_outgoing_channels_do_not_hold_up_the_end() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(3).clock(clock).build().unwrap();
    let far = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet))
        .bind("127.0.0.1:0")
        .unwrap();
    let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let outgoing: Vec<_> = (0..6).map(|_| done(client.connect(far.local_addr().unwrap())).unwrap()).collect();
    let _peers: Vec<_> = (0..6).map(|_| connect(server.local_address())).collect();
    wait_until("the channels", || group.metrics().iter().map(|loops| loops.channels).sum::<u64>() == 12);
    // The clock stands still, so only the end of the channels ends the loops.
    let report = done(group.shutdown(within(HOUR))).unwrap();
    assert_eq!((report.channels, report.graceful, report.took), (12, 12, Duration::ZERO), "{report}");
    assert!(outgoing.iter().all(|channel| channel.close_cause() == Some(CloseCause::Clean)));
    // A group with clients only.
    let (group, _) = single(EventLoopGroup::builder().clock(ManualClock::new()));
    let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let _outgoing = done(client.connect(far.local_addr().unwrap())).unwrap();
    let report = done(group.shutdown(within(HOUR))).unwrap();
    assert_eq!((report.channels, report.graceful, report.took), (1, 1, Duration::ZERO), "{report}");
}

fn expect_reset(peer: &mut TcpStream, before: &[u8]) {
    let mut all = Vec::new();
    let ended = peer.read_to_end(&mut all);
    assert_eq!((all.as_slice(), ended.map_err(|e| e.kind())), (before, Err(ErrorKind::ConnectionReset)));
}

#[test]
fn a_channel_that_the_timeout_cuts_is_reset_and_counted() {
    let clock = ManualClock::new();
    let (group, _) = single(EventLoopGroup::builder().clock(clock.clone()));
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Stays))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    wait_until("the channel", || group.metrics()[0].channels == 1);
    let report = group.shutdown(within(ms(500)));
    assert_eq!(read_n(&mut peer, 4), b"bye\n");
    clock.advance(ms(500));
    let report = done(report).unwrap();
    assert_eq!((report.channels, report.forced, report.unsent_bytes), (1, 1, 0), "{report}");
    assert_eq!(report.tasks_cancelled, 1, "{report}");
    expect_reset(&mut peer, b"");
}

#[test]
fn a_relayed_stream_continues_until_the_timeout_and_is_reset_then() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let (to, clients) = (backend.local_addr().unwrap(), group.clone());
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let clients = clients.clone();
            let relay = Relay::dial(move |front| {
                let back = ClientBootstrap::new(&clients);
                back.pipeline(move |_| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
                    .connect(to)
            });
            Pipeline::codec(RawBytes).handler(relay)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peers = Vec::new();
    for _ in 0..3 {
        let mut front = connect(server.local_address());
        let mut back = backend.accept().unwrap().0;
        patient(&back);
        front.write_all(b"hello").unwrap();
        assert_eq!(read_n(&mut back, 5), b"hello");
        peers.push((front, back));
    }
    let report = group.shutdown(within(ms(500)));
    wait_until("the shutdown", || group.event_loops().iter().all(EventLoop::is_shutting_down));
    for (front, back) in &mut peers {
        back.write_all(b"part").unwrap();
        assert_eq!(read_n(front, 4), b"part");
    }
    // One of them ends in time.
    let (mut front, back) = peers.pop().unwrap();
    drop(back);
    assert_eq!(read_to_end(&mut front), b"");
    drop(front);
    wait_until("its end", || group.metrics().iter().map(|loops| loops.channels).sum::<u64>() == 4);
    clock.advance(ms(500));
    let report = done(report).unwrap();
    let counts = (report.channels, report.graceful, report.incomplete, report.forced);
    assert_eq!(counts.0, 6, "{report}");
    assert_eq!((counts.1, counts.2 + counts.3), (2, 4), "{report}");
    for (mut front, mut back) in peers {
        expect_reset(&mut front, b"");
        expect_reset(&mut back, b"");
    }
}

/// Chooses the loop with this index.
struct At(Arc<AtomicUsize>);

impl Chooser for At {
    fn choose(&self, _: &[EventLoop]) -> usize {
        self.0.load(SeqCst)
    }
}

/// An accepted channel on the third loop of a group, and a connection to a backend on the first.
struct Apart {
    group: EventLoopGroup,
    upstream: Channel<Bytes>,
    peer: TcpStream,
    clock: ManualClock,
    _backend: TcpListener,
}

impl Apart {
    fn start() -> Self {
        let at = Arc::new(AtomicUsize::new(0));
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().threads(3).chooser(At(at.clone()));
        let group = builder.clock(clock.clone()).build().unwrap();
        let backend = TcpListener::bind("127.0.0.1:0").unwrap();
        let upstream = ClientBootstrap::new(&group)
            .pipeline(|_| Pipeline::codec(RawBytes).on_read(|_, _| Ok(())))
            .connect(backend.local_addr().unwrap());
        let upstream = done(upstream).unwrap();
        at.store(2, SeqCst);
        let server = ServerBootstrap::new(&group)
            .pipeline(|_| Pipeline::codec(Line::new()).handler(Stays))
            .bind("127.0.0.1:0")
            .unwrap();
        let peer = connect(server.local_address());
        wait_until("the channel", || group.metrics()[2].channels == 1);
        Apart { group, upstream, peer, clock, _backend: backend }
    }
}

/// The loop that has never started ends during the first request. The second one comes from there,
/// as it could from another thread, before the first one has reached all loops.
#[test]
fn a_second_request_during_the_first_does_not_end_outgoing_channels_early() {
    let Apart { group, upstream, mut peer, _backend, .. } = Apart::start();
    let again = group.clone();
    group.event_loops()[1].terminated().on_complete(move |_| again.shutdown(within(HOUR)).detach());
    let report = group.shutdown(within(HOUR));
    assert_eq!(read_n(&mut peer, 4), b"bye\n");
    settle(&group.event_loops()[0]);
    assert!(upstream.is_open(), "the accepted channel may need it");
    drop(peer);
    let report = done(report).unwrap();
    assert_eq!((report.channels, report.graceful), (2, 2), "{report}");
}

/// The loop with the accepted channel was shut down before its group.
#[test]
fn the_shutdown_of_a_group_awaits_a_loop_that_is_shutting_down_already() {
    let Apart { group, upstream, mut peer, _backend, .. } = Apart::start();
    group.event_loops()[2].shutdown(within(HOUR)).detach();
    assert_eq!(read_n(&mut peer, 4), b"bye\n");
    let report = group.shutdown(within(HOUR));
    wait_until("the request", || group.event_loops()[0].is_shutting_down());
    settle(&group.event_loops()[0]);
    assert!(upstream.is_open(), "the accepted channel may need it");
    drop(peer);
    let report = done(report).unwrap();
    assert_eq!((report.channels, report.graceful), (2, 2), "{report}");
}

/// The loop without accepted channels waits for its quiet period.
#[test]
fn a_loop_whose_accepted_channels_have_ended_does_not_delay_the_others() {
    let Apart { group, upstream, mut peer, clock, _backend } = Apart::start();
    let quiet = ShutdownOptions::new().quiet_period(HOUR).timeout(2 * HOUR);
    group.event_loops()[2].shutdown(quiet).detach();
    assert_eq!(read_n(&mut peer, 4), b"bye\n");
    let report = group.shutdown(within(2 * HOUR));
    drop(peer);
    done(upstream.closed()).unwrap();
    assert!(!group.event_loops()[2].is_terminated());
    clock.advance(HOUR);
    done(report).unwrap();
}

/// Loops that were never started end at once. The others serve the replies in flight.
#[test]
fn connections_during_a_shutdown_go_to_loops_that_have_not_ended() {
    let group = EventLoopGroup::builder().threads(6).build().unwrap();
    let backend = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Stays))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    wait_until("the channel", || group.metrics().iter().any(|metrics| metrics.channels == 1));
    let report = group.shutdown(within(HOUR));
    assert_eq!(read_n(&mut peer, 4), b"bye\n");
    wait_until("the request", || group.event_loops().iter().all(EventLoop::is_shutting_down));
    assert!(group.event_loops().iter().any(EventLoop::is_terminated));
    let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).on_read(|_, _| Ok(())));
    for _ in 0..6 {
        done(client.connect(backend.local_addr().unwrap())).unwrap();
    }
    drop(peer);
    done(report).unwrap();
}

#[test]
fn the_timeout_counts_from_the_request() {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Stays))
        .bind("127.0.0.1:0")
        .unwrap();
    let _peer = connect(server.local_address());
    wait_until("the channel", || group.metrics()[0].channels == 1);
    let gate = Gate::shut(&event_loop);
    let report = group.shutdown(within(ms(500)));
    clock.advance(ms(500));
    drop(gate);
    let report = done(report).unwrap();
    assert_eq!((report.forced, report.took), (1, ms(500)), "{report}");
}

#[test]
fn a_flood_of_tasks_does_not_delay_the_notification() {
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap();
    let server = ServerBootstrap::new(by_hand.group())
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet))
        .bind("127.0.0.1:0")
        .unwrap();
    let _peer = connect(server.local_address());
    while by_hand.event_loop().metrics().channels == 0 {
        by_hand.run_once(ms(10));
    }
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..1000 {
        let (clock, ran) = (clock.clone(), ran.clone());
        let task = move || {
            clock.advance(ms(5));
            ran.fetch_add(1, SeqCst);
        };
        by_hand.event_loop().execute(task).unwrap();
    }
    let report = by_hand.group().shutdown(within(ms(2000)));
    while by_hand.event_loop().metrics().channels > 0 {
        by_hand.run_once(Duration::ZERO);
    }
    assert!(ran.load(SeqCst) < 1000, "the request overtakes the tasks");
    let report = by_hand.run_until(report).unwrap();
    assert_eq!(report.graceful, 1, "{report}");
    assert_eq!(ran.load(SeqCst), 1000, "accepted tasks run");
}
