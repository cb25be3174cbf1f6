//! Limits on simultaneous connections per server, per loop and per address (H-08). A connection
//! beyond a limit is closed at once, counted and reported. Its permit is released when a connection
//! closes.

use crate::support::{
    journal::Log,
    logs,
    loops::{advance, end, one_loop, settle, single},
    recorder::{Event, Recorder},
    tcp::{ANY_PORT, ask, connect, read_to_end},
    wait::{self, done},
};
use bytes::Bytes;
use netwheel::{
    Peer, Pipeline,
    admission::{Admission, RejectReason, Rejection},
    codec::Line,
    group::EventLoopGroupBuilder,
    metrics::LoopMetrics,
    prelude::*,
    testing::ManualClock,
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    thread,
    time::Duration,
};

fn lines(_: &Peer) -> Pipeline<Bytes> {
    let echo = Recorder::with(&Log::new(), |ctx, call| match call {
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    });
    Pipeline::codec(Line::new()).handler(echo)
}

fn serve(group: &EventLoopGroup, admission: Admission) -> Server {
    ServerBootstrap::new(group).admission(admission).pipeline(lines).bind(ANY_PORT).unwrap()
}

fn echoes(peer: &mut TcpStream) {
    ask(peer, "x\n", "x\n");
}

/// Returns whether the server echoes, or closes instead.
fn is_served(peer: &mut TcpStream) -> bool {
    // A write to a connection that is closed already may be answered with a reset.
    let _ = peer.write_all(b"x\n");
    let mut back = [0; 2];
    match peer.read_exact(&mut back) {
        Ok(()) => true,
        Err(e) if matches!(e.kind(), ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset) => false,
        Err(e) => panic!("neither served nor closed: {e}"),
    }
}

fn wait_until(group: &EventLoopGroup, what: &str, is_met: impl Fn(&[LoopMetrics]) -> bool) {
    wait::wait_until(what, || is_met(&group.metrics()));
}

fn sum(metrics: &[LoopMetrics], of: impl Fn(&LoopMetrics) -> u64) -> u64 {
    metrics.iter().map(of).sum()
}

/// Returns `admission` with a hook that records the rejections.
fn recording(admission: Admission) -> (Admission, Arc<Mutex<Vec<Rejection>>>) {
    let all: Arc<Mutex<Vec<Rejection>>> = Arc::default();
    let inner = all.clone();
    (admission.on_rejected(move |rejection| inner.lock().unwrap().push(*rejection)), all)
}

#[test]
fn connections_beyond_the_servers_limit_are_closed_at_once_without_a_pipeline() {
    let group = one_loop();
    let (admission, rejected) = recording(Admission::new().max_connections(2));
    let made = Arc::new(AtomicUsize::new(0));
    let count = made.clone();
    let server = ServerBootstrap::new(&group)
        .admission(admission)
        .pipeline(move |peer| {
            count.fetch_add(1, SeqCst);
            lines(peer)
        })
        .bind(ANY_PORT)
        .unwrap();
    let (mut one, mut two) = (connect(server.local_address()), connect(server.local_address()));
    echoes(&mut one);
    echoes(&mut two);
    for n in 1..=3 {
        let mut beyond = connect(server.local_address());
        let address = beyond.local_addr().unwrap();
        assert!(read_to_end(&mut beyond).is_empty());
        wait_until(&group, "the rejection is counted", |metrics| metrics[0].rejected_limit == n);
        // The hook runs before the next connection is accepted, but may run after the peer sees the
        // close.
        wait_until(&group, "the rejection is reported", |_| rejected.lock().unwrap().len() as u64 == n);
        let last = *rejected.lock().unwrap().last().unwrap();
        assert_eq!((last.address, last.reason), (Some(address), RejectReason::ServerFull { limit: 2 }));
    }
    assert_eq!(made.load(SeqCst), 2);
    let metrics = group.next().metrics();
    assert_eq!((metrics.accepted, metrics.channels, metrics.rejected_filter), (2, 2, 0));
    assert_eq!(group.next().connections(), 2, "rejected connections count on no loop");

    drop(one);
    wait_until(&group, "a permit is released", |metrics| metrics[0].channels_closed == 1);
    echoes(&mut connect(server.local_address()));
    end(&group);
}

