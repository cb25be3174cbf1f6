//! The end of a loop: states, quiet period, what still runs and what is refused (E-51 to E-57, E-59).

#[path = "support/loops.rs"]
mod loops;

use bytes::Bytes;
use loops::{
    Gate, Journal, PATIENCE, advance, assert_echoes, connect, echo_server, flood, manual, ms, on, result,
};
use loops::{settle, single};
use netwheel::{
    Completion, Context, Error, EventLoop, EventLoopGroup, Handler, Pipeline, Result, ServerBootstrap,
    codec::RawBytes, testing::ManualClock,
};
use std::{
    io::Read,
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

/// Longer than any test waits: what ends after this has not ended by itself.
const LONG: Duration = Duration::from_secs(3600);

fn count(ran: &AtomicUsize) {
    ran.fetch_add(1, Ordering::Relaxed);
}

/// Lets time pass bit by bit, for as long as it takes.
#[track_caller]
fn pass_until_done<const N: usize>(clock: &ManualClock, step: Duration, ends: [&Completion; N]) {
    let begun = Instant::now();
    while ends.iter().any(|end| !end.is_done()) {
        assert!(begun.elapsed() < PATIENCE, "the loop does not end");
        clock.advance(step);
        std::thread::yield_now();
    }
}

fn states(event_loop: &EventLoop) -> [bool; 3] {
    [event_loop.is_shutting_down(), event_loop.is_shut_down(), event_loop.is_terminated()]
}

#[track_caller]
fn assert_refuses(event_loop: &EventLoop) {
    assert!(matches!(event_loop.execute(|| ()), Err(Error::ShutDown)));
    assert!(matches!(event_loop.schedule(ms(1), || ()), Err(Error::ShutDown)));
    assert!(matches!(event_loop.schedule_at_fixed_rate(ms(1), ms(1), || Ok(())), Err(Error::ShutDown)));
    assert!(matches!(event_loop.rebuild_poll(), Err(Error::ShutDown)));
}

#[test]
fn e_51_each_state_means_at_least_this_far() {
    let (event_loop, _clock) = manual();
    assert_eq!(states(&event_loop), [false; 3]);
    settle(&event_loop);
    assert_eq!(states(&event_loop), [false; 3]);
    let gate = Gate::shut(&event_loop);
    let end = event_loop.shutdown_gracefully(Duration::ZERO, LONG);
    assert_eq!(states(&event_loop), [true, false, false]);
    drop(gate);
    result(end).unwrap();
    assert_eq!(states(&event_loop), [true; 3]);
    result(event_loop.terminated()).unwrap();
}

#[test]
fn e_51_states_only_move_forward() {
    for _ in 0..50 {
        let (event_loop, _clock) = manual();
        settle(&event_loop);
        let end = event_loop.shutdown_gracefully(Duration::ZERO, LONG);
        let begun = Instant::now();
        let mut before = [false; 3];
        while !before[2] {
            assert!(begun.elapsed() < PATIENCE);
            // Read from the last to the first, so that a step in between makes the earlier ones no smaller.
            let terminated = event_loop.is_terminated();
            let shut_down = event_loop.is_shut_down();
            let now = [event_loop.is_shutting_down(), shut_down, terminated];
            assert!(now.is_sorted_by(|a, b| a >= b), "{now:?}");
            assert!(before.iter().zip(now).all(|(before, now)| !before || now), "{before:?} {now:?}");
            before = now;
        }
        result(end).unwrap();
    }
}

#[test]
fn e_51_a_second_request_changes_nothing() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let first = event_loop.shutdown_gracefully(ms(1000), LONG);
    let second = event_loop.shutdown_gracefully(Duration::ZERO, Duration::ZERO);
    settle(&event_loop);
    assert_eq!(states(&event_loop), [true, false, false], "the first one's quiet period is not over");
    pass_until_done(&clock, ms(10), [&first, &second]);
    assert!(clock.elapsed() >= ms(1000));
    result(first).unwrap();
    result(second).unwrap();
    result(event_loop.shutdown_gracefully(LONG, LONG)).unwrap();
}

// A `Duration` is never negative; there are no defaults, both are always given.
#[test]
fn e_52_a_timeout_shorter_than_the_quiet_period_is_refused() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    for refused in [event_loop.shutdown_gracefully(ms(2), ms(1)), group.shutdown_gracefully(ms(2), ms(1))] {
        assert!(matches!(result(refused), Err(Error::Setting(e)) if e.setting == "timeout"));
    }
    assert_eq!(states(&event_loop), [false; 3]);
    assert_eq!(on(&event_loop, || "alive"), "alive");
    result(event_loop.shutdown_gracefully(ms(1), ms(1))).unwrap();
}

