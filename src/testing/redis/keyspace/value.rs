//! `StoredValue`: the value of a key.

use super::{hash::Hash, sorted_set::SortedSet, stream::StreamValue};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

pub(crate) type List = VecDeque<Bytes>;
pub(crate) type Set = BTreeSet<Bytes>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum StoredValue {
    Text(Bytes),
    List(List),
    Set(Set),
    SortedSet(SortedSet),
    Hash(Hash),
    Stream(StreamValue),
}

impl StoredValue {
    /// Returns the name of the type, which `TYPE` replies.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            StoredValue::Text(_) => "string",
            StoredValue::List(_) => "list",
            StoredValue::Set(_) => "set",
            StoredValue::SortedSet(_) => "zset",
            StoredValue::Hash(_) => "hash",
            StoredValue::Stream(_) => "stream",
        }
    }

    /// Returns whether the key is removed, because its last element was. A stream stays.
    pub(crate) fn is_void(&self) -> bool {
        match self {
            StoredValue::Text(_) | StoredValue::Stream(_) => false,
            StoredValue::List(list) => list.is_empty(),
            StoredValue::Set(set) => set.is_empty(),
            StoredValue::SortedSet(set) => set.len() == 0,
            StoredValue::Hash(hash) => hash.len() == 0,
        }
    }
}

/// A type of values, for lookups that fail for keys of another type.
pub(crate) trait ValueKind: Sized {
    fn of_mut(value: &mut StoredValue) -> Option<&mut Self>;
    /// Returns the value of a new key.
    fn empty() -> StoredValue;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl ValueKind for $type {
            fn of_mut(value: &mut StoredValue) -> Option<&mut Self> {
                if let StoredValue::$variant(value) = value { Some(value) } else { None }
            }
            fn empty() -> StoredValue {
                StoredValue::$variant(<$type>::default())
            }
        }
    };
}

kind!(Bytes, Text);
kind!(List, List);
kind!(Set, Set);
kind!(SortedSet, SortedSet);
kind!(Hash, Hash);
kind!(StreamValue, Stream);
