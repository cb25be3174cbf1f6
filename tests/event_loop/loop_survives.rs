//! A panic that gets past the boundaries of channels and tasks costs what was being handled, not the loop (E-28);
//! and what does end a loop is told to who waits for its end (E-27).
//!
//! Such panics come from what a program gives and the loop uses beside its callbacks: a `log::Log`, the `Display` of
//! an error, the `Drop` of a value or of what a panic threw, the `Wake` of a task. The logger of the kit panics at
//! every record that contains [`TRAP`]; so each test makes the loop log something that contains it.

use crate::support::{
    logs::{self, TRAP},
    loops::{Gate, advance, on, settle, single},
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    Clock, Context, Error, EventLoop, EventLoopGroup, Handler, IdleEvent, IdleTimeouts, Pipeline, Result,
    Server, ServerBootstrap, codec::RawBytes, testing::ManualClock,
};
use std::{
    fmt,
    io::{Read, Write},
    net::TcpStream,
    panic::panic_any,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task,
    time::{Duration, Instant},
};

/// Panics when it is dropped, unless that is while another panic is on its way.
struct Mine;

impl Drop for Mine {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a drop panics");
    }
}

/// An error whose text cannot be had.
#[derive(Debug)]
struct Unspeakable;

impl fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text for this")
    }
}

impl std::error::Error for Unspeakable {}

fn unspeakable() -> Error {
    Error::other(Unspeakable)
}

struct Fixture {
    group: EventLoopGroup,
    event_loop: EventLoop,
    clock: ManualClock,
}

fn fixture() -> Fixture {
    logs::collect();
    let clock = ManualClock::new();
    let (group, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    Fixture { group, event_loop, clock }
}

impl Fixture {
    /// As many panics as these have got to the loop, and it goes on as before.
    #[track_caller]
    fn assert_alive(&self, panics: u64) {
        settle(&self.event_loop);
        assert_eq!(self.event_loop.metrics().io_panics, panics);
        assert_eq!(on(&self.event_loop, || "a task"), "a task");
        let timer = self.event_loop.schedule(ms(1), || "a timer").unwrap();
        advance(&self.event_loop, &self.clock, ms(1));
        assert_eq!(done(timer.completion()).unwrap(), "a timer");
    }

    #[track_caller]
    fn until_channels(&self, channels: u64) {
        let begun = Instant::now();
        while self.event_loop.metrics().channels != channels {
            assert!(begun.elapsed() < PATIENCE, "{:?}", self.event_loop.metrics());
            settle(&self.event_loop);
        }
    }

    /// It ends in order, and at once: nothing is left that it would wait for.
    #[track_caller]
    fn end(self) {
        done(self.group.shutdown_gracefully(ms(0), ms(60_000))).unwrap();
    }
}

// ---- a server that does as it is told --------------------------------------------------------------------

/// Sends everything back, but for the words that make it fail.
#[derive(Default)]
struct Obedient {
    unsaid: bool,
    fails_at_the_start: bool,
    fails_at_the_end: bool,
    traps_at_shutdown: bool,
    _mine: Option<Mine>,
}

impl Handler for Obedient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.fails_at_the_start { Err(unspeakable()) } else { Ok(()) }
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match &message[..] {
            b"fail" => Err("it was asked to".into()),
            // What is logged of a panic in a callback is logged beyond the channel's boundary.
            b"trap" => panic!("{TRAP}"),
            b"task" => {
                ctx.schedule(ms(5), |_, _| Err("it was asked to".into()));
                Ok(())
            }
            b"idle" => {
                ctx.set_idle_timeouts(IdleTimeouts::new().reader(ms(300)));
                Ok(())
            }
            b"bye" => {
                self.fails_at_the_end = true;
                ctx.close();
                Ok(())
            }
            b"drop" => {
                self._mine = Some(Mine);
                panic_any(Mine)
            }
            b"last words" => {
                self.traps_at_shutdown = true;
                ctx.write(message)
            }
            b"unsaid" => {
                self.unsaid = true;
                Err("it was asked to".into())
            }
            _ => ctx.write(message),
        }
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        Err("it was quiet".into())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(!self.traps_at_shutdown, "{TRAP}");
        ctx.write(Bytes::from_static(b"goodbye"))?;
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.fails_at_the_end { Err(unspeakable()) } else { Ok(()) }
    }

    fn error(&mut self, _: &mut Context<'_, Self>, _: Error) -> Result {
        Err(if self.unsaid { TRAP.into() } else { unspeakable() })
    }
}

