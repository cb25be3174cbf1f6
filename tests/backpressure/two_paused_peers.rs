//! Two peers that stop reading while they cannot write: they make progress or time out, but never
//! hang.

use crate::support::{
    loops::{self, advance},
    wait::{PATIENCE, done},
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Error, channel::ChannelOptions, codec::RawBytes, net::TcpOptions, prelude::*,
    testing::ManualClock,
};
use std::{
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

const SAYS: usize = 8 * 1024 * 1024;

/// Writes many bytes when connected, and reports when it has received as many.
struct Talker {
    heard: usize,
    events: Sender<Result<Channel<Bytes>>>,
}

impl Handler for Talker {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Bytes::from(vec![1; SAYS]))
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.heard += message.len();
        if self.heard == SAYS {
            self.events.send(Ok(ctx.channel())).map_err(Error::other)?;
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        ctx.close();
        self.events.send(Err(error)).map_err(Error::other)
    }
}

struct Pair {
    event_loop: EventLoop,
    clock: ManualClock,
    /// Reports of either end: all bytes received, or an error.
    events: Receiver<Result<Channel<Bytes>>>,
    client: Channel<Bytes>,
    _group: EventLoopGroup,
    _server: Server,
}

/// Creates two ends on one loop with a manual clock. `choking` selects which of them read only
/// while they can write.
fn pair(choking: [bool; 2]) -> Pair {
    let clock = ManualClock::new();
    let (group, event_loop) = loops::single(EventLoopGroup::builder().clock(clock.clone()));
    let (sender, events) = channel();
    let sender = Arc::new(Mutex::new(sender));
    let make = move || {
        let events = sender.lock().unwrap().clone();
        Pipeline::codec(RawBytes).handler(Talker { heard: 0, events })
    };
    let options = |on| ChannelOptions::new().read_while_writable(on);
    let small = || TcpOptions::new().send_buffer(64 * 1024).receive_buffer(64 * 1024);
    let server = ServerBootstrap::new(&group)
        .tcp_options(small())
        .channel_options(options(choking[0]))
        .pipeline({
            let make = make.clone();
            move |_| make()
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = ClientBootstrap::new(&group)
        .tcp_options(small())
        .channel_options(options(choking[1]))
        .pipeline(move |_| make());
    let client = done(client.connect(server.local_address())).unwrap();
    Pair { event_loop, clock, events, client, _group: group, _server: server }
}

#[test]
fn one_reading_peer_is_enough_for_progress() {
    // At least one end reads regardless of its pending output, so both receive everything.
    for choking in [[false, false], [true, false], [false, true]] {
        let pair = pair(choking);
        for _ in 0..2 {
            pair.events.recv_timeout(PATIENCE).expect("all bytes are received").expect("no error");
        }
        assert!(pair.client.is_open());
    }
}

#[test]
fn two_paused_peers_time_out() {
    let pair = pair([true, true]);
    advance(&pair.event_loop, &pair.clock, Duration::from_secs(59));
    assert!(pair.client.is_open() && pair.events.try_recv().is_err(), "the minute has not passed");
    advance(&pair.event_loop, &pair.clock, Duration::from_secs(2));
    let said = pair
        .events
        .recv_timeout(PATIENCE)
        .expect("the channel fails")
        .expect_err("an error instead of progress");
    assert!(matches!(said, Error::TimedOut { operation: "writing", .. }), "{said}");
    done(pair.client.closed()).unwrap();
}
