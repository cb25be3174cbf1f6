//! Writes, full buffers, and the edge when there is room again.

use super::runner::{Script, check};
use crate::channel::driver::Ready;

#[test]
fn a_write_of_nothing_writes_nothing() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 0);
        bench.settle();
        bench.note_seen(server);
        bench.read(server, 10);
    });
}

#[test]
fn slices_are_written_in_order() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write_vectored(client, &[3, 0, 5]);
        bench.read_all(server, 8);
        bench.write_vectored(client, &[]);
    });
}

#[test]
fn a_full_buffer_becomes_writable_when_the_peer_reads() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.settle();
        bench.forget_seen(client);
        bench.write(client, 10);
        let written = bench.slots[client.0].written;
        bench.read_all(server, written);
        bench.wait_for(client, Ready::WRITABLE);
        bench.note_seen(client);
        bench.write(client, 10);
        bench.read_all(server, 10);
    });
}

#[test]
fn a_full_buffer_is_not_writable() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.settle();
        bench.forget_seen(client);
        // An event for another reason shows the present state.
        bench.write(server, 1);
        bench.wait_for(client, Ready::READABLE);
        bench.note_seen(client);
    });
}

#[test]
fn a_full_buffer_that_no_write_has_met_becomes_writable_too() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.settle();
        // The poll has seen the full buffer, so it reports the room although no write follows.
        bench.write(server, 1);
        bench.wait_for(client, Ready::READABLE);
        bench.forget_seen(client);
        let written = bench.slots[client.0].written;
        bench.read_all(server, written);
        bench.wait_for(client, Ready::WRITABLE);
        bench.note_seen(client);
    });
}

#[test]
fn an_empty_buffer_has_room_again() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        let written = bench.slots[client.0].written;
        bench.read_all(server, written);
        bench.write_all(client, 60_000);
        bench.read_all(server, 60_000);
    });
}

#[test]
fn output_is_sent_although_the_socket_is_closed() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write_all(client, 60_000);
        bench.close(client);
        bench.read_to_end(server);
    });
}

#[test]
fn a_full_buffer_is_sent_although_the_socket_is_closed() {
    // The number of bytes depends on the buffers, so the script notes only that all arrive.
    Script::new(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        let written = bench.slots[client.0].written;
        bench.close(client);
        bench.read_all(server, written);
        bench.read_to_end(server);
    })
    .check();
}

#[test]
fn a_peer_that_resets_makes_a_full_buffer_writable() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.settle();
        bench.forget_seen(client);
        bench.reset(server);
        bench.wait_for(client, Ready::ERROR);
        bench.note_seen(client);
        bench.write(client, 10);
        bench.write(client, 10);
    });
}

#[test]
fn the_end_follows_a_full_buffer() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.shut_down(client);
        bench.write(client, 10);
        let written = bench.slots[client.0].written;
        bench.read_all(server, written);
        bench.read_to_end(server);
        bench.settle();
        bench.write(client, 10);
    });
}

#[test]
fn a_little_room_is_no_edge() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.fill(client);
        bench.forget_seen(client);
        bench.read_all(server, 1_000);
        bench.settle();
        bench.note_seen(client);
    });
}
