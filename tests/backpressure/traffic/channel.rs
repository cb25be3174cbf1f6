//! Traffic limits of a single channel: H-01 to H-05.

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    wait::ms,
};
use crate::traffic::{SLOW, bytes, read, set, shaped, with};
use bytes::Bytes;
use netwheel::{
    Error,
    buffer::{KEEP_FROM, WaterMark},
    channel::{ChannelOptions, TimeLimits},
    codec::{Line, RawBytes},
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
    traffic::TrafficLimits,
};
use std::time::Duration;

/// H-01: bytes that have been read are delivered, then reading pauses. Auto-read does not change.
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
    // Bytes that arrive during the pause wait as well.
    channel.write_inbound(&[b'x'; 50]).unwrap();
    assert_eq!((read(&log), channel.timers()), (0, 1));
    channel.advance(ms(100));
    assert_eq!(read(&log), 100);
    channel.advance(ms(50));
    assert_eq!(read(&log), 50, "the last bytes");
    // The last read was as large as the limit allows, so only the next one finds that no bytes
    // remain.
    channel.advance(ms(50));
    assert_eq!((read(&log), channel.timers()), (0, 0), "no read is pending");
    channel.advance(Duration::from_secs(10));
    channel.write_inbound(&[b'x'; 250]).unwrap();
    assert_eq!(read(&log), 100, "an idle period does not exceed the burst");
}

/// H-01: a pause lasts at least ten milliseconds.
#[test]
fn h_01_input_within_the_limit_is_not_delayed_and_no_pause_is_below_10_ms() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    for _ in 0..100 {
        channel.write_inbound(&[b'x'; 5]).unwrap();
        assert_eq!((read(&log), channel.timers()), (5, 0));
        channel.advance(ms(5));
    }
    let mut channel = shaped(TrafficLimits::new().read(SLOW).read_burst(1), &log);
    channel.write_inbound(&[b'x'; 100]).unwrap();
    assert_eq!(read(&log), 10, "a burst is at least the bytes of 10 ms");
    assert_eq!(channel.next_timer(), Some(ms(10)));
}

/// H-02: bytes above the limit are sent later, followed by later writes.
#[test]
fn h_02_a_write_limit_delays_output_and_keeps_the_order() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    // Chunks of both kinds: copied, and kept by reference.
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
    assert_eq!(sent.len(), 150, "later writes do not overtake earlier ones");
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

/// H-03: the marks and the limit of the channel apply. Its buffer is the only queue.
#[test]
fn h_03_delayed_bytes_count_towards_the_marks_and_the_limit() {
    let log = Log::new();
    let options = ChannelOptions::new().water_mark(WaterMark::new(100, 300).unwrap()).max_outbound(1_000);
    let limits = TrafficLimits::new().write(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    let handle = channel.channel();
    handle.write(bytes(401)).unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["active", "writable false"], "301 bytes are pending");
    assert!(!handle.is_writable());
    channel.advance(ms(200));
    assert_eq!((channel.pending_bytes(), log.take()), (101, vec![]));
    channel.advance(ms(50));
    assert_eq!(log.take(), ["writable true"]);
    handle.write(bytes(949)).unwrap();
    channel.run_pending();
    let refused = handle.write(bytes(1)).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { limit: 1_000, .. }), "{refused:?}");
    assert_eq!(refused.into_inner(), bytes(1), "the message is handed back");
}

/// H-03: one pause lasts at most 100 ms, or the time of one byte.
#[test]
fn h_03_no_pause_is_longer_than_100_ms_or_one_byte() {
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

/// H-04: the end of a pause does not read if the user has turned auto-read off.
#[test]
fn h_04_the_end_of_a_pause_does_not_change_auto_read() {
    let log = Log::new();
    let hold = |_: &mut Context<'_, Recorder>, _: &Event| Ok(());
    let mut channel = with(
        &ChannelOptions::new(),
        &ManualClock::new(),
        TrafficLimits::new().read(SLOW),
        Recorder::with(&log, hold),
    );
    let auto_read = |channel: &mut EmbeddedChannel<Bytes>, on: bool| {
        let set = move |scope: &mut netwheel::ChannelContext<'_, Bytes>| {
            assert_eq!(scope.auto_read(), !on, "the pause has not changed auto-read");
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
    assert_eq!((read(&log), channel.timers()), (0, 0), "the pause has ended, and nothing is read");
    auto_read(&mut channel, true);
    assert_eq!(read(&log), 100);
    // Turning auto-read on during a pause has no effect before the end of the pause.
    auto_read(&mut channel, false);
    auto_read(&mut channel, true);
    assert_eq!(read(&log), 0);
    channel.advance(ms(50));
    assert_eq!(read(&log), 50);
}

/// H-04: a read requested during a pause happens once, at its end.
#[test]
fn h_04_a_requested_read_waits_for_the_end_of_the_pause() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false).read_size(80);
    let limits = TrafficLimits::new().read(SLOW);
    let mut channel = with(&options, &ManualClock::new(), limits, Recorder::new(&log));
    let ask = |channel: &mut EmbeddedChannel<Bytes>| {
        let ask = |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
            ctx.read();
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
    assert_eq!(read(&log), 0, "no further read was requested");
}

/// Bytes that were read before the pause are decoded without another delay.
#[test]
fn messages_in_buffered_bytes_are_not_delayed() {
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
    let on = |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
        ctx.set_auto_read(true);
        Ok(())
    };
    channel.channel().execute(on).unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["read b", "read_complete"]);
}

