//! Connects, and what sockets say of themselves before and after.

use super::{
    backend::Side,
    bench::{Bench, Id},
    runner::{Script, check},
};
use crate::channel::driver::Ready;
use std::net::{IpAddr, SocketAddr};

/// Returns an address of version 4 as sockets of version 6 write it.
pub(super) fn mapped(address: SocketAddr) -> SocketAddr {
    let IpAddr::V4(ip) = address.ip() else { panic!("{address} has version 4") };
    SocketAddr::new(ip.to_ipv6_mapped().into(), address.port())
}

/// Returns an address at which nothing listens.
fn closed_port(bench: &mut Bench) -> SocketAddr {
    let listener = bench.listen();
    let address = bench.local(listener);
    bench.close(listener);
    address
}

fn refused(bench: &mut Bench) -> Id {
    let to = closed_port(bench);
    let client = bench.connect("client", to, None).expect("the connect begins");
    bench.wait_for(client, Ready::ERROR);
    client
}

#[test]
fn a_connect_makes_both_ends_writable() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for_connection(listener);
        let server = bench.accept(listener);
        bench.wait_for(client, Ready::WRITABLE);
        bench.wait_for(server, Ready::WRITABLE);
        for end in [client, server] {
            bench.note_seen(end);
            bench.take_error(end);
            bench.has_peer(end);
        }
    });
}

#[test]
fn a_connect_to_a_closed_port_is_refused_once() {
    check(|bench| {
        let client = refused(bench);
        bench.note_seen(client);
        bench.has_peer(client);
        bench.take_error(client);
        bench.take_error(client);
        bench.read(client, 10);
        bench.write(client, 10);
        bench.write(client, 10);
        bench.shut_down(client);
    });
}

#[test]
fn a_read_returns_the_error_of_a_refused_connect() {
    check(|bench| {
        let client = refused(bench);
        bench.read(client, 10);
        bench.read(client, 10);
        bench.take_error(client);
    });
}

#[test]
fn a_write_returns_the_error_of_a_refused_connect() {
    check(|bench| {
        let client = refused(bench);
        bench.write(client, 10);
        bench.write(client, 10);
        bench.take_error(client);
    });
}

#[test]
fn a_peek_returns_the_error_of_a_refused_connect() {
    check(|bench| {
        let client = refused(bench);
        bench.peek(client);
        bench.peek(client);
        bench.take_error(client);
    });
}

#[test]
fn a_socket_that_connects_can_be_used_at_once() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.read(client, 10);
        bench.peek(client);
        bench.write(client, 10);
        bench.has_peer(client);
        bench.take_error(client);
    });
}

#[test]
fn a_connection_is_closed_before_it_is_accepted() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for(client, Ready::WRITABLE);
        bench.write(client, 10);
        bench.close(client);
        let server = bench.accept(listener);
        bench.read_to_end(server);
        bench.has_peer(server);
    });
}

#[test]
fn a_connection_is_reset_before_it_is_accepted() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for(client, Ready::WRITABLE);
        bench.wait_for_connection(listener);
        bench.reset(client);
        bench.settle();
        if let Some((server, _)) = bench.try_accept(listener) {
            bench.wait_for(server, Ready::ERROR);
            bench.note_seen(server);
            bench.read(server, 10);
            bench.read(server, 10);
        }
    });
}

#[test]
fn a_listener_that_closes_resets_connections_that_wait() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for(client, Ready::WRITABLE);
        bench.wait_for_connection(listener);
        bench.close(listener);
        bench.wait_for(client, Ready::ERROR);
        bench.note_seen(client);
        bench.read(client, 10);
        bench.read(client, 10);
    });
}

#[test]
fn both_ends_agree_on_their_addresses() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for_connection(listener);
        let (server, peer) = bench.try_accept(listener).unwrap();
        let (of_client, of_server) = (bench.local(client), bench.local(server));
        bench.note(format!("peer {} server {}", peer == of_client, of_server == to));
        bench.note(format!("ip {} port {}", of_client.ip() == bench.backend.source(), of_client.port() != 0));
    });
}

