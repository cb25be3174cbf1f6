//! Why a run has failed.

use super::replay::Replay;
use crate::machine::simulated::{FaultRecord, Record};
use std::{fmt, time::Duration};

/// How many of the last faults and of the last events a report shows.
const SHOWN_FAULTS: usize = 20;
const SHOWN_EVENTS: usize = 10;

/// A failed run of a simulation: the violated check, the time, and the faults that had happened. As
/// text, it also has the errors that programs had returned, and the last events.
#[derive(Clone)]
#[non_exhaustive]
pub struct Failure {
    /// The seed, with which the run is repeated.
    pub seed: u64,
    /// What was violated.
    pub message: String,
    /// The errors that programs had returned.
    pub(super) program_errors: Box<[String]>,
    /// The virtual time of the violation.
    pub at: Duration,
    /// The first faults of the run, at most as many as the world keeps.
    pub(super) happened: Vec<FaultRecord>,
    /// The last events before the failure.
    pub(super) last_events: Box<[Record]>,
    /// `None` if too much has happened, or a thread is stuck.
    pub(super) replay: Option<Box<Replay>>,
    /// An exploration has run the seed. Only explorations read the environment variables.
    pub(super) is_explored: bool,
}

impl Failure {
    /// Returns the faults that had happened, in the order of time: the first 100,000.
    pub fn faults(&self) -> impl Iterator<Item = String> + '_ {
        self.happened.iter().map(ToString::to_string)
    }

    /// Returns the run as text: its seed, faults and operations. As the value of the environment
    /// variable `NETWHEEL_SIMULATION`, or passed to [`Exploration::replay`], it repeats the run.
    /// `None` if too much has happened for that, or if a thread is stuck.
    ///
    /// [`Exploration::replay`]: super::Exploration::replay
    pub fn replay(&self) -> Option<String> {
        self.replay.as_ref().map(ToString::to_string)
    }

    /// Returns the last events before the failure, at most 64, in the order of time, one line each.
    /// [`Simulation::keep_trace`] keeps the first events of a run, and `NETWHEEL_SIMULATION_TRACE`
    /// writes all of them.
    ///
    /// [`Simulation::keep_trace`]: super::Simulation::keep_trace
    pub fn trace(&self) -> impl Iterator<Item = String> + '_ {
        self.last_events.iter().map(ToString::to_string)
    }
}

impl fmt::Debug for Failure {
    /// Formats the failure like `Display`, so that `unwrap` shows it in a few lines.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} at {:?}: {}", self.seed, self.at, self.message)?;
        let left_out = self.happened.len().saturating_sub(SHOWN_FAULTS);
        if left_out > 0 {
            write!(f, "\n  {left_out} earlier faults")?;
        }
        self.happened[left_out..].iter().try_for_each(|fault| write!(f, "\n  {fault}"))?;
        self.program_errors.iter().try_for_each(|error| write!(f, "\n{error}"))?;
        if !self.last_events.is_empty() {
            write!(f, "\nthe last events:")?;
            let left_out = self.last_events.len().saturating_sub(SHOWN_EVENTS);
            self.last_events[left_out..].iter().try_for_each(|event| write!(f, "\n  {event}"))?;
        }
        match self.replay() {
            _ if !self.is_explored => Ok(()),
            // A longer text does not fit on a command line.
            Some(run) if run.len() <= 4096 => write!(f, "\nrepeat with NETWHEEL_SIMULATION='{run}'"),
            _ => write!(f, "\nrepeat with NETWHEEL_SIMULATION={}", self.seed),
        }
    }
}

impl std::error::Error for Failure {}

impl Failure {
    pub(super) fn of(seed: u64) -> Self {
        Failure {
            seed,
            message: String::new(),
            program_errors: Box::default(),
            at: Duration::ZERO,
            happened: Vec::new(),
            last_events: Box::default(),
            replay: None,
            is_explored: false,
        }
    }
}

impl From<Failure> for crate::error::Error {
    fn from(failure: Failure) -> Self {
        crate::error::Error::other(failure)
    }
}

impl From<crate::error::Error> for Failure {
    fn from(error: crate::error::Error) -> Self {
        Failure { message: format!("{error:#}"), ..Failure::of(0) }
    }
}
