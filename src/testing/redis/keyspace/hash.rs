//! `Hash`: fields with values, in the order in which the fields were added.

use bytes::Bytes;
use std::collections::BTreeMap;

/// The fields of a hash. A small hash of Redis keeps their order too.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Hash {
    places: BTreeMap<Bytes, u64>,
    fields: BTreeMap<u64, (Bytes, Bytes)>,
    next: u64,
}

impl Hash {
    pub(crate) fn len(&self) -> usize {
        self.fields.len()
    }

    pub(crate) fn get(&self, field: &[u8]) -> Option<&Bytes> {
        let place = self.places.get(field)?;
        self.fields.get(place).map(|(_, value)| value)
    }

    /// Sets a field. Returns whether it is new.
    pub(crate) fn set(&mut self, field: &Bytes, value: Bytes) -> bool {
        let place = self.places.get(field).copied();
        let is_new = place.is_none();
        let place = place.unwrap_or_else(|| {
            self.next += 1;
            self.places.insert(field.clone(), self.next);
            self.next
        });
        self.fields.insert(place, (field.clone(), value));
        is_new
    }

    pub(crate) fn remove(&mut self, field: &[u8]) -> bool {
        let place = self.places.remove(field);
        place.is_some_and(|place| self.fields.remove(&place).is_some())
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &(Bytes, Bytes)> {
        self.fields.values()
    }
}
