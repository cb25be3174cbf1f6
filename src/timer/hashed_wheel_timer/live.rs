//! The number of timers in the process.
//!
//! Each timer has a thread of its own. A program that creates one per connection is told so once.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// So many timers may live before it is taken for a mistake: each has a thread.
const MANY_TIMERS: usize = 64;

// Of the process, because the warning about too many threads is. Nothing else depends on them.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicBool = AtomicBool::new(false);

/// One timer among those that live in this process, until it is stopped.
pub(super) struct Live(());

impl Live {
    pub(super) fn new() -> Self {
        let live = LIVE.fetch_add(1, Ordering::Relaxed) + 1;
        if live > MANY_TIMERS && !TOLD.swap(true, Ordering::Relaxed) {
            log::error!(
                "{live} HashedWheelTimers in this process, each with a thread: share one among many users"
            );
        }
        Live(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}
