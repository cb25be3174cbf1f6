//! Shutdown of a loop: states, quiet period, tasks that still run and tasks that are refused (E-51
//! to E-57, E-59 to E-61). `shutdown_paced.rs` tests the shutdown of its channels.

use crate::support::{
    journal::Journal,
    logs,
    loops::{Gate, advance, flood, manual, on, settle, single},
    servers::echo_server,
    tcp::{assert_echoes, connect},
    wait::{HOUR, PATIENCE, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Completion, Context, Error, EventLoop, EventLoopGroup, Handler, Pipeline, Result,
    ServerBootstrap,
    codec::RawBytes,
    shutdown::{ShutdownOptions, ShutdownReport},
    testing::ManualClock,
};
use std::{
    io::{ErrorKind, Read},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

/// Longer than any test waits. A test that needs this much time has failed.
fn count(ran: &AtomicUsize) {
    ran.fetch_add(1, Ordering::Relaxed);
}

/// Advances the clock in steps of `step` until all `ends` are done.
#[track_caller]
fn pass_until_done<T, const N: usize>(clock: &ManualClock, step: Duration, ends: [&Completion<T>; N]) {
    wait_until("the end of the loop", || {
        let is_done = ends.iter().all(|end| end.is_done());
        if !is_done {
            clock.advance(step);
        }
        is_done
    });
}

fn states(event_loop: &EventLoop) -> [bool; 3] {
    [event_loop.is_shutting_down(), event_loop.is_shut_down(), event_loop.is_terminated()]
}

#[track_caller]
fn assert_refuses(event_loop: &EventLoop) {
    assert!(matches!(event_loop.execute(|| ()).map_err(Error::from), Err(Error::ShutDown)));
    assert!(matches!(event_loop.schedule(ms(1), || ()), Err(Error::ShutDown)));
    assert!(matches!(event_loop.schedule_periodic(ms(1), || Ok(())), Err(Error::ShutDown)));
    assert!(matches!(event_loop.rebuild_poll(), Err(Error::ShutDown)));
}

#[test]
fn e_51_states_follow_each_other() {
    let (event_loop, _clock) = manual();
    assert_eq!(states(&event_loop), [false; 3]);
    settle(&event_loop);
    assert_eq!(states(&event_loop), [false; 3]);
    let gate = Gate::shut(&event_loop);
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR));
    assert_eq!(states(&event_loop), [true, false, false]);
    drop(gate);
    done(end).unwrap();
    assert_eq!(states(&event_loop), [true; 3]);
    done(event_loop.terminated()).unwrap();
}

#[test]
fn e_51_states_only_move_forward() {
    for _ in 0..50 {
        let (event_loop, _clock) = manual();
        settle(&event_loop);
        let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR));
        let begun = Instant::now();
        let mut before = [false; 3];
        while !before[2] {
            assert!(begun.elapsed() < PATIENCE);
            // Read from the last to the first, so that a transition in between does not make the
            // states inconsistent.
            let terminated = event_loop.is_terminated();
            let shut_down = event_loop.is_shut_down();
            let now = [event_loop.is_shutting_down(), shut_down, terminated];
            assert!(now.is_sorted_by(|a, b| a >= b), "{now:?}");
            assert!(before.iter().zip(now).all(|(before, now)| !before || now), "{before:?} {now:?}");
            before = now;
        }
        done(end).unwrap();
    }
}

#[test]
fn e_51_a_second_request_changes_nothing() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let first = event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(1000)).timeout(HOUR));
    let second =
        event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO));
    settle(&event_loop);
    assert_eq!(states(&event_loop), [true, false, false], "the quiet period of the first request continues");
    pass_until_done(&clock, ms(10), [&first, &second]);
    assert!(clock.elapsed() >= ms(1000));
    done(first).unwrap();
    done(second).unwrap();
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(HOUR).timeout(HOUR))).unwrap();
}

#[test]
fn e_52_the_defaults_are_a_quiet_period_of_2_s_and_a_timeout_of_15_s() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let cancelled = event_loop.schedule(HOUR, || ()).unwrap();
    let end = event_loop.shutdown(ShutdownOptions::new());
    // The shutdown has started. From here on no task restarts the quiet period.
    assert!(matches!(done(cancelled.completion()), Err(Error::ShutDown)));
    clock.advance(ms(1999));
    assert_eq!(states(&event_loop), [true, false, false]);
    clock.advance(ms(1));
    assert_eq!(done(end).unwrap().took, ms(2000));

    let (event_loop, clock) = manual();
    let _flood = flood(&event_loop);
    let end = event_loop.shutdown(ShutdownOptions::new());
    settle(&event_loop);
    advance(&event_loop, &clock, ms(14_999));
    assert_eq!(states(&event_loop), [true, false, false]);
    clock.advance(ms(1));
    assert_eq!(done(end).unwrap().took, ms(15_000));
}

