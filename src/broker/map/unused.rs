//! `Unused`: keys and values to be dropped without a lock, because they may be of the program.

use crate::broker::store::{EntryChange, MapEntry};
use bytes::Bytes;

#[derive(Debug, Default)]
pub(super) struct Unused {
    pub(super) keys: Vec<Bytes>,
    pub(super) entries: Vec<MapEntry>,
    pub(super) updates: Vec<Vec<EntryChange>>,
}
