//! `Replica`: the entries of a map on one node. Pure.
//!
//! Keys and values are not dropped here: the caller receives them.

use crate::broker::store::{EntryChange, MapEntry, Position};
use bytes::Bytes;
use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Included, Unbounded},
};

/// A change of an entry of a replica.
#[derive(Debug)]
pub(super) struct ReplicaChange {
    pub(super) key: Bytes,
    pub(super) before: Option<MapEntry>,
    pub(super) now: Option<MapEntry>,
}

#[derive(Debug, Default)]
pub(super) struct Replica {
    entries: BTreeMap<Bytes, MapEntry>,
    /// The bytes of all keys and values.
    bytes: usize,
}

impl Replica {
    pub(super) fn get(&self, key: &[u8]) -> Option<&MapEntry> {
        self.entries.get(key)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the entries whose keys begin with a prefix, in the order of their keys.
    pub(super) fn with_prefix<'a>(&'a self, prefix: &'a [u8]) -> impl Iterator<Item = &'a MapEntry> {
        let from = self.entries.range::<[u8], _>((Included(prefix), Unbounded));
        from.take_while(move |(key, _)| key.starts_with(prefix)).map(|(_, entry)| entry)
    }

    /// Returns the first entry behind a key.
    pub(super) fn after(&self, key: Option<&[u8]>) -> Option<&MapEntry> {
        let from = key.map_or(Unbounded, Excluded);
        self.entries.range::<[u8], _>((from, Unbounded)).next().map(|(_, entry)| entry)
    }

    pub(super) fn set(&mut self, entry: MapEntry) -> ReplicaChange {
        let key = entry.key.clone();
        self.bytes += entry.size();
        let before = self.entries.insert(key.clone(), entry.clone());
        self.bytes -= before.as_ref().map_or(0, MapEntry::size);
        ReplicaChange { key, before, now: Some(entry) }
    }

    /// Removes an entry. `None` if there is none.
    pub(super) fn remove(&mut self, key: &[u8]) -> Option<ReplicaChange> {
        let (key, before) = self.entries.remove_entry(key)?;
        self.bytes -= before.size();
        Some(ReplicaChange { key, before: Some(before), now: None })
    }

    /// Makes a change of an update with this position. `None` if it changes nothing. `unused`
    /// receives keys to be dropped without a lock.
    pub(super) fn apply(
        &mut self,
        change: EntryChange,
        position: Position,
        unused: &mut Vec<Bytes>,
    ) -> Option<ReplicaChange> {
        let EntryChange { key, value, owner } = change;
        let Some(value) = value else {
            let removed = self.remove(&key);
            unused.push(key);
            return removed;
        };
        let mut entry = MapEntry::new(key, value, position);
        entry.owner = owner;
        Some(self.set(entry))
    }

    /// Returns the number of entries and bytes behind an update. Changes of the same key count as
    /// changes of different ones.
    pub(super) fn after_update(&self, changes: &[EntryChange]) -> (usize, usize) {
        let (mut entries, mut bytes) = (self.len(), self.bytes);
        for change in changes {
            let (before, is_set) = (self.get(&change.key), change.value.is_some());
            entries = (entries + usize::from(is_set)).saturating_sub(usize::from(before.is_some()));
            let added = if is_set { change.size() } else { 0 };
            bytes = (bytes + added).saturating_sub(before.map_or(0, MapEntry::size));
        }
        (entries, bytes)
    }
}
