//! Scheduled tasks: time, order, cancellation (E-01 to E-11, E-16 to E-18, E-20).

use crate::support::{
    journal::Journal,
    loops::{Gate, advance, manual, on, settle, single},
    wait::{PATIENCE, done, ms},
};
use netwheel::{
    Error, EventLoop, EventLoopGroup, Result,
    testing::ManualClock,
    time::{Clock, MissedRuns, Periodic, ScheduledTask},
};
use std::{
    sync::{Arc, mpsc::channel},
    time::{Duration, Instant},
};

const MINUTE: Duration = Duration::from_secs(60);

/// Returns a body that records the time in milliseconds and then takes `work(run)`.
fn stamping(
    clock: &ManualClock,
    work: impl Fn(usize) -> Duration + Send + 'static,
) -> (Journal<u64>, impl FnMut() -> Result + Send + 'static) {
    let (times, clock) = (Journal::new(), clock.clone());
    let mine = times.clone();
    let body = move || {
        mine.push(clock.elapsed().as_millis() as u64);
        clock.advance(work(mine.len()));
        Ok(())
    };
    (times, body)
}

// A `Duration` is never negative. A task cannot report its remaining delay, so the test checks that
// it runs without any time passing.
#[test]
fn e_01_a_task_without_delay_is_due_at_once_and_runs_once() {
    let (event_loop, clock) = manual();
    let runs = Journal::new();
    let body = {
        let runs = runs.clone();
        move || runs.push("run")
    };
    let from_outside = event_loop.schedule(Duration::ZERO, body.clone()).unwrap();
    done(from_outside.completion()).unwrap();
    let me = event_loop.clone();
    let from_inside = on(&event_loop, move || me.schedule(Duration::ZERO, body).unwrap());
    done(from_inside.completion()).unwrap();
    assert_eq!(clock.elapsed(), Duration::ZERO);
    advance(&event_loop, &clock, MINUTE);
    assert_eq!(runs.len(), 2);
}

// A negative period or initial delay cannot be expressed.
#[test]
fn e_02_a_period_of_zero_is_refused() {
    let (event_loop, _clock) = manual();
    let refused = |task: Result<ScheduledTask>| match task {
        Err(Error::Setting(setting)) => setting.setting(),
        other => panic!("{other:?}"),
    };
    let zero = Duration::ZERO;
    for (periodic, setting) in [
        (Periodic::fixed_rate(zero), "period"),
        (Periodic::fixed_rate(zero).missed_runs(MissedRuns::CatchUp), "period"),
        (Periodic::fixed_delay(zero), "delay"),
    ] {
        let task = event_loop.schedule_periodic(periodic.initial_delay(ms(1)), || Ok(()));
        assert_eq!(refused(task), setting);
    }
    for periodic in [Periodic::fixed_rate(ms(1)), Periodic::fixed_delay(ms(1))] {
        event_loop.schedule_periodic(periodic.initial_delay(zero), || Ok(())).unwrap().cancel();
    }
}

#[test]
fn e_03_a_deadline_beyond_the_range_of_the_clock_saturates() {
    let (event_loop, clock) = manual();
    advance(&event_loop, &clock, Duration::from_secs(3600 * 24 * 365 * 100));
    let never = event_loop.schedule(Duration::MAX, || ()).unwrap();
    let (runs, body) = stamping(&clock, |_| Duration::ZERO);
    let once = event_loop
        .schedule_periodic(Periodic::fixed_rate(Duration::MAX).initial_delay(Duration::ZERO), body)
        .unwrap();
    let (delayed, body) = stamping(&clock, |_| Duration::ZERO);
    let delay = event_loop
        .schedule_periodic(Periodic::fixed_delay(Duration::MAX).initial_delay(Duration::ZERO), body)
        .unwrap();
    settle(&event_loop);
    advance(&event_loop, &clock, Duration::from_secs(3600 * 24 * 365 * 100));
    assert_eq!((runs.len(), delayed.len()), (1, 1));
    assert!(!never.is_done());
    assert!(never.cancel() && once.cancel() && delay.cancel());
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 0);
}

#[test]
fn e_04_a_huge_delay_neither_fires_nor_spins_and_can_be_cancelled() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    let (_other_group, other) = single(EventLoopGroup::builder());
    // The second and third delays would be 0 and 50 ms if milliseconds were truncated to 32 bits.
    let delays = [i64::MAX as u64, 1 << 32, (1 << 32) + 50];
    let tasks = delays.map(|delay| event_loop.schedule(ms(delay), || ()).unwrap());
    settle(&event_loop);
    let before = event_loop.metrics();
    done(other.schedule(ms(1000), || ()).unwrap().completion()).unwrap();
    let after = event_loop.metrics();
    assert!(after.turns - before.turns <= 10, "{before:?} {after:?}");
    assert_eq!(after.wakes_premature, 0);
    for task in tasks {
        assert!(!task.is_done());
        assert!(task.cancel());
        assert!(matches!(done(task.completion()), Err(Error::Cancelled)));
    }
}

