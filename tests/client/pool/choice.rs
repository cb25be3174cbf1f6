//! Selection of the channels that a pool hands out: H-20.

use crate::pool::{Trial, pool};
use crate::support::{
    logs::quiet_panics,
    loops::{block, end, some_turns},
    wait::{done, receive},
};
use bytes::Bytes;
use netwheel::{pool::PoolOrder, prelude::*};
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    mpsc,
};

#[test]
fn h_20_a_foreign_channel_is_refused_and_closed() {
    let trial = Trial::new(|pool| pool.size(1));
    let other = pool(&trial.group, trial._server.local_address(), |pool| pool.size(1));
    let channel = done(other.acquire()).unwrap();
    let handle = Channel::clone(&channel);
    match trial.pool.release(channel) {
        Err(Error::WrongOwner { owner, .. }) => assert_eq!(owner, "the channel pool"),
        other => panic!("{other:?}"),
    }
    done(handle.closed()).unwrap();
    some_turns(&trial.group);
    assert_eq!(trial.counts(), (0, 0, 0));
    assert_eq!((other.acquired(), other.free()), (0, 0), "its own pool has a free slot again");
    assert_ne!(done(other.acquire()).unwrap().id(), handle.id());
    end(&trial.group);
}

#[test]
fn h_20_unhealthy_channels_are_not_given_out() {
    let sick = Arc::new(AtomicBool::new(false));
    let (checked, asked) = mpsc::channel();
    let check = {
        let sick = sick.clone();
        move |channel: &Channel<Bytes>| {
            checked.send(channel.id()).unwrap();
            !sick.swap(false, SeqCst)
        }
    };
    let trial = Trial::new(|pool| pool.size(2).health_check(check));
    let (first, second) = (trial.get(), trial.get());
    assert!(asked.try_recv().is_err(), "new channels are not checked");
    let (one, two) = (Channel::clone(&first), Channel::clone(&second));
    drop((first, second));

    // The channel on top of the stack is unhealthy, so the pool hands out the other one.
    sick.store(true, SeqCst);
    let other = trial.get();
    assert_eq!(other.id(), one.id());
    assert_eq!([receive(&asked), receive(&asked)], [two.id(), one.id()]);
    done(two.closed()).unwrap();
    assert_eq!(trial.counts(), (1, 0, 0));
    drop(other);
    // The only channel is unhealthy, so the pool opens a new one.
    sick.store(true, SeqCst);
    let new = trial.get();
    assert!(new.id() != one.id() && new.id() != two.id());
    done(one.closed()).unwrap();
    assert_eq!(trial.counts(), (1, 0, 0));
    trial.connections(1);
    end(&trial.group);
}

#[test]
fn h_20_a_panicking_health_check_counts_as_unhealthy() {
    quiet_panics();
    let trial = Trial::new(|pool| pool.size(1).health_check(|_| panic!("on purpose")));
    let first = trial.get();
    let handle = Channel::clone(&first);
    drop(first);
    assert_ne!(trial.get().id(), handle.id());
    done(handle.closed()).unwrap();
    end(&trial.group);
}

#[test]
fn h_20_the_order_is_lifo_or_fifo() {
    for (order, expected) in [(PoolOrder::Lifo, [2, 1, 0]), (PoolOrder::Fifo, [0, 1, 2])] {
        let trial = Trial::new(|pool| pool.size(3).order(order));
        let all = [trial.get(), trial.get(), trial.get()];
        let ids = all.each_ref().map(|channel| channel.id());
        all.into_iter().for_each(drop);
        let again = [trial.get(), trial.get(), trial.get()];
        assert_eq!(again.each_ref().map(|channel| channel.id()), expected.map(|n| ids[n]), "{order:?}");
        end(&trial.group);
    }
    let trial = Trial::new(|pool| pool.size(2));
    let (_first, second) = (trial.get(), trial.get());
    let id = second.id();
    drop(second);
    assert_eq!(trial.get().id(), id, "the default");
    end(&trial.group);
}

#[test]
fn h_20_a_closed_channel_leaves_the_pool() {
    let trial = Trial::new(|pool| pool.size(2));
    let (one, two) = (trial.get(), trial.get());
    let (child_of_one, child_of_two) = {
        let (a, b) = (trial.child(), trial.child());
        if a.peer_address() == one.local_address() { (a, b) } else { (b, a) }
    };
    let (free, out) = (Channel::clone(&one), Channel::clone(&two));
    drop(one);
    assert_eq!(trial.counts(), (1, 1, 0));
    child_of_one.close_now();
    done(free.closed()).unwrap();
    some_turns(&trial.group);
    assert_eq!(trial.counts(), (1, 0, 0), "a free channel left");

    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    let [first, second] = waiting;
    let first = done(first).unwrap();
    some_turns(&trial.group);
    assert!(!second.is_done());
    child_of_two.close_now();
    done(out.closed()).unwrap();
    let second = done(second).unwrap();
    assert_eq!(trial.counts(), (2, 0, 0), "a new channel replaces an acquired one");
    trial.pool.release(two).unwrap();
    assert_eq!(trial.counts(), (2, 0, 0), "the closed channel no longer has a slot");
    drop((first, second));
    assert_eq!(trial.counts(), (0, 2, 0));
    end(&trial.group);
}

#[test]
fn h_20_a_channel_that_closes_during_the_hook_is_not_handed_out() {
    let calls = Arc::new(AtomicUsize::new(0));
    let hook = {
        let calls = calls.clone();
        move |channel: &Channel<Bytes>| {
            if calls.fetch_add(1, SeqCst) == 1 {
                channel.close_now();
                done(channel.closed()).unwrap();
            }
            Ok(())
        }
    };
    let trial = Trial::new(|pool| pool.size(1).on_acquire(hook));
    let first = trial.get();
    let id = first.id();
    drop(first);
    let second = trial.get();
    assert_ne!(second.id(), id);
    assert!(second.is_open());
    assert_eq!(trial.counts(), (1, 0, 0));
    end(&trial.group);
}

#[test]
fn h_20_a_discarded_channel_leaves_the_pool_immediately() {
    let trial = Trial::new(|pool| pool.size(1));
    let first = trial.get();
    let handle = Channel::clone(&first);
    let waiting = trial.pool.acquire();
    let release = block(&trial.group);
    first.discard();
    assert_eq!(trial.counts(), (1, 0, 0), "a new channel is opened for the waiter");
    drop(release);
    assert_ne!(done(waiting).unwrap().id(), handle.id());
    done(handle.closed()).unwrap();
    end(&trial.group);
}