/// After which a loop tells the log again of connections that become no channel, where it cannot be told.
const SEEN_AGAIN: Duration = ms(10_000);

/// Answers `true` for the first `times` calls.
fn takes(times: usize) -> impl Fn() -> bool + Send + Sync {
    let left = AtomicUsize::new(times);
    move || left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// The factory fails for so many connections.
fn serve(fixture: &Fixture, failures: usize) -> Server {
    let take = takes(failures);
    let server = ServerBootstrap::new(&fixture.group).pipeline(move |_| {
        if take() {
            return Err(unspeakable());
        }
        Ok(Pipeline::codec(RawBytes).handler(Obedient::default()))
    });
    server.bind("127.0.0.1:0").unwrap()
}

/// The factory panics when it is dropped.
fn serve_from_a_factory_that_is_mine(fixture: &Fixture) -> Server {
    let mine = Mine;
    let server = ServerBootstrap::new(&fixture.group).pipeline(move |_| {
        let _mine = &mine;
        Pipeline::codec(RawBytes).handler(Obedient::default())
    });
    server.bind("127.0.0.1:0").unwrap()
}

fn is_closed(mut stream: TcpStream) -> bool {
    // An end or a reset.
    !matches!(stream.read(&mut [0]), Ok(1..))
}

// ---- sockets ---------------------------------------------------------------------------------------------

#[test]
fn e_28_a_listener_whose_accepting_panics_goes_on_after_a_rest() {
    let fixture = fixture();
    let server = serve(&fixture, 2);
    let mut old = {
        // The first two are refused, with an error that cannot be logged.
        let refused = connect(server.local_address());
        assert!(is_closed(refused));
        fixture.assert_alive(1);
        let mut waiting = connect(server.local_address());
        for _ in 0..5 {
            settle(&fixture.event_loop);
        }
        assert_eq!(fixture.event_loop.metrics().accepted, 1, "it rests");
        advance(&fixture.event_loop, &fixture.clock, SEEN_AGAIN);
        assert!(is_closed(waiting.try_clone().unwrap()));
        fixture.assert_alive(2);
        // And the third.
        waiting = connect(server.local_address());
        advance(&fixture.event_loop, &fixture.clock, ms(1000));
        waiting
    };
    assert_echoes(&mut old);
    assert_echoes(&mut connect(server.local_address()));
    fixture.assert_alive(2);
    fixture.end();
}

#[test]
fn e_28_a_channel_whose_handling_panics_is_closed_and_the_others_of_the_batch_are_handled() {
    let fixture = fixture();
    let server = serve(&fixture, 0);
    let mut peers: Vec<_> = (0..9).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(assert_echoes);
    let words: [&[u8]; 9] =
        [b"one", b"fail", b"two", b"trap", b"three", b"drop", b"four", b"unsaid", b"five"];
    let gate = Gate::shut(&fixture.event_loop);
    for (peer, word) in peers.iter_mut().zip(words) {
        peer.write_all(word).unwrap();
    }
    drop(gate);
    for (mut peer, word) in peers.into_iter().zip(words) {
        if matches!(word, b"fail" | b"trap" | b"drop" | b"unsaid") {
            assert!(is_closed(peer), "{}", word.escape_ascii());
        } else {
            let mut back = vec![0; word.len()];
            peer.read_exact(&mut back).unwrap();
            assert_eq!(back, word);
            std::mem::forget(peer);
        }
    }
    fixture.until_channels(5);
    assert_echoes(&mut connect(server.local_address()));
    let panics = fixture.event_loop.metrics().io_panics;
    assert!(panics >= 4, "{panics}");
    fixture.assert_alive(panics);
    fixture.end();
}

#[test]
fn e_28_a_panic_while_a_connection_begins_costs_that_one_and_no_rest() {
    let fixture = fixture();
    let take = takes(2);
    let server = ServerBootstrap::new(&fixture.group).pipeline(move |_| {
        let handler = Obedient { fails_at_the_start: take(), ..Obedient::default() };
        Pipeline::codec(RawBytes).handler(handler)
    });
    let server = server.bind("127.0.0.1:0").unwrap();
    // All in one batch, and time stands still: none has to wait for the others.
    let gate = Gate::shut(&fixture.event_loop);
    let [first, second, mut third] = [(); 3].map(|()| connect(server.local_address()));
    drop(gate);
    assert_echoes(&mut third);
    assert!(is_closed(first) && is_closed(second));
    fixture.until_channels(1);
    fixture.assert_alive(fixture.event_loop.metrics().io_panics);
    fixture.end();
}

// ---- tasks and timers ------------------------------------------------------------------------------------

#[test]
fn e_28_a_panic_while_a_timer_of_a_channel_runs_costs_the_channel() {
    let fixture = fixture();
    let server = serve(&fixture, 0);
    for (word, after) in [(&b"task"[..], ms(5)), (b"idle", ms(400))] {
        let (mut peer, mut other) = (connect(server.local_address()), connect(server.local_address()));
        assert_echoes(&mut other);
        let read = fixture.event_loop.metrics().bytes_read;
        peer.write_all(word).unwrap();
        while fixture.event_loop.metrics().bytes_read < read + 4 {
            settle(&fixture.event_loop);
        }
        advance(&fixture.event_loop, &fixture.clock, after);
        assert!(is_closed(peer), "{}", word.escape_ascii());
        assert_echoes(&mut other);
        fixture.until_channels(1);
        drop(other);
        fixture.until_channels(0);
    }
    let panics = fixture.event_loop.metrics().io_panics;
    assert!(panics >= 2, "{panics}");
    fixture.assert_alive(panics);
    fixture.end();
}

#[test]
fn e_28_a_panic_in_what_is_said_of_the_last_callback_leaves_nothing_behind() {
    let fixture = fixture();
    let server = serve(&fixture, 0);
    let mut peers: Vec<_> = (0..5).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(assert_echoes);
    let gate = Gate::shut(&fixture.event_loop);
    for peer in &mut peers {
        peer.write_all(b"bye").unwrap();
    }
    drop(gate);
    for peer in peers {
        assert!(is_closed(peer));
    }
    fixture.assert_alive(5);
    fixture.end();
}

/// A panic in each of these got past the loop's own boundaries once.
#[test]
fn e_28_what_tasks_leave_behind_may_panic() {
    let fixture = fixture();
    let event_loop = &fixture.event_loop;
    let mut panics = 0;
    let mut assert_alive = |and: u64| {
        panics += and;
        fixture.assert_alive(panics);
    };
    // The report of a panic.
    event_loop.execute(|| panic!("{TRAP}")).unwrap();
    assert_alive(1);
    drop(event_loop.schedule(Duration::ZERO, || panic!("{TRAP}")).unwrap());
    assert_alive(1);
    // What was thrown.
    event_loop.execute(|| panic_any(Mine)).unwrap();
    drop(event_loop.schedule(Duration::ZERO, || panic_any(Mine)).unwrap());
    drop(event_loop.schedule_at_turn_end(|| panic_any(Mine)).unwrap());
    assert_alive(0);
    // A value that nobody waits for any more.
    let gate = Gate::shut(event_loop);
    drop(event_loop.schedule(Duration::ZERO, || Mine).unwrap());
    drop(gate);
    assert_alive(1);
    let gate = Gate::shut(event_loop);
    drop(event_loop.schedule_at_turn_end(|| Mine).unwrap());
    let after = event_loop.schedule_at_turn_end(|| "the next one").unwrap();
    drop(gate);
    assert_alive(1);
    assert_eq!(done(after.completion()).unwrap(), "the next one");
    // A callback, and the report of it.
    let timer = event_loop.schedule(ms(1), || ()).unwrap();
    timer.completion().on_complete(|_| panic!("{TRAP}"));
    advance(event_loop, &fixture.clock, ms(1));
    assert_alive(1);
    fixture.end();
}

#[test]
fn e_28_a_waker_that_panics_does_not_end_the_loop() {
    struct Panics;
    impl task::Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("a waker panics")
        }
    }
    let fixture = fixture();
    let timer = fixture.event_loop.schedule(ms(1), || "fired").unwrap();
    let mut completion = Box::pin(timer.completion());
    let waker = Arc::new(Panics).into();
    let mut context = task::Context::from_waker(&waker);
    assert!(completion.as_mut().poll(&mut context).is_pending());
    advance(&fixture.event_loop, &fixture.clock, ms(1));
    assert!(matches!(completion.as_mut().poll(&mut context), task::Poll::Ready(Ok("fired"))));
    fixture.assert_alive(0);
    fixture.end();
}