#[test]
fn a_client_binds_its_local_address() {
    check(|bench| {
        let to = closed_port(bench);
        // The port was free a moment ago.
        let local = SocketAddr::new(bench.ip(Side::Client), to.port());
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, Some(local)).unwrap();
        bench.wait_for_connection(listener);
        let (_, peer) = bench.try_accept(listener).unwrap();
        bench.note(format!("{} {}", bench.local(client) == local, peer == local));
        // Another connection with the same four numbers cannot exist.
        bench.connect("second", to, Some(local));
    });
}

#[test]
fn a_client_cannot_bind_the_port_of_a_listener() {
    Script::new(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        bench.connect("client", to, Some(to));
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_client_cannot_bind_the_address_of_another_machine() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        bench.connect("client", to, Some("192.0.2.1:0".parse().unwrap()));
    });
}

#[test]
fn a_client_that_binds_the_wildcard_gets_an_address() {
    check(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let client = bench.connect("client", to, Some("0.0.0.0:0".parse().unwrap())).unwrap();
        let local = bench.local(client);
        bench.note(format!("ip {} port {}", local.ip() == bench.backend.source(), local.port() != 0));
    });
}

#[test]
fn a_connect_to_the_wildcard_reaches_the_own_machine() {
    Script::new(|bench| {
        let loopback = "127.0.0.1:0".parse().unwrap();
        let listener = bench.listen_at("listener", loopback, &Default::default(), 1)[0];
        let to = SocketAddr::new("0.0.0.0".parse().unwrap(), bench.local(listener).port());
        let Some(client) = bench.connect("client", to, None) else { return };
        bench.wait_for(client, Ready::WRITABLE);
        bench.note_seen(client);
        let server = bench.accept(listener);
        bench.note(format!("{} {}", bench.local(client).ip(), bench.local(server).ip()));
    })
    .on_one_machine()
    .check();
}

#[test]
fn addresses_of_version_6_work_like_those_of_version_4() {
    Script::new(|bench| {
        let address = "[::1]:0".parse().unwrap();
        let Some(listener) = bench.listen_at("listener", address, &Default::default(), 1).pop() else {
            return;
        };
        let (client, server) = bench.pair_at(listener);
        bench.note(format!("{} {}", bench.local(client).ip(), bench.local(server).ip()));
        bench.write(client, 10);
        bench.read_all(server, 10);
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_client_cannot_bind_an_address_of_another_version() {
    Script::new(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        let of_version_6 =
            bench.listen_at("version 6", "[::1]:0".parse().unwrap(), &Default::default(), 1)[0];
        let to_version_6 = bench.local(of_version_6);
        for (to, locals) in [
            (to, &["[::1]:0", "[::]:0"][..]),
            (mapped(to), &["127.0.0.1:0", "0.0.0.0:0", "[::1]:0"]),
            (to_version_6, &["127.0.0.1:0", "0.0.0.0:0", "[::ffff:127.0.0.1]:0"]),
        ] {
            for local in locals {
                bench.connect("client", to, Some(local.parse().unwrap()));
            }
        }
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_client_of_version_6_reaches_a_mapped_address() {
    Script::new(|bench| {
        let listener = bench.listen();
        let to = bench.local(listener);
        for local in [None, Some("[::]:0"), Some("[::ffff:127.0.0.1]:0")] {
            let local = local.map(|local| local.parse().unwrap());
            let Some(client) = bench.connect("client", mapped(to), local) else { continue };
            bench.wait_for_connection(listener);
            let (server, peer) = bench.try_accept(listener).unwrap();
            bench.forget_seen(listener);
            let source = bench.local(client);
            bench.note(format!("{} {}", source.ip(), mapped(peer) == source));
            bench.note(format!("{}", bench.local(server) == to));
            bench.write(client, 10);
            bench.read_all(server, 10);
        }
    })
    .on_one_machine()
    .check();
}
