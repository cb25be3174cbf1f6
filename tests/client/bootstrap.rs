//! Bootstraps: settings that are copied and validated, the loops that run factories, listening and
//! closing.

#[cfg(target_os = "linux")]
use crate::support::nobody::{BlackHole, Nobody};
use crate::support::{
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    tcp::{ask, connect, read_to_end},
    wait::{self, SECOND, done},
};
use bytes::Bytes;
use netwheel::{
    Error, Peer, Pipeline,
    buffer::WaterMark,
    channel::{ChannelOptions, MaxConnectionAge},
    codec::{Line, RawBytes},
    net::{ListenerOptions, TcpOptions},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::EmbeddedChannel,
    time::{MissedRuns, Periodic},
};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

fn echo(log: &Log) -> Recorder {
    Recorder::with(log, |ctx, call| match call {
        Event::Read(message) if message == "bye" => {
            ctx.close();
            Ok(())
        }
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    })
}

fn lines(_: &Peer) -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).handler(echo(&Log::new()))
}

/// Asserts that the error names the setting, the value, and the allowed range.
#[track_caller]
fn assert_refused<T>(result: Result<T>, setting: &str, value: &str, allowed: &str) {
    let Err(error) = result else { panic!("{setting} = {value} was accepted") };
    let Error::Setting(refused) = &error else { panic!("{error}") };
    assert_eq!((refused.setting(), refused.value(), refused.allowed()), (setting, value, allowed));
    assert_eq!(error.to_string(), format!("{setting} is {value}; it must be {allowed}"));
}

#[test]
fn c_67_channel_settings_out_of_range_are_refused_when_built() {
    let group = one_loop();
    let new = ChannelOptions::new;
    for (options, setting, value, allowed) in [
        (new().max_outbound(0), "max_outbound", "0", "1 byte or more"),
        (new().max_inbound(0), "max_inbound", "0", "1 byte or more"),
        (new().read_size(0), "read_size", "0", "1 to 65536 bytes"),
        (new().read_size(65_537), "read_size", "65537", "1 to 65536 bytes"),
        (new().reads_per_turn(0), "reads_per_turn", "0", "1 or more"),
        (new().writes_per_turn(0), "writes_per_turn", "0", "1 or more"),
    ] {
        let server = ServerBootstrap::new(&group).channel_options(options.clone()).pipeline(lines);
        assert_refused(server.bind("127.0.0.1:0"), setting, value, allowed);
        let client = ClientBootstrap::new(&group).channel_options(options.clone()).pipeline(lines);
        assert_refused(done(client.connect("127.0.0.1:1")), setting, value, allowed);
        let pipeline = Pipeline::codec(Line::new()).handler(echo(&Log::new()));
        let embedded = EmbeddedChannel::builder(pipeline).channel_options(options).wheel_tick(SECOND).build();
        assert_refused(embedded, setting, value, allowed);
    }
    for options in [new().read_size(1), new().read_size(65_536), new().close_timeout(Duration::ZERO)] {
        let server = ServerBootstrap::new(&group).channel_options(options).pipeline(lines);
        server.bind("127.0.0.1:0").unwrap();
    }
    end(&group);
}

#[test]
fn c_67_socket_settings_out_of_range_are_refused_when_built() {
    let group = one_loop();
    for (options, setting, value, allowed) in [
        (TcpOptions::new().linger(SECOND / 2), "linger", "500ms", "whole seconds, 0 to 65,535"),
        (TcpOptions::new().keepalive(SECOND / 2), "keepalive", "500ms", "whole seconds, 1 to 32,767"),
        (TcpOptions::new().send_buffer(0), "send_buffer", "0", "1 to 2147483647 bytes"),
        (TcpOptions::new().receive_buffer(1 << 31), "receive_buffer", "2147483648", "1 to 2147483647 bytes"),
    ] {
        let server = ServerBootstrap::new(&group).tcp_options(options.clone()).pipeline(lines);
        assert_refused(server.bind("127.0.0.1:0"), setting, value, allowed);
        let client = ClientBootstrap::new(&group).tcp_options(options).pipeline(lines);
        assert_refused(done(client.connect("127.0.0.1:1")), setting, value, allowed);
    }
    for backlog in [0, 1 << 31] {
        let value = backlog.to_string();
        let server = ServerBootstrap::new(&group)
            .listener_options(ListenerOptions::new().backlog(backlog))
            .pipeline(lines);
        assert_refused(server.bind("127.0.0.1:0"), "backlog", &value, "1 to 2147483647 connections");
    }
    assert_refused(WaterMark::new(0, 1), "water_mark.low", "0", "1 byte or more");
    assert_refused(WaterMark::new(3, 2), "water_mark.low", "3", "at most water_mark.high");
    end(&group);
}

