//! Closing a pool, and failing hooks: H-21.

use crate::pool::{Trial, pool};
#[cfg(target_os = "linux")]
use crate::support::nobody::BlackHole;
use crate::support::{
    logs::quiet_panics,
    loops::{block, end, metrics, one_loop, some_turns},
    nobody::Nobody,
    recorder::silent,
    servers::{Settings, serve},
    wait::done,
};
use bytes::Bytes;
use netwheel::{prelude::*, shutdown::ShutdownOptions, testing::ManualClock};
use std::{
    io::ErrorKind,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

#[test]
fn h_21_a_closed_pool_fails_its_waiters_and_closes_released_channels() {
    let trial = Trial::new(|pool| pool.size(2));
    let (held, dropped) = (trial.get(), trial.get());
    let handles = [Channel::clone(&held), Channel::clone(&dropped)];
    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    some_turns(&trial.group);
    trial.pool.close();
    trial.pool.close();
    assert!(trial.pool.is_closed());
    for acquire in waiting {
        assert!(acquire.is_done(), "the waiter fails immediately");
        assert!(matches!(done(acquire), Err(Error::Closed)));
    }
    assert!(matches!(done(trial.pool.acquire()), Err(Error::Closed)));
    assert_eq!(trial.counts(), (2, 0, 0), "acquired channels stay open");
    assert!(held.is_open());
    assert!(matches!(trial.pool.release(held), Err(Error::Closed)));
    drop(dropped);
    for handle in handles {
        done(handle.closed()).unwrap();
    }
    assert_eq!(trial.counts(), (0, 0, 0));
    trial.connections(0);
    // The gauge of timers is set at the end of the turn.
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 0);
    end(&trial.group);
}

#[test]
fn h_21_free_channels_are_closed_with_the_pool_or_its_last_handle() {
    let trial = Trial::new(|pool| pool.size(1));
    drop(trial.get());
    trial.connections(1);
    trial.pool.close();
    trial.connections(0);
    let another = pool(&trial.group, trial._server.local_address(), |pool| pool.size(2));
    let (free, out) = (done(another.acquire()).unwrap(), done(another.acquire()).unwrap());
    drop(free);
    drop(another);
    some_turns(&trial.group);
    trial.connections(2);
    drop(out);
    trial.connections(0);
    end(&trial.group);
}

#[test]
fn h_21_closing_the_pool_while_a_channel_connects() {
    let trial = Trial::new(|pool| pool.size(1));
    let release = block(&trial.group);
    let acquire = trial.pool.acquire();
    trial.pool.close();
    drop(release);
    assert!(matches!(done(acquire), Err(Error::Closed)));
    assert_eq!(trial.counts(), (0, 0, 0));
    trial.connections(0);
    end(&trial.group);
}

/// The server does not respond, and the manual clock never reaches the timeout of the attempts.
#[cfg(target_os = "linux")]
#[test]
fn h_21_closing_the_pool_cancels_attempts_to_connect() {
    let group = EventLoopGroup::builder().threads(1).clock(ManualClock::new()).build().unwrap();
    let hole = BlackHole::open();
    let pool = pool(&group, hole.address, |pool| pool.size(2));
    let acquires = [pool.acquire(), pool.acquire()];
    some_turns(&group);
    assert_eq!((pool.acquired(), acquires[0].is_done()), (2, false));
    pool.close();
    for acquire in acquires {
        assert!(matches!(done(acquire), Err(Error::Closed)));
    }
    assert_eq!((pool.acquired(), metrics(&group).connect_errors), (0, 2));
    end(&group);
}

#[test]
fn h_21_a_failing_hook_fails_the_acquire_without_a_leak() {
    quiet_panics();
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = {
        let calls = calls.clone();
        move |_: &Channel<Bytes>| match calls.fetch_add(1, SeqCst) {
            // 0, 1: a new channel. 4, 6: a channel that was used before.
            0 | 4 => Err("not this one".into()),
            1 | 6 => panic!("on purpose"),
            _ => Ok(()),
        }
    };
    let trial = Trial::new(|pool| pool.size(1).on_acquire(hook));
    let outcome = || match done(trial.pool.acquire()) {
        Ok(channel) => {
            drop(channel);
            "given"
        }
        Err(Error::Other(e)) if e.to_string() == "not this one" => "refused",
        Err(Error::Panicked(e)) if &*e == "on purpose" => "panicked",
        other => panic!("{other:?}"),
    };
    let outcomes: Vec<_> = (0..8).map(|_| (outcome(), trial.counts())).collect();
    let (none, one) = ((0, 0, 0), (0, 1, 0));
    let (given, refused, panicked) = (("given", one), ("refused", none), ("panicked", none));
    assert_eq!(outcomes, [refused, panicked, given, given, refused, given, panicked, given]);
    trial.connections(1);
    end(&trial.group);
}

#[test]
fn h_21_after_a_failing_hook_the_next_waiter_gets_a_channel() {
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = {
        let calls = calls.clone();
        move |_: &Channel<Bytes>| if calls.fetch_add(1, SeqCst) == 1 { Err("no".into()) } else { Ok(()) }
    };
    let trial = Trial::new(|pool| pool.size(1).on_acquire(hook));
    let held = trial.get();
    let [fails, succeeds] = [trial.pool.acquire(), trial.pool.acquire()];
    drop(held);
    assert!(done(fails).is_err());
    let channel = done(succeeds).unwrap();
    assert!(channel.is_open());
    assert_eq!(trial.counts(), (1, 0, 0));
    end(&trial.group);
}

