//! The rate limit of log lines that peers can cause.

use crate::support::{
    logs,
    loops::{advance, settle, settle_until, single},
    tcp::connect,
    wait::{PATIENCE, done},
};
use bytes::Bytes;
use netwheel::{
    Channel, EventLoop,
    codec::{LengthField, RawBytes},
    prelude::*,
    shutdown::ShutdownOptions,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

const TEN_SECONDS: Duration = Duration::from_secs(10);

/// A handler that ignores messages and has the default `error` callback.
struct Sink;

impl Handler for Sink {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

/// Creates a loop with this name and a clock that stands still.
fn named(name: &str) -> (EventLoopGroup, EventLoop, ManualClock) {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().name(name).clock(clock.clone()));
    (group, event_loop, clock)
}

fn end(event_loop: &EventLoop) {
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(TEN_SECONDS)))
        .unwrap();
}

/// Connects `times` peers, one after the other. Each sends a length beyond the limit and waits
/// until its connection is closed.
fn send_nonsense(server: &Server, times: usize) {
    for _ in 0..times {
        let mut stream = connect(server.local_address());
        stream.write_all(&[0xFF; 8]).unwrap();
        // Ends with a reset if the server did not read all bytes.
        let _ = stream.read_to_end(&mut Vec::new());
    }
}

fn strict(group: &EventLoopGroup) -> Server {
    let pipeline = |_: &_| Pipeline::codec(LengthField::u32().max_len(100)).handler(Sink);
    ServerBootstrap::new(group).pipeline(pipeline).bind("127.0.0.1:0").unwrap()
}

/// Waits until this number of channels has closed.
#[track_caller]
fn closed(event_loop: &EventLoop, channels: u64) {
    settle_until(event_loop, |metrics| metrics.channels_closed >= channels);
}

#[test]
fn errors_caused_by_peers_are_a_few_lines_and_a_count() {
    logs::collect();
    let (group, event_loop, clock) = named("nonsense");
    let server = strict(&group);
    send_nonsense(&server, 200);
    closed(&event_loop, 200);
    let id = event_loop.metrics().channel_errors;
    assert_eq!(id, 200);
    let errors = || {
        let of_sink = logs::lines_with("log_throttle::Sink");
        of_sink.iter().filter(|line| line.starts_with("INFO")).count()
    };
    assert_eq!(errors(), 10);
    assert_eq!(event_loop.metrics().log_lines_suppressed, 190);

    // Without any other event, the loop wakes up to report the suppressed lines.
    let report = "nonsense-0: errors of peers: 190 more lines were suppressed in the last 10.0s";
    assert_eq!(logs::lines_with(report).len(), 0, "the report must not be early");
    advance(&event_loop, &clock, TEN_SECONDS);
    let reports = logs::lines_with(report);
    assert_eq!(reports.len(), 1);
    assert!(reports[0].starts_with("INFO"), "the report has the level of the lines: {reports:?}");

    // The limit starts anew after ten seconds. A loop that ends reports the remaining count.
    send_nonsense(&server, 15);
    closed(&event_loop, 215);
    assert_eq!(errors(), 20);
    end(&event_loop);
    assert_eq!(logs::lines_with("nonsense-0: errors of peers: 5 more lines were suppressed").len(), 1);
}

/// A handler that asks for permission to log each byte.
struct Talkative {
    admitted: Sender<bool>,
}

impl Handler for Talkative {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        for _ in message {
            self.admitted.send(ctx.may_log("bytes of the talkative")).unwrap();
        }
        Ok(())
    }
}

#[test]
fn log_lines_of_handlers_have_the_same_limit() {
    logs::collect();
    let (admitted, answers) = mpsc::channel();
    let clock = ManualClock::new();
    let pipeline = Pipeline::codec(RawBytes).handler(Talkative { admitted });
    let options = netwheel::channel::ChannelOptions::new();
    let mut channel =
        EmbeddedChannel::builder(pipeline).channel_options(options).clock(clock.clone()).build().unwrap();
    let count = |answers: &Receiver<bool>| answers.try_iter().filter(|admitted| *admitted).count();
    channel.write_inbound(&[0; 100]).unwrap();
    assert_eq!(count(&answers), 10);
    channel.advance(TEN_SECONDS);
    let report = |n| format!("bytes of the talkative: {n} more lines were suppressed");
    assert_eq!(logs::lines_with(&report(90)).len(), 1);
    channel.write_inbound(&[0; 11]).unwrap();
    assert_eq!(count(&answers), 10);
    drop(channel);
    let reports = logs::lines_with(&report(1));
    assert!(reports.len() == 1 && reports[0].starts_with("WARN"), "{reports:?}");
}

/// A handler whose `active` and `error` fail.
struct Angry;

impl Handler for Angry {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        Err(Error::other("not today"))
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        Err(error)
    }
}

#[test]
fn handlers_that_fail_for_each_connection_are_a_few_lines_and_a_count() {
    logs::collect();
    let (group, event_loop, _clock) = named("angry");
    let pipeline = |_: &_| Pipeline::codec(RawBytes).handler(Angry);
    let server = ServerBootstrap::new(&group).pipeline(pipeline).bind("127.0.0.1:0").unwrap();
    send_nonsense(&server, 50);
    closed(&event_loop, 50);
    let failures = logs::lines_with("log_throttle::Angry");
    assert_eq!(failures.len(), 10, "{failures:?}");
    end(&event_loop);
    assert_eq!(logs::lines_with("angry-0: errors of channels: 40 more lines were suppressed").len(), 1);
}

#[test]
fn broadcasts_that_cannot_be_encoded_are_a_few_lines_and_a_count() {
    logs::collect();
    let (group, event_loop, _clock) = named("unencodable");
    let (opened, channels) = mpsc::channel::<Channel<Bytes>>();
    struct Member(Sender<Channel<Bytes>>);
    impl Handler for Member {
        type Read = Bytes;
        type Write = Bytes;
        fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
            self.0.send(ctx.channel()).map_err(|e| Error::other(e.to_string()))
        }
        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Ok(())
        }
    }
    let pipeline =
        move |_: &_| Pipeline::codec(LengthField::u32().max_len(100)).handler(Member(opened.clone()));
    let server = ServerBootstrap::new(&group).pipeline(pipeline).bind("127.0.0.1:0").unwrap();
    let _peer = TcpStream::connect(server.local_address()).unwrap();
    let room = netwheel::ChannelGroup::new();
    assert!(room.join(channels.recv_timeout(PATIENCE).unwrap()));
    for _ in 0..50 {
        drop(room.broadcast(Bytes::from_static(&[0; 200])).unwrap());
        settle(&event_loop);
    }
    settle(&event_loop);
    assert_eq!(event_loop.metrics().log_lines_suppressed, 40);
    end(&event_loop);
    let report = "unencodable-0: broadcasts that could not be encoded: 40 more lines were suppressed";
    assert_eq!(logs::lines_with(report).len(), 1);
}
