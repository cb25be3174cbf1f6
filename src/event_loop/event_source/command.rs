//! Commands from the handles of an event source to its loop.

use super::interest::Interest;
use crate::{error::Error, event_loop::source_inbox::SourceCommand, sync::Completer};

/// A command to an event source of type `S`.
pub(super) enum EventSourceCommand<S> {
    SetInterest(Interest),
    /// Hands the source back.
    Deregister(Completer<S>),
}

impl<S: Send + 'static> SourceCommand for EventSourceCommand<S> {
    fn refuse(self) {
        if let EventSourceCommand::Deregister(hand_back) = self {
            hand_back.complete(Err(Error::Closed));
        }
    }
}
