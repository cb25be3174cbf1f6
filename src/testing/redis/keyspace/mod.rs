//! `Keyspace`: the keys of all databases.
//!
//! Invariants: no key holds an empty list, set or hash. The keyspace does not read a clock and does
//! not draw random numbers, so equal commands lead to equal keyspaces.

mod hash;
mod sorted_set;
mod stream;
mod value;

pub(super) use hash::Hash;
pub(super) use sorted_set::SortedSet;
pub(super) use stream::{StreamId, StreamValue, Trim};
pub(super) use value::{List, Set, StoredValue, ValueKind};

use bytes::Bytes;
use std::collections::BTreeMap;

/// The number of databases, as in the default configuration of Redis.
pub(super) const DATABASES: usize = 16;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Entry {
    pub(super) value: StoredValue,
    /// When the key expires, in milliseconds since the Unix epoch.
    pub(super) expires_at: Option<i64>,
}

impl Entry {
    /// Returns whether the time of the expiry has passed. In its last millisecond the key is there.
    pub(super) fn has_expired(&self, now: i64) -> bool {
        self.expires_at.is_some_and(|at| at < now)
    }
}

pub(super) type Database = BTreeMap<Bytes, Entry>;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Keyspace {
    databases: Vec<Database>,
}

impl Default for Keyspace {
    fn default() -> Self {
        Keyspace { databases: vec![Database::new(); DATABASES] }
    }
}

impl Keyspace {
    /// Returns a database by its index, which is less than [`DATABASES`].
    pub(super) fn database(&self, index: usize) -> &Database {
        &self.databases[index]
    }

    pub(super) fn database_mut(&mut self, index: usize) -> &mut Database {
        &mut self.databases[index]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_in_the_last_millisecond_of_its_time() {
        let entry = Entry { value: StoredValue::Text(Bytes::new()), expires_at: Some(5) };
        assert!(!entry.has_expired(5));
        assert!(entry.has_expired(6));
    }
}
