//! A panic outside the boundaries of channels and tasks affects only the work in progress, not the
//! loop (E-28). An error that does end the loop is reported to the callers that wait for its end
//! (E-27).
//!
//! Such panics come from user code that the loop runs besides callbacks. Examples are a `log::Log`,
//! the `Display` of an error, the `Drop` of a value or of a panic's payload, and the `Wake` of a
//! task. The logger of the test kit panics at every record that contains [`TRAP`]. So each test
//! makes the loop log a text that contains it.

use crate::support::{
    logs::{self, TRAP},
    loops::{Gate, advance, on, settle, settle_until, single, watch},
    tcp::{assert_echoes, connect},
    wait::{done, ms},
};
use bytes::Bytes;
use netwheel::{
    Channel, Context, Error, EventLoop, EventLoopGroup, Handler, IdleEvent, IdleTimeouts, Pipeline, Result,
    Server, ServerBootstrap,
    channel::CloseCause,
    codec::RawBytes,
    filter::{Filter, FilterContext, FilterState},
    shutdown::ShutdownOptions,
    testing::ManualClock,
    time::Clock,
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

/// Panics when it is dropped, unless the thread is already panicking.
struct PanicsOnDrop;

impl Drop for PanicsOnDrop {
    fn drop(&mut self) {
        assert!(std::thread::panicking(), "a drop panics");
    }
}

/// An error whose `Display` panics.
#[derive(Debug)]
struct PanicsOnDisplay;

impl fmt::Display for PanicsOnDisplay {
    fn fmt(&self, _: &mut fmt::Formatter<'_>) -> fmt::Result {
        panic!("no text for this")
    }
}

impl std::error::Error for PanicsOnDisplay {}

fn error_without_text() -> Error {
    Error::other(PanicsOnDisplay)
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
    /// Checks that `panics` panics have reached the loop and that it still works.
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
        settle_until(&self.event_loop, |metrics| metrics.channels == channels);
    }

    /// Shuts the loop down. It must end normally and at once, because there is nothing to wait for.
    #[track_caller]
    fn end(self) {
        done(self.group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(ms(60_000)))).unwrap();
    }
}

// ---- a server that obeys commands --------------------------------------------------------------

/// Echoes everything except the commands that make it fail.
#[derive(Default)]
struct Obedient {
    fails_without_text: bool,
    fails_at_the_start: bool,
    fails_at_the_end: bool,
    traps_at_shutdown: bool,
    _panics_on_drop: Option<PanicsOnDrop>,
}

impl Handler for Obedient {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.fails_at_the_start { Err(error_without_text()) } else { Ok(()) }
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match &message[..] {
            b"fail" => Err("as requested".into()),
            // A panic in a callback is logged outside the channel's boundary.
            b"trap" => panic!("{TRAP}"),
            b"task" => {
                ctx.schedule(ms(5), |_, _| Err("as requested".into()));
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
                self._panics_on_drop = Some(PanicsOnDrop);
                panic_any(PanicsOnDrop)
            }
            b"last words" => {
                self.traps_at_shutdown = true;
                ctx.write(message)
            }
            b"fails_without_text" => {
                self.fails_without_text = true;
                Err("as requested".into())
            }
            _ => ctx.write(message),
        }
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        Err("the connection is idle".into())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        assert!(!self.traps_at_shutdown, "{TRAP}");
        ctx.write(Bytes::from_static(b"goodbye"))?;
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.fails_at_the_end { Err(error_without_text()) } else { Ok(()) }
    }

    fn error(&mut self, _: &mut Context<'_, Self>, _: Error) -> Result {
        Err(if self.fails_without_text { TRAP.into() } else { error_without_text() })
    }
}

/// Interval after which a loop logs again that connections are closed before they become channels.
const LOG_INTERVAL: Duration = ms(10_000);

/// Returns `true` for the first `times` calls.
fn takes(times: usize) -> impl Fn() -> bool + Send + Sync {
    let left = AtomicUsize::new(times);
    move || left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok()
}

/// Starts a server whose factory fails for the first `failures` connections.
fn serve(fixture: &Fixture, failures: usize) -> Server {
    let take = takes(failures);
    let server = ServerBootstrap::new(&fixture.group).pipeline(move |_| {
        if take() {
            return Err(error_without_text());
        }
        Ok(Pipeline::codec(RawBytes).handler(Obedient::default()))
    });
    server.bind("127.0.0.1:0").unwrap()
}