#[test]
fn servers_may_share_a_limit() {
    let group = one_loop();
    let admission = Admission::new().max_connections(2).shared();
    let servers = [serve(&group, admission.clone()), serve(&group, admission)];
    let [one, two] = servers.each_ref().map(|server| connect(server.local_address()));
    let mut peers = [one, two];
    peers.iter_mut().for_each(echoes);
    for server in &servers {
        assert!(read_to_end(&mut connect(server.local_address())).is_empty());
    }
    end(&group);
}

#[test]
fn a_permit_is_released_whichever_side_closes_and_if_the_pipeline_fails() {
    let group = one_loop();
    let (fails, server_log) = (Arc::new(AtomicUsize::new(2)), Log::new());
    let log = server_log.clone();
    let server = ServerBootstrap::new(&group)
        .admission(Admission::new().max_connections(1).max_connections_per_ip(1))
        .pipeline(move |_| {
            if fails.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
                return Err(netwheel::Error::from("no pipeline, on purpose"));
            }
            let handler = Recorder::with(&log, |ctx, call| match call {
                Event::Read(line) if line == "panic" => panic!("on purpose"),
                Event::Read(_) => {
                    ctx.close();
                    Ok(())
                }
                _ => Ok(()),
            });
            Ok(Pipeline::codec(Line::new()).handler(handler))
        })
        .bind(ANY_PORT)
        .unwrap();
    logs::quiet_panics();
    for _ in 0..2 {
        assert!(read_to_end(&mut connect(server.local_address())).is_empty(), "the factory fails");
    }
    // The server closes, the handler panics, or the peer resets or closes.
    for (n, text) in ["bye\n", "panic\n", ""].into_iter().cycle().take(12).enumerate() {
        let mut peer = connect(server.local_address());
        server_log.wait_until("active", |log| log.iter().filter(|e| *e == "active").count() == n + 1);
        peer.write_all(text.as_bytes()).unwrap();
        if !text.is_empty() {
            read_to_end(&mut peer);
        }
        drop(peer);
        wait_until(&group, "the channel is closed", |metrics| metrics[0].channels_closed == n as u64 + 1);
    }
    assert_eq!(group.next().metrics().rejected_limit, 0);
    end(&group);
}

/// Connects from a given local address. On Linux, all of 127.0.0.0/8 belongs to this machine.
#[cfg(target_os = "linux")]
fn dial(group: &EventLoopGroup, from: &str, server: &Server) -> (netwheel::Channel<Bytes>, Log) {
    let log = Log::new();
    let inner = log.clone();
    let client = ClientBootstrap::new(group)
        .local_address(SocketAddr::new(from.parse().unwrap(), 0))
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Recorder::new(&inner)));
    (done(client.connect(server.local_address())).unwrap(), log)
}

#[test]
#[cfg(target_os = "linux")]
fn h_08_each_address_has_its_own_limit() {
    let (group, clients) = (one_loop(), one_loop());
    let (admission, rejected) = recording(Admission::new().max_connections_per_ip(1));
    let server = serve(&group, admission);
    let (one, log_of_one) = dial(&clients, "127.0.0.1", &server);
    one.write("hello".into()).unwrap();
    log_of_one.wait_for("read hello");
    let (_second, log) = dial(&clients, "127.0.0.1", &server);
    log.wait_for("inactive");
    let (other, log) = dial(&clients, "127.0.0.2", &server);
    other.write("hello".into()).unwrap();
    log.wait_for("read hello");
    wait_until(&group, "the rejection is reported", |_| rejected.lock().unwrap().len() == 1);
    assert_eq!(rejected.lock().unwrap()[0].reason, RejectReason::IpFull { limit: 1 });

    one.close();
    done(one.closed()).unwrap();
    wait_until(&group, "the permit is released", |metrics| metrics[0].channels_closed == 1);
    let (again, log) = dial(&clients, "127.0.0.1", &server);
    again.write("hello".into()).unwrap();
    log.wait_for("read hello");
    end(&clients);
    end(&group);
}

