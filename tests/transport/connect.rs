//! Opening, failing and closing of connections over real sockets: T-08 to T-11, T-13, T-14, T-19,
//! C-69.

#[cfg(target_os = "linux")]
use crate::support::nobody::BlackHole;
use crate::support::{
    loops::{block, end, metrics, on_loop, one_loop, some_turns, the_loop, turn_until},
    nobody::Nobody,
    recorder::{Event, Events, Recorder, echo, read_bytes, silent},
    servers::{Quiet, RawClient, Settings, client, dial, serve},
    tcp::{ANY_PORT, connect, ping, read_n},
    wait::{PATIENCE, done, receive},
};
use bytes::Bytes;
use netwheel::{
    Codec, Peer,
    buffer::{KEEP_FROM, OutboundBuffer},
    channel::ChannelOptions,
    codec::RawBytes,
    prelude::*,
};
use std::{
    io::{ErrorKind, Write},
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::Duration,
};

/// Ends a test whose client has never connected.
#[track_caller]
fn assert_no_pipeline(group: &EventLoopGroup, bootstrap: RawClient, events: Events) {
    drop(bootstrap);
    assert_eq!(events.rest(), [], "no pipeline was made");
    end(group);
}

/// Returns a client that connects to a peer that never answers. It has one connection and one
/// timer.
#[cfg(target_os = "linux")]
fn pending_connect() -> (EventLoopGroup, BlackHole, RawClient, Events, Completion<Channel<Bytes>>) {
    let group = one_loop();
    let hole = BlackHole::open();
    let (bootstrap, events) = client(&group, Settings::new(), silent);
    let connecting = bootstrap.connect(hole.address);
    some_turns(&group);
    assert_eq!((the_loop(&group).connections(), metrics(&group).timers_pending), (1, 1));
    (group, hole, bootstrap, events, connecting)
}

// ---- T-08 --------------------------------------------------------------------------------------

/// Counts its drops.
struct Counted {
    bytes: Vec<u8>,
    drops: Arc<AtomicUsize>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drops.fetch_add(1, SeqCst);
    }
}

/// A codec for counted messages. Large ones stay with the channel until they are sent.
#[derive(Clone)]
struct CountedCodec;

impl Codec for CountedCodec {
    type Read = Bytes;
    type Write = Counted;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Counted, output: &mut OutboundBuffer) -> Result {
        output.put(Bytes::from_owner(message));
        Ok(())
    }
}

/// Writes counted messages of these sizes when it is connected.
struct Writer {
    sizes: Vec<usize>,
    drops: Arc<AtomicUsize>,
    opened: mpsc::Sender<Channel<Counted>>,
}

impl Handler for Writer {
    type Read = Bytes;
    type Write = Counted;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        for &size in &self.sizes {
            ctx.write(Counted { bytes: vec![b'x'; size], drops: self.drops.clone() })?;
        }
        self.opened.send(ctx.channel()).map_err(|_| "the test does not wait for the channel".into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        ctx.close();
        Ok(())
    }
}

fn serve_counted(
    group: &EventLoopGroup,
    sizes: &[usize],
    drops: &Arc<AtomicUsize>,
) -> (Server, mpsc::Receiver<Channel<Counted>>) {
    let (opened, channels) = mpsc::channel();
    let (sizes, drops) = (sizes.to_vec(), drops.clone());
    let server = ServerBootstrap::new(group)
        .pipeline(move |_| {
            let handler = Writer { sizes: sizes.clone(), drops: drops.clone(), opened: opened.clone() };
            Pipeline::codec(CountedCodec).handler(handler)
        })
        .bind(ANY_PORT)
        .unwrap();
    (server, channels)
}

#[test]
fn t_08_a_message_written_in_active_is_dropped_once() {
    let group = one_loop();
    let drops = Arc::new(AtomicUsize::new(0));
    let sizes = [1, KEEP_FROM - 1, KEEP_FROM, 100_000];
    let (server, channels) = serve_counted(&group, &sizes, &drops);
    let mut stream = connect(server.local_address());
    let channel = receive(&channels);
    read_n(&mut stream, sizes.iter().sum());
    drop(stream);
    done(channel.closed()).unwrap();
    end(&group);
    assert_eq!(drops.load(SeqCst), sizes.len());
}

