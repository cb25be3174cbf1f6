//! One level of the wheel: which of its slots are occupied and, on upper levels, the earliest tick
//! in each.
//!
//! Invariant: a word's summary bit is set exactly if the word is not zero. The lists themselves are
//! in `lists`. `levels` keeps a slot's bit set exactly while its list is not empty. The slot of the
//! current tick is an exception: its bit stays set until time advances.

/// A slot of a level. Places are ordered like visits to them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct WheelPlace {
    pub(super) level: u8,
    pub(super) slot: u32,
}

/// The slots of one level. Allocates nothing until it is first used.
#[derive(Default)]
pub(super) struct Level {
    words: Vec<u64>,
    summary: Vec<u64>,
    /// Empty on level 0, where a slot is a single tick and does not need a minimum.
    earliest: Vec<u64>,
}

impl Level {
    /// Allocates a level whose slots are single ticks.
    pub(super) fn bottom(slots: usize) -> Self {
        let words = slots.div_ceil(64);
        Self { words: vec![0; words], summary: vec![0; words.div_ceil(64)], earliest: Vec::new() }
    }

    /// Allocates a level whose slots span many ticks and remember the earliest one put in.
    pub(super) fn upper(slots: usize) -> Self {
        Self { earliest: vec![0; slots], ..Self::bottom(slots) }
    }

    pub(super) fn is_allocated(&self) -> bool {
        !self.words.is_empty()
    }

    /// Returns the first occupied slot. Reads one summary word per 4096 slots and one further word.
    #[inline]
    pub(super) fn first(&self) -> Option<u32> {
        let group = self.summary.iter().position(|&bits| bits != 0)?;
        Some(self.first_of(group * 64 + self.summary[group].trailing_zeros() as usize))
    }

    /// Returns the first occupied slot after `slot`, usually from the same word. No slot before
    /// `slot` may be occupied.
    pub(super) fn first_after(&self, slot: u32) -> Option<u32> {
        let word = (slot / 64) as usize;
        let bits = self.words[word] & !(1 << (slot % 64));
        if bits != 0 {
            return Some(slot / 64 * 64 + bits.trailing_zeros());
        }
        let others = |group: usize| match self.summary[group] {
            bits if group == word / 64 => bits & !(1 << (word % 64)),
            bits => bits,
        };
        let group = (word / 64..self.summary.len()).find(|&group| others(group) != 0)?;
        Some(self.first_of(group * 64 + others(group).trailing_zeros() as usize))
    }

    /// Marks `slot` as empty and returns the first occupied slot. No slot before `slot` may be
    /// occupied.
    #[inline]
    pub(super) fn clear_first(&mut self, slot: u32) -> Option<u32> {
        let word = (slot / 64) as usize;
        let bits = self.words[word] & !(1 << (slot % 64));
        self.words[word] = bits;
        if bits != 0 {
            return Some(slot / 64 * 64 + bits.trailing_zeros());
        }
        self.summary[word / 64] &= !(1 << (word % 64));
        self.first()
    }

    /// Returns the first occupied slot of a word that is not zero.
    #[inline]
    fn first_of(&self, word: usize) -> u32 {
        (word * 64) as u32 + self.words[word].trailing_zeros()
    }

    /// Marks a slot as occupied.
    #[inline]
    pub(super) fn set(&mut self, slot: u32) {
        let word = (slot / 64) as usize;
        let bits = &mut self.words[word];
        let before = std::mem::replace(bits, *bits | 1 << (slot % 64));
        if before == 0 {
            self.summary[word / 64] |= 1 << (word % 64);
        }
    }

    /// Marks a slot as empty.
    #[inline]
    pub(super) fn clear(&mut self, slot: u32) {
        let word = (slot / 64) as usize;
        self.words[word] &= !(1 << (slot % 64));
        if self.words[word] == 0 {
            self.summary[word / 64] &= !(1 << (word % 64));
        }
    }

    /// Returns the earliest tick put into `slot` since it was last empty. Upper levels only.
    pub(super) fn earliest(&self, slot: u32) -> u64 {
        self.earliest[slot as usize]
    }

    /// Lowers the earliest tick of `slot` to `tick`, or sets it if the slot is still empty. Upper
    /// levels only.
    pub(super) fn remember(&mut self, slot: u32, tick: u64) {
        let empty = self.words[(slot / 64) as usize] & (1 << (slot % 64)) == 0;
        let earliest = &mut self.earliest[slot as usize];
        *earliest = if empty { tick } else { tick.min(*earliest) };
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let words = self.earliest.capacity() + self.words.capacity() + self.summary.capacity();
        words * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_follows_slots_that_fill_and_empty() {
        for slots in [2, 64, 512, if cfg!(miri) { 1 << 12 } else { 1 << 16 }] {
            let last = (slots - 1) as u32;
            let mut level = Level::upper(slots);
            assert_eq!(level.first(), None);
            level.set(last);
            assert_eq!(level.first(), Some(last));
            level.set(0);
            level.set(0);
            assert_eq!(level.first(), Some(0));
            level.clear(0);
            assert_eq!(level.first(), Some(last));
            level.clear(last);
            assert_eq!(level.first(), None);
        }
    }

    /// The next slot is in the same word, in another word of the same group, or in another group.
    #[test]
    fn the_next_occupied_slot_is_found_in_any_word() {
        let slots = if cfg!(miri) { 1 << 13 } else { 1 << 16 };
        let occupied = [0, 1, 63, 64, 700, 4095, 4096, 8000, slots as u32 - 1];
        let mut level = Level::bottom(slots);
        occupied.iter().for_each(|slot| level.set(*slot));
        for (slot, next) in occupied.into_iter().zip(occupied.into_iter().skip(1).map(Some).chain([None])) {
            assert_eq!((level.first(), level.first_after(slot)), (Some(slot), next));
            assert_eq!((level.clear_first(slot), level.first()), (next, next));
            // Time also leaves slots that were emptied before.
            assert_eq!((level.first_after(slot), level.clear_first(slot)), (next, next));
        }
    }

    #[test]
    fn an_empty_slot_forgets_its_earliest_tick() {
        let mut level = Level::upper(2);
        for (tick, earliest) in [(9, 9), (5, 5), (7, 5)] {
            level.remember(1, tick);
            level.set(1);
            assert_eq!(level.earliest(1), earliest);
        }
        level.clear(1);
        level.remember(1, 8);
        assert_eq!(level.earliest(1), 8);
    }
}
