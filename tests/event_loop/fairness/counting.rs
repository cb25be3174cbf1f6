//! The cost of a turn, counted instead of timed: clock readings and writes to the waker (E-23).

use crate::support::{
    loops::{block, end, metrics, on_loop, one_loop, some_turns, the_loop},
    recorder::silent,
    servers::{Echo, Settings, serve},
    tcp::{ANY_PORT, connect, ping, read_n},
    wait::{PATIENCE, receive},
};
use netwheel::{codec::LengthField, metrics::LoopMetrics, prelude::*, time::Clock};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

// ---- the clock ---------------------------------------------------------------------------------

/// The system clock, with a count of its readings by the loop's thread and by other threads.
#[derive(Debug, Clone, Default)]
struct CountingClock {
    by_loop: Arc<AtomicU64>,
    by_others: Arc<AtomicU64>,
}

impl Clock for CountingClock {
    fn now(&self) -> Instant {
        let on_loop = thread::current().name() == Some("counted-0");
        let counter = if on_loop { &self.by_loop } else { &self.by_others };
        counter.fetch_add(1, SeqCst);
        Instant::now()
    }
}

/// Returns the loop's metrics before and after 2,000 echoes, and the readings that the clock
/// counted. Each echo is a turn.
fn readings(idle: IdleTimeouts) -> (LoopMetrics, LoopMetrics, u64) {
    const ECHOES: usize = 2_000;
    let clock = CountingClock::default();
    let group = EventLoopGroup::builder().threads(1).name("counted").clock(clock.clone()).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(LengthField::u32()).idle(idle).handler(Echo))
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    let mut echo = |times| (0..times).for_each(|_| ping(&mut stream, b"\0\0\0\x05hello"));
    echo(10);

    let (before, looked_before) = (metrics(&group), clock.by_loop.load(SeqCst));
    let others = clock.by_others.load(SeqCst);
    echo(ECHOES);
    let (after, looked) = (metrics(&group), clock.by_loop.load(SeqCst) - looked_before);
    assert_eq!(clock.by_others.load(SeqCst), others, "no other thread reads the loop's clock");
    // The turn that receives the first echo may have started, asleep, before the first snapshot.
    assert!(after.turns - before.turns + 1 >= ECHOES as u64);
    end(&group);
    (before, after, looked)
}

/// A snapshot may be taken anywhere within a turn, so allow for one turn at either end.
const SLACK: u64 = 4;

#[track_caller]
fn at_most_two_readings_per_turn(idle: IdleTimeouts) {
    let (before, after, looked) = readings(idle);
    let (turns, counted) = (after.turns - before.turns, after.clock_reads - before.clock_reads);
    assert!(counted <= 2 * turns + SLACK, "{counted} readings in {turns} turns");
    assert!(
        looked.abs_diff(counted) <= SLACK,
        "the clock was read {looked} times, the metrics count {counted}"
    );
}

#[test]
fn at_most_two_clock_readings_in_a_turn_of_the_echo_path() {
    at_most_two_readings_per_turn(IdleTimeouts::new());
}

#[test]
fn at_most_two_clock_readings_in_a_turn_with_idle_timeouts() {
    let minute = Duration::from_secs(60);
    at_most_two_readings_per_turn(IdleTimeouts::new().reader(minute).writer(minute).all(minute));
}

// ---- the waker ---------------------------------------------------------------------------------

#[test]
fn e_23_a_thousand_submissions_to_a_sleeping_loop_write_to_the_waker_once() {
    let group = one_loop();
    let event_loop = the_loop(&group);
    // The test cannot ask whether the loop sleeps, but can see it afterwards: the first submission
    // has woken it. In either case there is never more than one write.
    let end_of_patience = Instant::now() + PATIENCE;
    loop {
        some_turns(&group);
        let before = metrics(&group);
        let (release, released) = mpsc::channel::<()>();
        let (sender, ran) = mpsc::channel();
        event_loop
            .execute(move || {
                // Keeps the loop awake until all tasks are submitted.
                let _ = released.recv_timeout(PATIENCE);
            })
            .unwrap();
        for n in 1..1000 {
            let sender = sender.clone();
            event_loop.execute(move || sender.send(n).unwrap()).unwrap();
        }
        let written = metrics(&group).wakes_written - before.wakes_written;
        drop(release);
        for n in 1..1000 {
            assert_eq!(receive(&ran), n, "in order");
        }
        assert!(written <= 1, "{written} writes to the waker");
        if written == 1 {
            break;
        }
        assert!(Instant::now() < end_of_patience, "the loop never sleeps, or is never woken");
    }
    end(&group);
}

#[test]
fn e_23_messages_from_other_threads_write_to_the_waker_once() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    some_turns(&group);

    let release = block(&group);
    let before = metrics(&group).wakes_written;
    let writers: Vec<_> = (0..4)
        .map(|_| {
            let channel = channel.clone();
            thread::spawn(move || (0..250).for_each(|_| channel.write("x".into()).unwrap()))
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    assert_eq!(metrics(&group).wakes_written - before, 0, "no wake is written to a loop that is awake");
    drop(release);
    assert_eq!(read_n(&mut stream, 1000), [b'x'; 1000]);
    end(&group);
}

#[test]
fn submissions_from_the_loop_itself_do_not_write_to_the_waker() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    let event_loop = the_loop(&group).clone();
    let (sender, written) = mpsc::channel();

    on_loop(&group, move || {
        let before = event_loop.metrics().wakes_written;
        for _ in 0..1000 {
            event_loop.execute(|| ()).unwrap();
            event_loop.schedule(Duration::ZERO, || ()).unwrap();
            channel.write("x".into()).unwrap();
        }
        // Runs after the other tasks, in later turns. The loop must not have slept in between.
        let last = event_loop.clone();
        event_loop.execute(move || sender.send(last.metrics().wakes_written - before).unwrap()).unwrap();
    });
    assert_eq!(receive(&written), 0);
    assert_eq!(read_n(&mut stream, 1000), [b'x'; 1000]);
    end(&group);
}
