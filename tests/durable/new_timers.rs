//! New timers for tests of stores.

use netwheel::durable::store::NewTimer;

pub(crate) fn timer(due: i64) -> NewTimer {
    NewTimer {
        topic: 0,
        due,
        idempotency_key: None,
        schedule: None,
        payload: b"null".to_vec(),
        replaces_payload: false,
    }
}

#[cfg(feature = "postgres-019")]
pub(crate) fn keyed(due: i64, key: &str) -> NewTimer {
    NewTimer { idempotency_key: Some(key.to_owned()), ..timer(due) }
}
