//! Waiting for a channel: order, limits and timeouts (H-19).

use crate::pool::Trial;
use crate::support::{
    loops::{block, end, metrics, on_loop, some_turns, turn_until},
    wait::{done, ms, receive},
};
use bytes::Bytes;
use netwheel::{
    error::Resource,
    pool::{AcquireTimeout, ChannelPool},
    prelude::*,
};
use std::sync::mpsc;

#[test]
fn h_19_later_acquires_wait_for_the_same_channel() {
    let trial = Trial::new(|pool| pool.size(1));
    let first = trial.get();
    let id = first.id();
    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    some_turns(&trial.group);
    assert!(waiting.iter().all(|acquire| !acquire.is_done()));
    assert_eq!(trial.counts(), (1, 0, 2));
    trial.pool.release(first).unwrap();
    for acquire in waiting {
        let again = done(acquire).unwrap();
        assert_eq!(again.id(), id, "waiters receive the only channel in order");
        // Dropping the guard returns the channel to the pool.
    }
    assert_eq!(trial.counts(), (0, 1, 0));
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 0, "served waiters have no timer");
    assert_eq!(metrics(&trial.group).connected, 1);
    end(&trial.group);
}

#[test]
fn h_19_channels_are_opened_up_to_the_size_of_the_pool() {
    let trial = Trial::new(|pool| pool.size(3));
    let all: Vec<_> = (0..3).map(|_| trial.get()).collect();
    let fourth = trial.pool.acquire();
    some_turns(&trial.group);
    assert!(!fourth.is_done());
    assert_eq!(trial.counts(), (3, 0, 1));
    drop(all);
    drop(done(fourth).unwrap());
    assert_eq!(trial.counts(), (0, 3, 0));
    assert_eq!(metrics(&trial.group).connected, 3);
    end(&trial.group);
}

#[test]
fn h_19_the_number_of_waiters_is_limited() {
    let trial = Trial::new(|pool| pool.size(1).max_waiters(2));
    let _held = trial.get();
    let _waiting = [trial.pool.acquire(), trial.pool.acquire()];
    match done(trial.pool.acquire()) {
        Err(Error::Full { resource, limit, .. }) => {
            assert_eq!((resource, limit), (Resource::PoolWaiters, 2))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(trial.counts(), (1, 0, 2));
    end(&trial.group);
}

#[test]
fn h_19_an_acquire_times_out() {
    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(500)));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    trial.clock.advance(ms(499));
    some_turns(&trial.group);
    assert!(!waiting.is_done(), "timed out too early");
    trial.clock.advance(ms(1));
    match done(waiting) {
        Err(Error::TimedOut { operation: "acquiring a channel", after, .. }) => assert_eq!(after, ms(500)),
        other => panic!("{other:?}"),
    }
    assert_eq!(trial.counts(), (1, 0, 0));
    drop(held);
    assert_eq!(trial.counts(), (0, 1, 0), "the released channel is free");
    end(&trial.group);
}

#[test]
fn h_19_an_acquire_can_open_a_new_channel_on_timeout() {
    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(500)).on_timeout(AcquireTimeout::Open));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    trial.clock.advance(ms(500));
    let beyond = done(waiting).unwrap();
    assert_ne!(beyond.id(), held.id());
    assert_eq!(trial.counts(), (2, 0, 0));
    trial.connections(2);
    drop(beyond);
    assert_eq!(trial.counts(), (1, 0, 0), "the pool shrinks to its size");
    trial.connections(1);
    drop(held);
    assert_eq!(trial.counts(), (0, 1, 0));
    end(&trial.group);
}

#[test]
fn h_19_a_timeout_of_zero_does_not_wait() {
    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(0)));
    let held = trial.get();
    let refused = trial.pool.acquire();
    assert!(refused.is_done(), "the acquire fails immediately");
    assert!(matches!(done(refused), Err(Error::TimedOut { .. })));
    drop(held);
    drop(trial.get());
    end(&trial.group);

    let trial = Trial::new(|pool| pool.size(1).acquire_timeout(ms(0)).on_timeout(AcquireTimeout::Open));
    let both = (trial.get(), trial.get());
    assert_eq!(trial.counts(), (2, 0, 0));
    drop(both);
    assert_eq!(trial.counts(), (0, 1, 0));
    end(&trial.group);
}

