//! `MapEvent`: the events of a map on a node.

use crate::broker::store::{BrokerError, MapEntry, NodeId, Position};
use bytes::Bytes;

/// An event of a map on this node. See [`MapBuilder::on_event`](super::MapBuilder::on_event).
///
/// A program that applies all [`Changed`](MapEvent::Changed) events to an empty map always has the
/// entries of the replica. They begin anew if the map is opened again after its last handle was
/// dropped.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum MapEvent<'a> {
    /// An entry of the replica has changed: it was set, replaced or removed.
    ///
    /// The entries of the first snapshot are such events too, and so are the differences between
    /// the replica and a later snapshot.
    #[non_exhaustive]
    Changed {
        /// The key of the entry.
        key: &'a Bytes,
        /// The entry before the change. `None` if there was none.
        before: Option<&'a MapEntry>,
        /// The entry from now on. `None` if it was removed.
        now: Option<&'a MapEntry>,
    },
    /// This node does not [hold](super::MapTopic::hold) an entry any more, because it was replaced.
    #[non_exhaustive]
    Lost {
        /// The key of the entry.
        key: &'a Bytes,
        /// The owner of the new entry. `None` if the new entry has no owner.
        by: Option<&'a NodeId>,
    },
    /// The replica may be out of date: the broker cannot be reached, a snapshot could not be read,
    /// or the map is larger than the limits of the replica ([`BrokerError::Full`]), or larger than
    /// an answer of the store may be ([`BrokerError::TooLarge`]).
    Interrupted(&'a BrokerError),
    /// The broker is reached again. What the replica has missed follows as
    /// [`Changed`](MapEvent::Changed) events.
    Resumed,
    /// The store has begun an epoch: it may have lost entries. The differences were reported as
    /// [`Changed`](MapEvent::Changed) events before this one. Entries that this node holds are set
    /// again.
    EpochChanged(Position),
}

/// A callback for the events of a map.
pub(super) type OnMapEvent = Box<dyn Fn(MapEvent<'_>) + Send + Sync>;
