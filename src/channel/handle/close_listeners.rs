//! Callbacks to run when the channel closes.
//!
//! The list has two kinds of entries. The channel first leaves its groups, then the completions of
//! `closed` complete. A channel that is in no group pays nothing for groups.
//!
//! Invariants: the list runs once. When a completion or a later query reports that the channel is
//! closed, it has left its groups. The entries run without a lock, on the channel's loop. Any
//! thread may add one.

use crate::{
    id::ChannelId,
    sync::{Completer, Completion, completion},
};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// A group that a channel leaves when it closes.
pub(in crate::channel) trait LeaveAtClose: Send + Sync {
    fn leave(&self, id: ChannelId);
}

/// The pending steps. `None` after they have run.
pub(in crate::channel) struct CloseListeners(Mutex<Option<Vec<Step>>>);

enum Step {
    Tell(Completer),
    Leave(Weak<dyn LeaveAtClose>),
}

impl CloseListeners {
    pub(in crate::channel) fn new() -> Self {
        CloseListeners(Mutex::new(Some(Vec::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Step>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a completion that completes when the channel, which is on that loop, is closed.
    pub(in crate::channel) fn tell(&self, event_loop: u32) -> Completion {
        match &mut *self.lock() {
            None => Completion::ready(Ok(())),
            Some(steps) => {
                let (completer, completion) = completion(Some(event_loop));
                steps.push(Step::Tell(completer));
                completion
            }
        }
    }

    /// Registers a group that the channel leaves when it closes. Returns `false` if it is closed.
    pub(in crate::channel) fn leave(&self, group: Weak<dyn LeaveAtClose>) -> bool {
        let mut steps = self.lock();
        let Some(steps) = &mut *steps else { return false };
        steps.push(Step::Leave(group));
        true
    }

    /// Removes the group at this address, because the channel has left it.
    pub(in crate::channel) fn forget(&self, group: *const ()) {
        let is_group = |step: &Step| matches!(step, Step::Leave(of) if of.as_ptr().cast::<()>() == group);
        if let Some(steps) = &mut *self.lock() {
            steps.retain(|step| !is_group(step));
        }
    }

    /// Runs the steps of a closed channel: it leaves its groups, then the completions complete.
    pub(in crate::channel) fn run(&self, id: ChannelId) {
        // The channel may be joining another group at this moment.
        let waiting = loop {
            let mut steps = self.lock();
            let Some(listed) = &mut *steps else { return };
            let groups = take_groups(listed);
            if groups.is_empty() {
                break steps.take();
            }
            drop(steps);
            leave_all(groups, id);
        };
        for step in waiting.into_iter().flatten() {
            if let Step::Tell(completer) = step {
                completer.complete(Ok(()));
            }
        }
    }

    /// Makes the channel leave its groups without closing.
    pub(in crate::channel) fn leave_groups(&self, id: ChannelId) {
        let groups = self.lock().as_mut().map(take_groups);
        leave_all(groups.unwrap_or_default(), id);
    }

    /// Returns the number of steps.
    #[cfg(test)]
    pub(in crate::channel) fn len(&self) -> usize {
        self.lock().as_ref().map_or(0, Vec::len)
    }
}

fn take_groups(steps: &mut Vec<Step>) -> Vec<Step> {
    steps.extract_if(.., |step| matches!(step, Step::Leave(_))).collect()
}

fn leave_all(groups: Vec<Step>, id: ChannelId) {
    for group in groups {
        if let Step::Leave(group) = group
            && let Some(group) = group.upgrade()
        {
            group.leave(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Key;
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    const ID: ChannelId = ChannelId { event_loop: 7, key: Key { index: 1, generation: 2 } };

    #[derive(Default)]
    struct Group {
        left: AtomicBool,
    }

    impl LeaveAtClose for Group {
        fn leave(&self, id: ChannelId) {
            assert_eq!(id, ID);
            assert!(!self.left.swap(true, SeqCst), "a group is left once");
        }
    }

    fn weak(group: &Arc<Group>) -> Weak<dyn LeaveAtClose> {
        let group: Arc<dyn LeaveAtClose> = group.clone();
        Arc::downgrade(&group)
    }

    #[test]
    fn groups_are_left_once_before_completions_and_a_closed_channel_joins_none() {
        let close_listeners = CloseListeners::new();
        let [group, forgotten, late]: [Arc<Group>; 3] = std::array::from_fn(|_| Arc::default());
        let gone = weak(&Arc::default());
        let early = close_listeners.tell(ID.event_loop);
        let seen = group.clone();
        early.on_complete(move |_| assert!(seen.left.load(SeqCst)));
        assert!([weak(&group), weak(&forgotten), gone].into_iter().all(|group| close_listeners.leave(group)));
        close_listeners.forget(Arc::as_ptr(&forgotten).cast());
        close_listeners.run(ID);
        close_listeners.run(ID);
        assert!(group.left.load(SeqCst) && !forgotten.left.load(SeqCst));
        assert!(!close_listeners.leave(weak(&late)), "the channel is closed");
        assert!(close_listeners.tell(ID.event_loop).is_done());
    }
}
