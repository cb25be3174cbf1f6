//! The limits of one channel: H-01 to H-05.

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    wait::ms,
};
use crate::traffic::{SLOW, bytes, read, set, shaped, with};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, Error, TimeLimits, TrafficLimits,
    buffer::{KEEP_FROM, WaterMark},
    codec::{Line, RawBytes},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

/// H-01: what is read is delivered, then reading pauses; auto-read stays as it is.
#[test]
fn h_01_a_read_limit_delivers_what_it_allows_and_pauses() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    channel.write_inbound(&[b'x'; 250]).unwrap();
    assert_eq!(log.all().last().unwrap(), "read_complete");
    assert_eq!(read(&log), 100, "the burst");
    assert_eq!(channel.next_timer(), Some(ms(50)));
    channel.advance(ms(50) - Duration::from_nanos(1));
    assert_eq!(read(&log), 0);
    channel.advance(Duration::from_nanos(1));
    assert_eq!(read(&log), 50);
    // More that comes meanwhile waits behind it.
    channel.write_inbound(&[b'x'; 50]).unwrap();
    assert_eq!((read(&log), channel.timers()), (0, 1));
    channel.advance(ms(100));
    assert_eq!(read(&log), 100);
    channel.advance(ms(50));
    assert_eq!(read(&log), 50, "all of it");
    // The last read took as much as it was allowed to, so only the next one finds that nothing is left.
    channel.advance(ms(50));
    assert_eq!((read(&log), channel.timers()), (0, 0), "nothing waits for more");
    channel.advance(Duration::from_secs(10));
    channel.write_inbound(&[b'x'; 250]).unwrap();
    assert_eq!(read(&log), 100, "quiet does not add up to more than the burst");
}

/// H-01: less than ten milliseconds is not a pause.
#[test]
fn h_01_what_is_within_the_limit_is_not_held_up_and_no_pause_is_shorter_than_10_ms() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    for _ in 0..100 {
        channel.write_inbound(&[b'x'; 5]).unwrap();
        assert_eq!((read(&log), channel.timers()), (5, 0));
        channel.advance(ms(5));
    }
    let mut channel = shaped(TrafficLimits::new().read(SLOW).read_burst(1), &log);
    channel.write_inbound(&[b'x'; 100]).unwrap();
    assert_eq!(read(&log), 10, "a burst is what comes in 10 ms, at the least");
    assert_eq!(channel.next_timer(), Some(ms(10)));
}

/// H-02: what is over the limit is sent later, and what is written later goes behind it.
#[test]
fn h_02_a_write_limit_sends_later_and_keeps_the_order() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    // Chunks of both kinds: copied and kept.
    let all = bytes(2 * KEEP_FROM + 500);
    let (first, rest) = (all.slice(..300), all.slice(300..));
    channel.channel().write(first).unwrap();
    channel.run_pending();
    assert_eq!(channel.pending_bytes(), 200);
    let mut sent = channel.read_outbound().to_vec();
    channel.advance(ms(50));
    let kept = rest.slice(..KEEP_FROM + 100);
    channel.channel().write(kept).unwrap();
    channel.channel().write(rest.slice(KEEP_FROM + 100..)).unwrap();
    channel.run_pending();
    sent.extend_from_slice(&channel.read_outbound());
    assert_eq!(sent.len(), 150, "who comes later does not pass who waits");
    let mut waits = 0;
    while channel.pending_bytes() > 0 {
        channel.advance(ms(50));
        let more = channel.read_outbound();
        assert!(more.len() <= 50, "{} bytes at once", more.len());
        sent.extend_from_slice(&more);
        waits += 1;
    }
    assert_eq!(sent, all);
    assert_eq!(waits, (all.len() - 150).div_ceil(50));
    assert_eq!(channel.timers(), 0);
}

/// H-03: the channel's own marks and its own limit hold; there is no queue besides its buffer.
#[test]
fn h_03_what_waits_counts_against_the_marks_and_the_limit_of_the_channel() {
    let log = Log::new();
    let options = ChannelOptions::new().water_mark(WaterMark::new(100, 300).unwrap()).max_outbound(1_000);
    let limits = TrafficLimits::new().write(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    let handle = channel.channel();
    handle.write(bytes(401)).unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["active", "writable false"], "301 bytes wait");
    assert!(!handle.is_writable());
    channel.advance(ms(200));
    assert_eq!((channel.pending_bytes(), log.take()), (101, vec![]));
    channel.advance(ms(50));
    assert_eq!(log.take(), ["writable true"]);
    handle.write(bytes(949)).unwrap();
    channel.run_pending();
    let refused = handle.write(bytes(1)).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { limit: 1_000, .. }), "{refused:?}");
    assert_eq!(refused.into_inner(), bytes(1), "it is handed back");
}

