//! Runs work where the client of PostgreSQL may block.

use std::{panic::resume_unwind, thread};
use tokio::runtime::Handle;

/// Runs `work` on this thread, or on one of its own if this one belongs to a runtime of tokio. The
/// client has a runtime of its own, and one inside the other panics.
pub(super) fn outside_runtime<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    if Handle::try_current().is_err() {
        return work();
    }
    thread::scope(|scope| scope.spawn(work).join()).unwrap_or_else(|panic| resume_unwind(panic))
}