#[test]
fn ages_and_attempt_delays_out_of_range_are_refused_when_used() {
    let group = one_loop();
    for (age, setting, value, allowed) in [
        (MaxConnectionAge::new(SECOND / 2), "max_connection_age", "500ms", "1 s or more"),
        (MaxConnectionAge::new(SECOND).jitter(SECOND), "jitter", "1s", "less than the age"),
    ] {
        let server = ServerBootstrap::new(&group).max_connection_age(age).pipeline(lines);
        assert_refused(server.bind("127.0.0.1:0"), setting, value, allowed);
    }
    for (delay, value) in [(SECOND / 200, "5ms"), (3 * SECOND, "3s")] {
        let client = ClientBootstrap::new(&group).connection_attempt_delay(delay).pipeline(lines);
        let connecting = client.connect("127.0.0.1:1");
        assert_refused(done(connecting), "connection_attempt_delay", value, "10 ms to 2 s");
    }
    end(&group);
}

#[cfg(target_os = "linux")]
#[test]
fn a_black_hole_and_a_refusal_are_followed_by_the_address_that_accepts() {
    let group = one_loop();
    let (black, nobody) = (BlackHole::open(), Nobody::new());
    let server = ServerBootstrap::new(&group).pipeline(lines).bind("127.0.0.1:0").unwrap();
    let client = ClientBootstrap::new(&group).connection_attempt_delay(SECOND / 50).pipeline(lines);
    let addresses = [black.address, nobody.address, server.local_address()];
    for _ in 0..3 {
        let channel = done(client.connect(&addresses[..])).unwrap();
        assert_eq!(channel.peer_address(), Some(server.local_address()));
        channel.close();
        done(channel.closed()).unwrap();
    }
    let error = done(client.connect(&addresses[1..2])).unwrap_err();
    assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused));
    end(&group);
}

#[test]
fn c_67_loop_settings_out_of_range_are_refused_when_built() {
    let new = || EventLoopGroup::builder().threads(1);
    assert_refused(new().io_ratio(0).build(), "io_ratio", "0", "1 to 100 percent");
    assert_refused(new().io_ratio(101).build(), "io_ratio", "101", "1 to 100 percent");
    assert_refused(new().io_ratio(356).build(), "io_ratio", "356", "1 to 100 percent");
    assert_refused(new().max_pending_tasks(15).build(), "max_pending_tasks", "15", "16 tasks or more");
    assert_refused(new().wheel_slots(0).build(), "wheel_slots", "0", "1 to 65536");
    assert_refused(new().wheel_slots(65_537).build(), "wheel_slots", "65537", "1 to 65536");
    let Err(Error::Setting(refused)) = new().wheel_tick(Duration::ZERO).build() else { panic!("no tick") };
    assert_eq!(refused.setting(), "wheel_tick");
    let group = new().io_ratio(100).max_pending_tasks(16).wheel_slots(1).build().unwrap();
    let event_loop = group.next();
    let rate =
        event_loop.schedule_periodic(Periodic::fixed_rate(Duration::ZERO).initial_delay(SECOND), || Ok(()));
    assert_refused(rate, "period", "0", "more than zero");
    let rate = event_loop.schedule_periodic(
        Periodic::fixed_rate(Duration::ZERO).initial_delay(SECOND).missed_runs(MissedRuns::CatchUp),
        || Ok(()),
    );
    assert_refused(rate, "period", "0", "more than zero");
    let delay =
        event_loop.schedule_periodic(Periodic::fixed_delay(Duration::ZERO).initial_delay(SECOND), || Ok(()));
    assert_refused(delay, "delay", "0", "more than zero");
    let shutdown = done(group.shutdown(ShutdownOptions::new().quiet_period(2 * SECOND).timeout(SECOND)));
    assert_refused(shutdown, "timeout", "1s", "at least the quiet period");
    assert!(!event_loop.is_shutting_down(), "the loop keeps running");
    end(&group);
}

