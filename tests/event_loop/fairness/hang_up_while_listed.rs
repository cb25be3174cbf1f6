//! A peer ends its stream while its channel is on the list of channels that are read without an
//! event. The stream holds more bytes than one turn reads.

#![cfg(target_os = "linux")]

use crate::support::resources::need_descriptors;
use crate::support::{
    journal::Journal,
    loops::{Gate, settle, settle_until, single},
};
use bytes::Bytes;
use netwheel::{EventLoopGroup, codec::Line, prelude::*, testing::ManualClock};
use std::{
    io::{Read, Write},
    net::{Shutdown, TcpStream},
};

/// Stops reading after its first message.
struct Pauses(Journal<(u16, Channel<Bytes>)>, bool);

impl Handler for Pauses {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        if !std::mem::replace(&mut self.1, true) {
            ctx.set_auto_read(false);
            let port = ctx.peer_address().expect("a peer address").port();
            self.0.push((port, ctx.channel()));
        }
        Ok(())
    }
}

/// The peer's remaining bytes are not read. They must not cause a reset either, because a reset
/// could overtake the last bytes that this side has written.
#[test]
fn a_close_of_a_listed_channel_with_unread_bytes_does_not_reset_the_connection() {
    // A turn reads 1024 listed channels.
    const CHANNELS: usize = 1100;
    need_descriptors(2 * CHANNELS + 200);
    let (group, event_loop) = single(EventLoopGroup::builder().clock(ManualClock::new()).io_ratio(100));
    let channels = Journal::new();
    let journal = channels.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(Line::new()).handler(Pauses(journal.clone(), false)))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut clients: Vec<_> = (0..CHANNELS)
        .map(|_| {
            let mut client = TcpStream::connect(server.local_address()).unwrap();
            client.write_all(b"first\nsecond\n").unwrap();
            client
        })
        .collect();
    settle_until(&event_loop, |_| channels.len() >= CHANNELS);
    settle(&event_loop);

    let last = clients.pop().unwrap();
    let port = last.local_addr().unwrap().port();
    let (ours, others): (Vec<_>, Vec<_>) = channels.all().into_iter().partition(|(other, _)| *other == port);
    let ours = ours[0].1.clone();
    let closed = ours.closed();
    let gate = Gate::shut(&event_loop);
    // The channels are listed in this order at the end of the turn. The peer ends its stream before
    // that.
    for channel in others.iter().map(|(_, channel)| channel).chain([&ours]) {
        channel
            .execute(|ctx| {
                ctx.set_auto_read(true);
                Ok(())
            })
            .unwrap();
    }
    let mut peer = last.try_clone().unwrap();
    event_loop
        .execute_at_turn_end(move || {
            peer.write_all(b"never read\n").unwrap();
            peer.shutdown(Shutdown::Write).unwrap();
            // Runs in the next turn.
            ours.write("bye".into()).unwrap();
            ours.close();
        })
        .unwrap();
    drop(gate);
    closed.wait().unwrap();
    let mut got = String::new();
    (&last).read_to_string(&mut got).expect("the stream ends");
    assert_eq!(got, "bye\n");
}
