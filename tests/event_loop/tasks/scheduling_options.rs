//! Options of scheduled tasks: jitter, missed runs over a long stall, the end of a turn, limits
//! (E-30).

use crate::support::{
    journal::Journal,
    logs,
    loops::{Gate, advance, manual, on, settle, single},
    wait::{SECOND, done, ms},
};
use netwheel::{
    Error, EventLoopGroup,
    error::Resource,
    shutdown::ShutdownOptions,
    testing::ManualClock,
    time::{Clock, MissedRuns, Periodic, ScheduledTask},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

// ---- jitter ------------------------------------------------------------------------------------

#[test]
fn jitter_spreads_tasks_of_one_period_and_keeps_their_phase() {
    let (event_loop, clock) = manual();
    let periodic = Periodic::fixed_rate(SECOND).jitter(ms(500));
    let runs = Journal::new();
    let tasks: Vec<_> = (0..50)
        .map(|n| {
            let (runs, clock) = (runs.clone(), clock.clone());
            let body = move || {
                runs.push((n, clock.elapsed().as_millis() as u64));
                Ok(())
            };
            event_loop.schedule_periodic(periodic, body).unwrap()
        })
        .collect();
    for _ in 0..2000 {
        advance(&event_loop, &clock, ms(5));
    }
    tasks.iter().for_each(|task| assert!(task.cancel()));
    let runs = runs.all();
    // Ten seconds: nine complete rounds. The last run of the tenth may still be missing.
    for n in 0..50 {
        let times: Vec<_> = runs.iter().filter(|(task, _)| *task == n).map(|(_, time)| *time).collect();
        assert!((9..=10).contains(&times.len()), "task {n}: {times:?}");
        for (round, time) in times.iter().enumerate() {
            let due = (round as u64 + 1) * 1000;
            assert!((due..due + 505).contains(time), "task {n}: {times:?}");
        }
    }
    let mut first: Vec<_> = runs.iter().take(50).map(|(_, time)| *time).collect();
    first.dedup();
    assert!(first.len() > 20, "the first runs are spread out: {first:?}");
}

#[test]
fn jitter_delays_a_task_with_a_fixed_delay() {
    let (event_loop, clock) = manual();
    let times = Journal::new();
    let body = {
        let (times, clock) = (times.clone(), clock.clone());
        move || {
            times.push(clock.elapsed().as_millis() as u64);
            Ok(())
        }
    };
    let periodic = Periodic::fixed_delay(SECOND).jitter(ms(100));
    let task = event_loop.schedule_periodic(periodic, body).unwrap();
    for runs in 0..9 {
        // No run is due before the delay has passed. From then on, check every millisecond.
        advance(&event_loop, &clock, ms(999));
        assert_eq!(times.len(), runs);
        for _ in 0..102 {
            if times.len() == runs {
                advance(&event_loop, &clock, ms(1));
            }
        }
        assert_eq!(times.len(), runs + 1);
    }
    task.cancel();
    let gaps: Vec<_> = times.all().windows(2).map(|pair| pair[1] - pair[0]).collect();
    assert!(gaps.iter().all(|gap| (1000..=1101).contains(gap)), "{gaps:?}");
    assert!(gaps.iter().any(|gap| *gap != gaps[0]), "{gaps:?}");
}

#[test]
fn e_02_a_jitter_beyond_the_period_is_refused() {
    let (event_loop, _clock) = manual();
    for periodic in [Periodic::fixed_rate(SECOND), Periodic::fixed_delay(SECOND)] {
        let refused = event_loop.schedule_periodic(periodic.jitter(SECOND + ms(1)), || Ok(())).unwrap_err();
        assert!(matches!(&refused, Error::Setting(e) if e.setting() == "jitter"), "{refused}");
    }
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 0);
}

// ---- stalls and clocks -------------------------------------------------------------------------

fn counting(times: &Journal<u64>, clock: &ManualClock) -> impl FnMut() -> netwheel::Result + Send + 'static {
    let (times, clock) = (times.clone(), clock.clone());
    move || {
        times.push(clock.elapsed().as_secs());
        Ok(())
    }
}

