//! Submitting tasks to a loop: order, waking, failures, waiting (E-12, E-14, E-15, E-19, E-22 to
//! E-26, E-31).

use crate::support::{
    journal::Journal,
    logs,
    loops::{Gate, advance, manual, on, settle, single},
    servers::{Quiet, echo_server},
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms, wait_until, wait_until_or},
};
use netwheel::{
    ClientBootstrap, Completion, Error, EventLoop, EventLoopGroup, Handler, Pipeline, Result,
    ServerBootstrap, codec::RawBytes, shutdown::ShutdownOptions,
};
use std::{
    collections::HashSet,
    io::{ErrorKind, Read},
    sync::{Arc, Barrier, mpsc::channel},
    thread::yield_now,
    time::Duration,
};

/// Retries `attempt` until it succeeds. A refusal for lack of room must be temporary.
#[track_caller]
fn soon<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    let mut accepted = None;
    wait_until("there is room", || {
        match attempt() {
            Ok(value) => accepted = Some(value),
            Err(Error::Full { .. }) => {}
            Err(other) => panic!("{other}"),
        }
        accepted.is_some()
    });
    accepted.unwrap()
}

/// Waits until the tasks that are now in the queue have been taken out.
#[track_caller]
fn drain(event_loop: &EventLoop) {
    let (sender, receiver) = channel();
    soon(|| {
        let sender = sender.clone();
        Ok(event_loop.execute(move || sender.send(()).unwrap())?)
    });
    receiver.recv_timeout(PATIENCE).expect("the queue was not drained");
}

#[test]
fn e_12_due_timers_run_after_the_tasks_submitted_with_them() {
    let (event_loop, _clock) = manual();
    let order = Journal::new();
    let (me, mine) = (event_loop.clone(), order.clone());
    on(&event_loop, move || {
        let note = |name: &'static str| {
            let order = mine.clone();
            move || order.push(name)
        };
        me.execute(note("a")).unwrap();
        me.schedule(Duration::ZERO, note("s1")).unwrap();
        me.schedule(Duration::ZERO, note("s2")).unwrap();
        me.execute(note("c")).unwrap();
    });
    while order.len() < 4 {
        settle(&event_loop);
    }
    assert_eq!(order.all(), ["a", "c", "s1", "s2"]);
}

#[test]
fn e_14_a_timer_from_another_thread_goes_through_the_queue() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let before = event_loop.metrics().timers_pending;
    let gate = Gate::shut(&event_loop);
    let me = event_loop.clone();
    let task = event_loop.schedule(ms(10), move || me.in_event_loop()).unwrap();
    let metrics = event_loop.metrics();
    assert_eq!((before, metrics.timers_pending, metrics.tasks_pending), (0, 0, 1));
    drop(gate);
    settle(&event_loop);
    let metrics = event_loop.metrics();
    assert_eq!((metrics.timers_pending, metrics.tasks_pending), (1, 0));
    clock.advance(ms(10));
    assert!(done(task.completion()).unwrap(), "the timer runs on the loop");
}

#[test]
fn e_15_a_later_timer_does_not_wake_the_loop() {
    let (event_loop, clock) = manual();
    let head = event_loop.schedule(ms(10_000), || ()).unwrap();
    settle(&event_loop);
    let before = event_loop.metrics().wakes_written;
    let later: Vec<_> = (0..1000)
        .map(|n| {
            yield_now();
            event_loop.schedule(ms(10_000 + n), || ()).unwrap()
        })
        .collect();
    assert_eq!(event_loop.metrics().wakes_written, before);
    // The loop knows them all the same.
    advance(&event_loop, &clock, ms(10_999));
    assert!(head.is_done() && later.iter().all(|task| task.is_done()));
}

#[test]
fn e_15_an_earlier_timer_wakes_the_loop_once() {
    let (event_loop, _clock) = manual();
    let mut delay = ms(10_000);
    let _head = event_loop.schedule(delay, || ()).unwrap();
    settle(&event_loop);
    let before = event_loop.metrics().wakes_written;
    // A timer that is scheduled before the loop falls asleep causes no wake.
    wait_until("a wake for an earlier timer", || {
        delay -= Duration::from_nanos(1);
        event_loop.schedule(delay, || ()).unwrap();
        // Lets the loop fall asleep.
        yield_now();
        event_loop.metrics().wakes_written > before
    });
    assert_eq!(event_loop.metrics().wakes_written, before + 1);
}

