//! The distribution of a loop's time between sockets, tasks and timers (E-13, E-34 to E-40).
//!
//! Only the work itself advances the clock: a read that "takes" 100 ms advances it by 100 ms, and
//! so does a task.

use crate::support::{
    loops::{Gate, advance, flood, manual, on, settle, single},
    servers::{acting_server, silent_server},
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms},
};
use netwheel::{Error, EventLoop, EventLoopGroup, testing::ManualClock, time::Clock};
use socket2::SockRef;
use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::channel,
    },
    time::{Duration, Instant},
};

fn turn(event_loop: &EventLoop) -> u64 {
    event_loop.metrics().turns
}

/// Makes `event_loop` spend `io` on a read that submits `tasks` tasks, each of which takes `each`.
/// Returns how many of them ran in the turn of the read.
fn run_after_io(
    group: &EventLoopGroup,
    clock: &ManualClock,
    io: Duration,
    tasks: usize,
    each: Duration,
) -> usize {
    let (ran, runs) = channel();
    let (event_loop, clock) = (group.next().clone(), clock.clone());
    let (server, _failed) = acting_server(group, move || {
        let reading = turn(&event_loop);
        clock.advance(io);
        for _ in 0..tasks {
            let (ran, me, clock) = (ran.clone(), event_loop.clone(), clock.clone());
            event_loop.execute(move || {
                clock.advance(each);
                ran.send(turn(&me) - reading).unwrap();
            })?;
        }
        Ok(())
    });
    assert_echoes(&mut connect(server.local_address()));
    let turns: Vec<_> = (0..tasks).map(|_| runs.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(turns.is_sorted());
    turns.iter().filter(|turn| **turn == 0).count()
}

fn with_ratio(ratio: u32) -> (EventLoopGroup, ManualClock) {
    let clock = ManualClock::new();
    let builder = EventLoopGroup::builder().io_ratio(ratio).max_task_time(ms(60_000)).clock(clock.clone());
    (single(builder).0, clock)
}

#[test]
fn e_13_a_task_that_resubmits_itself_does_not_starve_a_timer() {
    let (event_loop, clock) = manual();
    let task = event_loop.schedule(ms(1500), || ()).unwrap();
    let flood = flood(&event_loop);
    settle(&event_loop);
    assert!(!task.is_done());
    advance(&event_loop, &clock, ms(1500));
    assert!(task.is_done());
    assert!(event_loop.metrics().tasks_run > 0);
    drop(flood);
}

#[test]
fn e_34_a_ratio_outside_1_to_100_is_refused() {
    for ratio in [0, 101, 256, 257, u32::MAX] {
        let built = EventLoopGroup::builder().threads(1).io_ratio(ratio).build();
        assert!(matches!(built, Err(Error::Setting(e)) if e.setting() == "io_ratio"), "{ratio}");
    }
    for ratio in [1, 50, 100] {
        assert!(EventLoopGroup::builder().threads(1).io_ratio(ratio).build().is_ok(), "{ratio}");
    }
}

#[test]
fn e_34_the_default_ratio_is_50() {
    let clock = ManualClock::new();
    let (group, _) = single(EventLoopGroup::builder().clock(clock.clone()));
    assert_eq!(run_after_io(&group, &clock, ms(100), 1000, ms(1)), 100);
}

#[test]
fn e_34_at_100_all_tasks_run_without_a_limit() {
    let (group, clock) = with_ratio(100);
    assert_eq!(run_after_io(&group, &clock, ms(1), 1000, ms(1000)), 1000);
}

// The budget is checked after each slow task: 100 ms of reading at 50 % allow 100 ms, so 100 tasks
// of 1 ms.
#[test]
fn e_35_tasks_get_a_share_of_the_time_spent_on_io() {
    for (ratio, expected) in [(20, 400), (50, 100), (80, 25), (99, 2)] {
        let (group, clock) = with_ratio(ratio);
        assert_eq!(run_after_io(&group, &clock, ms(100), 1000, ms(1)), expected, "ratio {ratio}");
    }
}

#[test]
fn e_35_time_asleep_is_not_io_time() {
    // Advancing this clock does not wake the loop, so the loop sleeps through the hour.
    let clock = Counting { real_time: true, ..Counting::new() };
    let (_group, event_loop) = single(EventLoopGroup::builder().io_ratio(20).clock(clock.clone()));
    settle(&event_loop);
    clock.clock.advance(Duration::from_secs(3600));
    let (ran, runs) = channel();
    let me = event_loop.clone();
    on(&event_loop, move || {
        for _ in 0..200 {
            let (ran, inner) = (ran.clone(), me.clone());
            me.execute(move || ran.send(turn(&inner)).unwrap()).unwrap();
        }
    });
    let turns: Vec<_> = (0..200).map(|_| runs.recv_timeout(PATIENCE).unwrap()).collect();
    assert!(turns[199] - turns[0] >= 3, "{turns:?}");
}

fn assert_tasks_to_a_poll(event_loop: &EventLoop, expected: usize) {
    let (ran, runs) = channel();
    let me = event_loop.clone();
    on(event_loop, move || {
        for _ in 0..400 {
            let (ran, inner) = (ran.clone(), me.clone());
            me.execute(move || ran.send(inner.metrics()).unwrap()).unwrap();
        }
    });
    let seen: Vec<_> = (0..400).map(|_| runs.recv_timeout(PATIENCE).unwrap()).collect();
    let phases: Vec<_> = seen.chunk_by(|a, b| a.turns == b.turns).map(<[_]>::len).collect();
    // The first phase had started already, with the task that submitted the others.
    let (first, middle) = (phases[0], &phases[1..phases.len() - 1]);
    assert!(first < 64, "{phases:?}");
    assert!(middle.iter().all(|n| *n == expected), "{phases:?}");
    let (begin, end) = (&seen[0], &seen[399]);
    assert_eq!(end.polls - begin.polls, phases.len() as u64 - 1, "one poll before each phase");
    assert_eq!(end.tasks_deferred - begin.tasks_deferred, phases.len() as u64 - 1);
}

#[test]
fn e_36_without_io_64_tasks_run_before_the_next_poll() {
    assert_tasks_to_a_poll(&manual().0, 64);
}

#[test]
fn e_36_time_that_io_did_not_take_adds_no_budget() {
    // Each reading advances the clock by a second, as if the loop's thread were always held up. So
    // the first reading ends the phase.
    let clock = Counting { real_time: true, step: ms(1000), ..Counting::new() };
    assert_tasks_to_a_poll(&single(EventLoopGroup::builder().io_ratio(20).clock(clock)).1, 1);
}

/// A manual clock that counts its readings.
#[derive(Debug, Clone)]
struct Counting {
    clock: ManualClock,
    reads: Arc<AtomicU64>,
    real_time: bool,
    /// Time by which each reading advances the clock.
    step: Duration,
}

impl Counting {
    fn new() -> Self {
        Counting { clock: ManualClock::new(), reads: Arc::default(), real_time: false, step: Duration::ZERO }
    }
}

impl Clock for Counting {
    fn now(&self) -> Instant {
        self.reads.fetch_add(1, Ordering::SeqCst);
        self.clock.advance(self.step);
        self.clock.now()
    }

    fn is_real_time(&self) -> bool {
        self.real_time
    }

    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        if !self.real_time {
            self.clock.on_advance(wake);
        }
    }
}

