//! The amount of a channel's input that the program holds, and whether it pauses reading.
//!
//! The loop's thread adds bytes. Any thread gives them back.
//!
//! Invariant: in every interleaving, each pause ends exactly once. It is ended either by a call of
//! `give_back`, whose caller must notify the channel's loop, or by the addition itself.
//!
//! Each side changes the sum and then exchanges `paused`. The later of two exchanges sees all
//! writes made before the earlier one. So either `give_back` sees the pause, or the addition, which
//! reads the sum again, sees the bytes given back. Acquire and release ordering is sufficient for
//! that.

use super::primitives::{AtomicBool, AtomicU64, Ordering};
use crate::buffer::WaterMark;

/// The number of held bytes of one channel, and whether they pause its reading.
#[derive(Debug, Default)]
pub(crate) struct HeldInput {
    /// Wider than the bytes of one guard: each pause holds more than the high mark.
    bytes: AtomicU64,
    paused: AtomicBool,
}

impl HeldInput {
    /// Adds bytes. Returns whether reading must pause. Called only on the loop.
    pub(crate) fn add(&self, bytes: usize, mark: WaterMark) -> bool {
        let before = self.bytes.fetch_add(bytes as u64, Ordering::AcqRel);
        if before.saturating_add(bytes as u64) <= mark.high() as u64
            || self.paused.swap(true, Ordering::AcqRel)
        {
            return false;
        }
        // Bytes given back before the swap found no pause, so their caller did not notify the loop.
        if self.bytes.load(Ordering::Acquire) < mark.low() as u64 {
            return !self.paused.swap(false, Ordering::AcqRel);
        }
        true
    }

    /// Subtracts bytes. Returns whether the caller must notify the loop that reading can resume.
    pub(crate) fn give_back(&self, bytes: usize, mark: WaterMark) -> bool {
        // The sum wraps around and back again if a program holds more than `u64::MAX` bytes.
        let left = self.bytes.fetch_sub(bytes as u64, Ordering::AcqRel).wrapping_sub(bytes as u64);
        left < mark.low() as u64 && self.paused.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn bytes(&self) -> usize {
        usize::try_from(self.bytes.load(Ordering::Relaxed)).unwrap_or(usize::MAX)
    }

    /// Returns whether reading is paused. For the loop, the only thread that pauses: if this
    /// returns `true`, the loop will be notified of the end of the pause.
    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn mark() -> WaterMark {
        WaterMark::new(10, 20).expect("a mark")
    }

    #[test]
    fn pauses_above_the_high_mark_and_resumes_below_the_low_one() {
        let holding = HeldInput::default();
        assert!(!holding.add(20, mark()), "at the mark");
        assert!(holding.add(1, mark()));
        assert!(!holding.add(5, mark()), "paused already");
        assert!(!holding.give_back(16, mark()), "10 are not below 10");
        assert!(holding.give_back(1, mark()));
        assert!(!holding.give_back(9, mark()), "already resumed");
        assert!(!holding.is_paused());
    }

    #[test]
    fn reading_resumes_in_every_interleaving() {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let holding = Arc::new(HeldInput::default());
            let (sender, receiver) = std::sync::mpsc::channel::<usize>();
            let other = {
                let holding = holding.clone();
                std::thread::spawn(move || {
                    receiver.into_iter().filter(|bytes| holding.give_back(*bytes, mark())).count()
                })
            };
            let mut pauses = 0;
            for _ in 0..50 {
                pauses += usize::from(holding.add(7, mark()));
                sender.send(7).expect("the thread is there");
            }
            drop(sender);
            assert_eq!(other.join().expect("no panic"), pauses, "each pause is ended once");
            assert!(!holding.is_paused());
        }
    }
}
