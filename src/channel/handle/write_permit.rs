//! The permit of a handle to write one message.

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// A permit for one message. A handle gets it when it observes a writable channel, and when a
/// `writable` that is still awaited completes.
///
/// Code that stops waiting therefore leaves no permit behind. A handle has at most one permit.
#[derive(Default)]
pub(super) struct WritePermit {
    seen: AtomicBool,
    /// Shared with the waiters. Created when the handle waits for the first time.
    granted: OnceLock<Arc<AtomicBool>>,
}

/// Grants the permit of a handle that waits.
pub(super) struct Grant(Arc<AtomicBool>);

impl WritePermit {
    pub(super) fn give(&self) {
        if !self.seen.load(Ordering::Relaxed) {
            self.seen.store(true, Ordering::Relaxed);
        }
    }

    /// Takes the permit, if there is one.
    pub(super) fn take(&self) -> bool {
        let seen = is_taken(&self.seen);
        let granted = self.granted.get().is_some_and(|granted| is_taken(granted));
        seen || granted
    }

    /// Returns a token that grants the permit later.
    pub(super) fn grant_later(&self) -> Grant {
        Grant(self.granted.get_or_init(Arc::default).clone())
    }
}

fn is_taken(permit: &AtomicBool) -> bool {
    permit.load(Ordering::Relaxed) && permit.swap(false, Ordering::Relaxed)
}

impl Grant {
    /// Grants the permit. The completion that follows makes this visible to its consumer.
    pub(super) fn give(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