#[test]
fn t_08_a_message_that_is_never_sent_is_dropped_once() {
    let group = one_loop();
    let drops = Arc::new(AtomicUsize::new(0));
    // More than any kernel accepts from a writer whose peer does not read.
    let sizes = [4 * 1024 * 1024; 3];
    let (server, channels) = serve_counted(&group, &sizes, &drops);
    let stream = connect(server.local_address());
    let channel = receive(&channels);
    channel.close_now();
    done(channel.closed()).unwrap();
    some_turns(&group);
    assert_eq!(drops.load(SeqCst), sizes.len());

    // The handle hands a refused message back, so the test still owns it.
    let late = Counted { bytes: Vec::new(), drops: drops.clone() };
    let refused = channel.write(late).unwrap_err();
    assert!(matches!(refused.error(), Error::Closed));
    assert_eq!(drops.load(SeqCst), sizes.len());
    drop(refused);
    assert_eq!(drops.load(SeqCst), sizes.len() + 1);
    drop(stream);
    end(&group);
    assert_eq!(drops.load(SeqCst), sizes.len() + 1);
}

#[test]
fn t_08_mail_for_a_channel_that_closes_first_is_dropped_once() {
    let group = one_loop();
    let drops = Arc::new(AtomicUsize::new(0));
    let (server, channels) = serve_counted(&group, &[], &drops);
    let stream = connect(server.local_address());
    let channel = receive(&channels);
    let release = block(&group);
    channel.close_now();
    for _ in 0..10 {
        channel.write(Counted { bytes: vec![0; 10_000], drops: drops.clone() }).unwrap();
    }
    drop(release);
    done(channel.closed()).unwrap();
    some_turns(&group);
    assert_eq!(drops.load(SeqCst), 10);
    drop(stream);
    end(&group);
    assert_eq!(drops.load(SeqCst), 10);
}

// ---- T-09 --------------------------------------------------------------------------------------

#[test]
fn t_09_a_refused_connection_fails_without_a_handler() {
    for half_close in [false, true] {
        let group = one_loop();
        let nobody = Nobody::new();
        let settings = Settings::channel(ChannelOptions::new().half_close(half_close));
        let (bootstrap, events) = client(&group, settings, silent);
        for _ in 0..10 {
            let error = done(bootstrap.connect(nobody.address)).unwrap_err();
            assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused), "{error}");
        }
        some_turns(&group);
        let metrics = metrics(&group);
        assert_eq!(
            (metrics.channels, metrics.timers_pending),
            (0, 0),
            "no socket and no connect timeout is left"
        );
        assert_no_pipeline(&group, bootstrap, events);
    }
}

// ---- T-10 --------------------------------------------------------------------------------------

#[cfg(target_os = "linux")]
#[test]
fn t_10_a_connect_timeout_to_a_black_hole() {
    let clock = netwheel::testing::ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let hole = BlackHole::open();
    let (bootstrap, events) = client(&group, Settings::new(), silent);
    let bootstrap = bootstrap.connect_timeout(Duration::from_secs(2));

    let connecting = bootstrap.connect(hole.address);
    some_turns(&group);
    assert_eq!(metrics(&group).timers_pending, 1);
    clock.advance(Duration::from_millis(1999));
    some_turns(&group);
    assert!(!connecting.is_done(), "the timeout must not be early");
    clock.advance(Duration::from_millis(1));
    match done(connecting) {
        Err(Error::TimedOut { operation: "connecting", after, .. }) => {
            assert_eq!(after, Duration::from_secs(2))
        }
        other => panic!("{other:?}"),
    }
    some_turns(&group);
    let metrics = metrics(&group);
    assert_eq!((metrics.channels, metrics.timers_pending), (0, 0), "neither a channel nor a timer is left");
    assert_no_pipeline(&group, bootstrap, events);
}

#[cfg(target_os = "linux")]
#[test]
fn t_10_without_a_connect_timeout_the_systems_timeout_applies() {
    let clock = netwheel::testing::ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let hole = BlackHole::open();
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let connecting = bootstrap.connect_timeout(Duration::ZERO).connect(hole.address);
    some_turns(&group);
    clock.advance(Duration::from_secs(24 * 60 * 60));
    some_turns(&group);
    assert!(!connecting.is_done());
    end(&group);
    assert!(matches!(done(connecting), Err(Error::ShutDown)), "a shutdown ends the attempt");
}

