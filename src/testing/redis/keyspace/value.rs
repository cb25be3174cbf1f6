//! `Value`: the value of a key.

use super::{hash::Hash, sorted_set::SortedSet, stream::Stream};
use bytes::Bytes;
use std::collections::{BTreeSet, VecDeque};

pub(crate) type List = VecDeque<Bytes>;
pub(crate) type Set = BTreeSet<Bytes>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Text(Bytes),
    List(List),
    Set(Set),
    SortedSet(SortedSet),
    Hash(Hash),
    Stream(Stream),
}

impl Value {
    /// Returns the name of the type, which `TYPE` replies.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Value::Text(_) => "string",
            Value::List(_) => "list",
            Value::Set(_) => "set",
            Value::SortedSet(_) => "zset",
            Value::Hash(_) => "hash",
            Value::Stream(_) => "stream",
        }
    }

    /// Returns whether the key is removed, because its last element was. A stream stays.
    pub(crate) fn is_void(&self) -> bool {
        match self {
            Value::Text(_) | Value::Stream(_) => false,
            Value::List(list) => list.is_empty(),
            Value::Set(set) => set.is_empty(),
            Value::SortedSet(set) => set.len() == 0,
            Value::Hash(hash) => hash.len() == 0,
        }
    }
}

/// A type of values, for lookups that fail for keys of another type.
pub(crate) trait Kind: Sized {
    fn of_mut(value: &mut Value) -> Option<&mut Self>;
    /// Returns the value of a new key.
    fn empty() -> Value;
}

macro_rules! kind {
    ($type:ty, $variant:ident) => {
        impl Kind for $type {
            fn of_mut(value: &mut Value) -> Option<&mut Self> {
                if let Value::$variant(value) = value { Some(value) } else { None }
            }
            fn empty() -> Value {
                Value::$variant(<$type>::default())
            }
        }
    };
}

kind!(Bytes, Text);
kind!(List, List);
kind!(Set, Set);
kind!(SortedSet, SortedSet);
kind!(Hash, Hash);
kind!(Stream, Stream);
