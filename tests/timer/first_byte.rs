//! Peers that connect and say nothing, or never come to the end of their first message: limits for the first byte and
//! for the first message.

use crate::support::{
    channels::{Limited, NOTHING, TICK},
    journal::Log,
    loops::{advance, end, settle, single},
    recorder::{Event, Recorder},
    tcp::{ask, connect, read_to_end},
    wait::{self, SECOND},
};
use bytes::Bytes;
use netwheel::{
    Error, TimeLimits,
    codec::Line,
    pipeline::{Stage, StageContext},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    io::Write,
    sync::mpsc::{Sender, channel},
    time::Duration,
};

#[test]
fn a_peer_that_says_nothing_times_out_once_and_is_closed() {
    let mut limited = Limited::new(TimeLimits::new().first_byte(5 * SECOND));
    assert_eq!(limited.advance(5 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["5s error the first byte timed out after 5s", "5s inactive"]);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert_eq!(limited.channel.timers(), 0);
}

#[test]
fn one_byte_is_enough_for_the_first_byte_also_at_once() {
    for quiet in [Duration::ZERO, 4 * SECOND] {
        let mut limited = Limited::new(TimeLimits::new().first_byte(5 * SECOND));
        limited.advance(quiet);
        limited.receive(b"x");
        assert_eq!(limited.advance(100 * SECOND), NOTHING);
        assert_eq!(limited.channel.timers(), 0, "nothing is waited for");
        assert!(limited.channel.is_open());
    }
}

#[test]
fn bytes_that_make_no_message_do_not_save_the_first_message() {
    let mut limited = Limited::new(TimeLimits::new().first_message(5 * SECOND));
    for _ in 0..4 {
        limited.receive(b"x");
        assert_eq!(limited.advance(SECOND), NOTHING);
    }
    assert_eq!(limited.advance(SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["5s error the first message timed out after 5s", "5s inactive"]);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
}

#[test]
fn a_whole_message_ends_the_wait_also_if_the_handler_fails_at_it() {
    for fails in [false, true] {
        let mut limited =
            Limited::with(TimeLimits::new().first_message(5 * SECOND), move |_, call| match call {
                Event::Read(_) if fails => Err("on purpose".into()),
                _ => Ok(()),
            });
        limited.receive(b"hel");
        limited.advance(4 * SECOND);
        limited.receive(b"lo\n");
        limited.log.take();
        // The next one has begun, and has no limit.
        limited.receive(b"x");
        assert_eq!(limited.advance(100 * SECOND), NOTHING);
        assert!(limited.channel.is_open());
    }
}

/// Keeps what begins with `-` for itself.
struct Keeps;

impl Stage for Keeps {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Bytes>, message: Bytes) -> Result<Option<Bytes>> {
        Ok((!message.starts_with(b"-")).then_some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn what_a_stage_keeps_is_no_message_for_the_handler() {
    let limits = TimeLimits::new().first_message(5 * SECOND);
    let log = Log::new();
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).stage(Keeps);
    let mut channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&log)));
    channel.write_inbound(b"-a pong\n").unwrap();
    channel.advance(6 * SECOND);
    assert_eq!(log.count("error the first message timed out after 5s"), 1);
    assert_eq!(log.count("inactive"), 1);
}

#[test]
fn a_program_that_does_not_read_is_not_the_peers_fault() {
    let limits = TimeLimits::new().first_byte(5 * SECOND).first_message(6 * SECOND);
    let mut limited = Limited::with(limits, |ctx, call| {
        if call.is_active() {
            ctx.set_auto_read(false);
        }
        Ok(())
    });
    assert_eq!(limited.advance(60 * SECOND), NOTHING);
}

#[test]
fn limits_that_are_set_later_know_what_has_come() {
    let both = TimeLimits::new().first_byte(SECOND).first_message(2 * SECOND);
    let mut limited = Limited::new(TimeLimits::new());
    limited.receive(b"x");
    limited.set(both);
    // The byte has come, the message has not: it counts from now on.
    assert_eq!(limited.advance(2 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["2s error the first message timed out after 2s", "2s inactive"]);

    let mut limited = Limited::new(TimeLimits::new());
    limited.receive(b"x\n");
    limited.set(both);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert!(limited.channel.is_open());

    // Set in the very callback of the first message.
    let mut limited = Limited::with(TimeLimits::new(), move |ctx, call| {
        if matches!(call, Event::Read(_)) {
            ctx.set_time_limits(both);
        }
        Ok(())
    });
    limited.receive(b"x\n");
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert!(limited.channel.is_open());
}

/// Sends back what it reads, and tells what it failed with.
struct Told(Sender<Error>);

impl Handler for Told {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        let _ = self.0.send(error);
        Ok(())
    }
}

#[test]
fn first_byte_deadline() {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).wheel_tick(TICK));
    let (errors, failed) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let limits = TimeLimits::new().first_byte(5 * SECOND).first_message(20 * SECOND);
            Pipeline::codec(Line::new()).time_limits(limits).handler(Told(errors.clone()))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let [mut mute, mut drips, mut talks] = [(); 3].map(|()| connect(server.local_address()));
    drips.write_all(b"h").unwrap();
    ask(&mut talks, "hello\n", "hello\n");
    let arrived = |channels, bytes| {
        while event_loop.metrics().channels != channels || event_loop.metrics().bytes_read != bytes {
            settle(&event_loop);
        }
    };
    arrived(3, 7);

    advance(&event_loop, &clock, 5 * SECOND - TICK);
    assert_eq!(event_loop.metrics().channels, 3, "never early");
    advance(&event_loop, &clock, 2 * TICK);
    assert!(read_to_end(&mut mute).is_empty());
    let error = failed.recv_timeout(wait::PATIENCE).unwrap();
    assert!(
        matches!(error, Error::TimedOut { operation: "the first byte", after, .. } if after == 5 * SECOND),
        "{error}"
    );

    drips.write_all(b"e").unwrap();
    arrived(2, 8);
    advance(&event_loop, &clock, 15 * SECOND - 3 * TICK);
    assert_eq!(event_loop.metrics().channels, 2, "never early");
    advance(&event_loop, &clock, 4 * TICK);
    assert!(read_to_end(&mut drips).is_empty());
    let error = failed.recv_timeout(wait::PATIENCE).unwrap();
    assert!(
        matches!(error, Error::TimedOut { operation: "the first message", after, .. } if after == 20 * SECOND),
        "{error}"
    );

    advance(&event_loop, &clock, 3600 * SECOND);
    ask(&mut talks, "still\n", "still\n");
    assert!(failed.try_recv().is_err());
    assert_eq!(event_loop.metrics().wheel_pending, 0, "nothing is watched any more");
    end(&group);
}
