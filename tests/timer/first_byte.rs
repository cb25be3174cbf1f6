//! Peers that connect and send nothing, or never complete their first message: time limits for the
//! first byte and for the first message.

use crate::support::{
    channels::{Limited, NOTHING, TICK},
    journal::Log,
    logs,
    loops::{advance, end, settle, single},
    recorder::{Event, Recorder},
    tcp::{ask, connect, read_to_end},
    wait::{self, SECOND},
};
use bytes::Bytes;
use netwheel::{
    ChannelContext, Error, Stage, StageContext,
    channel::TimeLimits,
    codec::Line,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    io::Write,
    sync::mpsc::{Sender, channel},
    time::Duration,
};

#[test]
fn a_silent_peer_times_out_once_and_is_closed() {
    let mut limited = Limited::new(TimeLimits::new().first_byte(5 * SECOND));
    assert_eq!(limited.advance(5 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["5s error the first byte timed out after 5s", "5s inactive"]);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert_eq!(limited.channel.timers(), 0);
}

#[test]
fn one_byte_satisfies_the_limit_for_the_first_byte_even_if_it_arrives_at_once() {
    for quiet in [Duration::ZERO, 4 * SECOND] {
        let mut limited = Limited::new(TimeLimits::new().first_byte(5 * SECOND));
        limited.advance(quiet);
        limited.receive(b"x");
        assert_eq!(limited.advance(100 * SECOND), NOTHING);
        assert_eq!(limited.channel.timers(), 0, "no limit is pending");
        assert!(limited.channel.is_open());
    }
}

/// While the program does not read, the peer cannot be late. The limit counts from the moment at
/// which the program reads again, also if no entry has expired in between.
#[test]
fn limits_on_input_restart_when_the_program_reads_again() {
    let limits = TimeLimits::new().first_message(5 * SECOND);
    let resumptions: [fn(&mut ChannelContext<'_, Bytes>); 2] =
        [|ctx| ctx.set_auto_read(true), |ctx| ctx.read()];
    for resume in resumptions {
        let mut limited = Limited::with(limits, |ctx, call| {
            if call.is_active() {
                ctx.set_auto_read(false);
            }
            Ok(())
        });
        assert_eq!(limited.advance(4 * SECOND), NOTHING);
        let resume = move |ctx: &mut ChannelContext<'_, Bytes>| {
            resume(ctx);
            Ok(())
        };
        limited.channel.channel().execute(resume).unwrap();
        limited.channel.run_pending();
        is_late_five_seconds_after_the_fourth(&mut limited);
    }
    let (sender, held) = channel();
    let mut limited = Limited::with(limits, move |ctx, call| {
        if call.is_active() {
            sender.send(ctx.hold_input(1 << 30)).unwrap();
        }
        Ok(())
    });
    assert_eq!(limited.advance(4 * SECOND), NOTHING);
    drop(held.recv());
    limited.channel.run_pending();
    is_late_five_seconds_after_the_fourth(&mut limited);
}

#[track_caller]
fn is_late_five_seconds_after_the_fourth(limited: &mut Limited) {
    assert_eq!(limited.advance(5 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["9s error the first message timed out after 5s", "9s inactive"]);
}

#[test]
fn bytes_without_a_message_do_not_satisfy_the_limit_for_the_first_message() {
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
fn a_complete_message_ends_the_limit_even_if_the_handler_fails() {
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
        // The next message has started, and has no limit.
        limited.receive(b"x");
        assert_eq!(limited.advance(100 * SECOND), NOTHING);
        assert!(limited.channel.is_open());
    }
}

/// Consumes messages that begin with `-`.
struct Keeps;

impl Stage for Keeps {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok((!message.starts_with(b"-")).then_some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn a_message_that_a_stage_consumes_does_not_count() {
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
fn the_limits_are_suspended_while_the_program_does_not_read() {
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
fn limits_set_later_take_earlier_input_into_account() {
    let both = TimeLimits::new().first_byte(SECOND).first_message(2 * SECOND);
    let mut limited = Limited::new(TimeLimits::new());
    limited.receive(b"x");
    limited.set(both);
    // The byte has arrived, the message has not. Its limit counts from now on.
    assert_eq!(limited.advance(2 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["2s error the first message timed out after 2s", "2s inactive"]);

    let mut limited = Limited::new(TimeLimits::new());
    limited.receive(b"x\n");
    limited.set(both);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert!(limited.channel.is_open());

    // Set in the callback of the first message.
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

/// Echoes its input, and reports its error.
struct ReportsError(Sender<Error>);

impl Handler for ReportsError {
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

/// A handler whose name is in the log.
struct LogsSilentPeers;

impl Handler for LogsSilentPeers {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn a_silent_peer_is_logged_like_a_peer_that_breaks_the_protocol() {
    logs::collect();
    let [first_byte, first_message] =
        [TimeLimits::new().first_byte(SECOND), TimeLimits::new().first_message(SECOND)];
    for (limits, operation) in [(first_byte, "the first byte"), (first_message, "the first message")] {
        let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(LogsSilentPeers);
        let mut channel: EmbeddedChannel<Bytes> = EmbeddedChannel::new(pipeline);
        channel.advance(2 * SECOND);
        assert!(channel.is_closed());
        let lines = logs::lines_with("LogsSilentPeers");
        let expected = format!("{operation} timed out after 1s");
        assert!(lines.iter().any(|line| line.starts_with("INFO ") && line.ends_with(&expected)), "{lines:?}");
    }
}

#[test]
fn first_byte_limits_over_tcp() {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()).wheel_tick(TICK));
    let (errors, failed) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let limits = TimeLimits::new().first_byte(5 * SECOND).first_message(20 * SECOND);
            Pipeline::codec(Line::new()).time_limits(limits).handler(ReportsError(errors.clone()))
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
    assert_eq!(event_loop.metrics().channels, 3, "no connection is closed early");
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
    assert_eq!(event_loop.metrics().channels, 2, "no connection is closed early");
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
    assert_eq!(event_loop.metrics().wheel_pending, 0, "no timeout is pending");
    end(&group);
}
