//! A loop that its owner drives by hand (E-32). `channel/types.rs` tests that it does not compile
//! to run one on another thread.

use crate::support::{
    journal::Journal,
    loops::{Gate, on, single},
    servers::echo_server,
    tcp::connect,
    wait::{HOUR, PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    Channel, Pipeline, codec::RawBytes, error::BoxError, group::ManualEventLoop, net::TcpOptions, prelude::*,
    shutdown::ShutdownOptions, testing::ManualClock,
};
use std::{
    cell::RefCell,
    io::{ErrorKind, Read, Write},
    rc::Rc,
    sync::{Arc, Barrier, Mutex},
    thread,
    time::{Duration, Instant},
};

const NOT_AT_ALL: Duration = Duration::ZERO;
fn by_hand() -> (ManualEventLoop, ManualClock) {
    let clock = ManualClock::new();
    (EventLoopGroup::builder().clock(clock.clone()).build_manual().unwrap(), clock)
}

/// Runs the loop until it has nothing left to do. Returns the number of things it did.
fn run_all(by_hand: &mut ManualEventLoop) -> usize {
    let mut all = 0;
    loop {
        let ran = by_hand.run_once(NOT_AT_ALL);
        all += ran;
        if ran == 0 {
            return all;
        }
    }
}

/// Runs the loop until the journal has all `entries`. Bytes may take a moment to pass through the
/// kernel, so it sleeps between turns.
fn run_until_recorded(by_hand: &mut ManualEventLoop, journal: &Journal<String>, entries: &[&str]) {
    let began = Instant::now();
    while !entries.iter().all(|entry| journal.all().iter().any(|told| told == entry)) {
        by_hand.run_once(ms(100));
        assert!(began.elapsed() < PATIENCE, "{entries:?} are not all in {:?}", journal.all());
    }
}

/// Records its callbacks. Echoes its input unless it is the client.
struct Member {
    name: &'static str,
    journal: Journal<String>,
    echoes: bool,
}

impl Member {
    fn say(&self, what: impl AsRef<str>) -> Result {
        self.journal.push(format!("{}: {}", self.name, what.as_ref()));
        Ok(())
    }
}

impl Handler for Member {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.say("active")
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.say(format!("reads {}", String::from_utf8_lossy(&message)))?;
        if self.echoes { ctx.write(message) } else { Ok(()) }
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        ctx.close();
        self.say("idle")
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.say("shutdown")?;
        ctx.write(Bytes::from_static(b"bye"))?;
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.say("inactive")
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.journal.push(format!("{}: gone", self.name));
    }
}

fn member(name: &'static str, journal: &Journal<String>, echoes: bool) -> Pipeline<Bytes> {
    let idle = IdleTimeouts::new().reader(Duration::from_secs(60));
    let idle = if echoes { idle } else { IdleTimeouts::new() };
    Pipeline::codec(RawBytes).idle(idle).handler(Member { name, journal: journal.clone(), echoes })
}

fn serve(by_hand: &ManualEventLoop, journal: &Journal<String>) -> Server {
    let journal = Mutex::new(journal.clone());
    let bootstrap = ServerBootstrap::new(by_hand.group());
    bootstrap.pipeline(move |_| member("server", &journal.lock().unwrap(), true)).bind("127.0.0.1:0").unwrap()
}

fn dial(by_hand: &ManualEventLoop, to: &Server, journal: &Journal<String>) -> Completion<Channel<Bytes>> {
    let journal = Mutex::new(journal.clone());
    let bootstrap = ClientBootstrap::new(by_hand.group());
    let bootstrap = bootstrap.pipeline(move |_| member("client", &journal.lock().unwrap(), false));
    bootstrap.connect(to.local_address())
}

// ---- E-32: the number that a turn reports ------------------------------------------------------