#[test]
fn h_21_a_refused_connection_fails_all_waiters() {
    let group = one_loop();
    let nobody = Nobody::new();
    let pool = pool(&group, nobody.address, |pool| pool.size(1));
    let acquires: Vec<_> = (0..20).map(|_| pool.acquire()).collect();
    for acquire in acquires {
        assert_eq!(done(acquire).unwrap_err().io_kind(), Some(ErrorKind::ConnectionRefused));
    }
    assert_eq!((pool.acquired(), pool.free(), pool.waiters()), (0, 0, 0));
    end(&group);
}

#[test]
fn h_21_a_loop_at_its_connection_limit_leaks_no_slot() {
    let group = EventLoopGroup::builder().threads(1).max_connections(1).build().unwrap();
    let servers = one_loop();
    let (server, _at_server) = serve(&servers, Settings::new(), silent);
    let pool = pool(&group, server.local_address(), |pool| pool.size(2));
    let only = done(pool.acquire()).unwrap();
    assert!(matches!(done(pool.acquire()), Err(Error::Full { .. })));
    assert_eq!((pool.acquired(), pool.free()), (1, 0));
    drop(only);
    drop(done(pool.acquire()).unwrap());
    end(&group);
    end(&servers);
}

#[test]
fn h_21_shutting_down_the_loops_fails_all_waiters() {
    let trial = Trial::new(|pool| pool.size(1));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    end(&trial.group);
    assert!(matches!(done(waiting), Err(Error::ShutDown)));
    assert!(!held.is_open());
    drop(held);
    assert_eq!(trial.counts(), (0, 0, 0));
    assert!(matches!(done(trial.pool.acquire()), Err(Error::ShutDown)));
    assert_eq!(trial.counts(), (0, 0, 0));
}

#[test]
fn h_21_waiters_outlast_the_loop_of_their_timers() {
    for dies in 0..2 {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
        let servers = one_loop();
        let (server, _at_server) = serve(&servers, Settings::new(), silent);
        let pool = pool(&group, server.local_address(), |pool| pool.size(2));
        // One channel is on each loop.
        let _held = [(); 2].map(|()| done(pool.acquire()).unwrap());
        let waiting = [(); 3].map(|()| pool.acquire());
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO);
        done(group.event_loops()[dies].shutdown(options)).unwrap();
        let [first, others @ ..] = waiting;
        // It gets the place of the channel that has closed.
        let _first = done(first).unwrap();
        assert!(others.iter().all(|acquire| !acquire.is_done()), "loop {dies}");
        clock.advance(Duration::from_secs(10));
        for acquire in others {
            assert!(matches!(done(acquire), Err(Error::TimedOut { .. })), "loop {dies}");
        }
        end(&group);
        end(&servers);
    }
}

#[cfg(feature = "http")]
#[test]
fn h_21_the_time_of_a_request_outlasts_the_loop_that_watches_it() {
    use crate::support::wait::wait_until;
    use netwheel::http::{HttpClient, HttpSettings, NotSent, Request};
    for dies in 0..2 {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
        // It answers nothing.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let settings = HttpSettings::new().reuse_timeout(Duration::from_secs(3600));
        let http = HttpClient::with(settings).unwrap().host("h");
        let client = ClientBootstrap::new(&group).pipeline(move |_peer| http.calls(1024));
        let pool = client.pool().size(2).acquire_timeout(Duration::MAX);
        let pool = pool.build(listener.local_addr().unwrap()).unwrap();
        let _held = [(); 2].map(|()| done(pool.acquire()).unwrap());
        let request = |seconds| pool.request(Request::get("/")).timeout(Duration::from_secs(seconds)).send();
        let requests = [3600, 10, 10, 10].map(request);
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO);
        done(group.event_loops()[dies].shutdown(options)).unwrap();
        // The first one gets the place of the channel that has closed.
        wait_until("the others wait", || pool.waiters() == 3 && pool.acquired() == 2);
        let [_first, others @ ..] = requests;
        clock.advance(Duration::from_secs(10));
        for request in others {
            let error = done(request).unwrap_err();
            let cause = NotSent::of(&error).unwrap().cause();
            assert!(matches!(cause, Error::TimedOut { .. }), "loop {dies}: {cause}");
        }
        end(&group);
    }
}

#[cfg(feature = "http")]
#[test]
fn h_21_the_retry_of_a_request_outlasts_the_loop_of_its_timer() {
    use crate::support::wait::wait_until;
    use netwheel::{
        http::{HttpClient, NotSent, Request},
        reconnect::Backoff,
    };
    let wait = Duration::from_secs(10);
    for dies in 0..2 {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(2).clock(clock.clone()).build().unwrap();
        let nobody = Nobody::new();
        let http = HttpClient::new().host("h");
        let client = ClientBootstrap::new(&group).pipeline(move |_peer| http.calls(1024));
        let pool = client.pool().size(4).build(nobody.address).unwrap();
        let backoff = Backoff::new().initial(wait).max_delay(wait).jitter(false);
        let requests = [(); 4].map(|()| {
            let request = pool.request(Request::get("/")).timeout(Duration::MAX);
            request.retries(1).backoff(backoff.clone()).send()
        });
        let timers = |at: usize| group.event_loops()[at].metrics().timers_pending;
        wait_until("all attempts have failed", || pool.acquired() == 0 && timers(0) + timers(1) == 4);
        let options = ShutdownOptions::new().quiet_period(Duration::ZERO);
        done(group.event_loops()[dies].shutdown(options)).unwrap();
        wait_until("the other loop has all timers", || timers(1 - dies) == 4);
        assert!(requests.iter().all(|request| !request.is_done()), "loop {dies}");
        clock.advance(wait);
        for request in requests {
            let error = done(request).unwrap_err();
            let cause = NotSent::of(&error).unwrap().cause();
            assert!(matches!(cause, Error::Io { .. }), "loop {dies}: {cause}");
        }
        end(&group);
    }
}
