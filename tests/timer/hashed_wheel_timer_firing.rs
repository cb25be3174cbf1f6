//! The stand-alone timer: time and order of firing (W-16 to W-29).

use crate::support::{
    journal::Journal,
    logs,
    timers::{advance, far, hold, manual, nothing, nudge, send, with_slots},
    wait::{HOUR, ms, receive},
};
use netwheel::{
    EventLoopGroup, Result,
    testing::ManualClock,
    time::Clock,
    timer::{HashedWheelTimer, Timeout},
};
use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    thread,
    time::{Duration, Instant},
};

#[test]
fn w_16_a_timeout_runs_after_its_delay_and_not_before() {
    let (timer, clock) = manual(ms(100));
    let ran = Journal::new();
    let ten = timer.new_timeout(Duration::from_secs(10), ran.note(10)).unwrap();
    let two = timer.new_timeout(Duration::from_secs(2), ran.note(2)).unwrap();
    advance(&timer, &clock, Duration::from_secs(3));
    assert_eq!(ran.take(), [2]);
    assert!(two.is_expired() && !ten.is_expired() && !ten.is_cancelled());
}

#[test]
fn w_17_a_hundred_thousand_are_never_early_and_at_most_a_tick_late() {
    let (timer, clock) = manual(ms(200));
    let delays = Journal::new();
    for _ in 0..20 {
        let added = clock.elapsed();
        for _ in 0..5_000 {
            let (delays, clock) = (delays.clone(), clock.clone());
            let task = move |_: &Timeout| {
                delays.push(clock.elapsed() - added);
                Ok(())
            };
            timer.new_timeout(ms(125), task).unwrap();
        }
        advance(&timer, &clock, ms(17));
    }
    while timer.pending_timeouts() > 0 {
        advance(&timer, &clock, ms(17));
    }
    let delays = delays.take();
    assert_eq!(delays.len(), 100_000);
    // The clock advances in steps.
    let (shortest, longest) = (delays.iter().min().unwrap(), delays.iter().max().unwrap());
    assert!(*shortest >= ms(125) && *longest < ms(125 + 200 + 17), "{shortest:?} to {longest:?}");
}

#[test]
fn w_18_a_deadline_is_due_at_the_end_of_its_tick() {
    let (timer, clock) = manual(ms(100));
    let times = Journal::new();
    for delay in [1, 99, 100, 101, 199, 200] {
        timer.new_timeout(ms(delay), times.stamp(&clock)).unwrap();
    }
    let ticks = [(99, vec![]), (1, vec![100; 3]), (99, vec![]), (1, vec![200; 3]), (500, vec![])];
    for (by, expected) in ticks {
        advance(&timer, &clock, ms(by));
        assert_eq!(times.take(), expected);
    }
}

// A `Duration` is never negative.
#[test]
fn w_19_a_zero_delay_runs_on_the_next_tick() {
    let (timer, clock) = manual(ms(50));
    let times = Journal::new();
    advance(&timer, &clock, ms(110));
    timer.new_timeout(Duration::ZERO, times.stamp(&clock)).unwrap();
    nudge(&timer);
    assert!(times.take().is_empty(), "neither inside the call nor in the current tick");
    advance(&timer, &clock, ms(39));
    assert!(times.take().is_empty());
    advance(&timer, &clock, ms(1));
    assert_eq!(times.take(), [150]);
}

/// Records the time, and adds itself again with this delay.
fn again(delay: Duration, times: Journal<u64>, clock: ManualClock) -> impl FnOnce(&Timeout) -> Result + Send {
    move |me: &Timeout| {
        times.push(clock.elapsed().as_millis() as u64);
        let Some(timer) = me.timer() else { return Ok(()) };
        let task: Box<dyn FnOnce(&Timeout) -> Result + Send> = Box::new(again(delay, times, clock));
        timer.new_timeout(delay, task)?;
        Ok(())
    }
}

