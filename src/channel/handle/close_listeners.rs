//! Callbacks to run when the channel closes.
//!
//! The list has two kinds of entries. The channel first leaves its groups, then the completions of
//! `closed` complete. A channel that is in no group pays nothing for groups.
//!
//! Invariants: the list runs once. When a completion or a later query reports that the channel is
//! closed, it has left its groups. The entries run without a lock, on the channel's loop. Any
//! thread may add one.

use crate::{
    channel::CloseCause,
    id::ChannelId,
    sync::{Completer, Completion, completion},
};
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

/// A group that a channel leaves when it closes.
pub(in crate::channel) trait LeaveAtClose: Send + Sync {
    fn leave(&self, id: ChannelId);
}

pub(in crate::channel) struct CloseListeners(Mutex<End>);

/// The end of the channel.
enum End {
    /// The steps that it will run.
    Pending(Vec<Step>),
    /// The steps have run.
    Reached(CloseCause),
}

impl End {
    fn steps(&mut self) -> Option<&mut Vec<Step>> {
        match self {
            End::Pending(steps) => Some(steps),
            End::Reached(_) => None,
        }
    }
}

enum Step {
    Tell(Completer<CloseCause>),
    Leave(Weak<dyn LeaveAtClose>),
}

impl CloseListeners {
    pub(in crate::channel) fn new() -> Self {
        CloseListeners(Mutex::new(End::Pending(Vec::new())))
    }

    fn lock(&self) -> MutexGuard<'_, End> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a completion that completes when the channel, which is on that loop, is closed.
    pub(in crate::channel) fn tell(&self, event_loop: u32) -> Completion<CloseCause> {
        match &mut *self.lock() {
            End::Reached(cause) => Completion::ready(Ok(*cause)),
            End::Pending(steps) => {
                let (completer, completion) = completion(Some(event_loop));
                steps.push(Step::Tell(completer));
                completion
            }
        }
    }

    /// Registers a group that the channel leaves when it closes. Returns `false` if it is closed.
    pub(in crate::channel) fn leave(&self, group: Weak<dyn LeaveAtClose>) -> bool {
        let mut end = self.lock();
        let Some(steps) = end.steps() else { return false };
        steps.push(Step::Leave(group));
        true
    }

    /// Removes the group at this address, because the channel has left it.
    pub(in crate::channel) fn forget(&self, group: *const ()) {
        let is_group = |step: &Step| matches!(step, Step::Leave(of) if of.as_ptr().cast::<()>() == group);
        if let Some(steps) = self.lock().steps() {
            steps.retain(|step| !is_group(step));
        }
    }

    /// Returns why the channel has ended, once the steps have run.
    pub(in crate::channel) fn cause(&self) -> Option<CloseCause> {
        match &*self.lock() {
            End::Reached(cause) => Some(*cause),
            End::Pending(_) => None,
        }
    }

    /// Runs the steps of a closed channel: it leaves its groups, then the completions complete.
    pub(in crate::channel) fn run(&self, id: ChannelId, cause: CloseCause) {
        // The channel may be joining another group at this moment.
        let waiting = loop {
            let mut end = self.lock();
            let Some(steps) = end.steps() else { return };
            let groups = take_groups(steps);
            if groups.is_empty() {
                let steps = std::mem::take(steps);
                *end = End::Reached(cause);
                break steps;
            }
            drop(end);
            leave_all(groups, id);
        };
        for step in waiting {
            if let Step::Tell(completer) = step {
                completer.complete(Ok(cause));
            }
        }
    }

    /// Makes the channel leave its groups without closing.
    pub(in crate::channel) fn leave_groups(&self, id: ChannelId) {
        let groups = self.lock().steps().map(take_groups);
        leave_all(groups.unwrap_or_default(), id);
    }

    /// Returns the number of steps.
    #[cfg(test)]
    pub(in crate::channel) fn len(&self) -> usize {
        self.lock().steps().map_or(0, |steps| steps.len())
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
        close_listeners.run(ID, CloseCause::Cut);
        close_listeners.run(ID, CloseCause::Clean);
        assert!(group.left.load(SeqCst) && !forgotten.left.load(SeqCst));
        assert!(!close_listeners.leave(weak(&late)), "the channel is closed");
        assert_eq!(close_listeners.tell(ID.event_loop).wait().unwrap(), CloseCause::Cut);
    }
}
