//! What must not make a loop spin, and must not keep it from its sockets: the counts of its polls say so.

use crate::support::{
    loops::{Gate, on, settle, single},
    servers::echo_server,
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, Context, EventLoop, EventLoopGroup, Handler, LoopMetrics, Pipeline, Result, Server,
    ServerBootstrap, codec::RawBytes,
};
use std::{
    io::Write,
    net::TcpStream,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

/// For how long a loop that has nothing to do is watched.
const A_WHILE: Duration = ms(200);

/// Waits for a while in which the loop did not turn even once: one that spins has none.
#[track_caller]
fn assert_rests(event_loop: &EventLoop) -> LoopMetrics {
    let begun = Instant::now();
    loop {
        let before = event_loop.metrics();
        std::thread::sleep(A_WHILE);
        let after = event_loop.metrics();
        if (after.polls, after.turns) == (before.polls, before.turns) {
            return after;
        }
        assert!(begun.elapsed() < PATIENCE, "{} polls in {A_WHILE:?}", after.polls - before.polls);
    }
}

/// 4.10: the poll sleeps in whole milliseconds; a part of one must not become none.
#[test]
fn sub_ms_deadline_two_polls() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    for micros in (50..1000).step_by(50) {
        let me = event_loop.clone();
        // Between this task and the timer: one that sleeps. None, if the time was up before the turn was over.
        let (before, timer) = on(&event_loop, move || {
            let (counting, polls) = (me.clone(), me.metrics().polls);
            let due = Duration::from_micros(micros);
            (polls, me.schedule(due, move || counting.metrics().polls).unwrap())
        });
        let polls = done(timer.completion()).unwrap() - before;
        assert!(polls <= 2, "{polls} polls for {micros} microseconds");
    }
    assert_eq!(event_loop.metrics().wakes_premature, 0);
}

// ---- a peer that is gone, and nobody who would read it ------------------------------------------------------

/// Tells how much it has read.
struct Counts(Arc<Mutex<Vec<usize>>>, usize);

impl Handler for Counts {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0.lock().unwrap()[self.1] += message.len();
        Ok(())
    }
}

/// How much each connection has read, in the order in which they came.
type Read = Arc<Mutex<Vec<usize>>>;

fn counting_server(group: &EventLoopGroup, options: ChannelOptions) -> (Server, Read) {
    let read = Read::default();
    let counts = read.clone();
    let server = ServerBootstrap::new(group).channel_options(options).pipeline(move |_| {
        let mut read = counts.lock().unwrap();
        read.push(0);
        Pipeline::codec(RawBytes).handler(Counts(counts.clone(), read.len() - 1))
    });
    (server.bind("127.0.0.1:0").unwrap(), read)
}

fn reset(stream: TcpStream) {
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
}

#[track_caller]
fn until_accepted(event_loop: &EventLoop, n: u64) {
    let begun = Instant::now();
    while event_loop.metrics().accepted < n {
        assert!(begun.elapsed() < PATIENCE, "{:?}", event_loop.metrics());
        settle(event_loop);
    }
}

/// 4.7: a poll tells of errors and hang-ups whether one asks or not; if nobody reads, they would be told for ever.
#[test]
fn reset_without_interest_does_not_spin() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, read) = counting_server(&group, ChannelOptions::new().auto_read(false));
    for n in 1..=10 {
        let mut peer = connect(server.local_address());
        until_accepted(&event_loop, n);
        peer.write_all(b"hello").unwrap();
        let before = event_loop.metrics();
        reset(peer);
        let begun = Instant::now();
        while event_loop.metrics().wakes_io == before.wakes_io {
            assert!(begun.elapsed() < PATIENCE, "the reset is not seen");
            settle(&event_loop);
        }
    }
    let before = assert_rests(&event_loop);
    for _ in 0..20 {
        settle(&event_loop);
    }
    let after = assert_rests(&event_loop);
    assert_eq!(after.wakes_io, before.wakes_io, "told once more");
    assert_eq!(after.wakes_premature, 0);
    assert!(read.lock().unwrap().iter().all(|n| *n == 0));
    // A new poll tells of them once more, and once only.
    done(event_loop.rebuild_poll().unwrap()).unwrap();
    let rebuilt = assert_rests(&event_loop);
    settle(&event_loop);
    assert_eq!(assert_rests(&event_loop).wakes_io, rebuilt.wakes_io);
}

