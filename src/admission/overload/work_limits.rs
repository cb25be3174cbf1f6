//! The limits of one loop for each class of work, and the counts of admitted and refused work.
//!
//! Each class has a number of permits that are left. The controller adds permits as time passes,
//! and removes the limit when the loop has recovered. An unlimited class costs a load and an
//! addition.
//!
//! Invariants: only the controller makes a class limited or unlimited. Refused work has used no
//! permit. Any thread may call [`WorkLimits::admit`]: a listener asks the loop that would serve
//! the connection, and a broadcaster the loops of the members.

use super::work::Work;
use crate::{clock::nanos, error::Overloaded, sync::Random};
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

/// The number of permits of an unlimited class.
const UNLIMITED: u64 = u64::MAX;

/// The limits of one loop.
#[derive(Debug)]
pub(crate) struct WorkLimits {
    classes: [ClassLimit; Work::ALL.len()],
    /// The mean of the hints for refused clients, in nanoseconds.
    retry_after: AtomicU64,
    /// The random numbers of the loop.
    random: Arc<Random>,
    target: Duration,
    patience: Duration,
}

#[derive(Debug)]
struct ClassLimit {
    left: AtomicU64,
    admitted: AtomicU64,
    refused: AtomicU64,
}

/// Work of one class since the start of the loop, or in a window.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct WorkCount {
    pub(super) admitted: u64,
    pub(super) refused: u64,
}

impl WorkCount {
    pub(super) fn since(self, before: WorkCount) -> WorkCount {
        WorkCount {
            admitted: self.admitted.wrapping_sub(before.admitted),
            refused: self.refused.wrapping_sub(before.refused),
        }
    }

    pub(super) fn is_none(self) -> bool {
        self == WorkCount::default()
    }
}

impl WorkLimits {
    /// Creates limits that admit everything. Until the controller sets another one, the mean hint
    /// for refused clients is `patience`. That is also the longest time for which an unfinished
    /// handshake waits for its turn.
    pub(super) fn new(target: Duration, patience: Duration, random: Arc<Random>) -> Self {
        let class = |_| ClassLimit {
            left: AtomicU64::new(UNLIMITED),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        let classes = Work::ALL.map(class);
        WorkLimits { classes, retry_after: AtomicU64::new(nanos(patience)), random, target, patience }
    }

    /// Creates limits that refuse everything, for tests of programs.
    pub(crate) fn refusing(random: Arc<Random>) -> Self {
        let limits = Self::new(Duration::from_millis(50), Duration::from_secs(1), random);
        Work::ALL.iter().for_each(|work| limits.limit(*work, 0));
        limits
    }

    fn class(&self, work: Work) -> &ClassLimit {
        &self.classes[work as usize]
    }

    /// Admits or refuses work, and counts it.
    ///
    /// # Errors
    /// The time after which the client should try again.
    #[inline]
    pub(crate) fn admit(&self, work: Work) -> Result<(), Overloaded> {
        let class = self.class(work);
        let is_admitted = class.left.load(Relaxed) == UNLIMITED || class.take();
        if is_admitted {
            class.admitted.fetch_add(1, Relaxed);
            return Ok(());
        }
        Err(self.refuse(work))
    }

    /// Counts work as refused, for another reason than its limit.
    #[cold]
    pub(crate) fn refuse(&self, work: Work) -> Overloaded {
        self.class(work).refused.fetch_add(1, Relaxed);
        let mean = self.retry_after.load(Relaxed);
        Overloaded::new(Duration::from_nanos(mean / 2 + self.random.below(mean)))
    }

    /// Returns the number of refusals since the start of the loop.
    pub(crate) fn refused(&self, work: Work) -> u64 {
        self.class(work).refused.load(Relaxed)
    }

    /// Returns the number of classes that are limited now.
    pub(crate) fn level(&self) -> u64 {
        self.classes.iter().map(|class| u64::from(class.left.load(Relaxed) != UNLIMITED)).sum()
    }

    pub(crate) fn target(&self) -> Duration {
        self.target
    }

    /// Returns the longest time for which an unfinished handshake waits for its turn.
    pub(crate) fn patience(&self) -> Duration {
        self.patience
    }

    // ---- the controller ----

    pub(super) fn count(&self, work: Work) -> WorkCount {
        let class = self.class(work);
        WorkCount { admitted: class.admitted.load(Relaxed), refused: class.refused.load(Relaxed) }
    }

    pub(super) fn set_retry_after(&self, mean: u64) {
        self.retry_after.store(mean, Relaxed);
    }

    /// Limits a class to this number of permits.
    pub(super) fn limit(&self, work: Work, permits: u64) {
        self.class(work).left.store(permits, Relaxed);
    }

    pub(super) fn lift(&self, work: Work) {
        self.class(work).left.store(UNLIMITED, Relaxed);
    }

    /// Adds permits to a limited class, up to `most`.
    pub(super) fn add(&self, work: Work, permits: u64, most: u64) {
        let add = |left: u64| (left != UNLIMITED).then(|| left.saturating_add(permits).min(most));
        let _ = self.class(work).left.fetch_update(Relaxed, Relaxed, add);
    }
}

impl ClassLimit {
    /// Takes a permit of a class that is probably limited.
    #[cold]
    fn take(&self) -> bool {
        let take = |left: u64| if left == UNLIMITED { Some(left) } else { left.checked_sub(1) };
        self.left.fetch_update(Relaxed, Relaxed, take).is_ok()
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    fn limits() -> WorkLimits {
        WorkLimits::new(Duration::from_millis(50), Duration::from_secs(1), Arc::new(Random::new(1)))
    }

    #[test]
    fn an_unlimited_class_admits_everything_and_counts_it() {
        let limits = limits();
        assert!((0..1000).all(|_| limits.admit(Work::Login).is_ok()));
        assert_eq!(limits.count(Work::Login), WorkCount { admitted: 1000, refused: 0 });
        assert!(limits.count(Work::Accept).is_none());
        assert_eq!(limits.level(), 0);
    }

    #[test]
    fn a_limited_class_admits_its_permits() {
        let limits = limits();
        limits.limit(Work::Accept, 2);
        assert_eq!(limits.level(), 1);
        let admitted = (0..10).filter(|_| limits.admit(Work::Accept).is_ok()).count();
        assert_eq!((admitted, limits.refused(Work::Accept)), (2, 8));
        limits.add(Work::Accept, 9, 3);
        let admitted = (0..10).filter(|_| limits.admit(Work::Accept).is_ok()).count();
        assert_eq!((admitted, limits.refused(Work::Accept)), (3, 15));
        limits.lift(Work::Accept);
        limits.add(Work::Accept, 1, 1);
        assert!((0..10).all(|_| limits.admit(Work::Accept).is_ok()), "adding permits sets no limit");
        assert_eq!(limits.level(), 0);
    }

    #[test]
    fn hints_are_spread_around_their_mean() {
        let limits = limits();
        let hints: Vec<f64> =
            (0..1000).map(|_| limits.refuse(Work::Login).retry_after().as_secs_f64()).collect();
        assert!(hints.iter().all(|hint| (0.5..1.5).contains(hint)));
        let mean = hints.iter().sum::<f64>() / 1000.0;
        assert!((mean - 1.0).abs() < 0.05, "{mean}");
    }
}
