//! How clients choose among the addresses of a server, in a simulated network: RFC 8305.

use bytes::Bytes;
use netwheel::{
    Error,
    codec::Line,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
    shutdown::ShutdownOptions,
    testing::simulation::{Journal, Network, NodeId, Simulation, sleep},
    time::default_clock,
};
use std::{net::SocketAddr, ops::ControlFlow, sync::Arc, time::Duration};

const SECOND: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The addresses of the server. Only the nodes that a test adds exist.
fn addresses() -> [SocketAddr; 3] {
    ["[fd00::1]:7000", "[fd00::2]:7000", "10.0.0.1:7000"].map(|address| address.parse().unwrap())
}

/// Adds a node that accepts connections, writes its number, and records its open connections.
fn serve(simulation: &mut Simulation, number: usize, open: &Journal<i32>) -> NodeId {
    let (address, open) = (addresses()[number], open.clone());
    simulation.node(&format!("server-{number}"), &address.ip().to_string(), move || {
        let (group, open) = (EventLoopGroup::builder().threads(1).build()?, open.clone());
        ServerBootstrap::new(&group)
            .pipeline(move |_peer| Pipeline::codec(Line::new()).handler(Greeter(number, open.clone())))
            .bind(address)?
            .closed()
            .wait()
    })
}

struct Greeter(usize, Journal<i32>);

impl Handler for Greeter {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.1.push(1);
        ctx.write(self.0.to_string().into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.1.push(-1);
        Ok(())
    }
}

/// Adds a node without a program: connects to it are refused.
fn refuse(simulation: &mut Simulation, number: usize) -> NodeId {
    simulation.node(&format!("server-{number}"), &addresses()[number].ip().to_string(), || Ok(()))
}

/// Returns a bootstrap whose handlers record the greeting.
fn client(
    group: &EventLoopGroup,
    greetings: &Journal<String>,
) -> ClientBootstrap<Arc<impl Fn(&Peer) -> Pipeline<Bytes> + Send + Sync + use<>>> {
    let greetings = greetings.clone();
    ClientBootstrap::new(group).pipeline(move |_peer| {
        let greetings = greetings.clone();
        Pipeline::codec(Line::new()).on_read(move |_, line: Bytes| {
            greetings.push(String::from_utf8_lossy(&line).into_owned());
            Ok(())
        })
    })
}

/// Adds a client node, whose program gets a group.
fn clients(
    simulation: &mut Simulation,
    main: impl Fn(&EventLoopGroup) -> Result + Send + Sync + 'static,
) -> NodeId {
    simulation.node("client", "10.0.0.9", move || main(&EventLoopGroup::builder().threads(1).build()?))
}

fn open_now(open: &Journal<i32>) -> i32 {
    open.with(|all| all.iter().sum())
}