#[test]
fn a_stall_of_one_hour_causes_a_single_run() {
    let (event_loop, clock) = manual();
    let (skipping, catching_up, delayed) = (Journal::new(), Journal::new(), Journal::new());
    let body = counting(&skipping, &clock);
    let _skips = event_loop.schedule_periodic(SECOND, body).unwrap();
    let body = counting(&catching_up, &clock);
    let _catches = event_loop
        .schedule_periodic(Periodic::fixed_rate(SECOND).missed_runs(MissedRuns::CatchUp), body)
        .unwrap();
    let _delays =
        event_loop.schedule_periodic(Periodic::fixed_delay(SECOND), counting(&delayed, &clock)).unwrap();
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    clock.advance(Duration::from_secs(3600));
    drop(gate);
    while catching_up.len() < 3600 {
        settle(&event_loop);
    }
    assert_eq!((skipping.all(), delayed.all()), (vec![3600], vec![3600]));
    assert_eq!(catching_up.len(), 3600);
    advance(&event_loop, &clock, SECOND);
    assert_eq!((skipping.len(), catching_up.len(), delayed.len()), (2, 3601, 2), "the schedule continues");
}

/// A clock that goes back by 1 ms at every third reading.
#[derive(Debug, Clone)]
struct Jumping {
    time: ManualClock,
    readings: Arc<AtomicU64>,
}

impl Clock for Jumping {
    fn now(&self) -> Instant {
        let n = self.readings.fetch_add(1, Ordering::Relaxed);
        if n.is_multiple_of(3) { self.time.now() - ms(1) } else { self.time.now() }
    }

    fn is_real_time(&self) -> bool {
        false
    }

    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.time.on_advance(wake);
    }
}

#[test]
fn a_clock_that_goes_backwards_causes_no_panic() {
    let time = ManualClock::new();
    time.advance(SECOND);
    let clock = Jumping { time: time.clone(), readings: Arc::default() };
    let (_group, event_loop) = single(EventLoopGroup::builder().clock(clock));
    settle(&event_loop);
    let times = Journal::new();
    let body = {
        let (times, time) = (times.clone(), time.clone());
        move || {
            times.push(time.elapsed());
            Ok(())
        }
    };
    let begun = time.elapsed();
    let periodic = event_loop.schedule_periodic(ms(10), body).unwrap();
    for _ in 0..500 {
        advance(&event_loop, &time, ms(1));
    }
    assert!(periodic.cancel());
    let times = times.all();
    // A reading that is 1 ms behind moves a deadline forward by at most 1 ms.
    assert!(
        times.iter().enumerate().all(|(n, t)| *t - begun + ms(1) >= ms(10) * (n as u32 + 1)),
        "{times:?}"
    );
    assert!((48..=50).contains(&times.len()), "{times:?}");
}

#[test]
fn timer_zero_delay_rearm() {
    let (event_loop, clock) = manual();
    let turns = Journal::new();
    fn again(event_loop: &netwheel::EventLoop, turns: Journal<u64>) {
        let me = event_loop.clone();
        let rearm = move || {
            turns.push(me.metrics().turns);
            if turns.len() < 500 {
                again(&me, turns.clone());
            }
        };
        event_loop.schedule(Duration::ZERO, rearm).unwrap();
    }
    again(&event_loop, turns.clone());
    let other = event_loop.schedule(Duration::ZERO, || ()).unwrap();
    done(other.completion()).unwrap();
    while turns.len() < 500 {
        settle(&event_loop);
    }
    let turns = turns.all();
    assert!(turns.windows(2).all(|pair| pair[0] < pair[1]), "one run per turn: {turns:?}");
    assert_eq!(clock.elapsed(), Duration::ZERO);
}

// ---- one entry, limits, the end of a turn ------------------------------------------------------

#[test]
fn a_periodic_task_has_a_single_entry() {
    let (event_loop, clock) = manual();
    let runs = Journal::new();
    let body = {
        let runs = runs.clone();
        move || {
            runs.push(());
            Ok(())
        }
    };
    let task = event_loop.schedule_periodic(ms(1), body).unwrap();
    for _ in 0..100 {
        advance(&event_loop, &clock, ms(1));
        assert_eq!(event_loop.metrics().timers_pending, 1);
    }
    assert_eq!(runs.len(), 100);
    // Scheduling a second task and dropping the handle of the first does not end the first.
    // Cancelling ends it permanently.
    let second = event_loop.schedule_periodic(ms(1), || Ok(())).unwrap();
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 2);
    assert!(second.cancel() && task.cancel());
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 0);
}

