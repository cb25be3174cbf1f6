//! `Run`: a timer that has left the window and has not ended.

use super::Permit;
use crate::durable::store::TimerRow;
use std::time::Duration;

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// For the store, before the handler is called: a claim, or the end of an at-most-once run.
    Permission,
    /// For its turn to be handed to the handler.
    Ready,
    /// For the handler's answer.
    Handler,
    /// For the store, which ends it.
    End,
}

/// A run of a timer.
#[derive(Debug)]
pub(super) struct Run {
    pub(super) row: TimerRow,
    pub(super) phase: Phase,
    /// The next run of a periodic timer.
    pub(super) next: Option<i64>,
    /// The time after which `next` was searched for.
    pub(super) after: i64,
    /// The number of missed runs that this one stands for.
    pub(super) missed: u64,
    /// A newer state of the timer. If another change made it, the store refuses the end of the run.
    /// Of an at-most-once run that has ended, the state after it.
    pub(super) replaced: Option<TimerRow>,
    /// Counts the run among those of its topic until it is answered.
    pub(super) permit: Option<Permit>,
}

impl Run {
    pub(super) fn new(row: TimerRow) -> Self {
        Run {
            after: row.scheduled,
            row,
            phase: Phase::End,
            next: None,
            missed: 0,
            replaced: None,
            permit: None,
        }
    }
}

/// A run that is handed to its handler.
#[derive(Debug)]
pub(in crate::durable) struct Firing {
    pub(in crate::durable) row: TimerRow,
    pub(in crate::durable) missed: u64,
    /// The time since the scheduled time.
    pub(in crate::durable) lateness: Duration,
}