#[test]
fn a_timeout_below_2_s_shortens_the_quiet_period_that_is_not_set() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let cancelled = event_loop.schedule(HOUR, || ()).unwrap();
    let end = event_loop.shutdown(ShutdownOptions::new().timeout(ms(20)));
    // The shutdown has started.
    assert!(matches!(done(cancelled.completion()), Err(Error::ShutDown)));
    clock.advance(ms(20));
    assert_eq!(done(end).unwrap().took, ms(20));
}

// A `Duration` is never negative.
#[test]
fn e_52_a_timeout_shorter_than_the_quiet_period_is_refused() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    for refused in [
        event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(2)).timeout(ms(1))),
        group.shutdown(ShutdownOptions::new().quiet_period(ms(2)).timeout(ms(1))),
    ] {
        assert!(matches!(done(refused), Err(Error::Setting(e)) if e.setting() == "timeout"));
    }
    let options = [
        ("timeout", ShutdownOptions::new().quiet_period(ms(2000)).timeout(ms(1999))),
        ("drain_window", ShutdownOptions::new().drain_window(ms(15_001))),
    ];
    for (setting, options) in options {
        for refused in [event_loop.shutdown(options.clone()), group.shutdown(options)] {
            assert!(matches!(done(refused), Err(Error::Setting(e)) if e.setting() == setting));
        }
    }
    assert_eq!(states(&event_loop), [false; 3]);
    assert_eq!(on(&event_loop, || "alive"), "alive");
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(1)).timeout(ms(1)))).unwrap();
}

#[test]
fn e_53_a_loop_that_never_started_ends_at_once() {
    let (event_loop, _clock) = manual();
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(HOUR).timeout(HOUR));
    assert!(end.is_done(), "a loop without a thread has no quiet period");
    done(end).unwrap();
    assert_eq!(states(&event_loop), [true; 3]);
    assert_refuses(&event_loop);
    assert_eq!(event_loop.metrics().turns, 0);
    done(event_loop.terminated()).unwrap();
    assert!(matches!(event_loop.on_shutdown(|| ()), Err(Error::ShutDown)));
    let report = done(event_loop.shutdown(ShutdownOptions::new())).unwrap();
    assert_eq!(report, ShutdownReport::default());
}

#[test]
fn e_53_the_first_task_and_the_shutdown_may_race() {
    for _ in 0..500 {
        let (event_loop, _clock) = manual();
        let (ran, runs) = channel();
        std::thread::scope(|scope| {
            let accepted = scope.spawn(|| event_loop.execute(move || ran.send(()).unwrap()).is_ok());
            done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR)))
                .unwrap();
            assert_eq!(accepted.join().unwrap(), runs.recv_timeout(PATIENCE).is_ok());
        });
    }
}

#[test]
fn e_54_queued_tasks_run_before_the_end() {
    let (event_loop, _clock) = manual();
    let gate = Gate::shut(&event_loop);
    let ran = Journal::new();
    for n in 0..3 {
        let ran = ran.clone();
        event_loop.execute(move || ran.push(n)).unwrap();
    }
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR));
    // Tasks are accepted until the quiet period has passed, because handlers need them to say
    // goodbye.
    let last = ran.clone();
    event_loop.execute(move || last.push(3)).unwrap();
    assert_eq!(ran.len(), 0);
    drop(gate);
    done(end).unwrap();
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
    let end =
        event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO));
    clock.advance(ms(1));
    drop(gate);
    done(end).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1000);
}

#[test]
fn e_55_a_loop_ends_a_quiet_period_after_its_last_task() {
    let (event_loop, clock) = manual();
    settle(&event_loop);
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(1000)).timeout(HOUR));
    for _ in 0..20 {
        clock.advance(ms(100));
        on(&event_loop, || ());
    }
    assert_eq!(clock.elapsed(), ms(2000));
    clock.advance(ms(999));
    assert_eq!(states(&event_loop), [true, false, false]);
    // The quiet period starts when the turn of the last task ends, which may be after the 999 ms.
    pass_until_done(&clock, ms(1), [&end]);
    assert!(clock.elapsed() >= ms(3000));
    done(end).unwrap();
}

#[test]
fn e_55_the_quiet_period_is_kept_in_real_time() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    let (ran, runs) = channel();
    event_loop.execute(move || ran.send(Instant::now()).unwrap()).unwrap();
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(150)).timeout(HOUR));
    let last = runs.recv_timeout(PATIENCE).unwrap();
    done(end).unwrap();
    assert!(last.elapsed() >= ms(150));
}

