//! `NewMessage`: a message to publish. `Receipt`: the result.

use crate::broker::store::{MessageId, Position, Published};

/// A message to publish, with its id.
#[derive(Debug, Clone)]
#[must_use]
pub struct NewMessage<M> {
    pub(super) message: M,
    pub(super) id: Option<MessageId>,
}

impl<M> NewMessage<M> {
    /// Creates a message without an id.
    pub fn new(message: M) -> Self {
        NewMessage { message, id: None }
    }

    /// Sets the id of the message, so that a repetition is not stored again.
    pub fn id(mut self, id: MessageId) -> Self {
        self.id = Some(id);
        self
    }
}

impl<M> From<M> for NewMessage<M> {
    fn from(message: M) -> Self {
        NewMessage::new(message)
    }
}

/// The result of [`Topic::publish`](super::Topic::publish).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// The position of the stored message. `None` if it was not stored, and passed to the members
    /// of this node only ([`WhenUnreachable::Local`](super::WhenUnreachable::Local)).
    pub position: Option<Position>,
    /// Whether a message with the same id was stored before. The position is the one of that
    /// message.
    pub is_duplicate: bool,
}

impl Receipt {
    pub(super) fn stored(published: Published) -> Self {
        Receipt { position: Some(published.position), is_duplicate: published.is_duplicate }
    }

    pub(super) fn local() -> Self {
        Receipt { position: None, is_duplicate: false }
    }
}