#[test]
fn e_32_run_once_reports_how_many_items_it_ran() {
    let (mut by_hand, clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 0);
    for _ in 0..3 {
        event_loop.execute(|| ()).unwrap();
    }
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 3, "tasks");
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 0);

    let timer = event_loop.schedule(ms(5), || ()).unwrap();
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 1, "the timer is added to the heap");
    clock.advance(ms(4));
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 0);
    clock.advance(ms(1));
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 1, "the timer fires");
    assert!(timer.is_done());

    // Work beyond a turn's limit stays for the next turn and is reported only once.
    for _ in 0..100 {
        event_loop.execute(|| ()).unwrap();
    }
    assert_eq!([(); 3].map(|()| by_hand.run_once(NOT_AT_ALL)), [64, 36, 0]);
}

#[test]
fn e_32_io_is_reported_too() {
    let (mut by_hand, _clock) = by_hand();
    let (server, _errors) = echo_server(by_hand.group());
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 1, "the listener is registered");
    let mut stream = connect(server.local_address());
    assert_eq!(by_hand.run_once(PATIENCE), 1, "the accept");
    // The new socket is writable.
    run_all(&mut by_hand);
    stream.write_all(b"hello").unwrap();
    assert_eq!(by_hand.run_once(PATIENCE), 1, "the read");
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 0);
}

