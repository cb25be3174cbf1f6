//! A part of a message that the channel keeps while its socket is empty.

use crate::support::{
    loops::single,
    wait::{PATIENCE, wait_until},
};
use bytes::Bytes;
use netwheel::{channel::ChannelOptions, codec::LengthField, prelude::*};
use std::{
    io::{Read, Write},
    net::TcpStream,
};

const READ_SIZE: usize = 64;

/// A full read is followed by another one, which blocks.
#[test]
fn a_part_of_a_frame_survives_a_read_that_blocks_over_tcp() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().read_size(READ_SIZE))
        .pipeline(|_| Pipeline::codec(LengthField::u32()).on_read(|ctx, frame: Bytes| ctx.write(frame)))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = TcpStream::connect(server.local_address()).unwrap();
    client.set_read_timeout(Some(PATIENCE)).unwrap();
    let frame: Vec<u8> = [0, 0, 0, 100].into_iter().chain(0..100).collect();
    for (begin, end) in [(0, READ_SIZE), (READ_SIZE, frame.len())] {
        let blocked = event_loop.metrics().reads_blocked;
        client.write_all(&frame[begin..end]).unwrap();
        if end == READ_SIZE {
            wait_until("a read blocks", || event_loop.metrics().reads_blocked > blocked);
        }
    }
    let mut echo = vec![0; frame.len()];
    client.read_exact(&mut echo).unwrap();
    assert_eq!(echo, frame);
}
