//! The poll of a loop: what it reports, how long it sleeps, and what follows when it returns in vain.

mod loop_waker;
mod selector;
mod sleep;
mod spin;

pub(super) use loop_waker::LoopWaker;
pub(super) use selector::{Selector, WakeCause};
pub(super) use sleep::Sleep;
pub(crate) use spin::DEFAULT_REBUILD_THRESHOLD;
pub(super) use spin::{Remedy, SpinGuard};
