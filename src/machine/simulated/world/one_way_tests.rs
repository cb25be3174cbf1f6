//! TCP and UDP over links that are cut in one direction.

use super::{World, WorldStep, link::LinkSettings, ports::BindOptions};
use crate::machine::simulated::{faults::FaultSource, ids::SocketId};
use std::{io, net::SocketAddr, time::Duration};

const SECOND: u64 = 1_000_000_000;

/// The nodes of the two ends.
const SERVER: usize = 0;
const CLIENT: usize = 1;

/// The size of all buffers.
const BUFFER: usize = 1000;

fn address() -> SocketAddr {
    ([10, 0, 0, 1], 7000).into()
}

/// Returns two nodes with short buffers.
fn nodes() -> World {
    let mut world = World::new(1, FaultSource::default());
    for last in [1, 2] {
        world.add_node("node", [10, 0, 0, last].into());
    }
    world.set_link(LinkSettings {
        jitter: Duration::ZERO,
        send_buffer: BUFFER,
        receive_buffer: BUFFER,
        ..LinkSettings::default()
    });
    world
}

fn run(world: &mut World, time: u64) {
    let end = world.now() + time;
    while !matches!(world.next_step(end), WorldStep::Idle) {}
}

/// Returns both ends of a connection: the server and the client.
fn pair(world: &mut World) -> (SocketId, SocketId) {
    let listener = world.listen(SERVER, address(), 10, BindOptions::default()).unwrap();
    let client = world.connect(CLIENT, None, address()).unwrap();
    run(world, SECOND);
    (world.accept(listener).unwrap().0, client)
}

fn read(world: &mut World, id: SocketId) -> io::Result<usize> {
    world.read(id, &mut [0; 4 * BUFFER])
}

fn is_blocked<T: PartialEq + std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn lets_output_wait(world: &mut World, server: SocketId, client: SocketId) {
    world.cut_link(SERVER, CLIENT, 3600 * SECOND);
    assert_eq!(world.write(client, &[&[1; 400]]).unwrap(), 400);
    run(world, SECOND / 10);
    assert_eq!(read(world, server).unwrap(), 400, "output arrives");
    run(world, 2 * SECOND);
    assert_eq!(world.write(client, &[&[1; BUFFER]]).unwrap(), BUFFER - 400, "the buffer has no more room");
    assert!(is_blocked(world.write(client, &[&[1]])));
    run(world, SECOND);
    assert!(is_blocked(read(world, server)), "nothing new is sent while output is sent again");
}

#[test]
fn output_is_not_acknowledged_while_the_way_back_is_cut() {
    let mut world = nodes();
    let (server, client) = pair(&mut world);
    lets_output_wait(&mut world, server, client);
    world.cut_link(SERVER, CLIENT, 0);
    run(&mut world, 10 * SECOND);
    assert_eq!(read(&mut world, server).unwrap(), BUFFER - 400);
    run(&mut world, SECOND);
    assert_eq!(world.write(client, &[&[1; 4 * BUFFER]]).unwrap(), BUFFER, "the buffer is empty");
}

#[test]
fn output_of_the_peer_acknowledges_too() {
    let mut world = nodes();
    let (server, client) = pair(&mut world);
    lets_output_wait(&mut world, server, client);
    // The pauses of the timer have grown.
    run(&mut world, 10 * SECOND);
    world.cut_link(SERVER, CLIENT, 0);
    world.write(server, &[&[2; 10]]).unwrap();
    run(&mut world, SECOND / 10);
    assert_eq!(read(&mut world, client).unwrap(), 10);
    assert_eq!(read(&mut world, server).unwrap(), BUFFER - 400);
}

#[test]
fn a_connection_without_acknowledgements_fails() {
    let mut world = nodes();
    let (server, client) = pair(&mut world);
    lets_output_wait(&mut world, server, client);
    run(&mut world, 200 * SECOND);
    assert!(world.has_peer(client).is_ok(), "it tries for minutes");
    run(&mut world, 100 * SECOND);
    assert_eq!(world.take_error(client).unwrap().kind(), io::ErrorKind::TimedOut);
}

#[test]
fn the_end_of_a_stream_is_not_acknowledged_while_the_way_back_is_cut() {
    let mut world = nodes();
    let (server, client) = pair(&mut world);
    world.shut_down_write(server).unwrap();
    run(&mut world, SECOND);
    world.cut_link(SERVER, CLIENT, 3600 * SECOND);
    world.shut_down_write(client).unwrap();
    run(&mut world, SECOND);
    assert!(world.has_peer(server).is_err(), "the server has both ends");
    assert!(world.has_peer(client).is_ok(), "the client waits");
    world.cut_link(SERVER, CLIENT, 0);
    run(&mut world, 10 * SECOND);
    assert!(world.has_peer(client).is_err());
}

#[test]
fn a_lost_report_of_room_is_asked_for() {
    let mut world = nodes();
    let (server, client) = pair(&mut world);
    for _ in 0..2 {
        assert_eq!(world.write(client, &[&[1; BUFFER]]).unwrap(), BUFFER);
        run(&mut world, SECOND);
    }
    world.cut_link(SERVER, CLIENT, 60 * SECOND);
    assert_eq!(read(&mut world, server).unwrap(), BUFFER);
    run(&mut world, 30 * SECOND);
    assert!(is_blocked(read(&mut world, server)), "the client does not know the room");
    run(&mut world, 60 * SECOND);
    assert_eq!(read(&mut world, server).unwrap(), BUFFER);
}

#[test]
fn a_connection_that_waits_for_room_ends_with_its_peer() {
    let mut world = nodes();
    let (_, client) = pair(&mut world);
    for _ in 0..2 {
        world.write(client, &[&[1; BUFFER]]).unwrap();
        run(&mut world, SECOND);
    }
    world.kill_node(SERVER, true);
    world.restart_node(SERVER);
    run(&mut world, 10 * SECOND);
    assert_eq!(world.take_error(client).unwrap().kind(), io::ErrorKind::ConnectionReset);
}

#[test]
fn a_closed_port_is_not_reported_while_the_way_back_is_cut() {
    for is_cut in [false, true] {
        let mut world = nodes();
        let local = ([10, 0, 0, 2], 7000).into();
        let socket = world.bind_datagrams(CLIENT, local, BindOptions::default()).unwrap();
        world.connect_datagrams(socket, Some(address())).unwrap();
        world.cut_link(SERVER, CLIENT, if is_cut { 3600 * SECOND } else { 0 });
        world.send_datagram(socket, b"1", None).unwrap();
        run(&mut world, SECOND);
        let error = world.receive_datagram(socket, &mut [0]).unwrap_err().kind();
        let expected = if is_cut { io::ErrorKind::WouldBlock } else { io::ErrorKind::ConnectionRefused };
        assert_eq!(error, expected);
    }
}