#[test]
fn e_29_scheduled_tasks_have_a_limit_and_tasks_that_end_make_room() {
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().max_scheduled_tasks(16).clock(clock.clone());
    let (_group, event_loop) = single(builder);
    let full = |task: netwheel::Result<ScheduledTask>| match task {
        Err(Error::Full { resource: Resource::ScheduledTasks, limit: 16, .. }) => {}
        other => panic!("{other:?}"),
    };
    let mut tasks: Vec<_> = (1..=16).map(|n| event_loop.schedule(ms(n), || ()).unwrap()).collect();
    full(event_loop.schedule(ms(1), || ()));
    full(event_loop.schedule_periodic(ms(1), || Ok(())));
    full(event_loop.execute_at_turn_end(|| ()));
    assert_eq!(on(&event_loop, || "plain tasks do not count"), "plain tasks do not count");
    // Room is made by a cancel, by a run, and by an error.
    assert!(tasks.pop().unwrap().cancel());
    let failing = event_loop.schedule_periodic(ms(1), || Err(Error::Closed)).unwrap();
    full(event_loop.schedule(ms(1), || ()));
    advance(&event_loop, &clock, ms(100));
    assert!(done(failing.completion()).is_err());
    let again: Vec<_> = (0..16).map(|_| event_loop.schedule(ms(1), || ()).unwrap()).collect();
    full(event_loop.schedule(ms(1), || ()));
    advance(&event_loop, &clock, ms(1));
    again.into_iter().for_each(|task| done(task.completion()).unwrap());
}

#[test]
fn e_30_a_turn_end_task_runs_once_after_the_others() {
    let (event_loop, _clock) = manual();
    let order = Journal::new();
    let (me, mine) = (event_loop.clone(), order.clone());
    on(&event_loop, move || {
        let note = |what: &'static str| {
            let (order, me) = (mine.clone(), me.clone());
            move || order.push((what, me.metrics().turns))
        };
        let first = me.execute_at_turn_end(note("end")).unwrap();
        let removed = me.execute_at_turn_end(note("removed")).unwrap();
        me.schedule(Duration::ZERO, note("timer")).unwrap();
        me.execute(note("task")).unwrap();
        assert!(removed.cancel());
        assert!(!first.is_done());
    });
    settle(&event_loop);
    settle(&event_loop);
    let order = order.all();
    let names: Vec<_> = order.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["task", "timer", "end"]);
    assert_eq!(order[0].1, order[2].1, "in the turn in which the loop received it");
    let answer = event_loop.execute_at_turn_end(|| 42).unwrap();
    assert_eq!(done(answer.completion()).unwrap(), 42);
}

#[test]
fn e_30_a_turn_end_task_submitted_at_the_end_of_a_turn_runs_in_the_next() {
    let (event_loop, _clock) = manual();
    let turns = Journal::new();
    let (me, mine) = (event_loop.clone(), turns.clone());
    let first = event_loop
        .execute_at_turn_end(move || {
            mine.push(me.metrics().turns);
            let (inner, mine) = (me.clone(), mine.clone());
            me.execute_at_turn_end(move || mine.push(inner.metrics().turns)).unwrap()
        })
        .unwrap();
    let second = done(first.completion()).unwrap();
    done(second.completion()).unwrap();
    let turns = turns.all();
    assert_eq!(turns[1], turns[0] + 1);
}

#[test]
fn e_26_a_scheduled_task_that_panics_is_logged_with_its_origin_and_counted() {
    logs::collect();
    let (event_loop, clock) = manual();
    let line = line!() + 1;
    let task = event_loop.schedule(ms(1), || panic!("oh dear")).unwrap();
    advance(&event_loop, &clock, ms(1));
    let failed: Result<(), _> = done(task.completion());
    assert!(matches!(failed, Err(Error::Panicked(message)) if &*message == "oh dear"));
    assert_eq!(event_loop.metrics().tasks_panicked, 1);
    let origin = format!("{}:{line}", file!());
    let lines = logs::lines_with(&origin);
    assert!(
        lines.iter().any(|line| line.contains("oh dear") && line.contains(event_loop.name())),
        "{lines:?}"
    );
    assert_eq!(on(&event_loop, || "lives"), "lives");
}

