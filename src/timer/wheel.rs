//! A hierarchical timing wheel: coarse deadlines, O(1) to arm, cancel and move.
//!
//! # How it works
//!
//! Time is cut into ticks. A deadline `d` has the target tick `⌈d / tick⌉` and is due once that
//! tick has begun: never early, and late by less than one tick plus the caller's own lag. Level 0
//! has one slot per tick; one slot of the next level spans a whole revolution of the one below.
//!
//! ```text
//! tick number (512 slots)   …  digit 2 │ digit 1 │ digit 0
//!                              level 2   level 1   level 0
//! ```
//!
//! An entry lies on the level of the highest digit in which its target differs from the current
//! tick, in the slot that this digit names. So every entry of a lower level is due before every
//! entry of a higher one, all occupied slots lie ahead of the current tick, and the first set
//! bit of the first occupied level's bitmap is where to go next; what lies between is not visited.
//! On level 0 the slot of the current tick is the list of what is due.
//!
//! When time enters a slot of an upper level, its entries are moved down. While some are left, time
//! stays where it is, and what is put into the span of that slot joins the end of its list. So it
//! does not matter for the order in how many calls they are moved.
//!
//! Slots, ticks and the hierarchy are schemes 6 and 7 of G. Varghese and T. Lauck, *Hashed and
//! Hierarchical Timing Wheels* (SOSP 1987). Placing by the highest differing digit and bitmaps to
//! skip empty slots are taken from later hierarchical wheels, tokio's among them. What is added
//! here: a slot of an upper level remembers the earliest tick put into it, so that a sleeper is
//! woken for a long delay when it is due, and not also to move it down a level.
//!
//! # What always holds
//!
//! - One call of [`Wheel::expire`] moves at most [`Wheel::MOVES_PER_EXPIRE`] entries to where they
//!   belong now, whatever was armed or re-armed and however long nobody called.
//! - An entry is moved to a lower level at most once per level, then fires, is cancelled, or, if
//!   it was re-armed meanwhile, is put where it belongs now.
//! - What is put in or re-armed during a pass does not fire within that pass, even with a deadline
//!   long past: it waits for the next tick. So a timeout may re-arm itself with no delay.
//! - Due entries come in the order of their ticks, and within a tick in the order of insertion
//!   (of relinking, for entries that were re-armed), however long the caller was away.
//! - Time given that is smaller than before counts as the largest seen. [`u64::MAX`] is the end of
//!   time: all that is left comes due, and what is put in then is due at once.
//!
//! # Memory
//!
//! An entry takes 24 bytes plus its value: 32 bytes for a `u64`. Entries live in one `Vec`, which
//! grows to the largest number held at once and is not shrunk. An empty wheel of 512 slots takes
//! 4.4 KiB; each further level 8 KiB, once, when first needed. Nothing else is allocated.
//!
//! The wheel does not own a clock or a thread, and does not run anything: its owner asks
//! [`Wheel::next_expiry`], sleeps, and takes what [`Wheel::expire`] hands out.

use std::fmt;
use std::time::Duration;

use super::entries::{Entries, WheelKey};
use super::level::{Level, NIL, Place};
use super::tick::Tick;
use super::wheel_builder::WheelBuilder;

/// A timing wheel that is told the time and hands out what is due.
///
/// All times are nanoseconds since the wheel's start, which is 0.
///
/// ```
/// use std::time::Duration;
/// use netwheel::timer::Wheel;
///
/// # fn main() -> netwheel::Result {
/// const MS: u64 = 1_000_000;
/// let mut wheel = Wheel::<&str>::builder().tick(Duration::from_millis(10)).build()?;
/// let idle = wheel.insert(25 * MS, "idle");
/// wheel.insert(40 * MS, "heartbeat");
///
/// assert_eq!(wheel.next_expiry(), Some(30 * MS));    // rounded up to a tick
/// wheel.rearm(idle, 60_000 * MS);                    // one store
/// assert_eq!(wheel.expire(40 * MS), Some("heartbeat"));
/// assert_eq!(wheel.expire(40 * MS), None);
/// assert_eq!(wheel.cancel(idle), Some("idle"));
/// assert_eq!(wheel.next_expiry(), None);
/// # Ok(())
/// # }
/// ```
pub struct Wheel<T> {
    tick: Tick,
    /// A tick's digits have this many bits; there are `1 << bits` slots.
    bits: u32,
    levels: Vec<Level>,
    entries: Entries<T>,
    /// The tick that has been reached; placement is relative to it.
    current: u64,
    /// The largest time seen, and its tick. `current` trails it while due entries are waiting.
    now: u64,
    now_tick: u64,
    /// The first deadline that is not in a tick already begun; earlier ones are raised to it.
    floor: u64,
    /// The upper level whose slot the current tick has entered and which is not empty yet; else 0.
    moving: u8,
}

impl<T> Wheel<T> {
    /// Entries that one call of [`expire`](Self::expire) moves at most: microseconds, even if each
    /// of them has to be fetched from memory.
    pub const MOVES_PER_EXPIRE: usize = 64;