#[test]
fn t_10_a_connection_made_in_time_does_not_time_out_later() {
    let clock = netwheel::testing::ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, events) = client(&group, Settings::new(), silent);
    let channel =
        done(bootstrap.connect_timeout(Duration::from_secs(2)).connect(server.local_address())).unwrap();
    some_turns(&group);
    assert_eq!(metrics(&group).timers_pending, 0, "the timeout is cancelled");
    clock.advance(Duration::from_secs(3));
    some_turns(&group);
    assert!(channel.is_open());
    channel.write("still here".into()).unwrap();
    assert_eq!(events.bytes(10), b"still here");
    end(&group);
}

// ---- T-11 --------------------------------------------------------------------------------------

#[cfg(target_os = "linux")]
#[test]
fn t_11_a_connect_can_be_cancelled() {
    let (group, _hole, bootstrap, events, connecting) = pending_connect();

    assert!(connecting.cancel());
    assert!(connecting.is_done(), "a cancel takes effect at once");
    assert!(!connecting.cancel(), "a second cancel has no effect");
    some_turns(&group);
    assert_eq!(
        (the_loop(&group).connections(), metrics(&group).timers_pending),
        (0, 0),
        "no socket and no timer is left"
    );
    assert!(matches!(done(connecting), Err(Error::Cancelled)));
    assert_no_pipeline(&group, bootstrap, events);
}

/// C-38: a connect that is cancelled first is never started.
#[test]
fn t_11_cancelled_before_the_loop_has_received_the_request() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, events) = client(&group, Settings::new(), silent);
    let release = block(&group);
    let connecting = bootstrap.connect(server.local_address());
    assert!(connecting.cancel());
    drop(release);
    some_turns(&group);
    turn_until(&group, |metrics| metrics.channels == 0);
    assert_eq!(metrics(&group).connected, 0);
    drop((bootstrap, connecting));
    assert_eq!(events.rest(), [], "no pipeline was made");
    end(&group);
}

#[test]
fn t_11_cancelled_while_the_connection_is_being_established() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (entered, in_factory) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let bootstrap = ClientBootstrap::new(&group).pipeline(move |_| {
        entered.send(()).unwrap();
        let _ = released.lock().unwrap().recv_timeout(PATIENCE);
        Pipeline::codec(RawBytes).handler(Quiet)
    });
    let connecting = bootstrap.connect(server.local_address());
    receive(&in_factory);
    assert!(connecting.cancel(), "the channel has not been delivered yet");
    drop(release);
    turn_until(&group, |metrics| metrics.connected == 1 && metrics.channels == 0);
    assert!(matches!(done(connecting), Err(Error::Cancelled)), "the channel is never delivered");
    end(&group);
}

#[test]
fn t_11_cancelled_in_the_turn_in_which_it_succeeds() {
    let group = one_loop();
    let connecting = Arc::new(Mutex::new(None::<Completion<Channel<Bytes>>>));
    let (sender, cancelled) = mpsc::channel();
    let mine = connecting.clone();
    let (server, _at_server) = serve(&group, Settings::new(), move |_, event| {
        if matches!(event, Event::Read(_)) {
            let connecting =
                mine.lock().unwrap().take().expect("the connect starts before the bytes are read");
            sender.send(connecting.cancel()).unwrap();
        }
        Ok(())
    });
    let mut stream = connect(server.local_address());
    turn_until(&group, |metrics| metrics.channels == 1);
    let (bootstrap, events) = client(&group, Settings::new(), silent);
    let release = block(&group);
    // The bytes arrive before the connection is established. One poll reports both, in this order.
    stream.write_all(b"now").unwrap();
    *connecting.lock().unwrap() = Some(bootstrap.connect(server.local_address()));
    drop(release);
    assert!(receive(&cancelled));
    some_turns(&group);
    assert_eq!(metrics(&group).connected, 0);
    assert_no_pipeline(&group, bootstrap, events);
}

