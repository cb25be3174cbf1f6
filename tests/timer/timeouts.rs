//! Coarse timeouts of a channel (`ctx.timeout`), their limit, and options of idle detection:
//! jitter, touch, no drift.

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    wait::SECOND,
};
use bytes::Bytes;
use netwheel::{
    Error, IdleState,
    channel::{ChannelOptions, TaskKey},
    codec::Line,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
    time::Delay,
};
use std::{
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

const TICK: Duration = Duration::from_millis(100);

/// Returns an embedded channel with a wheel tick of 100 ms. Its handler runs `f` for each line.
fn channel(
    options: &ChannelOptions,
    log: &Log,
    mut on_line: impl FnMut(&mut Context<'_, Recorder>, &Log, ManualClock) -> Result + 'static,
) -> EmbeddedChannel<Bytes> {
    let clock = ManualClock::new();
    let (inner, time) = (log.clone(), clock.clone());
    let handler = Recorder::exactly(&Log::new(), move |ctx, call| match call {
        Event::Read(_) => on_line(ctx, &inner, time.clone()),
        Event::Error(_) => {
            inner.push(call.to_string());
            Ok(())
        }
        _ => Ok(()),
    });
    EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(handler))
        .channel_options(options.clone())
        .clock(clock)
        .wheel_tick(TICK)
        .build()
        .unwrap()
}

fn line(channel: &mut EmbeddedChannel<Bytes>) {
    channel.write_inbound(b"go\n").unwrap();
}

#[test]
fn a_timeout_is_never_early_and_at_most_a_tick_late() {
    for millis in [0, 1, 99, 100, 101, 250, 3_333, 60_001] {
        let log = Log::new();
        let delay = Duration::from_millis(millis);
        let mut channel = channel(&ChannelOptions::new(), &log, move |ctx, log, clock| {
            let log = log.clone();
            let begun = clock.elapsed();
            ctx.schedule(Delay::coarse(delay), move |_, ctx| {
                let passed = clock.elapsed() - begun;
                assert!(passed >= delay && passed <= delay + TICK, "{delay:?}: {passed:?}");
                assert!(ctx.is_open());
                log.push("ran");
                Ok(())
            });
            Ok(())
        });
        channel.advance(Duration::from_millis(37));
        line(&mut channel);
        channel.advance(delay + 2 * TICK);
        assert_eq!(log.take(), ["ran"], "must run once: {delay:?}");
        assert_eq!(channel.timers(), 0);
    }
}

#[test]
fn cancelling_a_timeout_drops_it_at_once_and_invalidates_its_key() {
    let log = Log::new();
    let alive = Rc::new(());
    let captured = alive.clone();
    let mut channel = channel(&ChannelOptions::new(), &log, move |ctx, _, _| {
        let captured = captured.clone();
        let exact = ctx.schedule(SECOND, |_, _| Ok(()));
        let coarse = ctx.schedule(Delay::coarse(SECOND), move |_, _| {
            drop(captured);
            Err(Error::other("it ran"))
        });
        assert!(ctx.cancel(coarse));
        assert!(!ctx.cancel(coarse), "the timeout no longer exists");
        // Its slot is reused by another timeout, to which the old key does not refer.
        let next = ctx.schedule(Delay::coarse(SECOND), |_, _| Ok(()));
        assert!(coarse != next && !ctx.cancel(coarse));
        assert!(ctx.cancel(exact) && !ctx.cancel(exact) && ctx.cancel(next));
        Ok(())
    });
    line(&mut channel);
    assert_eq!(
        (Rc::strong_count(&alive), channel.timers()),
        (2, 0),
        "the handler's reference and that of the test"
    );
    channel.advance(5 * SECOND);
    assert_eq!(log.take(), Vec::<String>::new());
}

#[test]
fn timeouts_end_with_their_channel() {
    let log = Log::new();
    let alive = Arc::new(());
    let captured = alive.clone();
    let mut channel = channel(&ChannelOptions::new(), &log, move |ctx, _, _| {
        for _ in 0..3 {
            let (a, b) = (captured.clone(), captured.clone());
            ctx.schedule(Delay::coarse(SECOND), move |_, _| {
                drop(a);
                Ok(())
            });
            ctx.schedule(SECOND, move |_, _| {
                drop(b);
                Ok(())
            });
        }
        ctx.close();
        Ok(())
    });
    line(&mut channel);
    assert!(channel.is_closed());
    assert_eq!((Arc::strong_count(&alive), channel.timers()), (1, 0));
}

#[test]
fn a_handle_schedules_with_both_precisions() {
    let log = Log::new();
    let mut channel = channel(&ChannelOptions::new(), &log, |_, _, _| Ok(()));
    channel.advance(Duration::from_millis(37));
    let (handle, begun) = (channel.channel(), channel.clock().elapsed());
    for delay in [Delay::exact(SECOND), Delay::coarse(SECOND)] {
        let (log, clock) = (log.clone(), channel.clock().clone());
        let task = move |_: &mut netwheel::ChannelContext<'_, Bytes>| {
            log.push(format!("{:?}", clock.elapsed() - begun > SECOND));
            Ok(())
        };
        handle.schedule(delay, task).unwrap();
    }
    channel.run_pending();
    assert_eq!(channel.timers(), 2);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["false"], "the exact task is on time");
    channel.advance(TICK);
    assert_eq!(log.take(), ["true"], "the coarse task is at most a tick late");
}

