//! `Subscription`: a channel that becomes a member of a topic.

use crate::broker::{
    follower::{JoinFrom, Joined},
    store::Position,
};
use crate::channel::Channel;
use std::fmt;

/// Returns a message for a new member.
pub(super) type Greeting<M> = Box<dyn FnOnce(&Joined) -> Option<M> + Send>;

/// A channel that becomes a member of a topic, and where its messages begin.
///
/// ```
/// # use netwheel::{bytes::Bytes, prelude::*, broker::{Position, Subscription}};
/// # fn f(channel: Channel<Bytes>, kept: Position) {
/// // A client that returns: everything behind its position, or else the last 50 messages.
/// let subscription = Subscription::new(channel)
///     .after(kept)
///     .last(50)
///     .greeting(|joined| Some(format!("joined {} {}", joined.position, joined.recovered).into()));
/// # drop(subscription);
/// # }
/// ```
#[must_use]
pub struct Subscription<M> {
    pub(super) channel: Channel<M>,
    after: Option<Position>,
    last: u64,
    pub(super) greeting: Option<Greeting<M>>,
}

impl<M> Subscription<M> {
    /// Creates a subscription to the messages from now on.
    pub fn new(channel: Channel<M>) -> Self {
        Subscription { channel, after: None, last: 0, greeting: None }
    }

    /// Begins behind a position, which the client may have from another node. If messages behind it
    /// are lost or not kept any more, or if it is not a position of the topic, the member is
    /// [not recovered](Joined::recovered), and begins as without it.
    ///
    /// A position is not a secret, and gives no permission to read the topic.
    pub fn after(mut self, position: Position) -> Self {
        self.after = Some(position);
        self
    }

    /// Begins with the last messages of the history, as far as they are kept.
    pub fn last(mut self, messages: u64) -> Self {
        self.last = messages;
        self
    }

    /// Writes the message that `greeting` returns, before the first message of the topic.
    ///
    /// It runs on any thread, and must not block.
    pub fn greeting(mut self, greeting: impl FnOnce(&Joined) -> Option<M> + Send + 'static) -> Self {
        self.greeting = Some(Box::new(greeting));
        self
    }

    pub(super) fn start(&self) -> JoinFrom {
        match (self.after, self.last) {
            (Some(position), or_last) => JoinFrom::After { position, or_last },
            (None, 0) => JoinFrom::Now,
            (None, messages) => JoinFrom::Last(messages),
        }
    }
}

impl<M> From<Channel<M>> for Subscription<M> {
    fn from(channel: Channel<M>) -> Self {
        Subscription::new(channel)
    }
}

impl<M: 'static> fmt::Debug for Subscription<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subscription").field("start", &self.start()).finish_non_exhaustive()
    }
}
