//! UDP: whole datagrams, peers, and errors that come back.

use super::{
    backend::Side,
    bench::{Bench, Id},
    runner::{Script, check},
};
use crate::{channel::driver::Ready, transport::UdpOptions};
use std::net::SocketAddr;

/// Returns two sockets and their addresses.
fn two(bench: &mut Bench) -> ((Id, SocketAddr), (Id, SocketAddr)) {
    let (a, b) = (bench.bind("a", Side::Client), bench.bind("b", Side::Server));
    ((a, bench.local(a)), (b, bench.local(b)))
}

/// Returns an address to which no socket is bound.
fn unbound(bench: &mut Bench) -> SocketAddr {
    let socket = bench.bind("unbound", Side::Server);
    let address = bench.local(socket);
    bench.close(socket);
    address
}

#[test]
fn a_new_socket_is_writable_and_has_no_input() {
    check(|bench| {
        let address = SocketAddr::new(bench.ip(Side::Client), 0);
        let a = bench.bind_at("a", Side::Client, address, &UdpOptions::new()).unwrap();
        bench.wait_for(a, Ready::WRITABLE);
        bench.note_seen(a);
        bench.receive(a, 10);
        bench.send(a, b"x", None);
    });
}

#[test]
fn datagrams_arrive_whole_and_in_order() {
    Script::new(|bench| {
        let ((a, from), (b, to)) = two(bench);
        for bytes in [&b"1"[..], b"22", b"333"] {
            bench.send(a, bytes, Some(to));
            bench.wait_for(b, Ready::READABLE);
            bench.settle();
        }
        bench.note_seen(b);
        for _ in 0..4 {
            let sender = bench.receive(b, 100);
            bench.note(format!("{:?}", sender.map(|sender| sender == from)));
        }
    })
    .check();
}

#[test]
fn a_datagram_that_does_not_fit_is_truncated() {
    check(|bench| {
        let ((a, _), (b, to)) = two(bench);
        bench.send(a, b"0123456789", Some(to));
        bench.wait_for(b, Ready::READABLE);
        bench.receive(b, 4);
        bench.receive(b, 4);
        bench.send(a, b"5", Some(to));
        bench.settle();
        bench.receive(b, 0);
        bench.receive(b, 4);
    });
}

#[test]
fn an_empty_datagram_is_a_datagram() {
    check(|bench| {
        let ((a, _), (b, to)) = two(bench);
        bench.send(a, b"", Some(to));
        bench.wait_for(b, Ready::READABLE);
        bench.note_seen(b);
        bench.receive(b, 10);
        bench.receive(b, 10);
    });
}

#[test]
fn the_size_of_a_datagram_has_a_limit() {
    check(|bench| {
        let ((a, _), (b, to)) = two(bench);
        bench.send(a, &[7; 65_508], Some(to));
        bench.send(a, &[7; 65_507], Some(to));
        bench.wait_for(b, Ready::READABLE);
        bench.receive(b, 70_000);
    });
}

#[test]
fn a_datagram_without_a_receiver_is_lost_in_silence() {
    check(|bench| {
        let to = unbound(bench);
        let a = bench.bind("a", Side::Client);
        bench.send(a, b"1", Some(to));
        bench.settle();
        bench.note_seen(a);
        bench.send(a, b"2", Some(to));
        bench.receive(a, 10);
    });
}

#[test]
fn a_connected_socket_receives_that_its_peer_is_gone() {
    check(|bench| {
        let to = unbound(bench);
        let a = bench.bind("a", Side::Client);
        bench.connect_datagrams(a, to);
        bench.send(a, b"1", None);
        bench.wait_for(a, Ready::ERROR);
        bench.note_seen(a);
        bench.receive(a, 10);
        bench.receive(a, 10);
    });
}

#[test]
fn a_send_returns_that_the_peer_is_gone() {
    check(|bench| {
        let to = unbound(bench);
        let a = bench.bind("a", Side::Client);
        bench.connect_datagrams(a, to);
        bench.send(a, b"1", None);
        bench.wait_for(a, Ready::ERROR);
        bench.send(a, b"2", None);
        bench.settle();
        bench.forget_seen(a);
        bench.send(a, b"3", None);
        bench.wait_for(a, Ready::ERROR);
        bench.note_seen(a);
    });
}

#[test]
fn input_waits_behind_an_error() {
    check(|bench| {
        let ((a, from), (b, to)) = two(bench);
        bench.connect_datagrams(a, to);
        bench.send(b, b"input", Some(from));
        bench.wait_for(a, Ready::READABLE);
        bench.close(b);
        bench.send(a, b"1", None);
        bench.wait_for(a, Ready::ERROR);
        bench.note_seen(a);
        bench.receive(a, 10);
        bench.receive(a, 10);
    });
}

#[test]
fn a_connected_socket_receives_from_its_peer_only() {
    check(|bench| {
        let ((a, from), (b, to)) = two(bench);
        let other = bench.bind("other", Side::Server);
        bench.send(other, b"before", Some(from));
        bench.settle();
        bench.connect_datagrams(a, to);
        bench.send(other, b"other", Some(from));
        bench.send(b, b"peer", Some(from));
        bench.settle();
        for _ in 0..3 {
            bench.receive(a, 10);
        }
    });
}

#[test]
fn a_connected_socket_can_send_elsewhere() {
    check(|bench| {
        let ((a, _), (_, to)) = two(bench);
        let other = bench.bind("other", Side::Server);
        let elsewhere = bench.local(other);
        bench.connect_datagrams(a, to);
        bench.send(a, b"other", Some(elsewhere));
        bench.wait_for(other, Ready::READABLE);
        bench.receive(other, 10);
    });
}

#[test]
fn a_peer_can_be_removed() {
    check(|bench| {
        let ((a, from), (b, to)) = two(bench);
        bench.connect_datagrams(a, to);
        bench.send(a, b"1", None);
        bench.disconnect(a);
        bench.send(a, b"2", None);
        bench.note(format!("{}", bench.local(a) == from));
        bench.send(b, b"3", Some(from));
        bench.wait_for(a, Ready::READABLE);
        bench.receive(a, 10);
    });
}

#[test]
fn a_full_receive_buffer_drops_datagrams() {
    check(|bench| {
        let ((a, _), (b, to)) = two(bench);
        let mut sent = 0;
        for _ in 0..400 {
            sent += usize::from(bench.datagrams(a).send(&[7; 1_000], Some(to)).is_ok());
        }
        bench.settle();
        let mut received = 0;
        while bench.datagrams(b).receive(&mut [0; 1_000]).is_ok() {
            received += 1;
        }
        bench.note(format!("{sent} sent, lost some: {}", received < sent));
        bench.send(a, b"1", Some(to));
        bench.settle();
        bench.receive(b, 10);
    });
}

#[test]
fn a_datagram_to_port_zero_is_refused() {
    check(|bench| {
        let ((a, _), (_, to)) = two(bench);
        bench.send(a, b"1", Some(SocketAddr::new(to.ip(), 0)));
    });
}

#[test]
fn each_datagram_is_an_edge_although_nothing_is_read() {
    check(|bench| {
        let ((a, _), (b, to)) = two(bench);
        for _ in 0..3 {
            bench.send(a, b"1", Some(to));
            bench.wait_for(b, Ready::READABLE);
            bench.settle();
            bench.note_seen(b);
            bench.note_seen(a);
        }
        bench.receive(b, 10);
        bench.settle();
        bench.note_seen(b);
    });
}
