//! Waiting for a state that nothing announces.

use netwheel::{Error, Result};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The longest time for anything that is awaited.
const LIMIT: Duration = Duration::from_secs(60);

/// Waits until something holds.
///
/// # Errors
/// If it does not hold within a minute.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) -> Result {
    let begun = Instant::now();
    while !holds() {
        if begun.elapsed() > LIMIT {
            return Err(Error::other(format!("{what}: not within {LIMIT:?}")));
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}
