//! Who is told, and what is left, when a channel is closed.
//!
//! Always holds: it happens once; by the time that anybody hears that the channel is closed, now or by asking later, it has left
//! its groups. What is run here runs without a lock, on the channel's loop; any thread may add to it.

use crate::{
    id::ChannelId,
    sync::{Completer, Completion, completion},
};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// A group that a channel leaves by itself.
pub(super) trait LeaveAtClose: Send + Sync {
    fn leave(&self, id: ChannelId);
}

/// What is to be done; none once it is.
pub(super) struct AtClose(Mutex<Option<Vec<Step>>>);

enum Step {
    Tell(Completer),
    Leave(Weak<dyn LeaveAtClose>),
}

impl AtClose {
    pub(super) fn new() -> Self {
        AtClose(Mutex::new(Some(Vec::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Step>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Completes when the channel, which is of that loop, is closed.
    pub(super) fn tell(&self, event_loop: u32) -> Completion {
        match &mut *self.lock() {
            None => Completion::ready(Ok(())),
            Some(steps) => {
                let (completer, completion) = completion(Some(event_loop));
                steps.push(Step::Tell(completer));
                completion
            }
        }
    }

    /// Has the channel leave `group`; false if it is closed.
    pub(super) fn leave(&self, group: Weak<dyn LeaveAtClose>) -> bool {
        let mut steps = self.lock();
        let Some(steps) = &mut *steps else { return false };
        steps.push(Step::Leave(group));
        true
    }

    /// The channel has left the group of this address.
    pub(super) fn forget(&self, group: *const ()) {
        let is_group = |step: &Step| matches!(step, Step::Leave(of) if of.as_ptr().cast::<()>() == group);
        if let Some(steps) = &mut *self.lock() {
            steps.retain(|step| !is_group(step));
        }
    }

    /// The channel is closed: it leaves its groups, then those who wait are told.
    pub(super) fn run(&self, id: ChannelId) {
        // It may be joining one more group right now.
        let waiting = loop {
            let mut steps = self.lock();
            let Some(listed) = &mut *steps else { return };
            let groups: Vec<Step> = listed.extract_if(.., |step| matches!(step, Step::Leave(_))).collect();
            if groups.is_empty() {
                break steps.take();
            }
            drop(steps);
            for group in groups {
                if let Step::Leave(group) = group
                    && let Some(group) = group.upgrade()
                {
                    group.leave(id);
                }
            }
        };
        for step in waiting.into_iter().flatten() {
            if let Step::Tell(completer) = step {
                completer.complete(Ok(()));
            }
        }
    }

    /// How many steps there are.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }
}
