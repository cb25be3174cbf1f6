//! The facts that are kept of a run.

use super::{Counters, failure::Failure};
use crate::machine::simulated::{Fault, Operation, Record, States};
use std::time::Duration;

/// The result of a run, and the facts that are kept of it.
pub(super) type Played = (Result<(), Failure>, SeedRun);

/// The facts that are kept of a run.
pub(super) struct SeedRun {
    pub(super) hash: u64,
    pub(super) events: u64,
    pub(super) elapsed: Duration,
    pub(super) records: Vec<Record>,
    /// The kinds that have happened, and how often.
    pub(super) faults: Vec<(Fault, u64)>,
    /// `None` if there were too many to be kept.
    pub(super) operations: Option<Vec<Operation>>,
    pub(super) reached: Counters,
    pub(super) states: States,
    /// The message of the failure.
    pub(super) message: Option<String>,
}
