//! The shares of tasks and timers under overload (docs/fairness.md): shares, floors and caps. The
//! clock stands still unless the work advances it. The formula of the budget is tested in
//! `io_ratio.rs`, the shares of sockets in `io.rs`.

use crate::support::{
    journal::Journal,
    loops::{self, manual, on, settle, single},
    servers::{acting_server, echo_server},
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    Error, EventLoop, EventLoopGroup, codec::RawBytes, group::EventLoopGroupBuilder, prelude::*,
    shutdown::ShutdownOptions, testing::ManualClock, time::Periodic,
};
use std::{
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    time::Duration,
};

/// The name of each run, and its turn.
type Runs = Journal<(&'static str, u64)>;

fn turn(event_loop: &EventLoop) -> u64 {
    event_loop.metrics().turns
}

/// Returns a body that takes `time` and records `name` and the current turn.
fn body(
    event_loop: &EventLoop,
    clock: &ManualClock,
    runs: &Runs,
    name: &'static str,
    time: Duration,
) -> impl FnOnce() + Send + 'static {
    let (event_loop, clock, runs) = (event_loop.clone(), clock.clone(), runs.clone());
    move || {
        runs.push((name, turn(&event_loop)));
        clock.advance(time);
    }
}

/// Returns how many runs of `name` each turn had, from the first turn with one.
fn per_turn(runs: &Runs, name: &str) -> Vec<usize> {
    let turns: Vec<_> = runs.all().into_iter().filter(|run| run.0 == name).map(|run| run.1).collect();
    turns.chunk_by(|a, b| a == b).map(<[_]>::len).collect()
}

/// Returns the turn of the first run of `name`.
fn first(runs: &Runs, name: &str) -> u64 {
    runs.all().iter().find(|run| run.0 == name).expect("at least one run").1
}

/// A loop with its own clock that has spent `io` on a read in which it received work.
struct AfterIo {
    event_loop: EventLoop,
    runs: Runs,
}

impl AfterIo {
    fn new(
        builder: EventLoopGroupBuilder,
        io: Duration,
        give: impl Fn(&EventLoop, &ManualClock, &Runs) + Send + Sync + 'static,
    ) -> Self {
        let clock = ManualClock::new();
        let (group, event_loop) = single(builder.clock(clock.clone()));
        let runs = Runs::new();
        let (me, time, mine) = (event_loop.clone(), clock.clone(), runs.clone());
        let (server, _failed) = acting_server(&group, move || {
            mine.push(("read", turn(&me)));
            time.advance(io);
            give(&me, &time, &mine);
            Ok(())
        });
        let mut peer = connect(server.local_address());
        assert_echoes(&mut peer);
        AfterIo { event_loop, runs }
    }

    /// Waits for `n` runs of `name` and returns the number in each turn. The first must run in the
    /// turn of the read.
    #[track_caller]
    fn per_turn(&self, name: &str, n: usize) -> Vec<usize> {
        while self.runs.all().iter().filter(|run| run.0 == name).count() < n {
            settle(&self.event_loop);
        }
        assert_eq!(first(&self.runs, name), first(&self.runs, "read"), "in the turn of the read");
        assert_every_turn_polled(&self.event_loop);
        per_turn(&self.runs, name)
    }
}

fn with_ratio(ratio: u32) -> EventLoopGroupBuilder {
    EventLoopGroup::builder().io_ratio(ratio)
}

#[track_caller]
fn assert_every_turn_polled(event_loop: &EventLoop) {
    let me = event_loop.clone();
    let metrics = on(event_loop, move || me.metrics());
    assert_eq!(metrics.turns, metrics.polls);
}

fn give_tasks(n: usize, each: Duration) -> impl Fn(&EventLoop, &ManualClock, &Runs) + Send + Sync + 'static {
    move |event_loop, clock, runs| {
        for _ in 0..n {
            event_loop.execute(body(event_loop, clock, runs, "task", each)).unwrap();
        }
    }
}

