//! `TopicBuilder`: the settings of a topic.

use super::{
    core::TopicCore,
    event::{OnEvent, TopicEvent},
    format::TopicFormat,
    handle::Topic,
    settings::{TopicSettings, WhenUnreachable},
};
use crate::broker::{
    node::TopicNode,
    store::{HistoryLimits, TopicName},
};
use crate::error::{Error, Result};
use std::{fmt, sync::Arc, time::Duration};

/// Settings of a [`Topic`], which [`open`](TopicBuilder::open) returns.
///
/// | setting | default | range | when it is reached |
/// |---|---|---|---|
/// | `history` | 1000 messages, 1 MiB, 24 h | see [`HistoryLimits`] | the oldest messages are removed |
/// | `id_window` | 10 min | 1 s to 24 h | a repeated message is stored again |
/// | `when_unreachable` | [`Refuse`](WhenUnreachable::Refuse) | | |
/// | `max_members` | 1,048,576 members on this node, with those that wait | 1 or more | [`Error::Full`] |
/// | `max_joiners` | 65,536 new members that wait for messages, and waits for [`ready`](crate::broker::TopicWatch::ready) | 1 or more | [`Error::Full`] |
/// | `max_recent` | 128 messages in memory | 0 to 65,536 | older ones are read from the broker |
/// | `max_recent_bytes` | 64 KiB, as they were stored | 0 to 64 MiB | the same |
#[must_use]
pub struct TopicBuilder<M> {
    node: Arc<TopicNode>,
    name: String,
    format: Box<dyn TopicFormat<M>>,
    settings: TopicSettings,
    on_event: Option<OnEvent>,
}

impl<M: Clone + Send + Sync + 'static> TopicBuilder<M> {
    pub(in crate::broker) fn new(
        node: Arc<TopicNode>,
        name: String,
        format: Box<dyn TopicFormat<M>>,
    ) -> Self {
        TopicBuilder { node, name, format, settings: TopicSettings::default(), on_event: None }
    }

    /// Sets how much of the topic is kept. The limits of the newest message count, whichever node
    /// has published it.
    pub fn history(mut self, limits: HistoryLimits) -> Self {
        self.settings.history = limits;
        self
    }

    /// Sets how long the id of a message is remembered.
    pub fn id_window(mut self, window: Duration) -> Self {
        self.settings.id_window = window;
        self
    }

    /// Sets what publishing does while the broker cannot be reached.
    pub fn when_unreachable(mut self, policy: WhenUnreachable) -> Self {
        self.settings.when_unreachable = policy;
        self
    }

    /// Sets the largest number of members on this node. New members that wait for messages count.
    pub fn max_members(mut self, members: usize) -> Self {
        self.settings.max_members = members;
        self
    }

    /// Sets the largest number of new members that wait for messages. Waits for
    /// [`TopicWatch::ready`](crate::broker::TopicWatch::ready) count.
    pub fn max_joiners(mut self, joiners: usize) -> Self {
        self.settings.max_joiners = joiners;
        self
    }

    /// Sets how many recent messages the node keeps in memory while the topic has members, for some
    /// [intervals](crate::broker::TopicsBuilder::verify_interval) after the last one. Clients that
    /// return soon need no read of the history.
    pub fn max_recent(mut self, messages: usize) -> Self {
        self.settings.max_recent = messages;
        self
    }

    /// Sets how many bytes the recent messages may have.
    pub fn max_recent_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_recent_bytes = bytes;
        self
    }

    /// Calls `callback` for each event of the topic on this node. It runs on any thread, and must
    /// not block. Events about messages and epochs come between the messages before and after them.
    /// [`Interrupted`](TopicEvent::Interrupted) and [`Resumed`](TopicEvent::Resumed) come at once.
    pub fn on_event(mut self, callback: impl Fn(TopicEvent) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(callback));
        self
    }

    /// Returns the topic. If this node has it already, the settings of the first call stay.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`] if the name or a setting is out of range, or if this node has the topic
    ///   with another type of messages.
    /// - [`Error::Full`] if the node has too many topics.
    /// - [`BrokerError::Closed`](crate::broker::BrokerError::Closed).
    pub fn open(self) -> Result<Topic<M>> {
        let name = TopicName::new(self.name)?;
        self.settings.check()?;
        let (node, settings) = (self.node.clone(), self.settings);
        let create =
            || -> Arc<_> { TopicCore::new(node, name.clone(), self.format, settings, self.on_event) };
        let topic = self.node.open(&name, || create())?;
        let topic = topic.into_any().downcast::<TopicCore<M>>();
        let topic = topic.map_err(|_| Error::setting("topic", &name, "opened with one type of messages"))?;
        Ok(Topic::new(topic))
    }
}

impl<M> fmt::Debug for TopicBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("TopicBuilder");
        debug.field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}