#[test]
fn e_05_a_task_is_never_early() {
    let (event_loop, clock) = manual();
    let task = event_loop.schedule(ms(500), || ()).unwrap();
    advance(&event_loop, &clock, ms(500) - Duration::from_nanos(1));
    assert!(!task.is_done());
    advance(&event_loop, &clock, Duration::from_nanos(1));
    assert!(task.is_done());
}

#[test]
fn e_05_a_task_is_never_early_in_real_time() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    let begun = Instant::now();
    let ends = [1u64, 7, 50, 500].map(|delay| {
        let task = event_loop.schedule(ms(delay), Instant::now).unwrap();
        (ms(delay), done(task.completion()).unwrap())
    });
    for (delay, end) in ends {
        assert!(end - begun >= delay, "{delay:?}");
    }
}

#[test]
fn e_06_a_fixed_rate_does_not_drift() {
    let (event_loop, clock) = manual();
    let (times, body) = stamping(&clock, |_| ms(50));
    let task = event_loop.schedule_periodic(ms(100), body).unwrap();
    while times.len() < 5 {
        advance(&event_loop, &clock, ms(10));
    }
    task.cancel();
    assert_eq!(times.all(), [100, 200, 300, 400, 500]);
}

#[test]
fn e_07_missed_runs_of_a_fixed_rate_are_skipped_and_the_phase_is_kept() {
    let (event_loop, clock) = manual();
    let (times, body) = stamping(&clock, |run| ms(if run == 1 { 401 } else { 0 }));
    let task = event_loop.schedule_periodic(ms(100), body).unwrap();
    advance(&event_loop, &clock, ms(100));
    for _ in 0..299 {
        advance(&event_loop, &clock, ms(1));
    }
    task.cancel();
    assert_eq!(times.all(), [100, 600, 700, 800]);
}

#[test]
fn e_07_missed_runs_of_a_fixed_rate_are_caught_up_on_request() {
    let (event_loop, clock) = manual();
    let (times, body) = stamping(&clock, |run| ms(if run == 1 { 401 } else { 0 }));
    let task = event_loop
        .schedule_periodic(Periodic::fixed_rate(ms(100)).missed_runs(MissedRuns::CatchUp), body)
        .unwrap();
    advance(&event_loop, &clock, ms(100));
    while times.len() < 5 {
        settle(&event_loop);
    }
    // The missed runs, for 200 to 500, ran back to back. The next one is on time again.
    advance(&event_loop, &clock, ms(98));
    assert_eq!(times.all(), [100, 501, 501, 501, 501]);
    advance(&event_loop, &clock, ms(1));
    task.cancel();
    assert_eq!(times.all(), [100, 501, 501, 501, 501, 600]);
}

/// However many runs are caught up on, sockets are polled between them.
#[test]
fn e_07_sockets_are_polled_between_the_runs_that_catch_up() {
    let (event_loop, clock) = manual();
    let polls = Journal::new();
    let body = {
        let (event_loop, polls) = (event_loop.clone(), polls.clone());
        move || {
            polls.push(event_loop.metrics().polls);
            Ok(())
        }
    };
    let task = event_loop
        .schedule_periodic(Periodic::fixed_rate(ms(1)).missed_runs(MissedRuns::CatchUp), body)
        .unwrap();
    settle(&event_loop);
    clock.advance(ms(100));
    while polls.len() < 100 {
        settle(&event_loop);
    }
    task.cancel();
    let polls = polls.all();
    assert!(polls.windows(2).all(|pair| pair[0] < pair[1]), "{polls:?}");
}

#[test]
fn e_08_a_fixed_delay_counts_from_the_end_of_a_run() {
    let (event_loop, clock) = manual();
    let (times, body) = stamping(&clock, |_| ms(51));
    let task = event_loop.schedule_periodic(Periodic::fixed_delay(ms(100)), body).unwrap();
    while times.len() < 4 {
        advance(&event_loop, &clock, ms(1));
    }
    task.cancel();
    assert_eq!(times.all(), [100, 251, 402, 553]);
}

