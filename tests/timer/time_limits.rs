//! Time limits that close a channel: reading and writing (I-16 to I-18), and the minimum progress
//! of a message. `first_byte.rs` tests the limits for the first byte and the first message.

use crate::support::{
    channels::{Limited, NOTHING, TICK},
    journal::Log,
    recorder::Recorder,
    tcp::connect,
    wait::{SECOND, wait_until},
};
use bytes::Bytes;
use netwheel::{
    channel::TimeLimits,
    codec::{Line, RawBytes},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{io::Write, time::Duration};

#[test]
fn i_16_a_silent_peer_times_out_once_and_is_closed() {
    let mut limited = Limited::new(TimeLimits::new().read(5 * SECOND));
    assert_eq!(limited.advance(4 * SECOND), NOTHING);
    limited.channel.write_inbound(b"x").unwrap();
    assert_eq!(limited.advance(5 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["9s error reading timed out after 5s", "9s inactive"]);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert_eq!(limited.channel.timers(), 0);
}

#[test]
fn i_16_a_timeout_is_reported_once_even_if_the_close_takes_long() {
    let mut limited = Limited::new(TimeLimits::new().read(SECOND));
    limited.channel.set_outbound_room(Some(0));
    limited.write();
    assert_eq!(limited.advance(SECOND), ["1s error reading timed out after 1s"]);
    // The channel waits until the peer has read its pending bytes, but at most for its close
    // timeout.
    assert_eq!(limited.advance(20 * SECOND), ["11s inactive"]);
}

#[test]
fn i_16_the_limit_is_suspended_while_the_program_does_not_read() {
    let mut limited = Limited::with(TimeLimits::new().read(5 * SECOND), |ctx, call| {
        if call.is_active() {
            ctx.set_auto_read(false);
        }
        Ok(())
    });
    assert_eq!(limited.advance(60 * SECOND), NOTHING);
    limited
        .channel
        .channel()
        .execute(|ctx| {
            ctx.set_auto_read(true);
            Ok(())
        })
        .unwrap();
    let log = limited.advance(11 * SECOND);
    assert_eq!(log.len(), 2, "the limit counts again when the program reads: {log:?}");
}

#[test]
fn i_17_a_write_that_is_not_accepted_in_time_fails_the_channel() {
    let mut limited = Limited::new(TimeLimits::new().write(5 * SECOND));
    limited.channel.set_outbound_room(Some(2));
    limited.write();
    assert_eq!(limited.advance(5 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["5s error writing timed out after 5s", "5s inactive"]);
    assert_eq!(limited.channel.read_outbound(), &b"li"[..]);
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
}

#[test]
fn i_17_progress_does_not_save_a_write_that_takes_too_long() {
    let mut limited = Limited::new(TimeLimits::new().write(5 * SECOND));
    limited.channel.set_outbound_room(Some(0));
    limited.write();
    for _ in 0..4 {
        assert_eq!(limited.advance(SECOND), NOTHING);
        limited.channel.set_outbound_room(Some(1));
    }
    assert_eq!(limited.advance(SECOND).len(), 2);
}

#[test]
fn i_18_a_write_that_is_accepted_in_time_leaves_no_timer() {
    let mut limited = Limited::new(TimeLimits::new().write(5 * SECOND));
    for _ in 0..10 {
        limited.write();
        assert_eq!(limited.advance(4 * SECOND), NOTHING);
    }
    assert_eq!(limited.advance(100 * SECOND), NOTHING);
    assert_eq!(limited.channel.timers(), 0, "no limit is pending");
    assert!(limited.channel.is_open());
}

#[test]
fn i_18_consecutive_writes_each_have_their_own_limit() {
    let mut limited = Limited::new(TimeLimits::new().write(5 * SECOND));
    limited.channel.set_outbound_room(Some(0));
    limited.write();
    limited.advance(3 * SECOND);
    limited.write();
    // The first write is accepted at 4 s. The second was written at 3 s.
    limited.advance(SECOND);
    limited.channel.set_outbound_room(Some(6));
    assert_eq!(limited.advance(4 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["8s error writing timed out after 5s", "8s inactive"]);
}

#[test]
fn i_18_zero_disables_and_limits_can_be_changed_at_any_time() {
    let mut limited = Limited::new(TimeLimits::new().read(SECOND).write(Duration::ZERO));
    let set = |limited: &mut Limited, limits| {
        let change = move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
            ctx.set_time_limits(limits);
            assert_eq!(ctx.time_limits(), limits);
            Ok(())
        };
        limited.channel.channel().execute(change).unwrap();
        limited.channel.run_pending();
    };
    set(&mut limited, TimeLimits::new());
    assert_eq!((limited.advance(100 * SECOND).len(), limited.channel.timers()), (0, 0));
    // A limit that was off counts from the moment at which it is set.
    set(&mut limited, TimeLimits::new().read(2 * SECOND));
    assert_eq!(limited.advance(2 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK).len(), 2);
}

#[test]
fn i_18_a_write_limit_that_was_off_counts_from_the_moment_at_which_it_is_set() {
    let write = TimeLimits::new().write(5 * SECOND);
    let mut limited = Limited::new(write);
    limited.channel.set_outbound_room(Some(0));
    limited.write();
    limited.write();
    limited.set(TimeLimits::new());
    assert_eq!(limited.advance(60 * SECOND), NOTHING);
    limited.set(write);
    assert_eq!(limited.advance(SECOND), NOTHING);
    // The first write is accepted. The limit of the second one was off, too.
    limited.channel.set_outbound_room(Some(6));
    assert_eq!(limited.advance(4 * SECOND - TICK), NOTHING);
    assert_eq!(limited.advance(TICK), ["65s error writing timed out after 5s", "65s inactive"]);
}

fn progress() -> Limited {
    Limited::new(TimeLimits::new().progress(10, 5 * SECOND))
}

#[test]
fn a_message_that_arrives_too_slowly_is_an_error() {
    let mut limited = progress();
    assert_eq!(limited.advance(60 * SECOND), NOTHING, "no message has started");
    for _ in 0..4 {
        limited.channel.write_inbound(b"x").unwrap();
        assert_eq!(limited.advance(SECOND), NOTHING);
    }
    limited.channel.write_inbound(b"x").unwrap();
    let error =
        "65s error the peer violated the protocol: 5 bytes of a message in 5s; at least 10 are required";
    assert_eq!(limited.advance(SECOND), [error, "65s inactive"]);
}

#[test]
fn enough_bytes_or_a_complete_message_in_each_interval_are_enough() {
    let mut limited = progress();
    // Ten bytes of one message in each five seconds.
    for _ in 0..60 {
        limited.channel.write_inbound(b"xx").unwrap();
        assert_eq!(limited.advance(SECOND), NOTHING);
    }
    // One short message after another, and the next one has always started.
    limited.channel.write_inbound(b"\nx").unwrap();
    for _ in 0..20 {
        assert_eq!(limited.advance(4 * SECOND), NOTHING);
        limited.channel.write_inbound(b"\nx").unwrap();
    }
    limited.channel.write_inbound(b"\n").unwrap();
    assert_eq!(limited.advance(60 * SECOND), NOTHING, "no message has started");
    assert!(limited.channel.is_open());
}

#[test]
fn a_message_that_stops_half_way_is_reported_with_its_bytes() {
    let mut limited = progress();
    limited.channel.write_inbound(b"hel").unwrap();
    limited.advance(SECOND);
    limited.channel.write_inbound(b"lo").unwrap();
    assert_eq!(limited.advance(4 * SECOND - TICK), NOTHING);
    let error =
        "5s error the peer violated the protocol: 5 bytes of a message in 5s; at least 10 are required";
    assert_eq!(limited.advance(TICK), [error, "5s inactive"]);
}

#[test]
fn a_progress_limit_that_is_set_behind_half_a_message_counts_from_then() {
    let limits = TimeLimits::new().progress(10, 5 * SECOND);
    let error = |at| {
        format!(
            "{at} error the peer violated the protocol: 3 bytes of a message in 5s; at least 10 are required"
        )
    };
    // Without limits before, with other limits, and with one that was on when the message began.
    let others = TimeLimits::new().read(1000 * SECOND);
    for (first, then) in [(TimeLimits::new(), None), (others, None), (limits, Some(TimeLimits::new()))] {
        let mut limited = Limited::new(first);
        limited.receive(b"hel");
        if let Some(then) = then {
            limited.set(then);
        }
        assert_eq!(limited.advance(60 * SECOND), NOTHING);
        limited.set(limits);
        assert_eq!(limited.advance(5 * SECOND - TICK), NOTHING);
        assert_eq!(limited.advance(TICK), [error("65s"), "65s inactive".to_owned()]);
    }
}

#[test]
fn a_codec_that_consumes_every_byte_has_no_message_in_progress() {
    let limits = TimeLimits::new().progress(1000, SECOND);
    let pipeline = Pipeline::codec(RawBytes).time_limits(limits).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    for _ in 0..10 {
        channel.write_inbound(b"x").unwrap();
        channel.advance(SECOND);
    }
    assert!(channel.is_open());
}

#[test]
fn all_limits_and_idle_timeouts_share_one_entry_on_the_wheel() {
    let limits = TimeLimits::new().read(SECOND).write(SECOND).progress(1, SECOND);
    let limits = limits.first_byte(SECOND).first_message(SECOND);
    let idle = IdleTimeouts::new().reader(SECOND).writer(SECOND).all(SECOND);
    let pipeline = Pipeline::codec(Line::new()).idle(idle).time_limits(limits);
    let mut channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&Log::new())));
    channel.set_outbound_room(Some(0));
    channel.channel().write("x".into()).unwrap();
    channel.write_inbound(b"x").unwrap();
    assert_eq!(channel.timers(), 1);
}

#[test]
fn over_tcp_a_slow_message_closes_the_channel() {
    let group = EventLoopGroup::builder().threads(1).wheel_tick(TICK).build().unwrap();
    let log = Log::new();
    let handlers = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let limits = TimeLimits::new().progress(1000, Duration::from_millis(20));
            Pipeline::codec(Line::new()).time_limits(limits).handler(Recorder::new(&handlers))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    // Send single bytes until the connection is closed.
    wait_until("the end of the connection", || log.count("inactive") > 0 || peer.write_all(b"x").is_err());
    log.wait_until("the error", |log| log.iter().any(|line| line.contains("bytes of a message in 20ms")));
    log.wait_for("inactive");
}
