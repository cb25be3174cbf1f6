//! `TimerRun`: a timer that has left the window and has not ended.

use super::permit::Permit;
use crate::durable::store::TimerRow;
use std::time::Duration;

/// What a run waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RunPhase {
    /// For the store, before the handler is called: a claim, or the end of an at-most-once run.
    Permission,
    /// For its turn to be handed to the handler.
    Ready,
    /// For the handler's answer.
    TopicHandler,
    /// For the store, which ends it.
    End,
}

/// A run of a timer.
#[derive(Debug)]
pub(super) struct TimerRun {
    pub(super) row: TimerRow,
    pub(super) phase: RunPhase,
    /// What the timer took when the run began. Its handler may keep that much for as long as the
    /// run is open, though the payload is handed over.
    bytes: usize,
    /// Whether the timer has got a longer payload since the run began.
    pub(super) has_grown: bool,
    /// The number of this run, by which its answer is known.
    pub(super) number: u64,
    /// When the run is given up, in nanoseconds of the loop.
    pub(super) deadline: Option<u64>,
    /// The next run of a periodic timer.
    pub(super) next: Option<i64>,
    /// The time after which `next` was searched for.
    pub(super) after: i64,
    /// The number of missed runs that this one stands for.
    pub(super) missed: u64,
    /// A newer state of the timer. If another change made it, the store refuses the end of the run.
    /// Of an at-most-once run that has ended, the state after it. Few runs have one, so it is in a
    /// box.
    pub(super) replaced: Option<Box<TimerRow>>,
    /// Counts the run among those of its topic until it is answered.
    pub(super) permit: Option<Permit>,
}

impl TimerRun {
    pub(super) fn new(row: TimerRow) -> Self {
        TimerRun {
            bytes: row.weight(),
            has_grown: false,
            after: row.scheduled,
            row,
            phase: RunPhase::End,
            number: 0,
            deadline: None,
            next: None,
            missed: 0,
            replaced: None,
            permit: None,
        }
    }

    /// Replaces the payload of a run that was not handed to its handler.
    pub(super) fn set_payload(&mut self, payload: Vec<u8>) {
        self.row.payload = payload;
        let bytes = std::mem::replace(&mut self.bytes, self.row.weight());
        self.has_grown |= self.bytes > bytes;
    }

    /// Returns the number of this attempt, from 1.
    pub(super) fn attempt(&self) -> u32 {
        self.row.attempt()
    }

    /// Returns about how many bytes the run takes.
    pub(super) fn weight(&self) -> usize {
        self.bytes + self.replaced.as_ref().map_or(0, |row| row.weight())
    }
}

/// A run that is handed to its handler.
#[derive(Debug)]
pub(in crate::durable) struct Firing {
    /// The timer, without its schedule.
    pub(in crate::durable) row: TimerRow,
    /// The number of the run.
    pub(in crate::durable) run: u64,
    /// When the run is given up, by the wall clock at its begin, in milliseconds since 1970.
    pub(in crate::durable) deadline: Option<i64>,
    pub(in crate::durable) missed: u64,
    /// The time since the scheduled time.
    pub(in crate::durable) lateness: Duration,
    /// The time since the due time, in milliseconds.
    pub(in crate::durable) since_due: u64,
    /// The end of the lease, in nanoseconds of the loop. The handler must not be called from then
    /// on. `None` without a lease, and for a run that the store has ended.
    pub(in crate::durable) valid_until: Option<u64>,
}