#[test]
fn e_32_nothing_runs_before_run_once_and_callbacks_run_in_the_loop() {
    let (mut by_hand, _clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let inside = Journal::new();
    let (me, inside2) = (event_loop.clone(), inside.clone());
    event_loop.execute(move || inside2.push((me.in_event_loop(), thread::current().id()))).unwrap();
    assert_eq!(inside.len(), 0);
    assert!(!event_loop.in_event_loop());
    by_hand.run_once(None);
    assert_eq!(inside.all(), [(true, thread::current().id())]);
    assert!(!event_loop.in_event_loop());
}

#[test]
fn e_32_work_left_by_a_turn_is_reported_by_the_next() {
    // A message too large for the kernel's buffer and for the writes of one turn.
    let clock = ManualClock::new();
    let mut by_hand = EventLoopGroup::builder().clock(clock).build_manual().unwrap();
    let options = netwheel::channel::ChannelOptions::new().writes_per_turn(1).max_outbound(usize::MAX);
    let server = ServerBootstrap::new(by_hand.group())
        .channel_options(options)
        .tcp_options(TcpOptions::new())
        .pipeline(|_| Pipeline::codec(RawBytes).handler(Flood))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut stream = connect(server.local_address());
    run_all(&mut by_hand);
    let (mut read, mut left) = (0, 0);
    let mut room = vec![0; 1 << 20];
    stream.set_nonblocking(true).unwrap();
    let began = Instant::now();
    while read < Flood::BYTES {
        match stream.read(&mut room) {
            Ok(n) => read += n,
            Err(e) => assert_eq!(e.kind(), ErrorKind::WouldBlock),
        }
        left += run_all(&mut by_hand);
        // The loop reported that nothing is left to do, so now it may sleep.
        let before = by_hand.event_loop().metrics().polls_without_sleep;
        by_hand.run_once(Duration::from_nanos(1));
        assert_eq!(by_hand.event_loop().metrics().polls_without_sleep, before, "there was more to do");
        assert!(began.elapsed() < PATIENCE, "received only {read} bytes");
    }
    assert!(left > 0);
}

struct Flood;

impl Flood {
    /// The kernel takes several of these writes in a row, without an event in between.
    const CHUNK: usize = 4 * 1024;
    const CHUNKS: usize = 3200;
    const BYTES: usize = Self::CHUNKS * Self::CHUNK;
}

impl Handler for Flood {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        (0..Self::CHUNKS).try_for_each(|_| ctx.write(Bytes::from(vec![0; Self::CHUNK])))
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

// ---- sleeping ----------------------------------------------------------------------------------

#[test]
fn run_once_sleeps_no_longer_than_its_limit() {
    for by_hand in [EventLoopGroup::builder().build_manual().unwrap(), by_hand().0] {
        let mut by_hand = by_hand;
        // Once with nothing to wait for, once with a deadline far in the future.
        for pending in [false, true] {
            let timer = pending.then(|| by_hand.event_loop().schedule(HOUR, || ()).unwrap());
            run_all(&mut by_hand);
            let before = (Instant::now(), by_hand.event_loop().metrics());
            for _ in 0..5 {
                assert_eq!(by_hand.run_once(ms(2)), 0);
            }
            assert!(before.0.elapsed() >= ms(10), "it must sleep");
            let metrics = by_hand.event_loop().metrics();
            assert_eq!(metrics.wakes_deadline - before.1.wakes_deadline, 5);
            assert_eq!(metrics.wakes_premature, 0, "the end of the limit is not a premature wakeup");
            assert!(timer.is_none_or(|timer| !timer.is_done()));
        }
    }
}

#[test]
fn run_once_sleeps_until_a_timer_is_due() {
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let began = Instant::now();
    let timer = by_hand.event_loop().schedule(ms(5), || ()).unwrap();
    while !timer.is_done() {
        by_hand.run_once(HOUR);
    }
    assert!(began.elapsed() >= ms(5));
    assert!(by_hand.event_loop().metrics().turns <= 4);
}

#[test]
fn another_thread_wakes_it() {
    for _ in 0..50 {
        let mut by_hand = by_hand().0;
        let event_loop = by_hand.event_loop().clone();
        let submitter = thread::spawn(move || on(&event_loop, || thread::current().id()));
        // The task arrives before the loop sleeps or while it sleeps. It must not be missed.
        while by_hand.run_once(None) == 0 {}
        assert_eq!(submitter.join().unwrap(), thread::current().id());
    }
}

#[test]
fn the_clock_wakes_it_from_another_thread() {
    let (mut by_hand, clock) = by_hand();
    let timer = by_hand.event_loop().schedule(HOUR, || 7).unwrap();
    run_all(&mut by_hand);
    let advance = thread::spawn(move || clock.advance(HOUR));
    assert_eq!(by_hand.run_until(timer.completion()).unwrap(), 7);
    advance.join().unwrap();
}

// ---- embedding ---------------------------------------------------------------------------------

#[test]
fn e_32_a_server_and_its_client_run_on_one_thread() {
    let (mut by_hand, clock) = by_hand();
    let journal = Journal::new();
    let server = serve(&by_hand, &journal);
    let client = dial(&by_hand, &server, &journal);
    let client = by_hand.run_until(client).unwrap();
    run_until_recorded(&mut by_hand, &journal, &["client: active", "server: active"]);
    client.write(Bytes::from_static(b"one")).unwrap();
    run_until_recorded(&mut by_hand, &journal, &["client: reads one"]);
    let mut first = journal.all();
    first[..2].sort();
    assert_eq!(first, ["client: active", "server: active", "server: reads one", "client: reads one"]);

    // The test advances the clock. The server closes a connection that has been silent for a
    // minute.
    clock.advance(Duration::from_secs(59));
    run_all(&mut by_hand);
    assert_eq!(journal.len(), 4);
    clock.advance(Duration::from_secs(2));
    run_all(&mut by_hand);
    by_hand.run_until(client.closed()).unwrap();
    run_until_recorded(&mut by_hand, &journal, &["server: gone", "client: gone"]);
    let rest = journal.all().split_off(4);
    assert_eq!(rest[0], "server: idle");
    for last in ["server: inactive", "server: gone", "client: inactive", "client: gone"] {
        assert_eq!(rest.iter().filter(|entry| *entry == last).count(), 1, "{last} in {rest:?}");
    }
    // The server's socket lingers until the client has closed its own.
    while by_hand.event_loop().connections() > 0 {
        by_hand.run_once(PATIENCE);
    }
    by_hand.run_until(server.close()).unwrap();
}

#[test]
fn two_loops_on_one_thread_are_told_apart() {
    let (mut a, mut b) = (by_hand().0, by_hand().0);
    let (of_a, of_b) = (a.event_loop().clone(), b.event_loop().clone());
    let seen = Journal::new();
    let (me, other, seen2) = (of_a.clone(), of_b.clone(), seen.clone());
    of_a.execute(move || {
        seen2.push((me.in_event_loop(), other.in_event_loop()));
        other.clone().execute(move || seen2.push((me.in_event_loop(), other.in_event_loop()))).unwrap();
    })
    .unwrap();
    assert_eq!((b.run_once(NOT_AT_ALL), a.run_once(NOT_AT_ALL), b.run_once(NOT_AT_ALL)), (0, 1, 1));
    assert_eq!(seen.all(), [(true, false), (false, true)]);
}

#[test]
fn it_can_be_driven_from_within_another_loop() {
    let (group, outer) = single(EventLoopGroup::builder());
    let me = outer.clone();
    let seen = on(&outer, move || {
        let mut inner = EventLoopGroup::builder().build_manual().unwrap();
        let task = inner.event_loop().schedule(NOT_AT_ALL, || 3).unwrap();
        let three = inner.run_until(task.completion()).unwrap();
        (three, me.in_event_loop())
    });
    assert_eq!(seen, (3, true), "afterwards the outer loop is the current loop again");
    done(group.shutdown(ShutdownOptions::new().quiet_period(NOT_AT_ALL).timeout(HOUR))).unwrap();
}

#[test]
fn it_can_wait_for_a_completion_of_another_loop() {
    let (group, other) = single(EventLoopGroup::builder());
    let mut by_hand = by_hand().0;
    for n in 0..50 {
        let task = other.schedule(NOT_AT_ALL, move || n).unwrap();
        assert_eq!(by_hand.run_until(task.completion()).unwrap(), n);
    }
    // Also if the driven loop has ended by then.
    let gate = Gate::shut(&other);
    let task = other.schedule(NOT_AT_ALL, || "later").unwrap();
    let end = by_hand.event_loop().shutdown(ShutdownOptions::new().quiet_period(NOT_AT_ALL).timeout(HOUR));
    by_hand.run_until(end).unwrap();
    drop(gate);
    assert_eq!(by_hand.run_until(task.completion()).unwrap(), "later");
    done(group.shutdown(ShutdownOptions::new().quiet_period(NOT_AT_ALL).timeout(HOUR))).unwrap();
}

#[test]
fn waiting_for_it_on_its_own_thread_is_an_error_instead_of_a_deadlock() {
    let (mut by_hand, _clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let task = event_loop.schedule(NOT_AT_ALL, || ()).unwrap();
    assert!(matches!(task.completion().wait(), Err(Error::WouldDeadlock)));
    let task = event_loop.schedule(NOT_AT_ALL, || ()).unwrap();
    assert!(matches!(task.completion().wait_timeout(HOUR), Ok(Err(Error::WouldDeadlock))));
    assert!(matches!(by_hand.group().terminated().wait(), Err(Error::WouldDeadlock)));
    assert!(matches!(event_loop.terminated().wait(), Err(Error::WouldDeadlock)));
    // Waiting for room in its queue is the same error, because no other thread would make room.
    let refused = event_loop.execute_timeout(HOUR, Box::new(|| ())).unwrap_err();
    assert!(matches!(refused.error(), Error::WouldDeadlock), "{}", refused.error());

    // A result that is ready is returned at once. Another thread may wait.
    let done = event_loop.schedule(NOT_AT_ALL, || 5).unwrap().completion();
    run_all(&mut by_hand);
    assert_eq!(done.wait().unwrap(), 5);
    let waited = event_loop.schedule(NOT_AT_ALL, || 6).unwrap().completion();
    let waiter = thread::spawn(move || waited.wait().unwrap());
    run_all(&mut by_hand);
    assert_eq!(waiter.join().unwrap(), 6);

    // Its thread may wait for other loops. Once this loop is dropped, the thread is not special any
    // more.
    drop(by_hand);
    let (group, other) = single(EventLoopGroup::builder());
    assert_eq!(other.schedule(NOT_AT_ALL, || 7).unwrap().completion().wait().unwrap(), 7);
    group.shutdown(ShutdownOptions::new().quiet_period(NOT_AT_ALL).timeout(HOUR)).wait().unwrap();
}

// ---- settings ----------------------------------------------------------------------------------

#[test]
fn it_is_the_only_loop_and_has_no_thread() {
    let built = EventLoopGroup::builder().threads(1).name("hand").build_manual().unwrap();
    assert_eq!((built.event_loop().name(), built.group().event_loops().len()), ("hand-0", 1));
    assert_eq!(built.group().next().name(), "hand-0");
    let refused = |built: Result<ManualEventLoop>| match built.unwrap_err() {
        Error::Setting(refused) => (refused.setting(), refused.value().to_owned()),
        other => panic!("{other}"),
    };
    assert_eq!(refused(EventLoopGroup::builder().threads(2).build_manual()), ("threads", "2".to_owned()));
    assert_eq!(refused(EventLoopGroup::builder().pin_to([0]).build_manual()), ("pin_to", "[0]".to_owned()));
    assert_eq!(refused(EventLoopGroup::builder().io_ratio(0).build_manual()), ("io_ratio", "0".to_owned()));
}

// ---- the end -----------------------------------------------------------------------------------

fn assert_ended(event_loop: &EventLoop) {
    assert!(event_loop.is_shutting_down() && event_loop.is_shut_down() && event_loop.is_terminated());
    event_loop.terminated().wait().unwrap();
    assert!(matches!(
        event_loop.execute(|| unreachable!("the loop has ended")).map_err(Error::from),
        Err(Error::ShutDown)
    ));
    assert!(matches!(event_loop.schedule(NOT_AT_ALL, || ()), Err(Error::ShutDown)));
}

#[test]
fn it_shuts_down_like_every_loop() {
    let (mut by_hand, clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let journal = Journal::new();
    let server = serve(&by_hand, &journal);
    let client = dial(&by_hand, &server, &journal);
    by_hand.run_until(client).unwrap();
    run_until_recorded(&mut by_hand, &journal, &["server: active"]);
    let timer = event_loop.schedule(HOUR, || ()).unwrap();
    run_all(&mut by_hand);

    let ended = event_loop.shutdown(ShutdownOptions::new().quiet_period(ms(100)).timeout(HOUR));
    assert!(event_loop.is_shutting_down() && !event_loop.is_shut_down());
    run_all(&mut by_hand);
    assert!(timer.is_done() && !ended.is_done() && !by_hand.is_terminated(), "it waits for the quiet period");
    let journal = journal.all();
    // The client's end is that of its peer: outgoing channels are notified after accepted ones.
    for told in ["server: shutdown", "server: inactive", "client: reads bye", "client: inactive"] {
        assert_eq!(journal.iter().filter(|entry| *entry == told).count(), 1, "{told} in {journal:?}");
    }
    event_loop.execute(|| ()).unwrap();
    clock.advance(ms(100));
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 1, "a task submitted in the quiet period");
    assert!(!by_hand.is_terminated());
    clock.advance(ms(100));
    by_hand.run().unwrap();
    assert!(by_hand.is_terminated());
    ended.wait().unwrap();
    assert_ended(&event_loop);
    assert_eq!(by_hand.run_once(None), 0, "a terminated loop has nothing to wait for");
    by_hand.run().unwrap();
}

#[test]
fn run_returns_after_a_shutdown() {
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let event_loop = by_hand.event_loop().clone();
    let stop = thread::spawn(move || {
        assert_eq!(on(&event_loop, || 1), 1);
        done(event_loop.shutdown(ShutdownOptions::new().quiet_period(NOT_AT_ALL).timeout(HOUR))).unwrap();
        event_loop
    });
    by_hand.run().unwrap();
    assert_ended(&stop.join().unwrap());
}

#[test]
fn dropping_it_shuts_it_down() {
    let (mut by_hand, _clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let (ran, journal) = (Journal::new(), Journal::new());
    let server = serve(&by_hand, &journal);
    run_all(&mut by_hand);
    let mut stream = connect(server.local_address());
    run_until_recorded(&mut by_hand, &journal, &["server: active"]);
    let closed = server.closed();
    let timer = event_loop.schedule(HOUR, || ()).unwrap();
    run_all(&mut by_hand);
    let on_its_way = event_loop.schedule(HOUR, || ()).unwrap();
    let ran2 = ran.clone();
    event_loop.execute(move || ran2.push("accepted, so it runs")).unwrap();
    let connecting = dial(&by_hand, &server, &journal);
    let ended = event_loop.terminated();
    assert_eq!(event_loop.connections(), 2);

    drop(by_hand);
    assert_eq!(ran.all(), ["accepted, so it runs"]);
    assert_eq!(journal.all(), ["server: active", "server: shutdown", "server: inactive", "server: gone"]);
    let mut last = Vec::new();
    stream.read_to_end(&mut last).unwrap();
    assert_eq!(last, b"bye");
    for failed in [timer.completion().wait(), on_its_way.completion().wait()] {
        assert!(matches!(failed, Err(Error::ShutDown)), "{failed:?}");
    }
    assert!(matches!(connecting.wait(), Err(Error::ShutDown)));
    assert!(closed.is_done() && event_loop.connections() == 0);
    ended.wait().unwrap();
    assert_ended(&event_loop);
    assert!(std::net::TcpStream::connect(server.local_address()).is_err(), "the listener is closed");
}

#[test]
fn dropping_it_during_its_shutdown_ends_it_at_once() {
    let (mut by_hand, _clock) = by_hand();
    let event_loop = by_hand.event_loop().clone();
    let ended = event_loop.shutdown(ShutdownOptions::new().quiet_period(HOUR).timeout(HOUR));
    run_all(&mut by_hand);
    assert!(!event_loop.is_shut_down());
    drop(by_hand);
    ended.wait().unwrap();
    assert_ended(&event_loop);
    // Also if it never ran.
    let by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let event_loop = by_hand.event_loop().clone();
    drop(by_hand);
    assert_ended(&event_loop);
}

#[test]
fn dropping_it_when_its_thread_ends_shuts_it_down() {
    thread_local! {
        static KEPT: RefCell<Option<ManualEventLoop>> = const { RefCell::new(None) };
    }
    // The crate's own variables of the thread are made before this one, or after it and so dropped
    // before it.
    for is_kept_first in [false, true] {
        let event_loop = thread::spawn(move || {
            if is_kept_first {
                KEPT.with_borrow_mut(|kept| assert!(kept.is_none()));
            }
            let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
            by_hand.run_once(NOT_AT_ALL);
            let event_loop = by_hand.event_loop().clone();
            KEPT.with_borrow_mut(|kept| *kept = Some(by_hand));
            event_loop
        })
        .join()
        .unwrap();
        done(event_loop.terminated()).unwrap();
        assert_ended(&event_loop);
    }
}

#[test]
fn tasks_that_race_with_its_drop_run_or_are_refused() {
    for _ in 0..200 {
        let by_hand = EventLoopGroup::builder().build_manual().unwrap();
        let event_loop = by_hand.event_loop().clone();
        let (ran, start) = (Journal::new(), Arc::new(Barrier::new(2)));
        let (ran2, start2) = (ran.clone(), start.clone());
        let submitter = thread::spawn(move || {
            start2.wait();
            let submit = |n| {
                let ran = ran2.clone();
                event_loop.execute(move || ran.push(n)).is_ok()
            };
            (0..).take_while(|n| submit(*n)).count()
        });
        start.wait();
        drop(by_hand);
        assert_eq!(submitter.join().unwrap(), ran.len());
    }
}

#[test]
fn a_callback_that_panics_leaves_the_loop_alive() {
    let (mut by_hand, _clock) = by_hand();
    by_hand.event_loop().execute(|| panic!("on purpose")).unwrap();
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 1);
    assert_eq!(by_hand.event_loop().metrics().tasks_panicked, 1);
    by_hand.event_loop().execute(|| ()).unwrap();
    assert_eq!(by_hand.run_once(NOT_AT_ALL), 1);
}

/// State of the program that is not shared between threads, beside the loop.
#[test]
fn it_can_be_driven_by_a_main_loop() -> Result<(), BoxError> {
    let (mut by_hand, clock) = by_hand();
    let frames = Rc::new(RefCell::new(0));
    let (sender, ticks) = std::sync::mpsc::channel();
    let tick = move || sender.send(()).map_err(Error::other);
    let task = by_hand.event_loop().schedule_periodic(ms(16), tick)?;
    for _ in 0..10 {
        clock.advance(ms(16));
        while by_hand.run_once(NOT_AT_ALL) > 0 {}
        *frames.borrow_mut() += ticks.try_iter().count();
    }
    assert!(task.cancel());
    assert_eq!(*frames.borrow(), 10);
    Ok(())
}
