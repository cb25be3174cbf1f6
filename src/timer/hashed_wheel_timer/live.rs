//! The number of timers in the process.
//!
//! Each timer has its own thread. A program that creates one per connection gets one warning.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of timers above which an error is logged, because each timer has a thread.
const MANY_TIMERS: usize = 64;

// Process-wide, because the threads of all timers count. Only the log message depends on these.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicBool = AtomicBool::new(false);

/// A count of one running timer in this process, until it is dropped.
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