#[test]
fn e_28_captures_of_a_factory_that_panic_when_dropped_do_not_end_the_loop() {
    let fixture = fixture();
    let server = serve_from_a_factory_that_is_mine(&fixture);
    assert_echoes(&mut connect(server.local_address()));
    fixture.until_channels(0);
    done(server.close()).unwrap();
    fixture.assert_alive(1);
    fixture.end();
}

/// A connection that another loop accepted comes through the queue.
#[test]
fn e_28_a_factory_on_another_loop_may_fail_without_words() {
    let fixture = fixture();
    let (acceptors, _acceptor) = single(EventLoopGroup::builder());
    let take = takes(3);
    let server = ServerBootstrap::new(&fixture.group).acceptor_group(&acceptors).pipeline(move |_| {
        if take() {
            return Err(unspeakable());
        }
        Ok(Pipeline::codec(RawBytes).handler(Obedient::default()))
    });
    let server = server.bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        assert!(is_closed(connect(server.local_address())));
        advance(&fixture.event_loop, &fixture.clock, SEEN_AGAIN);
    }
    assert_echoes(&mut connect(server.local_address()));
    fixture.assert_alive(3);
    fixture.end();
}

// ---- shutdown --------------------------------------------------------------------------------------------

#[test]
fn e_28_a_shutdown_begins_although_what_a_listener_lets_go_of_panics() {
    let fixture = fixture();
    let server = serve_from_a_factory_that_is_mine(&fixture);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    let event_loop = fixture.event_loop.clone();
    fixture.end();
    assert_eq!(event_loop.metrics().io_panics, 1);
    let mut last = String::new();
    peer.read_to_string(&mut last).unwrap();
    assert_eq!(last, "goodbye");
}

