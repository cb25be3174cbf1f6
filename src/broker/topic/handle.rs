//! `Topic`: the handle of a topic.

use super::{
    core::TopicCore,
    new_message::{NewMessage, Receipt},
    subscription::Subscription,
    watch::TopicWatch,
};
use crate::broker::{follower::Joined, store::TopicName};
use crate::{channel::group::ChannelGroup, error::Result, id::ChannelId, sync::Completion};
use std::{fmt, sync::Arc};

/// A channel group that spans nodes: messages are stored, numbered, and written to the members on
/// all nodes.
///
/// A handle, which can be cloned, sent and shared. [`Topics::topic`](crate::broker::Topics::topic)
/// creates it. A channel leaves when it closes. Methods may be called from any thread, also in a
/// handler's callback.
///
/// ```
/// use netwheel::{EventLoopGroup, Result, bytes::Bytes, broker::{MemoryBroker, Topics}};
/// # use netwheel::broker::{Position, TopicFormat};
/// # struct Text;
/// # impl TopicFormat<Bytes> for Text {
/// #     fn encode(&self, message: &Bytes) -> Result<Bytes> { Ok(message.clone()) }
/// #     fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<Bytes> { Ok(payload) }
/// # }
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let topics = Topics::builder(&group, MemoryBroker::new()).node("a").build()?;
/// let lobby = topics.topic("lobby", Text).open()?;
/// let accepted = lobby.publish(Bytes::from("hello")).wait()?;
/// assert_eq!(accepted.position.map(|position| position.offset), Some(1));
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// - A message is stored when [`publish`](Topic::publish) completes. The members on all nodes
///   receive it, this node's included, after it was stored.
/// - Members receive the messages of a topic in the order of their offsets, each once and without a
///   gap, from the position of [`Joined`] on. If a member cannot receive a message, it receives a
///   notice ([`TopicFormat::missed`](super::TopicFormat::missed)), or its channel closes.
/// - The limits of its channel apply to a member that reads slowly. A policy
///   [`Overflow`](crate::channel::Overflow) that drops messages drops those of topics too.
/// - If the store loses messages that members have received, the members on every node receive a
///   notice.
pub struct Topic<M> {
    core: Arc<TopicCore<M>>,
}

impl<M: Clone + Send + Sync + 'static> Topic<M> {
    pub(super) fn new(core: Arc<TopicCore<M>>) -> Self {
        Topic { core }
    }

    /// Returns the name.
    pub fn name(&self) -> &TopicName {
        &self.core.name
    }

    /// Returns the members on this node, for example to count them. Members join and leave through
    /// the topic.
    pub fn members(&self) -> &ChannelGroup<M> {
        &self.core.group
    }

    /// Stores a message, and completes with its position once it is stored.
    ///
    /// The message carries the highest position that this node has seen. A store that has lost
    /// messages finds that out with the first message after the loss, and begins a new epoch.
    ///
    /// # Errors
    ///
    /// - The error of the [format](super::TopicFormat::encode).
    /// - [`Error::Setting`](crate::Error::Setting) if the payload is larger than
    ///   [`max_payload`](crate::broker::TopicsBuilder::max_payload).
    /// - [`Error::Full`](crate::Error::Full) if too many publications of this node are unanswered.
    /// - A [`BrokerError`](crate::broker::BrokerError). It says whether the message may have been
    ///   stored all the same. Repeat it with the same [id](NewMessage::id) to be sure.
    pub fn publish(&self, message: impl Into<NewMessage<M>>) -> Completion<Receipt> {
        self.core.publish(message.into())
    }

    /// Passes a message to the members on all nodes that is not stored, such as a typing notice. It
    /// does not get a position, and may be lost.
    ///
    /// # Errors
    ///
    /// Those of [`publish`](Topic::publish), if the message was certainly not sent.
    pub fn notify(&self, message: &M) -> Result {
        self.core.notify(message, None)
    }

    /// Like [`notify`](Topic::notify), but the message replaces the one with the same key that
    /// waits for a member ([`ChannelGroup::broadcast_latest`]).
    ///
    /// # Errors
    ///
    /// Those of [`notify`](Topic::notify).
    pub fn notify_latest(&self, key: u64, message: &M) -> Result {
        self.core.notify(message, Some(key))
    }

    /// Makes a channel a member of the topic. Completes when the member has everything up to now.
    ///
    /// The member is written its greeting, then the messages that it has missed, and then the ones
    /// that follow, without a gap. The position of [`Joined`] is known also for an empty topic.
    /// Thousands of members that come at once share one read of the history.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`](crate::Error::Setting) if the channel is a member already.
    /// - [`Error::Full`](crate::Error::Full) if a limit of the topic is reached, or if the channel
    ///   does not accept all the messages that it has missed. Close the channel then.
    /// - [`Error::Closed`](crate::Error::Closed) if the channel is closed.
    /// - A [`BrokerError`](crate::broker::BrokerError) if the history is needed and cannot be read.
    pub fn subscribe(&self, subscription: impl Into<Subscription<M>>) -> Completion<Joined> {
        self.core.subscribe(subscription.into())
    }

    /// Follows the topic also without members, until the guard is dropped: its
    /// [format](super::TopicFormat::deliver) receives the messages. Otherwise a node begins to
    /// follow a topic with the first member, and stops some time after the last one has left.
    ///
    /// The messages begin when the broker has answered the first question for the newest position.
    /// Those that are stored before that are not received: wait for
    /// [`ready`](TopicWatch::ready) before other nodes may rely on them.
    pub fn watch(&self) -> TopicWatch {
        self.core.watch()
    }

    /// Removes a member. Returns whether the channel was one, or was about to become one.
    pub fn leave(&self, id: ChannelId) -> bool {
        self.core.leave(id)
    }
}

impl<M> Clone for Topic<M> {
    fn clone(&self) -> Self {
        Topic { core: self.core.clone() }
    }
}

impl<M> fmt::Debug for Topic<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("name", &self.core.name).finish_non_exhaustive()
    }
}