/// C-37: a completed operation does not change.
#[test]
fn t_11_a_completed_connect_cannot_be_cancelled() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let connecting = bootstrap.connect(server.local_address());
    let (sender, receiver) = mpsc::channel();
    let connected = bootstrap.connect(server.local_address());
    connecting.on_complete(move |result| sender.send(result).unwrap());
    let channel = receive(&receiver).unwrap();
    turn_until(&group, |metrics| metrics.connected == 2);
    assert!(connected.is_done());
    assert!(!connected.cancel());
    assert!(done(connected).unwrap().is_open());
    assert!(!channel.closed().cancel(), "this operation cannot be cancelled");
    some_turns(&group);
    assert!(channel.is_open());
    end(&group);
}

// ---- dropping the completion -------------------------------------------------------------------

#[cfg(target_os = "linux")]
#[test]
fn dropping_a_pending_connect_leaves_neither_a_socket_nor_a_timer() {
    let (group, _hole, bootstrap, events, connecting) = pending_connect();
    drop(connecting);
    turn_until(&group, |metrics| metrics.timers_pending == 0);
    assert_eq!(the_loop(&group).connections(), 0);
    assert_no_pipeline(&group, bootstrap, events);
}

#[test]
fn dropping_a_completed_connect_closes_the_channel() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let connecting = bootstrap.connect(server.local_address());
    turn_until(&group, |metrics| metrics.connected == 1 && metrics.channels == 2);
    assert!(connecting.is_done());
    drop(connecting);
    turn_until(&group, |metrics| metrics.channels == 0);
    end(&group);
}

#[test]
fn dropping_a_connect_at_any_moment_leaves_nothing() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let mut established = 0;
    for round in 0..400u32 {
        let connecting = bootstrap.connect(server.local_address());
        // From before the loop has received the request until after the handler was called.
        match round % 4 {
            0 => {}
            1 => on_loop(&group, || ()),
            2 => some_turns(&group),
            _ => turn_until(&group, |_| connecting.is_done()),
        }
        for _ in 0..round * 10 {
            std::hint::spin_loop();
        }
        established += usize::from(connecting.is_done());
        drop(connecting);
    }
    assert!(established >= 100, "{established}");
    // The server may accept the last connections after their clients have gone.
    turn_until(&group, |metrics| {
        metrics.channels == 0 && metrics.timers_pending == 0 && the_loop(&group).connections() == 0
    });
    end(&group);
}

#[test]
fn a_detached_connect_still_creates_its_handler() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, events) = client(&group, Settings::new(), |ctx, event| {
        if matches!(event, Event::Active(_)) { ctx.write("hello".into()) } else { Ok(()) }
    });
    bootstrap.connect(server.local_address()).detach();
    assert_eq!(events.bytes(5), b"hello");
    assert_eq!(metrics(&group).channels, 2);
    end(&group);
}

/// Waits for `completion` like an executor's timeout: polls it, and drops it when the time has
/// elapsed.
#[cfg(target_os = "linux")]
fn within<T>(time: Duration, mut completion: Completion<T>) -> Option<Result<T>> {
    use std::{
        future::Future,
        pin::Pin,
        task::{self, Poll, Wake, Waker},
        thread::{self, Thread},
        time::Instant,
    };

    struct Unpark(Thread);

    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }

    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = task::Context::from_waker(&waker);
    let deadline = Instant::now() + time;
    loop {
        if let Poll::Ready(result) = Pin::new(&mut completion).poll(&mut context) {
            return Some(result);
        }
        match deadline.checked_duration_since(Instant::now()) {
            Some(left) => thread::park_timeout(left),
            None => return None,
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_timeout_around_a_connect_leaks_nothing() {
    let group = one_loop();
    let hole = BlackHole::open();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    for _ in 0..20 {
        let connecting = bootstrap.connect(hole.address);
        assert!(within(Duration::from_millis(1), connecting).is_none(), "the peer never answers");
        // The connect may succeed in time. If it does, the program owns the channel.
        let connecting = bootstrap.connect(server.local_address());
        if let Some(connected) = within(Duration::from_micros(200), connecting) {
            connected.unwrap().close_now();
        }
    }
    let connecting = bootstrap.connect(server.local_address());
    let channel = within(PATIENCE, connecting).unwrap().unwrap();
    assert!(channel.is_open());
    channel.close_now();
    turn_until(&group, |metrics| metrics.channels == 0 && metrics.timers_pending == 0);
    assert_eq!(the_loop(&group).connections(), 0);
    end(&group);
}

// ---- local address -----------------------------------------------------------------------------

#[test]
fn an_unusable_local_address_is_reported_as_such() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), echo);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    // 192.0.2.0/24 is reserved for documentation (RFC 5737). The other address has a different
    // family.
    for wrong in ["192.0.2.1:0", "[::1]:0"] {
        let bootstrap = bootstrap.clone().local_address(wrong.parse().unwrap());
        match done(bootstrap.connect(server.local_address())) {
            Err(Error::Io { operation, .. }) => assert_eq!(operation, "binding the local address", "{wrong}"),
            other => panic!("{wrong}: {other:?}"),
        }
    }
    some_turns(&group);
    assert_eq!(the_loop(&group).connections(), 0);
    end(&group);
}

