//! Operations on map topics: keyed values with a revision.

use super::{epochs::Epochs, lease::NodeId, position::Position, topic_name::TopicName};
use bytes::Bytes;

/// A condition of a change of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum MapCondition {
    /// The key is not in the map.
    Absent,
    /// The entry was set at this position, and not since.
    Unchanged(Position),
}

/// A change of one entry of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapChange {
    /// The key of the entry.
    pub key: Bytes,
    /// The new value. `None` removes the entry.
    pub value: Option<Bytes>,
    /// The change is made only if this holds. `None` by default.
    pub condition: Option<MapCondition>,
}

impl MapChange {
    /// Creates a change that sets a value.
    pub fn set(key: impl Into<Bytes>, value: impl Into<Bytes>) -> Self {
        MapChange { key: key.into(), value: Some(value.into()), condition: None }
    }

    /// Creates a change that removes an entry. Without the entry, nothing is changed.
    pub fn remove(key: impl Into<Bytes>) -> Self {
        MapChange { key: key.into(), value: None, condition: None }
    }

    /// Returns whether the change can be made. `entry` is the position of the entry in the map, and
    /// `has_room` states whether the map may have one more.
    pub(in crate::broker) fn is_possible(&self, entry: Option<Position>, has_room: bool) -> bool {
        let is_met = match self.condition {
            None => true,
            Some(MapCondition::Absent) => entry.is_none(),
            Some(MapCondition::Unchanged(position)) => entry == Some(position),
        };
        is_met && (entry.is_some() || self.value.is_some() && has_room)
    }

    /// Returns the bytes of key and value.
    pub(in crate::broker) fn size(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// Changes of a map that are made in one step.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct MapUpdate {
    /// The map.
    pub topic: TopicName,
    /// The changes, at most [`MapUpdate::LIMIT`]. They are made one after the other.
    pub changes: Vec<MapChange>,
    /// The node that owns the entries which are set: they are removed when its lease ends. Without
    /// an owner, which is the default, they stay.
    pub owner: Option<NodeId>,
    /// The highest position that the node has seen. `None` by default.
    pub seen: Option<Position>,
    /// The largest number of entries in the map. A change that would exceed it is not made. A store
    /// may have a lower limit.
    /// [`MapUpdate::DEFAULT_MAX_ENTRIES`] by default.
    pub max_entries: u64,
}

impl MapUpdate {
    /// The largest number of changes in one update.
    pub const LIMIT: usize = 1000;
    /// The largest number of entries in a map, unless set otherwise.
    pub const DEFAULT_MAX_ENTRIES: u64 = 100_000;

    /// Creates an update without an owner.
    pub fn new(topic: TopicName, changes: Vec<MapChange>) -> Self {
        MapUpdate { topic, changes, owner: None, seen: None, max_entries: Self::DEFAULT_MAX_ENTRIES }
    }

    /// Returns the bytes of all keys and values.
    #[cfg(any(feature = "broker-redis", feature = "broker-sqlite"))]
    pub(in crate::broker) fn bytes(&self) -> usize {
        self.changes.iter().map(MapChange::size).sum()
    }
}

/// The result of an update of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// The position of the update. If no change was made, the one behind the top.
    pub position: Position,
    /// Whether each change was made, in the order of the update.
    pub made: Vec<bool>,
}

impl Changed {
    /// Creates a result.
    pub fn new(position: Position, made: Vec<bool>) -> Self {
        Changed { position, made }
    }
}

/// A change of an entry that was made.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct EntryChange {
    /// The key of the entry.
    pub key: Bytes,
    /// The new value. `None` if the entry was removed.
    pub value: Option<Bytes>,
    /// The node that owns the entry.
    pub owner: Option<NodeId>,
}

impl EntryChange {
    /// Creates a change without an owner.
    pub fn new(key: Bytes, value: Option<Bytes>) -> Self {
        EntryChange { key, value, owner: None }
    }

    /// Returns the bytes of key and value.
    pub(in crate::broker) fn size(&self) -> usize {
        self.key.len() + self.value.as_ref().map_or(0, Bytes::len)
    }
}

/// An entry of a map.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct MapEntry {
    /// The key.
    pub key: Bytes,
    /// The value.
    pub value: Bytes,
    /// The node that owns the entry.
    pub owner: Option<NodeId>,
    /// The position of the update that has set the entry.
    pub position: Position,
}

impl MapEntry {
    /// Creates an entry without an owner.
    pub fn new(key: Bytes, value: Bytes, position: Position) -> Self {
        MapEntry { key, value, owner: None, position }
    }

    /// Returns the bytes of key and value.
    pub(in crate::broker) fn size(&self) -> usize {
        self.key.len() + self.value.len()
    }
}

/// All entries of a map, at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The epochs of the map.
    pub epochs: Epochs,
    /// The offset of the newest update that was ever made, or zero.
    pub top: u64,
    /// The entries, in no particular order.
    pub entries: Vec<MapEntry>,
}

impl Snapshot {
    /// Creates a snapshot.
    pub fn new(epochs: Epochs, top: u64, entries: Vec<MapEntry>) -> Self {
        Snapshot { epochs, top, entries }
    }
}
