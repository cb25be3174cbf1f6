//! The entries of a wheel: deadlines and values, found by keys that carry a generation.
//!
//! Invariants: a key finds its own entry or nothing. A value is dropped or returned as soon as its
//! entry is removed. `lists` owns the links between entries and decides which free place is used
//! next. An index here is an index there, and the heads of level 0 come first.

use std::mem;

use super::{level::WheelPlace, lists::NIL};

/// The number of places added when none is free. It is small, so that memory is not touched long
/// before it is used.
const PLACES_AT_ONCE: usize = 64;

/// A key that identifies an entry of a [`Wheel`](super::Wheel). After the entry is removed, the key
/// matches nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WheelKey {
    pub(super) index: u32,
    generation: u32,
}

impl WheelKey {
    /// A key that never matches an entry. An `Option<WheelKey>` would take half as much memory
    /// again.
    pub(crate) const NONE: WheelKey = WheelKey { index: NIL, generation: 0 };
}

/// An armed timeout or a free place. In this order of fields, all data used by re-arming is
/// adjacent, so it rarely spans two cache lines.
#[repr(C)]
pub(super) struct WheelEntry<T> {
    deadline: Deadline,
    state: EntryState<T>,
}

/// A deadline in nanoseconds, aligned like the fields next to it. With the alignment of `u64`, a
/// value of four bytes would take eight.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Deadline(u64);

/// The tag, the place and the generation share eight bytes. An `Option`, or a place in one field,
/// would take eight more.
enum EntryState<T> {
    Free { generation: u32 },
    Held { level: u8, slot: u16, generation: u32, value: T },
}

/// All entries. The slab grows to the largest number held at once and never shrinks.
pub(super) struct Entries<T> {
    slab: Vec<WheelEntry<T>>,
    /// The first index.
    base: u32,
    len: usize,
}

impl<T> WheelEntry<T> {
    #[inline]
    pub(super) fn deadline(&self) -> u64 {
        self.deadline.0
    }

    #[inline]
    pub(super) fn set_deadline(&mut self, deadline: u64) {
        self.deadline = Deadline(deadline);
    }

    /// Records the slot that the entry is in.
    #[inline]
    pub(super) fn set_place(&mut self, place: WheelPlace) {
        if let EntryState::Held { level, slot, .. } = &mut self.state {
            (*level, *slot) = (place.level, place.slot as u16);
        }
    }

    pub(super) fn value(&self) -> Option<&T> {
        match &self.state {
            EntryState::Held { value, .. } => Some(value),
            EntryState::Free { .. } => None,
        }
    }

    /// Returns the slot of the entry, or `None` if the place is free.
    #[inline]
    pub(super) fn place(&self) -> Option<WheelPlace> {
        match self.state {
            EntryState::Held { level, slot, .. } => Some(WheelPlace { level, slot: u32::from(slot) }),
            EntryState::Free { .. } => None,
        }
    }

    #[inline]
    fn is_of(&self, expected: u32) -> bool {
        matches!(self.state, EntryState::Held { generation, .. } if generation == expected)
    }

    #[inline]
    fn release(&mut self) -> Option<T> {
        let (EntryState::Free { generation } | EntryState::Held { generation, .. }) = self.state;
        match mem::replace(&mut self.state, EntryState::Free { generation: generation.wrapping_add(1) }) {
            EntryState::Held { value, .. } => Some(value),
            EntryState::Free { .. } => None,
        }
    }
}

impl<T> Entries<T> {
    /// Creates an empty slab whose first index will be `base`.
    pub(super) const fn new(base: u32) -> Self {
        Self { slab: Vec::new(), base, len: 0 }
    }

    /// Returns the values of all entries, in no order.
    #[cfg(feature = "simulation")]
    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slab.iter().filter_map(WheelEntry::value)
    }

    /// Returns the number of entries held.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Stores a value in a free place.
    #[inline]
    pub(super) fn insert(&mut self, index: u32, deadline: u64, place: WheelPlace, value: T) -> WheelKey {
        self.len += 1;
        let (level, slot) = (place.level, place.slot as u16);
        let entry = self.at_mut(index);
        let (EntryState::Free { generation } | EntryState::Held { generation, .. }) = entry.state;
        *entry = WheelEntry {
            deadline: Deadline(deadline),
            state: EntryState::Held { level, slot, generation, value },
        };
        WheelKey { index, generation }
    }

    /// Adds a few free places. Returns their number, and the capacity of the slab.
    #[cold]
    pub(super) fn grow(&mut self) -> (usize, usize) {
        let len = self.slab.len();
        if len == self.slab.capacity() {
            self.slab.reserve(1);
        }
        let places = (self.slab.capacity() - len).min(PLACES_AT_ONCE);
        let free = || WheelEntry { deadline: Deadline(0), state: EntryState::Free { generation: 0 } };
        self.slab.resize_with(len + places, free);
        (places, self.slab.capacity())
    }

    /// Frees the place and returns the value.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.at_mut(index).release();
        self.len -= 1;
        value
    }

    /// Like [`remove`](Self::remove), but returns `None` if the deadline of the entry is later than
    /// `time`.
    #[inline]
    pub(super) fn remove_due(&mut self, index: u32, time: u64) -> Option<T> {
        let entry = self.at_mut(index);
        if entry.deadline() > time {
            return None;
        }
        let value = entry.release();
        self.len -= 1;
        value
    }

    /// Returns the entry that matches the key.
    #[inline]
    pub(super) fn find(&self, key: WheelKey) -> Option<&WheelEntry<T>> {
        self.slab.get(key.index.wrapping_sub(self.base) as usize).filter(|entry| entry.is_of(key.generation))
    }

    /// Like [`find`](Self::find).
    #[inline]
    pub(super) fn find_mut(&mut self, key: WheelKey) -> Option<&mut WheelEntry<T>> {
        let entry = self.slab.get_mut(key.index.wrapping_sub(self.base) as usize);
        entry.filter(|entry| entry.is_of(key.generation))
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut WheelEntry<T> {
        &mut self.slab[index.wrapping_sub(self.base) as usize]
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity()
    }
}
