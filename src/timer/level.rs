//! One level of the wheel: where each slot's list begins and ends, and which slots are occupied.
//!
//! What always holds: head and tail of a slot are both [`NIL`] or neither; its bit is set exactly when they are not, and
//! a word's summary bit exactly when the word is not zero. The entries themselves, and the links between them, belong to
//! the wheel.

use std::mem;

/// The index that stands for "no entry".
pub(super) const NIL: u32 = u32::MAX;

/// A slot of a level. The order is that in which slots are visited.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Place {
    pub(super) level: u8,
    pub(super) slot: u16,
}

/// The two ends of a slot's list. With the tail at hand, to append touches one entry only.
#[derive(Clone, Copy)]
struct Ends {
    head: u32,
    tail: u32,
}

/// The slots of one level; it costs nothing on the heap until it is first used.
#[derive(Default)]
pub(super) struct Level {
    slots: Vec<Ends>,
    /// Empty on level 0, where a slot is a single tick and needs no minimum.
    earliest: Vec<u64>,
    words: Vec<u64>,
    summary: Vec<u64>,
}

impl Level {
    /// Allocates a level whose slots are single ticks.
    pub(super) fn bottom(slots: usize) -> Self {
        let words = slots.div_ceil(64);
        Self {
            slots: vec![Ends { head: NIL, tail: NIL }; slots],
            earliest: Vec::new(),
            words: vec![0; words],
            summary: vec![0; words.div_ceil(64)],
        }
    }

    /// Allocates a level whose slots span many ticks and remember the earliest one put in.
    pub(super) fn upper(slots: usize) -> Self {
        Self { earliest: vec![0; slots], ..Self::bottom(slots) }
    }

    pub(super) fn is_allocated(&self) -> bool {
        !self.slots.is_empty()
    }

    /// Returns the first occupied slot, looking at one word per 4096 slots and one more.
    #[inline]
    pub(super) fn first(&self) -> Option<u16> {
        let group = self.summary.iter().position(|&bits| bits != 0)?;
        let word = group * 64 + self.summary[group].trailing_zeros() as usize;
        Some((word * 64) as u16 + self.words[word].trailing_zeros() as u16)
    }

    #[inline]
    pub(super) fn head(&self, slot: u16) -> u32 {
        self.slots[usize::from(slot)].head
    }

    /// Makes `index` the last of a list; returns what was the last before.
    #[inline]
    pub(super) fn append(&mut self, slot: u16, index: u32) -> u32 {
        let ends = &mut self.slots[usize::from(slot)];
        let before = mem::replace(&mut ends.tail, index);
        if before == NIL {
            ends.head = index;
            self.set_bit(slot);
        }
        before
    }

    /// Makes `next` the head of a list whose head has gone, and in which others are left.
    #[inline]
    pub(super) fn set_head(&mut self, slot: u16, next: u32) {
        self.slots[usize::from(slot)].head = next;
    }

    /// Makes `previous` the tail of a list whose tail has gone, and in which others are left.
    #[inline]
    pub(super) fn set_tail(&mut self, slot: u16, previous: u32) {
        self.slots[usize::from(slot)].tail = previous;
    }

    /// Empties a list.
    #[inline]
    pub(super) fn clear(&mut self, slot: u16) {
        self.slots[usize::from(slot)] = Ends { head: NIL, tail: NIL };
        self.clear_bit(slot);
    }

    /// Returns the earliest tick put into `slot` since it was last empty; upper levels only.
    pub(super) fn earliest(&self, slot: u16) -> u64 {
        self.earliest[usize::from(slot)]
    }

    /// Lowers the remembered tick of `slot`, or starts it afresh if the slot is still empty; upper levels only.
    pub(super) fn remember(&mut self, slot: u16, tick: u64) {
        let slot = usize::from(slot);
        let empty = self.slots[slot].head == NIL;
        let earliest = &mut self.earliest[slot];
        *earliest = if empty { tick } else { tick.min(*earliest) };
    }

    fn set_bit(&mut self, slot: u16) {
        let word = usize::from(slot / 64);
        self.words[word] |= 1 << (slot % 64);
        self.summary[word / 64] |= 1 << (word % 64);
    }

    fn clear_bit(&mut self, slot: u16) {
        let word = usize::from(slot / 64);
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let wide = self.earliest.capacity() + self.words.capacity() + self.summary.capacity();
        self.slots.capacity() * size_of::<Ends>() + wide * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_follows_lists_that_begin_and_end() {
        for slots in [2, 64, 512, if cfg!(miri) { 1 << 12 } else { 1 << 16 }] {
            let last = (slots - 1) as u16;
            let mut level = Level::upper(slots);
            assert_eq!(level.first(), None);
            assert_eq!(level.append(last, 7), NIL);
            assert_eq!(level.first(), Some(last));
            assert_eq!(level.append(0, 3), NIL);
            assert_eq!(level.append(0, 4), 3);
            assert_eq!((level.first(), level.head(0)), (Some(0), 3));
            level.set_head(0, 4);
            assert_eq!(level.first(), Some(0));
            level.clear(0);
            assert_eq!(level.first(), Some(last));
            level.clear(last);
            assert_eq!(level.first(), None);
        }
    }

    #[test]
    fn earliest_starts_afresh_in_an_empty_slot() {
        let mut level = Level::upper(2);
        level.remember(1, 9);
        level.append(1, 0);
        level.remember(1, 5);
        level.remember(1, 7);
        assert_eq!(level.earliest(1), 5);
        level.clear(1);
        level.remember(1, 8);
        assert_eq!(level.earliest(1), 8);
    }
}