#[test]
fn e_28_a_panic_while_a_channel_is_told_of_a_shutdown_costs_that_channel() {
    let fixture = fixture();
    let server = serve(&fixture, 0);
    let mut peers =
        [connect(server.local_address()), connect(server.local_address()), connect(server.local_address())];
    for peer in &mut peers {
        assert_echoes(peer);
    }
    let mut echo = [0; 10];
    peers[1].write_all(b"last words").unwrap();
    peers[1].read_exact(&mut echo).unwrap();
    let event_loop = fixture.event_loop.clone();
    fixture.end();
    assert_eq!(event_loop.metrics().io_panics, 1);
    let last = peers.map(|mut peer| {
        let mut last = String::new();
        let _ = peer.read_to_string(&mut last);
        last
    });
    assert_eq!(last, ["goodbye", "", "goodbye"]);
}

#[test]
fn e_28_what_waits_at_the_end_runs_although_a_part_of_it_panics() {
    let fixture = fixture();
    let gate = Gate::shut(&fixture.event_loop);
    let ended = fixture.group.shutdown_gracefully(ms(0), ms(0));
    let ran = Arc::new(AtomicUsize::new(0));
    // More than the tasks of one turn, so that some are left when the time is up.
    for n in 0..200 {
        let ran = ran.clone();
        let task = move || {
            assert!(n != 150, "{TRAP}");
            ran.fetch_add(1, SeqCst);
        };
        fixture.event_loop.execute(task).unwrap();
    }
    drop(gate);
    done(ended).unwrap();
    assert_eq!((ran.load(SeqCst), fixture.event_loop.metrics().io_panics), (199, 1));
}