#[test]
fn e_53_a_loop_that_never_started_ends_at_once() {
    let (event_loop, _clock) = manual();
    let end = event_loop.shutdown_gracefully(LONG, LONG);
    assert!(end.is_done(), "there is nothing to wait for, not even for quiet");
    result(end).unwrap();
    assert_eq!(states(&event_loop), [true; 3]);
    assert_refuses(&event_loop);
    assert_eq!(event_loop.metrics().turns, 0);
    result(event_loop.terminated()).unwrap();
}

#[test]
fn e_53_the_first_task_and_the_shutdown_may_race() {
    for _ in 0..500 {
        let (event_loop, _clock) = manual();
        let (ran, runs) = channel();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| event_loop.execute(move || ran.send(()).unwrap()).is_ok());
            result(event_loop.shutdown_gracefully(Duration::ZERO, LONG)).unwrap();
            assert_eq!(accepted.join().unwrap(), runs.recv_timeout(PATIENCE).is_ok());
        });
    }
}

#[test]
fn e_54_what_was_queued_runs_before_the_end() {
    let (event_loop, _clock) = manual();
    let gate = Gate::shut(&event_loop);
    let ran = Journal::new();
    for n in 0..3 {
        let ran = ran.clone();
        event_loop.execute(move || ran.push(n)).unwrap();
    }
    let end = event_loop.shutdown_gracefully(Duration::ZERO, LONG);
    // Until the quiet period is over, tasks are taken: handlers that say goodbye need them.
    let last = ran.clone();
    event_loop.execute(move || last.push(3)).unwrap();
    assert_eq!(ran.len(), 0);
    drop(gate);
    result(end).unwrap();
    assert_eq!(ran.all(), [0, 1, 2, 3]);
    assert_refuses(&event_loop);
}

#[test]
fn e_54_more_than_a_turn_of_queued_tasks_runs_before_the_end() {
    let (event_loop, clock) = manual();
    let gate = Gate::shut(&event_loop);
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..1000 {
        let ran = ran.clone();
        event_loop.execute(move || count(&ran)).unwrap();
    }
    let end = event_loop.shutdown_gracefully(Duration::ZERO, Duration::ZERO);
    clock.advance(ms(1));
    drop(gate);
    result(end).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1000);
}

#[test]
fn e_55_a_loop_ends_a_quiet_period_after_its_last_task() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let end = event_loop.shutdown_gracefully(ms(1000), LONG);
    for _ in 0..20 {
        clock.advance(ms(100));
        on(&event_loop, || ());
    }
    assert_eq!(clock.elapsed(), ms(2000));
    clock.advance(ms(999));
    assert_eq!(states(&event_loop), [true, false, false]);
    // The quiet begins when the turn of the last task ends, which may have been after the 999 ms.
    pass_until_done(&clock, ms(1), [&end]);
    assert!(clock.elapsed() >= ms(3000));
    result(end).unwrap();
}

#[test]
fn e_55_the_quiet_period_is_kept_in_real_time() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    let (ran, runs) = channel();
    event_loop.execute(move || ran.send(Instant::now()).unwrap()).unwrap();
    let end = event_loop.shutdown_gracefully(ms(150), LONG);
    let last = runs.recv_timeout(PATIENCE).unwrap();
    result(end).unwrap();
    assert!(last.elapsed() >= ms(150));
}

#[test]
fn e_55_tasks_that_never_stop_do_not_hold_up_the_end_beyond_the_timeout() {
    let (event_loop, clock) = manual();
    let flood = flood(&event_loop);
    let end = event_loop.shutdown_gracefully(ms(2000), ms(2000));
    settle(&event_loop);
    clock.advance(ms(1999));
    on(&event_loop, || ());
    assert_eq!(states(&event_loop), [true, false, false]);
    clock.advance(ms(1));
    result(end).unwrap();
    assert_refuses(&event_loop);
    drop(flood);
}

