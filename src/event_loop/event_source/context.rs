//! The view that a callback has of its event source, and the actions that it returns.

use super::interest::{Interest, Readiness};
use crate::event_loop::{EventLoop, shared::LoopShared};
use std::{fmt, sync::Arc};

/// The result of a source's callback: the next step of the loop for the source.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceAction {
    /// Wait for the next event. Correct if the last operation would have blocked, or if the
    /// callback has arranged another way to continue.
    Continue,
    /// Call the callback again in the next turn, with the same readiness. For a callback that
    /// stopped before the source was drained.
    Again,
    /// Deregister the source and drop it.
    Deregister,
}

/// The view that a source's callback has of its registration.
pub struct SourceContext<'a> {
    pub(super) readiness: Readiness,
    pub(super) interest: Interest,
    pub(super) set_interest: bool,
    pub(super) event_loop: &'a Arc<LoopShared>,
}

impl SourceContext<'_> {
    /// Returns the events since the last call.
    pub fn readiness(&self) -> Readiness {
        self.readiness
    }

    /// Returns the operations that the source is watched for.
    pub fn interest(&self) -> Interest {
        self.interest
    }

    /// Sets the operations that the source is watched for, when the callback has returned.
    ///
    /// Also re-arms the source: present readiness is reported once more.
    pub fn set_interest(&mut self, interest: Interest) {
        self.interest = interest;
        self.set_interest = true;
    }

    /// Returns a handle to the loop, for tasks and timers.
    pub fn event_loop(&self) -> EventLoop {
        EventLoop { shared: self.event_loop.clone() }
    }
}

impl fmt::Debug for SourceContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceContext")
            .field("readiness", &self.readiness)
            .field("interest", &self.interest)
            .finish_non_exhaustive()
    }
}
