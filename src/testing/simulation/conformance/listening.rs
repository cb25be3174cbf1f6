//! Listeners: addresses, shared ports, and the connections that wait.

use super::{
    backend::Side,
    bench::{Bench, Id},
    runner::{Script, check},
};
use crate::{channel::driver::Ready, transport::ListenerOptions};
use std::net::SocketAddr;

fn at(ip: &str, port: u16) -> SocketAddr {
    SocketAddr::new(ip.parse().unwrap(), port)
}

/// Connects and waits until the listener has the connection.
fn one_waits(bench: &mut Bench, listener: Id) -> Id {
    let to = bench.local(listener);
    let client = bench.connect("client", to, None).expect("the connect begins");
    bench.wait_for(client, Ready::WRITABLE);
    bench.wait_for_connection(listener);
    bench.settle();
    client
}

#[test]
fn without_a_connection_accept_would_block() {
    check(|bench| {
        let listener = bench.listen();
        bench.try_accept(listener);
        bench.settle();
        bench.note_seen(listener);
    });
}

#[test]
fn each_connection_is_accepted_once_and_in_order() {
    check(|bench| {
        let listener = bench.listen();
        let first = one_waits(bench, listener);
        let second = one_waits(bench, listener);
        bench.note_seen(listener);
        let (_, peer) = bench.try_accept(listener).unwrap();
        bench.note(format!("first {}", peer == bench.local(first)));
        bench.settle();
        bench.note_seen(listener);
        let (_, peer) = bench.try_accept(listener).unwrap();
        bench.note(format!("second {}", peer == bench.local(second)));
        bench.try_accept(listener);
    });
}

#[test]
fn each_connection_is_an_edge_of_the_listener() {
    check(|bench| {
        let listener = bench.listen();
        for _ in 0..3 {
            let _client = one_waits(bench, listener);
            bench.note_seen(listener);
        }
    });
}

#[test]
fn port_zero_stands_for_a_free_port() {
    check(|bench| {
        let (first, second) = (bench.listen(), bench.listen());
        let ports = [bench.local(first).port(), bench.local(second).port()];
        bench.note(format!("{} {}", ports[0] != 0, ports[0] != ports[1]));
    });
}

#[test]
fn an_address_is_listened_on_once() {
    check(|bench| {
        let first = bench.listen();
        let address = bench.local(first);
        bench.listen_at("second", address, &ListenerOptions::new(), 1);
        bench.close(first);
        bench.listen_at("third", address, &ListenerOptions::new(), 1);
    });
}

#[test]
fn the_wildcard_contains_all_addresses() {
    Script::new(|bench| {
        let first = bench.listen_at("wildcard", at("0.0.0.0", 0), &ListenerOptions::new(), 1)[0];
        let port = bench.local(first).port();
        bench.listen_at("second", SocketAddr::new(bench.ip(Side::Server), port), &ListenerOptions::new(), 1);
        bench.close(first);
        bench.listen_at(
            "specific",
            SocketAddr::new(bench.ip(Side::Server), port),
            &ListenerOptions::new(),
            1,
        );
        bench.listen_at("wildcard", at("0.0.0.0", port), &ListenerOptions::new(), 1);
        bench.listen_at(
            "neighbour",
            SocketAddr::new(bench.ip(Side::Client), port),
            &ListenerOptions::new(),
            1,
        );
    })
    .on_one_machine()
    .with_foreign_ports()
    .check();
}

