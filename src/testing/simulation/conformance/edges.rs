//! Edge-triggered readiness of connections.

use super::runner::{Script, check};
use crate::{channel::driver::Ready, event_loop::STREAM_INTEREST};
use mio::Interest;

#[test]
fn a_registration_reports_the_present_state() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.wait_for(server, Ready::READABLE);
        bench.deregister(server).unwrap();
        bench.forget_seen(server);
        bench.register(server).unwrap();
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn a_registration_can_be_changed() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.reregister(server, Interest::READABLE).unwrap();
        bench.settle();
        bench.note_seen(server);
        bench.write(client, 10);
        bench.settle();
        bench.note_seen(server);
        bench.reregister(server, Interest::WRITABLE).unwrap();
        bench.settle();
        bench.note_seen(server);
        bench.reregister(server, STREAM_INTEREST).unwrap();
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn failures_are_reported_for_every_interest() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.reregister(server, Interest::WRITABLE).unwrap();
        bench.settle();
        bench.forget_seen(server);
        bench.reset(client);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn a_socket_is_registered_once() {
    check(|bench| {
        let (client, _server) = bench.pair();
        let name = |result: std::io::Result<()>| format!("{:?}", result.map_err(|e| e.kind()));
        let results = [
            bench.register(client),
            bench.deregister(client),
            bench.deregister(client),
            bench.reregister(client, STREAM_INTEREST),
            bench.register(client),
        ];
        for result in results {
            bench.note(name(result));
        }
    });
}

#[test]
fn a_socket_that_is_not_registered_has_no_events() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.deregister(server).unwrap();
        bench.write(client, 10);
        bench.shut_down(client);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn a_short_read_leaves_no_edge() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.wait_for(server, Ready::READABLE);
        bench.settle();
        bench.forget_seen(server);
        bench.read(server, 4);
        bench.settle();
        bench.note_seen(server);
        bench.write(client, 1);
        bench.settle();
        bench.note_seen(server);
        bench.read_all(server, 7);
    });
}

#[test]
fn two_writes_are_one_or_two_edges() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 1);
        bench.write(client, 1);
        bench.settle();
        bench.note_events(server);
    });
}

#[test]
fn each_write_is_an_edge_although_nothing_is_read() {
    check(|bench| {
        let (client, server) = bench.pair();
        for _ in 0..3 {
            bench.write(client, 1);
            bench.wait_for(server, Ready::READABLE);
            bench.settle();
            bench.note_seen(server);
        }
        bench.read_all(server, 3);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn reads_and_writes_of_the_program_are_no_edges() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.wait_for(server, Ready::READABLE);
        bench.settle();
        bench.forget_seen(server);
        bench.forget_seen(client);
        bench.read(server, 10);
        bench.write(server, 10);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn a_write_and_a_close_are_merged() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn an_event_shows_the_present_state() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        // The input is read before the poll, so that the event says less than the edge.
        bench.read_all(server, 10);
        bench.settle();
        bench.forget_seen(server);
        bench.write(server, 1);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn a_closed_socket_has_no_events() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.close(server);
        bench.settle();
        bench.note_seen(server);
    });
}

#[test]
fn a_socket_moves_to_another_poll() {
    Script::new(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.settle();
        bench.deregister(server).unwrap();
        bench.forget_seen(server);
        let second = bench.open_poll();
        bench.register_with(server, second, None).unwrap();
        bench.settle();
        bench.note_seen(server);
        let patience = bench.backend.patience();
        bench.note_poll(second, patience);
        bench.note_seen(server);
        bench.write(client, 10);
        bench.settle();
        bench.note_seen(server);
        bench.note_poll(second, patience);
        bench.note_seen(server);
    })
    .check();
}

#[test]
fn an_event_that_was_not_polled_ends_with_the_registration() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.deregister(server).unwrap();
        bench.settle();
        bench.note_seen(server);
        bench.register(server).unwrap();
        bench.settle();
        bench.note_events(server);
    });
}

#[test]
fn one_poll_reports_several_sockets() {
    check(|bench| {
        let listener = bench.listen();
        let pairs = [(); 3].map(|()| bench.pair_at(listener));
        bench.forget_seen(listener);
        for (client, _) in pairs {
            bench.write(client, 1);
        }
        for (_, server) in pairs {
            bench.wait_for(server, Ready::READABLE);
            bench.note_seen(server);
        }
        bench.note_seen(listener);
    });
}
