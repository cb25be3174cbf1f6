//! The metrics of a loop: each counter increases by the exact number of operations, and any thread
//! can read it at any time.

use crate::support::{
    loops::{
        Gate, advance, end, manual, metrics, on_loop, one_loop, settle, single, some_turns, the_loop,
        turn_until, watch,
    },
    recorder::{self, Event, echo, silent},
    servers::{self, Settings, dial, serve, serve_with},
    tcp::{ANY_PORT, connect, ping, read_all, read_n},
    wait::{HOUR, done, ms, receive},
};
use bytes::Bytes;
use netwheel::{
    codec::LengthField, metrics::LoopMetrics, prelude::*, shutdown::ShutdownOptions, testing::ManualClock,
};
use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::Duration,
};

/// Returns a frame with a length prefix.
fn frame(body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32).to_be_bytes()[..], body].concat()
}

// ---- channels ----------------------------------------------------------------------------------

#[test]
fn messages_and_bytes_are_counted() {
    let group = one_loop();
    let (server, _events) = serve_with(&group, Settings::new(), LengthField::u32(), echo);
    let mut stream = connect(server.local_address());
    for _ in 0..10 {
        ping(&mut stream, &frame(b"hello"));
    }
    some_turns(&group);
    let one_by_one = metrics(&group);
    assert_eq!((one_by_one.messages_read, one_by_one.messages_written), (10, 10));
    assert_eq!((one_by_one.bytes_read, one_by_one.bytes_written), (90, 90));
    assert_eq!((one_by_one.reads - one_by_one.reads_blocked, one_by_one.writes), (10, 10));
    assert_eq!((one_by_one.writes_blocked, one_by_one.channel_errors), (0, 0));

    ping(&mut stream, &frame(b"hello").repeat(7));
    some_turns(&group);
    let at_once = metrics(&group);
    assert_eq!((at_once.messages_read, at_once.messages_written), (17, 17));
    assert_eq!((at_once.bytes_read, at_once.bytes_written), (153, 153));
    end(&group);
}

#[test]
fn messages_written_by_handles_are_counted_unless_refused() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    for _ in 0..5 {
        channel.write("x".into()).unwrap();
    }
    channel.execute(|ctx| ctx.write("yy".into())).unwrap();
    let (told, refused) = mpsc::channel();
    let last = move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
        ctx.close();
        told.send(ctx.write("too late".into()).is_err()).unwrap();
        Ok(())
    };
    channel.execute(last).unwrap();
    assert!(receive(&refused));
    assert_eq!(read_all(&mut stream), b"xxxxxyy");
    some_turns(&group);
    let metrics = metrics(&group);
    assert_eq!((metrics.messages_written, metrics.bytes_written), (6, 7));
    assert_eq!((metrics.messages_read, metrics.channel_errors), (0, 0));
    end(&group);
}

#[test]
fn connections_are_counted_when_they_open_and_when_they_close() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let streams: Vec<_> = (0..3).map(|_| connect(server.local_address())).collect();
    let channels: Vec<_> = streams.iter().map(|_| events.channel()).collect();
    turn_until(&group, |metrics| metrics.accepted == 3);
    let open = metrics(&group);
    assert_eq!((open.channels, open.channels_closed, open.connected), (3, 0, 0));

    channels[0].close();
    drop(streams);
    turn_until(&group, |metrics| metrics.channels_closed == 3);
    let closed = metrics(&group);
    assert_eq!((closed.channels, closed.accepted, closed.accept_errors), (0, 3, 0));
    assert_eq!(closed.channel_errors, 0, "the end of a stream is not an error");
    end(&group);
}

#[test]
fn outbound_connections_are_counted_on_their_loop() {
    let (servers, clients) = (one_loop(), one_loop());
    let (server, _events) = serve(&servers, Settings::new(), echo);
    let (channel, _events) = dial(&clients, server.local_address(), Settings::new(), silent);
    some_turns(&clients);
    let made = metrics(&clients);
    assert_eq!((made.connected, made.connect_errors, made.channels, made.accepted), (1, 0, 1, 0));
    assert_eq!(made.timers_cancelled, 1, "the connect timeout");
    assert_eq!(metrics(&servers).connected, 0);

    // A socket that is bound but does not listen: a connect to its port is refused, and no other
    // process can take the port.
    let socket = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    socket.bind(&SocketAddr::from((Ipv4Addr::LOCALHOST, 0)).into()).unwrap();
    let nobody = socket.local_addr().unwrap().as_socket().unwrap();
    let (bootstrap, _events) = servers::client(&clients, Settings::new(), silent);
    done(bootstrap.connect(nobody)).unwrap_err();
    channel.close();
    done(channel.closed()).unwrap();
    some_turns(&clients);
    let closed = metrics(&clients);
    assert_eq!((closed.connected, closed.connect_errors), (1, 1));
    assert_eq!((closed.channels, closed.channels_closed), (0, 1));
    assert_eq!(closed.channel_errors, 0, "it never became a channel");
    end(&clients);
    end(&servers);
}