#[test]
fn e_09_a_cancelled_periodic_task_does_not_run_again() {
    let (event_loop, clock) = manual();
    let (rate, body) = stamping(&clock, |_| Duration::ZERO);
    let rate_task = event_loop.schedule_periodic(ms(10), body).unwrap();
    let (delay, body) = stamping(&clock, |_| Duration::ZERO);
    let delay_task = event_loop.schedule_periodic(Periodic::fixed_delay(ms(10)), body).unwrap();
    for _ in 0..3 {
        advance(&event_loop, &clock, ms(10));
    }
    assert!(rate_task.cancel() && delay_task.cancel());
    assert!(!rate_task.cancel(), "a second cancel has no effect");
    for _ in 0..30 {
        advance(&event_loop, &clock, ms(10));
    }
    assert_eq!((rate.len(), delay.len()), (3, 3));
    assert!(matches!(done(rate_task.completion()), Err(Error::Cancelled)));
}

#[test]
fn e_09_a_periodic_task_can_be_cancelled_while_it_runs() {
    let (event_loop, clock) = manual();
    let (entered, inside) = channel();
    let (release, released) = channel::<()>();
    let runs = Journal::new();
    let body = {
        let runs = runs.clone();
        move || {
            runs.push(());
            entered.send(()).unwrap();
            let _ = released.recv_timeout(PATIENCE);
            Ok(())
        }
    };
    let task = event_loop
        .schedule_periodic(Periodic::fixed_rate(ms(10)).initial_delay(Duration::ZERO), body)
        .unwrap();
    inside.recv_timeout(PATIENCE).unwrap();
    assert!(task.cancel());
    drop(release);
    advance(&event_loop, &clock, ms(300));
    assert_eq!(runs.len(), 1);
    assert!(matches!(done(task.completion()), Err(Error::Cancelled)));
}

#[test]
fn e_10_a_periodic_task_that_fails_ends_with_its_error() {
    let (event_loop, clock) = manual();
    let failing = |panics: bool| {
        let runs = Journal::new();
        let mine = runs.clone();
        let body = move || {
            mine.push(());
            match mine.len() {
                2 if panics => panic!("on purpose"),
                2 => Err(Error::from("on purpose")),
                _ => Ok(()),
            }
        };
        (runs, event_loop.schedule_periodic(ms(10), body).unwrap())
    };
    let (errs, erring) = failing(false);
    let (panics, panicking) = failing(true);
    for _ in 0..6 {
        advance(&event_loop, &clock, ms(10));
    }
    assert_eq!((errs.len(), panics.len()), (2, 2));
    assert!(!erring.cancel(), "the task has ended");
    match done(erring.completion()) {
        Err(Error::Other(cause)) => assert_eq!(cause.to_string(), "on purpose"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(done(panicking.completion()), Err(Error::Panicked(text)) if &*text == "on purpose"));
    assert_eq!(on(&event_loop, || "alive"), "alive");
}

#[test]
fn e_10_a_panic_fails_only_the_tasks_own_completion() {
    let (event_loop, clock) = manual();
    let task = event_loop.schedule(ms(1), || panic!("on purpose")).unwrap();
    let next = event_loop.schedule(ms(1), || "next").unwrap();
    clock.advance(ms(1));
    assert!(matches!(done::<()>(task.completion()), Err(Error::Panicked(text)) if &*text == "on purpose"));
    assert_eq!(done(next.completion()).unwrap(), "next");
}

#[test]
fn e_11_equal_deadlines_run_in_the_order_of_scheduling() {
    let (event_loop, clock) = manual();
    let order = Journal::new();
    let note = |n: usize| {
        let order = order.clone();
        move || order.push(n)
    };
    let periodic = note(0);
    let body = move || {
        periodic();
        Ok(())
    };
    let first = event_loop.schedule_periodic(ms(10), body).unwrap();
    for n in 1..100 {
        event_loop.schedule(ms(20), note(n)).unwrap();
    }
    advance(&event_loop, &clock, ms(10));
    assert_eq!(order.all(), [0]);
    // The periodic task was rescheduled after the others were added, but keeps its earlier sequence
    // number.
    advance(&event_loop, &clock, ms(10));
    first.cancel();
    let expected: Vec<_> = std::iter::once(0).chain(0..100).collect();
    assert_eq!(order.all(), expected);
}

/// Returns a task and a witness whose reference count shows whether the body still exists.
fn witnessed(event_loop: &EventLoop, delay: Duration) -> (Arc<()>, ScheduledTask) {
    let witness = Arc::new(());
    let held = witness.clone();
    let task = event_loop.schedule(delay, move || drop(held)).unwrap();
    (witness, task)
}

#[test]
fn e_16_a_task_cancelled_on_the_loop_is_removed_at_once() {
    let (event_loop, clock) = manual();
    let (witness, task) = witnessed(&event_loop, ms(10));
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 1);
    let me = event_loop.clone();
    let (held, pending) = on(&event_loop, move || {
        assert!(task.cancel());
        (Arc::strong_count(&witness), me.metrics().timers_pending)
    });
    assert_eq!((held, pending), (1, 0), "the body is dropped and the heap is empty at once");
    advance(&event_loop, &clock, MINUTE);
    assert_eq!(event_loop.metrics().timers_fired, 0);
}

