//! The poll of a loop: readiness, sleep, and the remedies for spurious wakeups.
//!
//! Modules: `selector` (the poll), `sleep` (how long it may last), `loop_waker` (how another thread
//! ends it), `spin` (spurious wakeups), `rebuild_report`.

mod loop_waker;
mod rebuild_report;
mod selector;
mod sleep;
mod spin;

pub(super) use loop_waker::LoopWaker;
pub(crate) use loop_waker::PollWaker;
pub use rebuild_report::{PollRebuild, RebuildCause};
pub(super) use selector::Successor;
#[cfg(feature = "simulation")]
pub(crate) use selector::simulated_ready;
pub(crate) use selector::{LISTENER_INTEREST, STREAM_INTEREST, Selector, WATCHING, WakeCause};
pub(super) use sleep::Sleep;
pub(crate) use spin::DEFAULT_REBUILD_THRESHOLD;
pub(super) use spin::{Remedy, SpinGuard};