/// Gives a loop 640 tasks in a read that takes 1 ms. Returns the number of clock readings at each
/// task, counted from the first task.
fn readings_at_tasks(clock: &Counting, each: Duration) -> Vec<u64> {
    let (group, event_loop) = single(EventLoopGroup::builder().io_ratio(20).clock(clock.clone()));
    let (ran, runs) = channel();
    let (me, time) = (event_loop, clock.clone());
    let (server, _failed) = acting_server(&group, move || {
        time.clock.advance(ms(1));
        for _ in 0..640 {
            let (ran, time, me2) = (ran.clone(), time.clone(), me.clone());
            let note = move || {
                ran.send((turn(&me2), time.reads.load(Ordering::SeqCst))).unwrap();
                time.clock.advance(each);
            };
            me.execute(note)?;
        }
        Ok(())
    });
    assert_echoes(&mut connect(server.local_address()));
    let seen: Vec<_> = (0..640).map(|_| runs.recv_timeout(PATIENCE).unwrap()).collect();
    let (first_turn, first_reads) = seen[0];
    assert!(seen.iter().all(|(turn, _)| *turn == first_turn), "the budget is not used up");
    seen.iter().map(|(_, reads)| reads - first_reads).collect()
}

/// Short tasks share a reading. The first task of a kind does not, because its duration is unknown.
#[test]
fn e_37_the_clock_is_read_after_32_short_tasks_or_a_slow_one() {
    let real = || Counting { real_time: true, ..Counting::new() };
    let short = readings_at_tasks(&real(), Duration::ZERO);
    assert_eq!(short[1], 1, "a reading after the first task");
    assert!(short[639] <= 2 + 640 / 32 + 1, "{short:?}");
    let slow = readings_at_tasks(&real(), Duration::from_micros(5));
    assert!(slow.iter().enumerate().all(|(n, reads)| *reads == n as u64), "{slow:?}");
    // The loop makes no predictions from a manual clock.
    let by_hand = readings_at_tasks(&Counting::new(), Duration::ZERO);
    assert!(by_hand.iter().enumerate().all(|(n, reads)| *reads == n as u64), "{by_hand:?}");
}

