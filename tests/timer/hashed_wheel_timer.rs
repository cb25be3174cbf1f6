//! The stand-alone timer: settings, start and stop, cancelling and counting (W-01 to W-15, W-30 to
//! W-39). `hashed_wheel_timer_firing.rs` tests firing, `hashed_wheel_timer_count.rs` the number of
//! timers.

#![allow(clippy::mutable_key_type, reason = "a timeout is hashed by its identity, not by its state")]

use crate::support::{
    journal::Journal,
    logs,
    timers::{advance, far, hold, manual, nothing, nudge, send},
    wait::{HOUR, PATIENCE, ms, receive, wait_until},
};
use netwheel::{
    Error, Result,
    error::Resource,
    timer::{HashedWheelTimer, HashedWheelTimerBuilder, Timeout},
};
use std::{
    collections::HashSet,
    sync::{Arc, mpsc::channel},
    thread,
    time::{Duration, Instant},
};

/// Returns a timer on the real clock. Its tests use no timeouts that become due.
fn real() -> HashedWheelTimer {
    HashedWheelTimer::builder().build().unwrap()
}

#[track_caller]
fn assert_stopped<T>(result: Result<T, impl Into<Error>>) {
    match result {
        Err(e) => assert!(matches!(e.into(), Error::ShutDown)),
        Ok(_) => panic!("the timeout was not refused"),
    }
}

#[test]
fn w_01_defaults() {
    let timer = real();
    assert_eq!((timer.tick(), timer.slots()), (ms(100), 512));
    let timeouts: Vec<_> = (0..10_000).map(|_| far(&timer)).collect();
    assert_eq!(timer.pending_timeouts(), timeouts.len(), "there is no limit");
}

#[test]
fn w_02_slots_are_rounded_up_to_a_power_of_two() {
    assert_eq!(HashedWheelTimer::builder().slots(3).build().unwrap().slots(), 4);
}

#[test]
fn w_03_settings_out_of_range_are_refused_by_name() {
    let refused = |builder: HashedWheelTimerBuilder| match builder.build() {
        Err(Error::Setting(setting)) => setting.setting(),
        other => panic!("{other:?}"),
    };
    let new = HashedWheelTimer::builder;
    assert_eq!(refused(new().tick(Duration::ZERO)), "tick");
    assert_eq!(refused(new().tick(Duration::MAX)), "tick");
    assert_eq!(refused(new().tick(Duration::from_nanos(i64::MAX as u64 / 512))), "tick");
    assert_eq!(refused(new().slots(0)), "slots");
    assert_eq!(refused(new().slots(usize::MAX)), "slots");
    assert_eq!(refused(new().thread_name("a\0b")), "thread_name");
}

#[test]
fn w_04_a_tick_below_a_millisecond_is_raised_with_one_warning() {
    logs::collect();
    let timer = HashedWheelTimer::builder().tick(Duration::from_micros(10)).build().unwrap();
    timer.start().unwrap();
    assert_eq!(timer.tick(), ms(1));
    let lines = logs::lines_with("tick 10µs");
    assert!(matches!(&lines[..], [line] if line.starts_with("WARN")), "{lines:?}");
}

#[test]
fn w_05_the_first_timeout_starts_the_thread_and_start_is_idempotent() {
    let (timer, clock) = manual(ms(100));
    let (sender, receiver) = channel();
    for explicit in [false, true, true] {
        if explicit {
            timer.start().unwrap();
        }
        let sender = sender.clone();
        let task = move |_: &Timeout| send(&sender, thread::current().id());
        timer.new_timeout(Duration::ZERO, task).unwrap();
        clock.advance(ms(100));
    }
    let threads: HashSet<_> = (0..3).map(|_| receive(&receiver)).collect();
    assert_eq!(threads.len(), 1, "all tasks run on the same thread");
    assert!(!threads.contains(&thread::current().id()));
}