// ---- T-13 --------------------------------------------------------------------------------------

#[test]
fn t_13_both_ends_know_both_addresses() {
    type Addresses = (Option<SocketAddr>, Option<SocketAddr>);
    let of_peer = |peer: &Peer| (peer.local_address(), peer.address());

    let group = one_loop();
    // The addresses that the factory, the context and the handle report.
    let (sender, seen) = mpsc::channel::<(&str, Addresses)>();
    let (at_server, at_client) = (sender.clone(), sender);
    let tell = |who: &'static str, sender: mpsc::Sender<(&'static str, Addresses)>| {
        move |ctx: &mut Context<'_, Recorder>, event: &Event| {
            if let Event::Active(channel) = event {
                sender.send((who, (ctx.local_address(), ctx.peer_address()))).unwrap();
                sender.send((who, (channel.local_address(), channel.peer_address()))).unwrap();
            }
            Ok(())
        }
    };
    let (server, server_events) = serve(&group, Settings::new(), tell("server", at_server));
    let (channel, client_events) =
        dial(&group, server.local_address(), Settings::new(), tell("client", at_client));
    server_events.channel();
    client_events.channel();

    let listening = server.local_address();
    let local = channel.local_address().expect("a connected channel has an address");
    for address in [listening, local] {
        assert_eq!(address.ip(), Ipv4Addr::LOCALHOST, "not a wildcard");
        assert_ne!(address.port(), 0);
    }
    assert_ne!(local, listening);
    assert_eq!(channel.peer_address(), Some(listening));
    for _ in 0..4 {
        let (who, addresses) = receive(&seen);
        let expected = match who {
            "client" => (Some(local), Some(listening)),
            _ => (Some(listening), Some(local)),
        };
        assert_eq!(addresses, expected, "{who}");
    }

    // The factories receive the addresses too, before a channel exists.
    let (sender, reported) = mpsc::channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |peer| {
            sender.send(of_peer(peer)).unwrap();
            Pipeline::codec(RawBytes).handler(Quiet)
        })
        .bind(ANY_PORT)
        .unwrap();
    let (sender, told_client) = mpsc::channel();
    let bootstrap = ClientBootstrap::new(&group).pipeline(move |peer| {
        sender.send(of_peer(peer)).unwrap();
        Pipeline::codec(RawBytes).handler(Quiet)
    });
    let channel = done(bootstrap.connect(server.local_address())).unwrap();
    let (local, listening) = (channel.local_address(), Some(server.local_address()));
    assert_eq!(receive(&told_client), (local, listening));
    assert_eq!(receive(&reported), (listening, local));

    // A chosen local address is used.
    let chosen: SocketAddr = "127.0.0.2:0".parse().unwrap();
    if cfg!(target_os = "linux") {
        let channel = done(bootstrap.local_address(chosen).connect(server.local_address())).unwrap();
        assert_eq!(channel.local_address().unwrap().ip(), chosen.ip());
        assert_eq!(receive(&reported), (listening, channel.local_address()));
    }
    end(&group);
}

// ---- T-14 --------------------------------------------------------------------------------------

#[test]
fn t_14_a_callback_that_closes_at_once_suppresses_no_event() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), silent);
    let (bootstrap, events) = client(&group, Settings::new(), silent);
    bootstrap.connect(server.local_address()).on_complete(|channel| channel.unwrap().close());
    events.channel();
    assert_eq!(events.until_inactive(), [Event::Inactive]);
    end(&group);
}

// ---- C-69 --------------------------------------------------------------------------------------

