//! Several addresses of one target: which are tried, and the error if all fail.

use crate::support::{
    loops::{end, one_loop},
    wait::done,
};
#[cfg(target_os = "linux")]
use crate::support::{
    nobody::{BlackHole, Nobody},
    wait::wait_until,
};
use bytes::Bytes;
use netwheel::{codec::RawBytes, prelude::*};
use std::{io::ErrorKind, net::TcpListener};
#[cfg(target_os = "linux")]
use std::{net::SocketAddr, time::Duration};

fn silent(_: &Peer) -> Pipeline<Bytes> {
    Pipeline::codec(RawBytes).on_read(|_, _| Ok(()))
}

#[test]
fn a_loop_that_has_ended_does_not_connect_to_the_next_address() {
    let group = one_loop();
    let listeners = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let addresses = listeners.each_ref().map(|listener| listener.local_addr().unwrap());
    end(&group);
    let error = done(ClientBootstrap::new(&group).pipeline(silent).connect(&addresses[..])).unwrap_err();
    assert!(matches!(error, Error::ShutDown), "{error}");
    listeners[1].set_nonblocking(true).unwrap();
    assert_eq!(listeners[1].accept().unwrap_err().kind(), ErrorKind::WouldBlock);
}

#[cfg(target_os = "linux")]
#[test]
fn the_error_of_several_addresses_is_that_of_a_peer() {
    let group = one_loop();
    let nobody = Nobody::new();
    let client = ClientBootstrap::new(&group).pipeline(silent);
    // Nothing can be connected to a multicast address.
    let multicast: SocketAddr = "224.0.0.1:1".parse().unwrap();
    let error = done(client.connect(multicast)).unwrap_err();
    assert_eq!(error.io_kind(), Some(ErrorKind::NetworkUnreachable));
    for addresses in [[nobody.address, multicast], [multicast, nobody.address]] {
        let error = done(client.connect(&addresses[..])).unwrap_err();
        assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused), "{addresses:?}: {error}");
    }
    end(&group);
}

/// The attempts of a connect take a place of the loop each. A place of its own must not cost it the
/// remaining addresses.
#[cfg(target_os = "linux")]
#[test]
fn a_loop_with_one_place_left_tries_all_addresses() {
    let servers = one_loop();
    let server = ServerBootstrap::new(&servers).pipeline(silent).bind("127.0.0.1:0").unwrap();
    let group = EventLoopGroup::builder().threads(1).max_connections(1).build().unwrap();
    let holes = [BlackHole::open(), BlackHole::open()];
    let client = ClientBootstrap::new(&group)
        .connection_attempt_delay(Duration::from_millis(10))
        .connect_timeout(Duration::from_millis(200))
        .pipeline(silent);
    for holes in [&holes[..1], &holes[..]] {
        let addresses: Vec<_> =
            holes.iter().map(|hole| hole.address).chain([server.local_address()]).collect();
        let channel = done(client.connect(&addresses[..])).unwrap();
        assert_eq!(channel.peer_address(), Some(server.local_address()));
        channel.close();
        done(channel.closed()).unwrap();
        wait_until("the place is free", || group.event_loops()[0].connections() == 0);
    }
    end(&group);
    end(&servers);
}

#[cfg(target_os = "linux")]
#[test]
fn only_addresses_of_the_family_of_the_local_address_are_tried() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group).pipeline(silent).bind("127.0.0.1:0").unwrap();
    let nobody = Nobody::new();
    let local: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let client = ClientBootstrap::new(&group).local_address(local).pipeline(silent);
    let v6: SocketAddr = "[::1]:1".parse().unwrap();
    for addresses in [[v6, server.local_address()], [server.local_address(), v6]] {
        assert_eq!(
            done(client.connect(&addresses[..])).unwrap().peer_address(),
            Some(server.local_address())
        );
    }
    for addresses in [[v6, nobody.address], [nobody.address, v6]] {
        let error = done(client.connect(&addresses[..])).unwrap_err();
        assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused), "{addresses:?}: {error}");
    }
    end(&group);
}