/// Ticks are counted from the construction of the timer, so `start` has nothing to wait for.
#[test]
fn w_05_a_delay_is_exact_as_soon_as_start_returns() {
    for explicit in [false, true] {
        let (timer, clock) = manual(ms(100));
        let ran = Journal::new();
        // Time passes before the timer's thread exists.
        clock.advance(ms(1030));
        if explicit {
            timer.start().unwrap();
        }
        timer.new_timeout(ms(150), ran.note("due in the tick that ends at 1200 ms")).unwrap();
        advance(&timer, &clock, ms(149));
        assert_eq!(ran.take(), [] as [&str; 0], "explicit start: {explicit}");
        advance(&timer, &clock, ms(21));
        assert_eq!(ran.take().len(), 1, "explicit start: {explicit}");
    }
}

#[test]
fn the_name_of_the_thread_can_be_set() {
    let clock = netwheel::testing::ManualClock::new();
    let timer = HashedWheelTimer::builder().thread_name("tick-tock").clock(clock.clone()).build().unwrap();
    let (sender, receiver) = channel();
    let task = move |_: &Timeout| send(&sender, thread::current().name().map(str::to_owned));
    timer.new_timeout(ms(1), task).unwrap();
    clock.advance(ms(100));
    assert_eq!(receive(&receiver).as_deref(), Some("tick-tock"));
}

#[test]
fn w_06_stop_is_final() {
    let (never_started, started) = (real(), real());
    started.start().unwrap();
    for timer in [never_started, started] {
        timer.stop().unwrap();
        assert_stopped(timer.start());
        assert_stopped(timer.new_timeout(HOUR, nothing));
    }
}

#[test]
fn w_07_stop_of_a_timer_that_does_not_run_returns_nothing() {
    let timer = real();
    assert_eq!(timer.stop().unwrap(), []);
    let timer = real();
    far(&timer);
    assert_eq!(timer.stop().unwrap().len(), 1);
    assert_eq!(timer.stop().unwrap(), []);
}

#[test]
fn w_08_stop_returns_timeouts_that_have_not_run() {
    let (timer, clock) = manual(ms(100));
    let ran = Journal::new();
    for n in 0..3 {
        timer.new_timeout(ms(1), ran.note(n)).unwrap();
    }
    advance(&timer, &clock, ms(100));
    assert_eq!(ran.take(), [0, 1, 2]);
    assert_eq!(timer.stop().unwrap(), []);

    let (timer, clock) = manual(ms(100));
    let five: HashSet<_> =
        (0..5).map(|n| timer.new_timeout(Duration::from_secs(5), ran.note(n)).unwrap()).collect();
    advance(&timer, &clock, Duration::from_secs(1));
    let unprocessed = timer.stop().unwrap();
    assert_eq!((unprocessed.len(), HashSet::from_iter(unprocessed)), (5, five));
    clock.advance(Duration::from_secs(10));
    assert!(ran.take().is_empty());
}

#[test]
fn w_09_timeouts_that_stop_returns_are_cancelled() {
    let timer = real();
    let (left, by_user) = (far(&timer), far(&timer));
    assert!(by_user.cancel());
    assert_eq!(timer.stop().unwrap(), std::slice::from_ref(&left));
    assert!(left.is_cancelled() && !left.is_expired() && !left.cancel());
}

#[test]
fn w_10_stop_returns_timeouts_in_slots_and_in_the_queue() {
    let (timer, clock) = manual(ms(100));
    let mut expected: HashSet<_> = (0..5).map(|_| far(&timer)).collect();
    advance(&timer, &clock, ms(100));
    let held = hold(&timer, &clock);
    expected.extend((0..3).map(|_| far(&timer)));
    let stopping = {
        let timer = timer.clone();
        thread::spawn(move || timer.stop())
    };
    // `stop` has started when additions are refused.
    wait_until("additions are refused", || match timer.new_timeout(HOUR, nothing) {
        Ok(timeout) => {
            expected.insert(timeout);
            false
        }
        Err(_) => true,
    });
    held.let_go();
    let unprocessed: HashSet<_> = stopping.join().unwrap().unwrap().into_iter().collect();
    assert_eq!(unprocessed, expected);
    assert_eq!(timer.pending_timeouts(), 0);
}