fn give_timers(n: usize, each: Duration) -> impl Fn(&EventLoop, &ManualClock, &Runs) + Send + Sync + 'static {
    move |event_loop, clock, runs| {
        for _ in 0..n {
            let body = body(event_loop, clock, runs, "timer", each);
            event_loop.schedule(Duration::ZERO, body).unwrap();
        }
    }
}

// ---- tasks -------------------------------------------------------------------------------------

/// A computed budget of 0 ns must not mean "no deadline", as it does in Netty.
#[test]
fn io_ratio_zero_budget() {
    for (ratio, io) in [(50, Duration::ZERO), (1, Duration::ZERO), (99, Duration::from_nanos(1))] {
        // The floor: 64 tasks if they take almost no time, or the tasks that start within 100 µs,
        // or one task.
        for (each, expected) in [(Duration::from_nanos(1), 64), (Duration::from_micros(30), 4), (ms(1000), 1)]
        {
            let after = AfterIo::new(with_ratio(ratio), io, give_tasks(200, each));
            let tasks = after.per_turn("task", 200);
            let (last, others) = tasks.split_last().unwrap();
            assert!(others.iter().all(|n| *n == expected), "ratio {ratio}, {io:?} of I/O: {tasks:?}");
            assert!(*last <= expected, "{tasks:?}");
        }
    }
}

/// A slow task ends the phase in which it spends the budget, wherever it stands among short ones.
#[test]
fn a_task_phase_ends_with_the_task_that_spends_its_budget() {
    let give = |event_loop: &EventLoop, clock: &ManualClock, runs: &Runs| {
        for n in 0..300 {
            // Short tasks, one slow task, short tasks, then only slow tasks.
            let each = if n == 100 || n >= 150 { ms(20) } else { Duration::ZERO };
            event_loop.execute(body(event_loop, clock, runs, "task", each)).unwrap();
        }
    };
    // A budget of 50 ms: the 101st, 151st and 152nd tasks take 20 ms each.
    let tasks = AfterIo::new(with_ratio(50), ms(50), give).per_turn("task", 300);
    assert_eq!(tasks[0], 152);
    assert!(tasks[1..].iter().all(|n| *n == 1), "then one per turn: {tasks:?}");
}