/// Returns the errors counted for one connection whose handler runs `hook` and which receives
/// `bytes`.
#[track_caller]
fn errors_of<F>(bytes: &[u8], hook: F) -> u64
where
    F: Fn(&mut Context<'_, recorder::Recorder>, &Event) -> Result + Send + Sync + 'static,
{
    let group = one_loop();
    let (server, events) = serve_with(&group, Settings::new(), LengthField::u32().max_len(100), hook);
    let mut stream = connect(server.local_address());
    std::io::Write::write_all(&mut stream, bytes).unwrap();
    events.until_inactive();
    some_turns(&group);
    let metrics = metrics(&group);
    assert_eq!((metrics.channels, metrics.channels_closed), (0, 1));
    end(&group);
    metrics.channel_errors
}

#[test]
fn errors_and_panics_of_channels_are_counted() {
    let fails = || Err(netwheel::Error::other("on purpose"));
    let read_fails = move |_: &mut Context<'_, recorder::Recorder>, event: &Event| match event {
        Event::Read(_) => fails(),
        _ => Ok(()),
    };
    assert_eq!(errors_of(&frame(b"x"), read_fails), 1);
    let too_long = errors_of(&frame(&[0; 101]), silent);
    assert_eq!(too_long, 1, "a frame beyond the limit");
    let read_panics = |_: &mut Context<'_, recorder::Recorder>, event: &Event| match event {
        Event::Read(_) => panic!("on purpose"),
        _ => Ok(()),
    };
    assert_eq!(errors_of(&frame(b"x"), read_panics), 1);
    let everything_fails = move |_: &mut Context<'_, recorder::Recorder>, event: &Event| match event {
        Event::Read(_) | Event::Error(_) | Event::Inactive => fails(),
        _ => Ok(()),
    };
    assert_eq!(errors_of(&frame(b"x"), everything_fails), 3, "in read, in error, in inactive");
}

#[test]
fn a_broken_connection_is_one_error() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let stream = connect(server.local_address());
    events.channel();
    socket2::SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(stream);
    events.until_inactive();
    some_turns(&group);
    assert_eq!(metrics(&group).channel_errors, 1);
    end(&group);
}

/// Keeps its channel open when the loop shuts down, and fails when the channel closes.
struct Stubborn;

impl Handler for Stubborn {
    type Read = Bytes;
    type Write = Bytes;

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        Err(netwheel::Error::other("on purpose"))
    }
}

#[test]
fn the_last_turn_is_counted() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(LengthField::u32()).handler(Stubborn))
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    ping(&mut stream, &frame(b"x"));
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    let last = metrics(&group);
    assert_eq!((last.channel_errors, last.channels, last.channels_closed), (1, 0, 1));
}

// ---- tasks -------------------------------------------------------------------------------------

#[test]
fn tasks_are_counted_when_they_are_run() {
    let (event_loop, _clock) = manual();
    for _ in 0..10 {
        event_loop.execute(|| ()).unwrap();
    }
    let after = watch(&event_loop, |metrics| metrics.tasks_run >= 10);
    assert_eq!((after.tasks_run, after.tasks_pending), (10, 0));
    assert_eq!((after.tasks_panicked, after.tasks_deferred, after.tasks_refused), (0, 0, 0));
}

