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
use std::{any::Any, panic::Location, sync::Arc};

/// What comes through a loop's queue.
///
/// The tag takes a whole word because it would anyway: so mail is copied word by word, and not a byte and then, all
/// unaligned, the rest, which costs a small task's time with every copy.
#[repr(usize)]
pub(crate) enum LoopMail {
    /// Something to run.
    Task(Task),
    /// Something to run that is handed back if it is refused.
    BoxedTask(Box<dyn FnOnce() + Send>, &'static Location<'static>),
    /// Something for a channel.
    Channel(Key, Mail),
    /// A broadcast to channels.
    Broadcast(Box<Delivery>),
    /// A task for the heap.
    Schedule(u64, Arc<dyn Scheduled>),
    /// A task for the end of this turn.
    AtTurnEnd(Arc<dyn Scheduled>),
    /// A cancelled task, to be taken out of the heap.
    Unschedule(Arc<dyn Scheduled>),
    /// A source to watch.
    Open(Box<dyn NewSource>),
    /// A message to a source that is not a channel.
    Source(Box<dyn SourceMail>),
    /// A connection that another loop accepted.
    Adopt(Box<Connection>),
    /// Build the poll anew.
    Rebuild(Completer<PollRebuild>),
    /// Look at the state: shutdown was asked for.
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

    /// What tells how long handling it will take.
    pub(super) fn site(&self) -> Site {
        match self {
            LoopMail::Task(task) => Site::of(task.origin()),
            LoopMail::BoxedTask(_, origin) => Site::of(origin),
            LoopMail::Channel(_, Mail::Run(_) | Mail::Answer(_)) => Site::ANY,
            LoopMail::Channel(..)
            | LoopMail::Schedule(..)
            | LoopMail::Unschedule(_)
            | LoopMail::AtTurnEnd(_) => Site::COMMAND,
            _ => Site::ANY,
        }
    }

    /// Returns the source that a loop has refused to open, if its type is `T`.
    pub(crate) fn into_new_source<T: NewSource>(self) -> Option<Box<T>> {
        let LoopMail::Open(source) = self else { return None };
        (source as Box<dyn Any>).downcast().ok()
    }

    /// Returns the message that a loop has refused, if its type is `T`.
    pub(crate) fn into_source_mail<T: SourceMail>(self) -> Option<Box<T>> {
        let LoopMail::Source(mail) = self else { return None };
        mail.downcast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_takes_six_words() {
        // A closure with up to three words of captures, where it came from, and which kind of mail it is.
        assert_eq!(size_of::<LoopMail>(), 6 * size_of::<usize>());
    }
}
