//! `MapBuilder`: the settings of a map.

use super::{
    core::MapCore,
    event::{MapEvent, OnMapEvent},
    handle::MapTopic,
    settings::MapSettings,
};
use crate::broker::{node::TopicNode, store::TopicName};
use crate::error::{Error, Result};
use std::{fmt, sync::Arc};

/// Settings of a [`MapTopic`], which [`open`](MapBuilder::open) returns.
///
/// | setting | default | range | when it is reached |
/// |---|---|---|---|
/// | `max_entries` | 100,000 entries | 1 or more | a new entry is refused; a map that has more is not loaded until it fits ([`MapEvent::Interrupted`]) |
/// | `max_bytes` | 64 MiB of keys and values | 1 byte or more | the replica stays as it is until the map fits ([`MapEvent::Interrupted`]) |
/// | `max_held` | 100,000 entries held by this node | 1 or more | [`Error::Full`] |
/// | `max_pending` | 16,384 unanswered operations, and 64 MiB of keys and values | 1 or more | [`Error::Full`] |
#[must_use]
pub struct MapBuilder {
    node: Arc<TopicNode>,
    name: String,
    settings: MapSettings,
    on_event: Option<OnMapEvent>,
}

impl MapBuilder {
    pub(in crate::broker) fn new(node: Arc<TopicNode>, name: String) -> Self {
        MapBuilder { node, name, settings: MapSettings::default(), on_event: None }
    }

    /// Sets the largest number of entries in the map. All nodes should have the same one: each node
    /// applies its own to the entries that it adds. A store may have a lower limit.
    pub fn max_entries(mut self, entries: u64) -> Self {
        self.settings.max_entries = entries;
        self
    }

    /// Sets the largest number of bytes of all keys and values in the replica of this node.
    pub fn max_bytes(mut self, bytes: usize) -> Self {
        self.settings.max_bytes = bytes;
        self
    }

    /// Sets the largest number of entries that this node holds in the map. Entries with an
    /// unanswered `hold` or `release` count.
    pub fn max_held(mut self, entries: usize) -> Self {
        self.settings.max_held = entries;
        self
    }

    /// Sets the largest number of operations on the map that the broker has not answered.
    pub fn max_pending(mut self, operations: usize) -> Self {
        self.settings.max_pending = operations;
        self
    }

    /// Calls `callback` for each event of the map on this node. It runs on any thread, one call
    /// after the other, and must not block. During the call, the replica has exactly the changes
    /// that were reported up to this event.
    pub fn on_event(mut self, callback: impl Fn(MapEvent<'_>) + Send + Sync + 'static) -> Self {
        self.on_event = Some(Box::new(callback));
        self
    }

    /// Returns the map, and begins to follow it. If this node has it already, the settings and the
    /// callback of the first call stay. The node has the map until the last handle is dropped and
    /// the broker has removed the entries that the node held. If the map is opened before that, the
    /// callback of the first call may receive the entries again, as new ones.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`] if the name or a setting is out of range, or if this node has a topic
    ///   with the name that is not a map.
    /// - [`Error::Full`] if the node has too many topics.
    /// - [`BrokerError::Closed`](crate::broker::BrokerError::Closed).
    pub fn open(self) -> Result<MapTopic> {
        let name = TopicName::new(self.name)?;
        self.settings.check()?;
        let (node, settings) = (self.node.clone(), self.settings);
        let map = self.node.open(&name, || MapCore::new(node, name.clone(), settings, self.on_event))?;
        let map = map.into_any().downcast::<MapCore>();
        let map = map.map_err(|_| Error::setting("map", &name, "a name that no topic with messages has"))?;
        Ok(MapTopic::new(map))
    }
}

impl fmt::Debug for MapBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("MapBuilder");
        debug.field("name", &self.name).field("settings", &self.settings).finish_non_exhaustive()
    }
}