/// Clients repeatedly connect at the same time. Exactly as many are served as the limit allows.
#[cfg(target_os = "linux")]
fn race(group: &EventLoopGroup, server: &Server, limit: usize) {
    const CLIENTS: usize = 8;
    const ROUNDS: u64 = 40;
    let (barrier, served) = (std::sync::Barrier::new(CLIENTS), AtomicUsize::new(0));
    thread::scope(|scope| {
        for client in 0..CLIENTS {
            let (barrier, served) = (&barrier, &served);
            scope.spawn(move || {
                for round in 1..=ROUNDS {
                    barrier.wait();
                    let mut peer = connect(server.local_address());
                    served.fetch_add(usize::from(is_served(&mut peer)), SeqCst);
                    barrier.wait();
                    assert_eq!(served.load(SeqCst), limit);
                    drop(peer);
                    if barrier.wait().is_leader() {
                        served.store(0, SeqCst);
                    }
                    let (closed, rejected) = (round * limit as u64, round * (CLIENTS - limit) as u64);
                    wait_until(group, &format!("client {client}: permits are released"), |metrics| {
                        sum(metrics, |m| m.channels_closed) == closed
                            && sum(metrics, |m| m.rejected_limit) == rejected
                    });
                }
            });
        }
    });
}

#[test]
#[cfg(target_os = "linux")]
fn h_08_racing_listeners_never_exceed_a_limit() {
    for admission in [Admission::new().max_connections(3), Admission::new().max_connections_per_ip(3)] {
        let group = EventLoopGroup::builder().threads(4).build().unwrap();
        let bootstrap = ServerBootstrap::new(&group).listener_per_loop(true).admission(admission);
        let server = bootstrap.pipeline(lines).bind(ANY_PORT).unwrap();
        race(&group, &server, 3);
        end(&group);
    }
}

#[test]
fn h_08_connections_that_end_on_other_loops_never_exceed_a_limit() {
    let acceptors = one_loop();
    let group = EventLoopGroup::builder().threads(3).build().unwrap();
    let bootstrap = ServerBootstrap::new(&group).acceptor_group(&acceptors);
    let server =
        bootstrap.admission(Admission::new().max_connections(3)).pipeline(lines).bind(ANY_PORT).unwrap();
    let mut served = Vec::new();
    for _ in 0..5 {
        let mut peer = connect(server.local_address());
        if is_served(&mut peer) {
            served.push(peer);
        }
    }
    assert_eq!(served.len(), 3);
    let rejected = acceptors.next().metrics().rejected_limit;
    assert_eq!(
        (rejected, sum(&group.metrics(), |m| m.rejected_limit)),
        (2, 0),
        "counted on the accepting loop"
    );
    end(&acceptors);
    end(&group);
}

fn limited_loops(threads: usize, connections: usize) -> EventLoopGroupBuilder {
    EventLoopGroup::builder().threads(threads).max_connections(connections)
}

#[test]
fn connections_beyond_a_loops_limit_go_to_the_next_loop() {
    // This chooser selects the first loop every time.
    let group = limited_loops(2, 2).chooser(First).build().unwrap();
    let (admission, rejected) = recording(Admission::new());
    let server = serve(&group, admission);
    let mut peers: Vec<_> = (0..4).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(echoes);
    assert_eq!(group.metrics().iter().map(|m| m.channels).collect::<Vec<_>>(), [2, 2]);
    assert!(read_to_end(&mut connect(server.local_address())).is_empty());
    wait_until(&group, "the rejection is reported", |_| rejected.lock().unwrap().len() == 1);
    assert_eq!(rejected.lock().unwrap()[0].reason, RejectReason::LoopFull { limit: 2 });
    assert_eq!(sum(&group.metrics(), |m| m.rejected_limit), 1);

    // Outbound connections count like inbound ones.
    let client = ClientBootstrap::new(&group).pipeline(lines);
    let refused = done(client.connect(server.local_address())).unwrap_err();
    assert!(matches!(refused, netwheel::Error::Full { limit: 2, .. }), "{refused}");
    assert_eq!(refused.to_string(), "the limit of 2 connections of each event loop is reached");
    drop(peers.pop());
    let connections = || group.event_loops().iter().map(EventLoop::connections).sum::<usize>();
    wait_until(&group, "a permit is released", |_| connections() == 3);
    // The client's end takes the last permit, so there is none for the server's end.
    let channel = done(client.connect(server.local_address())).unwrap();
    done(channel.closed()).unwrap();
    end(&group);
}