/// Sends 6 bytes at once, and returns the number of reads that the server makes of them.
fn reads_of(server: &Server, log: &Log) -> usize {
    let mut peer = connect(server.local_address());
    peer.write_all(b"abcdef").unwrap();
    let mut echoed = [0; 6];
    peer.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"abcdef");
    drop(peer);
    log.wait_for("drop");
    log.take().iter().filter(|e| e.starts_with("read ")).count()
}

#[test]
fn c_67_settings_are_copied_so_later_changes_have_no_effect() {
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let six = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().read_size(2).read_size(1))
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(echo(&handler_log)));
    let first = six.clone().bind("127.0.0.1:0").unwrap();
    let three = six.clone().channel_options(ChannelOptions::new().read_size(2));
    let second = three.bind("127.0.0.1:0").unwrap();
    let third = six.bind("127.0.0.1:0").unwrap();
    assert_eq!(reads_of(&first, &log), 6, "the later of two values applies");
    assert_eq!(reads_of(&second, &log), 3, "the changed copy");
    assert_eq!(reads_of(&third, &log), 6, "the original is unchanged");
    assert_eq!(reads_of(&first, &log), 6);
    end(&group);
}

#[test]
fn c_67_socket_options_are_copied_and_applied_before_the_pipeline_is_made() {
    let group = one_loop();
    // A linger time of zero is visible to the peer: a close is a reset.
    let reset = ServerBootstrap::new(&group)
        .tcp_options(TcpOptions::new().linger(Duration::ZERO))
        .pipeline(|peer: &Peer| -> Result<Pipeline<Bytes>> { Err(format!("{peer:?}").into()) });
    let changed = reset.clone().tcp_options(TcpOptions::new());
    let (reset, changed) = (reset.bind("127.0.0.1:0").unwrap(), changed.bind("127.0.0.1:0").unwrap());
    let mut buffer = [0];
    assert_eq!(
        connect(reset.local_address()).read(&mut buffer).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    assert_eq!(connect(changed.local_address()).read(&mut buffer).unwrap(), 0);
    assert_eq!(
        connect(reset.local_address()).read(&mut buffer).unwrap_err().kind(),
        ErrorKind::ConnectionReset
    );
    end(&group);
}

#[test]
fn c_67_a_client_bootstrap_makes_any_number_of_connections_with_its_own_settings() {
    let group = one_loop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    let client = ClientBootstrap::new(&group)
        .channel_options(ChannelOptions::new().read_size(1))
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(echo(&handler_log)));
    let changed = client.clone().channel_options(ChannelOptions::new());
    for (client, reads) in [(&client, 3), (&changed, 1), (&client, 3)] {
        let channel = done(client.connect(address)).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        assert_eq!(channel.peer_address(), Some(address));
        assert_eq!(channel.local_address(), Some(peer.peer_addr().unwrap()));
        ask(&mut peer, "abc", "abc");
        drop(peer);
        log.wait_for("drop");
        assert_eq!(log.take().iter().filter(|e| e.starts_with("read ")).count(), reads);
    }
    end(&group);
}

