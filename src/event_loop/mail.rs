//! The messages in the queue of a loop.
//!
//! Invariant: a message takes six words, so that a small task is copied as fast as it runs. Created
//! on any thread, handled on the loop's thread.

use super::{
    budget::Site,
    connection::Connection,
    poll::PollRebuild,
    source::{NewSource, SourceMail},
    task::Task,
};
use crate::{
    channel::{Delivery, Mail, Scheduled},
    id::Key,
    sync::Completer,
};
use std::sync::Arc;

/// A message in a loop's queue.
///
/// The tag takes a whole word. Padding makes it occupy a word in any case, and a word-sized tag
/// lets mail be copied word by word. With a tag of one byte, the remaining bytes would be copied
/// unaligned, which costs as much time as a small task.
#[repr(usize)]
pub(crate) enum LoopMail {
    /// A task.
    Task(Task),
    /// A request to a channel.
    Channel(Key, Mail),
    /// A broadcast to channels.
    Broadcast(Box<Delivery>),
    /// A scheduled task for the heap.
    Schedule(u64, Arc<dyn Scheduled>),
    /// A task for the end of the current turn.
    AtTurnEnd(Arc<dyn Scheduled>),
    /// A cancelled task, to be removed from the heap.
    Unschedule(Arc<dyn Scheduled>),
    /// A source to register.
    Open(Box<dyn NewSource>),
    /// A message to a source that is not a channel.
    Source(Box<dyn SourceMail>),
    /// A connection that another loop has accepted.
    Adopt(Box<Connection>),
    /// A request to rebuild the poll.
    Rebuild(Completer<PollRebuild>),
    /// A notice that a shutdown was requested. The request is in the shared state.
    Shutdown,
}

impl LoopMail {
    /// Returns the source that the mail is for.
    pub(crate) fn source(&self) -> Option<Key> {
        match self {
            LoopMail::Channel(key, _) => Some(*key),
            LoopMail::Source(mail) => mail.key(),
            _ => None,
        }
    }

    /// Returns when the mail has to be handled: 0 for now. `None` if it waits for the next wakeup.
    #[cfg(feature = "simulation")]
    pub(super) fn due(&self) -> Option<u64> {
        match self {
            LoopMail::Unschedule(_) | LoopMail::Channel(_, Mail::Cancel(_)) => None,
            LoopMail::Schedule(deadline, _) => Some(*deadline),
            _ => Some(0),
        }
    }

    /// Returns the site by which the duration of handling this mail is predicted.
    pub(super) fn site(&self) -> Site {
        match self {
            LoopMail::Task(task) => Site::of(task.origin()),
            LoopMail::Channel(_, Mail::Run(_) | Mail::Answer(_)) => Site::ANY,
            LoopMail::Channel(..)
            | LoopMail::Schedule(..)
            | LoopMail::Unschedule(_)
            | LoopMail::AtTurnEnd(_) => Site::COMMAND,
            _ => Site::ANY,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_takes_six_words() {
        // A closure with up to three words of captures, its origin, and the kind of mail.
        assert_eq!(size_of::<LoopMail>(), 6 * size_of::<usize>());
    }
}
