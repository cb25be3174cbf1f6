//! Ends of listeners, of connects in progress and of nodes: their remains on the loop, and their
//! reports to programs and peers.

use crate::support::servers::Quiet;
use bytes::Bytes;
use netwheel::{
    codec::Line,
    datagram::{DatagramContext, DatagramHandler},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{Faults, Journal, NodeId, Simulation, sleep},
    time::default_clock,
};
use std::{io::ErrorKind, net::SocketAddr, time::Duration};

const SECOND: Duration = Duration::from_secs(1);

/// Stays open when its loop shuts down.
struct Stays;

impl Handler for Stays {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(())
    }
}

fn lines(_: &Peer) -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).handler(Stays)
}

#[test]
fn a_listener_that_is_closed_in_its_pause_after_an_error_leaves_no_timer() {
    let mut simulation = Simulation::with_faults(1, &Faults::none().rate("accept-fails", 1_000_000));
    let server = simulation.node("server", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let server = ServerBootstrap::new(&group).pipeline(lines).bind("10.0.0.1:7000")?;
        // The error of the first connection pauses the listener.
        sleep(SECOND);
        assert!(group.metrics()[0].accept_errors > 0);
        server.close().wait()?;
        // The loop sleeps. The checks look at its timers.
        sleep(SECOND);
        assert_eq!(group.metrics()[0].timers_pending, 0);
        Ok(())
    });
    simulation.node("client", "10.0.0.2", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let _ = ClientBootstrap::new(&group).pipeline(lines).connect("10.0.0.1:7000").wait();
        sleep(10 * SECOND);
        Ok(())
    });
    simulation.run_until_ended(server, 60 * SECOND).unwrap();
}

#[test]
fn a_listener_that_cannot_be_moved_to_a_new_poll_ends_its_server_with_an_error() {
    let mut simulation = Simulation::new(1);
    let server = simulation.node("server", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        // The loop polls now and then.
        let _ticks = group.next().schedule_periodic(SECOND, || Ok(()))?;
        let server = ServerBootstrap::new(&group).pipeline(lines).bind("10.0.0.1:7000")?;
        let error = server.closed().wait().unwrap_err();
        assert!(matches!(error, Error::Io { .. }), "{error:?}");
        Ok(())
    });
    simulation.run_for(2 * SECOND).unwrap();
    let all_fail = Faults::none().rate("poll-fails", 1_000_000).rate("registration-fails", 1_000_000);
    simulation.set_faults(&all_fail).run_for(2 * SECOND).unwrap();
    simulation.set_faults(&Faults::none());
    simulation.run_until_ended(server, 60 * SECOND).unwrap();
}

#[test]
fn a_connect_that_a_shutdown_ends_is_not_counted_as_a_pending_timer() {
    let mut simulation = Simulation::new(1);
    let far = simulation.node("far", "10.0.0.3", || Ok(()));
    // Outgoing channels, and connects in progress, end after the accepted channels.
    let server = simulation.node("server", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let _server = ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).handler(Quiet))
            .bind("10.0.0.1:7000")?;
        let client = ClientBootstrap::new(&group).pipeline(lines);
        let _outgoing = client.connect("10.0.0.2:7000").wait()?;
        let connecting = client.connect("10.0.0.3:7000");
        sleep(SECOND);
        assert_eq!((group.metrics()[0].channels, group.metrics()[0].timers_pending), (2, 1));
        let ended = group.shutdown(ShutdownOptions::new().timeout(10 * SECOND).quiet_period(Duration::ZERO));
        connecting.wait().unwrap_err();
        sleep(SECOND);
        assert_eq!((group.metrics()[0].channels, group.metrics()[0].timers_pending), (1, 0));
        ended.wait().map(drop)
    });
    simulation.node("peer", "10.0.0.2", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let server = ServerBootstrap::new(&group).pipeline(lines).bind("10.0.0.2:7000")?;
        let _channel = ClientBootstrap::new(&group).pipeline(lines).connect("10.0.0.1:7000").wait()?;
        server.closed().wait()
    });
    simulation.cut(server, far, 3600 * SECOND);
    simulation.run_until_ended(server, 60 * SECOND).unwrap();
}

/// A connection has one timer for output that is not acknowledged, however many writes there are.
#[test]
fn many_writes_on_a_cut_link_do_not_end_the_connection_earlier() {
    let mut simulation = Simulation::new(1);
    let server = simulation.node("server", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let server = ServerBootstrap::new(&group).pipeline(lines).bind("10.0.0.1:7000")?;
        server.closed().wait()
    });
    let client = simulation.node("client", "10.0.0.2", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let channel = ClientBootstrap::new(&group).pipeline(lines).connect("10.0.0.1:7000").wait()?;
        sleep(SECOND);
        for _ in 0..50 {
            channel.write("hello".into()).map_err(Error::from)?;
            sleep(SECOND / 10);
        }
        sleep(30 * SECOND);
        assert!(channel.is_open(), "TCP tries for minutes");
        sleep(600 * SECOND);
        assert!(!channel.is_open(), "and gives up");
        Ok(())
    });
    simulation.run_for(SECOND).unwrap();
    simulation.cut(client, server, 3600 * SECOND);
    simulation.run_until_ended(client, 3600 * SECOND).unwrap();
}