#[test]
fn c_67_the_factory_runs_on_the_childs_loop_and_connections_are_distributed_in_turn() {
    let group = EventLoopGroup::builder().threads(2).name("child").build().unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let name = || std::thread::current().name().unwrap_or_default().to_owned();
            let (made, log) = (name(), handler_log.clone());
            Pipeline::codec(Line::new()).handler(Recorder::with(&Log::new(), move |ctx, call| match call {
                Event::Active(_) => {
                    log.push(format!("{made} {}", name()));
                    Ok(())
                }
                Event::Read(message) => ctx.write(message.clone()),
                _ => Ok(()),
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peers = Vec::new();
    for n in 0..4 {
        let mut peer = connect(server.local_address());
        ask(&mut peer, "x\n", "x\n");
        assert_eq!(log.all().len(), n + 1);
        peers.push(peer);
    }
    let mut names = log.take();
    assert_eq!(names[..2], names[2..], "round robin");
    names.sort();
    assert_eq!(names, ["child-0 child-0", "child-0 child-0", "child-1 child-1", "child-1 child-1"]);
    assert_eq!(group.metrics().iter().map(|m| m.channels).collect::<Vec<_>>(), [2, 2]);
    end(&group);
}

#[test]
fn c_68_an_acceptor_group_accepts_and_another_group_serves_the_connections() {
    let acceptors = EventLoopGroup::builder().threads(1).name("acceptor").build().unwrap();
    let children = EventLoopGroup::builder().threads(1).name("child").build().unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&children)
        .acceptor_group(&acceptors)
        .pipeline(move |_| {
            handler_log.push(std::thread::current().name().unwrap_or_default());
            Pipeline::codec(Line::new()).handler(echo(&Log::new()))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peers: Vec<_> = (0..3).map(|_| connect(server.local_address())).collect();
    for peer in &mut peers {
        ask(peer, "x\n", "x\n");
    }
    assert_eq!(log.take(), ["child-0"; 3]);
    let (acceptor, child) = (acceptors.next().metrics(), children.next().metrics());
    assert_eq!((acceptor.accepted, acceptor.channels, acceptor.reads), (3, 0, 0));
    assert_eq!((child.accepted, child.channels), (0, 3));
    // Shutting the acceptors down stops listening but does not close the connections.
    end(&acceptors);
    done(server.closed()).unwrap();
    ask(&mut peers[0], "still\n", "still\n");
    end(&children);
}

#[test]
fn c_68_the_factory_receives_the_addresses_of_the_peer() {
    let group = one_loop();
    let seen: Arc<Mutex<Vec<Peer>>> = Arc::default();
    let told = seen.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |peer: &Peer| {
            told.lock().unwrap().push(peer.clone());
            lines(peer)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    ask(&mut peer, "x\n", "x\n");
    let seen = seen.lock().unwrap();
    assert_eq!(seen[0].address(), Some(peer.local_addr().unwrap()));
    assert_eq!(seen[0].local_address(), Some(server.local_address()));
    drop(seen);
    end(&group);
}

#[test]
fn c_69_a_failed_bind_returns_an_error() {
    let group = one_loop();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let failed = ServerBootstrap::new(&group).pipeline(lines).bind(taken.local_addr().unwrap()).unwrap_err();
    assert_eq!(failed.io_kind(), Some(ErrorKind::AddrInUse));
    assert!(failed.to_string().starts_with("listening failed"), "{failed}");
    let nowhere: &[SocketAddr] = &[];
    let failed = ServerBootstrap::new(&group).pipeline(lines).bind(nowhere).unwrap_err();
    assert_eq!(failed.io_kind(), Some(ErrorKind::NotFound));
    let failed = done(ClientBootstrap::new(&group).pipeline(lines).connect(nowhere)).unwrap_err();
    assert_eq!(failed.io_kind(), Some(ErrorKind::NotFound));
    end(&group);
    let failed = ServerBootstrap::new(&group).pipeline(lines).bind("127.0.0.1:0").unwrap_err();
    assert!(matches!(failed, Error::ShutDown), "{failed}");
    let failed = done(ClientBootstrap::new(&group).pipeline(lines).connect("127.0.0.1:1")).unwrap_err();
    assert!(matches!(failed, Error::ShutDown), "{failed}");
}

#[test]
fn c_69_the_first_address_that_can_be_bound_is_used() {
    let group = one_loop();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let addresses = [taken.local_addr().unwrap(), "127.0.0.1:0".parse().unwrap()];
    let server = ServerBootstrap::new(&group).pipeline(lines).bind(&addresses[..]).unwrap();
    assert_ne!(server.local_address(), addresses[0]);
    ask(&mut connect(server.local_address()), "x\n", "x\n");
    end(&group);
}

#[test]
fn a_closed_server_refuses_connections_and_keeps_existing_ones() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group).pipeline(lines).bind("127.0.0.1:0").unwrap();
    let mut peer = connect(server.local_address());
    ask(&mut peer, "before\n", "before\n");
    assert!(!server.closed().is_done());
    done(server.close()).unwrap();
    done(server.close()).unwrap();
    let refused = TcpStream::connect(server.local_address()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    ask(&mut peer, "after\n", "after\n");
    peer.write_all(b"bye\n").unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    let again = ServerBootstrap::new(&group).pipeline(lines).bind(server.local_address()).unwrap();
    ask(&mut connect(again.local_address()), "again\n", "again\n");
    end(&group);
}

#[test]
fn a_server_keeps_running_when_its_handle_is_dropped() {
    let group = one_loop();
    let options = ListenerOptions::new().backlog(5);
    let server =
        ServerBootstrap::new(&group).listener_options(options).pipeline(lines).bind("127.0.0.1:0").unwrap();
    let address = server.local_address();
    drop(server);
    let mut peer = TcpStream::connect(address).unwrap();
    ask(&mut peer, "x\n", "x\n");
    end(&group);
}

/// C-70: loops that bind and connect through each other's bootstraps do not block each other.
#[test]
fn c_70_loops_that_use_each_others_bootstraps_do_not_deadlock() {
    const ROUNDS: usize = 1024;
    /// Concurrent rounds per loop. Bounds the number of descriptors.
    const CHAINS: usize = 8;

    /// Runs on `here`: binds and connects on `there`, then starts the next round.
    fn round(here: EventLoop, there: EventLoopGroup, to: SocketAddr, left: usize, rounds: mpsc::Sender<()>) {
        if left == 0 {
            return;
        }
        let bound = ServerBootstrap::new(&there).pipeline(lines).bind("127.0.0.1:0").unwrap();
        let connecting = ClientBootstrap::new(&there).pipeline(lines).connect(to);
        connecting.on_complete(move |channel| {
            channel.unwrap().close_now();
            bound.close().detach();
            rounds.send(()).unwrap();
            let next = here.clone();
            here.execute(move || round(next, there, to, left - 1, rounds)).unwrap();
        });
    }

    let (one, other, servers) = (one_loop(), one_loop(), one_loop());
    let server = ServerBootstrap::new(&servers).pipeline(lines).bind("127.0.0.1:0").unwrap();
    let (sender, rounds) = mpsc::channel();
    for (here, there) in [(&one, &other), (&other, &one)] {
        for _ in 0..CHAINS {
            let (me, there, to, sender) =
                (here.next().clone(), there.clone(), server.local_address(), sender.clone());
            here.next().execute(move || round(me, there, to, ROUNDS / CHAINS, sender)).unwrap();
        }
    }
    for _ in 0..2 * ROUNDS {
        rounds.recv_timeout(wait::PATIENCE).expect("neither loop blocks the other");
    }
    end(&one);
    end(&other);
    end(&servers);
}

/// C-71: an address that cannot be resolved fails the connect without building a pipeline.
#[test]
fn c_71_a_connect_without_addresses_fails_without_a_pipeline() {
    let group = one_loop();
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| -> Pipeline<Bytes> { panic!("the factory must not be called") });
    let nowhere: &[std::net::SocketAddr] = &[];
    let failed = done(client.connect(nowhere)).unwrap_err();
    assert_eq!(failed.io_kind(), Some(std::io::ErrorKind::NotFound), "{failed}");
    assert_eq!(group.next().connections(), 0);
    end(&group);
}
