//! Half-close, orderly ends, and what sockets say afterwards.

use super::{
    bench::{Bench, Id},
    runner::check,
};
use crate::channel::driver::Ready;

/// Shuts down both write halves, the client's first. Both ends have seen it.
fn both_shut_down(bench: &mut Bench) -> (Id, Id) {
    let (client, server) = bench.pair();
    bench.shut_down(client);
    bench.wait_for(server, Ready::READ_CLOSED);
    bench.shut_down(server);
    bench.wait_for(client, Ready::READ_CLOSED);
    bench.settle();
    (client, server)
}

#[test]
fn a_half_close_leaves_the_other_direction_open() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.settle();
        bench.note_seen(server);
        bench.note_seen(client);
        bench.read(server, 10);
        bench.write(server, 10);
        bench.read_all(client, 10);
        bench.write(client, 10);
        bench.has_peer(client);
        bench.has_peer(server);
    });
}

#[test]
fn the_end_is_read_again_and_again() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.read(server, 10);
        bench.read(server, 10);
        bench.take_error(server);
    });
}

#[test]
fn both_write_halves_are_shut_down() {
    check(|bench| {
        let (client, server) = both_shut_down(bench);
        bench.note_seen(client);
        bench.note_seen(server);
        for end in [client, server] {
            bench.read(end, 10);
            bench.write(end, 10);
            bench.take_error(end);
        }
    });
}

#[test]
fn a_connection_that_has_ended_has_no_peer() {
    check(|bench| {
        let (client, server) = both_shut_down(bench);
        for end in [client, server] {
            bench.has_peer(end);
            bench.shut_down(end);
        }
    });
}

#[test]
fn a_second_shutdown_is_allowed_and_an_event() {
    check(|bench| {
        let (client, _server) = bench.pair();
        bench.shut_down(client);
        bench.settle();
        bench.note_seen(client);
        bench.shut_down(client);
        bench.settle();
        bench.note_seen(client);
    });
}

#[test]
fn a_close_is_the_end_of_the_stream() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.close(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.settle();
        bench.note_seen(server);
        bench.read(server, 10);
        bench.has_peer(server);
        bench.take_error(server);
    });
}

#[test]
fn a_server_answers_a_half_closed_client_and_closes() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 5);
        bench.shut_down(client);
        bench.read_to_end(server);
        bench.write(server, 7);
        bench.close(server);
        bench.read_to_end(client);
        bench.note_seen(client);
        bench.has_peer(client);
    });
}

#[test]
fn both_ends_shut_down_at_the_same_time() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(client);
        bench.shut_down(server);
        for end in [client, server] {
            bench.wait_for(end, Ready::READ_CLOSED);
        }
        bench.settle();
        for end in [client, server] {
            bench.note_seen(end);
            bench.read(end, 10);
            bench.has_peer(end);
        }
    });
}

#[test]
fn a_close_after_both_ends_is_silent() {
    check(|bench| {
        let (client, server) = both_shut_down(bench);
        bench.forget_seen(server);
        bench.close(client);
        bench.settle();
        bench.note_seen(server);
        bench.take_error(server);
    });
}
