//! Ends of listeners and of connects in progress: their remains on the loop, and their reports to
//! programs.

use crate::support::servers::Quiet;
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{Faults, Simulation, sleep},
};
use std::time::Duration;

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
