//! The embedded test channel.

use crate::support::{
    channels::{embedded, embedded_with, set_auto_read},
    journal::Log,
    recorder::{Event, Recorder},
    wait::{SECOND, reason},
};
use bytes::Bytes;
use netwheel::{
    Error, IdleTimeouts,
    channel::{ChannelOptions, TimeLimits},
    codec::Line,
    prelude::*,
    stage::Heartbeat,
    testing::{EmbeddedChannel, ManualClock},
    time::Clock,
};
use std::time::Duration;

/// Schedules a task after the number of milliseconds in each message.
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
fn c_73_time_advances_only_on_request() {
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
fn c_73_a_stall_runs_overdue_timers_at_the_late_time() {
    let log = Log::new();
    let mut channel = embedded(alarm(&log));
    channel.write_inbound(b"100\n50\n").unwrap();
    log.take();
    channel.stall(SECOND);
    assert_eq!(log.take(), ["50 after 1s", "100 after 1s"]);
}

#[test]
fn c_73_channels_can_share_a_clock() {
    let (log, clock) = (Log::new(), ManualClock::new());
    let channel = |clock: &ManualClock| {
        let pipeline = Pipeline::codec(Line::new()).handler(alarm(&log));
        EmbeddedChannel::builder(pipeline).clock(clock.clone()).wheel_tick(SECOND).build().unwrap()
    };
    let (mut first, mut second) = (channel(&clock), channel(&clock));
    first.write_inbound(b"100\n").unwrap();
    second.write_inbound(b"200\n").unwrap();
    log.take();
    first.advance(SECOND);
    assert_eq!(log.take(), ["100 after 100ms"]);
    assert!(second.has_pending(), "its clock has advanced as well");
    second.run_pending();
    assert_eq!(log.take(), ["200 after 1s"]);
}

#[test]
fn c_73_requests_of_handles_wait_until_they_are_run() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    assert!(!channel.has_pending());
    assert_eq!(channel.run_pending(), 0);
    let handle = channel.channel();
    std::thread::spawn(move || {
        handle.write("one".into()).unwrap();
        handle.execute(|ctx| ctx.write("two".into())).unwrap();
        handle.schedule(SECOND, |ctx| ctx.write("three".into())).unwrap();
        assert!(!handle.in_event_loop());
    })
    .join()
    .unwrap();
    assert!(channel.has_pending());
    assert_eq!(channel.read_outbound(), "", "the channel works only within its calls");
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
fn c_73_a_delay_starts_when_the_handle_schedules() {
    let mut channel = embedded(Recorder::new(&Log::new()));
    channel.channel().schedule(SECOND, |ctx| ctx.write("x".into())).unwrap();
    channel.clock().advance(SECOND - Duration::from_nanos(1));
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "");
    channel.clock().advance(Duration::from_nanos(1));
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "x\n");
}

// Netty's embedded channel rethrows unhandled errors to the test. Here a handler always has
// `error`, whose default closes the channel, which the test can observe.
#[test]
fn c_73_errors_go_to_the_handler_and_the_test_sees_the_effect() {
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
fn c_73_a_closed_channel_refuses_use_and_drops_its_timers() {
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
    assert_eq!(log.take(), [""; 0], "no further calls");
}

/// Keeps the completers of its requests, and writes when it is dropped.
struct Keeper {
    kept: Vec<Completer<()>>,
    log: Log,
    me: std::sync::mpsc::Sender<HandlerRef<Keeper>>,
}

impl Handler for Keeper {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.me.send(ctx.handler_ref()).map_err(Error::other)
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.log.push("inactive");
        Ok(())
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.log.push("dropped");
    }
}

#[test]
fn c_73_a_closed_channel_has_dropped_its_handler_in_every_way_to_close() {
    type Close = fn(&mut EmbeddedChannel<Bytes>);
    let ways: [Close; 4] = [
        |channel| channel.end_inbound(),
        |channel| channel.advance(SECOND),
        |channel| channel.close(),
        |channel| {
            channel.channel().close();
            channel.run_pending();
        },
    ];
    for close in ways {
        let (log, (me, keeper)) = (Log::new(), std::sync::mpsc::channel());
        let handler = Keeper { kept: Vec::new(), log: log.clone(), me };
        let idle = IdleTimeouts::new().reader(SECOND);
        let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).idle(idle).handler(handler));
        let keeper = keeper.recv().unwrap();
        let request = keeper.request(|me, ctx, done| {
            me.kept.push(done);
            ctx.write("kept".into())
        });
        channel.run_pending();
        close(&mut channel);
        assert!(channel.is_closed() && !channel.is_open());
        assert_eq!(log.take(), ["inactive", "dropped"]);
        assert!(matches!(request.wait(), Err(Error::Cancelled)));
        // What was sent and the handle outlive the handler.
        assert_eq!(channel.read_outbound(), "kept\n");
        assert_eq!(channel.pending_bytes(), 0);
        assert!(format!("{channel:?}").contains("Keeper"), "{channel:?}");
        assert!(matches!(reason(channel.channel().write("x".into())), Error::Closed));
    }
}

