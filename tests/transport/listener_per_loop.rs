//! A listener for each loop (`SO_REUSEPORT`): each loop serves the connections that it accepts, and
//! all listeners form one server.

#![cfg(target_os = "linux")]

use crate::support::{
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    tcp::{ask, connect},
    wait::{PATIENCE, done, wait_until},
};
use bytes::Bytes;
use netwheel::{
    Error, Peer, Pipeline, codec::Line, metrics::LoopMetrics, prelude::*, shutdown::ShutdownOptions,
};
use std::{
    io::ErrorKind,
    net::{TcpListener, TcpStream},
    thread,
};

/// The probability that one of three loops gets none of this many connections is 1 in 10^17.
const CONNECTIONS: usize = 100;

fn lines(_: &Peer) -> Pipeline<Bytes> {
    let echo = Recorder::with(&Log::new(), |ctx, call| match call {
        Event::Read(message) if message == "where" => {
            let name = thread::current().name().unwrap_or_default().to_owned();
            ctx.write(name.into())
        }
        Event::Read(message) => ctx.write(message.clone()),
        _ => Ok(()),
    });
    Pipeline::codec(Line::new()).handler(echo)
}

fn three_loops() -> EventLoopGroup {
    EventLoopGroup::builder().threads(3).build().unwrap()
}

fn each(metrics: &[LoopMetrics], of: impl Fn(&LoopMetrics) -> u64) -> Vec<u64> {
    metrics.iter().map(of).collect()
}

#[test]
fn each_loop_serves_the_connections_it_accepts() {
    let group = three_loops();
    let server = ServerBootstrap::new(&group).listener_per_loop(true).pipeline(lines).bind("127.0.0.1:0");
    let server = server.unwrap();
    let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| connect(server.local_address())).collect();
    for peer in &mut peers {
        ask(peer, "x\n", "x\n");
    }
    let metrics = group.metrics();
    let (accepted, served) = (each(&metrics, |m| m.accepted), each(&metrics, |m| m.channels));
    assert_eq!(accepted, served, "no connection is passed to another loop");
    assert_eq!(accepted.iter().sum::<u64>(), CONNECTIONS as u64);
    assert!(accepted.iter().all(|accepted| *accepted > 0), "{accepted:?}");
    end(&group);
}

#[test]
fn the_loops_of_the_acceptor_group_listen_and_the_others_serve() {
    let (acceptors, group) = (three_loops(), one_loop());
    let bootstrap = ServerBootstrap::new(&group).acceptor_group(&acceptors).listener_per_loop(true);
    let server = bootstrap.pipeline(lines).bind("127.0.0.1:0").unwrap();
    let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| connect(server.local_address())).collect();
    for peer in &mut peers {
        ask(peer, "where\n", "netwheel-0\n");
    }
    assert!(each(&acceptors.metrics(), |m| m.accepted).iter().all(|accepted| *accepted > 0));
    assert_eq!(group.next().metrics().channels, CONNECTIONS as u64);
    end(&acceptors);
    done(server.closed()).unwrap();
    end(&group);
}

#[test]
fn all_listeners_are_closed_together_and_open_connections_stay() {
    let group = three_loops();
    let server = ServerBootstrap::new(&group).listener_per_loop(true).pipeline(lines).bind("127.0.0.1:0");
    let server = server.unwrap();
    let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| connect(server.local_address())).collect();
    for peer in &mut peers {
        ask(peer, "x\n", "x\n");
    }
    assert!(!server.closed().is_done());
    done(server.close()).unwrap();
    done(server.close()).unwrap();
    for _ in 0..20 {
        let refused = TcpStream::connect(server.local_address()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    }
    for peer in &mut peers {
        ask(peer, "still\n", "still\n");
    }
    end(&group);
}

#[test]
fn closed_completes_when_the_last_listener_has_ended() {
    let group = three_loops();
    let server = ServerBootstrap::new(&group).listener_per_loop(true).pipeline(lines).bind("127.0.0.1:0");
    let server = server.unwrap();
    let closed = server.closed();
    let loops = group.event_loops();
    for event_loop in &loops[..2] {
        done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Default::default()).timeout(PATIENCE)))
            .unwrap();
    }
    assert!(!closed.is_done(), "one of them still listens");
    ask(&mut connect(server.local_address()), "x\n", "x\n");
    done(loops[2].shutdown(ShutdownOptions::new().quiet_period(Default::default()).timeout(PATIENCE)))
        .unwrap();
    done(closed).unwrap();
}

#[test]
fn all_listeners_pause_and_resume_together() {
    let group = three_loops();
    let bootstrap = ServerBootstrap::new(&group).listener_per_loop(true).accepting(false);
    let server = bootstrap.pipeline(lines).bind("127.0.0.1:0").unwrap();
    let peers: Vec<_> = (0..CONNECTIONS).map(|_| connect(server.local_address())).collect();
    // A loop has handled all earlier requests when it has run a task.
    for event_loop in group.event_loops() {
        done(event_loop.schedule(Default::default(), || ()).unwrap().completion()).unwrap();
    }
    let accepted = || each(&group.metrics(), |m| m.accepted).iter().sum::<u64>();
    assert_eq!(accepted(), 0);
    server.set_accepting(true).unwrap();
    wait_until("all are accepted", || accepted() == CONNECTIONS as u64);
    drop(peers);
    end(&group);
}

#[test]
fn an_address_in_use_without_sharing_is_refused() {
    let group = three_loops();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let bootstrap = ServerBootstrap::new(&group).listener_per_loop(true).pipeline(lines);
    let failed = bootstrap.clone().bind(taken.local_addr().unwrap()).unwrap_err();
    assert_eq!(failed.io_kind(), Some(ErrorKind::AddrInUse));

    let refused = bootstrap.clone().adopt(taken).unwrap_err();
    assert!(matches!(refused, Error::Setting(_)), "{refused}");
    assert!(refused.to_string().starts_with("listener_per_loop is true; it must be "), "{refused}");

    end(&group);
    let failed = bootstrap.bind("127.0.0.1:0").unwrap_err();
    assert!(matches!(failed, Error::ShutDown), "{failed}");
}

#[test]
fn a_server_that_one_loop_refuses_does_not_listen_on_the_others() {
    let group = three_loops();
    done(
        group.event_loops()[1]
            .shutdown(ShutdownOptions::new().quiet_period(Default::default()).timeout(PATIENCE)),
    )
    .unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let failed = ServerBootstrap::new(&group).listener_per_loop(true).pipeline(lines).bind(free).unwrap_err();
    assert!(matches!(failed, Error::ShutDown), "{failed}");
    // The first loop has received its listener, and a request to close it.
    wait_until("all listeners are closed", || {
        TcpStream::connect(free).is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
    });
    end(&group);
}
