//! Time limits, and functions that wait for a result.

use netwheel::{Completion, Error, Result, SendError};
use std::{
    sync::mpsc::Receiver,
    time::{Duration, Instant},
};

/// The time after which a test that waits for an event fails. A passing test never waits this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Waits for a completion and returns its result.
#[track_caller]
pub(crate) fn done<T>(completion: Completion<T>) -> Result<T> {
    completion.wait_timeout(PATIENCE).unwrap_or_else(|_| panic!("timed out waiting for the completion"))
}

/// Waits for the next value of a queue and returns it.
#[track_caller]
pub(crate) fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("a value arrives in time")
}

/// Looks again and again until something is true.
#[track_caller]
pub(crate) fn wait_until(what: &str, is_true: impl FnMut() -> bool) {
    wait_until_or(|| what.to_owned(), is_true);
}

/// Like [`wait_until`], with a text that is composed at a failure, such as the state at that time.
#[track_caller]
pub(crate) fn wait_until_or(what: impl Fn() -> String, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < PATIENCE, "did not come true in time: {}", what());
        std::thread::yield_now();
    }
}

/// Returns the reason of a refusal.
pub(crate) fn reason<T>(refused: Result<(), SendError<T>>) -> Error {
    refused.expect_err("the value is refused").into_parts().1
}
