//! All levels of a wheel: in which slot a tick belongs, and which slot comes next.
//!
//! What always holds: all occupied slots lie ahead of the current tick, or span it: on level 0 that is the slot of what is
//! due; above, it is the slot that has been *entered*, whose entries are being moved down. There is one of these at most,
//! and while it is not empty time stays where it is, and what would belong below is put at its end.

use super::level::{Level, Place};

pub(super) struct Levels {
    /// A tick's digits have this many bits, of which the lowest ones are `mask`; there are `1 << bits` slots.
    bits: u32,
    mask: u64,
    /// What differs from the current tick in less than this belongs on level 0: one revolution, or, while a slot is
    /// entered, nothing.
    direct: u64,
    /// The level of the slot that has been entered; else 0.
    entered: u8,
    /// The tick that has been reached; placement is relative to it.
    current: u64,
    /// Level 0, and those above it.
    bottom: Level,
    upper: Vec<Level>,
}

impl Levels {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            bits: slots.trailing_zeros(),
            mask: slots as u64 - 1,
            direct: slots as u64,
            entered: 0,
            current: 0,
            bottom: Level::bottom(slots),
            upper: Vec::new(),
        }
    }

    /// Returns the number of slots per level.
    pub(super) fn slots(&self) -> usize {
        1 << self.bits
    }

    #[inline]
    pub(super) fn current(&self) -> u64 {
        self.current
    }

    /// Returns the slot of what is due, and the head of its list.
    #[inline]
    pub(super) fn due(&self) -> (Place, u32) {
        let slot = (self.current & self.mask) as u16;
        (Place { level: 0, slot }, self.bottom.head(slot))
    }

    /// Returns the slot that has been entered and is not empty yet.
    #[inline]
    pub(super) fn entered(&self) -> Option<Place> {
        (self.entered != 0)
            .then(|| Place { level: self.entered, slot: self.digit(self.current, self.entered) })
    }

    #[inline]
    pub(super) fn head(&self, place: Place) -> u32 {
        self.level(place.level).head(place.slot)
    }

    /// Moves time on to the next occupied slot, if that has begun by `now`, or else to `now`; returns the tick.
    pub(super) fn go_on(&mut self, now: u64) -> u64 {
        self.current = match self.bottom.first() {
            Some(slot) => self.start(Place { level: 0, slot }).min(now),
            None => self.enter(now),
        };
        self.current
    }

    /// Enters the first occupied slot above level 0, which is empty, if that has begun by `now`.
    #[inline(never)]
    fn enter(&mut self, now: u64) -> u64 {
        match self.first_above() {
            Some(place) if self.start(place) <= now => {
                (self.entered, self.direct) = (place.level, 0);
                self.visit_tick(place).min(now)
            }
            _ => now,
        }
    }

    /// Returns the place of an entry with this target tick relative to the current tick.
    #[inline]
    pub(super) fn locate(&self, tick: u64) -> Place {
        let differing = tick ^ self.current;
        if differing <= self.mask {
            return Place { level: 0, slot: (tick & self.mask) as u16 };
        }
        let mut level = 1;
        while differing >> (u32::from(level) * self.bits) > self.mask {
            level += 1;
        }
        Place { level, slot: self.digit(tick, level) }
    }

    /// Returns where an entry is put that belongs in `place`: behind those that are still to be moved to the same ticks.
    #[inline]
    pub(super) fn behind_entered(&self, place: Place) -> Place {
        if place.level >= self.entered { place } else { self.entered().unwrap_or(place) }
    }

    /// Makes an entry the last where it is put; returns where that is, and which one is before it.
    #[inline]
    pub(super) fn append(&mut self, index: u32, tick: u64) -> (Place, u32) {
        if tick ^ self.current < self.direct {
            let slot = (tick & self.mask) as u16;
            return (Place { level: 0, slot }, self.bottom.append(slot, index));
        }
        self.append_above(index, tick)
    }

    #[inline(never)]
    fn append_above(&mut self, index: u32, tick: u64) -> (Place, u32) {
        let place = self.behind_entered(self.locate(tick));
        (place, self.append_to(place, index, tick))
    }

    /// Makes an entry the last in `place`; returns which one is before it.
    #[inline]
    pub(super) fn append_to(&mut self, place: Place, index: u32, tick: u64) -> u32 {
        debug_assert!(tick >= self.current, "no list lies behind the current tick");
        if place.level == 0 {
            return self.bottom.append(place.slot, index);
        }
        let above = usize::from(place.level) - 1;
        if !self.upper.get(above).is_some_and(Level::is_allocated) {
            self.allocate(above);
        }
        let level = &mut self.upper[above];
        level.remember(place.slot, tick);
        level.append(place.slot, index)
    }

    #[cold]
    fn allocate(&mut self, above: usize) {
        if above >= self.upper.len() {
            self.upper.resize_with(above + 1, Level::default);
        }
        self.upper[above] = Level::upper(self.slots());
    }

    /// An entry that lies in `place` has this target tick now.
    pub(super) fn remember(&mut self, place: Place, tick: u64) {
        if place.level > 0 {
            self.level_mut(place.level).remember(place.slot, tick);
        }
    }

    /// The head of a list has gone, and this one is the next.
    #[inline]
    pub(super) fn set_head(&mut self, place: Place, next: u32) {
        self.level_mut(place.level).set_head(place.slot, next);
    }

    /// The tail of a list has gone, in which others are left, and this one was before it.
    #[inline]
    pub(super) fn set_tail(&mut self, place: Place, prev: u32) {
        self.level_mut(place.level).set_tail(place.slot, prev);
    }

    /// The only entry of a list has gone.
    #[inline]
    pub(super) fn clear(&mut self, place: Place) {
        self.level_mut(place.level).clear(place.slot);
        if place.level > 0 && self.entered() == Some(place) {
            (self.entered, self.direct) = (0, self.mask + 1);
        }
    }

    /// Returns the tick for which the first occupied slot must be visited.
    pub(super) fn next_visit(&self) -> Option<u64> {
        match self.bottom.first() {
            Some(slot) => Some(self.start(Place { level: 0, slot })),
            None => Some(self.visit_tick(self.first_above()?)),
        }
    }

    fn first_above(&self) -> Option<Place> {
        let mut levels = (1..).zip(&self.upper);
        levels.find_map(|(level, slots)| Some(Place { level, slot: slots.first()? }))
    }

    /// Returns the first tick that the slot spans.
    fn start(&self, place: Place) -> u64 {
        let shift = u32::from(place.level) * self.bits;
        let above = (self.current >> shift) & !self.mask;
        (above | u64::from(place.slot)) << shift
    }

    fn visit_tick(&self, place: Place) -> u64 {
        self.level(place.level).earliest(place.slot)
    }

    fn digit(&self, tick: u64, level: u8) -> u16 {
        ((tick >> (u32::from(level) * self.bits)) & self.mask) as u16
    }

    fn level(&self, level: u8) -> &Level {
        match level {
            0 => &self.bottom,
            upper => &self.upper[usize::from(upper) - 1],
        }
    }

    fn level_mut(&mut self, level: u8) -> &mut Level {
        match level {
            0 => &mut self.bottom,
            upper => &mut self.upper[usize::from(upper) - 1],
        }
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let upper: usize = self.upper.iter().map(Level::heap_bytes).sum();
        self.bottom.heap_bytes() + upper + self.upper.capacity() * size_of::<Level>()
    }
}