/// 4.14: what a bound leaves of the bytes of a peer that falls silent has no event of its own any more.
#[test]
fn bounded_read_no_lost_edge() {
    const CONNECTIONS: usize = 20;
    const BYTES: usize = 20_000;
    let (group, event_loop) = single(EventLoopGroup::builder());
    let options = ChannelOptions::new().read_size(512).reads_per_turn(2);
    let (server, read) = counting_server(&group, options);
    let mut peers: Vec<_> = (0..CONNECTIONS).map(|_| connect(server.local_address())).collect();
    until_accepted(&event_loop, CONNECTIONS as u64);
    for rebuilt in [false, true] {
        read.lock().unwrap().fill(0);
        let gate = Gate::shut(&event_loop);
        for peer in &mut peers {
            peer.write_all(&[7; BYTES]).unwrap();
        }
        let before = event_loop.metrics();
        drop(gate);
        if rebuilt {
            // In the middle of it, most likely; what is still to be read is announced once more then.
            settle(&event_loop);
            done(event_loop.rebuild_poll().unwrap()).unwrap();
        }
        let begun = Instant::now();
        while event_loop.metrics().bytes_read < before.bytes_read + (CONNECTIONS * BYTES) as u64 {
            assert!(begun.elapsed() < PATIENCE, "{:?}", read.lock().unwrap());
            settle(&event_loop);
        }
        settle(&event_loop);
        assert_eq!(*read.lock().unwrap(), [BYTES; CONNECTIONS]);
        let after = assert_rests(&event_loop);
        let turns = after.turns - before.turns;
        assert!(turns >= (BYTES / 1024) as u64, "all in {turns} turns: nothing was bounded");
    }
}

// ---- a flood of wakes ------------------------------------------------------------------------------------

/// Submissions of one thread.
const WAKES: usize = 500_000;

/// 4.8, 4.9: a million submissions keep no socket waiting, and leave nothing behind that wakes the loop.
#[test]
fn waker_flood_then_quiet() {
    let (group, event_loop) = single(EventLoopGroup::builder());
    let (server, failed) = echo_server(&group);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    let ran = Arc::new(AtomicUsize::new(0));
    std::thread::scope(|scope| {
        let submit = |lazily: bool| {
            let (event_loop, ran) = (event_loop.clone(), ran.clone());
            move || {
                for n in 0..WAKES {
                    let ran = ran.clone();
                    let task = move || {
                        ran.fetch_add(1, SeqCst);
                    };
                    // The last one is not lazy: it has all of them run.
                    let given = if lazily && n + 1 < WAKES {
                        event_loop.execute_lazily(task)
                    } else {
                        event_loop.execute(task)
                    };
                    given.unwrap();
                }
            }
        };
        let floods = [scope.spawn(submit(false)), scope.spawn(submit(true))];
        let mut echoes = 0;
        while floods.iter().any(|flood| !flood.is_finished()) {
            assert_echoes(&mut peer);
            echoes += 1;
        }
        assert!(echoes > 1, "{echoes} echoes during the flood");
    });
    let begun = Instant::now();
    while ran.load(SeqCst) < 2 * WAKES {
        assert!(begun.elapsed() < PATIENCE, "{} of them ran", ran.load(SeqCst));
        settle(&event_loop);
    }
    let quiet = assert_rests(&event_loop);
    assert_eq!((quiet.wakes_premature, quiet.rests, quiet.tasks_pending), (0, 0, 0), "{quiet:?}");
    assert_eq!(ran.load(SeqCst), 2 * WAKES);
    assert_echoes(&mut peer);
    assert!(failed.try_recv().is_err());
}