/// Connects to all addresses, and checks the time that this takes.
fn connects_within(simulation: &mut Simulation, expected: std::ops::Range<Duration>) -> Journal<String> {
    let greetings = Journal::new();
    let heard = greetings.clone();
    let node = clients(simulation, move |group| {
        let begin = default_clock().now();
        let channel = client(group, &heard).connect(&addresses()[..]).wait()?;
        let took = default_clock().now() - begin;
        assert!(expected.contains(&took), "{took:?} is not in {expected:?}");
        sleep(5 * SECOND);
        channel.write("bye".into())?;
        channel.closed().wait()?;
        sleep(SECOND);
        assert_eq!(group.metrics()[0].timers_pending, 0);
        Ok(())
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    assert_eq!(simulation.open_sockets(node), 0, "no attempt is left");
    greetings
}

fn all(greetings: &Journal<String>) -> Vec<String> {
    greetings.with(<[_]>::to_vec)
}

#[test]
fn the_first_address_is_used_if_it_answers() {
    let mut simulation = Simulation::new(1);
    let open = Journal::new();
    for number in 0..3 {
        serve(&mut simulation, number, &open);
    }
    assert_eq!(all(&connects_within(&mut simulation, Duration::ZERO..100 * MS)), ["0"]);
    assert_eq!(open.with(<[_]>::to_vec), [1, -1], "no other attempt was made");
}

#[test]
fn a_refused_address_is_followed_by_the_next_one_at_once() {
    let mut simulation = Simulation::new(1);
    let open = Journal::new();
    refuse(&mut simulation, 0);
    refuse(&mut simulation, 1);
    serve(&mut simulation, 2, &open);
    assert_eq!(all(&connects_within(&mut simulation, Duration::ZERO..100 * MS)), ["2"]);
}

/// The client cannot reach the first addresses: its packets vanish.
fn with_a_black_hole(black: &[usize], expected: std::ops::Range<Duration>) -> Vec<String> {
    let mut simulation = Simulation::new(1);
    let open = Journal::new();
    let nodes: Vec<_> = (0..3).map(|number| serve(&mut simulation, number, &open)).collect();
    let greetings = Journal::new();
    let heard = greetings.clone();
    let node = clients(&mut simulation, move |group| {
        let begin = default_clock().now();
        let channel = client(group, &heard).connect(&addresses()[..]).wait()?;
        let took = default_clock().now() - begin;
        assert!(expected.contains(&took), "{took:?} is not in {expected:?}");
        sleep(SECOND);
        channel.close();
        channel.closed().wait().map(drop)
    });
    black.iter().for_each(|number| simulation.cut(node, nodes[*number], 3600 * SECOND));
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    all(&greetings)
}

#[test]
fn a_black_hole_costs_the_attempt_delay_and_the_other_family_comes_second() {
    assert_eq!(with_a_black_hole(&[0], 250 * MS..350 * MS), ["2"], "IPv4 follows IPv6");
    assert_eq!(with_a_black_hole(&[0, 2], 500 * MS..600 * MS), ["1"], "then IPv6 again");
}

#[test]
fn of_two_connections_that_are_established_late_one_is_kept() {
    let mut simulation = Simulation::new(1);
    // Longer than the delay between two attempts.
    simulation.network(Network::new().latency(400 * MS));
    let open = Journal::new();
    for number in 0..3 {
        serve(&mut simulation, number, &open);
    }
    assert_eq!(all(&connects_within(&mut simulation, 700 * MS..2 * SECOND)), ["0"]);
    assert_eq!(open_now(&open), 0, "the others were closed");
}

#[test]
fn the_slowest_network_delivers_nothing() {
    for network in [Network::new(), Network::new().rate(1), Network::new().jitter(Duration::ZERO)] {
        let mut simulation = Simulation::new(1);
        simulation.network(network.latency(Duration::MAX));
        let open = Journal::new();
        serve(&mut simulation, 0, &open);
        let node = clients(&mut simulation, |group| {
            sleep(MS);
            let error = client(group, &Journal::new()).connect(addresses()[0]).wait().unwrap_err();
            assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
            Ok(())
        });
        simulation.run_until_ended(node, 60 * SECOND).unwrap();
        assert_eq!(open.len(), 0);
    }
}

#[test]
fn the_error_of_the_last_address_is_reported_when_all_have_failed() {
    let mut simulation = Simulation::new(1);
    for number in 0..3 {
        refuse(&mut simulation, number);
    }
    let node = clients(&mut simulation, |group| {
        let connecting = client(group, &Journal::new()).connect(&addresses()[..]);
        let error = connecting.wait().unwrap_err();
        assert_eq!(error.io_kind(), Some(std::io::ErrorKind::ConnectionRefused), "{error:?}");
        Ok(())
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
}

#[test]
fn a_cancelled_connect_leaves_no_attempt() {
    let mut simulation = Simulation::new(1);
    let nodes: Vec<_> = (0..3).map(|number| refuse(&mut simulation, number)).collect();
    let node = clients(&mut simulation, |group| {
        let connecting = client(group, &Journal::new()).connect(&addresses()[..]);
        // Two attempts are in progress, and the third one waits.
        sleep(400 * MS);
        drop(connecting);
        sleep(SECOND);
        assert_eq!(group.event_loops()[0].connections(), 0);
        assert_eq!(group.metrics()[0].timers_pending, 0);
        Ok(())
    });
    nodes.iter().for_each(|server| simulation.cut(node, *server, 3600 * SECOND));
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    assert_eq!(simulation.open_sockets(node), 0);
}

#[test]
fn eight_connects_of_a_pool_at_once_find_the_address_that_answers() {
    let mut simulation = Simulation::new(1);
    let open = Journal::new();
    refuse(&mut simulation, 0);
    serve(&mut simulation, 1, &open);
    let node = clients(&mut simulation, |group| {
        let pool = client(group, &Journal::new()).pool().size(8).build(&addresses()[..2])?;
        for _ in 0..3 {
            let acquired: Vec<_> = (0..8).map(|_| pool.acquire()).collect();
            for channel in acquired {
                channel.wait()?.discard();
            }
        }
        Ok(())
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
}

#[test]
fn a_reconnecting_client_leaves_an_address_that_drops_its_connections() {
    let mut simulation = Simulation::new(1);
    let open = Journal::new();
    // Accepts, and closes at once.
    simulation.node("server-0", "fd00::1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).handler(Rejects))
            .bind(addresses()[0])?
            .closed()
            .wait()
    });
    serve(&mut simulation, 1, &open);
    let (greetings, losses) = (Journal::new(), Journal::new());
    let (heard, lost) = (greetings.clone(), losses.clone());
    let node = clients(&mut simulation, move |group| {
        let lost = lost.clone();
        let reconnecting = client(group, &heard)
            .reconnect(Backoff::new())
            .on_event(move |event| {
                if let ReconnectEvent::Lost { held, .. } = event {
                    lost.push(held);
                }
                ControlFlow::Continue(())
            })
            .connect(&addresses()[..2])?;
        sleep(60 * SECOND);
        reconnecting.close();
        reconnecting.closed().wait()
    });
    simulation.run_until_ended(node, 120 * SECOND).unwrap();
    assert_eq!(all(&greetings), ["1"]);
    assert_eq!(losses.len(), 1);
}

struct Rejects;

impl Handler for Rejects {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.close();
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

/// Closes on each line, which says how many seconds to stay away.
struct Obedient;

impl Handler for Obedient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.reconnect_after(20 * SECOND);
        ctx.write("bye".into())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn a_handler_makes_its_client_wait() {
    let mut simulation = Simulation::new(1);
    serve(&mut simulation, 2, &Journal::new());
    let delays = Journal::new();
    let told = delays.clone();
    let node = clients(&mut simulation, move |group| {
        let told = told.clone();
        let reconnecting = ClientBootstrap::new(group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).handler(Obedient))
            .reconnect(Backoff::new())
            .on_event(move |event| {
                if let ReconnectEvent::Lost { next: Some(next), .. } = event {
                    told.push(next);
                }
                ControlFlow::Continue(())
            })
            .connect("server-2:7000")?;
        sleep(100 * SECOND);
        reconnecting.close();
        reconnecting.closed().wait()
    });
    simulation.run_until_ended(node, 120 * SECOND).unwrap();
    let delays = delays.with(<[_]>::to_vec);
    assert!(delays.len() >= 3 && delays.iter().all(|delay| *delay >= 20 * SECOND), "{delays:?}");
}

/// Answers a shutdown with a line from the backend, whose first address does not answer.
struct AsksAtShutdown(EventLoopGroup);

impl Handler for AsksAtShutdown {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let connecting = client(&self.0, &Journal::new()).connect(&addresses()[..2]);
        ctx.on_complete(connecting, |_, ctx, backend| {
            backend?.close();
            ctx.write("connected".into())?;
            ctx.close();
            Ok(())
        });
        Ok(())
    }
}

#[test]
fn during_a_shutdown_a_black_hole_costs_the_attempt_delay_too() {
    let mut simulation = Simulation::new(1);
    let open = Journal::new();
    let nodes = [0, 1].map(|number| serve(&mut simulation, number, &open));
    let front: SocketAddr = "10.0.0.9:7000".parse().unwrap();
    let node = clients(&mut simulation, move |group| {
        let of_handlers = group.clone();
        let _server = ServerBootstrap::new(group)
            .pipeline(move |_peer| Pipeline::codec(Line::new()).handler(AsksAtShutdown(of_handlers.clone())))
            .bind(front)?;
        sleep(SECOND);
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(60 * SECOND);
        let report = group.shutdown(options).wait()?;
        assert!((250 * MS..350 * MS).contains(&report.took), "{report}");
        Ok(())
    });
    let replies = Journal::new();
    let heard = replies.clone();
    let user = simulation.node("user", "10.0.0.8", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        sleep(100 * MS);
        client(&group, &heard).connect(front).wait()?.closed().wait().map(drop)
    });
    simulation.cut(node, nodes[0], 3600 * SECOND);
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    simulation.run_until_ended(user, SECOND).unwrap();
    assert_eq!(all(&replies), ["connected"]);
}