// ---- the loop's own records ------------------------------------------------------------------------------

/// Whatever a loop of this name logs panics, its poll's troubles included.
#[test]
fn e_28_a_loop_that_cannot_log_anything_lives_on() {
    logs::collect();
    let clock = PanicsWhenTold::default();
    let (group, event_loop) =
        single(EventLoopGroup::builder().name(TRAP).clock(clock.clone()).rebuild_threshold(3));
    let fixture = Fixture { group, event_loop, clock: clock.time.clone() };
    let server = serve(&fixture, 0);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    // Premature returns: time stands still, though the clock says that it does not. Three rebuilds, then rests.
    let never = fixture.event_loop.schedule(ms(1), || ()).unwrap();
    let begun = Instant::now();
    while fixture.event_loop.metrics().rests < 5 {
        assert!(begun.elapsed() < PATIENCE, "{:?}", fixture.event_loop.metrics());
        std::thread::yield_now();
    }
    assert_echoes(&mut peer);
    never.cancel();
    let rebuilt = done(fixture.event_loop.rebuild_poll().unwrap());
    assert!(rebuilt.is_err(), "the report was lost");
    assert_eq!(fixture.event_loop.metrics().rebuilds, 4);
    fixture.event_loop.execute(|| panic!("a task panics")).unwrap();
    assert_echoes(&mut peer);
    assert_echoes(&mut connect(server.local_address()));
    // Three rebuilds, the first rest, one that was asked for, a task.
    settle(&fixture.event_loop);
    assert_eq!(fixture.event_loop.metrics().io_panics, 6);
    fixture.end();
}

/// What a loop cannot do without; but those who wait for its end are told, if nothing can be logged, too.
#[test]
fn e_27_a_clock_that_panics_ends_the_loop_and_that_is_told() {
    logs::collect();
    let clock = PanicsWhenTold::default();
    let (_group, event_loop) = single(EventLoopGroup::builder().name(TRAP).clock(clock.clone()));
    let terminated = event_loop.terminated();
    settle(&event_loop);
    clock.now.store(true, SeqCst);
    event_loop.execute(|| ()).unwrap();
    let error = done(terminated).unwrap_err();
    assert!(matches!(&error, Error::Panicked(why) if &**why == "the clock panics"), "{error}");
    assert!(event_loop.execute(|| ()).is_err());
}

/// Stands still, says that it does not, and panics when it is told to.
#[derive(Clone, Debug)]
struct PanicsWhenTold {
    time: ManualClock,
    now: Arc<AtomicBool>,
}

impl Default for PanicsWhenTold {
    fn default() -> Self {
        PanicsWhenTold { time: ManualClock::new(), now: Arc::default() }
    }
}

impl Clock for PanicsWhenTold {
    fn now(&self) -> Instant {
        assert!(!self.now.load(SeqCst), "the clock panics");
        self.time.now()
    }
}
