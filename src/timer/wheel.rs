//! A hierarchical timing wheel: coarse deadlines, and O(1) to arm, cancel and move an entry.
//!
//! # How it works
//!
//! Time is divided into ticks. A deadline `d` has the target tick `⌈d / tick⌉` and is due once that
//! tick has begun. It is never early, and late by less than one tick plus the caller's own delay.
//! Level 0 has one slot per tick. One slot of each further level spans a full revolution of the
//! level below.
//!
//! ```text
//! tick number (512 slots)   …  digit 2 │ digit 1 │ digit 0
//!                              level 2   level 1   level 0
//! ```
//!
//! An entry lies on the level of the highest digit in which its target differs from the current
//! tick, in the slot with that digit. Therefore every entry of a lower level is due before every
//! entry of a higher level, and all occupied slots lie ahead of the current tick. The first set bit
//! in the bitmap of the first occupied level is the next slot to visit. Empty slots in between are
//! skipped.
//!
//! When time enters a slot of an upper level, the entries of that slot are moved down. Until the
//! slot is empty, time does not advance, and new entries for its span are appended to its list. So
//! the order of entries does not depend on the number of calls that move them.
//!
//! Slots, ticks and the hierarchy are schemes 6 and 7 of G. Varghese and T. Lauck, *Hashed and
//! Hierarchical Timing Wheels* (SOSP 1987). Placement by the highest differing digit, and bitmaps
//! to skip empty slots, come from later hierarchical wheels such as tokio's. One thing is new here:
//! a slot of an upper level remembers the earliest tick put into it. A long delay therefore wakes
//! the owner when it is due, but not just to move the entry down a level.
//!
//! # Invariants
//!
//! - One call of [`Wheel::expire`] moves at most [`Wheel::MOVES_PER_EXPIRE`] entries between slots,
//!   regardless of how many were armed or re-armed and how much time has passed.
//! - An entry moves to a lower level at most once per level. Then it expires, is cancelled, or, if
//!   it was re-armed in between, moves to the slot of its new deadline.
//! - Entries that are inserted or re-armed during a pass do not expire within that pass, even if
//!   their deadline is long past. They wait for the next tick. So a timeout may re-arm itself with
//!   zero delay.
//! - Due entries are returned in the order of their ticks, regardless of the time between calls.
//!   Within a tick they are returned in the order of insertion (of relinking, for re-armed
//!   entries).
//! - A `now` smaller than an earlier one is treated as the largest `now` seen. [`u64::MAX`] is the
//!   end of time: all remaining entries become due, and later insertions are due at once.
//!
//! # Memory
//!
//! An entry takes 24 bytes plus its value: 32 bytes for a `u64`, 28 for a `u32`. Of these, 8 bytes
//! are its links, in a `Vec` shared with the links of the other entries and the heads of level 0.
//! The rest lies in a second `Vec`. Both grow to the largest number of entries held at once and
//! never shrink. An empty wheel of 512 slots takes 4.4 KiB. Each further level takes 8 KiB,
//! allocated once when it is first needed. There are no other allocations.
//!
//! The wheel does not own a clock or a thread, and does not run tasks. Its owner calls
//! [`Wheel::next_expiry`], sleeps, and then takes expired entries from [`Wheel::expire`].

use std::fmt;
use std::time::Duration;

use super::entries::{Entries, WheelEntry, WheelKey};
use super::level::WheelPlace;
use super::levels::Levels;
use super::tick::Tick;

/// A hierarchical timing wheel.
///
/// The caller passes the time to [`expire`](Self::expire), which returns the entries that are due.
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
    levels: Levels,
    entries: Entries<T>,
    /// The start of the current tick. Entries due by then may be returned.
    current_time: u64,
    /// The largest time seen, and its tick. The current tick lags behind while due entries wait.
    now: u64,
    now_tick: u64,
    /// The first deadline after the ticks that have begun. Earlier deadlines are raised to it.
    floor: u64,
}

impl<T> Wheel<T> {
    /// The maximum number of entries that one call of [`expire`](Self::expire) moves. This takes
    /// microseconds, even if each entry has to be fetched from memory.
    pub const MOVES_PER_EXPIRE: usize = 64;

    /// Creates an empty wheel. The builder has validated both numbers.
    pub(super) fn with(tick_ns: u64, slots: usize) -> Self {
        Self {
            tick: Tick::new(tick_ns),
            levels: Levels::new(slots),
            entries: Entries::new(slots as u32),
            current_time: 0,
            now: 0,
            now_tick: 0,
            floor: 1,
        }
    }