#[test]
fn w_20_a_zero_delay_inside_a_task_waits_for_a_later_tick() {
    let (timer, clock) = manual(ms(100));
    let times = Journal::new();
    timer.new_timeout(Duration::ZERO, again(Duration::ZERO, times.clone(), clock.clone())).unwrap();
    for expected in [100, 200, 300] {
        advance(&timer, &clock, ms(100));
        nudge(&timer);
        assert_eq!(times.take(), [expected]);
    }
    // It does not run once for every tick that was missed either.
    advance(&timer, &clock, ms(1000));
    nudge(&timer);
    assert_eq!(times.take(), [1300]);
}

#[test]
fn w_21_delays_of_several_revolutions_fire_in_the_right_one() {
    let (timer, clock) = with_slots(ms(100), 4);
    let times = Journal::new();
    for delay in [300, 1250, 400, 1600, 6400, 6500, 25_700] {
        timer.new_timeout(ms(delay), times.stamp(&clock)).unwrap();
    }
    for _ in 0..300 {
        advance(&timer, &clock, ms(100));
    }
    assert_eq!(times.take(), [300, 400, 1300, 1600, 6400, 6500, 25_700]);
}

#[test]
fn w_22_stop_returns_a_task_that_adds_itself_again() {
    let (timer, clock) = with_slots(ms(100), 32);
    let times = Journal::new();
    timer.new_timeout(ms(100), again(ms(100), times.clone(), clock.clone())).unwrap();
    for _ in 0..3 {
        advance(&timer, &clock, ms(100));
    }
    assert_eq!(times.take(), [100, 200, 300]);
    assert_eq!(timer.stop().unwrap().len(), 1);
}

#[test]
fn w_23_a_tick_that_has_passed_before_the_timeout_reaches_the_wheel_is_due_at_once() {
    let (timer, clock) = with_slots(ms(100), 4);
    let held = hold(&timer, &clock);
    let (sender, receiver) = channel();
    timer.new_timeout(ms(50), move |_| send(&sender, ())).unwrap();
    clock.advance(ms(1000));
    held.let_go();
    receive(&receiver);
}

type Happening = Box<dyn FnOnce() + Send>;

/// A clock that runs a closure when the timer's thread reads it.
#[derive(Clone)]
struct Trap {
    clock: ManualClock,
    armed: Arc<Mutex<Option<Happening>>>,
}

impl Clock for Trap {
    fn now(&self) -> Instant {
        if thread::current().name() == Some("netwheel-timer") {
            let happens = self.armed.lock().unwrap().take();
            happens.into_iter().for_each(|happens| happens());
        }
        self.clock.now()
    }

    fn is_real_time(&self) -> bool {
        false
    }

    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.clock.on_advance(wake);
    }
}

impl fmt::Debug for Trap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.clock.fmt(f)
    }
}

fn trapped() -> (HashedWheelTimer, Trap) {
    let clock = Trap { clock: ManualClock::new(), armed: Arc::default() };
    (HashedWheelTimer::builder().clock(clock.clone()).build().unwrap(), clock)
}

#[test]
fn a_request_that_arrives_just_before_the_thread_sleeps_is_noticed() {
    let (timer, clock) = trapped();
    let (sender, receiver) = channel();
    let add = {
        let timer = timer.clone();
        move || {
            let sender = sender.clone();
            timer.new_timeout_with_hook(HOUR, nothing, move |_| sender.send(()).unwrap()).unwrap()
        }
    };
    let armed = add();
    // The thread has checked its queue, and sleeps after its reading of the clock. Nothing else
    // wakes it.
    let happenings: [Happening; 2] =
        [Box::new(move || assert!(armed.cancel())), Box::new(move || assert!(add().cancel()))];
    for happens in happenings {
        nudge(&timer);
        *clock.armed.lock().unwrap() = Some(happens);
        nudge(&timer);
        receive(&receiver);
    }
}

