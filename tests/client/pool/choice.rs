//! Which channel is given out, and which is not: H-20.

use crate::pool::{Trial, pool};
use crate::support::{
    logs::quiet_panics,
    loops::{block, end, some_turns},
    wait::{done, receive},
};
use bytes::Bytes;
use netwheel::{PoolOrder, prelude::*};
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
    assert_eq!((other.acquired(), other.free()), (0, 0), "its own pool has its place back");
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
    assert!(asked.try_recv().is_err(), "new ones are healthy");
    let (one, two) = (Channel::clone(&first), Channel::clone(&second));
    drop((first, second));

    // The one on top is sick: the other one is given out.
    sick.store(true, SeqCst);
    let other = trial.get();
    assert_eq!(other.id(), one.id());
    assert_eq!([receive(&asked), receive(&asked)], [two.id(), one.id()]);
    done(two.closed()).unwrap();
    assert_eq!(trial.counts(), (1, 0, 0));
    drop(other);
    // Now the only one is: there is a new one for it.
    sick.store(true, SeqCst);
    let new = trial.get();
    assert!(new.id() != one.id() && new.id() != two.id());
    done(one.closed()).unwrap();
    assert_eq!(trial.counts(), (1, 0, 0));
    trial.connections(1);
    end(&trial.group);
}

#[test]
fn h_20_a_health_check_that_panics_says_no() {
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
fn h_20_the_last_comes_first_or_the_first_by_choice() {
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
fn h_20_a_channel_that_closes_leaves_by_itself() {
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
    assert_eq!(trial.counts(), (1, 0, 0), "a free one");

    let waiting = [trial.pool.acquire(), trial.pool.acquire()];
    let [first, second] = waiting;
    let first = done(first).unwrap();
    some_turns(&trial.group);
    assert!(!second.is_done());
    child_of_two.close_now();
    done(out.closed()).unwrap();
    let second = done(second).unwrap();
    assert_eq!(trial.counts(), (2, 0, 0), "one that is out: somebody gets a new one for it");
    trial.pool.release(two).unwrap();
    assert_eq!(trial.counts(), (2, 0, 0), "it was not its own place any more");
    drop((first, second));
    assert_eq!(trial.counts(), (0, 2, 0));
    end(&trial.group);
}

#[test]
fn h_20_a_channel_that_closes_while_it_is_looked_at_is_not_given_out() {
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
fn h_20_a_channel_that_is_discarded_leaves_at_once() {
    let trial = Trial::new(|pool| pool.size(1));
    let first = trial.get();
    let handle = Channel::clone(&first);
    let waiting = trial.pool.acquire();
    let release = block(&trial.group);
    first.discard();
    assert_eq!(trial.counts(), (1, 0, 0), "a new one is made for who waits");
    drop(release);
    assert_ne!(done(waiting).unwrap().id(), handle.id());
    done(handle.closed()).unwrap();
    end(&trial.group);
}
