//! `MapTopic`: the handle of a map.

use super::core::MapCore;
use crate::broker::store::{Changed, MapChange, MapCondition, MapEntry, Position, TopicName};
use crate::sync::Completion;
use bytes::Bytes;
use std::{fmt, sync::Arc};

/// A map that nodes share, with a replica on this node. Keys and values are bytes.
///
/// A handle, which can be cloned, sent and shared. [`Topics::map`](crate::broker::Topics::map)
/// creates it. The node follows the map as long as there is a handle. When the last one is dropped,
/// the node releases the entries that it holds. Methods may be called from any thread, also in a
/// handler's callback and in the callback for events.
///
/// ```
/// use netwheel::{EventLoopGroup, Result};
/// use netwheel::broker::{MapCondition, MapEvent, MemoryBroker, Topics};
///
/// # fn main() -> Result {
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let topics = Topics::builder(&group, MemoryBroker::new()).node("a").build()?;
/// let users = topics
///     .map("users")
///     .on_event(|event| {
///         if let MapEvent::Changed { key, now, .. } = event {
///             println!("{key:?} is {}", if now.is_some() { "online" } else { "offline" });
///         }
///     })
///     .open()?;
/// users.ready().wait()?;
/// let held = users.hold("ann", "node a", Some(MapCondition::Absent)).wait()?;
/// assert!(held.is_some());
/// assert_eq!(users.hold("ann", "again", Some(MapCondition::Absent)).wait()?, None);
/// assert!(users.release("ann").wait()?);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
///
/// - The replica is the map at one position, except while a snapshot is loaded. It follows the map
///   in the order of positions. If the node has missed a change, it loads a snapshot, and reports
///   the differences as events.
/// - An operation completes when the store has made it. The replica follows afterwards.
/// - Operations of this node that hold and release entries are made in the order of the calls for
///   each key.
/// - An entry that this node holds is in the map as long as the node has its lease and the store
///   can be reached. If the lease ends, or if the store loses the entry, the node sets it again. If
///   another owner has set the entry in the meantime, the node loses it
///   ([`MapEvent::Lost`](super::MapEvent::Lost)).
#[derive(Clone)]
pub struct MapTopic {
    handle: Arc<Handle>,
}

/// One handle, with its clones.
struct Handle {
    core: Arc<MapCore>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.core.handle_dropped();
    }
}

impl MapTopic {
    pub(super) fn new(core: Arc<MapCore>) -> Self {
        core.handle_added();
        MapTopic { handle: Arc::new(Handle { core }) }
    }

    fn core(&self) -> &Arc<MapCore> {
        &self.handle.core
    }

    /// Returns the name.
    pub fn name(&self) -> &TopicName {
        &self.core().name
    }

    // ---- replica --------------------------------------------------------------------------------

    /// Completes when the first snapshot is loaded, or at once if that is the case.
    ///
    /// # Errors
    ///
    /// - [`Error::Full`](crate::Error::Full) if too many operations are unanswered.
    /// - A [`BrokerError`](crate::broker::BrokerError) if the map cannot be read at all, for
    ///   example because the topic has messages. While the broker cannot be reached, or the map is
    ///   larger than the limits of the replica or than an answer of the store, this waits.
    pub fn ready(&self) -> Completion {
        self.core().ready()
    }