#[test]
fn w_23_a_tick_that_starts_while_an_addition_is_in_the_queue_is_due_at_once() {
    let (timer, clock) = trapped();
    let order = Journal::new();
    for tick in [2, 3] {
        timer.new_timeout(ms(100 * tick), order.note(tick)).unwrap();
    }
    nudge(&timer);
    // Between the check of the queue and the reading of the clock, a timeout is added, and ten
    // ticks pass.
    let (adding, moving, late) = (timer.clone(), clock.clock.clone(), order.note(1));
    let (sender, receiver) = channel();
    *clock.armed.lock().unwrap() = Some(Box::new(move || {
        adding.new_timeout(ms(50), late).unwrap();
        adding.new_timeout(ms(50), move |_| send(&sender, ())).unwrap();
        moving.advance(ms(1000));
    }));
    nudge(&timer);
    receive(&receiver);
    assert_eq!(order.take(), [2, 3, 1], "after the timeouts that were due when it was added");
    assert_eq!(timer.pending_timeouts(), 0);
}

#[test]
fn w_24_a_late_addition_does_not_overtake_timeouts_that_still_move_down() {
    let clock = Trap { clock: ManualClock::new(), armed: Arc::default() };
    let timer = HashedWheelTimer::builder().clock(clock.clone()).slots(4).build().unwrap();
    let order = Journal::new();
    // Too many to be moved down the levels in one turn.
    for _ in 0..200 {
        timer.new_timeout(ms(600), nothing).unwrap();
    }
    timer.new_timeout(ms(500), order.note(5)).unwrap();
    nudge(&timer);
    let (adding, moving, late) = (timer.clone(), clock.clock.clone(), order.note(10));
    let (sender, receiver) = channel();
    *clock.armed.lock().unwrap() = Some(Box::new(move || {
        adding.new_timeout(ms(950), late).unwrap();
        adding.new_timeout(ms(950), move |_| send(&sender, ())).unwrap();
        moving.advance(ms(1000));
    }));
    nudge(&timer);
    receive(&receiver);
    assert_eq!(order.take(), [5, 10]);
}

#[test]
fn w_24_missed_ticks_are_caught_up_in_order() {
    let (timer, clock) = manual(ms(20));
    let ticks = Journal::new();
    let blocking = clock.clone();
    for tick in (2..=30).rev() {
        timer.new_timeout(ms(tick * 20), ticks.note(tick)).unwrap();
    }
    timer
        .new_timeout(ms(20), move |_| {
            blocking.advance(ms(600));
            Ok(())
        })
        .unwrap();
    // The time that the task takes makes them due. Nothing else advances the clock.
    let (sender, receiver) = channel();
    timer.new_timeout(ms(620), move |_| send(&sender, ())).unwrap();
    clock.advance(ms(20));
    receive(&receiver);
    assert_eq!(ticks.take(), (2..=30).collect::<Vec<_>>());
}

#[test]
fn w_25_late_ticks_do_not_shift_later_ones() {
    let (timer, clock) = manual(ms(100));
    let times = Journal::new();
    timer.new_timeout(ms(100), times.stamp(&clock)).unwrap();
    advance(&timer, &clock, ms(130));
    assert_eq!(times.take(), [130]);
    timer.new_timeout(ms(60), times.stamp(&clock)).unwrap();
    for (by, expected) in [(69, vec![]), (1, vec![200])] {
        advance(&timer, &clock, ms(by));
        assert_eq!(times.take(), expected);
    }
}

#[test]
fn w_26_within_a_tick_the_order_is_that_of_addition() {
    let (timer, clock) = manual(ms(100));
    let order = Journal::new();
    let delays = [190, 150, 110, 170, 110];
    for delay in delays {
        timer.new_timeout(ms(delay), order.note(delay)).unwrap();
    }
    advance(&timer, &clock, ms(500));
    assert_eq!(order.take(), delays);
}

