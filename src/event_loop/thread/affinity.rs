//! The processor core of a loop's thread.
//!
//! Invariant: a [`Core`] existed, and the thread that built the group was allowed to run on it. If
//! the pinning itself fails later, the loop runs on any core. Runs on the thread that builds, then
//! on the loop's thread.

use crate::error::{Error, Result};
use core_affinity::CoreId;

/// A core that a thread can be pinned to.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Core(CoreId);

impl Core {
    /// Returns the cores with these numbers.
    ///
    /// # Errors
    /// [`Error::Setting`] if `numbers` is empty, or contains a core that the calling thread may not
    /// use.
    pub(crate) fn all(numbers: &[usize]) -> Result<Vec<Core>> {
        if numbers.is_empty() {
            return Err(Error::setting("pin_to", "no core", "one core or more"));
        }
        let usable = core_affinity::get_core_ids().unwrap_or_default();
        let core = |&number: &usize| {
            let core = usable.iter().find(|core| core.id == number).copied();
            let refused = || Error::setting("pin_to", number, "cores that this process may use");
            core.map(Core).ok_or_else(refused)
        };
        numbers.iter().map(core).collect()
    }

    /// Pins the calling thread, which is that of the loop `name`, to this core.
    pub(crate) fn pin(self, name: &str) {
        if !core_affinity::set_for_current(self.0) {
            log::warn!("{name}: the thread cannot be pinned to core {}; it runs unpinned", self.0.id);
        }
    }
}
