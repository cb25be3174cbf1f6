//! Several addresses of one target: which are tried, and the error if all fail.

#[cfg(target_os = "linux")]
use crate::support::nobody::Nobody;
use crate::support::{
    loops::{end, one_loop},
    wait::done,
};
use bytes::Bytes;
use netwheel::{codec::RawBytes, prelude::*};
#[cfg(target_os = "linux")]
use std::net::SocketAddr;
use std::{io::ErrorKind, net::TcpListener};

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
