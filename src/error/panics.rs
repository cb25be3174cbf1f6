//! Panics in the program's own code: caught, turned into text, logged.

use crate::log_throttle::{PANICS, log_throttled, off_loop};
use crate::machine;
use log::Level;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Drops a value of the program's own. A panic in its `Drop` is logged and goes no further.
pub(crate) fn drop_guarded<T>(value: T) {
    if let Some(message) = caught(|| drop(value)) {
        // The program's logger may panic too.
        let name = std::any::type_name::<T>();
        caught(|| log_throttled!(off_loop(), PANICS, Level::Error, "dropping a {name}: {message}"));
    }
}

/// Runs `f` and returns the text of its panic, if it panicked.
pub(crate) fn caught(f: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(f)).err().map(panic_message)
}

/// Returns the text of a panic that goes on.
pub(crate) fn panic_text(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "(no message)".to_owned(),
    }
}

/// Returns the text of a panic. Drops the payload here, because its `Drop` may panic in turn.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let payload = machine::resume_killed(payload);
    let text = panic_text(&*payload);
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // Dropping this payload could panic again, without end. Leaking it is safe.
        std::mem::forget(another);
    }
    text
}