#[test]
fn w_27_a_flood_of_additions_does_not_delay_due_timeouts() {
    const FLOOD: usize = 150_000;
    let (timer, clock) = manual(ms(100));
    let moved = Arc::new(AtomicUsize::new(0));
    let (sender, receiver) = channel();
    let seen = moved.clone();
    let due = move |_: &Timeout| send(&sender, seen.load(Ordering::Relaxed));
    timer.new_timeout(ms(200), due).unwrap();
    let held = hold(&timer, &clock);
    // The hook of a timeout that is cancelled in the queue shows when the thread reaches it.
    for _ in 0..FLOOD {
        let moved = moved.clone();
        let hook = move |_: &Timeout| _ = moved.fetch_add(1, Ordering::Relaxed);
        timer.new_timeout_with_hook(HOUR, nothing, hook).unwrap().cancel();
    }
    clock.advance(ms(100));
    held.let_go();
    assert_eq!(receive(&receiver), 100_000);
    timer.stop().unwrap();
    assert_eq!(moved.load(Ordering::Relaxed), FLOOD);
}

#[test]
fn w_28_a_task_that_fails_or_panics_is_logged_without_further_effect() {
    let (timer, clock) = manual(ms(100));
    logs::collect();
    let ran = Journal::new();
    timer.new_timeout(ms(1), |_| Err("its own mistake".into())).unwrap();
    timer.new_timeout(ms(1), |_| panic!("its own panic")).unwrap();
    timer.new_timeout(ms(1), ran.note(1)).unwrap();
    advance(&timer, &clock, ms(100));
    timer.new_timeout(ms(1), ran.note(2)).unwrap();
    advance(&timer, &clock, ms(100));
    assert_eq!(ran.take(), [1, 2]);
    for text in ["failed: its own mistake", "panicked: its own panic"] {
        let lines = logs::lines_with(text);
        let at = concat!("ERROR the timeout given at ", file!(), ":");
        assert!(matches!(&lines[..], [line] if line.starts_with(at)), "{lines:?}");
    }
}

#[test]
fn w_29_tasks_run_on_the_executor() {
    let group = EventLoopGroup::builder().threads(1).name("elsewhere").build().unwrap();
    let (event_loop, clock) = (group.next().clone(), ManualClock::new());
    let timer = HashedWheelTimer::builder()
        .executor(move |task| Ok(event_loop.execute(task)?))
        .clock(clock.clone())
        .build()
        .unwrap();
    let (sender, receiver) = channel();
    let task = move |me: &Timeout| {
        // Not on the timer's thread, so the task may stop the timer.
        let stopped = me.timer().unwrap().stop()?.len();
        send(&sender, (thread::current().name().map(str::to_owned), me.is_expired(), stopped))
    };
    timer.new_timeout(ms(1), task).unwrap();
    far(&timer);
    clock.advance(ms(100));
    assert_eq!(receive(&receiver), (Some("elsewhere-0".to_owned()), true, 1));
}

#[test]
fn w_29_a_task_that_the_executor_refuses_is_logged_and_dropped() {
    logs::collect();
    let (clock, calls) = (ManualClock::new(), AtomicUsize::new(0));
    let timer = HashedWheelTimer::builder()
        .executor(move |task| match calls.fetch_add(1, Ordering::Relaxed) {
            0 => Err("the executor is full".into()),
            1 => panic!("the executor is broken"),
            2 => Ok(()),
            _ => {
                task();
                Ok(())
            }
        })
        .clock(clock.clone())
        .build()
        .unwrap();
    let payload = Arc::new(());
    let timeouts = [(); 3].map(|()| {
        let captured = payload.clone();
        timer.new_timeout(ms(1), move |_| panic!("{captured:?} is run")).unwrap()
    });
    advance(&timer, &clock, ms(100));
    assert!(timeouts.iter().all(Timeout::is_expired));
    assert_eq!((Arc::strong_count(&payload), timer.pending_timeouts()), (1, 0));
    for text in ["refused by the executor: the executor is full", "it panicked: the executor is broken"] {
        assert_eq!(logs::lines_with(text).len(), 1);
    }
    assert_eq!(logs::lines_with("() is run").len(), 0);
}
