//! Addresses and ports of UDP sockets, and of both protocols.

use super::{
    backend::Side,
    runner::{Script, check},
};
use crate::{
    channel::driver::Ready,
    transport::{ListenerOptions, UdpOptions},
};
use std::net::SocketAddr;

#[test]
fn a_wildcard_socket_sends_from_an_address_of_the_machine() {
    check(|bench| {
        let b = bench.bind("b", Side::Server);
        let to = bench.local(b);
        let wildcard = "0.0.0.0:0".parse().unwrap();
        let a = bench.bind_at("a", Side::Client, wildcard, &UdpOptions::new()).unwrap();
        bench.note(format!("{}", bench.local(a).ip()));
        bench.send(a, b"1", Some(to));
        bench.wait_for(b, Ready::READABLE);
        let sender = bench.receive(b, 10).unwrap();
        bench.note(format!(
            "{} {}",
            sender.ip() == bench.backend.source(),
            sender.port() == bench.local(a).port()
        ));
        bench.connect_datagrams(a, to);
        bench.note(format!("{}", bench.local(a).ip() == bench.backend.source()));
        bench.disconnect(a);
        bench.note(format!("{}", bench.local(a).ip()));
    });
}

/// The local address suits the peer: there is no route from ::1 to 127.0.0.1.
#[test]
fn another_peer_gets_a_local_address_of_its_own() {
    Script::new(|bench| {
        let a = bench.bind_at("a", Side::Client, "[::]:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        for (name, peer) in [("b", "[::1]:0"), ("c", "127.0.0.1:0"), ("d", "[::1]:0")] {
            let b = bench.bind_at(name, Side::Server, peer.parse().unwrap(), &UdpOptions::new()).unwrap();
            let to = bench.local(b);
            bench.connect_datagrams(a, to);
            bench.note(format!("{}", bench.local(a).ip()));
            bench.send(a, b"1", None);
            bench.wait_for(b, Ready::READABLE);
            let sender = bench.receive(b, 10).unwrap();
            bench.note(format!("{} {}", sender.ip(), sender.port() == bench.local(a).port()));
        }
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_socket_of_version_4_has_no_peer_of_version_6() {
    Script::new(|bench| {
        let b = bench.bind_at("b", Side::Server, "127.0.0.1:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        let a = bench.bind_at("a", Side::Client, "0.0.0.0:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        let to = bench.local(b);
        bench.connect_datagrams(a, to);
        for refused in ["[::1]:9", "[::ffff:127.0.0.1]:9"] {
            bench.connect_datagrams(a, refused.parse().unwrap());
            bench.send(a, b"1", Some(refused.parse().unwrap()));
        }
        bench.note(format!("{}", bench.local(a).ip()));
        bench.send(a, b"1", None);
        bench.wait_for(b, Ready::READABLE);
        bench.receive(b, 10);
    })
    .on_one_machine()
    .check();
}

#[test]
fn an_address_is_bound_once() {
    check(|bench| {
        let a = bench.bind("a", Side::Client);
        let address = bench.local(a);
        bench.bind_at("second", Side::Client, address, &UdpOptions::new());
        let shared = UdpOptions::new().reuse_address(true);
        bench.bind_at("second, shared", Side::Client, address, &shared);
        bench.close(a);
        bench.bind_at("third", Side::Client, address, &UdpOptions::new());
    });
}

#[test]
fn the_last_socket_of_a_shared_address_receives() {
    check(|bench| {
        let shared = UdpOptions::new().reuse_address(true);
        let address = SocketAddr::new(bench.ip(Side::Server), 0);
        let first = bench.bind_at("first", Side::Server, address, &shared).unwrap();
        let to = bench.local(first);
        let Some(second) = bench.bind_at("second", Side::Server, to, &shared) else { return };
        let a = bench.bind("a", Side::Client);
        bench.send(a, b"1", Some(to));
        bench.settle();
        bench.receive(first, 10);
        bench.receive(second, 10);
    });
}

#[test]
fn a_specific_address_precedes_the_wildcard() {
    Script::new(|bench| {
        let shared = UdpOptions::new().reuse_address(true);
        let address = SocketAddr::new(bench.ip(Side::Server), 0);
        let specific = bench.bind_at("specific", Side::Server, address, &shared).unwrap();
        let to = bench.local(specific);
        let wildcard = SocketAddr::new("0.0.0.0".parse().unwrap(), to.port());
        let Some(wildcard) = bench.bind_at("wildcard", Side::Server, wildcard, &shared) else { return };
        let a = bench.bind("a", Side::Client);
        bench.send(a, b"1", Some(to));
        bench.settle();
        bench.receive(wildcard, 10);
        bench.receive(specific, 10);
    })
    .with_foreign_ports()
    .check();
}

#[test]
fn sockets_of_a_shared_port_divide_the_senders() {
    check(|bench| {
        let shared = UdpOptions::new().reuse_port(true);
        let address = SocketAddr::new(bench.ip(Side::Server), 0);
        let first = bench.bind_at("first", Side::Server, address, &shared).unwrap();
        let to = bench.local(first);
        let Some(second) = bench.bind_at("second", Side::Server, to, &shared) else { return };
        let mut received = 0;
        for name in ["a", "b", "c"] {
            let sender = bench.bind(name, Side::Client);
            bench.send(sender, b"1", Some(to));
            bench.settle();
            for id in [first, second] {
                received += usize::from(bench.datagrams(id).receive(&mut [0]).is_ok());
            }
        }
        bench.note(format!("{received} received"));
    });
}

#[test]
fn a_wildcard_of_version_6_receives_from_version_4() {
    Script::new(|bench| {
        let wildcard = "[::]:0".parse().unwrap();
        let b = bench.bind_at("b", Side::Server, wildcard, &UdpOptions::new()).unwrap();
        let a = bench.bind("a", Side::Client);
        let to = SocketAddr::new(bench.ip(Side::Server), bench.local(b).port());
        bench.send(a, b"1", Some(to));
        bench.wait_for(b, Ready::READABLE);
        let sender = bench.receive(b, 10).unwrap();
        let ip = sender.ip().to_canonical() == bench.local(a).ip();
        bench.note(format!("{} {ip} {}", sender.is_ipv6(), sender.port() == bench.local(a).port()));
        bench.send(b, b"2", Some(sender));
        bench.settle();
        bench.receive(a, 10);
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_wildcard_of_version_4_receives_nothing_of_version_6() {
    Script::new(|bench| {
        let b = bench.bind_at("b", Side::Server, "0.0.0.0:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        let a = bench.bind_at("a", Side::Client, "[::1]:0".parse().unwrap(), &UdpOptions::new()).unwrap();
        let to = SocketAddr::new("::1".parse().unwrap(), bench.local(b).port());
        bench.send(a, b"1", Some(to));
        bench.settle();
        bench.receive(b, 10);
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_socket_of_version_6_has_no_route_to_version_4() {
    Script::new(|bench| {
        let b = bench.bind("b", Side::Server);
        let to = bench.local(b);
        let mapped = super::connecting::mapped(to);
        for local in ["[::1]:0", "[::]:0", "0.0.0.0:0"] {
            let a = bench.bind_at("a", Side::Client, local.parse().unwrap(), &UdpOptions::new()).unwrap();
            bench.send(a, b"1", Some(to));
            bench.send(a, b"2", Some(mapped));
            bench.connect_datagrams(a, mapped);
            bench.send(a, b"3", None);
            bench.settle();
        }
        for _ in 0..6 {
            bench.receive(b, 10);
        }
    })
    .on_one_machine()
    .check();
}

#[test]
fn tcp_and_udp_have_ports_of_their_own() {
    check(|bench| {
        let listener = bench.listen();
        let address = bench.local(listener);
        let datagrams = bench.bind_at("datagrams", Side::Server, address, &UdpOptions::new());
        bench.note(format!("{}", datagrams.is_some()));
    });
}

#[test]
fn a_port_is_free_when_its_socket_is_closed() {
    check(|bench| {
        let datagrams = bench.bind("datagrams", Side::Server);
        let address = bench.local(datagrams);
        bench.close(datagrams);
        bench.listen_at("listener", address, &ListenerOptions::new(), 1);
        bench.bind_at("again", Side::Server, address, &UdpOptions::new());
    });
}