#[test]
fn e_16_a_task_cancelled_on_another_thread_is_dropped_without_a_wake() {
    let (event_loop, clock) = manual();
    let tasks: Vec<_> = (0..10).map(|n| witnessed(&event_loop, ms(10 + n))).collect();
    settle(&event_loop);
    let before = event_loop.metrics();
    assert_eq!(before.timers_pending, 10);
    for (witness, task) in &tasks {
        assert!(task.cancel());
        assert_eq!(Arc::strong_count(witness), 1, "the body is dropped at once");
        assert!(task.is_done());
    }
    assert_eq!(event_loop.metrics().wakes_written, before.wakes_written);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 0);
    advance(&event_loop, &clock, MINUTE);
    assert_eq!(event_loop.metrics().timers_fired, 0);
}

#[test]
fn e_16_a_task_cancelled_before_the_loop_has_seen_it_never_runs() {
    let (event_loop, clock) = manual();
    let gate = Gate::shut(&event_loop);
    let (witness, task) = witnessed(&event_loop, Duration::ZERO);
    assert!(task.cancel());
    assert_eq!(Arc::strong_count(&witness), 1);
    drop(gate);
    advance(&event_loop, &clock, MINUTE);
    let metrics = event_loop.metrics();
    assert_eq!((metrics.timers_pending, metrics.timers_fired), (0, 0));
}

#[test]
fn e_17_a_task_that_has_started_cannot_be_cancelled() {
    let (event_loop, _clock) = manual();
    let (entered, inside) = channel();
    let (release, released) = channel::<()>();
    let body = move || {
        entered.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
        "done"
    };
    let task = event_loop.schedule(Duration::ZERO, body).unwrap();
    inside.recv_timeout(PATIENCE).unwrap();
    assert!(!task.cancel());
    drop(release);
    assert_eq!(done(task.completion()).unwrap(), "done");
}

#[test]
fn e_17_a_task_that_has_run_cannot_be_cancelled() {
    let (event_loop, _clock) = manual();
    let task = event_loop.schedule(Duration::ZERO, || ()).unwrap();
    while !task.is_done() {
        settle(&event_loop);
    }
    assert!(!task.cancel());
}

#[test]
fn e_18_thousands_of_periodic_tasks_cancelled_at_random_all_end() {
    const TASKS: usize = 5000;
    let (event_loop, clock) = manual();
    let spawn = |_| event_loop.schedule_periodic(ms(1), || Ok(())).unwrap();
    let mut tasks: Vec<_> = (0..TASKS).map(spawn).collect();
    // Xorshift, so that the order is the same in every run.
    let mut random = 0x9E37_79B9_7F4A_7C15u64;
    for n in (1..TASKS).rev() {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        tasks.swap(n, random as usize % (n + 1));
    }
    let (one, other) = tasks.split_at(TASKS / 2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for task in one {
                assert!(task.cancel());
            }
        });
        for (n, task) in other.iter().enumerate() {
            if n % 50 == 0 {
                advance(&event_loop, &clock, ms(1));
            }
            assert!(task.cancel());
        }
    });
    for task in tasks {
        assert!(matches!(done(task.completion()), Err(Error::Cancelled)));
    }
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 0);
}

#[test]
fn e_20_only_tasks_that_are_due_by_the_clock_run() {
    let (event_loop, clock) = manual();
    let begun = clock.now();
    let delays = [10 * MINUTE, 10 * MINUTE + Duration::from_nanos(1), 20 * MINUTE];
    let tasks = delays.map(|delay| event_loop.schedule(delay, || ()).unwrap());
    let done = || tasks.each_ref().map(ScheduledTask::is_done);
    advance(&event_loop, &clock, 10 * MINUTE);
    assert_eq!(clock.now() - begun, 10 * MINUTE);
    assert_eq!(done(), [true, false, false]);
    advance(&event_loop, &clock, Duration::from_nanos(1));
    assert_eq!(done(), [true, true, false]);
    advance(&event_loop, &clock, 10 * MINUTE);
    assert_eq!(done(), [true, true, true]);
}
