//! `StreamValue`: entries with growing ids.

use bytes::Bytes;
use std::{
    collections::{BTreeMap, btree_map},
    fmt,
    ops::RangeBounds,
};

/// The id of an entry: milliseconds, and a number among the entries of a millisecond.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StreamId {
    pub(crate) ms: u64,
    pub(crate) seq: u64,
}

impl StreamId {
    pub(crate) const MIN: StreamId = StreamId { ms: 0, seq: 0 };
    pub(crate) const MAX: StreamId = StreamId { ms: u64::MAX, seq: u64::MAX };

    pub(crate) fn next(self) -> Option<Self> {
        match self.seq.checked_add(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_add(1)?, seq: 0 }),
        }
    }

    pub(crate) fn previous(self) -> Option<Self> {
        match self.seq.checked_sub(1) {
            Some(seq) => Some(StreamId { seq, ..self }),
            None => Some(StreamId { ms: self.ms.checked_sub(1)?, seq: u64::MAX }),
        }
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.ms, self.seq)
    }
}

/// How a stream is shortened.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Trim {
    /// To a number of entries.
    MaxLen(u64),
    /// To the entries from an id on.
    MinId(StreamId),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct StreamValue {
    entries: BTreeMap<StreamId, Vec<Bytes>>,
    /// The id of the last entry, also after its deletion.
    pub(crate) last: StreamId,
}

impl StreamValue {
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds an entry. Its id must be larger than the last one.
    pub(crate) fn add(&mut self, id: StreamId, fields: Vec<Bytes>) {
        self.entries.insert(id, fields);
        self.last = id;
    }

    pub(crate) fn remove(&mut self, id: StreamId) -> bool {
        self.entries.remove(&id).is_some()
    }

    /// Removes entries from the beginning.
    pub(crate) fn trim(&mut self, trim: Trim) {
        match trim {
            Trim::MaxLen(length) => {
                while self.entries.len() as u64 > length {
                    self.entries.pop_first();
                }
            }
            Trim::MinId(id) => self.entries = self.entries.split_off(&id),
        }
    }

    pub(crate) fn range(
        &self,
        ids: impl RangeBounds<StreamId>,
    ) -> btree_map::Range<'_, StreamId, Vec<Bytes>> {
        self.entries.range(ids)
    }
}