#[test]
fn waiting_and_refused_tasks_are_counted() {
    let (_group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
    let gate = Gate::shut(&event_loop);
    let taken = (0..20).filter(|_| event_loop.execute(|| ()).is_ok()).count();
    let held = event_loop.metrics();
    assert_eq!((taken, held.tasks_pending, held.tasks_refused), (16, 16, 4));
    drop(gate);
    let empty = watch(&event_loop, |metrics| metrics.tasks_pending == 0);
    assert_eq!(empty.tasks_refused, 4);
}

#[test]
fn task_phases_that_leave_tasks_are_counted() {
    let (event_loop, clock) = manual();
    let gate = Gate::shut(&event_loop);
    let before = event_loop.metrics();
    // No budget is as long as an hour. The first task runs in the turn of the gate's own task, each
    // of the others in a turn of its own.
    for _ in 0..64 {
        let clock = clock.clone();
        event_loop.execute(move || clock.advance(HOUR)).unwrap();
    }
    drop(gate);
    let after = watch(&event_loop, |metrics| metrics.tasks_run == before.tasks_run + 65);
    assert_eq!(after.tasks_deferred - before.tasks_deferred, 63);
}

#[test]
fn panics_of_tasks_and_scheduled_tasks_are_counted() {
    let (event_loop, clock) = manual();
    event_loop.execute(|| panic!("on purpose")).unwrap();
    settle(&event_loop);
    assert_eq!(event_loop.metrics().tasks_panicked, 1);
    let once = event_loop.schedule(ms(1), || panic!("on purpose")).unwrap();
    let again = event_loop.schedule_periodic(ms(1), || panic!("on purpose")).unwrap();
    settle(&event_loop);
    advance(&event_loop, &clock, ms(5));
    done::<()>(once.completion()).unwrap_err();
    done(again.completion()).unwrap_err();
    assert_eq!(event_loop.metrics().tasks_panicked, 3);
}

// ---- time --------------------------------------------------------------------------------------

#[test]
fn scheduled_tasks_and_their_lag_are_counted() {
    let (event_loop, clock) = manual();
    let _two = [(); 2].map(|()| event_loop.schedule(ms(5), || ()).unwrap());
    let cancelled = event_loop.schedule(ms(5), || ()).unwrap();
    let _later = event_loop.schedule(HOUR, || ()).unwrap();
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 4);
    assert!(cancelled.cancel());
    assert!(!cancelled.cancel(), "a second cancel must not be counted");
    settle(&event_loop);
    let before = event_loop.metrics();
    assert_eq!((before.timers_pending, before.timers_fired, before.timers_cancelled), (3, 0, 1));

    advance(&event_loop, &clock, ms(15));
    let after = event_loop.metrics();
    assert_eq!((after.timers_pending, after.timers_fired, after.timers_cancelled), (1, 2, 1));
    let lag = after.lag.since(&before.lag);
    assert_eq!((lag.count(), lag.sum(), lag.mean()), (2, ms(20), ms(10)), "both are 10 ms late");
    assert!(lag.quantile(0.5) >= ms(10) && lag.quantile(0.5) < ms(10) * 5 / 4);
    assert_eq!(after.lag.max(), ms(10));
}

#[test]
fn a_periodic_task_fires_once_a_period_and_is_cancelled_once() {
    let (event_loop, clock) = manual();
    let task = event_loop.schedule_periodic(ms(10), || Ok(())).unwrap();
    settle(&event_loop);
    for _ in 0..3 {
        advance(&event_loop, &clock, ms(10));
    }
    assert!(task.cancel());
    settle(&event_loop);
    let metrics = event_loop.metrics();
    assert_eq!((metrics.timers_fired, metrics.timers_cancelled, metrics.timers_pending), (3, 1, 0));
}

#[test]
fn tasks_of_a_channel_are_counted_as_cancelled_when_it_closes() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), |ctx, event| {
        if let Event::Read(_) = event {
            let keys = [(); 3].map(|()| ctx.schedule(HOUR, |_, _| Ok(())));
            assert!(ctx.cancel(keys[1]) && !ctx.cancel(keys[1]));
            ctx.write("done".into())?;
        }
        Ok(())
    });
    let mut stream = connect(server.local_address());
    std::io::Write::write_all(&mut stream, b"go").unwrap();
    assert_eq!(read_n(&mut stream, 4), b"done");
    some_turns(&group);
    assert_eq!((metrics(&group).timers_pending, metrics(&group).timers_cancelled), (2, 1));
    drop(stream);
    events.until_inactive();
    some_turns(&group);
    assert_eq!((metrics(&group).timers_pending, metrics(&group).timers_cancelled), (0, 3));
    assert_eq!(metrics(&group).timers_fired, 0);
    end(&group);
}

#[test]
fn tasks_cancelled_by_a_shutdown_are_counted() {
    let (event_loop, _clock) = manual();
    let tasks = [(); 3].map(|()| event_loop.schedule(HOUR, || ()).unwrap());
    settle(&event_loop);
    assert!(tasks[0].cancel());
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    let metrics = event_loop.metrics();
    assert_eq!((metrics.timers_cancelled, metrics.timers_fired, metrics.timers_pending), (3, 0, 0));
}

#[test]
fn idle_entries_are_counted_when_they_fire_and_when_removed() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
    let idle = IdleTimeouts::new().reader(Duration::from_secs(60));
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| Pipeline::codec(LengthField::u32()).idle(idle).handler(Stubborn))
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    ping(&mut stream, &frame(b"x"));
    settle(the_loop(&group));
    let armed = metrics(&group);
    assert_eq!((armed.wheel_pending, armed.wheel_fired, armed.wheel_cancelled), (1, 0, 0));

    advance(the_loop(&group), &clock, Duration::from_secs(61));
    let fired = metrics(&group);
    assert_eq!(
        (fired.wheel_pending, fired.wheel_fired, fired.wheel_cancelled),
        (1, 1, 0),
        "the entry is re-armed"
    );

    drop(stream);
    turn_until(&group, |metrics| metrics.channels_closed == 1);
    settle(the_loop(&group));
    let ended = metrics(&group);
    assert_eq!((ended.wheel_pending, ended.wheel_fired, ended.wheel_cancelled), (0, 1, 1));
}