/// H-03: one wait is 100 ms at most, or the time of one byte.
#[test]
fn h_03_no_wait_is_longer_than_100_ms_or_a_byte() {
    for (rate, burst, longest) in
        [(SLOW, 0, 50), (SLOW, 100_000, 100), (10, 0, 100), (1, 0, 1_000), (10_000_000, 0, 50)]
    {
        let limits = TrafficLimits::new().write(rate).write_burst(burst).read(rate).read_burst(burst);
        let mut channel = shaped(limits, &Log::new());
        let first = if burst > 0 { burst } else { (rate / 10) as usize };
        channel.channel().write(bytes(first + 3)).unwrap();
        channel.write_inbound(&vec![b'x'; first + 3]).unwrap();
        assert!(channel.pending_bytes() > 0 && channel.timers() == 1, "one entry for both directions");
        assert!(channel.next_timer().unwrap() <= ms(longest), "{rate} bytes a second");
    }
}

/// H-04: who has turned auto-read off is not read for when the pause ends.
#[test]
fn h_04_the_end_of_a_pause_leaves_the_users_auto_read_alone() {
    let log = Log::new();
    let hold = |_: &mut Context<'_, Recorder>, _: &Event| Ok(());
    let mut channel = with(
        &ChannelOptions::new(),
        &ManualClock::new(),
        TrafficLimits::new().read(SLOW),
        Recorder::with(&log, hold),
    );
    let auto_read = |channel: &mut EmbeddedChannel<Bytes>, on: bool| {
        let set = move |scope: &mut netwheel::Scope<'_, Bytes>| {
            assert_eq!(scope.auto_read(), !on, "the pause has not touched it");
            scope.set_auto_read(on);
            Ok(())
        };
        channel.channel().execute(set).unwrap();
        channel.run_pending();
    };
    channel.write_inbound(&[b'x'; 300]).unwrap();
    assert_eq!(read(&log), 100);
    auto_read(&mut channel, false);
    channel.advance(Duration::from_secs(1));
    assert_eq!((read(&log), channel.timers()), (0, 0), "the pause is over, and nothing is read");
    auto_read(&mut channel, true);
    assert_eq!(read(&log), 100);
    // On, while the pause goes on: nothing before its end.
    auto_read(&mut channel, false);
    auto_read(&mut channel, true);
    assert_eq!(read(&log), 0);
    channel.advance(ms(50));
    assert_eq!(read(&log), 50);
}

/// H-04: a read that was asked for in a pause is made at its end, once.
#[test]
fn h_04_a_read_that_was_asked_for_waits_for_the_end_of_the_pause() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false).read_size(80);
    let limits = TrafficLimits::new().read(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    let ask = |channel: &mut EmbeddedChannel<Bytes>| {
        let ask = |scope: &mut netwheel::Scope<'_, Bytes>| {
            scope.read();
            Ok(())
        };
        channel.channel().execute(ask).unwrap();
        channel.run_pending();
    };
    channel.write_inbound(&[b'x'; 300]).unwrap();
    for expected in [80, 20, 0] {
        ask(&mut channel);
        assert_eq!(read(&log), expected);
    }
    channel.advance(ms(50));
    assert_eq!(read(&log), 50);
    channel.advance(Duration::from_secs(1));
    assert_eq!(read(&log), 0, "nobody has asked again");
}

/// What was read before it was decoded is not held up a second time.
#[test]
fn messages_of_bytes_that_are_there_are_not_held_up() {
    let log = Log::new();
    let pipeline = Pipeline::codec(Line::new()).traffic(TrafficLimits::new().read(SLOW));
    let handler = Recorder::with(&log, |ctx, call| {
        if *call == Event::Read("a".into()) {
            ctx.set_auto_read(false);
        }
        Ok(())
    });
    let mut channel = EmbeddedChannel::new(pipeline.handler(handler));
    let text = [&b"a\nb\n"[..], &[b'x'; 200]].concat();
    channel.write_inbound(&text).unwrap();
    assert_eq!(log.take(), ["active", "read a", "read_complete"]);
    let on = |scope: &mut netwheel::Scope<'_, Bytes>| {
        scope.set_auto_read(true);
        Ok(())
    };
    channel.channel().execute(on).unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["read b", "read_complete"]);
}

