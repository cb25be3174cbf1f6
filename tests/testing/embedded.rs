//! The embedded test channel itself.

use crate::support::{
    channels::{embedded, embedded_with, set_auto_read},
    journal::Log,
    recorder::{Event, Recorder},
    wait::{SECOND, reason},
};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, Clock, Error, IdleTimeouts, TimeLimits,
    codec::Line,
    prelude::*,
    stage::Heartbeat,
    testing::{EmbeddedChannel, ManualClock},
};
use std::time::Duration;

/// Schedules what it reads, in milliseconds.
fn alarm(log: &Log) -> Recorder {
    let inner = log.clone();
    Recorder::with(log, move |ctx, call| {
        if let Event::Read(message) = call {
            let delay: u64 = std::str::from_utf8(message).unwrap().parse().unwrap();
            let (log, start) = (inner.clone(), ctx.now());
            ctx.schedule(Duration::from_millis(delay), move |_, ctx| {
                log.push(format!("{delay} after {:?}", ctx.now() - start));
                Ok(())
            });
        }
        Ok(())
    })
}

#[test]
fn c_73_its_time_stands_still_until_it_is_moved() {
    let log = Log::new();
    let mut channel = embedded(alarm(&log));
    channel.write_inbound(b"100\n50\n2000\n").unwrap();
    let before = channel.clock().now();
    log.take();
    channel.run_pending();
    assert_eq!(channel.clock().now(), before);
    assert_eq!(log.take(), [""; 0]);
    assert_eq!(channel.timers(), 3);
    assert_eq!(channel.next_timer(), Some(Duration::from_millis(50)));
    channel.advance(SECOND);
    assert_eq!(channel.clock().now() - before, SECOND);
    assert_eq!(log.take(), ["50 after 50ms", "100 after 100ms"], "in order, each at its own time");
    assert_eq!(channel.next_timer(), Some(SECOND));
    channel.advance(SECOND);
    assert_eq!(log.take(), ["2000 after 2s"]);
    assert_eq!((channel.timers(), channel.next_timer()), (0, None));
}

#[test]
fn c_73_a_stall_runs_what_is_overdue_at_the_late_time() {
    let log = Log::new();
    let mut channel = embedded(alarm(&log));
    channel.write_inbound(b"100\n50\n").unwrap();
    log.take();
    channel.stall(SECOND);
    assert_eq!(log.take(), ["50 after 1s", "100 after 1s"]);
}

#[test]
fn c_73_channels_may_share_a_clock() {
    let (log, clock) = (Log::new(), ManualClock::new());
    let channel = |clock: &ManualClock| {
        let pipeline = Pipeline::codec(Line::new()).handler(alarm(&log));
        EmbeddedChannel::with(pipeline, &ChannelOptions::new(), clock.clone(), SECOND).unwrap()
    };
    let (mut first, mut second) = (channel(&clock), channel(&clock));
    first.write_inbound(b"100\n").unwrap();
    second.write_inbound(b"200\n").unwrap();
    log.take();
    first.advance(SECOND);
    assert_eq!(log.take(), ["100 after 100ms"]);
    assert!(second.has_pending(), "its time has passed too");
    second.run_pending();
    assert_eq!(log.take(), ["200 after 1s"]);
}

#[test]
fn c_73_mail_waits_until_it_is_run() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    assert!(!channel.has_pending());
    assert_eq!(channel.run_pending(), 0);
    let handle = channel.channel();
    std::thread::spawn(move || {
        handle.write("one".into()).unwrap();
        handle.execute(|scope| scope.write("two".into())).unwrap();
        handle.schedule(SECOND, |scope| scope.write("three".into())).unwrap();
        assert!(!handle.in_event_loop());
    })
    .join()
    .unwrap();
    assert!(channel.has_pending());
    assert_eq!(channel.read_outbound(), "", "nothing happens but in a call of the channel");
    assert_eq!(channel.run_pending(), 3);
    assert!(!channel.has_pending());
    assert_eq!(channel.read_outbound(), "one\ntwo\n");
    channel.advance(SECOND);
    assert_eq!(channel.read_outbound(), "three\n");
}

#[test]
fn c_73_due_timers_are_pending() {
    let log = Log::new();
    let mut channel = embedded(alarm(&log));
    channel.write_inbound(b"100\n").unwrap();
    assert!(!channel.has_pending());
    channel.clock().advance(SECOND);
    assert!(channel.has_pending());
    assert_eq!(channel.run_pending(), 1);
    assert!(!channel.has_pending());
}

#[test]
fn c_73_a_delay_of_a_handle_counts_from_its_call() {
    let mut channel = embedded(Recorder::new(&Log::new()));
    channel.channel().schedule(SECOND, |scope| scope.write("x".into())).unwrap();
    channel.clock().advance(SECOND - Duration::from_nanos(1));
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "");
    channel.clock().advance(Duration::from_nanos(1));
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "x\n");
}

// Netty's embedded channel throws at the test what nobody handled. Here a handler's `error` is always there to
// hear of it; what it does by default, close, the test can see.
#[test]
fn c_73_errors_are_the_handlers_and_the_test_sees_what_it_does() {
    struct Fails;
    impl Handler for Fails {
        type Read = Bytes;
        type Write = Bytes;
        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Err("no".into())
        }
    }
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Fails));
    channel.write_inbound(b"a\n").unwrap();
    assert!(channel.is_closed() && !channel.is_open());
}

