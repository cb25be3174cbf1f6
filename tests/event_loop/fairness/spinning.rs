//! Conditions that must neither make a loop spin nor keep it from its sockets. The tests count
//! polls.

use crate::support::{
    loops::{Gate, on, settle, settle_until, single},
    servers::echo_server,
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    Context, EventLoop, EventLoopGroup, Handler, Pipeline, Result, Server, ServerBootstrap,
    channel::ChannelOptions, codec::RawBytes, metrics::LoopMetrics,
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

/// Time for which an idle loop is observed. Nothing happens in it that a test could wait for.
const A_WHILE: Duration = ms(200);

/// Waits for a period in which the loop did not turn even once. A loop that spins has none.
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
        assert!(
            begun.elapsed() < PATIENCE,
            "the loop spins: {} polls in {A_WHILE:?}",
            after.polls - before.polls
        );
    }
}

/// The poll sleeps in whole milliseconds. A fraction of a millisecond must not be rounded down to
/// zero.
#[test]
fn a_deadline_below_one_millisecond_takes_at_most_two_polls() {
    let (_group, event_loop) = single(EventLoopGroup::builder());
    for micros in (50..1000).step_by(50) {
        let me = event_loop.clone();
        // Between this task and the timer one poll sleeps, or none if the timer expires within this
        // turn.
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

// ---- a peer that is gone, and a channel that does not read -------------------------------------

/// Counts the bytes that it has read.
struct Counts(Arc<Mutex<Vec<usize>>>, usize);

impl Handler for Counts {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0.lock().unwrap()[self.1] += message.len();
        Ok(())
    }
}

/// Bytes read on each connection, in the order in which they were accepted.
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
    settle_until(event_loop, |metrics| metrics.accepted >= n);
}

/// A poll reports errors and hang-ups even without interest. If the channel does not read, they
/// must not be reported in every turn.
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
        settle_until(&event_loop, |metrics| metrics.wakes_io > before.wakes_io);
    }
    let before = assert_rests(&event_loop);
    for _ in 0..20 {
        settle(&event_loop);
    }
    let after = assert_rests(&event_loop);
    assert_eq!(after.wakes_io, before.wakes_io, "the reset was reported again");
    assert_eq!(after.wakes_premature, 0);
    assert!(read.lock().unwrap().iter().all(|n| *n == 0));
    // A new poll reports the reset once more, and only once.
    done(event_loop.rebuild_poll().unwrap()).unwrap();
    let rebuilt = assert_rests(&event_loop);
    settle(&event_loop);
    assert_eq!(assert_rests(&event_loop).wakes_io, rebuilt.wakes_io);
}

/// Bytes that a bounded read leaves behind cause no further event if the peer sends nothing more.
#[test]
fn a_bounded_read_does_not_lose_an_edge() {
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
            // Most likely in the middle of the reads. The new poll reports the remaining bytes once
            // more.
            settle(&event_loop);
            done(event_loop.rebuild_poll().unwrap()).unwrap();
        }
        let all = before.bytes_read + (CONNECTIONS * BYTES) as u64;
        settle_until(&event_loop, |metrics| metrics.bytes_read >= all);
        settle(&event_loop);
        assert_eq!(*read.lock().unwrap(), [BYTES; CONNECTIONS]);
        let after = assert_rests(&event_loop);
        let turns = after.turns - before.turns;
        assert!(
            turns >= (BYTES / 1024) as u64,
            "everything was read in {turns} turns: the bound was not reached"
        );
    }
}

// ---- a flood of wakes --------------------------------------------------------------------------

/// Number of submissions per thread.
const WAKES: usize = 500_000;

/// A million submissions neither delay a socket nor leave a wake behind.
#[test]
fn a_flood_of_wakes_ends_quietly() {
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
                    // The last submission is not lazy, so that all of them run.
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
    settle_until(&event_loop, |_| ran.load(SeqCst) >= 2 * WAKES);
    let quiet = assert_rests(&event_loop);
    assert_eq!((quiet.wakes_premature, quiet.rests, quiet.tasks_pending), (0, 0, 0), "{quiet:?}");
    assert_eq!(ran.load(SeqCst), 2 * WAKES);
    assert_echoes(&mut peer);
    assert!(failed.try_recv().is_err());
}