/// The handle is dropped, so the error can only be seen in the log.
#[test]
fn a_periodic_task_that_fails_is_logged_with_its_origin_and_counted() {
    logs::collect();
    let (event_loop, clock) = manual();
    let line = line!() + 1;
    let task = event_loop.schedule_periodic(ms(1), || Err(Error::other("the disk is full")));
    drop(task.unwrap());
    advance(&event_loop, &clock, ms(1));
    assert_eq!(event_loop.metrics().tasks_failed, 1);
    let origin = format!("the task scheduled at {}:{line}:", file!());
    let lines = logs::lines_with(&origin);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("ERROR") && lines[0].ends_with("failed: the disk is full"), "{lines:?}");
    advance(&event_loop, &clock, ms(10));
    assert_eq!(event_loop.metrics().timers_pending, 0, "the task has ended");
}

#[test]
fn a_task_that_fails_also_fails_its_completion() {
    let (event_loop, clock) = manual();
    let fails = || Err(Error::other("no"));
    let periodic = event_loop.schedule_periodic(Periodic::fixed_delay(ms(1)), fails).unwrap();
    let once = event_loop.schedule(ms(1), || -> netwheel::Result { Err(Error::other("no")) }).unwrap();
    advance(&event_loop, &clock, ms(1));
    assert_eq!(done(periodic.completion()).unwrap_err().to_string(), "no");
    assert_eq!(done(once.completion()).unwrap().unwrap_err().to_string(), "no");
    assert_eq!(event_loop.metrics().tasks_failed, 2);
}

#[test]
fn a_task_that_cancels_itself_has_not_failed() {
    let (event_loop, clock) = manual();
    let mut runs = 3;
    let task = event_loop.schedule_periodic(ms(1), move || {
        runs -= 1;
        if runs == 0 { Err(Error::Cancelled) } else { Ok(()) }
    });
    for _ in 0..3 {
        advance(&event_loop, &clock, ms(1));
    }
    assert!(matches!(done(task.unwrap().completion()), Err(Error::Cancelled)));
    assert_eq!(event_loop.metrics().tasks_failed, 0);
}

#[test]
fn a_thousand_failing_tasks_are_a_few_log_lines() {
    logs::collect();
    let (event_loop, clock) = manual();
    for _ in 0..1000 {
        let task =
            event_loop.schedule(ms(1), || -> netwheel::Result { Err(Error::other("again and again")) });
        drop(task.unwrap());
    }
    advance(&event_loop, &clock, ms(1));
    while event_loop.metrics().tasks_failed < 1000 {
        settle(&event_loop);
    }
    let lines = logs::lines_with("failed: again and again");
    assert_eq!(lines.len(), 10, "{lines:?}");
    assert_eq!(event_loop.metrics().log_lines_suppressed, 990);
}

// ---- the end of time ---------------------------------------------------------------------------

/// Periodic tasks whose next time overflows, and one-shot tasks that are never due, do not keep a
/// loop busy.
#[test]
fn a_loop_at_the_end_of_time_sleeps_and_can_be_shut_down() {
    let (event_loop, clock) = manual();
    let runs = Journal::new();
    let run = |what: &'static str| {
        let runs = runs.clone();
        move || {
            runs.push(what);
            Ok(())
        }
    };
    let _rate = event_loop.schedule_periodic(SECOND, run("rate")).unwrap();
    let half = Periodic::fixed_rate(Duration::from_nanos(u64::MAX / 2 - 1));
    let _up = event_loop.schedule_periodic(half.missed_runs(MissedRuns::CatchUp), run("catch up")).unwrap();
    let delay = Periodic::fixed_delay(SECOND).jitter(SECOND);
    let _delay = event_loop.schedule_periodic(delay, run("delay")).unwrap();
    let never = event_loop.schedule(Duration::MAX, || ()).unwrap();
    advance(&event_loop, &clock, Duration::MAX);
    settle(&event_loop);
    let mut ran = runs.all();
    ran.sort_unstable();
    assert_eq!(ran, ["catch up", "catch up", "delay", "rate"]);
    assert!(!never.is_done(), "the task is never due");

    // Two turns may follow: the one that goes to sleep, and one for a wakeup whose task has already
    // run.
    let before = event_loop.metrics();
    let (other, _clock) = manual();
    for _ in 0..100 {
        settle(&other);
    }
    let after = event_loop.metrics();
    assert!(after.turns - before.turns <= 2, "the loop spins: {before:?} {after:?}");
    assert_eq!(after.timers_fired, before.timers_fired);

    let soon = event_loop.schedule(Duration::ZERO, || "now").unwrap();
    assert_eq!(done(soon.completion()).unwrap(), "now");
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(SECOND).timeout(Duration::MAX))).unwrap();
    assert!(matches!(done(never.completion()), Err(Error::ShutDown)));
}
