//! The result of a broadcast.
//!
//! Invariants: each part of a broadcast ends once. After the last one the report is complete, and
//! counts each member once. It is completed without a lock. Shared by the broadcaster and the
//! loops.

use super::waiting::WaitingDeliveries;
use crate::sync::{Completer, Completion, completion_of_all};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A broadcast that is on its way; dropping this changes nothing about it.
#[derive(Debug)]
pub struct Broadcast {
    pub(super) members: usize,
    pub(super) loops: Box<[u32]>,
    pub(super) unreached: usize,
    pub(super) progress: Arc<Progress>,
}

/// How many members a broadcast has come to, and how many it has not.
///
/// `members` is the sum of all the others. What a member has missed although it is still there is in `dropped`, `refused`,
/// `failed` and `unreached`; who was not there any more in `gone`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BroadcastReport {
    /// Members that it was for.
    pub members: usize,
    /// The message is in their buffers, or with the kernel.
    pub written: usize,
    /// Their policy ([`Overflow::DropNewest`](crate::channel::Overflow::DropNewest)) has dropped it.
    pub dropped: usize,
    /// They had no room for it ([`Overflow::Refuse`](crate::channel::Overflow::Refuse)); their handlers were told.
    pub refused: usize,
    /// They had no room for it, and were closed for that ([`Overflow::Close`](crate::channel::Overflow::Close)).
    pub closed: usize,
    /// It could not be encoded.
    pub failed: usize,
    /// They were closed or closing before it came to them, or had ended their output.
    pub gone: usize,
    /// Their loop did not take it: its queue was full, or it has ended.
    pub unreached: usize,
}

impl BroadcastReport {
    pub(super) fn counted(&self) -> usize {
        self.written + self.dropped + self.refused + self.closed + self.failed + self.gone + self.unreached
    }

    fn add(&mut self, part: &BroadcastReport) {
        self.members += part.members;
        self.written += part.written;
        self.dropped += part.dropped;
        self.refused += part.refused;
        self.closed += part.closed;
        self.failed += part.failed;
        self.gone += part.gone;
        self.unreached += part.unreached;
    }
}

impl Broadcast {
    /// Members that it is for.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Loops that these are on.
    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    /// How many of the members it will not come to, because their loop does not take it: its queue is full, or it has ended.
    pub fn unreached(&self) -> usize {
        self.unreached
    }

    /// What came of it, once it has come to the last member.
    ///
    /// It never fails. Waiting for it on the loop of a member is an error, not a deadlock.
    pub fn report(self) -> Completion<BroadcastReport> {
        let (completer, completion) = completion_of_all(self.loops);
        let mut state = self.progress.lock();
        if state.left > 0 {
            state.completer = Some(completer);
        } else {
            let report = state.report;
            drop(state);
            completer.complete(Ok(report));
        }
        completion
    }
}

/// How far a broadcast has come.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<ReportState>,
    /// What the group has under way; this broadcast is counted there until it has come to everybody.
    waiting: Arc<WaitingDeliveries>,
}

struct ReportState {
    /// Parts that have not ended.
    left: usize,
    report: BroadcastReport,
    completer: Option<Completer<BroadcastReport>>,
}

impl std::fmt::Debug for ReportState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("left", &self.left).field("report", &self.report).finish()
    }
}

impl Progress {
    /// Of a broadcast in so many parts.
    pub(super) fn new(parts: usize, waiting: Arc<WaitingDeliveries>) -> Self {
        if parts == 0 {
            waiting.end();
        }
        let state = ReportState { left: parts, report: BroadcastReport::default(), completer: None };
        Progress { state: Mutex::new(state), waiting }
    }

    fn lock(&self) -> MutexGuard<'_, ReportState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One of the parts has ended.
    pub(super) fn end_part(&self, part: &BroadcastReport) {
        self.waiting.end_part(part.members);
        let mut state = self.lock();
        state.report.add(part);
        state.left -= 1;
        if state.left > 0 {
            return;
        }
        let (report, completer) = (state.report, state.completer.take());
        drop(state);
        self.waiting.end();
        if let Some(completer) = completer {
            completer.complete(Ok(report));
        }
    }
}