struct First;

impl netwheel::group::Chooser for First {
    fn choose(&self, _: &[EventLoop]) -> usize {
        0
    }
}

#[test]
fn a_connection_that_fails_releases_its_permit() {
    let group = limited_loops(1, 1).build().unwrap();
    let nobody = std::net::TcpListener::bind(ANY_PORT).unwrap().local_addr().unwrap();
    let client = ClientBootstrap::new(&group).pipeline(lines);
    for _ in 0..5 {
        let failed = done(client.connect(nobody)).unwrap_err();
        assert_eq!(failed.io_kind(), Some(ErrorKind::ConnectionRefused), "{failed}");
        let nowhere: &[SocketAddr] = &[];
        let failed = done(client.connect(nowhere)).unwrap_err();
        assert_eq!(failed.io_kind(), Some(ErrorKind::NotFound), "{failed}");
    }
    end(&group);
}

/// H-07: a rejected connection can receive a message before it is closed.
#[test]
fn h_07_a_farewell_arrives_before_the_end_of_the_stream() {
    let group = one_loop();
    let admission = Admission::new().max_connections(1).farewell(|rejection| match rejection.reason {
        RejectReason::ServerFull { limit } => Some(format!("all {limit} taken\n").into()),
        _ => None,
    });
    let (admission, rejected) = recording(admission);
    let server = serve(&group, admission);
    let mut there = connect(server.local_address());
    echoes(&mut there);
    for n in 1..=20 {
        let mut peer = connect(server.local_address());
        // Bytes that the client sends do not cost it the farewell, whether they arrive before or
        // after the close.
        let _ = peer.write_all(b"hello\n");
        assert_eq!(String::from_utf8_lossy(&read_to_end(&mut peer)), "all 1 taken\n");
        wait_until(&group, "the rejection is reported", |_| rejected.lock().unwrap().len() == n);
    }
    assert_eq!(group.next().metrics().rejected_limit, 20);
    echoes(&mut there);
    end(&group);
}

/// H-07: a farewell that is too long, or whose hook panics, affects nothing else.
#[test]
fn h_07_a_farewell_is_bounded_and_may_fail() {
    logs::collect();
    logs::quiet_panics();
    let group = one_loop();
    let lengths = Mutex::new([1024, 1025, 0].into_iter());
    let admission = Admission::new().max_connections(1).farewell(move |_| {
        let length = lengths.lock().unwrap().next().expect("no more lengths, on purpose");
        Some(vec![b'x'; length].into())
    });
    let (admission, rejected) = recording(admission);
    let server = serve(&group, admission);
    let mut there = connect(server.local_address());
    echoes(&mut there);
    let got: Vec<_> = (0..4).map(|_| read_to_end(&mut connect(server.local_address())).len()).collect();
    assert_eq!(got, [1024, 0, 0, 0]);
    wait_until(&group, "all rejections are reported", |_| rejected.lock().unwrap().len() == 4);
    assert_eq!(group.next().metrics().io_panics, 0);
    echoes(&mut there);
    end(&group);

    // The log reports it with the rejection: the first time, and then at intervals.
    let group = one_loop();
    let admission = Admission::new().max_connections(1).farewell(|_| Some(vec![b'x'; 1025].into()));
    let server = serve(&group, admission);
    let mut there = connect(server.local_address());
    echoes(&mut there);
    for _ in 0..3 {
        assert!(read_to_end(&mut connect(server.local_address())).is_empty());
    }
    wait_until(&group, "all rejections are counted", |metrics| metrics[0].rejected_limit == 3);
    end(&group);
    let line =
        format!("on {}: the farewell is longer than 1024 bytes and was not sent", server.local_address());
    assert_eq!(logs::lines_with(&line).len(), 1);
}

