//! Limits on the pending output of all channels of a loop and of a group.

use crate::support::{
    loops::{settle, single},
    tcp::{self, assert_echoes},
    wait::{self, PATIENCE},
};
use bytes::Bytes;
use netwheel::{
    ChannelContext, Error, error::Resource, group::EventLoopGroupBuilder, net::TcpOptions, prelude::*,
};
use netwheel::{ServerBootstrap, codec::RawBytes};
use std::{
    net::TcpStream,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
};

const LIMIT: usize = 1024 * 1024;
const PIECE: usize = 16 * 1024;
/// The default low water mark: pending bytes that a channel may always have.
const LOW: usize = 32 * 1024;
/// The precision with which a loop reports its bytes to the group.
const TOLD: usize = 64 * 1024;

/// Echoes, and sends its channel to the test.
struct Echo(Sender<Channel<Bytes>>);

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.send(ctx.channel()).map_err(Error::other)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

struct Fixture {
    server: Server,
    channels: Receiver<Channel<Bytes>>,
}

impl Fixture {
    fn new(group: &EventLoopGroup) -> Self {
        let (sender, channels) = channel();
        let sender = Mutex::new(sender);
        let server = ServerBootstrap::new(group)
            .tcp_options(TcpOptions::new().send_buffer(64 * 1024))
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Echo(sender.lock().unwrap().clone())));
        Fixture { server: server.bind("127.0.0.1:0").unwrap(), channels }
    }

    fn connect(&self) -> (TcpStream, Channel<Bytes>) {
        let stream = tcp::connect(self.server.local_address());
        (stream, self.channels.recv_timeout(PATIENCE).unwrap())
    }
}

/// Writes pieces within one callback until one is refused. Returns the error, the number of
/// accepted pieces, and the pending bytes.
fn fill(channel: &Channel<Bytes>) -> (Error, usize, usize) {
    let (sender, receiver) = std::sync::mpsc::channel();
    let write = move |ctx: &mut ChannelContext<'_, Bytes>| {
        let piece = Bytes::from_static(&[7; PIECE]);
        let mut written = 0;
        let refused = loop {
            match ctx.write(piece.clone()) {
                Ok(()) => written += 1,
                Err(refused) => break refused,
            }
        };
        sender.send((refused, written, ctx.pending_bytes())).map_err(Error::other)
    };
    channel.execute(write).unwrap();
    receiver.recv_timeout(PATIENCE).unwrap()
}

/// Writes until the peer's kernel accepts no more and the pending bytes are at the limit.
fn fill_up(group: &EventLoopGroup, channel: &Channel<Bytes>) -> Error {
    loop {
        let (refused, written, _) = fill(channel);
        if written == 0 {
            return refused;
        }
        // Earlier writes are flushed by the end of the turn.
        group.event_loops().iter().for_each(settle);
    }
}

fn is_of(error: &Error, of: Resource, expected: usize) -> bool {
    matches!(error, Error::Full { resource, limit, .. } if *resource == of && *limit == expected)
}

#[test]
fn a_loop_at_its_limit_refuses_only_slow_channels() {
    let (group, event_loop) = single(EventLoopGroup::builder().max_outbound(LIMIT));
    let fixture = Fixture::new(&group);
    let (slow, channel) = fixture.connect();
    // The kernel may accept bytes for the slow peer late, and so make room again. Its buffers are
    // limited.
    wait::wait_until("the loop is at its limit", || {
        let refused = fill_up(&group, &channel);
        assert!(is_of(&refused, Resource::LoopOutput, LIMIT), "{refused}");
        settle(&event_loop);
        let pending = event_loop.metrics().outbound_bytes as usize;
        assert!(pending <= LIMIT, "{pending}");
        pending >= LIMIT - PIECE
    });
    assert!(event_loop.metrics().messages_refused >= 1);
    // A peer that keeps up is served as before. A single callback is limited to the low water mark.
    let (mut quick, other) = fixture.connect();
    assert_echoes(&mut quick);
    wait::wait_until("a callback is limited to the low water mark", || {
        fill_up(&group, &channel);
        let (refused, _, pending) = fill(&other);
        assert!(is_of(&refused, Resource::LoopOutput, LIMIT), "{refused}");
        assert!(pending >= LOW, "{pending}");
        tcp::read_n(&mut quick, pending);
        pending == LOW
    });
    drop(slow);
    channel.close_now();
    wait::done(channel.closed()).unwrap();
    settle(&event_loop);
    let (_, _, pending) = fill(&other);
    assert!(pending > LOW && pending <= LIMIT, "there is room again: {pending}");
}

#[test]
fn the_loops_of_a_group_share_its_limit() {
    let builder: EventLoopGroupBuilder = EventLoopGroup::builder().threads(2).max_group_outbound(LIMIT);
    let group = builder.build().unwrap();
    let fixture = Fixture::new(&group);
    let (_slow, one) = fixture.connect();
    let (mut quick, two) = fixture.connect();
    let refused = fill_up(&group, &one);
    assert!(is_of(&refused, Resource::GroupOutput, LIMIT), "{refused}");
    // Each loop reports its bytes and reads the total at the end of a turn.
    group.event_loops().iter().for_each(settle);
    group.event_loops().iter().for_each(settle);
    let (refused, _, pending) = fill(&two);
    assert!(is_of(&refused, Resource::GroupOutput, LIMIT), "{refused}");
    let mut taken = vec![0; pending];
    std::io::Read::read_exact(&mut quick, &mut taken).unwrap();
    assert_echoes(&mut quick);
    // The remaining bytes belong to the slow peer. Its kernel may have accepted more, which made
    // room.
    group.event_loops().iter().for_each(settle);
    let slow: u64 = group.event_loops().iter().map(|event_loop| event_loop.metrics().outbound_bytes).sum();
    assert!(slow as usize + pending <= LIMIT + TOLD, "{pending} of one channel, {slow} of the others");
}

#[test]
fn a_limit_of_zero_is_refused() {
    for (builder, setting) in [
        (EventLoopGroup::builder().max_outbound(0), "max_outbound"),
        (EventLoopGroup::builder().max_group_outbound(0), "max_group_outbound"),
    ] {
        let refused = builder.build().unwrap_err();
        assert!(refused.to_string().contains(setting), "{refused}");
    }
}