#[test]
fn c_69_the_callback_of_a_connect_runs_on_its_loop() {
    let group = one_loop();
    let (server, _at_server) = serve(&group, Settings::new(), silent);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let nobody = Nobody::new();
    for (to, succeeds) in [(server.local_address(), true), (nobody.address, false)] {
        let (sender, receiver) = mpsc::channel();
        let event_loop = the_loop(&group).clone();
        // The callback is added before the loop receives the request.
        let release = block(&group);
        bootstrap.connect(to).on_complete(move |result| {
            sender.send((result.is_ok(), event_loop.in_event_loop())).unwrap();
        });
        drop(release);
        assert_eq!(receive(&receiver), (succeeds, true));
    }
    end(&group);
}

// ---- accepting ---------------------------------------------------------------------------------

#[test]
fn a_crowd_is_accepted_over_several_turns() {
    const CROWD: usize = 200;
    let group = one_loop();
    let (sender, turns) = mpsc::channel();
    let event_loop = the_loop(&group).clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            sender.send(event_loop.metrics().turns).unwrap();
            Pipeline::codec(RawBytes).handler(Quiet)
        })
        .bind(ANY_PORT)
        .unwrap();
    some_turns(&group);
    // All connections wait when the loop polls: there is one event, and no further event for
    // connections beyond the first turn's limit.
    let release = block(&group);
    let crowd: Vec<_> = (0..CROWD).map(|_| connect(server.local_address())).collect();
    drop(release);
    let turns: Vec<u64> = crowd.iter().map(|_| receive(&turns)).collect();
    let most = turns.chunk_by(|a, b| a == b).map(<[u64]>::len).max().unwrap();
    assert!(most < CROWD / 2, "{most} of {CROWD} were accepted in one turn");
    end(&group);
}

// ---- T-19 --------------------------------------------------------------------------------------

#[test]
fn t_19_a_connection_that_is_closed_by_force_does_not_affect_the_server() {
    let group = one_loop();
    // The first connection is closed in its callback, with bytes unsent. The others are echoed.
    let first = Mutex::new(true);
    let (server, at_server) = serve(&group, Settings::new(), move |ctx, event| {
        if matches!(event, Event::Read(_)) && std::mem::take(&mut *first.lock().unwrap()) {
            ctx.write("never sent".into())?;
            ctx.close_now();
            return Ok(());
        }
        echo(ctx, event)
    });

    let (channel, at_client) =
        dial(&group, server.local_address(), Settings::new(), |ctx, event| match event {
            Event::Active(_) => ctx.write("close me".into()),
            _ => Ok(()),
        });
    done(channel.closed()).unwrap();
    assert!(!channel.is_open());
    assert_eq!(read_bytes(&at_client.until_inactive()), b"");
    let child = at_server.channel();
    assert_eq!(at_server.until_inactive(), [Event::Read("close me".into()), Event::Inactive]);
    done(child.closed()).unwrap();

    ping(&mut connect(server.local_address()), b"the server lives");
    end(&group);
}

#[test]
fn t_19_closing_in_active_closes_the_client() {
    let group = one_loop();
    let (server, at_server) = serve(&group, Settings::new(), |ctx, event| {
        if matches!(event, Event::Active(_)) {
            ctx.close_now();
        }
        Ok(())
    });
    let settings = Settings::channel(ChannelOptions::new());
    let (channel, at_client) = dial(&group, server.local_address(), settings, silent);
    done(channel.closed()).unwrap();
    let reported = at_client.until_inactive();
    assert!(
        matches!(reported.first(), Some(Event::Active(_))),
        "active must be the first callback: {reported:?}"
    );
    let reported = at_server.until_inactive();
    assert!(matches!(reported[..], [Event::Active(_), Event::Inactive]), "{reported:?}");
    end(&group);
}

/// If the system chooses the port of a server that is down for its client, TCP connects the socket
/// to itself.
#[test]
fn a_client_does_not_connect_to_itself() {
    let group = one_loop();
    let address = std::net::TcpListener::bind(ANY_PORT).unwrap().local_addr().unwrap();
    let client = ClientBootstrap::new(&group)
        .local_address(address)
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet));
    let error = done(client.connect(address)).unwrap_err();
    assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused), "{error}");
    std::net::TcpListener::bind(address).expect("the port is free");
    end(&group);
}
