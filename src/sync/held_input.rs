//! What is held of a channel's input, and whether that pauses its reading.
//!
//! Always holds: whatever the order of steps, each pause is ended once: by one of those who give back, who has to tell the
//! channel's loop, or by the addition itself. The loop's thread adds; any thread gives back.
//!
//! Each side changes the sum and then exchanges `paused`. Of two exchanges one is the later, and sees all that came before the
//! earlier one: so either who gives back finds the pause, or the addition, which looks at the sum once more, finds what
//! was given back. Acquire and release are enough for that.

use super::primitives::{AtomicBool, AtomicUsize, Ordering};
use crate::buffer::WaterMark;

/// The sum of what is held of one channel, and whether that pauses its reading.
#[derive(Debug, Default)]
pub(crate) struct HeldInput {
    bytes: AtomicUsize,
    paused: AtomicBool,
}

impl HeldInput {
    /// Adds; whether reading is to pause. On the loop only.
    pub(crate) fn add(&self, bytes: usize, mark: WaterMark) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::AcqRel);
        if before.saturating_add(bytes) <= mark.high() || self.paused.swap(true, Ordering::AcqRel) {
            return false;
        }
        // What was given back meanwhile found nothing paused, and has told nobody.
        if self.bytes.load(Ordering::Acquire) < mark.low() {
            return !self.paused.swap(false, Ordering::AcqRel);
        }
        true
    }

    /// Takes away; whether the loop is to be told that reading may go on.
    pub(crate) fn give_back(&self, bytes: usize, mark: WaterMark) -> bool {
        // The sum wraps around, and back again, where a program holds more than there can be.
        let left = self.bytes.fetch_sub(bytes, Ordering::AcqRel).wrapping_sub(bytes);
        left < mark.low() && self.paused.swap(false, Ordering::AcqRel)
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Ordering::Relaxed)
    }

    /// For the loop, which alone pauses: who ends a pause that it still sees here will tell it of that.
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
    fn pauses_above_the_high_mark_and_goes_on_below_the_low_one() {
        let holding = HeldInput::default();
        assert!(!holding.add(20, mark()), "at the mark");
        assert!(holding.add(1, mark()));
        assert!(!holding.add(5, mark()), "paused already");
        assert!(!holding.give_back(16, mark()), "10 are not below 10");
        assert!(holding.give_back(1, mark()));
        assert!(!holding.give_back(9, mark()), "told once");
        assert!(!holding.is_paused());
    }

    #[test]
    fn whatever_the_threads_do_reading_goes_on_in_the_end() {
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
