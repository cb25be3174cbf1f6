//! `TopicsBuilder`: the settings of a node.

use super::handle::Topics;
use crate::broker::{
    node::{LeaseEvent, NodeSettings, TopicNode},
    store::{Broker, Partitions},
};
use crate::{error::Result, event_loop::EventLoop, group::EventLoopGroup, settings::check_range};
use std::{fmt, sync::Arc, time::Duration};

/// Settings of [`Topics`]. [`build`](TopicsBuilder::build) reports invalid values.
///
/// | setting | default | range | when it is reached |
/// |---|---|---|---|
/// | `node` | a random name | 1 to 64 ASCII letters, digits, `-`, `_` or `.` | |
/// | `partitions` | 64 | a power of two from 1 to 256, the same on all nodes | |
/// | `max_topics` | 65,536 topics | 1 or more | [`Error::Full`](crate::Error::Full) |
/// | `max_pending` | 16,384 unanswered publications | 1 or more | [`Error::Full`](crate::Error::Full) |
/// | `max_payload` | 64 KiB | 1 byte to 16 MiB | [`Error::Setting`](crate::Error::Setting) |
/// | `verify_interval` | 10 s | 100 ms to 1 h | partitions without events are verified |
/// | `lease` | 10 s | 1 s to 1 h | the node's entries in maps are removed |
#[must_use]
pub struct TopicsBuilder {
    broker: Arc<dyn Broker>,
    event_loop: EventLoop,
    partitions: u16,
    settings: NodeSettings,
}

impl Topics {
    /// Returns a builder with default settings for a node with this broker.
    pub fn builder(group: &EventLoopGroup, broker: impl Broker) -> TopicsBuilder {
        TopicsBuilder::new(group, Arc::new(broker))
    }
}

impl TopicsBuilder {
    fn new(group: &EventLoopGroup, broker: Arc<dyn Broker>) -> Self {
        let (event_loop, settings) = (group.next().clone(), NodeSettings::default());
        TopicsBuilder { broker, event_loop, partitions: settings.partitions.get(), settings }
    }

    /// Sets the name of the node, which no other node of the store has. A node that starts with a
    /// name takes over its lease, so a restarted node need not wait. The earlier node gets
    /// [`LeaseEvent::Taken`], and is without [authority](Topics::authority).
    pub fn node(mut self, name: impl Into<String>) -> Self {
        self.settings.name = Some(name.into());
        self
    }

    /// Sets the number of partitions over which topics are spread. It cannot be changed later,
    /// because the store refuses nodes with another number.
    pub fn partitions(mut self, partitions: u16) -> Self {
        self.partitions = partitions;
        self
    }

    /// Sets the largest number of topics of this node: those with handles or members.
    pub fn max_topics(mut self, topics: usize) -> Self {
        self.settings.max_topics = topics;
        self
    }

    /// Sets the largest number of publications that the broker has not answered.
    pub fn max_pending(mut self, publications: usize) -> Self {
        self.settings.max_pending = publications;
        self
    }

    /// Sets the largest size of an encoded message, and of a key with its value in a map, in bytes.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.settings.max_payload = bytes;
        self
    }

    /// Sets after which time without events a partition is verified, with one request. The topics
    /// of this node are also asked for several times in the
    /// [life of their metadata](Broker::metadata_life), so that the store keeps them.
    pub fn verify_interval(mut self, interval: Duration) -> Self {
        self.settings.verify_interval = interval;
        self
    }

    /// Sets how long the lease of the node lives without a renewal. It is renewed after three
    /// tenths of this time.
    pub fn lease(mut self, duration: Duration) -> Self {
        self.settings.lease = duration;
        self
    }

    /// Calls `callback` when the lease of the node begins and ends. Entries of maps that the node
    /// [holds](crate::broker::MapTopic::hold) are set again when a lease begins. A program that
    /// owns entries of other maps, which it changes with the [broker](Topics::broker), has to set
    /// them itself. The callback runs on any thread, and must not block.
    pub fn on_lease(mut self, callback: impl Fn(LeaseEvent) + Send + Sync + 'static) -> Self {
        self.settings.on_lease = Some(Arc::new(callback));
        self
    }

    /// Starts the broker for this node.
    ///
    /// Does not wait for a server. While it cannot be reached, operations fail.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`](crate::Error::Setting) if a setting is out of range.
    /// - The error of [`Broker::start`].
    /// - [`Error::Full`](crate::Error::Full) or [`Error::ShutDown`](crate::Error::ShutDown) if the
    ///   event loop accepts no periodic tasks.
    pub fn build(mut self) -> Result<Topics> {
        self.settings.partitions = Partitions::new(self.partitions)?;
        let NodeSettings { max_topics, max_pending, max_payload, verify_interval, lease, .. } = self.settings;
        check_range("max_topics", max_topics, 1.., "1 or more")?;
        check_range("max_pending", max_pending, 1.., "1 or more")?;
        check_range("max_payload", max_payload, 1..=16 << 20, "1 byte to 16 MiB")?;
        let hour = Duration::from_secs(60 * 60);
        check_range("verify_interval", verify_interval, Duration::from_millis(100)..=hour, "100 ms to 1 h")?;
        check_range("lease", lease, Duration::from_secs(1)..=hour, "1 s to 1 h")?;
        Ok(Topics::new(TopicNode::start(self.broker, self.event_loop, self.settings)?))
    }
}

impl fmt::Debug for TopicsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let NodeSettings { name, verify_interval, lease, .. } = &self.settings;
        f.debug_struct("TopicsBuilder")
            .field("node", name)
            .field("partitions", &self.partitions)
            .field("verify_interval", verify_interval)
            .field("lease", lease)
            .finish_non_exhaustive()
    }
}
