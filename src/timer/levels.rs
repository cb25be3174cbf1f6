//! All levels of a wheel: the slot of each tick, and the next slot to visit.
//!
//! Invariant: all occupied slots lie ahead of the current tick or span it. On level 0, the slot
//! that spans it is the current slot, whose entries are due. On an upper level, it is the *entered*
//! slot, whose entries are being moved down. At most one slot is entered. Until that slot is empty,
//! time does not advance, and new entries for lower levels within its span are appended to it.

use super::{
    level::{Level, WheelPlace},
    lists::Lists,
};

pub(super) struct Levels {
    /// The number of bits of a tick's digit. `mask` has that many low bits set, and there are
    /// `1 << bits` slots.
    bits: u32,
    /// The level of the entered slot, or 0.
    entered: u8,
    mask: u32,
    /// Ticks that differ from the current tick by less than this (by exclusive or) belong on level
    /// 0. One revolution, or zero while a slot is entered.
    direct: u64,
    /// The current tick. Placement is relative to it.
    current: u64,
    /// The current slot: the slot of the current tick on level 0. Its bit may stay set after its
    /// last entry was taken, until time advances. This saves a check for each entry taken.
    due: u32,
    /// Level 0, and the levels above it.
    bottom: Level,
    upper: Vec<Level>,
    lists: Lists,
}

impl Levels {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            bits: slots.trailing_zeros(),
            entered: 0,
            mask: slots as u32 - 1,
            direct: slots as u64,
            current: 0,
            due: 0,
            bottom: Level::bottom(slots),
            upper: Vec::new(),
            lists: Lists::new(slots),
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

    /// Takes a place for an entry, if one is free.
    pub(super) fn take_place(&mut self) -> Option<u32> {
        self.lists.take()
    }

    /// Adds `places` free places. `capacity` is the total number of entries to reserve memory for.
    pub(super) fn add_places(&mut self, places: usize, capacity: usize) {
        self.lists.add(places, capacity);
    }

    /// Takes a free place and appends it to the slot of `tick`, if that slot is on level 0. Returns
    /// the place and the slot.
    #[inline]
    pub(super) fn take_and_append(&mut self, tick: u64) -> Option<(u32, u32)> {
        let slot = self.slot(tick)?;
        let id = self.lists.take()?;
        self.append_below(slot, id);
        Some((id, slot))
    }

    /// Returns the first entry of the current slot.
    #[inline]
    pub(super) fn due(&self) -> Option<u32> {
        Some(self.lists.first(self.due)).filter(|first| *first != self.due)
    }

    /// Returns the entered slot, if there is one.
    #[inline]
    pub(super) fn entered(&self) -> Option<WheelPlace> {
        (self.entered != 0)
            .then(|| WheelPlace { level: self.entered, slot: self.digit(self.current, self.entered) })
    }

    /// Returns whether there is an entered slot. It is never empty.
    #[inline]
    pub(super) fn has_entered(&self) -> bool {
        self.entered != 0
    }

    /// Removes the first entry of the entered slot and returns it.
    #[inline]
    pub(super) fn take_entered(&mut self) -> Option<u32> {
        let place = self.entered()?;
        let (id, is_last) = self.lists.take_first_above(place);
        if is_last {
            self.clear_above(self.lists.head(place));
        }
        Some(id)
    }

    /// Advances time to the next occupied slot if that has begun by `now`, and otherwise to `now`.
    /// Returns the new tick.
    #[inline]
    pub(super) fn advance_to(&mut self, now: u64) -> u64 {
        self.current = match self.bottom.clear_first(self.due) {
            Some(slot) => (self.current & !u64::from(self.mask) | u64::from(slot)).min(now),
            None => self.enter(now),
        };
        self.due = self.current as u32 & self.mask;
        self.current
    }

    /// Enters the first occupied slot above level 0 if that has begun by `now`. Level 0 must be
    /// empty.
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
    pub(super) fn locate(&self, tick: u64) -> WheelPlace {
        let differing = tick ^ self.current;
        if differing <= u64::from(self.mask) {
            return WheelPlace { level: 0, slot: tick as u32 & self.mask };
        }
        let mut level = 1;
        while differing >> (u32::from(level) * self.bits) > u64::from(self.mask) {
            level += 1;
        }
        WheelPlace { level, slot: self.digit(tick, level) }
    }

    /// Returns the entered slot if `place` is on a lower level, and otherwise `place`. So a new
    /// entry lines up behind the entries that are still to be moved to the same ticks.
    #[inline]
    pub(super) fn behind_entered(&self, place: WheelPlace) -> WheelPlace {
        if place.level >= self.entered { place } else { self.entered().unwrap_or(place) }
    }

    /// Returns the slot of level 0 for an entry with this target tick, if it belongs on that level.
    #[inline]
    pub(super) fn slot(&self, tick: u64) -> Option<u32> {
        (tick ^ self.current < self.direct).then_some(tick as u32 & self.mask)
    }

    /// Appends an entry to the slot of its target tick. Returns the place.
    #[inline]
    pub(super) fn append(&mut self, id: u32, tick: u64) -> WheelPlace {
        match self.slot(tick) {
            Some(slot) => {
                self.append_below(slot, id);
                WheelPlace { level: 0, slot }
            }
            None => self.append_above(id, tick),
        }
    }

    #[inline(never)]
    fn append_above(&mut self, id: u32, tick: u64) -> WheelPlace {
        let place = self.behind_entered(self.locate(tick));
        self.append_to(place, id, tick);
        place
    }

