//! The pending weight of one channel's output, and whether its producers may continue.
//!
//! Producers on any thread add the weight of a message after they have queued it. The channel's
//! loop adds and subtracts weight while it encodes and sends. Weight and state share one word, so
//! each change of the weight updates the state in the same atomic step. Wakeups are not lost: an
//! unwritable channel has a queued message or pending bytes, and processing these makes the loop
//! check the gauge again.
//!
//! Invariants: only [`WriteGauge::add`] and [`WriteGauge::settle`] make the channel unwritable.
//! Only `settle`, on the loop, makes it writable again. So the loop sees every pause that a
//! producer has seen, and can notify the waiters. The weight is negative for a moment if the loop
//! takes a message before its producer has added the weight.

use super::primitives::{AtomicUsize, Ordering};
use crate::buffer::WaterMark;

/// The word's lowest bit: the channel is not writable.
const PAUSED: usize = 1;

/// The second bit: a producer has seen the pause.
const SEEN: usize = 2;

/// Weight and writability of one channel's output.
#[derive(Debug, Default)]
pub(crate) struct WriteGauge(AtomicUsize);

/// A weight to compare with a gauge, in the gauge's representation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CalmWeight(isize);

impl CalmWeight {
    pub(crate) fn new(weight: usize) -> Self {
        CalmWeight(word_of(weight.min(isize::MAX as usize >> 2) as isize, 0) as isize)
    }
}

const fn weight_of(word: usize) -> isize {
    word as isize >> 2
}

const fn word_of(weight: isize, state: usize) -> usize {
    (weight as usize) << 2 | state
}

const fn is_paused(word: usize) -> bool {
    word & PAUSED != 0
}

/// Returns whether the weight is above the mark. A negative weight is not.
fn is_above(weight: isize, mark: usize) -> bool {
    usize::try_from(weight).is_ok_and(|weight| weight > mark)
}

fn is_below(weight: isize, mark: usize) -> bool {
    !usize::try_from(weight).is_ok_and(|weight| weight >= mark)
}

impl WriteGauge {
    /// Sets the initial state, before producers use the gauge.
    pub(crate) fn begin(&self, weight: usize, writable: bool) {
        self.0.store(word_of(weight as isize, if writable { 0 } else { PAUSED | SEEN }), Ordering::Release);
    }

    /// Returns whether producers may continue. The loop will see the end of a pause reported here.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        let word = self.0.load(Ordering::Acquire);
        !is_paused(word) || word & SEEN == 0 && !self.see_pause()
    }

    /// Records that a producer has seen the pause. Returns `false` if it has just ended.
    #[cold]
    fn see_pause(&self) -> bool {
        let see = |word| if is_paused(word) { word | SEEN } else { word };
        !self.change(see)
    }

    /// Like [`WriteGauge::is_writable`], for callers that do not wait for the end of a pause.
    pub(crate) fn has_room(&self) -> bool {
        !is_paused(self.0.load(Ordering::Acquire))
    }

    /// Returns whether the channel is writable and its weight is below `weight`.
    #[inline]
    pub(crate) fn is_calm(&self, weight: CalmWeight) -> bool {
        let word = self.0.load(Ordering::Acquire);
        !is_paused(word) && (word as isize) < weight.0
    }

    /// Returns the weight added so far. Weight of queued messages may be missing.
    pub(crate) fn weight(&self) -> usize {
        usize::try_from(weight_of(self.0.load(Ordering::Relaxed))).unwrap_or(0)
    }

    /// Adds the weight of a queued message. The channel becomes unwritable above `high`.
    pub(crate) fn add(&self, weight: usize, high: usize) {
        self.change(|word| {
            let sum = weight_of(word).wrapping_add(weight as isize);
            word_of(sum, if is_above(sum, high) { word & SEEN | PAUSED } else { word & (SEEN | PAUSED) })
        });
    }

    /// Returns whether the channel would be writable if the weight changed by `delta`. Called only
    /// on the loop.
    #[inline]
    pub(crate) fn would_be_writable(&self, delta: isize, mark: WaterMark) -> bool {
        let word = self.0.load(Ordering::Acquire);
        let weight = weight_of(word).wrapping_add(delta);
        if is_paused(word) { is_below(weight, mark.low()) } else { !is_above(weight, mark.high()) }
    }

    /// Changes the weight by `delta` and returns whether the channel is writable. Called only on
    /// the loop.
    ///
    /// `was` is the result of the loop's last call. If a producer has seen a pause that began since
    /// then, the first result is `false` regardless of the weight. So the handler is notified of
    /// each change in turn. A pause that ends unseen leaves no trace.
    #[inline]
    pub(crate) fn settle(&self, delta: isize, mark: WaterMark, was: bool) -> bool {
        let word = self.0.load(Ordering::Acquire);
        let next = settled(word, delta, mark, was);
        if next != word {
            return self.change(|word| settled(word, delta, mark, was));
        }
        !is_paused(word)
    }

    /// Replaces the word by the result of `next`. Returns whether the channel is then writable.
    fn change(&self, next: impl Fn(usize) -> usize) -> bool {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let changed = next(word);
            match self.0.compare_exchange_weak(word, changed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return !is_paused(changed),
                Err(current) => word = current,
            }
        }
    }
}