/// A slow task delays a timer by one such task, not by 64 of them.
#[test]
fn a_timer_runs_on_time_beside_a_slow_task_that_resubmits_itself() {
    fn hog(event_loop: EventLoop, clock: ManualClock, running: Weak<()>) {
        clock.advance(ms(20));
        if running.strong_count() > 0 {
            let again = event_loop.clone();
            event_loop.execute(move || hog(again, clock, running)).unwrap();
        }
    }
    let clock = ManualClock::new();
    let (_group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let (ticks, running): (Journal<Duration>, _) = (Journal::new(), Arc::new(()));
    let (period, mine, time) = (ms(33), ticks.clone(), clock.clone());
    let tick = move || {
        mine.push(time.elapsed());
        Ok(())
    };
    event_loop.schedule_periodic(period, tick).unwrap();
    let (me, alive) = (event_loop.clone(), Arc::downgrade(&running));
    on(&event_loop, move || hog(me, clock, alive));
    while ticks.len() < 300 {
        settle(&event_loop);
    }
    drop(running);
    for (n, at) in (1..).zip(&ticks.all()[..300]) {
        let due = period * n;
        assert!((due..=due + ms(20)).contains(at), "tick {n}, due at {due:?}, at {at:?}");
    }
}

/// Without the cap, a second of I/O at a ratio of 1 would give 99 seconds of tasks.
#[test]
fn max_task_time_caps_the_budget() {
    let second = ms(1000);
    let first = |builder: EventLoopGroupBuilder| {
        AfterIo::new(builder, second, give_tasks(1000, ms(1))).per_turn("task", 1000)[0]
    };
    assert_eq!(first(with_ratio(1)), 100, "the default cap is 100 ms");
    for (cap, expected) in [(1, 1), (64, 64), (65, 65), (500, 500), (100_000, 1000)] {
        assert_eq!(first(with_ratio(1).max_task_time(ms(cap))), expected, "cap {cap} ms");
    }
    assert_eq!(first(with_ratio(80).max_task_time(second)), 250, "the ratio holds below the cap");
}

#[test]
fn settings_out_of_range_are_refused() {
    let refused = |builder: EventLoopGroupBuilder| match builder.threads(1).build() {
        Err(Error::Setting(refused)) => (refused.setting(), refused.value().to_owned()),
        other => panic!("{other:?}"),
    };
    let new = EventLoopGroup::builder;
    assert_eq!(refused(new().max_task_time(Duration::ZERO)), ("max_task_time", "0".to_owned()));
    assert_eq!(refused(new().max_io_time(Duration::ZERO)), ("max_io_time", "0".to_owned()));
    assert_eq!(refused(new().max_scheduled_tasks(15)), ("max_scheduled_tasks", "15".to_owned()));
    assert_eq!(refused(new().max_pending_tasks(15)), ("max_pending_tasks", "15".to_owned()));
    assert_eq!(refused(new().unlimited_tasks().io_ratio(0)), ("io_ratio", "0".to_owned()));
    let accepted = [
        new().max_task_time(Duration::from_nanos(1)),
        new().max_task_time(Duration::MAX),
        new().max_io_time(Duration::from_nanos(1)),
        new().max_io_time(Duration::MAX),
        new().max_scheduled_tasks(16),
        new().max_pending_tasks(16),
    ];
    for builder in accepted {
        assert!(builder.threads(1).build().is_ok());
    }
}

#[test]
fn unlimited_tasks_sets_a_ratio_of_100_without_a_cap() {
    let new = || EventLoopGroup::builder().max_task_time(ms(1));
    for builder in [new().unlimited_tasks(), new().io_ratio(100)] {
        let after = AfterIo::new(builder, ms(1), give_tasks(1000, ms(1000)));
        assert_eq!(after.per_turn("task", 1000), [1000]);
    }
    let limited = AfterIo::new(new().unlimited_tasks().io_ratio(50), ms(1), give_tasks(1000, ms(1000)));
    assert_eq!(limited.per_turn("task", 1000)[0], 1, "the last call wins");
}

#[test]
fn unlimited_tasks_include_only_the_tasks_queued_when_the_phase_starts() {
    let clock = ManualClock::new();
    let (_group, event_loop) = single(EventLoopGroup::builder().unlimited_tasks().clock(clock.clone()));
    let runs = Runs::new();
    let (me, mine) = (event_loop.clone(), runs.clone());
    on(&event_loop, move || {
        for _ in 0..100 {
            let (inner, time, runs) = (me.clone(), clock.clone(), mine.clone());
            let task = move || {
                inner.execute(body(&inner, &time, &runs, "child", ms(1))).unwrap();
                runs.push(("parent", turn(&inner)));
            };
            me.execute(task).unwrap();
        }
    });
    while runs.len() < 200 {
        settle(&event_loop);
    }
    assert_eq!((per_turn(&runs, "parent"), per_turn(&runs, "child")), (vec![100], vec![100]));
    assert_eq!(first(&runs, "child"), first(&runs, "parent") + 1);
    assert_every_turn_polled(&event_loop);
}

// ---- timers ------------------------------------------------------------------------------------

#[test]
fn tasks_do_not_reduce_the_share_of_timers() {
    let after = AfterIo::new(with_ratio(50), ms(100), |event_loop, clock, runs| {
        give_timers(320, ms(1))(event_loop, clock, runs);
        give_tasks(320, ms(1))(event_loop, clock, runs);
    });
    // The timers come through the queue, before the tasks. Turns without I/O run one of each.
    let expected: Vec<usize> = std::iter::once(100).chain([1; 220]).collect();
    assert_eq!(after.per_turn("task", 320), expected);
    // The budget is 100 ms for tasks, and another 100 ms for timers.
    assert_eq!(after.per_turn("timer", 320), expected);
}

#[test]
fn slow_timers_are_limited_by_time_and_carried_over() {
    let micros = Duration::from_micros;
    for (each, expected, later) in
        [(ms(10), 10, 1), (ms(1), 100, 1), (micros(500), 200, 1), (micros(20), 1000, 0)]
    {
        let after = AfterIo::new(with_ratio(50), ms(100), give_timers(1000, each));
        let timers = after.per_turn("timer", 1000);
        assert_eq!(timers[0], expected, "{each:?}");
        assert!(timers[1..].iter().all(|n| *n == later), "{timers:?}");
        assert_eq!(timers.iter().sum::<usize>(), 1000, "each runs exactly once");
    }
}

#[test]
fn the_kth_timer_waits_for_k_64ths_of_a_turn() {
    for (unlimited, a_turn) in [(false, 64), (true, 1024)] {
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().clock(clock.clone());
        let builder = if unlimited { builder.unlimited_tasks() } else { builder };
        let (_group, event_loop) = single(builder);
        let order = Journal::new();
        for n in 0..5000 {
            let (me, order) = (event_loop.clone(), order.clone());
            event_loop.schedule(ms(1), move || order.push((n, turn(&me)))).unwrap();
        }
        settle(&event_loop);
        while event_loop.metrics().timers_pending < 5000 {
            settle(&event_loop);
        }
        clock.advance(ms(1));
        while order.len() < 5000 {
            settle(&event_loop);
        }
        let order = order.all();
        for (n, (timer, turn)) in order.iter().enumerate() {
            assert_eq!(
                (*timer, turn - order[0].1),
                (n, (n / a_turn) as u64),
                "the oldest first, each in its turn"
            );
        }
        assert_every_turn_polled(&event_loop);
    }
}

/// Re-arms itself without a delay while it fires. The timer goes directly onto the heap, not
/// through the queue.
struct Rearming {
    event_loop: EventLoop,
    runs: Runs,
    running: Weak<()>,
}

impl Rearming {
    fn rearm(&mut self, ctx: &mut Context<'_, Self>) {
        self.runs.push(("timer", turn(&self.event_loop)));
        if self.running.strong_count() > 0 {
            ctx.schedule(Duration::ZERO, |me, ctx| {
                me.rearm(ctx);
                Ok(())
            });
        }
    }
}

impl Handler for Rearming {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.rearm(ctx);
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn timer_zero_delay_rearm() {
    for builder in [with_ratio(1), with_ratio(50), EventLoopGroup::builder().unlimited_tasks()] {
        let clock = ManualClock::new();
        let (group, event_loop) = single(builder.clock(clock));
        let (running, runs) = (Arc::new(()), Runs::new());
        let (me, mine, alive) = (event_loop.clone(), runs.clone(), Arc::downgrade(&running));
        let server = ServerBootstrap::new(&group)
            .pipeline(move |_peer| {
                let (event_loop, runs, running) = (me.clone(), mine.clone(), alive.clone());
                Pipeline::codec(RawBytes).handler(Rearming { event_loop, runs, running })
            })
            .bind("127.0.0.1:0")
            .unwrap();
        let mut peer = connect(server.local_address());
        for n in 0..100 {
            assert_echoes(&mut peer);
            assert_eq!(on(&event_loop, move || n), n);
        }
        while runs.len() < 1000 {
            settle(&event_loop);
        }
        drop(running);
        // The first two runs are in the I/O phase and in the timer phase after it.
        let turns: Vec<_> = runs.all().into_iter().skip(1).map(|run| run.1).collect();
        assert!(
            turns.windows(2).all(|pair| pair[0] < pair[1]),
            "a timer that is armed while timers run waits for the next turn"
        );
        assert_every_turn_polled(&event_loop);
    }
}

#[test]
fn turn_end_tasks_share_the_timers_time() {
    let give = |n: usize, each| {
        move |event_loop: &EventLoop, clock: &ManualClock, runs: &Runs| {
            for _ in 0..n {
                event_loop.execute_at_turn_end(body(event_loop, clock, runs, "end", each)).unwrap();
            }
        }
    };
    for (each, expected) in [(ms(10), 10), (ms(1), 100)] {
        let after = AfterIo::new(with_ratio(50), ms(100), give(320, each));
        let ends = after.per_turn("end", 320);
        assert_eq!(
            (ends[0], ends.iter().sum::<usize>()),
            (expected, 320),
            "the remaining tasks run at the end of the next turns"
        );
    }
    let after = AfterIo::new(with_ratio(50), ms(100), move |event_loop, clock, runs| {
        give_timers(320, ms(1))(event_loop, clock, runs);
        give(320, ms(1))(event_loop, clock, runs);
    });
    assert_eq!(after.per_turn("timer", 320)[0], 100);
    assert_eq!(
        after.per_turn("end", 320),
        [1; 320],
        "one task even if the timers have used the whole budget"
    );
    let unlimited = AfterIo::new(EventLoopGroup::builder().unlimited_tasks(), ms(0), give(3000, ms(1)));
    assert_eq!(unlimited.per_turn("end", 3000), [1024, 1024, 952]);
}

#[test]
fn carried_over_work_keeps_the_loop_awake() {
    let clock = ManualClock::new();
    let (_group, event_loop) = single(EventLoopGroup::builder().unlimited_tasks().clock(clock));
    let (last, ended) = channel();
    let me = event_loop.clone();
    on(&event_loop, move || {
        for n in 0..3000 {
            let last = last.clone();
            me.execute_at_turn_end(move || last.send(n).unwrap()).unwrap();
        }
    });
    // The loop receives no other work.
    for n in 0..3000 {
        assert_eq!(ended.recv_timeout(PATIENCE).unwrap(), n);
    }
}

#[test]
fn every_turn_end_task_runs_when_the_loop_ends() {
    let after = AfterIo::new(with_ratio(50), ms(100), |event_loop, clock, runs| {
        for _ in 0..3000 {
            event_loop.execute_at_turn_end(body(event_loop, clock, runs, "end", ms(10))).unwrap();
        }
        // The shutdown starts in the same turn, which has time for only ten tasks.
        event_loop
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO))
            .detach();
    });
    done(after.event_loop.terminated()).unwrap();
    assert_eq!(after.runs.all().iter().filter(|run| run.0 == "end").count(), 3000);
}

