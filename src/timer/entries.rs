//! The entries of a wheel: a slab whose places are found again by keys that carry a generation.
//!
//! What always holds: a key finds its entry or none, never another one. The links between entries are the wheel's; of a
//! free place, `next` is the next free one. A value is dropped, or given back, as soon as its entry goes.

use std::mem;

use super::level::{NIL, Place};

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

/// One armed timeout, or one free place.
pub(super) struct Entry<T> {
    pub(super) deadline: u64,
    pub(super) prev: u32,
    pub(super) next: u32,
    state: State<T>,
}

/// The tag, the place and the generation share eight bytes: an `Option`, or a place in one piece, would take eight more.
enum State<T> {
    Free { generation: u32 },
    Held { level: u8, slot: u16, generation: u32, value: T },
}

/// All entries. The slab grows to the largest number held at once and is not shrunk.
pub(super) struct Entries<T> {
    slab: Vec<Entry<T>>,
    free: u32,
    len: usize,
}

impl<T> Entry<T> {
    #[inline]
    fn new(deadline: u64, place: Place, prev: u32, generation: u32, value: T) -> Self {
        let Place { level, slot } = place;
        Self { deadline, prev, next: NIL, state: State::Held { level, slot, generation, value } }
    }

    /// Puts the entry behind `prev`, at the end of the list in `place`.
    #[inline]
    pub(super) fn append_to(&mut self, new: Place, prev: u32) {
        (self.prev, self.next) = (prev, NIL);
        if let State::Held { level, slot, .. } = &mut self.state {
            (*level, *slot) = (new.level, new.slot);
        }
    }

    pub(super) fn value(&self) -> Option<&T> {
        match &self.state {
            State::Held { value, .. } => Some(value),
            State::Free { .. } => None,
        }
    }
}

impl<T> Entries<T> {
    pub(super) const fn new() -> Self {
        Self { slab: Vec::new(), free: NIL, len: 0 }
    }

    /// Returns how many are held.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Returns the index that the next one to be inserted will have.
    ///
    /// # Panics
    ///
    /// If 2³² − 1 are held.
    #[inline]
    pub(super) fn next_index(&self) -> u32 {
        if self.free != NIL {
            return self.free;
        }
        assert!(self.slab.len() < NIL as usize, "2^32 - 1 timeouts held");
        self.slab.len() as u32
    }

    /// Holds a value under the [next index](Self::next_index), behind `prev` at the end of the list in `place`.
    #[inline]
    pub(super) fn insert(&mut self, deadline: u64, place: Place, prev: u32, value: T) -> WheelKey {
        self.len += 1;
        let index = self.free;
        if index == NIL {
            let index = self.slab.len() as u32;
            self.slab.push(Entry::new(deadline, place, prev, 0, value));
            return WheelKey { index, generation: 0 };
        }
        let entry = &mut self.slab[index as usize];
        let (State::Free { generation } | State::Held { generation, .. }) = entry.state;
        self.free = entry.next;
        *entry = Entry::new(deadline, place, prev, generation, value);
        WheelKey { index, generation }
    }

    /// Frees the place; returns the indices before and behind the entry, which its neighbours are to be told, and the value.
    #[inline]
    pub(super) fn remove(&mut self, index: u32) -> (u32, u32, Option<T>) {
        let entry = &mut self.slab[index as usize];
        let (State::Free { generation } | State::Held { generation, .. }) = entry.state;
        let state = mem::replace(&mut entry.state, State::Free { generation: generation.wrapping_add(1) });
        let next = mem::replace(&mut entry.next, self.free);
        self.free = index;
        self.len -= 1;
        match state {
            State::Held { value, .. } => (entry.prev, next, Some(value)),
            State::Free { .. } => (entry.prev, next, None),
        }
    }

    /// Returns the place in which the key's entry lies, and the entry.
    #[inline]
    pub(super) fn find(&self, key: WheelKey) -> Option<(Place, &Entry<T>)> {
        let entry = self.slab.get(key.index as usize)?;
        match entry.state {
            State::Held { level, slot, generation, .. } if generation == key.generation => {
                Some((Place { level, slot }, entry))
            }
            _ => None,
        }
    }

    /// As [`find`](Self::find).
    #[inline]
    pub(super) fn find_mut(&mut self, key: WheelKey) -> Option<(Place, &mut Entry<T>)> {
        let entry = self.slab.get_mut(key.index as usize)?;
        match entry.state {
            State::Held { level, slot, generation, .. } if generation == key.generation => {
                Some((Place { level, slot }, entry))
            }
            _ => None,
        }
    }

    #[inline]
    pub(super) fn at(&self, index: u32) -> &Entry<T> {
        &self.slab[index as usize]
    }

    #[inline]
    pub(super) fn at_mut(&mut self, index: u32) -> &mut Entry<T> {
        &mut self.slab[index as usize]
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.slab.capacity()
    }
}
