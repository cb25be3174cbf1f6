//! Uses of idle detection that users of other frameworks have asked for.

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    tcp::connect,
    wait::{SECOND, done, wait_until},
};
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, TimeLimits},
    codec::{LengthField, Line, RawBytes},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
    time::Delay,
};
use std::{io::Read, time::Duration};

/// Starts a server on a manual clock. Its handler records all callbacks, and runs the closure of
/// the test.
fn server<C: netwheel::Codec<Read = Bytes, Write = Bytes>>(
    idle: IdleTimeouts,
    codec: fn() -> C,
    log: &Log,
    hook: impl Fn(&mut Context<'_, Recorder>, &Event) -> Result + Clone + Send + Sync + 'static,
) -> (EventLoopGroup, netwheel::Server, ManualClock) {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let hook = hook.clone();
            let handler = Recorder::with(&log, move |ctx, call| hook(ctx, call));
            Pipeline::codec(codec()).idle(idle).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    (group, server, clock)
}

/// Returns when everything that is due has run.
fn settle(group: &EventLoopGroup) {
    for _ in 0..2 {
        done(group.next().schedule(Duration::ZERO, || ()).unwrap().completion()).unwrap();
    }
}

#[test]
fn a_silent_peer_is_closed() {
    let log = Log::new();
    let idle = IdleTimeouts::new().reader(60 * SECOND);
    let (group, server, clock) = server(idle, Line::new, &log, |ctx, call| {
        if let Event::Idle(_) = call {
            ctx.close();
        }
        Ok(())
    });
    let mut peer = connect(server.local_address());
    log.wait_for("active");
    clock.advance(59 * SECOND);
    settle(&group);
    assert_eq!(log.count("inactive"), 0);
    clock.advance(SECOND + Duration::from_millis(100));
    log.wait_for("inactive");
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0, "the peer sees the end of the stream");
}

#[test]
fn a_slow_large_write_is_not_idle() {
    const SIZE: usize = 64 * 1024 * 1024;
    let log = Log::new();
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let handlers = log.clone();
    let server = ServerBootstrap::new(&group)
        .channel_options(ChannelOptions::new().max_outbound(2 * SIZE))
        .pipeline(move |_| {
            let handler = Recorder::with(&handlers, |ctx, call| {
                if call.is_active() {
                    ctx.write(Bytes::from(vec![7; SIZE]))?;
                }
                Ok(())
            });
            Pipeline::codec(RawBytes).idle(IdleTimeouts::new().writer(10 * SECOND)).handler(handler)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    let written = || group.next().metrics().bytes_written as usize;
    let is_idle = || log.all().iter().any(|line| line.starts_with("idle"));
    log.wait_for("active");
    let mut buffer = vec![0; 4 * 1024 * 1024];
    for n in 1..=SIZE / buffer.len() {
        let before = written();
        peer.read_exact(&mut buffer).unwrap();
        assert!(buffer.iter().all(|byte| *byte == 7));
        // That makes room, so the server's kernel accepts more. Nine seconds later, the peer reads
        // the next part.
        wait_until("the next write", || written() > before || before >= SIZE);
        settle(&group);
        assert!(!is_idle(), "after part {n}");
        if written() < SIZE {
            clock.advance(9 * SECOND);
            settle(&group);
        }
    }
    settle(&group);
    assert!(!is_idle());
    clock.advance(11 * SECOND);
    log.wait_for("idle Writer idle, first");
}

#[test]
fn the_interval_can_be_changed_at_runtime() {
    let log = Log::new();
    let inner = log.clone();
    // Mobile clients do this: from 4.5 minutes in steps of one minute up to 9.5, until the
    // connection breaks.
    let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
        if let Event::Idle(_) = call {
            let interval = (ctx.idle_timeouts(), ctx.now());
            inner.push("ping");
            let next = Duration::from_secs(270 + 60 * (inner.all().len() as u64).min(5));
            ctx.set_idle_timeouts(IdleTimeouts::new().writer(next));
            assert_ne!(ctx.idle_timeouts(), interval.0);
            return ctx.write(Bytes::from_static(b"ping"));
        }
        Ok(())
    });
    let idle = IdleTimeouts::new().writer(Duration::from_secs(270));
    let pipeline = Pipeline::codec(Line::new()).idle(idle).handler(handler);
    let mut channel =
        EmbeddedChannel::builder(pipeline).wheel_tick(Duration::from_millis(100)).build().unwrap();
    for (n, interval) in [270, 330, 390, 450, 510].into_iter().enumerate() {
        channel.advance(Duration::from_secs(interval) - SECOND);
        assert_eq!(log.all().len(), n, "no event before {interval} s");
        channel.advance(SECOND + Duration::from_millis(100));
        assert_eq!((log.all().len(), channel.timers()), (n + 1, 1));
    }
}

#[test]
fn a_timeout_within_a_frame_leaves_the_frame_intact() {
    let log = Log::new();
    let inner = log.clone();
    let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
        match call {
            Event::Read(frame) => inner.push(format!("frame of {}", frame.len())),
            Event::Active(_) => {
                let log = inner.clone();
                ctx.schedule(Delay::coarse(SECOND), move |_, _| {
                    log.push("timeout");
                    Ok(())
                });
            }
            Event::Idle(_) => inner.push("idle"),
            _ => {}
        }
        Ok(())
    });
    let idle = IdleTimeouts::new().reader(2 * SECOND);
    let limits = TimeLimits::new().read(60 * SECOND);
    let pipeline = Pipeline::codec(LengthField::u32()).idle(idle).time_limits(limits).handler(handler);
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"\0\0\0\x0ahello").unwrap();
    channel.advance(3 * SECOND);
    channel.write_inbound(b"world\0\0\0\x01").unwrap();
    channel.advance(3 * SECOND);
    channel.write_inbound(b"x").unwrap();
    assert_eq!(log.all(), ["timeout", "idle", "frame of 10", "idle", "frame of 1"]);
}