/// Records the errors of a datagram channel.
struct Errors(Journal<Option<ErrorKind>>);

impl DatagramHandler for Errors {
    fn read(&mut self, _: &mut DatagramContext<'_, Self>, _: Bytes, _: SocketAddr) -> Result {
        Ok(())
    }

    fn error(&mut self, _: &mut DatagramContext<'_, Self>, error: Error) -> Result {
        self.0.push(error.io_kind());
        Ok(())
    }
}

/// What a client has seen after the end of its server, one second after its start.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    /// The connection is open after output.
    is_open: bool,
    /// The error of another connect, and whether it came at once.
    connect: (Option<ErrorKind>, bool),
    datagram: Vec<Option<ErrorKind>>,
}

fn seen_after(end: impl Fn(&mut Simulation, NodeId)) -> Seen {
    let seen = Journal::new();
    let mut simulation = Simulation::new(1);
    let server = simulation.node("server", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let server = ServerBootstrap::new(&group).pipeline(lines).bind("10.0.0.1:7000")?;
        let errors = Journal::new();
        let _datagrams =
            DatagramBootstrap::new(&group).handler(move || Errors(errors.clone())).bind("10.0.0.1:7000")?;
        server.closed().wait()
    });
    let journal = seen.clone();
    let client = simulation.node("client", "10.0.0.2", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let client = ClientBootstrap::new(&group).pipeline(lines).connect_timeout(10 * SECOND);
        let channel = client.connect("10.0.0.1:7000").wait()?;
        let errors = Journal::new();
        let of_handler = errors.clone();
        let datagrams = DatagramBootstrap::new(&group)
            .connect(([10, 0, 0, 1], 7000).into())
            .handler(move || Errors(of_handler.clone()))
            .bind("0.0.0.0:0")?;
        datagrams.write("hello")?;
        sleep(2 * SECOND);
        assert!(errors.is_empty(), "the server has received it");
        datagrams.write("hello")?;
        let _ = channel.write("hello".into());
        let begin = default_clock().now();
        let error = client.connect("10.0.0.1:7000").wait().unwrap_err();
        let is_immediate = default_clock().now() - begin < SECOND / 100;
        sleep(SECOND);
        journal.push(Seen {
            is_open: channel.is_open(),
            connect: (error.io_kind(), is_immediate),
            datagram: errors.with(<[_]>::to_vec),
        });
        Ok(())
    });
    simulation.run_for(SECOND).unwrap();
    end(&mut simulation, server);
    simulation.run_until_ended(client, 60 * SECOND).unwrap();
    seen.with(|seen| seen[0].clone())
}

#[test]
fn the_kernel_of_a_killed_program_answers() {
    let seen = seen_after(|simulation, server| simulation.kill(server));
    let refused = Some(ErrorKind::ConnectionRefused);
    assert_eq!(seen, Seen { is_open: false, connect: (refused, true), datagram: vec![refused] });
}

#[test]
fn a_machine_without_power_does_not_answer() {
    let power_off = |simulation: &mut Simulation, server| simulation.power_off(server);
    let is_silent = Seen { is_open: true, connect: (None, false), datagram: Vec::new() };
    assert_eq!(seen_after(power_off), is_silent);
    let after_kill = seen_after(|simulation, server| {
        simulation.kill(server);
        simulation.power_off(server);
    });
    assert_eq!((after_kill.connect, after_kill.datagram), (is_silent.connect, is_silent.datagram));
}

/// Linux sends six requests after the first one, with pauses of 1 to 64 seconds.
#[test]
fn a_connect_without_an_answer_fails_after_127_seconds() {
    let mut simulation = Simulation::new(1);
    let far = simulation.node("far", "10.0.0.1", || Ok(()));
    let client = simulation.node("client", "10.0.0.2", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let begin = default_clock().now();
        let client = ClientBootstrap::new(&group).pipeline(lines).connect_timeout(1000 * SECOND);
        let error = client.connect("10.0.0.1:7000").wait().unwrap_err();
        assert_eq!(error.io_kind(), Some(ErrorKind::TimedOut), "{error:?}");
        let took = default_clock().now() - begin;
        assert!(took >= 127 * SECOND && took < 128 * SECOND, "{took:?}");
        Ok(())
    });
    simulation.cut(far, client, 3600 * SECOND);
    simulation.run_until_ended(client, 600 * SECOND).unwrap();
}
