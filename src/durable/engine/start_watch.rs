//! `StartWatch`: when to look for timers that other connections have stored.

use crate::clock::nanos;
use std::time::Duration;

/// The pause after a hint, and between two looks under continuous hints.
const SHORTEST: Duration = Duration::from_millis(5);

/// The pause of a store that other processes may write, and no hint comes from them.
const LONGEST: Duration = Duration::from_secs(1);

/// Times are nanoseconds of the loop.
///
/// A hint comes before its transaction is committed, and nothing tells when that happens. So the
/// pauses after a hint double: the timer of a long transaction is found after about as long again.
#[derive(Debug)]
pub(super) struct StartWatch {
    /// Whether to go on looking without hints.
    is_regular: bool,
    pause: Duration,
    /// `None` without a reason to look, and during a look.
    look_at: Option<u64>,
    is_looking: bool,
}

impl StartWatch {
    pub(super) fn new(is_regular: bool) -> Self {
        StartWatch { is_regular, pause: LONGEST, look_at: is_regular.then_some(0), is_looking: false }
    }

    /// A timer is being stored in a transaction of the program.
    pub(super) fn hint(&mut self, now: u64) {
        self.pause = SHORTEST;
        if !self.is_looking {
            let at = now.saturating_add(nanos(SHORTEST));
            self.look_at = Some(self.look_at.map_or(at, |before| before.min(at)));
        }
    }

    /// Returns whether to look now. The caller then asks the store, and calls
    /// [`StartWatch::looked`] with the answer.
    pub(super) fn start_look(&mut self, now: u64) -> bool {
        let is_time = self.look_at.is_some_and(|at| at <= now);
        if is_time {
            self.look_at = None;
            self.is_looking = true;
        }
        is_time
    }

    /// Returns when to look.
    pub(super) fn look_at(&self) -> Option<u64> {
        self.look_at
    }

    pub(super) fn looked(&mut self, now: u64) {
        self.is_looking = false;
        let is_over = self.pause >= LONGEST;
        self.look_at = (self.is_regular || !is_over).then(|| now.saturating_add(nanos(self.pause)));
        self.pause = (self.pause * 2).min(LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Returns the times of all looks up to `end`, in milliseconds.
    fn looks(watch: &mut StartWatch, mut now: u64, end: u64) -> Vec<u64> {
        let mut times = Vec::new();
        while let Some(at) = watch.look_at().filter(|at| *at <= end * MS) {
            now = now.max(at);
            assert!(watch.start_look(now) && !watch.start_look(now));
            times.push(now / MS);
            watch.looked(now);
        }
        times
    }

    #[test]
    fn the_pauses_after_a_hint_double_until_the_regular_one() {
        let mut watch = StartWatch::new(true);
        assert_eq!(looks(&mut watch, 0, 3000), [0, 1000, 2000, 3000]);
        watch.hint(3500 * MS);
        let expected = [3505, 3510, 3520, 3540, 3580, 3660, 3820, 4140, 4780, 5780, 6780];
        assert_eq!(looks(&mut watch, 3500 * MS, 7000), expected);
    }

    #[test]
    fn without_other_writers_the_looks_end_after_a_hint() {
        let mut watch = StartWatch::new(false);
        assert_eq!(looks(&mut watch, 0, 5000).len(), 0);
        watch.hint(5000 * MS);
        assert_eq!(looks(&mut watch, 5000 * MS, 60_000).last(), Some(&6280));
    }

    #[test]
    fn a_hint_during_a_look_is_followed_by_another_one() {
        let mut watch = StartWatch::new(false);
        watch.hint(0);
        assert!(watch.start_look(5 * MS));
        watch.hint(6 * MS);
        assert_eq!(watch.look_at(), None);
        watch.looked(100 * MS);
        assert_eq!(watch.look_at(), Some(105 * MS));
    }
}