#[test]
fn e_55_endless_tasks_do_not_delay_the_end_beyond_the_timeout() {
    let (event_loop, clock) = manual();
    let flood = flood(&event_loop);
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(2000)).timeout(ms(2000)));
    settle(&event_loop);
    clock.advance(ms(1999));
    on(&event_loop, || ());
    assert_eq!(states(&event_loop), [true, false, false]);
    clock.advance(ms(1));
    done(end).unwrap();
    assert_refuses(&event_loop);
    drop(flood);
}

#[test]
fn e_56_open_channels_are_closed_and_do_not_delay_the_end() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, failed) = echo_server(&group);
    let mut peers: Vec<_> = (0..5).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(assert_echoes);
    let end = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR));
    done(end).unwrap();
    assert_eq!(event_loop.metrics().channels, 0);
    for peer in &mut peers {
        assert_eq!(peer.read(&mut [0]).unwrap(), 0);
    }
    done(server.closed()).unwrap();
    assert!(TcpStream::connect(server.local_address()).is_err(), "the listener is closed");
    assert!(failed.try_recv().is_err());
}

/// Schedules timers for an hour later, and reports whether they run or are dropped.
struct Patient(std::sync::mpsc::Sender<&'static str>);

struct ReportsDrop(std::sync::mpsc::Sender<&'static str>);

impl Drop for ReportsDrop {
    fn drop(&mut self) {
        let _ = self.0.send("dropped");
    }
}

impl Handler for Patient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let told = ReportsDrop(self.0.clone());
        ctx.schedule(HOUR, move |_, _| {
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
    let periodic = event_loop.schedule_periodic(ms(10), move || {
        mine.push("again");
        Ok(())
    });
    let (once, periodic) = (once.unwrap(), periodic.unwrap());
    settle(&event_loop);
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(1000)).timeout(HOUR));
    settle(&event_loop);
    assert_eq!(Arc::strong_count(&witness), 1, "tasks are cancelled when the shutdown starts");
    assert_eq!(event_loop.metrics().timers_pending, 0);
    assert!(matches!(event_loop.schedule(ms(1), || ()), Err(Error::ShutDown)));
    advance(&event_loop, &clock, ms(500));
    assert!(!once.cancel() && !periodic.cancel(), "both have ended already");
    assert!(matches!(done(once.completion()), Err(Error::ShutDown)));
    assert!(matches!(done(periodic.completion()), Err(Error::ShutDown)));
    pass_until_done(&clock, ms(10), [&end]);
    done(end).unwrap();
    assert_eq!(ran.len(), 0);
}

#[test]
fn e_57_a_timer_that_is_due_when_the_shutdown_starts_does_not_run() {
    let (event_loop, clock) = manual();
    let once = event_loop.schedule(ms(10), || ()).unwrap();
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    clock.advance(ms(10));
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR));
    drop(gate);
    done(end).unwrap();
    assert!(matches!(done(once.completion()), Err(Error::ShutDown)));
}

#[test]
fn e_57_pending_timers_of_channels_are_dropped_and_not_run() {
    let (group, _event_loop) = single(EventLoopGroup::builder());
    let (told, news) = channel();
    let told = std::sync::Mutex::new(told);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Patient(told.lock().unwrap().clone())));
    let server = server.bind("127.0.0.1:0").unwrap();
    assert_echoes(&mut connect(server.local_address()));
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    assert_eq!(news.recv_timeout(PATIENCE).unwrap(), "dropped");
}

#[test]
fn e_59_a_task_that_races_with_the_end_runs_or_is_refused() {
    for round in 0..1000 {
        let (_group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
        settle(&event_loop);
        let ran = Arc::new(AtomicUsize::new(0));
        let submit = || {
            let (mut submitted, mut refused) = (0, 0);
            loop {
                let ran = ran.clone();
                submitted += 1;
                match event_loop.execute(move || count(&ran)).map_err(Error::from) {
                    Ok(()) => {}
                    Err(Error::ShutDown) => return (submitted, refused + 1),
                    Err(Error::Full { .. }) => {
                        refused += 1;
                        std::thread::yield_now();
                    }
                    Err(other) => panic!("{other}"),
                }
            }
        };
        let (submitted, refused) = std::thread::scope(|scope| {
            let submitters = [scope.spawn(submit), scope.spawn(submit)];
            // Threads that submit without a pause never allow a quiet period, so the timeout has to
            // end it.
            done(
                event_loop
                    .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)),
            )
            .unwrap();
            submitters.map(|s| s.join().unwrap()).iter().fold((0, 0), |sum, s| (sum.0 + s.0, sum.1 + s.1))
        });
        assert_eq!(ran.load(Ordering::Relaxed) + refused, submitted, "round {round}");
    }
}