#[test]
fn w_11_stop_inside_a_task_is_an_error_and_the_timer_continues() {
    let (timer, clock) = manual(ms(100));
    let (sender, receiver) = channel();
    let inside = move |timeout: &Timeout| send(&sender, timeout.timer().unwrap().stop());
    timer.new_timeout(ms(1), inside).unwrap();
    advance(&timer, &clock, ms(100));
    assert!(matches!(receive(&receiver), Err(Error::WouldDeadlock)));
    advance(&timer, &clock, ms(100));
    far(&timer);
    assert_eq!(timer.stop().unwrap().len(), 1);
}

#[test]
fn w_12_a_stopped_timer_hands_the_task_back() {
    let timer = real();
    timer.start().unwrap();
    timer.stop().unwrap();
    let text = "the task's own".to_owned();
    let (value, reason) = timer.new_timeout(HOUR, move |_| Err(text.into())).unwrap_err().into_parts();
    assert!(matches!(reason, Error::ShutDown));
    // The task is intact, and can be added to another timer.
    let (timer, clock) = manual(ms(100));
    logs::collect();
    timer.new_timeout(ms(1), value).unwrap();
    advance(&timer, &clock, ms(100));
    assert_eq!(logs::lines_with("the task's own").len(), 1);
}

#[test]
fn w_13_a_refusal_and_stop_keep_the_count_correct_and_run_hooks() {
    let timer = real();
    let (sender, receiver) = channel();
    for n in 0..4 {
        let sender = sender.clone();
        timer.new_timeout_with_hook(HOUR, nothing, move |_| sender.send(n).unwrap()).unwrap();
    }
    assert_eq!(timer.pending_timeouts(), 4);
    assert_eq!(timer.stop().unwrap().len(), 4);
    assert_eq!(timer.pending_timeouts(), 0);
    assert_eq!(receiver.try_iter().collect::<HashSet<_>>(), HashSet::from([0, 1, 2, 3]));

    let refused = timer.new_timeout_with_hook(HOUR, nothing, move |_| sender.send(4).unwrap()).unwrap_err();
    assert_eq!(timer.pending_timeouts(), 0);
    drop(refused.into_inner());
    assert!(receiver.try_iter().next().is_none(), "the hook of a refused timeout is handed back");
}

#[test]
fn w_14_an_addition_that_races_with_stop_is_refused_or_returned() {
    for _ in 0..30 {
        let timer = real();
        let (adds, adding) = channel();
        let adders: Vec<_> = (0..3)
            .map(|_| {
                let (timer, adds) = (timer.clone(), adds.clone());
                thread::spawn(move || {
                    let mut added = Vec::new();
                    while let Ok(timeout) = timer.new_timeout(HOUR, nothing) {
                        added.push(timeout);
                        if added.len() == 20 {
                            adds.send(()).unwrap();
                        }
                    }
                    added
                })
            })
            .collect();
        // Wait on a channel, because polling the timer would have to compete with the adders.
        adding.recv_timeout(PATIENCE).expect("the adders have started");
        let unprocessed = timer.stop().unwrap();
        let added: Vec<_> = adders.into_iter().flat_map(|adder| adder.join().unwrap()).collect();
        assert_eq!(unprocessed.len(), added.len());
        assert_eq!(HashSet::<Timeout>::from_iter(unprocessed), HashSet::from_iter(added));
        assert_eq!(timer.pending_timeouts(), 0);
    }
}

#[test]
fn w_15_stop_does_not_wait_for_the_tick() {
    let timer = HashedWheelTimer::builder().tick(Duration::from_secs(600)).build().unwrap();
    far(&timer);
    timer.new_timeout(Duration::ZERO, nothing).unwrap();
    let before = Instant::now();
    assert_eq!(timer.stop().unwrap().len(), 2);
    assert!(before.elapsed() < PATIENCE);
}

#[test]
fn w_30_a_cancelled_task_never_runs_and_is_dropped_at_once() {
    let (timer, clock) = manual(ms(100));
    let payload = Arc::new(());
    let captured = payload.clone();
    let timeout = timer.new_timeout(ms(150), move |_| panic!("{captured:?} ran")).unwrap();
    advance(&timer, &clock, ms(100));
    assert_eq!((Arc::strong_count(&payload), timer.pending_timeouts()), (2, 1));
    assert!(timeout.cancel());
    assert_eq!(
        (Arc::strong_count(&payload), timer.pending_timeouts()),
        (1, 0),
        "the cancel takes effect at once"
    );
    assert!(timeout.is_cancelled() && !timeout.is_expired());
    assert!(!timeout.cancel(), "a second cancel");
    logs::collect();
    advance(&timer, &clock, ms(1000));
    assert_eq!(logs::lines_with("() ran").len(), 0);
}