    /// Returns an entry of the replica.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Option<MapEntry> {
        self.core().state.read(|state| state.map.follower.replica().get(key.as_ref()).cloned())
    }

    /// Returns the number of entries in the replica.
    pub fn len(&self) -> usize {
        self.core().state.read(|state| state.map.follower.replica().len())
    }

    /// Returns whether the replica is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns all entries of the replica, in the order of their keys.
    pub fn entries(&self) -> Vec<MapEntry> {
        self.entries_with_prefix([])
    }

    /// Returns the entries of the replica whose keys begin with `prefix`, in the order of their
    /// keys.
    pub fn entries_with_prefix(&self, prefix: impl AsRef<[u8]>) -> Vec<MapEntry> {
        let prefix = prefix.as_ref();
        self.core().state.read(|state| state.map.follower.replica().with_prefix(prefix).cloned().collect())
    }

    /// Returns the position of the replica. `None` before the first snapshot is loaded. While
    /// another one is loaded, the position before it.
    pub fn position(&self) -> Option<Position> {
        self.core().state.read(|state| state.map.follower.position())
    }

    // ---- entries without an owner ---------------------------------------------------------------

    /// Sets an entry without an owner, which stays until it is removed. Completes with its position
    /// once it is stored.
    ///
    /// # Errors
    ///
    /// - [`BrokerError::Full`](crate::broker::BrokerError::Full) if the entry is new, and the map
    ///   has [`max_entries`](super::MapBuilder::max_entries) others, or as many as the store
    ///   allows.
    /// - Those of [`update`](MapTopic::update).
    pub fn set(&self, key: impl Into<Bytes>, value: impl Into<Bytes>) -> Completion<Position> {
        self.core().set(key.into(), value.into())
    }

    /// Removes an entry of any owner. Completes with `true` if the entry was in the map.
    ///
    /// A node that holds the entry sets it again. To take an entry over,
    /// [hold](MapTopic::hold) it.
    ///
    /// # Errors
    ///
    /// Those of [`update`](MapTopic::update).
    pub fn remove(&self, key: impl Into<Bytes>) -> Completion<bool> {
        self.core().remove(key.into())
    }

    /// Makes up to 1000 changes in one step, with conditions. It sets entries without an owner.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`](crate::Error::Setting) if there are more changes, or if a key and its
    ///   value are together larger than [`max_payload`](crate::broker::TopicsBuilder::max_payload).
    /// - [`Error::Full`](crate::Error::Full) if too many operations are unanswered.
    /// - A [`BrokerError`](crate::broker::BrokerError). It says whether the changes may have been
    ///   made all the same.
    pub fn update(&self, changes: Vec<MapChange>) -> Completion<Changed> {
        self.core().update(changes)
    }

    // ---- entries of this node -------------------------------------------------------------------

    /// Sets an entry that this node owns, until it is [released](MapTopic::release) or lost.
    ///
    /// Completes with the position of the entry once it is stored. Completes with `None` if the
    /// condition does not hold. Also completes with `None`, with any condition and without one, if
    /// the entry is new and the map is full: it has
    /// [`max_entries`](super::MapBuilder::max_entries) others, or as many as the store allows.
    ///
    /// The store removes the entry when the lease of this node ends. The node sets it again once it
    /// has another lease, and the map has room. An entry that this node holds already gets the new
    /// value.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`](crate::Error::Setting) if key and value are together larger than
    ///   [`max_payload`](crate::broker::TopicsBuilder::max_payload).
    /// - [`Error::Full`](crate::Error::Full) if the node holds too many entries, or if too many
    ///   operations are unanswered.
    /// - [`BrokerError::LeaseEnded`](crate::broker::BrokerError::LeaseEnded) while the node is
    ///   without [authority](crate::broker::Topics::authority).
    /// - Another [`BrokerError`](crate::broker::BrokerError). If the entry was set all the same,
    ///   the node removes it, unless a later call holds it.
    pub fn hold(
        &self,
        key: impl Into<Bytes>,
        value: impl Into<Bytes>,
        condition: Option<MapCondition>,
    ) -> Completion<Option<Position>> {
        self.core().hold(key.into(), value.into(), condition)
    }

    /// Removes an entry if this node holds it. Completes with `true` if the entry was in the map.
    /// Completes with `false` if this node does not hold it. Also completes with `false` if the map
    /// is without the entry of this node, which would have been set again: after the end of a
    /// lease, for example.
    ///
    /// # Errors
    ///
    /// - [`Error::Full`](crate::Error::Full) if too many operations are unanswered.
    /// - A [`BrokerError`](crate::broker::BrokerError). The node does not hold the entry any more,
    ///   and removes it when the broker can be reached.
    pub fn release(&self, key: impl Into<Bytes>) -> Completion<bool> {
        self.core().release(key.into())
    }

    /// Returns whether this node holds an entry: [`hold`](MapTopic::hold) has completed with a
    /// position, and the entry was neither released nor lost since.
    pub fn holds(&self, key: impl AsRef<[u8]>) -> bool {
        self.core().state.read(|state| state.map.holdings.holds(key.as_ref()))
    }
}

impl fmt::Debug for MapTopic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MapTopic").field("name", self.name()).finish_non_exhaustive()
    }
}
