//! Tests of the crate's locks in simulations.

use super::{Simulation, calls::sleep, faults::Faults, journal::Journal};
use crate::{error::Result, group::EventLoopGroup, machine::Mutex};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

fn take_twice() {
    let lock = Mutex::new(());
    let _first = lock.lock();
    let _second = lock.lock();
}

/// Runs a node with this program, which takes a lock twice.
fn assert_deadlock(main: impl Fn() -> Result + Send + Sync + 'static) {
    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", main);
    let failure = simulation.run_until_ended(node, 60 * SECOND).unwrap_err().to_string();
    assert!(failure.contains("a deadlock at src/testing/simulation/lock_tests.rs:"), "{failure}");
}

#[test]
fn a_thread_that_takes_a_lock_twice_fails_the_run() {
    assert_deadlock(|| {
        take_twice();
        Ok(())
    });
}

#[test]
fn a_loop_that_takes_a_lock_twice_fails_the_run() {
    assert_deadlock(|| {
        let group = EventLoopGroup::builder().threads(1).build()?;
        group.next().call(take_twice).wait()
    });
}

/// It would wait forever, because the holder runs only while the simulation runs.
#[test]
#[should_panic(expected = "a deadlock at src/testing/simulation/lock_tests.rs:")]
fn the_thread_of_the_test_does_not_wait_for_a_lock_of_a_program_that_waits() {
    let mut simulation = Simulation::new(1);
    let lock = Arc::new(Mutex::new(()));
    let held = lock.clone();
    simulation.node("one", "10.0.0.1", move || {
        let _held = held.lock();
        sleep(SECOND);
        Ok(())
    });
    simulation.run_for(SECOND / 2).unwrap();
    drop(lock.lock());
}

/// Threads that take two locks, one within the other, and nothing else.
#[test]
fn threads_race_before_they_take_a_lock_and_not_while_they_hold_it() {
    let mut simulation = Simulation::with_faults(1, &Faults::none().rate("thread-preempted", 500_000));
    let (outer, inner) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let is_within = Arc::new(AtomicBool::new(false));
    let order = Journal::new();
    let node = simulation.node("one", "10.0.0.1", || {
        sleep(60 * SECOND);
        Ok(())
    });
    for thread in 0..3 {
        let (outer, inner, is_within, order) =
            (outer.clone(), inner.clone(), is_within.clone(), order.clone());
        simulation.spawn(node, move || {
            for _ in 0..100 {
                let _outer = outer.lock();
                assert!(!is_within.swap(true, Ordering::Relaxed), "another thread holds the lock");
                let _inner = inner.lock();
                order.push(thread);
                is_within.store(false, Ordering::Relaxed);
            }
            Ok(())
        });
    }
    simulation.run_until_ended(node, 120 * SECOND).unwrap();
    order.with(|order| {
        let switches = order.windows(2).filter(|pair| pair[0] != pair[1]).count();
        assert_eq!(order.len(), 300);
        assert!(switches > 50, "{switches}");
    });
}
