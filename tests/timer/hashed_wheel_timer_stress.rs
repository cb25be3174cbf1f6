//! The stand-alone timer under races: every timeout ends in exactly one way, is dropped once and
//! counted once (W-14, W-32, W-35).

#![allow(clippy::mutable_key_type, reason = "a timeout is hashed by its identity, not by its state")]

use crate::support::{
    timers::{advance, manual},
    wait::{ms, wait_until},
};
use netwheel::timer::{HashedWheelTimer, Timeout};
use std::{
    collections::HashSet,
    sync::{
        Arc, Barrier,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

const ROUNDS: u64 = 10;
const ADDERS: usize = 4;
/// Timeouts per thread and round; a million in total.
const EACH: usize = 25_000;

/// The outcomes of a round's timeouts.
struct Ledger {
    runs: Vec<AtomicU8>,
    hooks: Vec<AtomicU8>,
    dropped: AtomicUsize,
}

/// A task's entry in the ledger.
struct Receipt {
    number: usize,
    ledger: Arc<Ledger>,
}

impl Ledger {
    fn new(timeouts: usize) -> Arc<Self> {
        let zeros = || (0..timeouts).map(|_| AtomicU8::new(0)).collect();
        Arc::new(Ledger { runs: zeros(), hooks: zeros(), dropped: AtomicUsize::new(0) })
    }

    fn receipt(self: &Arc<Self>, number: usize) -> Receipt {
        Receipt { number, ledger: self.clone() }
    }
}

impl Receipt {
    fn run(self) {
        self.ledger.runs[self.number].fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        self.ledger.dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// A timeout that was added.
struct Added {
    number: usize,
    timeout: Timeout,
    hooked: bool,
    cancelled: bool,
}

/// Adds timeouts, and cancels some at once and others later, until all are added. Counts the
/// refused ones.
fn add_and_cancel(
    timer: &HashedWheelTimer,
    ledger: &Arc<Ledger>,
    first: usize,
    seed: u64,
) -> (Vec<Added>, usize) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut added, mut refused) = (Vec::<Added>::with_capacity(EACH), 0);
    for number in first..first + EACH {
        let receipt = ledger.receipt(number);
        let delay = Duration::from_micros(random.u64(0..30_000));
        let task = move |_: &Timeout| {
            receipt.run();
            Ok(())
        };
        let hooked = random.u8(0..16) == 0;
        let result = if hooked {
            let ledger = ledger.clone();
            let hook = move |_: &Timeout| _ = ledger.hooks[number].fetch_add(1, Ordering::Relaxed);
            timer.new_timeout_with_hook(delay, task, hook).map_err(|_| ())
        } else {
            timer.new_timeout(delay, task).map_err(|_| ())
        };
        match result {
            Ok(timeout) => added.push(Added { number, timeout, hooked, cancelled: false }),
            Err(()) => refused += 1,
        }
        if random.bool() && !added.is_empty() {
            let recent = added.len().saturating_sub(random.usize(1..200));
            let chosen = &mut added[recent];
            chosen.cancelled |= chosen.timeout.cancel();
        }
    }
    (added, refused)
}

#[test]
fn a_million_timeouts_added_cancelled_expired_and_stopped_concurrently_are_all_accounted_for() {
    let (mut ran, mut returned, mut handed_back) = (0, 0, 0);
    for round in 0..ROUNDS {
        let timer = HashedWheelTimer::builder().tick(ms(1)).slots(16).build().unwrap();
        let ledger = Ledger::new(ADDERS * EACH);
        let (unprocessed, results) = thread::scope(|scope| {
            let adders: Vec<_> = (0..ADDERS)
                .map(|n| {
                    let (timer, ledger) = (&timer, &ledger);
                    let seed = round * ADDERS as u64 + n as u64;
                    scope.spawn(move || add_and_cancel(timer, ledger, n * EACH, seed))
                })
                .collect();
            // At a different point in each round, and in the last rounds after all timeouts were
            // added.
            let until = ADDERS * EACH * (round as usize + 1) / ROUNDS as usize;
            wait_until("half of the timeouts", || {
                ledger.dropped.load(Ordering::Relaxed) >= until / 2
                    || adders.iter().all(|adder| adder.is_finished())
            });
            let unprocessed = timer.stop().unwrap();
            (unprocessed, adders.into_iter().map(|adder| adder.join().unwrap()).collect::<Vec<_>>())
        });
        let count = unprocessed.len();
        let unprocessed: HashSet<_> = unprocessed.into_iter().collect();
        assert_eq!(unprocessed.len(), count, "no timeout is returned twice");
        let mut seen = 0;
        for (added, refused) in results {
            assert_eq!(added.len() + refused, EACH);
            handed_back += refused;
            for Added { number, timeout, hooked, cancelled } in added {
                let runs = ledger.runs[number].load(Ordering::Relaxed);
                let by_stop = unprocessed.contains(&timeout);
                seen += usize::from(by_stop);
                assert_eq!(u8::from(cancelled) + u8::from(by_stop) + runs, 1, "{timeout:?}");
                assert_eq!((timeout.is_expired(), timeout.is_cancelled()), (runs == 1, runs == 0));
                let hook = u8::from(hooked && runs == 0);
                assert_eq!(ledger.hooks[number].load(Ordering::Relaxed), hook, "{timeout:?}");
                ran += usize::from(runs);
            }
        }
        assert_eq!(seen, count, "stop returns no other timeouts");
        returned += count;
        assert_eq!(ledger.dropped.load(Ordering::Relaxed), ADDERS * EACH);
        assert_eq!(timer.pending_timeouts(), 0);
    }
    assert!(
        ran > 0 && returned > 0 && handed_back > 0,
        "{ran} ran, {returned} returned, {handed_back} refused"
    );
}

#[test]
fn w_32_exactly_one_of_two_cancels_and_the_expiry_wins() {
    const AT_ONCE: usize = 2_000;
    let (timer, clock) = manual(ms(1));
    for _ in 0..50 {
        let ledger = Ledger::new(AT_ONCE);
        let timeouts: Vec<_> = (0..AT_ONCE)
            .map(|number| {
                let receipt = ledger.receipt(number);
                let task = move |_: &Timeout| {
                    receipt.run();
                    Ok(())
                };
                timer.new_timeout(ms(1), task).unwrap()
            })
            .collect();
        let start = Barrier::new(3);
        let cancel = |order: &mut dyn Iterator<Item = &Timeout>| {
            start.wait();
            order.filter(|timeout| timeout.cancel()).cloned().collect::<HashSet<_>>()
        };
        let (one, two) = thread::scope(|scope| {
            let one = scope.spawn(|| cancel(&mut timeouts.iter()));
            let two = scope.spawn(|| cancel(&mut timeouts.iter().rev()));
            start.wait();
            clock.advance(ms(1));
            (one.join().unwrap(), two.join().unwrap())
        });
        advance(&timer, &clock, ms(1));
        for (number, timeout) in timeouts.iter().enumerate() {
            let runs = ledger.runs[number].load(Ordering::Relaxed);
            let ends = u8::from(one.contains(timeout)) + u8::from(two.contains(timeout)) + runs;
            assert_eq!(ends, 1, "{timeout:?}");
        }
        assert_eq!(ledger.dropped.load(Ordering::Relaxed), AT_ONCE);
        assert_eq!(timer.pending_timeouts(), 0);
    }
}
