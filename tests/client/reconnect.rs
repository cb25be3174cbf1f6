//! Reconnecting clients: backoff, many clients after a server restart, giving up, and stopping.

#[cfg(target_os = "linux")]
use crate::support::nobody::BlackHole;
use crate::support::{
    logs::quiet_panics,
    loops::{block, end, metrics, one_loop, some_turns, the_loop, turn_until, watch},
    nobody::Nobody,
    recorder::{Event, Events, echo, silent},
    servers::{Settings, client, dial, serve},
    tcp::ANY_PORT,
    wait::{done, ms, receive},
};
use bytes::Bytes;
use netwheel::{
    net::TcpOptions,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent, ReconnectingChannel},
    testing::ManualClock,
};
use std::{
    io::ErrorKind,
    net::SocketAddr,
    ops::ControlFlow::{self, Break, Continue},
    sync::{
        Arc, Weak,
        mpsc::{self, Receiver},
    },
    time::Duration,
};

const NANO: Duration = Duration::from_nanos(1);
const DAY: Duration = Duration::from_secs(24 * 60 * 60);

/// Returns a loop with a manual clock.
fn manual() -> (EventLoopGroup, ManualClock) {
    let clock = ManualClock::new();
    (EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap(), clock)
}

/// Events passed to the hook.
#[derive(Debug, PartialEq)]
enum Told {
    Connecting(u32, SocketAddr),
    Connected(u32),
    Failed(u32, Option<ErrorKind>, Option<Duration>),
    Lost(Duration, Option<Duration>),
}

fn told<M>(event: &ReconnectEvent<'_, M>) -> Told {
    match event {
        ReconnectEvent::Connecting { attempt, address } => {
            Told::Connecting(*attempt, address.as_tcp().unwrap())
        }
        ReconnectEvent::Connected { attempt, .. } => Told::Connected(*attempt),
        ReconnectEvent::Failed { attempt, error, next } => Told::Failed(*attempt, error.io_kind(), *next),
        ReconnectEvent::Lost { held, next } => Told::Lost(*held, *next),
        other => panic!("{other:?}"),
    }
}

/// A reconnecting client under test.
struct Trial {
    client: ReconnectingChannel<Bytes>,
    told: Receiver<Told>,
    /// The events of its handlers.
    events: Events,
    /// Upgradeable while any part of the client is alive.
    alive: Weak<()>,
}

impl Trial {
    /// Creates a client with a hook.
    fn with(
        group: &EventLoopGroup,
        to: SocketAddr,
        backoff: Backoff,
        hook: impl Fn(&Told) -> ControlFlow<()> + Send + Sync + 'static,
    ) -> Self {
        let (sender, received) = mpsc::channel();
        let alive = Arc::new(());
        let weak = Arc::downgrade(&alive);
        let (bootstrap, events) = client(group, Settings::new(), silent);
        let on_event = move |event: ReconnectEvent<'_, Bytes>| {
            let _ = &alive;
            let event = told(&event);
            let answer = hook(&event);
            let _ = sender.send(event);
            answer
        };
        let client = bootstrap.reconnect(backoff).on_event(on_event).connect(to).unwrap();
        Trial { client, told: received, events, alive: weak }
    }

    fn new(group: &EventLoopGroup, to: SocketAddr, backoff: Backoff) -> Self {
        Self::with(group, to, backoff, |_| Continue(()))
    }

    #[track_caller]
    fn next(&self) -> Told {
        receive(&self.told)
    }

    /// Returns the delay reported by the next failure or loss. The loop has armed the timer when
    /// this returns.
    #[track_caller]
    fn delay(&self, group: &EventLoopGroup) -> Duration {
        let next = loop {
            match self.next() {
                Told::Failed(_, _, next) | Told::Lost(_, next) => break next,
                Told::Connecting(..) | Told::Connected(_) => {}
            }
        };
        some_turns(group);
        next.expect("another attempt follows")
    }

    /// Asserts that the client has left no timer, attempt, channel or memory.
    #[track_caller]
    fn assert_gone(self, group: &EventLoopGroup) {
        if !the_loop(group).is_terminated() {
            some_turns(group);
            // The socket may linger until the server has closed the other end.
            while the_loop(group).connections() > 0 {
                some_turns(group);
            }
            assert_eq!(metrics(group).timers_pending, 0);
        }
        assert_eq!(the_loop(group).connections(), 0);
        assert!(self.told.try_iter().next().is_none(), "no further events");
        drop(self.client);
        assert!(self.alive.upgrade().is_none(), "the client is still referenced");
    }
}