/// H-05: without limits what waits goes out, reading goes on, and no timer is left.
#[test]
fn h_05_removal_sends_what_waits_and_reads_what_is_there() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW).write(SLOW), &log);
    channel.channel().write(bytes(5_000)).unwrap();
    channel.write_inbound(&[b'x'; 5_000]).unwrap();
    assert_eq!((read(&log), channel.pending_bytes(), channel.timers()), (100, 4_900, 1));
    set(&mut channel, TrafficLimits::new());
    assert_eq!((read(&log), channel.pending_bytes(), channel.timers()), (4_900, 0, 0));
    assert_eq!(channel.read_outbound(), bytes(5_000));
    channel
        .channel()
        .execute(|scope| {
            assert!(scope.traffic().is_off());
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert!(channel.is_open());
}

/// H-05: a channel that ends leaves no timer, and drops what waits if it is closed at once.
#[test]
fn h_05_a_channel_that_is_closed_at_once_waits_for_nothing() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(5_000)).unwrap();
    channel.run_pending();
    channel.channel().close_now();
    channel.run_pending();
    assert!(channel.is_closed());
    assert_eq!((channel.read_outbound().len(), channel.timers()), (100, 0));
}

#[test]
fn limits_change_at_run_time_and_what_was_used_up_stays_so() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(100_000)).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound().len(), 100);
    set(&mut channel, TrafficLimits::new().write(10 * SLOW));
    assert_eq!(channel.read_outbound().len(), 900, "a larger burst, less what was sent");
    channel.advance(Duration::from_secs(1));
    let sent = channel.read_outbound().len();
    assert_eq!(sent, 10_000);
    for _ in 0..100 {
        // Nobody gets more by setting the same again.
        set(&mut channel, TrafficLimits::new().write(10 * SLOW));
    }
    assert_eq!(channel.read_outbound().len(), 0);
    channel.advance(ms(50));
    assert_eq!(channel.read_outbound().len(), 500);
}

#[test]
fn a_graceful_close_sends_what_waits_at_the_same_rate_within_its_timeout() {
    let log = Log::new();
    let options = ChannelOptions::new().close_timeout(Duration::from_secs(1));
    let limits = TrafficLimits::new().write(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    channel.channel().write(bytes(600)).unwrap();
    channel.channel().close();
    channel.run_pending();
    assert_eq!(channel.read_outbound().len(), 100);
    channel.advance(ms(499));
    assert!(!channel.is_closed());
    channel.advance(ms(1));
    assert!(channel.is_closed());
    assert_eq!((channel.read_outbound().len(), channel.timers()), (500, 0));

    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    channel.channel().write(bytes(6_000)).unwrap();
    channel.channel().close();
    channel.run_pending();
    channel.advance(ms(999));
    assert!(!channel.is_closed());
    channel.advance(ms(1));
    assert!(channel.is_closed());
    let sent = channel.read_outbound().len();
    assert!((1_050..=1_100).contains(&sent), "{sent} bytes, and no more, at the timeout");
    assert_eq!(channel.timers(), 0);
}

#[test]
fn the_end_of_the_output_comes_behind_what_waits() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(200)).unwrap();
    channel.channel().shutdown_write();
    channel.run_pending();
    assert!(!channel.is_output_ended());
    channel.advance(ms(100));
    assert!(channel.is_output_ended());
    assert_eq!(channel.read_outbound().len(), 200);
}

#[test]
fn the_peers_end_comes_behind_what_it_has_sent() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    channel.write_inbound(&[b'x'; 200]).unwrap();
    channel.end_inbound();
    assert!(channel.is_open());
    channel.advance(ms(100));
    assert_eq!(read(&log), 200);
    // The end needs a read of its own, because the last one took as much as it was allowed to.
    channel.advance(ms(50));
    assert!(channel.is_closed());
}

#[test]
fn a_peer_is_not_blamed_for_our_own_pauses() {
    let log = Log::new();
    let limits = TimeLimits::new().read(ms(20)).progress(1_000, ms(20));
    // The codec wants a line, and none ends.
    let pipeline = Pipeline::codec(Line::new()).traffic(TrafficLimits::new().read(SLOW)).time_limits(limits);
    let mut channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&log)));
    channel.write_inbound(&[b'x'; 400]).unwrap();
    channel.advance(ms(299));
    assert!(channel.is_open(), "{:?}", log.all());
    // The last read took as much as it was allowed to, so the pause lasts until the next one finds nothing.
    channel.advance(ms(100));
    assert!(channel.is_closed(), "nothing is left to read, and the peer says no more");
}

#[test]
fn a_peer_is_not_blamed_for_what_the_limit_holds_up_but_for_what_it_does_not_take() {
    let log = Log::new();
    let pipeline = Pipeline::codec(RawBytes)
        .traffic(TrafficLimits::new().write(SLOW))
        .time_limits(TimeLimits::new().write(ms(20)))
        .handler(Recorder::new(&log));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.channel().write(bytes(600)).unwrap();
    channel.run_pending();
    channel.advance(ms(449));
    assert!(channel.is_open(), "{:?}", log.all());
    channel.set_outbound_room(Some(0));
    channel.advance(ms(51));
    assert_eq!(log.take(), ["active", "error writing timed out after 20ms", "inactive"]);
}
