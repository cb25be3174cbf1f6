//! Hash tables that are only looked up.
//!
//! Invariant: nothing depends on their order, which differs in each run. Clippy refuses the types
//! of the standard library elsewhere, and loops over these types.

#![allow(clippy::disallowed_types, reason = "the one place that names them")]

use std::collections::{HashMap, HashSet};

/// A map with random keys, so that a peer cannot choose addresses that collide.
pub(crate) type LookupMap<K, V> = HashMap<K, V>;

/// A set with random keys.
pub(crate) type LookupSet<T> = HashSet<T>;