fn settled(word: usize, delta: isize, mark: WaterMark, was: bool) -> usize {
    let weight = weight_of(word).wrapping_add(delta);
    let state = match word & (PAUSED | SEEN) {
        0 if is_above(weight, mark.high()) => PAUSED | SEEN,
        state if state & SEEN != 0 && was => state,
        // The handler knows of the pause, or no producer has seen it.
        state if state != 0 && !is_below(weight, mark.low()) => state | SEEN,
        _ => 0,
    };
    word_of(weight, state)
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn mark() -> WaterMark {
        WaterMark::new(10, 20).expect("a mark")
    }

    #[test]
    fn only_the_loop_makes_the_channel_writable_again() {
        let gauge = WriteGauge::default();
        gauge.add(20, mark().high());
        assert!(gauge.is_writable(), "at the mark");
        gauge.add(1, mark().high());
        assert!(!gauge.is_writable());
        assert!(!gauge.settle(-21, mark(), true), "the loop sees the pause first");
        assert!(gauge.settle(0, mark(), false));
        assert_eq!(gauge.weight(), 0);
    }

    #[test]
    fn an_unseen_pause_leaves_no_trace() {
        let gauge = WriteGauge::default();
        gauge.add(50, mark().high());
        assert!(!gauge.has_room());
        assert!(gauge.settle(-41, mark(), true), "9 are left");
        gauge.add(50, mark().high());
        assert!(!gauge.settle(-41, mark(), true), "18 are left");
        assert!(gauge.settle(-9, mark(), false));
    }

    #[test]
    fn the_state_stays_between_the_marks() {
        let gauge = WriteGauge::default();
        gauge.begin(15, false);
        assert!(!gauge.settle(0, mark(), false));
        assert!(!gauge.would_be_writable(-5, mark()), "10 are not below 10");
        assert!(gauge.would_be_writable(-6, mark()));
        assert!(gauge.settle(-6, mark(), false));
        assert!(gauge.settle(11, mark(), true), "20 are not above 20");
        assert!(!gauge.settle(1, mark(), true));
    }

    #[test]
    fn a_message_may_be_taken_before_it_was_added() {
        let gauge = WriteGauge::default();
        assert!(gauge.settle(-500, mark(), true));
        assert_eq!(gauge.weight(), 0);
        gauge.add(500, mark().high());
        assert!(gauge.is_writable(), "the weight is zero again");
    }

    #[test]
    fn every_pause_ends_in_every_interleaving() {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let gauge = Arc::new(WriteGauge::default());
            let (sender, receiver) = std::sync::mpsc::channel::<usize>();
            let producers: Vec<_> = (0..2)
                .map(|_| {
                    let (gauge, sender) = (gauge.clone(), sender.clone());
                    std::thread::spawn(move || {
                        for weight in 1..50 {
                            sender.send(weight).expect("the loop is there");
                            gauge.add(weight, mark().high());
                        }
                    })
                })
                .collect();
            drop(sender);
            let mut was = true;
            for weight in receiver {
                was = gauge.settle(-(weight as isize), mark(), was);
            }
            producers.into_iter().for_each(|producer| producer.join().expect("no panic"));
            // Like the loop, check again until nothing changes.
            while gauge.settle(0, mark(), was) != was {
                was = !was;
            }
            assert!(was && gauge.is_writable());
            assert_eq!(gauge.weight(), 0);
        }
    }
}
