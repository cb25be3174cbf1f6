//! The result of a broadcast.
//!
//! Invariants: each part of a broadcast ends once. After the last one the report is complete, and
//! counts each member once. It is completed without a lock. Shared by the broadcaster and the
//! loops.

use super::waiting::WaitingDeliveries;
use crate::{
    channel::BroadcastReport,
    machine::Mutex,
    sync::{Completer, Completion, completion_of_all},
};
use std::sync::Arc;

/// A broadcast in progress. Dropping this does not affect the broadcast.
#[derive(Debug)]
pub struct Broadcast {
    pub(super) members: usize,
    pub(super) loops: Box<[u32]>,
    pub(super) unreached: usize,
    /// The loops that have refused it.
    #[cfg_attr(
        not(feature = "broker"),
        allow(dead_code, reason = "topics close the members of these loops")
    )]
    pub(super) unreached_loops: Vec<u32>,
    pub(super) progress: Arc<Progress>,
}

impl Broadcast {
    /// Returns the number of recipients.
    pub fn members(&self) -> usize {
        self.members
    }

    /// Returns the number of loops that have recipients.
    pub fn loops(&self) -> usize {
        self.loops.len()
    }

    /// Returns the number of members that the broadcast cannot reach, because their loop has
    /// refused it: its queue is full, or it has ended.
    pub fn unreached(&self) -> usize {
        self.unreached
    }

    /// Returns the loops that have refused the broadcast.
    #[cfg(feature = "broker")]
    pub(crate) fn unreached_loops(&self) -> &[u32] {
        &self.unreached_loops
    }

    /// Completes with the report when all members were processed.
    ///
    /// It never fails. Waiting for it on the loop of a member is an error, not a deadlock.
    pub fn report(self) -> Completion<BroadcastReport> {
        let (completer, completion) = completion_of_all(self.loops);
        let mut state = self.progress.state.lock();
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

/// The progress of a broadcast.
#[derive(Debug)]
pub(super) struct Progress {
    state: Mutex<ReportState>,
    /// The group's broadcasts in progress. This one is counted there until all its parts have
    /// ended.
    waiting: Arc<WaitingDeliveries>,
}

struct ReportState {
    /// Parts that have not ended yet.
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
    /// Creates the progress of a broadcast that has this number of parts.
    pub(super) fn new(parts: usize, waiting: Arc<WaitingDeliveries>) -> Self {
        if parts == 0 {
            waiting.end();
        }
        let state = ReportState { left: parts, report: BroadcastReport::default(), completer: None };
        Progress { state: Mutex::new(state), waiting }
    }

    /// Records that a part has ended.
    pub(super) fn end_part(&self, part: &BroadcastReport) {
        self.waiting.end_part(part.members);
        let mut state = self.state.lock();
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