#[test]
fn e_15_no_timer_is_missed_by_a_sleeping_loop() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    for round in 0..300 {
        // Some timers are scheduled before an existing deadline, some while there is none.
        let far = event_loop.schedule(Duration::from_secs(600), || ()).unwrap();
        let near = event_loop.schedule(Duration::from_micros(round), || ()).unwrap();
        done(near.completion()).unwrap();
        far.cancel();
    }
}

#[test]
fn e_15_later_timers_do_not_fill_the_queue_of_a_sleeping_loop() {
    let clock = netwheel::testing::ManualClock::new();
    let builder = EventLoopGroup::builder().max_pending_tasks(16).clock(clock.clone());
    let (_group, event_loop) = single(builder);
    event_loop.schedule(Duration::from_secs(600), || ()).unwrap();
    settle(&event_loop);
    let tasks: Vec<_> =
        (0..200).map(|_| soon(|| event_loop.schedule(Duration::from_secs(1200), || ()))).collect();
    drain(&event_loop);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 201);
    for task in tasks {
        assert!(task.cancel());
    }
    drain(&event_loop);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 1);
}

// Due timers do not go through the task queue, so a full queue cannot drop them.
#[test]
fn e_19_a_full_queue_loses_no_timer() {
    let clock = netwheel::testing::ManualClock::new();
    let (_group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16).clock(clock.clone()));
    let once = event_loop.schedule(ms(10), || "ran").unwrap();
    let runs = Journal::new();
    let mine = runs.clone();
    let body = move || {
        mine.push(());
        Ok(())
    };
    let periodic = event_loop.schedule_periodic(ms(10), body).unwrap();
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    let (count, ran) = channel();
    let fill = || {
        let count = count.clone();
        event_loop.execute(move || count.send(()).unwrap()).map_err(Error::from)
    };
    let taken = (0..100).take_while(|_| fill().is_ok()).count();
    assert_eq!(taken, 16);
    assert!(matches!(fill(), Err(Error::Full { limit: 16, .. })));
    assert!(matches!(event_loop.schedule(ms(1), || ()), Err(Error::Full { .. })));
    clock.advance(ms(10));
    drop(gate);
    assert_eq!(done(once.completion()).unwrap(), "ran");
    for _ in 0..taken {
        ran.recv_timeout(PATIENCE).unwrap();
    }
    settle(&event_loop);
    advance(&event_loop, &clock, ms(10));
    assert_eq!(runs.len(), 2);
    assert_eq!(event_loop.metrics().tasks_refused, 3);
    periodic.cancel();
}

#[cfg(target_os = "linux")]
fn threads_named(name: &str) -> usize {
    let threads = std::fs::read_dir("/proc/self/task").unwrap().flatten();
    threads.filter(|t| std::fs::read_to_string(t.path().join("comm")).is_ok_and(|n| n.trim() == name)).count()
}

/// Checks that exactly one thread has this name. A listing may omit a thread while others end, but
/// never lists one twice.
#[cfg(target_os = "linux")]
fn assert_thread_is_listed_once(name: &str) {
    let mut listed = 0;
    wait_until_or(
        || format!("a thread is called {name}"),
        || {
            listed = threads_named(name);
            listed > 0
        },
    );
    assert_eq!(listed, 1);
}

#[test]
fn e_22_the_first_task_starts_one_thread() {
    const SUBMITTERS: usize = 8;
    let (_group, event_loop) = single(EventLoopGroup::builder().name("e22"));
    #[cfg(target_os = "linux")]
    assert_eq!(threads_named("e22-0"), 0);
    let barrier = Barrier::new(SUBMITTERS);
    let (here, there) = channel();
    std::thread::scope(|scope| {
        for _ in 0..SUBMITTERS {
            let (here, event_loop, barrier) = (here.clone(), &event_loop, &barrier);
            scope.spawn(move || {
                barrier.wait();
                let task = move || {
                    let thread = std::thread::current();
                    here.send((thread.id(), thread.name().map(str::to_owned))).unwrap();
                };
                event_loop.execute(task).unwrap();
            });
        }
    });
    let threads: HashSet<_> = (0..SUBMITTERS).map(|_| there.recv_timeout(PATIENCE).unwrap()).collect();
    assert_eq!(threads.len(), 1);
    assert_eq!(threads.into_iter().next().unwrap().1.as_deref(), Some("e22-0"));
    assert_eq!(event_loop.name(), "e22-0");
    #[cfg(target_os = "linux")]
    assert_thread_is_listed_once("e22-0");
}