// ---- delays ------------------------------------------------------------------------------------

#[test]
fn attempts_follow_the_reported_delay_which_is_within_bounds() {
    let (group, clock) = manual();
    let nobody = Nobody::new();
    let backoff = Backoff::new().initial(ms(100)).factor(2.0).max_delay(ms(1000));
    let trial = Trial::new(&group, nobody.address, backoff);
    for attempt in 1..=12 {
        assert_eq!(trial.next(), Told::Connecting(attempt, nobody.address));
        let delay = match trial.next() {
            Told::Failed(n, Some(ErrorKind::ConnectionRefused), Some(delay)) if n == attempt => delay,
            other => panic!("{other:?}"),
        };
        let longest = ms(100 << (attempt - 1).min(4)).min(ms(1000));
        assert!(delay <= longest, "attempt {attempt}: {delay:?} of {longest:?}");
        some_turns(&group);
        if !delay.is_zero() {
            assert_eq!(metrics(&group).timers_pending, 1, "exactly one timer");
            clock.advance(delay - NANO);
            some_turns(&group);
            assert!(trial.told.try_recv().is_err(), "attempt {attempt}: too early");
            clock.advance(NANO);
        }
    }
    trial.client.close();
    done(trial.client.closed()).unwrap();
    end(&group);
}

#[test]
fn jitter_spreads_the_attempts_of_many_clients() {
    let (group, _clock) = manual();
    let nobody = Nobody::new();
    let herd: Vec<_> =
        (0..100).map(|_| Trial::new(&group, nobody.address, Backoff::new().initial(ms(10_000)))).collect();
    let mut delays: Vec<_> = herd.iter().map(|client| client.delay(&group)).collect();
    delays.sort();
    assert!(delays[10] < ms(3_000) && delays[90] > ms(7_000), "{delays:?}");
    end(&group);
}

#[test]
fn a_stable_connection_resets_the_backoff_and_an_unstable_one_does_not() {
    let (group, clock) = manual();
    let (server, at_server) = serve(&group, Settings::new(), silent);
    let backoff = Backoff::new().initial(ms(100)).jitter(false).reset_after(ms(5000));
    let trial = Trial::new(&group, server.local_address(), backoff);
    for (attempt, held, delay) in [(1, 0, 100), (2, 4999, 200), (3, 5000, 100), (1, 0, 200), (2, 60_000, 100)]
    {
        assert_eq!(trial.next(), Told::Connecting(attempt, server.local_address()));
        assert_eq!(trial.next(), Told::Connected(attempt));
        some_turns(&group);
        clock.advance(ms(held));
        loop {
            if let Event::Active(child) = at_server.next() {
                child.close_now();
                break;
            }
        }
        assert_eq!(trial.next(), Told::Lost(ms(held), Some(ms(delay))));
        some_turns(&group);
        assert!(trial.client.channel().is_none());
        clock.advance(ms(delay));
    }
    end(&group);
}

// ---- reconnecting ------------------------------------------------------------------------------

#[test]
fn the_client_reconnects_after_a_server_restart() {
    let (group, clock) = manual();
    let servers = one_loop();
    let (server, _at_server) = serve(&servers, Settings::new(), echo);
    let address = server.local_address();
    let trial = Trial::new(&group, address, Backoff::new().jitter(false).initial(ms(100)).reset_after(ms(0)));
    let before = done(trial.client.connected()).unwrap();
    assert_eq!(trial.client.channel().as_ref(), Some(&before));
    end(&servers);
    assert_eq!(trial.delay(&group), ms(100));
    assert!(trial.client.channel().is_none());
    let connected = trial.client.connected();

    clock.advance(ms(100));
    assert_eq!(trial.delay(&group), ms(200), "the server has not restarted yet");
    assert!(!connected.is_done());

    let servers = one_loop();
    let server = ServerBootstrap::new(&servers)
        .pipeline(|_| Pipeline::codec(netwheel::codec::RawBytes).handler(Greeter))
        .bind(address)
        .unwrap();
    clock.advance(ms(200));
    let after = done(connected).unwrap();
    assert_ne!(after, before);
    assert_eq!(trial.client.channel(), Some(after));
    let inactive = trial.events.until_inactive();
    assert_eq!(inactive.last(), Some(&Event::Inactive), "the old handler was notified");
    trial.events.channel();
    assert_eq!(trial.events.bytes(7), b"welcome");
    drop(server);
    end(&group);
    end(&servers);
}