/// Counts turns: the timer and the socket are handled in the current turn or the next one.
#[test]
fn e_38_an_endless_task_starves_neither_a_timer_nor_a_socket() {
    for ratio in [1, 50, 100] {
        let (group, event_loop) = single(EventLoopGroup::builder().io_ratio(ratio));
        let (ran, runs) = channel();
        let (me, reads) = (event_loop.clone(), ran.clone());
        let (server, _failed) =
            acting_server(&group, move || reads.send(turn(&me)).map_err(|_| "the test has ended".into()));
        let flood = flood(&event_loop);

        let me = event_loop.clone();
        let timer = event_loop.schedule(ms(20), move || ran.send(turn(&me)).unwrap()).unwrap();
        let due = Instant::now() + ms(20);
        let mut turn_when_due = 0;
        while turn_when_due == 0 {
            let me = event_loop.clone();
            turn_when_due = on(&event_loop, move || if Instant::now() < due { 0 } else { turn(&me) });
        }
        let timer_ran = runs.recv_timeout(PATIENCE).unwrap();
        done(timer.completion()).unwrap();
        assert!(timer_ran <= turn_when_due + 1, "ratio {ratio}: {timer_ran}, due in {turn_when_due}");

        for _ in 0..10 {
            let mut peer = connect(server.local_address());
            assert_echoes(&mut peer);
            runs.recv_timeout(PATIENCE).unwrap();
            let gate = Gate::shut(&event_loop);
            let sent_in = turn(&event_loop);
            peer.write_all(b"x").unwrap();
            // With linger set, the close returns when the peer's kernel has all bytes.
            SockRef::from(&peer).set_linger(Some(PATIENCE)).unwrap();
            drop(peer);
            drop(gate);
            let read_in = runs.recv_timeout(PATIENCE).unwrap();
            assert!(read_in <= sent_in + 1, "ratio {ratio}: read in {read_in}, sent in {sent_in}");
        }
        drop(flood);
    }
}

/// A socket that always has unread bytes does not starve the tasks.
#[test]
fn e_38_a_busy_socket_does_not_starve_tasks() {
    let (group, event_loop) = single(EventLoopGroup::builder().io_ratio(99));
    let (server, _failed) = silent_server(&group);
    let (mut peer, running) = (connect(server.local_address()), Arc::new(()));
    let alive = Arc::downgrade(&running);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let chunk = vec![0; 256 * 1024];
            while alive.strong_count() > 0 {
                peer.write_all(&chunk).unwrap();
            }
        });
        for n in 0..200 {
            assert_eq!(on(&event_loop, move || n), n);
        }
        drop(running);
    });
}

#[test]
fn e_39_tasks_run_even_if_io_failed() {
    for panics in [false, true] {
        let (group, event_loop) = single(EventLoopGroup::builder());
        let (ran, runs) = channel();
        let me = event_loop.clone();
        let (server, failed) = acting_server(&group, move || {
            let (ran, inner, reading) = (ran.clone(), me.clone(), turn(&me));
            me.execute(move || ran.send(turn(&inner) - reading).unwrap())?;
            assert!(!panics, "on purpose");
            Err(Error::from("on purpose"))
        });
        let mut peer = connect(server.local_address());
        peer.write_all(b"x").unwrap();
        assert_eq!(runs.recv_timeout(PATIENCE).unwrap(), 0, "in the same turn");
        let error = failed.recv_timeout(PATIENCE).unwrap();
        assert!(matches!(error, Error::Other(_) | Error::Panicked(_)), "{error}");
        assert_eq!(peer.read(&mut [0]).unwrap(), 0, "that channel is closed");
        assert_eq!(on(&event_loop, || "alive"), "alive");
    }
}

#[test]
fn e_40_a_poll_does_not_sleep_while_tasks_wait() {
    let (event_loop, _clock) = manual();
    let (ran, runs) = channel();
    let me = event_loop.clone();
    on(&event_loop, move || {
        for _ in 0..640 {
            let (ran, inner) = (ran.clone(), me.clone());
            me.execute(move || ran.send(inner.metrics()).unwrap()).unwrap();
        }
    });
    let seen: Vec<_> = (0..640).map(|_| runs.recv_timeout(PATIENCE).unwrap()).collect();
    let (first, last) = (&seen[0], &seen[639]);
    assert!(last.polls - first.polls >= 9);
    // A wake that was written for the first task may still have ended one of these polls.
    let asleep = (last.polls - first.polls) - (last.polls_without_sleep - first.polls_without_sleep);
    assert!(asleep <= 1, "{first:?} {last:?}");
}

#[test]
fn e_40_a_poll_sleeps_until_the_next_timer_or_indefinitely() {
    let (_group, idle) = single(EventLoopGroup::builder());
    let (_other_group, busy) = single(EventLoopGroup::builder());
    settle(&idle);
    settle(&busy);
    let before = (idle.metrics(), busy.metrics());
    done(busy.schedule(ms(1200), || ()).unwrap().completion()).unwrap();
    let after = (idle.metrics(), busy.metrics());
    assert_eq!(after.0.wakes_deadline, 0, "the loop does not wake periodically: {after:?}");
    assert!(after.0.turns - before.0.turns <= 5, "{before:?} {after:?}");
    assert!(after.1.turns - before.1.turns <= 8, "{before:?} {after:?}");
    assert!(after.1.wakes_deadline <= 1, "{before:?} {after:?}");
    assert_eq!((after.0.wakes_premature, after.1.wakes_premature), (0, 0));
}
