//! Traffic shaping over sockets: bytes handed to the kernel, and bytes left in it.

use crate::support::{
    journal::Log,
    loops::{advance, end, settle, single, watch},
    recorder::{Event, Recorder},
    tcp::connect,
    wait::{ms, wait_until},
};
use crate::traffic::bytes;
use bytes::Bytes;
use netwheel::{
    channel::TimeLimits,
    codec::RawBytes,
    prelude::*,
    testing::ManualClock,
    traffic::{SharedTraffic, TrafficLimits, TrafficShaping},
};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::Mutex,
    time::Instant,
};

/// Starts a server on a loop with a manual clock. Its shaped channels write `answer` in `active`.
fn serve(
    traffic: impl Into<TrafficShaping>,
    answer: Bytes,
    log: &Log,
) -> (EventLoopGroup, EventLoop, ManualClock, Server) {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let (traffic, log) = (traffic.into(), Mutex::new(log.clone()));
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let answer = answer.clone();
            let handler = Recorder::with(&log.lock().unwrap(), move |ctx, call| {
                if call.is_active() && !answer.is_empty() {
                    ctx.write(answer.clone())?;
                }
                Ok(())
            });
            Pipeline::codec(RawBytes).traffic(traffic.clone()).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    (group, event_loop, clock, server)
}

/// Asserts that the loop sleeps: it neither turns nor reads while nothing is due.
#[track_caller]
fn assert_sleeps(event_loop: &EventLoop) {
    settle(event_loop);
    let before = event_loop.metrics();
    settle(event_loop);
    let turns = event_loop.metrics().turns;
    // Let other threads run, so that the loop could turn. This takes at most 100 ms.
    let begun = Instant::now();
    for _ in 0..10_000 {
        std::thread::yield_now();
        if begun.elapsed() > ms(100) {
            break;
        }
    }
    let after = event_loop.metrics();
    assert!(after.turns <= turns + 2, "the loop turns without work");
    // The end of the peer's stream may still arrive as an event.
    assert!(after.ready <= before.ready + 1, "the loop receives no events");
    assert_eq!(after.reads, before.reads);
}

#[track_caller]
fn receive(peer: &mut TcpStream, n: usize) -> Vec<u8> {
    let mut got = vec![0; n];
    peer.read_exact(&mut got).unwrap();
    got
}

/// H-02 over TCP: the limited number of bytes arrives in order, and the loop sleeps in between.
#[test]
fn h_02_over_tcp_a_write_limit_paces_the_output() {
    const RATE: usize = 1_000_000;
    let all = bytes(RATE);
    let limits = TrafficLimits::new().write(RATE as u64);
    let (group, event_loop, clock, server) = serve(limits, all.clone(), &Log::new());
    let mut peer = connect(server.local_address());
    let mut got = receive(&mut peer, 100_000);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().bytes_written, 100_000);
    assert_sleeps(&event_loop);
    for step in 1..=18 {
        advance(&event_loop, &clock, ms(50));
        got.extend(receive(&mut peer, 50_000));
        assert_eq!(event_loop.metrics().bytes_written, 100_000 + step * 50_000);
        assert_eq!(event_loop.metrics().writes_paused, step.min(17) + 1);
    }
    assert_eq!(got, all);
    assert_eq!(event_loop.metrics().timers_pending, 0);
    assert_sleeps(&event_loop);
    end(&group);
}

/// H-01 over TCP: the kernel buffers the bytes above the limit. They are read later without another
/// event.
#[test]
fn h_01_over_tcp_a_read_limit_leaves_the_rest_in_the_kernel() {
    let log = Log::new();
    let limits = TrafficLimits::new().read(100_000);
    let (group, event_loop, clock, server) = serve(limits, Bytes::new(), &log);
    let mut peer = connect(server.local_address());
    log.wait_for("active");
    peer.write_all(&[b'x'; 30_000]).unwrap();
    let total = |log: &Log| -> usize {
        log.all().iter().filter_map(|entry| entry.strip_prefix("read ")).map(str::len).sum()
    };
    log.wait_until("the burst", |_| event_loop.metrics().bytes_read == 10_000);
    // New events during a pause do not cause a read.
    let wakes = event_loop.metrics().wakes_io;
    peer.write_all(&[b'x'; 10_000]).unwrap();
    drop(peer);
    watch(&event_loop, |metrics| metrics.wakes_io > wakes);
    // Wait for further events of the same peer.
    settle(&event_loop);
    assert_sleeps(&event_loop);
    assert_eq!(total(&log), 10_000);
    for step in 1..=6 {
        advance(&event_loop, &clock, ms(50));
        assert_eq!(
            (total(&log), event_loop.metrics().bytes_read),
            (10_000 + step * 5_000, 10_000 + step as u64 * 5_000)
        );
    }
    assert_eq!(
        event_loop.metrics().reads_paused,
        7,
        "also after the last read, which cannot know that no bytes remain"
    );
    assert_eq!(log.count("inactive"), 0, "the end of the stream is read later");
    advance(&event_loop, &clock, ms(50));
    log.wait_for("inactive");
    end(&group);
}

/// The read limit also applies to a peer that sends exactly as many bytes as allowed and then stays
/// silent.
#[test]
fn over_tcp_the_read_limit_applies_after_the_pause() {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            Pipeline::codec(RawBytes)
                .traffic(TrafficLimits::new().read(100_000))
                .time_limits(TimeLimits::new().read(ms(300)))
                .handler(Recorder::new(&handler_log))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    log.wait_for("active");
    peer.write_all(&[b'x'; 10_000]).unwrap();
    log.wait_until("the burst", |_| event_loop.metrics().bytes_read == 10_000);
    advance(&event_loop, &clock, ms(50));
    for _ in 0..4 {
        advance(&event_loop, &clock, ms(100));
    }
    settle(&event_loop);
    assert_eq!(log.count("error reading timed out after 300ms"), 1, "{:?}", log.all());
    end(&group);
}

/// H-06 over TCP: connections on two loops share a limit, and all receive everything.
#[test]
fn h_06_over_tcp_loops_share_a_limit() {
    const PEERS: usize = 4;
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
    let shared = SharedTraffic::new(TrafficLimits::new().write(20_000_000).read(20_000_000));
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let echo = Recorder::with(&Log::new(), |ctx, call| match call {
                Event::Read(message) => ctx.write(message.clone()),
                _ => Ok(()),
            });
            Pipeline::codec(RawBytes).traffic(&shared).handler(echo)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let text = bytes(1_000_000);
    std::thread::scope(|scope| {
        let peers = (0..PEERS).map(|_| {
            scope.spawn(|| {
                let mut peer = connect(server.local_address());
                let mut sender = peer.try_clone().unwrap();
                let sent = text.clone();
                let sending = std::thread::spawn(move || sender.write_all(&sent).unwrap());
                assert!(receive(&mut peer, text.len()) == text);
                sending.join().unwrap();
            })
        });
        let peers: Vec<_> = peers.collect();
        // While the clock stands still, the burst is used up and the channels pause.
        let pauses = || group.metrics().iter().map(|m| m.reads_paused + m.writes_paused).sum::<u64>();
        wait_until("a pause", || pauses() > 0);
        wait_until("the end of the peers", || {
            clock.advance(ms(1));
            peers.iter().all(|peer| peer.is_finished())
        });
    });
    // Four million bytes in each direction, two million of them in the burst.
    assert!(clock.elapsed() >= ms(100), "{:?}", clock.elapsed());
    end(&group);
}