#[test]
fn a_timeout_that_rearms_itself_without_delay_waits_for_the_next_tick_each_time() {
    let log = Log::new();
    fn again(ctx: &mut Context<'_, Recorder>, log: Log) {
        ctx.schedule(Delay::coarse(Duration::ZERO), move |_, ctx| {
            log.push("ran");
            again(ctx, log);
            Ok(())
        });
    }
    let mut channel = channel(&ChannelOptions::new(), &log, |ctx, log, _| {
        again(ctx, log.clone());
        Ok(())
    });
    line(&mut channel);
    channel.advance(10 * TICK);
    assert_eq!(log.all().len(), 10);
}

#[test]
fn a_task_beyond_the_limit_is_dropped_and_reported_and_the_others_run() {
    const LIMIT: usize = 4;
    let log = Log::new();
    let keys: Arc<Mutex<Vec<TaskKey>>> = Arc::default();
    let inner = keys.clone();
    let options = ChannelOptions::new().max_scheduled_tasks(LIMIT);
    let mut channel = channel(&options, &log, move |ctx, log, _| {
        for n in 0..6 {
            let log = log.clone();
            let task = move |_: &mut Recorder, _: &mut Context<'_, Recorder>| {
                log.push(format!("task {n}"));
                Ok(())
            };
            let key = if n % 2 == 0 {
                ctx.schedule(Delay::coarse(SECOND), task)
            } else {
                ctx.schedule(SECOND, task)
            };
            inner.lock().unwrap().push(key);
        }
        // A refused task cannot be cancelled, and takes no other task's slot.
        let refused = inner.lock().unwrap()[5];
        assert!(!ctx.cancel(refused));
        Ok(())
    });
    line(&mut channel);
    assert_eq!(log.take(), ["error the limit of 4 scheduled tasks of a channel is reached"]);
    assert_eq!(channel.timers(), LIMIT);
    channel.advance(2 * SECOND);
    let mut ran = log.take();
    ran.sort();
    assert_eq!(ran, ["task 0", "task 1", "task 2", "task 3"]);
    line(&mut channel);
    assert_eq!(channel.timers(), LIMIT, "there is room again");
}

#[test]
fn a_limit_of_tasks_out_of_range_is_refused_by_name() {
    for tasks in [0, 65_537] {
        let options = ChannelOptions::new().max_scheduled_tasks(tasks);
        let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
        let error =
            EmbeddedChannel::builder(pipeline).channel_options(options).wheel_tick(TICK).build().unwrap_err();
        let text = format!("{error:#}");
        assert!(text.contains("max_scheduled_tasks") && text.contains("65536"), "{text}");
    }
}

