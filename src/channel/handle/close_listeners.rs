//! Callbacks to run when the channel closes.
//!
//! The list has two kinds of entries. The channel first leaves its groups, then the completions of
//! `closed` complete. A channel that is in no group pays nothing for groups.
//!
//! Invariants: the list runs once. When a completion or a later query reports that the channel is
//! closed, it has left its groups. The entries run without a lock, on the channel's loop. Any
//! thread may add one.

use crate::{
    channel::close_cause::CloseCause,
    id::ChannelId,
    sync::{Completer, Completion, Locked, Waiters, completion},
};
use std::sync::Weak;

/// A group that a channel leaves when it closes.
pub(in crate::channel) trait LeaveAtClose: Send + Sync {
    fn leave(&self, id: ChannelId);
}

pub(in crate::channel) struct CloseListeners(Locked<End>);

/// The end of the channel.
enum End {
    /// What it will do.
    Pending(Listeners),
    /// It has done so.
    Reached(CloseCause),
}

#[derive(Default)]
struct Listeners {
    groups: Vec<Weak<dyn LeaveAtClose>>,
    waiters: Waiters<Completer<CloseCause>>,
}

impl End {
    fn listeners(&mut self) -> Option<&mut Listeners> {
        match self {
            End::Pending(listeners) => Some(listeners),
            End::Reached(_) => None,
        }
    }
}

impl CloseListeners {
    pub(in crate::channel) fn new() -> Self {
        CloseListeners(Locked::new(End::Pending(Listeners::default())))
    }

    /// Returns a completion that completes when the channel, which is on that loop, is closed.
    pub(in crate::channel) fn completion_on(&self, event_loop: u32) -> Completion<CloseCause> {
        let waiting = self.0.change(|end| match end {
            End::Reached(cause) => (Err(*cause), None),
            End::Pending(listeners) => {
                let (completer, completion) = completion(Some(event_loop));
                (Ok(completion), Some(listeners.waiters.push(completer)))
            }
        });
        waiting.unwrap_or_else(|cause| Completion::ready(Ok(cause)))
    }

    /// Registers a group that the channel leaves when it closes. Returns `false` if it is closed.
    pub(in crate::channel) fn leave(&self, group: Weak<dyn LeaveAtClose>) -> bool {
        self.0.change(|end| match end.listeners() {
            Some(listeners) => {
                listeners.groups.push(group);
                (true, None)
            }
            None => (false, Some(group)),
        })
    }

    /// Removes the group at this address, because the channel has left it.
    pub(in crate::channel) fn forget(&self, group: *const ()) {
        let is_group = |of: &mut Weak<dyn LeaveAtClose>| of.as_ptr().cast::<()>() == group;
        self.0.change(|end| {
            let listeners = end.listeners();
            ((), listeners.map(|it| it.groups.extract_if(.., is_group).collect::<Vec<_>>()))
        });
    }

    /// Returns why the channel has ended, once the listeners have run.
    pub(in crate::channel) fn cause(&self) -> Option<CloseCause> {
        self.0.read(|end| match end {
            End::Reached(cause) => Some(*cause),
            End::Pending(_) => None,
        })
    }

    /// Runs the listeners of a closed channel: it leaves its groups, then the completions complete.
    pub(in crate::channel) fn run(&self, id: ChannelId, cause: CloseCause) {
        // The channel may be joining another group at this moment.
        let waiting = loop {
            let next = self.0.change(|end| {
                let Some(listeners) = end.listeners() else { return (None, ()) };
                let groups = std::mem::take(&mut listeners.groups);
                let waiting = groups.is_empty().then(|| listeners.waiters.take());
                if waiting.is_some() {
                    *end = End::Reached(cause);
                }
                (Some((groups, waiting)), ())
            });
            match next {
                None => return,
                Some((_, Some(waiting))) => break waiting,
                Some((groups, None)) => leave_all(groups, id),
            }
        };
        for completer in waiting {
            completer.complete(Ok(cause));
        }
    }

    /// Makes the channel leave its groups without closing.
    pub(in crate::channel) fn leave_groups(&self, id: ChannelId) {
        let take = |listeners: &mut Listeners| std::mem::take(&mut listeners.groups);
        let groups = self.0.change(|end| (end.listeners().map(take), ()));
        leave_all(groups.unwrap_or_default(), id);
    }

    /// Returns the number of listeners.
    #[cfg(test)]
    pub(in crate::channel) fn len(&self) -> usize {
        self.0.read(|end| match end {
            End::Pending(listeners) => listeners.groups.len() + listeners.waiters.len(),
            End::Reached(_) => 0,
        })
    }
}

fn leave_all(groups: Vec<Weak<dyn LeaveAtClose>>, id: ChannelId) {
    for group in groups {
        if let Some(group) = group.upgrade() {
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
        let early = close_listeners.completion_on(ID.event_loop);
        let seen = group.clone();
        early.on_complete(move |_| assert!(seen.left.load(SeqCst)));
        assert!([weak(&group), weak(&forgotten), gone].into_iter().all(|group| close_listeners.leave(group)));
        close_listeners.forget(Arc::as_ptr(&forgotten).cast());
        close_listeners.run(ID, CloseCause::Cut);
        close_listeners.run(ID, CloseCause::Clean);
        assert!(group.left.load(SeqCst) && !forgotten.left.load(SeqCst));
        assert!(!close_listeners.leave(weak(&late)), "the channel is closed");
        assert_eq!(close_listeners.completion_on(ID.event_loop).wait().unwrap(), CloseCause::Cut);
    }

    /// Async code that waits for messages or the close drops a completion at each message.
    #[test]
    fn dropped_completions_do_not_accumulate() {
        let close_listeners = CloseListeners::new();
        let kept = close_listeners.completion_on(ID.event_loop);
        for _ in 0..10_000 {
            drop(close_listeners.completion_on(ID.event_loop));
        }
        assert!(close_listeners.len() < 100, "{} listeners", close_listeners.len());
        close_listeners.run(ID, CloseCause::Clean);
        assert!(kept.is_done());
    }
}