    /// Appends an entry to a slot of level 0.
    #[inline]
    fn append_below(&mut self, slot: u32, id: u32) {
        self.lists.append(slot, id);
        self.bottom.set(slot);
    }

    /// Appends an entry to `place`.
    #[inline]
    pub(super) fn append_to(&mut self, place: WheelPlace, id: u32, tick: u64) {
        debug_assert!(tick >= self.current, "an entry must not be put behind the current tick");
        match place.level {
            0 => self.append_below(place.slot, id),
            _ => self.append_upon(place, id, tick),
        }
    }

    /// Like [`append_to`](Self::append_to), above level 0.
    #[inline(never)]
    fn append_upon(&mut self, place: WheelPlace, id: u32, tick: u64) {
        let above = usize::from(place.level) - 1;
        if !self.upper.get(above).is_some_and(Level::is_allocated) {
            self.allocate(place.level);
        }
        let level = &mut self.upper[above];
        level.remember(place.slot, tick);
        level.set(place.slot);
        self.lists.append_to(self.lists.head(place), id);
    }

    #[cold]
    fn allocate(&mut self, level: u8) {
        let above = usize::from(level) - 1;
        if above >= self.upper.len() {
            self.upper.resize_with(above + 1, Level::default);
        }
        self.upper[above] = Level::upper(self.slots());
        self.lists.allocate(level);
    }

    /// Records that an entry in `place` now has this target tick.
    pub(super) fn remember(&mut self, place: WheelPlace, tick: u64) {
        if place.level > 0 {
            self.upper[usize::from(place.level) - 1].remember(place.slot, tick);
        }
    }

    /// Moves an entry from one slot of level 0 to the end of another.
    #[inline]
    pub(super) fn move_below(&mut self, id: u32, slot: u32) {
        if let Some(emptied) = self.lists.take_out_below(id) {
            self.bottom.clear(emptied);
        }
        self.append_below(slot, id);
    }

    /// Moves an entry from its list to the end of `place`.
    #[inline]
    pub(super) fn relink(&mut self, id: u32, place: WheelPlace, tick: u64) {
        self.take_out(id);
        self.append_to(place, id, tick);
    }

    /// Removes an entry from its list.
    fn take_out(&mut self, id: u32) {
        if let Some(head) = self.lists.take_out(id) {
            self.clear(head);
        }
    }

    /// Marks the list with this head as empty.
    #[inline]
    fn clear(&mut self, head: u32) {
        if head <= self.mask {
            self.bottom.clear(head);
        } else {
            self.clear_above(head);
        }
    }

    #[inline(never)]
    fn clear_above(&mut self, head: u32) {
        let place = self.lists.place(head);
        self.upper[usize::from(place.level) - 1].clear(place.slot);
        if self.entered() == Some(place) {
            (self.entered, self.direct) = (0, u64::from(self.mask) + 1);
        }
    }

    /// Removes an entry from its list and frees its place.
    pub(super) fn release(&mut self, id: u32) {
        self.take_out(id);
        self.lists.give(id);
    }

    /// Like [`release`](Self::release), if no upper level is involved. Returns `false` if one is,
    /// and does nothing.
    #[inline]
    pub(super) fn release_below(&mut self, id: u32) -> bool {
        let Some(emptied) = self.lists.release_below(id) else { return false };
        if let Some(head) = emptied {
            self.bottom.clear(head);
        }
        true
    }

    /// Like [`release`](Self::release), for the first entry of the current slot.
    #[inline]
    pub(super) fn release_due(&mut self, id: u32) {
        self.lists.take_first(self.due, id);
        self.lists.give(id);
    }

    /// Moves the first entry of the current slot to another slot of level 0, if it belongs there.
    /// Returns that slot.
    #[inline]
    pub(super) fn pass_due(&mut self, id: u32, tick: u64) -> Option<u32> {
        let slot = self.slot(tick)?;
        self.lists.take_first(self.due, id);
        self.append_below(slot, id);
        Some(slot)
    }

    /// Returns the tick at which the first occupied slot must be visited.
    pub(super) fn next_visit(&self) -> Option<u64> {
        if self.due().is_some() {
            return Some(self.current);
        }
        match self.bottom.first_after(self.due) {
            Some(slot) => Some(self.start(WheelPlace { level: 0, slot })),
            None => Some(self.visit_tick(self.first_above()?)),
        }
    }

    fn first_above(&self) -> Option<WheelPlace> {
        let mut levels = (1..).zip(&self.upper);
        levels.find_map(|(level, slots)| Some(WheelPlace { level, slot: slots.first()? }))
    }

    /// Returns the first tick that the slot spans.
    fn start(&self, place: WheelPlace) -> u64 {
        let shift = u32::from(place.level) * self.bits;
        let above = (self.current >> shift) & !u64::from(self.mask);
        (above | u64::from(place.slot)) << shift
    }

    fn visit_tick(&self, place: WheelPlace) -> u64 {
        self.upper[usize::from(place.level) - 1].earliest(place.slot)
    }

    fn digit(&self, tick: u64, level: u8) -> u32 {
        (tick >> (u32::from(level) * self.bits)) as u32 & self.mask
    }

    #[cfg(test)]
    pub(super) fn heap_bytes(&self) -> usize {
        let upper: usize = self.upper.iter().map(Level::heap_bytes).sum();
        self.lists.heap_bytes()
            + self.bottom.heap_bytes()
            + upper
            + self.upper.capacity() * size_of::<Level>()
    }
}