// ---- the poll ----------------------------------------------------------------------------------

#[test]
fn a_rebuild_counts_the_sources_it_moved() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), echo);
    let mut streams = [(); 2].map(|()| connect(server.local_address()));
    streams.iter().for_each(|_| drop(events.channel()));
    let before = metrics(&group);
    done(the_loop(&group).rebuild_poll().unwrap()).unwrap();
    let after = metrics(&group);
    assert_eq!((before.rebuilds, after.rebuilds), (0, 1));
    assert_eq!((after.sources_moved, after.sources_lost), (3, 0), "two connections and the listener");
    assert!(before.time_rebuilding.is_zero() && !after.time_rebuilding.is_zero());
    streams.iter_mut().for_each(|stream| ping(stream, b"still there"));
    end(&group);
}

// ---- readers -----------------------------------------------------------------------------------

#[test]
fn metrics_can_be_read_on_any_thread() {
    let (event_loop, _clock) = manual();
    settle(&event_loop);
    let gate = Gate::shut(&event_loop);
    let released = Arc::new(AtomicBool::new(false));
    let behind = released.clone();
    event_loop.execute(move || behind.store(true, SeqCst)).unwrap();
    // If a reader had to wait for the loop, it would wait for the gate, which opens after this.
    let seen = thread::scope(|scope| {
        let readers = [(); 4].map(|()| {
            scope.spawn(|| {
                (0..1000).for_each(|_| assert_eq!(event_loop.metrics().tasks_pending, 1));
                event_loop.metrics()
            })
        });
        readers.map(|reader| reader.join().unwrap())
    });
    assert!(!released.load(SeqCst), "the loop was blocked all the time");
    for metrics in seen {
        assert_eq!((metrics.turns, metrics.tasks_pending), (event_loop.metrics().turns, 1));
    }
    drop(gate);
    settle(&event_loop);
    assert!(released.load(SeqCst));
}

/// Returns the counters that increase in the test below.
fn moving(metrics: &LoopMetrics) -> [u64; 9] {
    let lag = &metrics.lag;
    assert_eq!(lag.buckets().map(|(_, n)| n).sum::<u64>(), lag.count());
    [
        metrics.turns,
        metrics.polls,
        metrics.clock_reads,
        metrics.tasks_run,
        metrics.timers_fired,
        metrics.bytes_read,
        metrics.messages_read,
        metrics.messages_written,
        lag.count(),
    ]
}

#[test]
fn counters_never_decrease_for_any_reader() {
    const ROUNDS: u64 = 500;
    let group = one_loop();
    let (server, _events) = serve_with(&group, Settings::new(), LengthField::u32(), echo);
    let over = AtomicBool::new(false);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut before = moving(&metrics(&group));
                start.wait();
                while !over.load(SeqCst) {
                    let now = moving(&metrics(&group));
                    assert!(now.iter().zip(&before).all(|(now, before)| now >= before), "{before:?} {now:?}");
                    before = now;
                }
            });
        }
        start.wait();
        let mut stream = connect(server.local_address());
        for _ in 0..ROUNDS {
            the_loop(&group).schedule(Duration::ZERO, || ()).unwrap();
            ping(&mut stream, &frame(b"hello"));
        }
        over.store(true, SeqCst);
    });
    turn_until(&group, |metrics| metrics.timers_fired == ROUNDS);
    on_loop(&group, || ());
    some_turns(&group);
    let metrics = metrics(&group);
    assert_eq!((metrics.messages_read, metrics.messages_written), (ROUNDS, ROUNDS));
    assert_eq!((metrics.lag.count(), metrics.timers_cancelled), (ROUNDS, 0));
    end(&group);
}

/// docs/observability.md has exactly one row for each number.
#[test]
fn every_number_is_documented() {
    let numbers = format!("{:#?}", LoopMetrics::default());
    let numbers =
        numbers.lines().filter_map(|line| line.strip_prefix("    ")).filter(|line| !line.starts_with(' '));
    let mut numbers: Vec<_> =
        numbers.filter_map(|line| line.split_once(": ")).map(|(name, _)| name).collect();
    // The rows of the tables before the section on Prometheus names.
    let page = include_str!("../../docs/observability.md");
    let (page, _) = page.split_once("## Prometheus").unwrap();
    let cells = page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once(" | "));
    let mut described: Vec<_> =
        cells.flat_map(|(cell, _)| cell.split(", ")).map(|name| name.trim_matches('`')).collect();
    numbers.sort_unstable();
    described.sort_unstable();
    assert_eq!(numbers, described);
}
