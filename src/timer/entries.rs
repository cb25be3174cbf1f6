//! What the entries of a wheel hold: deadlines and values, found again by keys that carry a generation.
//!
//! What always holds: a key finds its entry or none, never another one. A value is dropped, or given back, as soon as its
//! entry goes. Which place is taken next, and the links between entries, are those of `lists`; an index here is one of
//! there, where the heads of level 0 come first.

use std::mem;

use super::{level::WheelPlace, lists::NIL};

/// Places that are added when none is free: few, so that memory is not touched long before it is used.
const PLACES_AT_ONCE: usize = 64;

/// Names one entry of a [`Wheel`](super::Wheel); a key whose entry has gone names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WheelKey {
    pub(super) index: u32,
    generation: u32,
}

impl WheelKey {
    /// Names nothing, ever: for one who would keep an `Option`, which takes half as much again.
    pub(crate) const NONE: WheelKey = WheelKey { index: NIL, generation: 0 };
}

/// One armed timeout, or one free place. In this order: what re-arming reads and writes lies side by side, so that seldom
/// two cache lines have part in it.
#[repr(C)]
pub(super) struct WheelEntry<T> {
    deadline: Deadline,
    state: EntryState<T>,
}

/// Nanoseconds, aligned like what is beside them: else a value of four bytes would take eight.
#[derive(Clone, Copy)]
#[repr(C, packed(4))]
struct Deadline(u64);

/// The tag, the place and the generation share eight bytes: an `Option`, or a place in one piece, would take eight more.
enum EntryState<T> {
    Free { generation: u32 },
    Held { level: u8, slot: u16, generation: u32, value: T },
}

/// All entries. The slab grows to the largest number held at once and is not shrunk.
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

    /// Notes where the entry lies now.
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

    /// Returns where the entry lies, unless the place is free.
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
    /// Makes an empty slab whose first index will be `base`.
    pub(super) const fn new(base: u32) -> Self {
        Self { slab: Vec::new(), base, len: 0 }
    }

    /// Returns how many are held.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Holds a value in a place that is free.
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

    /// Adds free places, a few at a time; returns how many, and how many there is memory for.
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

    /// Frees the place; returns the value.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let value = self.at_mut(index).release();
        self.len -= 1;
        value
    }

    /// As [`remove`](Self::remove), of an entry whose deadline is not later than `time`; else `None`.
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

    /// Returns the key's entry.
    #[inline]
    pub(super) fn find(&self, key: WheelKey) -> Option<&WheelEntry<T>> {
        self.slab.get(key.index.wrapping_sub(self.base) as usize).filter(|entry| entry.is_of(key.generation))
    }

    /// As [`find`](Self::find).
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
