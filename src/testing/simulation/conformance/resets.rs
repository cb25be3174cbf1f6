//! Resets: their causes, the errors they leave, and unread input.

use super::{
    bench::{Bench, Id},
    runner::check,
};
use crate::channel::driver::Ready;

/// Returns a server whose client has reset the connection.
fn reset_by_client(bench: &mut Bench) -> Id {
    let (client, server) = bench.pair();
    bench.reset(client);
    bench.wait_for(server, Ready::ERROR);
    bench.settle();
    server
}

/// Returns a client whose server has closed, and which has written since.
fn written_to_closed(bench: &mut Bench) -> Id {
    let (client, server) = bench.pair();
    bench.close(server);
    bench.wait_for(client, Ready::READ_CLOSED);
    bench.settle();
    bench.note_seen(client);
    bench.write(client, 10);
    bench.wait_for(client, Ready::ERROR);
    bench.settle();
    bench.note_seen(client);
    client
}

#[test]
fn a_reset_is_reported_and_read_once() {
    check(|bench| {
        let server = reset_by_client(bench);
        bench.note_seen(server);
        bench.has_peer(server);
        bench.read(server, 10);
        bench.read(server, 10);
        bench.take_error(server);
        bench.write(server, 10);
        bench.shut_down(server);
    });
}

#[test]
fn a_reset_is_an_error_of_a_write_once() {
    check(|bench| {
        let server = reset_by_client(bench);
        bench.write(server, 10);
        bench.write(server, 10);
        bench.read(server, 10);
    });
}

#[test]
fn a_reset_is_taken_once() {
    check(|bench| {
        let server = reset_by_client(bench);
        bench.take_error(server);
        bench.take_error(server);
        bench.read(server, 10);
        bench.write(server, 10);
    });
}

#[test]
fn a_peek_takes_the_error_of_a_reset() {
    check(|bench| {
        let server = reset_by_client(bench);
        bench.peek(server);
        bench.peek(server);
        bench.take_error(server);
    });
}

#[test]
fn input_survives_a_reset() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.wait_for(server, Ready::READABLE);
        bench.reset(client);
        bench.wait_for(server, Ready::ERROR);
        bench.note_seen(server);
        bench.peek(server);
        bench.read(server, 4);
        bench.read_to_end(server);
        bench.read(server, 4);
    });
}

#[test]
fn a_close_with_unread_input_is_a_reset() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(server, 10);
        bench.wait_for(client, Ready::READABLE);
        bench.settle();
        bench.close(client);
        bench.wait_for(server, Ready::ERROR);
        bench.note_seen(server);
        bench.read(server, 10);
        bench.read(server, 10);
    });
}

#[test]
fn a_close_with_an_unread_end_is_no_reset() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(server);
        bench.wait_for(client, Ready::READ_CLOSED);
        bench.close(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.settle();
        bench.note_seen(server);
        bench.take_error(server);
        bench.read(server, 10);
    });
}

#[test]
fn input_for_a_closed_socket_is_answered_by_a_reset() {
    check(|bench| {
        let client = written_to_closed(bench);
        bench.read(client, 10);
        bench.read(client, 10);
        bench.take_error(client);
        bench.take_error(client);
        bench.write(client, 10);
    });
}

#[test]
fn a_second_write_to_a_closed_socket_fails() {
    check(|bench| {
        let client = written_to_closed(bench);
        bench.write(client, 10);
        bench.write(client, 10);
        bench.has_peer(client);
        bench.shut_down(client);
    });
}

#[test]
fn a_closed_socket_resets_input_that_arrives_later() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(server, 10);
        bench.close(server);
        bench.wait_for(client, Ready::READ_CLOSED);
        bench.write(client, 10);
        bench.wait_for(client, Ready::ERROR);
        bench.note_seen(client);
        // The input is older than the reset.
        bench.read_to_end(client);
        bench.take_error(client);
    });
}

#[test]
fn a_reset_after_a_half_close() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.reset(server);
        bench.wait_for(client, Ready::ERROR);
        bench.note_seen(client);
        bench.read(client, 10);
        bench.read(client, 10);
        bench.write(client, 10);
    });
}

#[test]
fn a_reset_after_the_end_of_the_stream() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.forget_seen(server);
        bench.reset(client);
        bench.wait_for(server, Ready::ERROR);
        bench.note_seen(server);
        bench.read(server, 10);
        bench.take_error(server);
        bench.take_error(server);
        bench.write(server, 10);
    });
}

#[test]
fn a_reset_discards_output() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.reset(client);
        bench.wait_for(server, Ready::ERROR);
        bench.note_seen(server);
        let written = bench.slots[client.0].written;
        bench.read_all(server, written);
    });
}

#[test]
fn a_reset_after_both_ends_is_silent() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.shut_down(server);
        bench.wait_for(client, Ready::READ_CLOSED);
        bench.settle();
        bench.forget_seen(server);
        bench.reset(client);
        bench.settle();
        bench.note_seen(server);
        bench.take_error(server);
    });
}

#[test]
fn a_reset_follows_output_that_has_left() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.reset(client);
        bench.wait_for(server, Ready::ERROR);
        bench.read_to_end(server);
        bench.read(server, 10);
    });
}

#[test]
fn a_registration_after_a_reset_reports_it() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.deregister(server).unwrap();
        bench.reset(client);
        bench.settle();
        bench.register(server).unwrap();
        bench.wait_for(server, Ready::ERROR);
        bench.note_seen(server);
        bench.take_error(server);
        bench.deregister(server).unwrap();
        bench.register(server).unwrap();
        bench.settle();
        bench.note_seen(server);
    });
}