struct Greeter;

impl Handler for Greeter {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write("welcome".into())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

#[test]
fn the_client_keeps_reconnecting_without_its_handle() {
    let (group, clock) = manual();
    let (server, at_server) = serve(&group, Settings::new(), silent);
    let trial = Trial::new(&group, server.local_address(), Backoff::new().jitter(false));
    let Trial { client, told, .. } = trial;
    drop(client);
    at_server.channel().close_now();
    loop {
        if let Told::Lost(_, next) = receive(&told) {
            some_turns(&group);
            clock.advance(next.unwrap());
            break;
        }
    }
    assert!(matches!(receive(&told), Told::Connecting(2, _)));
    assert_eq!(receive(&told), Told::Connected(2));
    end(&group);
}

#[test]
fn a_full_queue_does_not_prevent_reconnecting() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).max_pending_tasks(16).max_scheduled_tasks(16);
    let group = group.clock(clock.clone()).build().unwrap();
    let nobody = Nobody::new();
    let event_loop = the_loop(&group).clone();
    let fill = move |_: &Told| {
        while event_loop.schedule(DAY, || ()).is_ok() {}
        while event_loop.execute(|| ()).is_ok() {}
        Continue(())
    };
    let trial = Trial::with(&group, nobody.address, Backoff::new().jitter(false), fill);
    for attempt in 1..5 {
        assert_eq!(trial.next(), Told::Connecting(attempt, nobody.address));
        match trial.next() {
            Told::Failed(_, Some(ErrorKind::ConnectionRefused), Some(delay)) => {
                // The maximum number of scheduled tasks plus the client's own timer.
                // No task is submitted, because the queue is full.
                watch(the_loop(&group), |metrics| metrics.timers_pending == 17 && metrics.tasks_pending == 0);
                clock.advance(delay);
            }
            other => panic!("{other:?}"),
        }
    }
    end(&group);
}

#[test]
fn a_loop_at_its_connection_limit_is_retried() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(1).max_connections(1).clock(clock.clone()).build().unwrap();
    let servers = one_loop();
    let (server, _at_server) = serve(&servers, Settings::new(), silent);
    let (channel, _events) = dial(&group, server.local_address(), Settings::new(), silent);
    let trial = Trial::new(&group, server.local_address(), Backoff::new().jitter(false));
    let delay = trial.delay(&group);
    channel.close();
    done(channel.closed()).unwrap();
    // The socket is counted until the server has closed the other end.
    while the_loop(&group).connections() > 0 {
        some_turns(&group);
    }
    clock.advance(delay);
    assert!(done(trial.client.connected()).unwrap().is_open());
    end(&group);
    end(&servers);
}

// ---- giving up ---------------------------------------------------------------------------------

#[test]
fn giving_up_reports_the_last_error() {
    let (group, clock) = manual();
    let nobody = Nobody::new();
    let trial = Trial::new(&group, nobody.address, Backoff::new().max_attempts(3));
    let waiting = trial.client.connected();
    let ended = trial.client.closed();
    for _ in 0..2 {
        clock.advance(trial.delay(&group));
    }
    assert_eq!(trial.next(), Told::Connecting(3, nobody.address));
    assert_eq!(trial.next(), Told::Failed(3, Some(ErrorKind::ConnectionRefused), None));
    for error in
        [done(waiting).unwrap_err(), done(ended).unwrap_err(), done(trial.client.closed()).unwrap_err()]
    {
        assert!(matches!(error, Error::Io { operation: "connecting", .. }), "{error}");
        assert_eq!(error.io_kind(), Some(ErrorKind::ConnectionRefused));
    }
    clock.advance(DAY);
    trial.client.close();
    assert!(done(trial.client.closed()).is_err(), "stopping later has no effect");
    trial.assert_gone(&group);
    end(&group);
}

