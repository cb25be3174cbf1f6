//! Waiting in unit tests that run over sockets. The tests in `tests/` have `support::wait`.

use std::time::{Duration, Instant};

/// The time after which a test that waits for an event fails.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Looks again and again until something is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < PATIENCE, "did not come true in time: {what}");
        std::thread::yield_now();
    }
}