/// Starts a server whose factory panics when it is dropped.
fn serve_with_a_factory_that_panics_on_drop(fixture: &Fixture) -> Server {
    let panics_on_drop = PanicsOnDrop;
    let server = ServerBootstrap::new(&fixture.group).pipeline(move |_| {
        let _panics_on_drop = &panics_on_drop;
        Pipeline::codec(RawBytes).handler(Obedient::default())
    });
    server.bind("127.0.0.1:0").unwrap()
}

fn is_closed(mut stream: TcpStream) -> bool {
    // The end of the stream, or a reset.
    !matches!(stream.read(&mut [0]), Ok(1..))
}

// ---- sockets -----------------------------------------------------------------------------------

#[test]
fn e_28_a_listener_whose_accept_panics_continues_after_a_rest() {
    let fixture = fixture();
    let server = serve(&fixture, 2);
    let mut old = {
        // The first two connections are refused, with an error that cannot be logged.
        let refused = connect(server.local_address());
        assert!(is_closed(refused));
        fixture.assert_alive(1);
        let mut waiting = connect(server.local_address());
        for _ in 0..5 {
            settle(&fixture.event_loop);
        }
        assert_eq!(fixture.event_loop.metrics().accepted, 1, "the listener rests");
        advance(&fixture.event_loop, &fixture.clock, LOG_INTERVAL);
        assert!(is_closed(waiting.try_clone().unwrap()));
        fixture.assert_alive(2);
        // The third connection is refused as well.
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
fn e_28_a_channel_whose_handling_panics_is_closed_and_the_rest_of_the_batch_is_handled() {
    let fixture = fixture();
    let server = serve(&fixture, 0);
    let mut peers: Vec<_> = (0..9).map(|_| connect(server.local_address())).collect();
    peers.iter_mut().for_each(assert_echoes);
    let words: [&[u8]; 9] =
        [b"one", b"fail", b"two", b"trap", b"three", b"drop", b"four", b"fails_without_text", b"five"];
    let gate = Gate::shut(&fixture.event_loop);
    for (peer, word) in peers.iter_mut().zip(words) {
        peer.write_all(word).unwrap();
    }
    drop(gate);
    for (mut peer, word) in peers.into_iter().zip(words) {
        if matches!(word, b"fail" | b"trap" | b"drop" | b"fails_without_text") {
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

/// Passes input on, and panics instead of sealing.
struct PanicsInWrite;

impl Filter for PanicsInWrite {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, _: &mut FilterContext<'_>, _: &[u8]) -> Result {
        panic!("a filter panics")
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// The peer must not take the end of a channel whose output was dropped for a regular one.
#[test]
fn e_28_a_panic_of_a_filter_resets_its_channel() {
    let fixture = fixture();
    let (tell, told) = std::sync::mpsc::channel();
    let server = ServerBootstrap::new(&fixture.group)
        .filter(|_| PanicsInWrite)
        .pipeline(move |_peer| {
            let tell = tell.clone();
            Pipeline::codec(RawBytes).on_read(move |ctx: &mut Context<'_, _>, bytes: Bytes| {
                tell.send(ctx.channel()).unwrap();
                ctx.write(bytes)
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut peer = connect(server.local_address());
    peer.write_all(b"x").unwrap();
    let channel: Channel<Bytes> = told.recv().unwrap();
    assert_eq!(done(channel.closed()).unwrap(), CloseCause::Failed);
    assert_eq!(peer.read(&mut [0]).unwrap_err().kind(), std::io::ErrorKind::ConnectionReset);
    fixture.assert_alive(1);
    done(server.close()).unwrap();
    fixture.end();
}

#[test]
fn e_28_a_panic_while_a_connection_starts_costs_only_that_connection() {
    let fixture = fixture();
    let take = takes(2);
    let server = ServerBootstrap::new(&fixture.group).pipeline(move |_| {
        let handler = Obedient { fails_at_the_start: take(), ..Obedient::default() };
        Pipeline::codec(RawBytes).handler(handler)
    });
    let server = server.bind("127.0.0.1:0").unwrap();
    // All connections arrive in one batch, and the clock stands still: none has to wait for a rest
    // to end.
    let gate = Gate::shut(&fixture.event_loop);
    let [first, second, mut third] = [(); 3].map(|()| connect(server.local_address()));
    drop(gate);
    assert_echoes(&mut third);
    assert!(is_closed(first) && is_closed(second));
    fixture.until_channels(1);
    fixture.assert_alive(fixture.event_loop.metrics().io_panics);
    fixture.end();
}

// ---- tasks and timers --------------------------------------------------------------------------

#[test]
fn e_28_a_panic_in_a_timer_of_a_channel_costs_the_channel() {
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
fn e_28_a_panic_while_the_last_callback_is_logged_leaves_nothing_behind() {
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

/// Regression test: a panic in each of these places once escaped the loop's own boundaries.
#[test]
fn e_28_leftovers_of_tasks_may_panic() {
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
    // The payload of a panic.
    event_loop.execute(|| panic_any(PanicsOnDrop)).unwrap();
    drop(event_loop.schedule(Duration::ZERO, || panic_any(PanicsOnDrop)).unwrap());
    drop(event_loop.execute_at_turn_end(|| panic_any(PanicsOnDrop)).unwrap());
    assert_alive(0);
    // A result that is no longer awaited.
    let gate = Gate::shut(event_loop);
    drop(event_loop.schedule(Duration::ZERO, || PanicsOnDrop).unwrap());
    drop(gate);
    assert_alive(1);
    let gate = Gate::shut(event_loop);
    drop(event_loop.execute_at_turn_end(|| PanicsOnDrop).unwrap());
    let after = event_loop.execute_at_turn_end(|| "the next one").unwrap();
    drop(gate);
    assert_alive(1);
    assert_eq!(done(after.completion()).unwrap(), "the next one");
    // A completion callback, and the report of its panic.
    let timer = event_loop.schedule(ms(1), || ()).unwrap();
    timer.completion().on_complete(|_| panic!("{TRAP}"));
    advance(event_loop, &fixture.clock, ms(1));
    assert_alive(0);
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
    let server = serve_with_a_factory_that_panics_on_drop(&fixture);
    assert_echoes(&mut connect(server.local_address()));
    fixture.until_channels(0);
    done(server.close()).unwrap();
    fixture.assert_alive(1);
    fixture.end();
}

/// A connection that another loop accepted arrives through the queue.
#[test]
fn e_28_a_factory_on_another_loop_may_fail_with_an_error_that_panics() {
    let fixture = fixture();
    let (acceptors, _acceptor) = single(EventLoopGroup::builder());
    let take = takes(3);
    let server = ServerBootstrap::new(&fixture.group).acceptor_group(&acceptors).pipeline(move |_| {
        if take() {
            return Err(error_without_text());
        }
        Ok(Pipeline::codec(RawBytes).handler(Obedient::default()))
    });
    let server = server.bind("127.0.0.1:0").unwrap();
    for _ in 0..3 {
        assert!(is_closed(connect(server.local_address())));
        advance(&fixture.event_loop, &fixture.clock, LOG_INTERVAL);
    }
    assert_echoes(&mut connect(server.local_address()));
    fixture.assert_alive(3);
    fixture.end();
}

// ---- shutdown ----------------------------------------------------------------------------------

#[test]
fn e_28_a_shutdown_starts_even_if_dropping_a_listeners_factory_panics() {
    let fixture = fixture();
    let server = serve_with_a_factory_that_panics_on_drop(&fixture);
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
fn e_28_a_panic_while_a_channel_is_notified_of_a_shutdown_costs_that_channel() {
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

/// Its end was already noted when the callback panicked.
#[test]
fn e_28_a_callback_of_the_end_of_a_channel_may_panic() {
    /// Counts its `inactive` and its drop.
    struct Counted(Arc<AtomicUsize>);

    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    impl Handler for Counted {
        type Read = Bytes;
        type Write = Bytes;

        fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
            ctx.channel().closed().on_complete(|_| panic!("{TRAP}"));
            Ok(())
        }

        fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
            ctx.write(message)
        }

        fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
            self.0.fetch_add(10, SeqCst);
            Ok(())
        }
    }

    let fixture = fixture();
    let ended = Arc::new(AtomicUsize::new(0));
    let count = ended.clone();
    let server = ServerBootstrap::new(&fixture.group)
        .pipeline(move |_peer| Pipeline::codec(RawBytes).handler(Counted(count.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut client = connect(server.local_address());
    assert_echoes(&mut client);
    drop(client);
    settle_until(&fixture.event_loop, |_| ended.load(SeqCst) == 11);
    fixture.until_channels(0);
    assert_eq!(fixture.event_loop.connections(), 0);
    fixture.assert_alive(0);
    fixture.end();
}

#[test]
fn e_28_hooks_and_callbacks_of_a_shutdown_may_panic() {
    let fixture = fixture();
    let server = serve(&fixture, 0);
    let mut client = connect(server.local_address());
    assert_echoes(&mut client);
    let ran = Arc::new(AtomicBool::new(false));
    let runs = ran.clone();
    fixture.event_loop.on_shutdown(|| panic!("{TRAP}")).unwrap();
    fixture.event_loop.on_shutdown(move || runs.store(true, SeqCst)).unwrap();
    let timer = fixture.event_loop.schedule(ms(3_600_000), || ()).unwrap();
    timer.completion().on_complete(|_| panic!("{TRAP}"));
    fixture.event_loop.terminated().on_complete(|_| panic!("{TRAP}"));
    fixture.group.terminated().on_complete(|_| panic!("{TRAP}"));
    let terminated = fixture.event_loop.terminated();
    fixture.end();
    done(terminated).unwrap();
    assert!(ran.load(SeqCst), "the second hook");
    let mut last = String::new();
    client.read_to_string(&mut last).unwrap();
    assert_eq!(last, "goodbye");
}

#[test]
fn e_28_remaining_tasks_run_at_the_end_although_some_panic() {
    let fixture = fixture();
    let gate = Gate::shut(&fixture.event_loop);
    let ended = fixture.group.shutdown(ShutdownOptions::new().quiet_period(ms(0)).timeout(ms(0)));
    let ran = Arc::new(AtomicUsize::new(0));
    // More than the tasks of one turn, so that some are left at the deadline.
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

// ---- the loop's own records --------------------------------------------------------------------

/// Every log call of a loop with this name panics, including its reports of poll failures.
#[test]
fn e_28_a_loop_whose_every_log_call_panics_survives() {
    logs::collect();
    let clock = PanicsWhenTold::default();
    let (group, event_loop) =
        single(EventLoopGroup::builder().name(TRAP).clock(clock.clone()).rebuild_threshold(3));
    let fixture = Fixture { group, event_loop, clock: clock.time.clone() };
    let server = serve(&fixture, 0);
    let mut peer = connect(server.local_address());
    assert_echoes(&mut peer);
    // Premature returns: time stands still although the clock claims to run in real time. The loop
    // rebuilds the poll three times, then rests.
    let never = fixture.event_loop.schedule(ms(1), || ()).unwrap();
    watch(&fixture.event_loop, |metrics| metrics.rests >= 5);
    assert_echoes(&mut peer);
    never.cancel();
    let rebuilt = done(fixture.event_loop.rebuild_poll().unwrap());
    assert!(rebuilt.is_err(), "the rebuild's result was lost");
    assert_eq!(fixture.event_loop.metrics().rebuilds, 4);
    fixture.event_loop.execute(|| panic!("a task panics")).unwrap();
    assert_echoes(&mut peer);
    assert_echoes(&mut connect(server.local_address()));
    // Three rebuilds, the first rest, one requested rebuild, one task.
    settle(&fixture.event_loop);
    assert_eq!(fixture.event_loop.metrics().io_panics, 6);
    fixture.end();
}

/// A loop cannot run without its clock. Callers that wait for its end get the error even if nothing
/// can be logged.
#[test]
fn e_27_a_clock_that_panics_ends_the_loop_with_an_error() {
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

#[test]
fn e_27_a_clock_that_panics_at_the_start_ends_the_loop_with_an_error() {
    logs::collect();
    let clock = PanicsWhenTold::default();
    let (group, event_loop) = single(EventLoopGroup::builder().name(TRAP).clock(clock.clone()));
    let (terminated, hook) = (event_loop.terminated(), Arc::new(AtomicBool::new(false)));
    clock.now.store(true, SeqCst);
    let runs = hook.clone();
    // Starts the loop.
    event_loop.on_shutdown(move || runs.store(true, SeqCst)).unwrap();
    let error = done(terminated).unwrap_err();
    assert!(matches!(&error, Error::Panicked(why) if &**why == "the clock panics"), "{error}");
    assert!(hook.load(SeqCst));
    assert!(event_loop.execute(|| ()).is_err());
    done(group.terminated()).unwrap_err();
}

/// A clock that stands still, claims to run in real time, and panics on command.
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