#[test]
fn w_31_an_expired_timeout_stays_expired() {
    let (timer, clock) = manual(ms(100));
    let (sender, receiver) = channel();
    let task = move |me: &Timeout| send(&sender, (me.cancel(), me.is_expired(), me.is_cancelled()));
    let timeout = timer.new_timeout(ms(1), task).unwrap();
    assert!(!timeout.is_expired() && !timeout.is_cancelled());
    advance(&timer, &clock, ms(100));
    assert_eq!(receive(&receiver), (false, true, false), "in its own task");
    assert!(!timeout.cancel() && timeout.is_expired() && !timeout.is_cancelled());
    assert_eq!(timer.pending_timeouts(), 0);
}

#[test]
fn w_33_a_timeout_cancelled_in_the_queue_never_enters_the_wheel() {
    let (timer, clock) = manual(ms(100));
    let held = hold(&timer, &clock);
    let ran = Journal::new();
    let payload = Arc::new(());
    let captured = payload.clone();
    let task = ran.note(1);
    let timeout = timer
        .new_timeout(ms(50), move |me| {
            drop(captured);
            task(me)
        })
        .unwrap();
    assert!(timeout.cancel());
    assert_eq!((Arc::strong_count(&payload), timer.pending_timeouts()), (1, 0));
    held.let_go();
    advance(&timer, &clock, ms(1000));
    assert!(ran.take().is_empty());
    assert_eq!(timer.stop().unwrap(), []);
}

#[test]
fn w_34_no_timeout_is_pending_when_the_last_task_runs() {
    let (timer, clock) = manual(ms(100));
    let (sender, receiver) = channel();
    let (one, two) = (far(&timer), far(&timer));
    let count = move |me: &Timeout| send(&sender, me.timer().unwrap().pending_timeouts());
    timer.new_timeout(ms(1), count).unwrap();
    assert_eq!(timer.pending_timeouts(), 3);
    assert!(one.cancel() && two.cancel());
    clock.advance(ms(100));
    assert_eq!(receive(&receiver), 0);
    assert_eq!(timer.pending_timeouts(), 0);
}

#[test]
fn w_35_ten_timeouts_cancelled_behind_a_slow_task_in_their_tick_do_not_run_and_are_counted_once() {
    let (timer, clock) = manual(ms(100));
    let ran = Journal::new();
    let (entered, inside) = channel();
    let (holder, held) = channel::<()>();
    timer
        .new_timeout(ms(50), move |_| {
            send(&entered, ())?;
            let _ = held.recv();
            Ok(())
        })
        .unwrap();
    let ten: Vec<_> = (0..10).map(|n| timer.new_timeout(ms(50), ran.note(n)).unwrap()).collect();
    clock.advance(ms(100));
    receive(&inside);
    assert_eq!(timer.pending_timeouts(), 10);
    assert!(ten.iter().all(Timeout::cancel));
    assert_eq!(timer.pending_timeouts(), 0);
    drop(holder);
    advance(&timer, &clock, ms(300));
    assert_eq!((ran.take(), timer.pending_timeouts()), (vec![], 0));
}

#[test]
fn w_36_the_hook_of_a_cancelled_timeout_runs_on_the_timers_thread() {
    let (timer, clock) = manual(Duration::from_secs(10));
    let (sender, receiver) = channel();
    let hook = {
        let sender = sender.clone();
        move |me: &Timeout| sender.send((me.is_cancelled(), thread::current().id())).unwrap()
    };
    let timeout = timer.new_timeout_with_hook(HOUR, nothing, hook.clone()).unwrap();
    assert!(timeout.cancel());
    let (cancelled, on) = receive(&receiver);
    assert!(cancelled && on != thread::current().id(), "the hook runs without any time passing");

    // Likewise for a timeout that is in the wheel. A timeout that has run does not call its hook.
    let timeout = timer.new_timeout_with_hook(HOUR, nothing, hook.clone()).unwrap();
    timer.new_timeout_with_hook(Duration::ZERO, nothing, hook).unwrap();
    advance(&timer, &clock, Duration::from_secs(20));
    assert!(receiver.try_iter().next().is_none());
    assert!(timeout.cancel());
    assert_eq!(receive(&receiver), (true, on));
    nudge(&timer);
    assert!(receiver.try_iter().next().is_none(), "once");
}