    /// Arms a timeout for `deadline`, in O(1).
    ///
    /// If the tick of the deadline has already begun, which includes a deadline of zero, the
    /// timeout is due on the next tick.
    ///
    /// # Panics
    ///
    /// Panics if nearly 2³² entries are held. Entries and slots share a 32-bit index.
    #[inline]
    pub fn insert(&mut self, deadline: u64, value: T) -> WheelKey {
        let deadline = deadline.max(self.floor);
        let tick = self.tick.ceil(deadline);
        let Some((index, slot)) = self.levels.take_and_append(tick) else {
            return self.insert_anywhere(deadline, tick, value);
        };
        self.entries.insert(index, deadline, WheelPlace { level: 0, slot }, value)
    }

    /// Like [`insert`](Self::insert), for any level. Allocates places if none is free.
    #[inline(never)]
    fn insert_anywhere(&mut self, deadline: u64, tick: u64, value: T) -> WheelKey {
        let index = self.levels.take_place().unwrap_or_else(|| {
            let (places, capacity) = self.entries.grow();
            self.levels.add_places(places, capacity);
            self.levels.take_place().expect("places were added")
        });
        let place = self.levels.append(index, tick);
        self.entries.insert(index, deadline, place, value)
    }

    /// Removes an entry, in O(1), and returns its value.
    ///
    /// Returns `None` if the entry was removed before, by [`expire`](Self::expire) or by another
    /// cancel. An entry that is due but has not been returned yet can still be cancelled.
    #[inline]
    pub fn cancel(&mut self, key: WheelKey) -> Option<T> {
        self.entries.find(key)?;
        if self.levels.release_below(key.index) {
            return self.entries.remove(key.index);
        }
        self.take(key.index)
    }

    /// Removes an entry from any level.
    #[inline(never)]
    fn take(&mut self, index: u32) -> Option<T> {
        self.levels.release(index);
        self.entries.remove(index)
    }

    /// Moves an entry to another deadline, in O(1). Returns `false` if the entry is gone.
    ///
    /// Moving to a later deadline is a single store: the entry stays in its slot and is moved when
    /// that slot comes up. An entry that is due but has not been returned yet waits for the new
    /// deadline.
    #[inline]
    pub fn rearm(&mut self, key: WheelKey, deadline: u64) -> bool {
        let deadline = deadline.max(self.floor);
        let Some(entry) = self.entries.find_mut(key) else {
            return false;
        };
        let later = deadline >= entry.deadline();
        entry.set_deadline(deadline);
        if !later {
            Self::bring_forward(&mut self.levels, key.index, entry, self.tick.ceil(deadline));
        }
        true
    }

    /// Returns the deadline of an entry in nanoseconds, or `None` if the entry is gone.
    ///
    /// If the tick of the deadline had already begun when the deadline was set, this is the start
    /// of that tick plus 1 ns.
    pub fn deadline(&self, key: WheelKey) -> Option<u64> {
        Some(self.entries.find(key)?.deadline())
    }

    /// Returns whether the wheel still holds the entry.
    pub fn contains(&self, key: WheelKey) -> bool {
        self.entries.find(key).is_some()
    }

    /// Returns the value of an entry, or `None` if the entry is gone.
    pub fn get(&self, key: WheelKey) -> Option<&T> {
        self.entries.find(key)?.value()
    }

    /// Returns the time of the next call of [`expire`](Self::expire), or `None` if the wheel is
    /// empty.
    ///
    /// While entries are due or wait to be moved, this is the last `now`. Otherwise it is later. It
    /// is never too late, but it may be too early, if the earliest entry of its slot was cancelled
    /// or re-armed to a later deadline. In that case, the value advances with the next call of
    /// `expire`.
    pub fn next_expiry(&self) -> Option<u64> {
        if self.levels.has_entered() {
            return Some(self.now);
        }
        if self.is_empty() {
            return None;
        }
        let tick = self.levels.next_visit()?;
        Some(if tick <= self.now_tick { self.now } else { self.tick.start(tick) })
    }

    /// Advances time to `now` and removes one due entry. Returns `None` if it finds none.
    ///
    /// Call it until it returns `None`, or until a budget is spent. Entries that are not taken stay
    /// due and can still be cancelled. A call moves at most
    /// [`MOVES_PER_EXPIRE`](Self::MOVES_PER_EXPIRE) entries. If this limit stops the search, the
    /// call also returns `None`, and [`next_expiry`](Self::next_expiry) returns the current time.
    /// The cost is O(1) for each entry and level; empty slots are skipped.
    #[inline]
    pub fn expire(&mut self, now: u64) -> Option<T> {
        if now <= self.now
            && let Some(index) = self.levels.due()
            && let Some(value) = self.entries.remove_due(index, self.current_time)
        {
            self.levels.release_due(index);
            return Some(value);
        }
        self.expire_next(now)
    }