// ---- idle options ------------------------------------------------------------------------------

/// Returns the times of a channel's idle events in milliseconds.
fn idle_times(
    timeouts: IdleTimeouts,
    tick: Duration,
    run: impl FnOnce(&mut EmbeddedChannel<Bytes>),
) -> Vec<u128> {
    let times: Arc<Mutex<Vec<u128>>> = Arc::default();
    let (inner, clock) = (times.clone(), ManualClock::new());
    let time = clock.clone();
    let handler = Recorder::exactly(&Log::new(), move |_, call| {
        if let Event::Idle(_) = call {
            inner.lock().unwrap().push(time.elapsed().as_millis());
        }
        Ok(())
    });
    let pipeline = Pipeline::codec(Line::new()).idle(timeouts).handler(handler);
    let mut channel = EmbeddedChannel::builder(pipeline).clock(clock).wheel_tick(tick).build().unwrap();
    run(&mut channel);
    times.lock().unwrap().clone()
}

#[test]
fn repeated_idle_events_do_not_drift_although_ticks_make_them_late() {
    let timeouts = IdleTimeouts::new().reader(Duration::from_millis(1_001));
    let times = idle_times(timeouts, TICK, |channel| channel.advance(100 * SECOND + TICK));
    assert_eq!(times.len(), 100);
    for (n, time) in (1..).zip(times) {
        assert!((n * 1_001..n * 1_001 + 100).contains(&time), "number {n} at {time}");
    }
}

#[test]
fn jitter_spreads_the_events_of_many_channels_and_none_is_early() {
    let timeouts = IdleTimeouts::new().writer(10 * SECOND).jitter(SECOND);
    let mut seen = Vec::new();
    for _ in 0..64 {
        let times = idle_times(timeouts, Duration::from_millis(1), |channel| {
            channel.advance(Duration::from_millis(32_000))
        });
        assert_eq!(times.len(), 3, "{times:?}");
        for (n, time) in (1..).zip(&times) {
            let late = time - n * 10_000;
            assert!(late <= 1_001, "number {n} at {time}");
            seen.push(late);
        }
    }
    seen.sort_unstable();
    assert!(seen[0] < 200 && seen[seen.len() - 1] > 800, "spread over the window: {seen:?}");
}

#[test]
fn a_touch_counts_as_traffic_of_every_kind() {
    let timeouts = IdleTimeouts::new().reader(SECOND).writer(SECOND).all(SECOND);
    let times = idle_times(timeouts, Duration::from_millis(1), |channel| {
        for _ in 0..10 {
            channel.advance(SECOND / 2);
            let touch = |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
                ctx.reset_idle();
                Ok(())
            };
            channel.channel().execute(touch).unwrap();
            channel.run_pending();
        }
        channel.advance(SECOND);
    });
    assert_eq!(times, [6_000; 3]);
}

#[test]
fn i_19_idle_events_occur_on_a_channel_with_explicit_reads() {
    let timeouts = IdleTimeouts::new().reader(SECOND);
    let times = idle_times(timeouts, Duration::from_millis(1), |channel| {
        let one_by_one = |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
            ctx.set_auto_read(false);
            ctx.read();
            Ok(())
        };
        channel.channel().execute(one_by_one).unwrap();
        channel.run_pending();
        channel.advance(SECOND / 2);
        channel.write_inbound(b"first\nsecond\n").unwrap();
        channel.advance(2 * SECOND);
    });
    assert_eq!(times, [1_500, 2_500]);
}

#[test]
fn i_21_an_idle_event_shows_its_kind_and_whether_it_is_the_first() {
    let texts = [(IdleState::Reader, true), (IdleState::Writer, false), (IdleState::All, true)]
        .map(|(state, first)| IdleEvent::new(state, first).to_string());
    assert_eq!(texts, ["Reader idle, first", "Writer idle", "All idle, first"]);
}