#[test]
fn unstable_connections_count_as_attempts() {
    let (group, clock) = manual();
    let (server, _events) = serve(&group, Settings::new(), |ctx, event| {
        if matches!(event, Event::Active(_)) {
            ctx.close_now();
        }
        Ok(())
    });
    let trial = Trial::new(&group, server.local_address(), Backoff::new().max_attempts(2));
    clock.advance(trial.delay(&group));
    assert!(matches!(done(trial.client.closed()), Err(Error::Closed)));
    end(&group);
}

// ---- stopping ----------------------------------------------------------------------------------

#[test]
fn stopping_during_the_delay() {
    let (group, clock) = manual();
    let nobody = Nobody::new();
    let trial = Trial::new(&group, nobody.address, Backoff::new().initial(DAY).max_delay(DAY).jitter(false));
    assert_eq!(trial.delay(&group), DAY);
    assert_eq!(metrics(&group).timers_pending, 1);
    let waiting = trial.client.connected();
    trial.client.close();
    trial.client.close();
    done(trial.client.closed()).unwrap();
    assert!(matches!(done(waiting), Err(Error::Cancelled)));
    assert!(matches!(done(trial.client.connected()), Err(Error::Cancelled)));
    some_turns(&group);
    assert_eq!(metrics(&group).timers_pending, 0, "the timer is cancelled");
    clock.advance(2 * DAY);
    trial.assert_gone(&group);
    end(&group);
}

#[cfg(target_os = "linux")]
#[test]
fn stopping_while_connecting() {
    let (group, clock) = manual();
    let hole = BlackHole::open();
    let trial = Trial::new(&group, hole.address, Backoff::new());
    assert_eq!(trial.next(), Told::Connecting(1, hole.address));
    some_turns(&group);
    assert_eq!((the_loop(&group).connections(), metrics(&group).timers_pending), (1, 1));
    trial.client.close();
    done(trial.client.closed()).unwrap();
    clock.advance(DAY);
    trial.assert_gone(&group);
    end(&group);
}

#[test]
fn stopping_before_the_loop_has_started_the_client() {
    let (group, _clock) = manual();
    let (server, _at_server) = serve(&group, Settings::new(), silent);
    let release = block(&group);
    let trial = Trial::new(&group, server.local_address(), Backoff::new());
    trial.client.close();
    drop(release);
    done(trial.client.closed()).unwrap();
    trial.assert_gone(&group);
    end(&group);
}

#[test]
fn stopping_while_connected() {
    let (group, clock) = manual();
    let (server, at_server) = serve(&group, Settings::new(), silent);
    let trial = Trial::new(&group, server.local_address(), Backoff::new());
    let channel = done(trial.client.connected()).unwrap();
    channel.write("last words".into()).unwrap();
    trial.client.close();
    done(trial.client.closed()).unwrap();
    done(channel.closed()).unwrap();
    assert_eq!(at_server.bytes(10), b"last words");
    turn_until(&group, |metrics| metrics.channels == 0);
    clock.advance(DAY);
    let all: Vec<_> = trial.told.try_iter().collect();
    assert_eq!(
        all,
        [Told::Connecting(1, server.local_address()), Told::Connected(1)],
        "a stop is not reported as a loss"
    );
    trial.assert_gone(&group);
    end(&group);
}

#[test]
fn a_client_that_has_ended_drops_its_closures_before_its_handles() {
    let group = one_loop();
    let servers = one_loop();
    let (server, _at_server) = serve(&servers, Settings::new(), silent);
    let trial = Trial::new(&group, server.local_address(), Backoff::new());
    done(trial.client.connected()).unwrap();
    assert!(trial.alive.upgrade().is_some());
    // The closures may own handles, which would keep each other alive.
    trial.client.close();
    done(trial.client.closed()).unwrap();
    some_turns(&group);
    assert!(trial.alive.upgrade().is_none(), "{:?} has its hook", trial.client);
    for group in [&group, &servers] {
        end(group);
    }
}

