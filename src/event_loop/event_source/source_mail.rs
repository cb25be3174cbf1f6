//! Messages from the handles of an event source to its loop.

use super::Interest;
use crate::{Error, Result, event_loop::source::SourceMail, id::Key};
use std::any::Any;

/// A message about an event source.
pub(super) struct EventSourceMail {
    pub(super) key: Key,
    pub(super) command: EventSourceCommand,
}

pub(super) enum EventSourceCommand {
    SetInterest(Interest),
    Deregister(HandBack),
}

/// Receives the source, or the reason why it does not come back.
pub(super) type HandBack = Box<dyn FnOnce(Result<Box<dyn Any + Send>>) + Send>;

impl SourceMail for EventSourceMail {
    fn key(&self) -> Option<Key> {
        Some(self.key)
    }

    fn refuse(self: Box<Self>) {
        if let EventSourceCommand::Deregister(hand_back) = self.command {
            hand_back(Err(Error::Closed));
        }
    }
}
