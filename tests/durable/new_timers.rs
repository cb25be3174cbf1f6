//! New timers for tests of stores.

use netwheel::durable::store::NewTimer;

/// Returns a value with other public fields.
pub(crate) fn with<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}

pub(crate) fn timer(due: i64) -> NewTimer {
    NewTimer::new(0, due, b"null".to_vec())
}

#[cfg(feature = "postgres-019")]
pub(crate) fn keyed(due: i64, key: &str) -> NewTimer {
    with(timer(due), |timer| timer.idempotency_key = Some(key.to_owned()))
}