#[test]
fn the_hook_can_stop_the_client() {
    type Which = fn(&Told) -> bool;
    let cases: [(Which, bool); 4] = [
        (|told| matches!(told, Told::Connecting(..)), false),
        (|told| matches!(told, Told::Connected(_)), true),
        (|told| matches!(told, Told::Lost(..)), true),
        (|told| matches!(told, Told::Failed(..)), false),
    ];
    for (n, (which, answered)) in cases.into_iter().enumerate() {
        let (group, clock) = manual();
        let (server, _events) = serve(&group, Settings::new(), |ctx, event| {
            if matches!(event, Event::Active(_)) {
                ctx.close_now();
            }
            Ok(())
        });
        let nobody = Nobody::new();
        let to = if answered { server.local_address() } else { nobody.address };
        let stops = move |told: &Told| if which(told) { Break(()) } else { Continue(()) };
        let trial = Trial::with(&group, to, Backoff::new(), stops);
        done(trial.client.closed()).unwrap_or_else(|e| panic!("case {n}: {e}"));
        clock.advance(DAY);
        let last = trial.told.try_iter().last().unwrap();
        assert!(which(&last), "case {n}: {last:?} after the client was stopped");
        turn_until(&group, |metrics| metrics.channels == 0);
        trial.assert_gone(&group);
        end(&group);
    }
}

#[test]
fn a_panicking_hook_does_not_stop_the_client() {
    quiet_panics();
    let (group, clock) = manual();
    let nobody = Nobody::new();
    let (sender, received) = mpsc::channel();
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let _client = bootstrap
        .reconnect(Backoff::new().jitter(false))
        .on_event(move |event| {
            sender.send(told(&event)).unwrap();
            panic!("on purpose");
        })
        .connect(nobody.address)
        .unwrap();
    for attempt in 1..4 {
        assert_eq!(receive(&received), Told::Connecting(attempt, nobody.address));
        match receive(&received) {
            Told::Failed(_, _, Some(delay)) => {
                some_turns(&group);
                clock.advance(delay);
            }
            other => panic!("{other:?}"),
        }
    }
    end(&group);
}

// ---- shutdown of the loop ----------------------------------------------------------------------

#[test]
fn loop_shutdown_during_the_delay() {
    let (group, _clock) = manual();
    let nobody = Nobody::new();
    let trial = Trial::new(&group, nobody.address, Backoff::new().initial(DAY).max_delay(DAY).jitter(false));
    trial.delay(&group);
    let waiting = trial.client.connected();
    end(&group);
    assert!(matches!(done(trial.client.closed()), Err(Error::ShutDown)));
    assert!(matches!(done(waiting), Err(Error::ShutDown)));
    trial.assert_gone(&group);
}

#[cfg(target_os = "linux")]
#[test]
fn loop_shutdown_while_connecting() {
    let (group, _clock) = manual();
    let hole = BlackHole::open();
    let trial = Trial::new(&group, hole.address, Backoff::new());
    trial.next();
    some_turns(&group);
    end(&group);
    assert_eq!(trial.next(), Told::Failed(1, None, None));
    assert!(matches!(done(trial.client.closed()), Err(Error::ShutDown)));
    trial.assert_gone(&group);
}

#[test]
fn loop_shutdown_while_connected() {
    let (group, _clock) = manual();
    let servers = one_loop();
    let (server, _at_server) = serve(&servers, Settings::new(), silent);
    let trial = Trial::new(&group, server.local_address(), Backoff::new());
    done(trial.client.connected()).unwrap();
    end(&group);
    assert!(matches!(done(trial.client.closed()), Err(Error::ShutDown)));
    assert_eq!(trial.told.try_iter().last(), Some(Told::Lost(Duration::ZERO, None)));
    trial.assert_gone(&group);
    end(&servers);
}

#[test]
fn a_terminated_loop_refuses_clients() {
    let group = one_loop();
    end(&group);
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let refused = bootstrap.reconnect(Backoff::new()).connect(Nobody::new().address);
    assert!(matches!(refused, Err(Error::ShutDown)));
}

// ---- settings ----------------------------------------------------------------------------------

#[test]
fn invalid_settings_are_refused_by_connect() {
    let group = one_loop();
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    let setting = |client: Result<ReconnectingChannel<Bytes>>| match client {
        Err(Error::Setting(refused)) => refused.setting(),
        other => panic!("{other:?}"),
    };
    assert_eq!(setting(bootstrap.reconnect(Backoff::new().factor(0.5)).connect(ANY_PORT)), "factor");
    assert_eq!(
        setting(bootstrap.reconnect(Backoff::new().max_attempts(0)).connect(ANY_PORT)),
        "max_attempts"
    );
    let linger = bootstrap.tcp_options(TcpOptions::new().linger(ms(1500)));
    assert_eq!(setting(linger.reconnect(Backoff::new()).connect(ANY_PORT)), "linger");
    end(&group);
}
