//! What a round has found, and its last operations.
//!
//! Shared by all threads and loops of a round.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Instant,
};

/// The operations that a violation prints.
const LAST_OPERATIONS: usize = 40;

/// The violations of one round that are printed; the others are counted.
const MAX_VIOLATIONS: usize = 8;

/// What must hold in every round.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Invariant {
    /// A completion completes, once.
    Completions,
    /// Accepted messages arrive once, unchanged and in order.
    Order,
    /// Accepted messages arrive, or the channel ends with an error.
    Delivery,
    /// A connection that is cut does not look like one that has ended.
    HonestEnd,
    /// `inactive` follows `active` once, and the handler is dropped.
    Lifecycle,
    /// Who waits for writability is notified, and a permit is honoured.
    Writability,
    /// Broadcast reports add up, and count every message that arrived.
    Broadcasts,
    /// The library does not panic, and reports no error without a cause.
    NoFault,
    /// The round ends, and no loop spins.
    Progress,
    /// A query whose completion is dropped keeps no memory.
    DroppedQueries,
    /// Memory, descriptors and threads return to their initial numbers.
    Resources,
}

pub(crate) struct Report {
    pub(crate) seed: u64,
    began: Instant,
    violations: Mutex<Vec<(Invariant, String)>>,
    operations: Mutex<VecDeque<String>>,
    pub(crate) count: AtomicU64,
    /// Messages that have arrived.
    pub(crate) messages: AtomicU64,
    /// What the round is doing.
    phase: Mutex<&'static str>,
    /// What is known to be violated, and not looked for.
    allowed: Vec<Invariant>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Report {
    pub(crate) fn new(seed: u64, allowed: &[Invariant]) -> Self {
        Report {
            seed,
            began: Instant::now(),
            violations: Mutex::default(),
            operations: Mutex::new(VecDeque::with_capacity(LAST_OPERATIONS)),
            count: AtomicU64::new(0),
            messages: AtomicU64::new(0),
            phase: Mutex::new("building"),
            allowed: allowed.to_vec(),
        }
    }

    pub(crate) fn violation(&self, invariant: Invariant, detail: impl fmt::Display) {
        if self.allowed.contains(&invariant) {
            return;
        }
        let text = format!("{:.3?} after the start: {detail}", self.began.elapsed());
        lock(&self.violations).push((invariant, text));
    }

    pub(crate) fn is_clean(&self) -> bool {
        lock(&self.violations).is_empty()
    }

    pub(crate) fn invariants(&self) -> Vec<Invariant> {
        let mut found: Vec<_> = lock(&self.violations).iter().map(|(invariant, _)| *invariant).collect();
        found.sort();
        found.dedup();
        found
    }

    pub(crate) fn operation(&self, thread: usize, number: usize, what: &impl fmt::Debug) {
        self.count.fetch_add(1, Relaxed);
        let mut operations = lock(&self.operations);
        if operations.len() == LAST_OPERATIONS {
            operations.pop_front();
        }
        operations
            .push_back(format!("{:9.3?} thread {thread} step {number}: {what:?}", self.began.elapsed()));
    }

    pub(crate) fn enter(&self, phase: &'static str) {
        *lock(&self.phase) = phase;
    }

    pub(crate) fn phase(&self) -> &'static str {
        *lock(&self.phase)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "the last operations of seed {} ({}):", self.seed, self.phase())?;
        for operation in lock(&self.operations).iter() {
            writeln!(f, "  {operation}")?;
        }
        let violations = lock(&self.violations);
        for (invariant, detail) in violations.iter().take(MAX_VIOLATIONS) {
            writeln!(f, "VIOLATION seed {} {invariant:?}: {detail}", self.seed)?;
        }
        let more = violations.len().saturating_sub(MAX_VIOLATIONS);
        if more > 0 { writeln!(f, "and {more} more") } else { Ok(()) }
    }
}