#[test]
fn e_23_a_running_loop_is_not_woken() {
    let (event_loop, _clock) = manual();
    let gate = Gate::shut(&event_loop);
    let before = event_loop.metrics().wakes_written;
    for _ in 0..1000 {
        event_loop.execute(|| ()).unwrap();
        event_loop.schedule(ms(1), || ()).unwrap();
    }
    assert_eq!(event_loop.metrics().wakes_written, before);
    assert_eq!(event_loop.metrics().tasks_pending, 2000);
    drop(gate);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 1000);
}

#[test]
fn e_23_a_loop_does_not_wake_itself() {
    let (event_loop, clock) = manual();
    let (ran, runs) = channel();
    let me = event_loop.clone();
    let (before, after) = on(&event_loop, move || {
        let before = me.metrics().wakes_written;
        for _ in 0..100 {
            let ran = ran.clone();
            me.execute(move || ran.send(()).unwrap()).unwrap();
            me.schedule(ms(1), || ()).unwrap().cancel();
        }
        clock.advance(ms(1));
        (before, me.metrics().wakes_written)
    });
    for _ in 0..100 {
        runs.recv_timeout(PATIENCE).unwrap();
    }
    assert_eq!(before, after);
    assert_eq!(event_loop.metrics().wakes_written, before);
}

#[test]
fn e_23_a_sleep_is_ended_by_at_most_one_write() {
    let (event_loop, _clock) = manual();
    settle(&event_loop);
    let before = event_loop.metrics();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..2000 {
                    event_loop.execute(|| ()).unwrap();
                }
            });
        }
    });
    // Read before the polls: every counted write belongs to a sleep that is counted by then or
    // still in progress.
    let written = event_loop.metrics().wakes_written - before.wakes_written;
    settle(&event_loop);
    let polls = event_loop.metrics().polls - before.polls;
    assert!(written <= polls + 1, "{written} writes, {polls} polls");
}

#[test]
fn e_24_no_task_is_missed_by_a_sleeping_loop() {
    let (event_loop, _clock) = manual();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                for n in 0..5000 {
                    assert_eq!(on(&event_loop, move || n), n);
                }
            });
        }
    });
}

#[test]
fn e_25_lazy_tasks_do_not_wake_the_loop_and_run_before_the_next_task() {
    let (event_loop, _clock) = manual();
    settle(&event_loop);
    let order = Journal::new();
    let note = |name: &'static str| {
        let order = order.clone();
        move || order.push(name)
    };
    let before = event_loop.metrics().wakes_written;
    event_loop.execute_lazily(note("a")).unwrap();
    event_loop.execute_lazily(note("b")).unwrap();
    assert_eq!(event_loop.metrics().wakes_written, before);
    on(&event_loop, note("c"));
    assert_eq!(order.all(), ["a", "b", "c"]);
}

// Timers that are due after the sleep, and cancels, do not wake the loop either.
#[test]
fn e_25_requests_that_did_not_wake_the_loop_are_handled_before_the_next_task() {
    let (event_loop, clock) = manual();
    let order = Journal::new();
    let note = |name: &'static str| {
        let order = order.clone();
        move || order.push(name)
    };
    event_loop.schedule(ms(10), || ()).unwrap();
    settle(&event_loop);
    let before = event_loop.metrics().wakes_written;
    event_loop.schedule(ms(20), note("a")).unwrap();
    let cancelled = event_loop.schedule(ms(20), note("cancelled")).unwrap();
    event_loop.schedule(ms(20), note("b")).unwrap();
    assert!(cancelled.cancel());
    assert_eq!(event_loop.metrics().wakes_written, before);
    let (me, last) = (event_loop.clone(), note("c"));
    on(&event_loop, move || drop(me.schedule(ms(20), last).unwrap()));
    advance(&event_loop, &clock, ms(20));
    assert_eq!(order.all(), ["a", "b", "c"]);
}

#[test]
fn e_26_a_task_that_panics_is_logged_and_the_next_one_runs() {
    logs::collect();
    let (event_loop, _clock) = manual();
    let gate = Gate::shut(&event_loop);
    event_loop.execute(|| panic!("e_26 on purpose")).unwrap();
    let (ran, runs) = channel();
    event_loop.execute(move || ran.send(()).unwrap()).unwrap();
    drop(gate);
    runs.recv_timeout(PATIENCE).expect("the next task did not run");
    assert_eq!(event_loop.metrics().tasks_panicked, 1);
    let lines = logs::lines_with("e_26 on purpose");
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("ERROR") && lines[0].contains("submission.rs"), "{lines:?}");
}