// ---- the wheel ---------------------------------------------------------------------------------

/// Takes 1 ms for its first idle event.
struct Idling {
    event_loop: EventLoop,
    clock: ManualClock,
    runs: Runs,
}

impl Handler for Idling {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn idle(&mut self, _ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        if event.first {
            body(&self.event_loop, &self.clock, &self.runs, "idle", ms(1))();
        }
        Ok(())
    }
}

/// Opens connections with an idle timeout of one second. Returns the loop and the peers' ends.
fn idle_connections(
    group: &EventLoopGroup,
    clock: &ManualClock,
    runs: &Runs,
    n: usize,
) -> (Server, Vec<std::net::TcpStream>) {
    let event_loop = group.next().clone();
    let (me, time, mine) = (event_loop.clone(), clock.clone(), runs.clone());
    let server = ServerBootstrap::new(group)
        .pipeline(move |_peer| {
            let (event_loop, clock, runs) = (me.clone(), time.clone(), mine.clone());
            let idle = IdleTimeouts::new().reader(ms(1000));
            Pipeline::codec(RawBytes).idle(idle).handler(Idling { event_loop, clock, runs })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let peers = (0..n).map(|_| connect(server.local_address())).collect();
    while event_loop.metrics().channels < n as u64 {
        settle(&event_loop);
    }
    (server, peers)
}

#[test]
fn the_heap_does_not_reduce_the_floor_of_the_wheel() {
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    let runs = Runs::new();
    let (_server, _peers) = idle_connections(&group, &clock, &runs, 200);
    for _ in 0..200 {
        let body = body(&event_loop, &clock, &runs, "timer", ms(1));
        event_loop.schedule(ms(1100), body).unwrap();
    }
    while event_loop.metrics().timers_pending < 200 {
        settle(&event_loop);
    }
    clock.advance(ms(1100));
    while runs.len() < 400 {
        settle(&event_loop);
    }
    // Each takes 1 ms, and the budget is zero.
    assert_eq!(per_turn(&runs, "timer"), [1; 200]);
    assert_eq!(per_turn(&runs, "idle"), [1; 200]);
    assert_eq!(first(&runs, "timer"), first(&runs, "idle"), "both in the same turns");
    assert_every_turn_polled(&event_loop);
}

#[test]
fn the_wheel_has_the_share_of_timers() {
    for (unlimited, expected) in [(false, [vec![100], vec![1; 100]].concat()), (true, vec![200])] {
        let clock = ManualClock::new();
        let builder = EventLoopGroup::builder().clock(clock.clone());
        let builder = if unlimited { builder.unlimited_tasks() } else { builder };
        let (group, event_loop) = single(builder);
        let runs = Runs::new();
        let (_server, _peers) = idle_connections(&group, &clock, &runs, 200);
        // A read that takes 1.1 s, followed by a task so that the loop reads the clock.
        let (me, time) = (event_loop.clone(), clock.clone());
        let (acting, _failed) = acting_server(&group, move || {
            time.advance(ms(1100));
            Ok(me.execute(|| ())?)
        });
        assert_echoes(&mut connect(acting.local_address()));
        while runs.len() < 200 {
            settle(&event_loop);
        }
        assert_eq!(per_turn(&runs, "idle"), expected, "the cap of 100 ms");
    }
}

// ---- both at once ------------------------------------------------------------------------------

/// At any ratio, endless floods of tasks and timers block neither sockets nor other tasks and
/// timers.
#[test]
fn floods_of_tasks_and_timers_starve_neither_each_other_nor_sockets() {
    for builder in [with_ratio(1), with_ratio(99), EventLoopGroup::builder().unlimited_tasks()] {
        let (group, event_loop) = single(builder);
        let (server, _failed) = echo_server(&group);
        let stop = Arc::new(AtomicBool::new(false));
        let floods: Vec<_> = (0..100).map(|_| loops::flood(&event_loop)).collect();
        for _ in 0..200 {
            let stop = stop.clone();
            let storm = move || if stop.load(Ordering::Relaxed) { Err(Error::Closed) } else { Ok(()) };
            // Always late: due again as soon as it has run.
            event_loop
                .schedule_periodic(
                    Periodic::fixed_rate(Duration::from_nanos(1)).initial_delay(Duration::ZERO),
                    storm,
                )
                .unwrap();
        }
        let mut peer = connect(server.local_address());
        for n in 0..20 {
            assert_echoes(&mut peer);
            assert_eq!(on(&event_loop, move || n), n);
            done(event_loop.schedule(ms(1), || ()).unwrap().completion()).unwrap();
        }
        assert_every_turn_polled(&event_loop);
        stop.store(true, Ordering::Relaxed);
        drop(floods);
    }
}

#[test]
fn every_turn_polls() {
    let (event_loop, _clock) = manual();
    let flood = loops::flood(&event_loop);
    let (sender, seen) = channel();
    for _ in 0..100 {
        let (me, sender) = (event_loop.clone(), sender.clone());
        event_loop
            .execute(move || {
                let metrics = me.metrics();
                sender.send((metrics.turns, metrics.polls)).unwrap();
            })
            .unwrap();
        settle(&event_loop);
    }
    for _ in 0..100 {
        let (turns, polls) = seen.recv_timeout(PATIENCE).unwrap();
        assert_eq!(turns, polls);
    }
    drop(flood);
}