#[test]
fn h_19_cancelled_and_detached_acquires_release_everything() {
    let trial = Trial::new(|pool| pool.size(1).max_waiters(20_000));
    let held = trial.get();
    let waiting = trial.pool.acquire();
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 1);
    assert!(waiting.cancel());
    assert_eq!(trial.counts(), (1, 0, 0));
    assert!(matches!(done(waiting), Err(Error::Cancelled)));
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 0);

    // Each acquire gets the channel and drops it, which serves the next one. This must be a loop,
    // not a recursion.
    for _ in 0..20_000 {
        trial.pool.acquire().detach();
    }
    let last = trial.pool.acquire();
    assert!(matches!(done(last), Err(Error::Full { .. })));
    drop(held);
    assert_eq!(trial.counts(), (0, 1, 0));
    turn_until(&trial.group, |metrics| metrics.timers_pending == 0);
    end(&trial.group);
}

#[test]
fn h_19_a_channel_whose_acquire_was_cancelled_while_connecting_becomes_free() {
    let trial = Trial::new(|pool| pool.size(1));
    let release = block(&trial.group);
    let acquire = trial.pool.acquire();
    assert_eq!(trial.counts(), (1, 0, 0));
    assert!(acquire.cancel());
    drop(release);
    trial.connections(1);
    assert_eq!(trial.counts(), (0, 1, 0));
    drop(trial.get());
    assert_eq!(metrics(&trial.group).connected, 1);
    end(&trial.group);
}

#[test]
fn dropping_an_acquire_leaves_the_queue() {
    let trial = Trial::new(|pool| pool.size(1));
    let held = trial.get();
    let [first, second] = [trial.pool.acquire(), trial.pool.acquire()];
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 2);
    drop(first);
    assert_eq!(trial.counts(), (1, 0, 1));
    some_turns(&trial.group);
    assert_eq!(metrics(&trial.group).timers_pending, 1, "the timer of the dropped acquire is cancelled");
    drop(held);
    assert!(done(second).unwrap().is_open(), "the next one moves up");
    end(&trial.group);
}

#[test]
fn dropping_a_completed_acquire_releases_its_channel() {
    let trial = Trial::new(|pool| pool.size(1));
    drop(trial.get());
    let acquire = trial.pool.acquire();
    assert!(acquire.is_done());
    assert_eq!(trial.counts(), (1, 0, 0));
    drop(acquire);
    assert_eq!(trial.counts(), (0, 1, 0));
    assert!(trial.get().is_open());
    end(&trial.group);
}

#[test]
fn dropping_acquires_while_they_are_served_loses_no_channel() {
    let trial = Trial::new(|pool| pool.size(2));
    std::thread::scope(|scope| {
        for n in 0..4 {
            let pool = &trial.pool;
            scope.spawn(move || {
                for round in 0..2000 {
                    let acquire = pool.acquire();
                    for _ in 0..(n * round) % 50 {
                        std::hint::spin_loop();
                    }
                    drop(acquire);
                }
            });
        }
    });
    turn_until(&trial.group, |metrics| metrics.timers_pending == 0);
    assert_eq!(trial.pool.waiters(), 0);
    turn_until(&trial.group, |_| trial.pool.acquired() == 0);
    let both = (trial.get(), trial.get());
    assert_eq!(trial.counts(), (2, 0, 0));
    drop(both);
    trial.connections(trial.pool.free() as u64);
    end(&trial.group);
}

/// Acquires and releases a channel 50,000 times, each time in the callback of the previous acquire,
/// on a stack with a few bytes for each time.
#[test]
fn a_long_chain_of_acquires_does_not_overflow_the_stack() {
    fn again(pool: ChannelPool<Bytes>, left: usize, last: mpsc::Sender<()>) {
        let next = pool.clone();
        pool.acquire().on_complete(move |channel| {
            drop(channel.unwrap());
            match left {
                0 => last.send(()).unwrap(),
                _ => again(next, left - 1, last),
            }
        });
    }
    let trial = Trial::new(|pool| pool.size(1));
    drop(trial.get());
    let (last, ended) = mpsc::channel();
    let pool = trial.pool.clone();
    let small = std::thread::Builder::new().stack_size(256 * 1024);
    let elsewhere = last.clone();
    small.spawn(move || again(pool, 50_000, elsewhere)).unwrap().join().unwrap();
    ended.try_recv().expect("the whole chain has run");
    let pool = trial.pool.clone();
    on_loop(&trial.group, move || again(pool, 50_000, last));
    receive(&ended);
    assert_eq!(trial.counts(), (0, 1, 0));
    end(&trial.group);
}
