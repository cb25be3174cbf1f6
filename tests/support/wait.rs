//! Waiting for what has to happen.

use netwheel::{Completion, Error, Refused, Result};
use std::{sync::mpsc::Receiver, time::Duration};

/// How long a test waits for what must happen before it gives up. It never decides a test that
/// passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const SECOND: Duration = Duration::from_secs(1);

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

pub(crate) const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Returns the result of a completion that has to come.
#[track_caller]
pub(crate) fn done<T>(completion: Completion<T>) -> Result<T> {
    completion.wait_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not complete"))
}

/// Returns the next value of a queue, which has to come.
#[track_caller]
pub(crate) fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("it comes")
}

/// Returns the reason of a refusal.
pub(crate) fn reason<T>(refused: Result<(), Refused<T>>) -> Error {
    refused.expect_err("it is refused").reason
}
