//! Reads and peeks.

use super::runner::check;
use crate::channel::driver::Ready;

#[test]
fn without_input_a_read_would_block() {
    check(|bench| {
        let (client, _server) = bench.pair();
        bench.read(client, 10);
        bench.peek(client);
        bench.read(client, 0);
    });
}

#[test]
fn bytes_arrive_as_they_were_written() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 1);
        bench.wait_for(server, Ready::READABLE);
        bench.note_seen(server);
        bench.read(server, 10);
        bench.read(server, 10);
        bench.note_seen(client);
    });
}

#[test]
fn a_read_returns_what_fits() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.wait_for(server, Ready::READABLE);
        bench.settle();
        bench.read(server, 0);
        bench.read(server, 4);
        bench.read(server, 4);
        bench.read(server, 4);
        bench.read(server, 4);
    });
}

#[test]
fn one_read_returns_several_writes() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 3);
        bench.write(client, 4);
        bench.settle();
        bench.read(server, 10);
        bench.read(server, 10);
    });
}

#[test]
fn a_peek_leaves_the_input() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.wait_for(server, Ready::READABLE);
        bench.peek(server);
        bench.peek(server);
        bench.read_all(server, 10);
        bench.peek(server);
        bench.shut_down(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.peek(server);
        bench.peek(server);
    });
}

#[test]
fn large_data_passes_in_both_directions() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write_all(client, 60_000);
        bench.write_all(server, 50_000);
        bench.read_all(server, 60_000);
        bench.read_all(client, 50_000);
        bench.read(server, 10);
    });
}

#[test]
fn input_precedes_the_end() {
    check(|bench| {
        let (client, server) = bench.pair();
        bench.write(client, 10);
        bench.close(client);
        bench.wait_for(server, Ready::READ_CLOSED);
        bench.settle();
        bench.note_seen(server);
        bench.read(server, 4);
        bench.read_to_end(server);
        bench.read(server, 10);
    });
}
