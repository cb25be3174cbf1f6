//! A filter finds the end of a stream, or refuses it, at the last byte of a full read. The peer has
//! sent more, and has ended the connection. Closing a socket with unread bytes is a reset, which
//! would discard the last words.

use super::filters::Marked;
use crate::support::{loops::settle, wait::PATIENCE};
use netwheel::{channel::ChannelOptions, codec::RawBytes, prelude::*};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

const READ_SIZE: usize = 64;

/// Sends a full read that ends with `last`, then more bytes. Returns the answer.
fn last_words(last: u8) -> Vec<u8> {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().read_size(READ_SIZE))
        .filter(|_| Marked::established())
        .pipeline(|_| Pipeline::codec(RawBytes).on_read(|_, _| Ok(())))
        .bind("127.0.0.1:0")
        .unwrap();
    // The first event of the connection reports all bytes and the end.
    server.set_accepting(false).unwrap();
    settle(&group.event_loops()[0]);
    let mut client = TcpStream::connect(server.local_address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut bytes = vec![b'.'; READ_SIZE - 1];
    bytes.push(last);
    bytes.extend_from_slice(b"behind the end");
    client.write_all(&bytes).unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    server.set_accepting(true).unwrap();

    let mut words = Vec::new();
    client.read_to_end(&mut words).expect("the connection ends in order");
    words
}

#[test]
fn the_end_mark_arrives_although_bytes_follow_that_of_the_peer() {
    assert_eq!(last_words(b'E'), b"E");
}

#[test]
fn the_alert_arrives_although_bytes_follow_the_refused_one() {
    assert_eq!(last_words(b'X'), b"alert");
}
