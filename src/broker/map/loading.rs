//! `Loading`: a snapshot that becomes the replica, one change after the other. Pure.

use super::{
    replica::{Replica, ReplicaChange},
    unused::Unused,
};
use crate::broker::store::MapEntry;
use bytes::Bytes;
use std::{iter::Peekable, vec::IntoIter};

/// How many equal entries one step skips.
const SKIPPED_PER_STEP: usize = 256;

/// The difference between a snapshot and the replica.
#[derive(Debug)]
pub(super) struct Loading {
    /// In the order of keys.
    entries: Peekable<IntoIter<MapEntry>>,
    /// The last key that is compared.
    compared: Option<Bytes>,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "it is returned, and not stored")]
pub(super) enum LoadStep {
    Changed(ReplicaChange),
    /// Some entries were equal.
    Skipped,
    Done,
}

impl Loading {
    /// `entries` are in the order of keys, each key once.
    pub(super) fn new(entries: Vec<MapEntry>) -> Self {
        Loading { entries: entries.into_iter().peekable(), compared: None }
    }

    /// Makes the next difference disappear. `unused` receives keys and entries to be dropped
    /// without a lock.
    pub(super) fn next(&mut self, replica: &mut Replica, unused: &mut Unused) -> LoadStep {
        for _ in 0..SKIPPED_PER_STEP {
            let old = replica.after(self.compared.as_deref());
            let (old_key, new_key) = (old.map(|old| &old.key), self.entries.peek().map(|new| &new.key));
            let only_old = match (old_key, new_key) {
                (None, None) => {
                    unused.keys.extend(self.compared.take());
                    return LoadStep::Done;
                }
                (Some(old), new) => new.is_none_or(|new| old < new),
                (None, Some(_)) => false,
            };
            if only_old {
                let Some(key) = old_key.cloned() else { return LoadStep::Done };
                let removed = replica.remove(&key);
                unused.keys.extend(self.compared.replace(key));
                if let Some(removed) = removed {
                    return LoadStep::Changed(removed);
                }
                continue;
            }
            let is_equal = old == self.entries.peek();
            let Some(entry) = self.entries.next() else { return LoadStep::Done };
            unused.keys.extend(self.compared.replace(entry.key.clone()));
            if !is_equal {
                return LoadStep::Changed(replica.set(entry));
            }
            unused.entries.push(entry);
        }
        LoadStep::Skipped
    }
}