#[test]
fn a_thousand_rejections_are_rate_limited_log_lines_and_a_hook_may_panic() {
    logs::collect();
    logs::quiet_panics();
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let admission =
        Admission::new().max_connections(1).on_rejected(|rejection| panic!("{rejection}, on purpose"));
    let server = serve(&group, admission);
    let mut there = connect(server.local_address());
    echoes(&mut there);
    let reject = |times: u64| {
        let before = event_loop.metrics().rejected_limit;
        for _ in 0..times {
            assert!(read_to_end(&mut connect(server.local_address())).is_empty());
        }
        while event_loop.metrics().rejected_limit < before + times {
            settle(&event_loop);
        }
        settle(&event_loop);
    };
    reject(500);
    let part = format!("on {}: a connection from", server.local_address());
    let lines = || logs::lines_with(&part);
    assert_eq!(lines().len(), 1, "{:#?}", lines());
    assert!(
        lines()[0].starts_with("WARN")
            && lines()[0].ends_with("the server has reached its limit of 1 connections"),
        "{:?}",
        lines()
    );
    advance(&event_loop, &clock, Duration::from_secs(10));
    reject(1);
    assert_eq!(lines().len(), 2, "{:#?}", lines());
    let suppressed = "connections beyond a limit: 499 more lines were suppressed in the last 10.0s";
    assert_eq!(logs::lines_with(suppressed).len(), 1);
    let part = format!("on {}: the farewell or the rejection callback panicked", server.local_address());
    assert_eq!(logs::lines_with(&part).len(), 2);
    assert_eq!(event_loop.metrics().io_panics, 0);
    echoes(&mut there);
    end(&group);
}

#[test]
fn limits_out_of_range_are_refused_when_built() {
    let group = one_loop();
    let new = Admission::new;
    let count = "1 connection or more";
    for (admission, setting, value, allowed) in [
        (new().max_connections(0), "max_connections", "0", count),
        (new().max_connections_per_ip(0), "max_connections_per_ip", "0", count),
        (new().ipv6_prefix(0), "ipv6_prefix", "0", "1 to 128 bits"),
        (new().ipv6_prefix(129), "ipv6_prefix", "129", "1 to 128 bits"),
    ] {
        let refused = ServerBootstrap::new(&group).admission(admission).pipeline(lines).bind(ANY_PORT);
        let refused = refused.expect_err("the setting is refused");
        let netwheel::Error::Setting(error) = &refused else { panic!("{refused}") };
        assert_eq!((error.setting(), error.value(), error.allowed()), (setting, value, allowed));
    }
    let refused = limited_loops(1, 0).build().unwrap_err();
    assert_eq!(refused.to_string(), "max_connections is 0; it must be 1 connection or more");
    serve(&group, new().max_connections(1).max_connections_per_ip(1).ipv6_prefix(128));
    end(&group);
}

#[test]
fn servers_of_one_bootstrap_have_separate_counts() {
    let group = one_loop();
    let bootstrap =
        ServerBootstrap::new(&group).admission(Admission::new().max_connections(1)).pipeline(lines);
    let servers = [bootstrap.clone().bind(ANY_PORT).unwrap(), bootstrap.bind(ANY_PORT).unwrap()];
    let mut peers = servers.each_ref().map(|server| connect(server.local_address()));
    peers.iter_mut().for_each(echoes);
    for server in &servers {
        assert!(!is_served(&mut connect(server.local_address())));
    }
    end(&group);
}