/// H-05: removing the limits sends pending bytes, resumes reading, and leaves no timer.
#[test]
fn h_05_removing_the_limits_sends_pending_bytes_and_resumes_reading() {
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
        .execute(|ctx| {
            assert!(ctx.traffic().is_off());
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    assert!(channel.is_open());
}

/// H-05: a closed channel leaves no timer, and `close_now` drops pending bytes.
#[test]
fn h_05_close_now_does_not_wait_for_the_limit() {
    let mut channel = shaped(TrafficLimits::new().write(SLOW), &Log::new());
    channel.channel().write(bytes(5_000)).unwrap();
    channel.run_pending();
    channel.channel().close_now();
    channel.run_pending();
    assert!(channel.is_closed());
    assert_eq!((channel.read_outbound().len(), channel.timers()), (100, 0));
}

#[test]
fn changing_limits_at_run_time_keeps_the_used_budget() {
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
        // Setting the same limits again grants no additional budget.
        set(&mut channel, TrafficLimits::new().write(10 * SLOW));
    }
    assert_eq!(channel.read_outbound().len(), 0);
    channel.advance(ms(50));
    assert_eq!(channel.read_outbound().len(), 500);
}

#[test]
fn a_graceful_close_sends_at_the_same_rate_until_its_timeout() {
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
fn the_end_of_the_output_follows_pending_bytes() {
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
fn the_end_of_the_input_follows_all_its_bytes() {
    let log = Log::new();
    let mut channel = shaped(TrafficLimits::new().read(SLOW), &log);
    channel.write_inbound(&[b'x'; 200]).unwrap();
    channel.end_inbound();
    assert!(channel.is_open());
    channel.advance(ms(100));
    assert_eq!(read(&log), 200);
    // The end requires another read, because the last one was as large as the limit allows.
    channel.advance(ms(50));
    assert!(channel.is_closed());
}

#[test]
fn time_limits_do_not_count_traffic_pauses_against_the_peer() {
    let log = Log::new();
    let limits = TimeLimits::new().read(ms(20)).progress(1_000, ms(20));
    // The codec waits for the end of the line, which never arrives.
    let pipeline = Pipeline::codec(Line::new()).traffic(TrafficLimits::new().read(SLOW)).time_limits(limits);
    let mut channel = EmbeddedChannel::new(pipeline.handler(Recorder::new(&log)));
    channel.write_inbound(&[b'x'; 400]).unwrap();
    // The last read was as large as the limit allows, so the pause lasts until the next read finds
    // nothing, at 350 ms. The limits restart then, and not when they last expired in the pause.
    channel.advance(ms(369));
    assert!(channel.is_open(), "{:?}", log.all());
    channel.advance(ms(1));
    assert!(channel.is_closed(), "no bytes remain, and the peer sends no more");
}

/// A channel that sends slowly, with a write limit of 20 ms.
fn slow_with_write_limit(log: &Log) -> EmbeddedChannel<Bytes> {
    let pipeline = Pipeline::codec(RawBytes)
        .traffic(TrafficLimits::new().write(SLOW))
        .time_limits(TimeLimits::new().write(ms(20)))
        .handler(Recorder::new(log));
    EmbeddedChannel::new(pipeline)
}

/// Checks that the write limit of a channel ends at a time from now.
#[track_caller]
fn assert_times_out_after(channel: &mut EmbeddedChannel<Bytes>, log: &Log, time: Duration) {
    channel.advance(time - ms(1));
    assert_eq!(log.all(), ["active"]);
    channel.advance(ms(1));
    assert_eq!(log.all(), ["active", "error writing timed out after 20ms", "inactive", "drop"]);
}

#[test]
fn the_write_limit_counts_blocked_bytes_but_not_delayed_ones() {
    let log = Log::new();
    let mut channel = slow_with_write_limit(&log);
    channel.channel().write(bytes(600)).unwrap();
    channel.run_pending();
    channel.advance(ms(449));
    channel.set_outbound_room(Some(0));
    // The pause ends at 450 ms.
    assert_times_out_after(&mut channel, &log, ms(21));
}

#[test]
fn the_write_limit_of_later_writes_restarts_after_a_pause_too() {
    let log = Log::new();
    let mut channel = slow_with_write_limit(&log);
    // The first write is accepted after the pause, and a part of the second one.
    channel.set_outbound_room(Some(130));
    channel.channel().write(bytes(120)).unwrap();
    channel.run_pending();
    channel.channel().write(bytes(80)).unwrap();
    channel.run_pending();
    channel.advance(ms(50));
    assert_eq!(channel.pending_bytes(), 70);
    assert_times_out_after(&mut channel, &log, ms(20));
}

#[test]
fn the_write_limit_restarts_when_the_program_ends_a_pause() {
    let log = Log::new();
    let mut channel = slow_with_write_limit(&log);
    channel.channel().write(bytes(150)).unwrap();
    channel.run_pending();
    channel.advance(ms(39));
    channel.set_outbound_room(Some(0));
    set(&mut channel, TrafficLimits::new());
    assert_times_out_after(&mut channel, &log, ms(20));
}