#[test]
fn c_73_waiting_on_the_thread_of_the_channel_fails_instead_of_hanging() {
    let (me, keeper) = std::sync::mpsc::channel();
    let handler = Keeper { kept: Vec::new(), log: Log::new(), me };
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(handler));
    let keeper = keeper.recv().unwrap();
    let answer = |me: &mut Keeper, _: &mut Context<'_, Keeper>, done: Completer<()>| {
        me.kept.push(done);
        Ok(())
    };
    let (waits, waits_elsewhere) = (keeper.request(answer), keeper.request(answer));
    let other = std::thread::spawn(|| waits_elsewhere.wait());
    channel.run_pending();
    assert!(matches!(waits.wait(), Err(Error::WouldDeadlock)));
    keeper
        .execute(|me, _| {
            me.kept.drain(..).for_each(|done| done.complete(Ok(())));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    other.join().unwrap().unwrap();
}

#[test]
fn c_73_bytes_after_the_end_of_the_stream_are_refused() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel.write_inbound(b"kept\n").unwrap();
    channel.end_inbound();
    assert!(channel.write_inbound(b"more\n").is_err());
    assert_eq!(log.take(), ["active"], "the end has not been read yet");
    set_auto_read(&channel.channel(), true);
    channel.run_pending();
    assert_eq!(log.take(), ["read kept", "read_complete", "read_complete", "inactive", "drop"]);
}

#[test]
fn c_73_the_peer_accepts_the_configured_number_of_bytes() {
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
fn c_73_callbacks_run_on_the_channels_loop() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if call.is_active() {
            inner.push(format!("in the loop: {}", ctx.channel().in_event_loop()));
        }
        Ok(())
    }));
    assert_eq!(log.take(), ["active", "in the loop: true"]);
    assert!(!channel.channel().in_event_loop(), "not between calls of the channel");
}

#[test]
fn c_73_settings_are_validated() {
    let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
    let options = ChannelOptions::new().read_size(0);
    let refused =
        EmbeddedChannel::builder(pipeline).channel_options(options).wheel_tick(SECOND).build().unwrap_err();
    assert_eq!(refused.to_string(), "read_size is 0; it must be 1 to 65536 bytes");
    let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
    let refused = EmbeddedChannel::builder(pipeline).wheel_tick(Duration::ZERO).build().unwrap_err();
    assert!(matches!(refused, Error::Setting(_)), "{refused}");
}

/// Repeating timers stop at the end of time.
#[test]
fn the_end_of_time_causes_no_endless_loop() {
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
    assert_eq!(log.take(), [""; 0], "the clock no longer advances");
    assert_eq!(channel.run_pending(), 0);

    // Reads, writes and tasks still work.
    channel.write_inbound(b"0\n1000\n").unwrap();
    channel.run_pending();
    let ran = log.take();
    assert!(ran.iter().any(|entry| entry == "0 after 0ns"), "{ran:?}");
    assert!(!ran.iter().any(|entry| entry.starts_with("1000 after")), "a later task never runs: {ran:?}");
    channel.close();
    assert!(channel.is_closed());
}

#[test]
fn a_channel_without_timers_advances_to_the_end_of_time_in_one_step() {
    let log = Log::new();
    let mut channel = embedded(alarm(&log));
    channel.write_inbound(b"1\n").unwrap();
    channel.advance(Duration::MAX);
    assert_eq!(log.take().last().unwrap(), "1 after 1ms");
    channel.advance(Duration::MAX);
    // A clock that has been advanced before reaches the end earlier.
    let clock = ManualClock::new();
    clock.advance(SECOND);
    let mut late = EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(alarm(&log)))
        .clock(clock)
        .build()
        .unwrap();
    late.write_inbound(b"18446744073708\n").unwrap();
    late.advance(Duration::MAX);
    late.advance(Duration::MAX);
}
