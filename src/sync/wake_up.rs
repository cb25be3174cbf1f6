//! Waking a loop at most once per sleep.
//!
//! The loop publishes the deadline of its sleep, then checks its queue once more, then sleeps. A
//! submitter puts its task into the queue, then reads the published deadline. In every order of
//! these steps, one side sees the other (Dekker's algorithm; both sides have a sequentially
//! consistent fence between their store and their load). So a task never waits for a sleep to end.
//! Of several submitters, only the submitter that changes "asleep" to "awake" writes to the waker.
//! If the write fails, that submitter restores the state, and the next submitter writes again.
//!
//! Any thread submits. Only the loop's thread calls [`WakeUp::about_to_sleep`] and
//! [`WakeUp::awake`].

use super::primitives::{AtomicU64, Ordering, fence};

/// The loop is running and will check its queue without a wakeup.
const AWAKE: u64 = 0;

/// A sleep that the caller must end by a write to the waker.
#[derive(Debug, Clone, Copy)]
#[must_use = "the loop sleeps until the waker is written to"]
pub(crate) struct Asleep(u64);

pub(crate) struct WakeUp {
    /// [`AWAKE`], or the deadline of the sleep plus one, in the loop's time.
    asleep_until: AtomicU64,
}

impl WakeUp {
    pub(crate) fn new() -> Self {
        WakeUp { asleep_until: AtomicU64::new(AWAKE) }
    }

    /// Publishes that the loop sleeps until `deadline`. The loop must check its queue once more
    /// afterwards.
    pub(crate) fn about_to_sleep(&self, deadline: Option<u64>) {
        let until = deadline.unwrap_or(u64::MAX).saturating_add(1).max(1);
        self.asleep_until.store(until, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// Publishes that the loop is running. Does not write if that is the state already, because a
    /// write would slow down concurrent readers.
    pub(crate) fn awake(&self) {
        if self.asleep_until.load(Ordering::Relaxed) != AWAKE {
            self.asleep_until.store(AWAKE, Ordering::Relaxed);
        }
    }

    /// Returns whether the published sleep is still in effect, that is, no submitter has ended it.
    pub(crate) fn is_asleep(&self) -> bool {
        self.asleep_until.load(Ordering::Relaxed) != AWAKE
    }

    /// Returns the loop's sleep if the caller must end it. Called after submitting work that is due
    /// at `when` (0 means now).
    #[inline]
    pub(crate) fn must_wake(&self, when: u64) -> Option<Asleep> {
        fence(Ordering::SeqCst);
        let until = self.asleep_until.load(Ordering::Relaxed);
        let claimed = until != AWAKE
            && when < until - 1
            && self.asleep_until.compare_exchange(until, AWAKE, Ordering::Relaxed, Ordering::Relaxed).is_ok();
        claimed.then_some(Asleep(until))
    }

    /// Publishes a sleep again after the write to the waker failed. Does not replace a newer sleep.
    /// If the loop has already woken up by its deadline, the next submission causes one spurious
    /// wakeup.
    #[cold]
    pub(crate) fn restore(&self, asleep: Asleep) {
        let Asleep(until) = asleep;
        let _ = self.asleep_until.compare_exchange(AWAKE, until, Ordering::Relaxed, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn e_23_one_wake_per_sleep() {
        let wake = WakeUp::new();
        assert!(wake.must_wake(0).is_none(), "a running loop is not woken");
        wake.about_to_sleep(None);
        assert!(wake.must_wake(0).is_some());
        assert!(wake.must_wake(0).is_none(), "the first call has woken it");
        wake.awake();
        assert!(wake.must_wake(0).is_none());
    }

    #[test]
    fn a_sleep_that_could_not_be_ended_is_ended_by_the_next() {
        let wake = WakeUp::new();
        wake.about_to_sleep(Some(100));
        let asleep = wake.must_wake(0).unwrap();
        wake.restore(asleep);
        assert!(wake.must_wake(100).is_none(), "it is the same sleep");
        assert!(wake.must_wake(99).is_some());
        // The loop wakes by itself and starts a longer sleep.
        wake.awake();
        wake.about_to_sleep(Some(300));
        wake.restore(asleep);
        assert!(wake.must_wake(200).is_some(), "the newer sleep is still published");
    }

    #[test]
    fn e_15_a_timer_later_than_the_sleep_does_not_wake() {
        let wake = WakeUp::new();
        wake.about_to_sleep(Some(100));
        assert!(wake.must_wake(100).is_none());
        assert!(wake.must_wake(200).is_none());
        assert!(wake.must_wake(99).is_some());
        wake.about_to_sleep(Some(u64::MAX));
        assert!(wake.must_wake(0).is_some());
    }
}
