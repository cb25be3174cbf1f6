//! The poll of a loop: what it reports, how long it sleeps, and what follows when it returns in vain.

mod selector;
mod sleep;
mod spin;

pub(super) use selector::{Selector, WakeCause};
pub(super) use sleep::Sleep;
pub(crate) use spin::DEFAULT_REBUILD_THRESHOLD;
pub(super) use spin::{Remedy, SpinGuard};
