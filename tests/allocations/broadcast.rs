//! A broadcast allocates a few blocks, independent of the number of members.

use crate::support::{
    loops::{end, one_loop},
    tcp::{ANY_PORT, connect},
    wait::{done, receive},
};
use crate::{heap, own_process};
use bytes::Bytes;
use netwheel::{ChannelGroup, codec::LengthField, prelude::*};
use std::{
    io::Read,
    sync::mpsc::{Sender, channel},
};

/// More members than the spare buffers of a loop.
const MEMBERS: usize = 400;
const BROADCASTS: u64 = 100;

/// The message, the part shared by loops, the part of each loop, the encoding and its growth, and
/// the report. Currently 13 blocks.
const BLOCKS_OF_A_BROADCAST: u64 = 16;

struct Member {
    room: ChannelGroup<Bytes>,
    joined: Sender<()>,
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(self.room.join(ctx.channel()));
        self.joined.send(()).map_err(Error::other)
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn a_broadcast_allocates_nothing_per_member() {
    own_process!();
    let group = one_loop();
    let room = ChannelGroup::new();
    let (joined, joins) = channel();
    let members = room.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let member = Member { room: members.clone(), joined: joined.clone() };
            Pipeline::codec(LengthField::u32()).handler(member)
        })
        .bind(ANY_PORT)
        .unwrap();
    let mut peers: Vec<_> = (0..MEMBERS)
        .map(|_| {
            let peer = connect(server.local_address());
            receive(&joins);
            peer
        })
        .collect();

    let (mut answer, mut expected) = (vec![0; 4 + 8192], vec![0; 8192]);
    // A message that is copied to each member, and one that all members share by reference.
    for size in [100, 8192] {
        let mut round = |times: u64| {
            for n in 0..times {
                let message = Bytes::from(vec![n as u8; size]);
                let report = done(room.broadcast(message).unwrap().report()).unwrap();
                assert_eq!(report.written, MEMBERS);
                expected.fill(n as u8);
                for peer in &mut peers {
                    peer.read_exact(&mut answer[..4 + size]).unwrap();
                    assert!(answer[4..4 + size] == expected[..size]);
                }
            }
        };
        round(20);
        let before = heap::total_blocks();
        round(BROADCASTS);
        let blocks = heap::total_blocks() - before;
        let most = BROADCASTS * BLOCKS_OF_A_BROADCAST;
        assert!(blocks <= most, "{blocks} allocations in {BROADCASTS} broadcasts of {size} bytes");
        println!("{blocks} allocations in {BROADCASTS} broadcasts of {size} bytes to {MEMBERS} members");
    }
    end(&group);
}
