//! `Topics`: the handle of a node.

use crate::broker::{
    map::MapBuilder,
    node::{BrokerMetrics, TopicNode},
    store::{Broker, NodeId},
    topic::{TopicBuilder, TopicFormat},
};
use crate::sync::Completion;
use std::{fmt, sync::Arc};

/// The topics of one node.
///
/// A handle, which can be cloned, sent and shared. When all handles of a node and of its topics are
/// dropped, and its topics are without members, the node ends. [`close`](Topics::close) ends it
/// earlier, and so does the end of the group. One event loop of the group renews the lease of the
/// node and verifies quiet partitions.
#[derive(Clone)]
pub struct Topics {
    node: Arc<TopicNode>,
}

impl Topics {
    pub(super) fn new(node: Arc<TopicNode>) -> Self {
        Topics { node }
    }

    /// Returns a builder for a topic, with default settings.
    pub fn topic<M: Clone + Send + Sync + 'static>(
        &self,
        name: impl Into<String>,
        format: impl TopicFormat<M>,
    ) -> TopicBuilder<M> {
        TopicBuilder::new(self.node.clone(), name.into(), Box::new(format))
    }

    /// Returns a builder for a map, with default settings. A name belongs to a topic or to a map.
    pub fn map(&self, name: impl Into<String>) -> MapBuilder {
        MapBuilder::new(self.node.clone(), name.into())
    }

    /// Returns the id of this node while it has its lease by its own clock.
    ///
    /// `None` before the first renewal, and when the lease could not be renewed in time, for
    /// example because the process was stopped. Another node may have taken over by then, so do
    /// nothing that needs authority. A node whose lease has ended gets a new id. `None` also after
    /// [`close`](Topics::close), and while another node with the same name has a lease.
    ///
    /// The clock is that of the group. [`SystemClock`](crate::time::SystemClock), the default,
    /// stops on Linux while the machine is suspended. After that, the node believes to have a lease
    /// that the store has ended, until the next renewal. `BootClock` does not stop.
    pub fn authority(&self) -> Option<NodeId> {
        self.node.authority()
    }

    /// Returns the broker, for operations without a [`Topic`](crate::broker::Topic) or a
    /// [`MapTopic`](crate::broker::MapTopic).
    ///
    /// While this node has a `MapTopic`, do not set entries of its map with the id of this node as
    /// their owner: the `MapTopic` removes them, because it does not hold them.
    pub fn broker(&self) -> &dyn Broker {
        &*self.node.broker
    }

    /// Returns the current metrics. Callable from any thread, without a lock.
    pub fn metrics(&self) -> BrokerMetrics {
        self.node.metrics.snapshot()
    }

    /// Returns a collector of the metrics for
    /// [`prometheus::encode`](crate::prometheus::encode).
    ///
    /// Every field of [`BrokerMetrics`] is exported under a name that begins with
    /// `netwheel_broker_`, with the given name as the label `broker`. `docs/observability.md` lists
    /// all names. Encoding runs on the calling thread, without a lock. A collector does not keep
    /// the node alive.
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, broker::{MemoryBroker, Topics}, prometheus};
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let topics = Topics::builder(&group, MemoryBroker::new()).build()?;
    /// let text = prometheus::encode(&(&group, topics.collector("rooms")))?;
    /// assert!(text.contains(r#"netwheel_broker_published_total{broker="rooms"} 0"#));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    #[cfg(feature = "prometheus")]
    pub fn collector(&self, name: impl Into<String>) -> crate::prometheus::Collector {
        let metrics = self.node.metrics.clone();
        crate::prometheus::Collector::of("broker", name.into(), move || metrics.snapshot().rows())
    }

    /// Ends the lease of the node, and closes the broker. Members stay connected and receive
    /// nothing more.
    pub fn close(&self) -> Completion {
        self.node.close()
    }
}

impl fmt::Debug for Topics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topics").field("authority", &self.authority()).finish_non_exhaustive()
    }
}
