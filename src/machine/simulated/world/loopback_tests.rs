//! Sockets that are bound to loopback addresses.

use super::{World, WorldStep, ports::BindOptions};
use crate::machine::simulated::faults::FaultSource;
use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
};

const SECOND: u64 = 1_000_000_000;

const OWN: usize = 0;
const OTHER: usize = 1;

/// Returns two nodes, their addresses, and the loopback address of the same version.
fn worlds() -> [(World, [IpAddr; 2], IpAddr); 2] {
    let v4 = [1, 2].map(|last| IpAddr::from([10, 0, 0, last]));
    let v6 = [1, 2].map(|last| IpAddr::from([0xfd00, 0, 0, 0, 0, 0, 0, last]));
    [(v4, Ipv4Addr::LOCALHOST.into()), (v6, Ipv6Addr::LOCALHOST.into())].map(|(addresses, loopback)| {
        let mut world = World::new(1, FaultSource::default());
        for (name, address) in ["own", "other"].into_iter().zip(addresses) {
            world.add_node(name, address);
        }
        (world, addresses, loopback)
    })
}

fn is_invalid<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    result.is_err_and(|error| error.kind() == io::ErrorKind::InvalidInput)
}

#[test]
fn a_connection_from_a_loopback_address_reaches_the_own_node_only() {
    for (mut world, addresses, loopback) in worlds() {
        let [own, other] = addresses.map(|address| SocketAddr::new(address, 7000));
        for (node, address) in [(OWN, own), (OTHER, other)] {
            world.listen(node, address, 10, BindOptions::default()).unwrap();
        }
        let local = Some(SocketAddr::new(loopback, 0));
        assert!(is_invalid(world.connect(OWN, local, other)));
        world.connect(OWN, local, own).unwrap();
    }
}

#[test]
fn a_datagram_from_a_loopback_address_reaches_the_own_node_only() {
    for (mut world, addresses, loopback) in worlds() {
        let [own, other] = addresses.map(|address| SocketAddr::new(address, 7000));
        let receiver = world.bind_datagrams(OWN, own, BindOptions::default()).unwrap();
        let sender =
            world.bind_datagrams(OWN, SocketAddr::new(loopback, 7001), BindOptions::default()).unwrap();
        assert!(is_invalid(world.send_datagram(sender, b"1", Some(other))));
        assert!(is_invalid(world.connect_datagrams(sender, Some(other))));
        world.connect_datagrams(sender, Some(own)).unwrap();
        world.send_datagram(sender, b"1", None).unwrap();
        while !matches!(world.next_step(SECOND), WorldStep::Idle) {}
        let (_, from) = world.receive_datagram(receiver, &mut [0]).unwrap();
        assert_eq!(from, SocketAddr::new(loopback, 7001));
    }
}