#[test]
fn neighbours_on_one_port_get_their_own_connections() {
    Script::new(|bench| {
        let first =
            bench.listen_at("first", SocketAddr::new(bench.ip(Side::Server), 0), &ListenerOptions::new(), 1)
                [0];
        let port = bench.local(first).port();
        let options = ListenerOptions::new();
        let Some(second) =
            bench.listen_at("second", SocketAddr::new(bench.ip(Side::Client), port), &options, 1).pop()
        else {
            return;
        };
        let client = bench.connect("client", SocketAddr::new(bench.ip(Side::Client), port), None).unwrap();
        bench.wait_for(client, Ready::WRITABLE);
        bench.wait_for_connection(second);
        bench.try_accept(first);
        bench.try_accept(second);
        bench.note(format!("{}", bench.local(client).ip()));
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_wildcard_listener_accepts_at_the_address_of_the_client() {
    check(|bench| {
        let listener = bench.listen_at("wildcard", at("0.0.0.0", 0), &ListenerOptions::new(), 1)[0];
        bench.note(format!("{}", bench.local(listener).ip()));
        let to = SocketAddr::new(bench.ip(Side::Server), bench.local(listener).port());
        let client = bench.connect("client", to, None).unwrap();
        bench.wait_for_connection(listener);
        let (server, peer) = bench.try_accept(listener).unwrap();
        bench.note(format!("{} {}", bench.local(server) == to, peer == bench.local(client)));
    });
}

#[test]
fn an_address_of_another_machine_cannot_be_listened_on() {
    check(|bench| {
        bench.listen_at("listener", at("192.0.2.1", 0), &ListenerOptions::new(), 1);
    });
}

#[test]
fn all_sockets_of_a_port_must_share_it() {
    check(|bench| {
        let shared = ListenerOptions::new().reuse_port(true);
        let first = bench.listen();
        let address = bench.local(first);
        bench.listen_at("shared", address, &shared, 1);
        bench.close(first);
        bench.listen_at("shared", address, &shared, 1);
        bench.listen_at("shared", address, &shared, 1);
        bench.listen_at("alone", address, &ListenerOptions::new(), 1);
    });
}

#[test]
fn several_listeners_of_a_shared_port_get_each_connection_once() {
    check(|bench| {
        let shared = ListenerOptions::new().reuse_port(true);
        let address = SocketAddr::new(bench.ip(Side::Server), 0);
        let listeners = bench.listen_at("shared", address, &shared, 3);
        let to = bench.local(listeners[0]);
        for _ in 0..4 {
            let client = bench.connect("client", to, None).unwrap();
            bench.wait_for(client, Ready::WRITABLE);
        }
        bench.settle();
        let mut accepted = 0;
        for listener in listeners {
            while let Ok(_connection) = bench.accept_once(listener) {
                accepted += 1;
            }
        }
        bench.note(format!("{accepted} connections"));
    });
}

#[test]
fn a_backlog_has_a_limit() {
    check(|bench| {
        let listener = bench.listen_with(ListenerOptions::new().backlog(2));
        let to = bench.local(listener);
        let clients = [(); 5].map(|()| bench.connect("client", to, None).unwrap());
        bench.settle();
        let connected = clients.iter().filter(|client| bench.stream(**client).has_peer().is_ok()).count();
        let mut waiting = 0;
        while bench.accept_once(listener).is_ok() {
            waiting += 1;
        }
        bench.note(format!("{connected} connected, {waiting} wait"));
    });
}

#[test]
fn a_port_is_free_again_although_a_connection_is_open() {
    check(|bench| {
        let listener = bench.listen();
        let address = bench.local(listener);
        let (client, server) = bench.pair_at(listener);
        bench.close(listener);
        let exclusive = ListenerOptions::new().reuse_address(false);
        bench.listen_at("exclusive", address, &exclusive, 1);
        bench.listen_at("second", address, &ListenerOptions::new(), 1);
        bench.write(client, 3);
        bench.read_all(server, 3);
    });
}

#[test]
fn what_a_client_writes_before_the_accept_is_there_afterwards() {
    check(|bench| {
        let listener = bench.listen();
        let client = one_waits(bench, listener);
        bench.write(client, 100);
        bench.shut_down(client);
        bench.settle();
        let server = bench.accept(listener);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.note_seen(server);
        bench.read_to_end(server);
    });
}

#[test]
fn a_wildcard_of_version_6_accepts_clients_of_version_4() {
    Script::new(|bench| {
        let options = ListenerOptions::new();
        let listener = bench.listen_at("wildcard", at("::", 0), &options, 1)[0];
        let port = bench.local(listener).port();
        let client = bench.connect("client", SocketAddr::new(bench.ip(Side::Server), port), None).unwrap();
        bench.wait_for_connection(listener);
        let (server, peer) = bench.try_accept(listener).unwrap();
        let local = bench.local(server).ip();
        let is_same = local.to_canonical() == bench.ip(Side::Server);
        bench.note(format!("{} {} {is_same} {}", bench.local(client).ip(), local.is_ipv6(), peer.ip()));
    })
    .on_one_machine()
    .check();
}

#[test]
fn a_wildcard_of_version_6_can_refuse_clients_of_version_4() {
    Script::new(|bench| {
        // A port that is free for version 4, even if thousands of closed connections still wait.
        let free = bench.listen_at("free", at("0.0.0.0", 0), &ListenerOptions::new(), 1)[0];
        let port = bench.local(free).port();
        bench.close(free);
        let options = ListenerOptions::new().only_v6(true);
        bench.listen_at("wildcard", at("::", port), &options, 1);
        let client = bench.connect("client", SocketAddr::new(bench.ip(Side::Server), port), None).unwrap();
        bench.wait_for(client, Ready::ERROR);
        bench.take_error(client);
        bench.listen_at("version 4", at("0.0.0.0", port), &ListenerOptions::new(), 1);
    })
    .on_one_machine()
    .with_foreign_ports()
    .check();
}

#[test]
fn the_wildcards_of_both_versions_exclude_each_other() {
    Script::new(|bench| {
        let options = ListenerOptions::new();
        let first = bench.listen_at("version 4", at("0.0.0.0", 0), &options, 1)[0];
        let port = bench.local(first).port();
        bench.listen_at("version 6", at("::", port), &options, 1);
        bench.listen_at("only version 6", at("::1", port), &options, 1);
    })
    .on_one_machine()
    .with_foreign_ports()
    .check();
}

#[test]
fn a_connection_that_meets_a_full_backlog_is_accepted_later() {
    // The kernel sends the request again after a second.
    Script::new(|bench| {
        let listener = bench.listen_with(ListenerOptions::new().backlog(1));
        let to = bench.local(listener);
        let clients = [(); 3].map(|()| {
            let client = bench.connect("client", to, None).unwrap();
            bench.settle();
            client
        });
        bench.has_peer(clients[2]);
        let _first = bench.accept(listener);
        bench.wait_for(clients[2], Ready::WRITABLE);
        bench.note_seen(clients[2]);
    })
    .kernel_runs(1)
    .check();
}