    /// Starts a wheel with a tick of 100 ms and 512 slots.
    pub fn builder() -> WheelBuilder {
        WheelBuilder::default()
    }

    /// Makes an empty wheel; the builder has checked both numbers.
    pub(super) fn with(tick_ns: u64, slots: usize) -> Self {
        Self {
            tick: Tick::new(tick_ns),
            bits: slots.trailing_zeros(),
            levels: vec![Level::bottom(slots)],
            entries: Entries::new(),
            current: 0,
            now: 0,
            now_tick: 0,
            floor: 1,
            moving: 0,
        }
    }

    /// Arms a timeout for `deadline`, in O(1).
    ///
    /// A deadline in a tick that has begun, zero among them, is due on the next tick.
    ///
    /// # Panics
    ///
    /// If 2³² − 1 entries are held already.
    pub fn insert(&mut self, deadline: u64, value: T) -> WheelKey {
        let deadline = deadline.max(self.floor);
        let tick = self.tick.ceil(deadline);
        let place = self.place_for(tick);
        let prev = self.append(place, self.entries.next_index(), tick);
        self.entries.insert(deadline, place, prev, value)
    }

    /// Takes an entry out, in O(1), and returns its value.
    ///
    /// `None` if it was taken out before, by [`expire`](Self::expire) or by a cancel. One that is
    /// due but has not been handed out yet can still be cancelled.
    pub fn cancel(&mut self, key: WheelKey) -> Option<T> {
        let (place, _) = self.entries.find(key)?;
        self.unlink(place, key.index);
        self.entries.remove(key.index)
    }

    /// Moves an entry to another deadline, in O(1); false if the key's entry has gone.
    ///
    /// To a later deadline this is a single store: the entry stays where it is and is put where it
    /// belongs when its old slot comes up. One that is due but not yet handed out is held again.
    pub fn rearm(&mut self, key: WheelKey, deadline: u64) -> bool {
        let deadline = deadline.max(self.floor);
        let Some((place, entry)) = self.entries.find_mut(key) else {
            return false;
        };
        let later = deadline >= entry.deadline;
        entry.deadline = deadline;
        if !later {
            self.bring_forward(key.index, place, deadline);
        }
        true
    }

    /// Returns the deadline of an entry in nanoseconds, or `None` if it has gone.
    ///
    /// Of a deadline given too late, in a tick that had begun, the start of that tick plus 1 ns.
    pub fn deadline(&self, key: WheelKey) -> Option<u64> {
        self.entries.find(key).map(|(_, entry)| entry.deadline)
    }

    /// Says whether the entry is still held.
    pub fn contains(&self, key: WheelKey) -> bool {
        self.entries.find(key).is_some()
    }

    /// Returns the value of an entry, or `None` if it has gone.
    pub fn get(&self, key: WheelKey) -> Option<&T> {
        self.entries.find(key)?.1.value()
    }

    /// Returns when [`expire`](Self::expire) should be called next, or `None` if nothing is held.
    ///
    /// While entries are due, or wait to be moved, this is the time last given; otherwise it is
    /// later than that. It is exact, save that an entry cancelled or re-armed later may have been
    /// the earliest of its slot: then it may be early, and moves on after `expire` was called.
    /// Never late.
    pub fn next_expiry(&self) -> Option<u64> {
        if self.moving != 0 {
            return Some(self.now);
        }
        let place = self.first_occupied()?;
        let tick = self.visit_tick(place);
        Some(if tick <= self.now_tick { self.now } else { self.tick.start(tick) })
    }

    /// Moves time to `now` and takes out one due entry, or returns `None` if it finds none.
    ///
    /// Call it until it returns `None`, or as often as there is time for: the rest stays due, and
    /// can still be cancelled. A call moves at most [`MOVES_PER_EXPIRE`](Self::MOVES_PER_EXPIRE)
    /// entries; if that was not enough to find one that is due, it returns `None` too, and
    /// [`next_expiry`](Self::next_expiry) says that there is more to do now. O(1) for each entry and
    /// level, empty slots are jumped over.
    pub fn expire(&mut self, now: u64) -> Option<T> {
        self.see(now);
        let mut moves = Self::MOVES_PER_EXPIRE;
        loop {
            let due = Place { level: 0, slot: self.digit(self.current, 0) };
            loop {
                let index = self.levels[0].head(due.slot);
                if index == NIL {
                    break;
                }
                let deadline = self.entries.at(index).deadline;
                if deadline <= self.current_time() {
                    self.unlink(due, index);
                    return self.entries.remove(index);
                }
                // It was re-armed.
                moves = moves.checked_sub(1)?;
                let tick = self.tick.ceil(deadline);
                self.relink(due, index, self.place_for(tick), tick);
            }
            if self.moving != 0 {
                moves = moves.checked_sub(1)?;
                self.move_down();
                continue;
            }
            if self.current == self.now_tick {
                return None;
            }
            match self.first_occupied() {
                Some(place) if self.start(place) <= self.now_tick => {
                    self.current = self.visit_tick(place).min(self.now_tick);
                    self.moving = place.level;
                }
                _ => self.current = self.now_tick,
            }
        }
    }

