//! One level of the wheel: the head of each slot's list, and which slots are occupied.
//!
//! What always holds: a slot's bit is set exactly when its head is not [`NIL`], and a word's
//! summary bit exactly when the word is not zero. The entries themselves belong to the wheel.

/// The index that stands for "no entry".
pub(super) const NIL: u32 = u32::MAX;

/// The slots of one level; it costs nothing on the heap until it is first used.
#[derive(Default)]
pub(super) struct Level {
    heads: Vec<u32>,
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
            heads: vec![NIL; slots],
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
        !self.heads.is_empty()
    }

    /// Returns the first occupied slot, looking at one word per 4096 slots and one more.
    pub(super) fn first(&self) -> Option<usize> {
        let group = self.summary.iter().position(|&bits| bits != 0)?;
        let word = group * 64 + self.summary[group].trailing_zeros() as usize;
        Some(word * 64 + self.words[word].trailing_zeros() as usize)
    }

    pub(super) fn head(&self, slot: usize) -> u32 {
        self.heads[slot]
    }

    pub(super) fn set_head(&mut self, slot: usize, head: u32) {
        self.heads[slot] = head;
        let word = slot / 64;
        let (group, word_bit) = (word / 64, 1 << (word % 64));
        if head != NIL {
            self.words[word] |= 1 << (slot % 64);
            self.summary[group] |= word_bit;
        } else {
            self.words[word] &= !(1 << (slot % 64));
            if self.words[word] == 0 {
                self.summary[group] &= !word_bit;
            }
        }
    }

    /// Returns the earliest tick put into `slot` since it was last empty; upper levels only.
    pub(super) fn earliest(&self, slot: usize) -> u64 {
        self.earliest[slot]
    }

    /// Lowers the remembered tick of `slot`, or starts it afresh if the slot is still empty.
    pub(super) fn remember(&mut self, slot: usize, tick: u64) {
        let empty = self.heads[slot] == NIL;
        if let Some(earliest) = self.earliest.get_mut(slot) {
            *earliest = if empty { tick } else { tick.min(*earliest) };
        }
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let wide = self.earliest.capacity() + self.words.capacity() + self.summary.capacity();
        self.heads.capacity() * size_of::<u32>() + wide * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_follows_set_and_cleared_heads() {
        for slots in [2, 64, 512, if cfg!(miri) { 1 << 12 } else { 1 << 16 }] {
            let mut level = Level::upper(slots);
            assert_eq!(level.first(), None);
            level.set_head(slots - 1, 7);
            assert_eq!(level.first(), Some(slots - 1));
            level.set_head(0, 3);
            assert_eq!(level.first(), Some(0));
            level.set_head(0, NIL);
            assert_eq!(level.first(), Some(slots - 1));
            level.set_head(slots - 1, NIL);
            assert_eq!(level.first(), None);
        }
    }

    #[test]
    fn earliest_starts_afresh_in_an_empty_slot() {
        let mut level = Level::upper(2);
        level.remember(1, 9);
        level.set_head(1, 0);
        level.remember(1, 5);
        level.remember(1, 7);
        assert_eq!(level.earliest(1), 5);
        level.set_head(1, NIL);
        level.remember(1, 8);
        assert_eq!(level.earliest(1), 8);
    }
}
