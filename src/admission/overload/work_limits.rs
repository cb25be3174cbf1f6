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

/// The shortest mean of the hints, in targets.
const SHORTEST_HINT: u64 = 4;

/// The longest hint.
const LONGEST_HINT: u64 = 60_000_000_000;

/// The limits of one loop.
#[derive(Debug)]
pub(crate) struct WorkLimits {
    classes: [ClassLimit; Work::ALL.len()],
    /// The time in nanoseconds until the last of the refused clients returns.
    queue: AtomicU64,
    /// The time in nanoseconds between the returns of two refused clients.
    place_time: AtomicU64,
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
    /// Creates limits that admit everything. `patience` is the longest time for which an unfinished
    /// handshake waits for its turn.
    pub(super) fn new(target: Duration, patience: Duration, random: Arc<Random>) -> Self {
        let class = |_| ClassLimit {
            left: AtomicU64::new(UNLIMITED),
            admitted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        };
        let classes = Work::ALL.map(class);
        let (queue, place_time) = (AtomicU64::new(0), AtomicU64::new(0));
        WorkLimits { classes, queue, place_time, random, target, patience }
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
        self.admit_with(work, work.is_told())
    }

    /// Admits or refuses a new connection, and counts it. `has_farewell` says whether a client that
    /// is refused learns the hint.
    ///
    /// # Errors
    /// The time after which the client should try again.
    #[inline]
    pub(crate) fn admit_connection(&self, has_farewell: bool) -> Result<(), Overloaded> {
        self.admit_with(Work::Accept, has_farewell)
    }

    #[inline]
    fn admit_with(&self, work: Work, is_told: bool) -> Result<(), Overloaded> {
        let class = self.class(work);
        let is_admitted = class.left.load(Relaxed) == UNLIMITED || class.take();
        if is_admitted {
            class.admitted.fetch_add(1, Relaxed);
            return Ok(());
        }
        Err(self.refuse_with(work, is_told))
    }

    /// Counts work as refused, for another reason than its limit.
    pub(crate) fn refuse(&self, work: Work) -> Overloaded {
        self.refuse_with(work, work.is_told())
    }

    /// A client that does not learn the hint returns when it likes, so it takes no place.
    #[cold]
    fn refuse_with(&self, work: Work, is_told: bool) -> Overloaded {
        self.class(work).refused.fetch_add(1, Relaxed);
        let wait = if is_told {
            self.queue.fetch_add(self.place_time.load(Relaxed), Relaxed)
        } else {
            self.queue.load(Relaxed)
        };
        let shortest = nanos(self.target).saturating_mul(SHORTEST_HINT);
        let hint = wait.saturating_add(shortest / 2 + self.random.below(shortest));
        let hint =
            if hint < LONGEST_HINT { hint } else { LONGEST_HINT / 2 + self.random.below(LONGEST_HINT / 2) };
        Overloaded::new(Duration::from_nanos(hint))
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

    /// Sets the time between the returns of two refused clients.
    pub(super) fn set_place_time(&self, nanos: u64) {
        self.place_time.store(nanos, Relaxed);
    }

    /// Shortens the queue of refused clients by the time that has passed. Clients for whom the hint
    /// cannot be longer are not counted.
    pub(super) fn shorten_queue(&self, passed: u64) {
        let shorten = |queue: u64| Some(queue.min(LONGEST_HINT).saturating_sub(passed));
        let _ = self.queue.fetch_update(Relaxed, Relaxed, shorten);
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
    fn hints_are_places_in_a_queue() {
        let limits = limits();
        let hint = || limits.refuse(Work::Login).retry_after().as_secs_f64();
        assert!(
            (0..1000).all(|_| (0.1..0.3).contains(&hint())),
            "four targets, as long as nothing is measured"
        );
        limits.set_place_time(10_000_000);
        for place in 0..1000 {
            let wait = f64::from(place) / 100.0;
            assert!((wait + 0.1..wait + 0.3).contains(&hint()), "place {place}");
        }
        limits.shorten_queue(9_000_000_000);
        assert!((1.1..1.3).contains(&hint()));
        assert!((1.11..1.31).contains(&limits.refuse(Work::Bulk).retry_after().as_secs_f64()));
        for _ in 0..1000 {
            let _ = limits.refuse(Work::Handshake);
            let _ = limits.refuse(Work::Accept);
        }
        assert!((1.11..1.31).contains(&hint()), "who does not learn the hint takes no place");
        limits.set_place_time(1_000_000_000);
        (0..100).for_each(|_| _ = hint());
        assert!((0..1000).all(|_| (30.0..=60.0).contains(&hint())), "the longest hints are spread");
        limits.shorten_queue(59_000_000_000);
        assert!((1.1..1.3).contains(&hint()), "a full queue becomes shorter at once");
    }
}