    /// The start of the tick whose entries [`Wheel::expire`] gives out, in nanoseconds: when they could be told at the
    /// earliest.
    pub(crate) fn current_time(&self) -> u64 {
        self.tick.start(self.current)
    }

    /// Returns how many entries are held, those that are due and waiting included.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Says whether no entry is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length of a tick.
    pub fn tick(&self) -> Duration {
        self.tick.length()
    }

    /// Returns the number of slots per level.
    pub fn slots(&self) -> usize {
        1 << self.bits
    }

    fn see(&mut self, now: u64) {
        if now <= self.now {
            return;
        }
        self.now = now;
        // The last tick ends beyond `u64`; unless it is rounded up it would never be reached.
        self.now_tick = match now {
            u64::MAX => self.tick.ceil(now),
            _ => self.tick.floor(now),
        };
        self.floor = self.tick.start(self.now_tick).saturating_add(1);
    }

    /// Moves the first entry of the slot that the current tick has entered to where it belongs.
    fn move_down(&mut self) {
        let from = self.entered();
        let index = self.levels[usize::from(from.level)].head(from.slot);
        let tick = self.tick.ceil(self.entries.at(index).deadline);
        self.relink(from, index, self.locate(tick), tick);
    }

    /// Puts an entry that lies in `old` where its new deadline, earlier than the last, asks for.
    fn bring_forward(&mut self, index: u32, old: Place, deadline: u64) {
        let tick = self.tick.ceil(deadline);
        if self.locate(tick) < old {
            let new = self.place_for(tick);
            if new != old {
                self.relink(old, index, new, tick);
            }
        } else {
            // Where it lies is visited in time, if the slot knows.
            self.levels[usize::from(old.level)].remember(old.slot, tick);
        }
    }

    /// Returns the place of an entry with this target tick relative to the current tick.
    fn locate(&self, tick: u64) -> Place {
        let differing = tick ^ self.current;
        let mut level = 0;
        while differing >> (u32::from(level) * self.bits) > self.mask() {
            level += 1;
        }
        Place { level, slot: self.digit(tick, level) }
    }

    /// Returns where an entry with this target tick is put: as [`locate`](Self::locate), but behind
    /// those that are still to be moved down to the same ticks.
    fn place_for(&self, tick: u64) -> Place {
        let place = self.locate(tick);
        if place.level < self.moving { self.entered() } else { place }
    }

    /// The slot whose entries are being moved down.
    fn entered(&self) -> Place {
        Place { level: self.moving, slot: self.digit(self.current, self.moving) }
    }

    fn digit(&self, tick: u64, level: u8) -> u16 {
        ((tick >> (u32::from(level) * self.bits)) & self.mask()) as u16
    }

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Every occupied slot lies ahead of the current tick, or is it: the first bit is the next.
    fn first_occupied(&self) -> Option<Place> {
        let mut levels = (0..).zip(&self.levels);
        levels.find_map(|(level, slots)| Some(Place { level, slot: slots.first()? }))
    }

    /// Returns the first tick that the slot spans.
    fn start(&self, place: Place) -> u64 {
        let shift = u32::from(place.level) * self.bits;
        let above = (self.current >> shift) & !self.mask();
        (above | u64::from(place.slot)) << shift
    }

    /// Returns the tick for which the slot must be visited.
    fn visit_tick(&self, place: Place) -> u64 {
        match place.level {
            0 => self.start(place),
            level => self.levels[usize::from(level)].earliest(place.slot),
        }
    }

    /// Makes an entry the last in `place`, as far as others know; returns which one is before it.
    fn append(&mut self, place: Place, index: u32, tick: u64) -> u32 {
        debug_assert!(tick >= self.current, "no list lies behind the current tick");
        let level = usize::from(place.level);
        if !self.levels.get(level).is_some_and(Level::is_allocated) {
            self.allocate_level(level);
        }
        let prev = self.levels[level].append(place.slot, index, tick);
        if prev != NIL {
            self.entries.at_mut(prev).next = index;
        }
        prev
    }

    fn relink(&mut self, old: Place, index: u32, new: Place, tick: u64) {
        self.unlink(old, index);
        let prev = self.append(new, index, tick);
        self.entries.at_mut(index).append_to(new, prev);
    }

    fn unlink(&mut self, place: Place, index: u32) {
        let entry = self.entries.at(index);
        let (prev, next) = (entry.prev, entry.next);
        let level = &mut self.levels[usize::from(place.level)];
        if next != NIL {
            self.entries.at_mut(next).prev = prev;
        } else if prev != NIL {
            level.set_tail(place.slot, prev);
        }
        if prev != NIL {
            self.entries.at_mut(prev).next = next;
            return;
        }
        level.set_head(place.slot, next);
        if next == NIL && self.moving != 0 && place == self.entered() {
            self.moving = 0;
        }
    }

    #[cold]
    fn allocate_level(&mut self, level: usize) {
        if level >= self.levels.len() {
            self.levels.resize_with(level + 1, Level::default);
        }
        self.levels[level] = Level::upper(self.slots());
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("tick", &self.tick())
            .field("slots", &self.slots())
            .field("len", &self.len())
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