#[test]
fn e_60_hooks_run_once_on_the_loop_in_order_after_the_tasks() {
    let (event_loop, _clock) = manual();
    let ran = Journal::new();
    let note = |what: &'static str| {
        let (ran, me) = (ran.clone(), event_loop.clone());
        move || {
            assert!(me.in_event_loop());
            ran.push(what);
        }
    };
    event_loop.on_shutdown(note("first hook")).unwrap();
    let (late, latest, me) = (note("hook of a hook"), note("hook of that"), event_loop.clone());
    event_loop
        .on_shutdown(move || {
            let it = me.clone();
            me.on_shutdown(move || {
                late();
                it.on_shutdown(latest).unwrap();
            })
            .unwrap();
            assert_refuses(&me);
        })
        .unwrap();
    event_loop.on_shutdown(note("last hook")).unwrap();
    let gate = Gate::shut(&event_loop);
    event_loop.execute(note("task")).unwrap();
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR));
    event_loop.execute(note("late task")).unwrap();
    drop(gate);
    done(end).unwrap();
    assert_eq!(ran.all(), ["task", "late task", "first hook", "last hook", "hook of a hook", "hook of that"]);
    assert!(matches!(event_loop.on_shutdown(|| ()), Err(Error::ShutDown)));
}

#[test]
fn e_60_a_hook_that_panics_is_logged_and_the_others_run() {
    logs::collect();
    let (event_loop, _clock) = manual();
    let ran = Arc::new(AtomicUsize::new(0));
    event_loop.on_shutdown(|| panic!("a hook fails on purpose")).unwrap();
    let mine = ran.clone();
    event_loop.on_shutdown(move || count(&mine)).unwrap();
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    let lines = logs::lines_with("a hook fails on purpose");
    assert!(lines.len() == 1 && lines[0].starts_with("ERROR") && lines[0].contains(file!()), "{lines:?}");
}

#[test]
fn e_60_hooks_that_add_hooks_endlessly_are_stopped() {
    fn again(event_loop: EventLoop, ran: Arc<AtomicUsize>, refused: std::sync::mpsc::Sender<Error>) {
        let me = event_loop.clone();
        let next = refused.clone();
        let added = event_loop.on_shutdown(move || {
            count(&ran);
            again(me, ran, next);
        });
        if let Err(e) = added {
            refused.send(e).unwrap();
        }
    }
    let (event_loop, _clock) = manual();
    let ran = Arc::new(AtomicUsize::new(0));
    let (refused, refusals) = channel();
    again(event_loop.clone(), ran.clone(), refused);
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1024);
    assert!(matches!(refusals.recv().unwrap(), Error::Full { limit: 1024, .. }));
}

#[test]
fn e_61_a_connection_for_a_loop_that_is_shut_down_is_reset_and_reported_to_its_owner() {
    logs::collect();
    let (children, _child) = single(EventLoopGroup::builder().name("e-61-children"));
    let (acceptors, _acceptor) = single(EventLoopGroup::builder().name("e-61-acceptors"));
    let server = ServerBootstrap::new(&children).acceptor_group(&acceptors);
    let server = server.pipeline(|_peer| Pipeline::codec(RawBytes).handler(Patient(channel().0)));
    let server = server.bind("127.0.0.1:0").unwrap();
    assert_echoes(&mut connect(server.local_address()));
    done(children.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    let end = connect(server.local_address()).read(&mut [0]).unwrap_err();
    assert_eq!(end.kind(), ErrorKind::ConnectionReset);
    assert_eq!(logs::lines_with("e-61-acceptors-0: a connection is dropped").len(), 1);

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = ClientBootstrap::new(&children)
        .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Patient(channel().0)));
    let refused = done(client.connect(listener.local_addr().unwrap()));
    assert!(matches!(refused, Err(Error::ShutDown)));
    assert_eq!(listener.accept().unwrap().0.read(&mut [0]).unwrap(), 0);
    done(acceptors.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
}

#[test]
fn an_idle_group_shuts_down_fast() {
    const MAX_TURNS: u64 = 4;
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let (server, _failed) = echo_server(&group);
    let mut peers: Vec<_> = (0..50).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(assert_echoes);
    settle(&event_loop);
    let turns = event_loop.metrics().turns;
    let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO));
    let report = done(end).unwrap();
    let turns = event_loop.metrics().turns - turns;
    assert!(turns <= MAX_TURNS, "{turns} turns");
    assert_eq!((report.channels, report.graceful, report.took), (50, 50, Duration::ZERO));
    assert_eq!(clock.elapsed(), Duration::ZERO);
}