#[test]
fn w_36_a_hook_that_panics_is_logged_without_further_effect() {
    let (timer, clock) = manual(ms(100));
    logs::collect();
    timer.new_timeout_with_hook(HOUR, nothing, |_| panic!("the hook's own")).unwrap().cancel();
    advance(&timer, &clock, ms(100));
    let lines = logs::lines_with("the hook's own");
    assert!(matches!(&lines[..], [line] if line.contains(file!())), "{lines:?}");
}

#[test]
fn w_37_more_than_the_limit_are_refused() {
    let timer = HashedWheelTimer::builder().max_pending(2).build().unwrap();
    let (_one, _two) = (far(&timer), far(&timer));
    let refused = timer.new_timeout(HOUR, nothing).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { resource: Resource::Timeouts, limit: 2, .. }));
    assert_eq!(timer.pending_timeouts(), 2);
    assert_eq!(timer.stop().unwrap().len(), 2);

    let unlimited = HashedWheelTimer::builder().max_pending(0).build().unwrap();
    for _ in 0..1000 {
        far(&unlimited);
    }
    assert_eq!(unlimited.pending_timeouts(), 1000);
}

#[test]
fn w_38_there_is_room_again_after_a_cancel_and_after_a_run() {
    let clock = netwheel::testing::ManualClock::new();
    let timer = HashedWheelTimer::builder().max_pending(2).clock(clock.clone()).build().unwrap();
    let (sender, receiver) = channel();
    let (one, _two) = (far(&timer), timer.new_timeout(ms(1), move |_| send(&sender, ())).unwrap());
    assert!(timer.new_timeout(HOUR, nothing).is_err());
    assert!(one.cancel());
    far(&timer);
    assert!(timer.new_timeout(HOUR, nothing).is_err());
    clock.advance(ms(100));
    receive(&receiver);
    far(&timer);
    assert!(timer.new_timeout(HOUR, nothing).is_err());
}

#[test]
fn w_39_the_longest_delays_neither_overflow_nor_fire() {
    let (timer, clock) = manual(ms(100));
    let ran = Journal::new();
    let delays = [Duration::from_millis(i64::MAX as u64), Duration::MAX];
    let timeouts = delays.map(|delay| timer.new_timeout(delay, ran.note(delay)).unwrap());
    advance(&timer, &clock, Duration::from_secs(1));
    assert_eq!((ran.take(), timer.pending_timeouts()), (vec![], 2));
    assert!(timeouts.iter().all(|timeout| timeout.deadline() > Instant::now() + HOUR));
    assert!(timeouts.iter().all(Timeout::cancel));
    assert_eq!(timer.stop().unwrap(), []);
}

#[test]
fn dropping_the_last_handle_stops_the_timer() {
    let (timer, _clock) = manual(ms(100));
    let (sender, receiver) = channel();
    let timeout = timer.new_timeout_with_hook(HOUR, nothing, move |_| sender.send(()).unwrap()).unwrap();
    let another = timer.clone();
    drop(timer);
    assert_eq!(timeout.timer().map(|timer| timer.pending_timeouts()), Some(1));
    drop(another);
    receive(&receiver);
    assert!(timeout.is_cancelled() && timeout.timer().is_none());
}

#[test]
fn the_last_handle_may_be_dropped_in_a_task() {
    let (timer, clock) = manual(ms(100));
    let (sender, receiver) = channel();
    let captured = timer.clone();
    let after = timer.new_timeout_with_hook(HOUR, nothing, move |_| sender.send(()).unwrap()).unwrap();
    timer
        .new_timeout(ms(1), move |_| {
            drop(captured);
            Ok(())
        })
        .unwrap();
    drop(timer);
    assert!(after.timer().is_some(), "a pending task keeps what it has captured");
    clock.advance(ms(100));
    receive(&receiver);
    assert!(after.is_cancelled());
}