    /// Like [`expire`](Self::expire), if the next entry has to be searched for.
    #[inline(never)]
    fn expire_next(&mut self, now: u64) -> Option<T> {
        if now > self.now {
            self.see(now);
        }
        let index = self.find_due()?;
        self.levels.release_due(index);
        self.entries.remove(index)
    }

    /// Moves re-armed entries and entries of entered slots, and advances time, until there is a due
    /// entry. Returns the first entry of the current slot.
    #[inline]
    fn find_due(&mut self) -> Option<u32> {
        let mut moves = Self::MOVES_PER_EXPIRE;
        loop {
            if let Some(index) = self.levels.due() {
                let entry = self.entries.at_mut(index);
                if entry.deadline() <= self.current_time {
                    return Some(index);
                }
                moves = moves.checked_sub(1)?;
                let tick = self.tick.ceil(entry.deadline());
                match self.levels.pass_due(index, tick) {
                    Some(slot) => entry.set_place(WheelPlace { level: 0, slot }),
                    None => self.pass_up(index, tick),
                }
            } else if self.levels.has_entered() {
                moves = moves.checked_sub(1)?;
                self.move_down();
            } else if self.levels.current() == self.now_tick {
                return None;
            } else {
                self.current_time = self.tick.start(self.levels.advance_to(self.now_tick));
            }
        }
    }

    /// Moves a re-armed entry out of the current slot, if its new slot is not on level 0.
    #[inline(never)]
    fn pass_up(&mut self, index: u32, tick: u64) {
        let place = self.levels.behind_entered(self.levels.locate(tick));
        self.levels.relink(index, place, tick);
        self.entries.at_mut(index).set_place(place);
    }

    /// Moves the first entry of the entered slot.
    #[inline(never)]
    fn move_down(&mut self) {
        let Some(index) = self.levels.take_entered() else { return };
        let entry = self.entries.at_mut(index);
        let tick = self.tick.ceil(entry.deadline());
        let place = self.levels.locate(tick);
        self.levels.append_to(place, index, tick);
        entry.set_place(place);
    }

    /// Returns the start of the tick whose entries [`Wheel::expire`] returns, in nanoseconds. This
    /// is the earliest time at which they could be returned.
    pub(crate) fn current_time(&self) -> u64 {
        self.current_time
    }

    /// Returns the values of all entries, in no order.
    #[cfg(feature = "simulation")]
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.entries.values()
    }

    /// Returns the number of entries held, including due entries that have not been returned.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns whether the wheel is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the length of a tick.
    pub fn tick(&self) -> Duration {
        self.tick.length()
    }

    /// Returns the number of slots per level.
    pub fn slots(&self) -> usize {
        self.levels.slots()
    }

    #[inline(never)]
    fn see(&mut self, now: u64) {
        self.now = now;
        // The last tick ends beyond `u64`. Without rounding up, it would never be reached.
        self.now_tick = match now {
            u64::MAX => self.tick.ceil(now),
            _ => self.tick.floor(now),
        };
        self.floor = self.tick.start(self.now_tick).saturating_add(1);
    }

    /// Moves an entry to the slot of its new, earlier deadline.
    #[inline(never)]
    fn bring_forward(levels: &mut Levels, index: u32, entry: &mut WheelEntry<T>, tick: u64) {
        let Some(old) = entry.place() else { return };
        match levels.slot(tick) {
            Some(slot) if old.level == 0 => {
                if slot < old.slot {
                    levels.move_below(index, slot);
                    entry.set_place(WheelPlace { level: 0, slot });
                }
            }
            _ => Self::bring_down(levels, index, entry, tick),
        }
    }

    /// Like [`bring_forward`](Self::bring_forward), if another level is involved.
    #[inline(never)]
    fn bring_down(levels: &mut Levels, index: u32, entry: &mut WheelEntry<T>, tick: u64) {
        let Some(old) = entry.place() else { return };
        let place = levels.locate(tick);
        if place < old {
            let new = levels.behind_entered(place);
            if new != old {
                levels.relink(index, new, tick);
                entry.set_place(new);
            }
        } else {
            // The entry stays in its slot. Recording the tick makes sure that the slot is visited
            // in time.
            levels.remember(old, tick);
        }
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
