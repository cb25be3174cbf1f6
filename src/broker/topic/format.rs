//! `TopicFormat`: messages as bytes.

use crate::broker::{follower::Missed, store::Position};
use crate::{
    channel::{Broadcast, group::ChannelGroup},
    error::{Result, SendError},
};
use bytes::Bytes;

/// How the messages of a topic become bytes in the store, and messages for channels again.
///
/// Methods are called on any thread, without a lock, and must not block. A panic counts as an
/// error.
///
/// ```
/// use netwheel::{Result, broker::{Position, TopicFormat}, bytes::Bytes};
///
/// /// Lines of text, with the position before the text.
/// struct Numbered;
///
/// impl TopicFormat<Bytes> for Numbered {
///     fn encode(&self, message: &Bytes) -> Result<Bytes> {
///         Ok(message.clone())
///     }
///
///     fn decode(&self, payload: Bytes, position: Option<Position>) -> Result<Bytes> {
///         let text = String::from_utf8_lossy(&payload);
///         Ok(position.map_or(format!("- {text}"), |position| format!("{position} {text}")).into())
///     }
/// }
/// ```
#[allow(unused_variables, reason = "default methods ignore their arguments")]
pub trait TopicFormat<M>: Send + Sync + 'static {
    /// Encodes a message for the store.
    ///
    /// # Errors
    ///
    /// If the message cannot be encoded. It is not published then.
    fn encode(&self, message: &M) -> Result<Bytes>;

    /// Decodes a message of the store, once for all members of this node. `position` is `None` for
    /// messages that are not stored.
    ///
    /// # Errors
    ///
    /// If the payload is not understood. Members do not receive the message then; it is logged and
    /// counted.
    fn decode(&self, payload: Bytes, position: Option<Position>) -> Result<M>;

    /// Writes a stored message to the members of this node. By default it is broadcast.
    ///
    /// Called for one message after the other, in the order of the offsets, and also if there are
    /// no members. An implementation may count messages. It may write another copy to one member,
    /// with
    /// [`ChannelGroup::broadcast_except`] for the others.
    ///
    /// # Errors
    ///
    /// Those of [`ChannelGroup::broadcast`]. The message is passed again later, before the next
    /// one.
    fn deliver(
        &self,
        message: M,
        position: Position,
        members: &ChannelGroup<M>,
    ) -> Result<Broadcast, SendError<M>>
    where
        M: Clone + Send + Sync + 'static,
    {
        members.broadcast(message)
    }

    /// Receives the broadcast of [`deliver`](TopicFormat::deliver), for example for its
    /// [report](Broadcast::report). By default it is dropped, which does not affect it.
    fn delivered(&self, broadcast: Broadcast) {}

    /// Returns the message that tells members that they will not receive some messages. `None` by
    /// default.
    fn missed(&self, missed: &Missed) -> Option<M> {
        None
    }
}