#[test]
fn e_56_open_channels_are_closed_and_do_not_hold_up_the_end() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, failed) = echo_server(&group);
    let mut peers: Vec<_> = (0..5).map(|_| connect(&server)).collect();
    peers.iter_mut().for_each(assert_echoes);
    let end = group.shutdown_gracefully(Duration::ZERO, LONG);
    result(end).unwrap();
    assert_eq!(event_loop.metrics().channels, 0);
    for peer in &mut peers {
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
    result(server.closed()).unwrap();
    assert!(TcpStream::connect(server.local_address()).is_err(), "nobody listens");
    assert!(failed.try_recv().is_err());
}

/// Schedules something for an hour later, and says what becomes of it.
struct Patient(std::sync::mpsc::Sender<&'static str>);

struct Told(std::sync::mpsc::Sender<&'static str>);

impl Drop for Told {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

impl Handler for Patient {
    type In = Bytes;
    type Out = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let told = Told(self.0.clone());
        ctx.schedule(LONG, move |_, _| {
            let _ = told.0.send("ran");
            Ok(())
        });
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn e_57_pending_timers_are_cancelled_and_not_run() {
    let (event_loop, clock) = manual();
    let ran = Journal::new();
    let witness = Arc::new(());
    let (mine, held) = (ran.clone(), witness.clone());
    let once = event_loop.schedule(ms(10), move || {
        let _held = held;
        mine.push("once");
    });
    let mine = ran.clone();
    let periodic = event_loop.schedule_at_fixed_rate(ms(10), ms(10), move || {
        mine.push("again");
        Ok(())
    });
    let (once, periodic) = (once.unwrap(), periodic.unwrap());
    settle(&event_loop);
    let end = event_loop.shutdown_gracefully(ms(1000), LONG);
    settle(&event_loop);
    assert_eq!(Arc::strong_count(&witness), 1, "cancelled when shutdown begins");
    assert_eq!(event_loop.metrics().timers_pending, 0);
    assert!(matches!(event_loop.schedule(ms(1), || ()), Err(Error::ShutDown)));
    advance(&event_loop, &clock, ms(500));
    assert!(!once.cancel() && !periodic.cancel(), "they have ended already");
    assert!(matches!(result(once.completion()), Err(Error::ShutDown)));
    assert!(matches!(result(periodic.completion()), Err(Error::ShutDown)));
    pass_until_done(&clock, ms(10), [&end]);
    result(end).unwrap();
    assert_eq!(ran.len(), 0);
}

#[test]
fn e_57_a_timer_that_is_due_when_shutdown_begins_does_not_run() {
    let (event_loop, clock) = manual();
    let once = event_loop.schedule(ms(10), || ()).unwrap();
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    clock.advance(ms(10));
    let end = event_loop.shutdown_gracefully(Duration::ZERO, LONG);
    drop(gate);
    result(end).unwrap();
    assert!(matches!(result(once.completion()), Err(Error::ShutDown)));
}

#[test]
fn e_57_pending_timers_of_channels_are_dropped_and_not_run() {
    let (group, _event_loop) = single(EventLoopGroup::builder());
    let (told, news) = channel();
    let told = std::sync::Mutex::new(told);
    let server = ServerBootstrap::new(&group).pipeline(move |_peer| {
        Pipeline::new().codec(RawBytes).handler(Patient(told.lock().unwrap().clone()))
    });
    let server = server.bind("127.0.0.1:0").unwrap();
    assert_echoes(&mut connect(&server));
    result(group.shutdown_gracefully(Duration::ZERO, LONG)).unwrap();
    assert_eq!(news.recv_timeout(PATIENCE).unwrap(), "dropped");
}

#[test]
fn e_59_a_task_that_races_with_the_end_runs_or_is_refused() {
    for round in 0..1000 {
        let (_group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
        settle(&event_loop);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = || {
            let mut accepted = 0;
            loop {
                let ran = ran.clone();
                match event_loop.execute(move || count(&ran)) {
                    Ok(()) => accepted += 1,
                    Err(Error::ShutDown) => return accepted,
                    Err(Error::Full { .. }) => std::thread::yield_now(),
                    Err(other) => panic!("{other}"),
                }
            }
        };
        let accepted: usize = std::thread::scope(|scope| {
            let submitters = [scope.spawn(submit), scope.spawn(submit)];
            // Those who submit without a pause never let it be quiet: the timeout has to end it.
            result(event_loop.shutdown_gracefully(Duration::ZERO, Duration::ZERO)).unwrap();
            submitters.map(|submitter| submitter.join().unwrap()).iter().sum()
        });
        assert_eq!(ran.load(Ordering::Relaxed), accepted, "round {round}");
    }
}