#[test]
fn c_73_it_refuses_use_after_close_and_drops_its_timers() {
    let log = Log::new();
    let pipeline = Pipeline::codec(Line::new()).idle(IdleTimeouts::new().all(SECOND)).handler(alarm(&log));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"100\n200\n").unwrap();
    assert_eq!(channel.timers(), 3);
    let handle = channel.channel();
    channel.close();
    assert_eq!((channel.timers(), channel.next_timer()), (0, None));
    assert!(matches!(channel.write_inbound(b"1\n"), Err(Error::Closed)));
    assert!(matches!(reason(handle.write("x".into())), Error::Closed));
    assert!(matches!(handle.execute(|_| Ok(())), Err(Error::Closed)));
    log.take();
    channel.advance(10 * SECOND);
    channel.end_inbound();
    channel.fail_inbound(std::io::ErrorKind::BrokenPipe.into());
    channel.close();
    assert_eq!(log.take(), [""; 0], "and nothing more is told");
}

#[test]
fn c_73_it_refuses_bytes_after_the_peers_end() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel.write_inbound(b"kept\n").unwrap();
    channel.end_inbound();
    assert!(channel.write_inbound(b"more\n").is_err());
    assert_eq!(log.take(), ["active"], "nobody has read the end yet");
    set_auto_read(&channel.channel(), true);
    channel.run_pending();
    assert_eq!(log.take(), ["read kept", "read_complete", "read_complete", "inactive"]);
}

#[test]
fn c_73_the_peer_takes_as_much_as_it_is_told_to() {
    let mut channel = embedded(Recorder::new(&Log::new()));
    channel.set_outbound_room(Some(3));
    channel.channel().write("hello".into()).unwrap();
    channel.run_pending();
    assert_eq!((channel.read_outbound(), channel.pending_bytes()), (Bytes::from("hel"), 3));
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "");
    channel.set_outbound_room(None);
    assert_eq!((channel.read_outbound(), channel.pending_bytes()), (Bytes::from("lo\n"), 0));
}

#[test]
fn c_73_callbacks_run_as_on_the_channels_loop() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if call.is_active() {
            inner.push(format!("in the loop: {}", ctx.channel().in_event_loop()));
        }
        Ok(())
    }));
    assert_eq!(log.take(), ["active", "in the loop: true"]);
    assert!(!channel.channel().in_event_loop(), "but not in between");
}

#[test]
fn c_73_settings_are_checked() {
    let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
    let options = ChannelOptions::new().read_size(0);
    let refused = EmbeddedChannel::with(pipeline, &options, ManualClock::new(), SECOND).unwrap_err();
    assert_eq!(refused.to_string(), "read_size is 0; it must be 1 to 65536 bytes");
    let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
    let refused = EmbeddedChannel::with(pipeline, &ChannelOptions::new(), ManualClock::new(), Duration::ZERO)
        .unwrap_err();
    assert!(matches!(refused, Error::Setting(_)), "{refused}");
}

/// Timers that repeat do not repeat at the end of time.
#[test]
fn time_ends_without_a_spin() {
    const EVER: Duration = Duration::MAX;
    let log = Log::new();
    let idle = IdleTimeouts::new().reader(SECOND).writer(SECOND / 3).all(7 * SECOND);
    let limits = TimeLimits::new().read(EVER).progress(100, EVER);
    let pipeline = Pipeline::codec(Line::new()).idle(idle).time_limits(limits);
    let pipeline =
        pipeline.stage(Heartbeat::new(SECOND, || Bytes::from_static(b"ping"))).handler(alarm(&log));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.stall(EVER);
    log.take();
    for _ in 0..3 {
        channel.stall(EVER);
        channel.advance(EVER);
        channel.advance(SECOND);
    }
    assert_eq!(log.take(), [""; 0], "time stands still");
    assert_eq!(channel.run_pending(), 0);

    // Reads, writes and tasks still work.
    channel.write_inbound(b"0\n1000\n").unwrap();
    channel.run_pending();
    let ran = log.take();
    assert!(ran.iter().any(|entry| entry == "0 after 0ns"), "{ran:?}");
    assert!(
        !ran.iter().any(|entry| entry.starts_with("1000 after")),
        "what is later waits for ever: {ran:?}"
    );
    channel.close();
    assert!(channel.is_closed());
}

#[test]
fn a_channel_without_timers_goes_to_the_end_of_time_in_one_step() {
    let log = Log::new();
    let mut channel = embedded(alarm(&log));
    channel.write_inbound(b"1\n").unwrap();
    channel.advance(Duration::MAX);
    assert_eq!(log.take().last().unwrap(), "1 after 1ms");
    channel.advance(Duration::MAX);
    // A clock that was moved before ends earlier.
    let clock = ManualClock::new();
    clock.advance(SECOND);
    let tick = Duration::from_millis(1);
    let mut late = EmbeddedChannel::with(
        Pipeline::codec(Line::new()).handler(alarm(&log)),
        &ChannelOptions::new(),
        clock,
        tick,
    )
    .unwrap();
    late.write_inbound(b"18446744073708\n").unwrap();
    late.advance(Duration::MAX);
    late.advance(Duration::MAX);
}