/// Waits on the loop, with and without a timeout.
fn assert_would_deadlock<T>(what: &str, make: impl Fn() -> Completion<T>) {
    assert!(matches!(make().wait(), Err(Error::WouldDeadlock)), "{what}");
    assert!(matches!(make().wait_timeout(PATIENCE), Ok(Err(Error::WouldDeadlock))), "{what}");
}

struct Silent;

impl Handler for Silent {
    type Read = bytes::Bytes;
    type Write = bytes::Bytes;

    fn read(&mut self, _: &mut netwheel::Context<'_, Self>, _: bytes::Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn e_31_waiting_on_the_loop_that_has_to_complete_the_operation_is_an_error() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, _failed) = echo_server(&group);
    let address = server.local_address();
    let client = ClientBootstrap::new(&group).pipeline(|_| Pipeline::codec(RawBytes).handler(Silent));
    let channel = done(client.connect(address)).unwrap();
    let (me, all, listening, connected) =
        (event_loop.clone(), group.clone(), server.clone(), channel.clone());
    on(&event_loop, move || {
        let later = Duration::from_secs(600);
        assert_would_deadlock("a scheduled task", || me.schedule(later, || ()).unwrap().completion());
        assert_would_deadlock("a connect", || client.connect(address));
        assert_would_deadlock("a rebuild", || me.rebuild_poll().unwrap());
        assert_would_deadlock("a channel's end", || connected.closed());
        assert_would_deadlock("a server's end", || listening.closed());
        assert_would_deadlock("the loop's end", || me.terminated());
        assert_would_deadlock("the group's end", || all.terminated());
    });
    assert!(channel.is_open());
    assert_echoes(&mut connect(server.local_address()));
}

#[test]
fn e_31_no_loop_of_a_group_may_wait_for_the_end_of_the_group() {
    let group = EventLoopGroup::builder().threads(3).build().unwrap();
    for event_loop in group.event_loops() {
        let all = group.clone();
        on(event_loop, move || assert_would_deadlock("the group's end", || all.terminated()));
    }
    let all = group.clone();
    on(group.next(), move || {
        let end = all
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(600)));
        assert!(matches!(end.wait(), Err(Error::WouldDeadlock)));
    });
    done(group.terminated()).unwrap();
}

#[test]
fn e_31_a_completed_operation_and_one_of_another_loop_may_be_waited_for() {
    let (event_loop, _clock) = manual();
    let (other, _clock) = manual();
    let here = event_loop.schedule(Duration::ZERO, || 1).unwrap();
    while !here.is_done() {
        settle(&event_loop);
    }
    let (here, there) = on(&event_loop, move || {
        let there = other.schedule(Duration::ZERO, || 2).unwrap();
        (done(here.completion()).unwrap(), done(there.completion()).unwrap())
    });
    assert_eq!((here, there), (1, 2));
}

#[test]
fn e_29_a_refused_task_is_handed_back() {
    let (_group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
    let gate = Gate::shut(&event_loop);
    let ran = Arc::new(());
    let task = || {
        let ran = ran.clone();
        Box::new(move || drop(ran)) as Box<dyn FnOnce() + Send>
    };
    let refused = loop {
        if let Err(refused) = event_loop.execute(task()) {
            break refused;
        }
    };
    assert!(matches!(refused.error(), Error::Full { limit: 16, .. }));
    assert_eq!(Arc::strong_count(&ran), 1 + 16 + 1, "the refused task is still intact");
    drop(gate);
    (refused.into_inner())();
    drain(&event_loop);
    settle(&event_loop);
    assert_eq!(Arc::strong_count(&ran), 1);
}

#[test]
fn e_29_a_full_queue_does_not_prevent_a_server_from_closing() {
    let (group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
    let (server, _failed) = echo_server(&group);
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    while event_loop.execute(|| ()).is_ok() {}
    assert!(matches!(server.set_accepting(false), Err(Error::Full { .. })));
    let closed = server.close();
    drop(gate);
    done(closed).unwrap();
}

#[test]
fn an_accepted_connection_that_a_full_queue_refuses_is_reset() {
    let acceptors = EventLoopGroup::builder().threads(1).build().unwrap();
    let (group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
    let bootstrap = ServerBootstrap::new(&group).acceptor_group(&acceptors);
    let server = bootstrap.pipeline(|_| Pipeline::codec(RawBytes).handler(Quiet)).bind("127.0.0.1:0");
    let server = server.unwrap();
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    while event_loop.execute(|| ()).is_ok() {}
    let end = connect(server.local_address()).read(&mut [0; 1]);
    assert_eq!(end.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(acceptors.metrics()[0].rejected_by_loop, 1);
    drop(gate);
}
