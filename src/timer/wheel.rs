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
//! An entry takes 24 bytes plus its value: 32 bytes for a `u64`, 28 for a `u32`. Of these, 8 are its links and lie in a
//! `Vec` with those of the other entries and of level 0; the rest lies in another one. Both grow to the largest number held
//! at once and are not shrunk. An empty wheel of 512 slots takes 4.4 KiB; each further level 8 KiB, once, when first needed.
//! Nothing else is allocated.
//!
//! The wheel does not own a clock or a thread, and does not run anything: its owner asks
//! [`Wheel::next_expiry`], sleeps, and takes what [`Wheel::expire`] hands out.

use std::fmt;
use std::time::Duration;

use super::entries::{Entries, WheelEntry, WheelKey};
use super::level::WheelPlace;
use super::levels::Levels;
use super::tick::Tick;

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
    levels: Levels,
    entries: Entries<T>,
    /// When the current tick begins: what is due then may be handed out.
    current_time: u64,
    /// The largest time seen, and its tick. The current tick trails it while due entries are waiting.
    now: u64,
    now_tick: u64,
    /// The first deadline that is not in a tick already begun; earlier ones are raised to it.
    floor: u64,
}

impl<T> Wheel<T> {
    /// Entries that one call of [`expire`](Self::expire) moves at most: microseconds, even if each
    /// of them has to be fetched from memory.
    pub const MOVES_PER_EXPIRE: usize = 64;

    /// Makes an empty wheel; the builder has checked both numbers.
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
    /// A deadline in a tick that has begun, zero among them, is due on the next tick.
    ///
    /// # Panics
    ///
    /// If nearly 2³² entries are held already: they, and the slots, are counted with 32 bits.
    #[inline]
    pub fn insert(&mut self, deadline: u64, value: T) -> WheelKey {
        let deadline = deadline.max(self.floor);
        let tick = self.tick.ceil(deadline);
        let Some((index, slot)) = self.levels.take_and_append(tick) else {
            return self.insert_anywhere(deadline, tick, value);
        };
        self.entries.insert(index, deadline, WheelPlace { level: 0, slot }, value)
    }

    /// As [`insert`](Self::insert), on whatever level, and with more places if none is free.
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

    /// Takes an entry out, in O(1), and returns its value.
    ///
    /// `None` if it was taken out before, by [`expire`](Self::expire) or by a cancel. One that is
    /// due but has not been handed out yet can still be cancelled.
    #[inline]
    pub fn cancel(&mut self, key: WheelKey) -> Option<T> {
        self.entries.find(key)?;
        if self.levels.release_below(key.index) {
            return self.entries.remove(key.index);
        }
        self.take(key.index)
    }

    /// Takes an entry out, from whatever level.
    #[inline(never)]
    fn take(&mut self, index: u32) -> Option<T> {
        self.levels.release(index);
        self.entries.remove(index)
    }

    /// Moves an entry to another deadline, in O(1); false if the key's entry has gone.
    ///
    /// To a later deadline this is a single store: the entry stays where it is and is put where it
    /// belongs when its old slot comes up. One that is due but not yet handed out is held again.
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

    /// Returns the deadline of an entry in nanoseconds, or `None` if it has gone.
    ///
    /// Of a deadline given too late, in a tick that had begun, the start of that tick plus 1 ns.
    pub fn deadline(&self, key: WheelKey) -> Option<u64> {
        Some(self.entries.find(key)?.deadline())
    }

    /// Says whether the entry is still held.
    pub fn contains(&self, key: WheelKey) -> bool {
        self.entries.find(key).is_some()
    }

    /// Returns the value of an entry, or `None` if it has gone.
    pub fn get(&self, key: WheelKey) -> Option<&T> {
        self.entries.find(key)?.value()
    }

    /// Returns when [`expire`](Self::expire) should be called next, or `None` if nothing is held.
    ///
    /// While entries are due, or wait to be moved, this is the time last given; otherwise it is
    /// later than that. It is exact, save that an entry cancelled or re-armed later may have been
    /// the earliest of its slot: then it may be early, and moves on after `expire` was called.
    /// Never late.
    pub fn next_expiry(&self) -> Option<u64> {
        if self.levels.has_entered() {
            return Some(self.now);
        }
        let tick = self.levels.next_visit()?;
        Some(if tick <= self.now_tick { self.now } else { self.tick.start(tick) })
    }

    /// Moves time to `now` and takes out one due entry, or returns `None` if it finds none.
    ///
    /// Call it until it returns `None`, or as often as there is time for: the rest stays due, and
    /// can still be cancelled. A call moves at most [`MOVES_PER_EXPIRE`](Self::MOVES_PER_EXPIRE)
    /// entries; if that was not enough to find one that is due, it returns `None` too, and
    /// [`next_expiry`](Self::next_expiry) says that there is more to do now. O(1) for each entry and
    /// level, empty slots are jumped over.
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

    /// As [`expire`](Self::expire), where what comes next has to be looked for.
    #[inline(never)]
    fn expire_next(&mut self, now: u64) -> Option<T> {
        if now > self.now {
            self.see(now);
        }
        let index = self.find_due()?;
        self.levels.release_due(index);
        self.entries.remove(index)
    }

    /// Passes what was re-armed, moves entries down and moves time on until there is a due entry: the first in the slot of
    /// what is due.
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
                self.current_time = self.tick.start(self.levels.go_on(self.now_tick));
            }
        }
    }

    /// Moves an entry that was re-armed from the slot of what is due, where it cannot go to another slot of level 0.
    #[inline(never)]
    fn pass_up(&mut self, index: u32, tick: u64) {
        let place = self.levels.behind_entered(self.levels.locate(tick));
        self.levels.relink(index, place, tick);
        self.entries.at_mut(index).set_place(place);
    }

    /// Moves the first entry of the slot that has been entered.
    #[inline(never)]
    fn move_down(&mut self) {
        let Some(index) = self.levels.take_entered() else { return };
        let entry = self.entries.at_mut(index);
        let tick = self.tick.ceil(entry.deadline());
        let place = self.levels.locate(tick);
        self.levels.append_to(place, index, tick);
        entry.set_place(place);
    }

    /// The start of the tick whose entries [`Wheel::expire`] gives out, in nanoseconds: when they could be told at the
    /// earliest.
    pub(crate) fn current_time(&self) -> u64 {
        self.current_time
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
        self.levels.slots()
    }

    #[inline(never)]
    fn see(&mut self, now: u64) {
        self.now = now;
        // The last tick ends beyond `u64`; unless it is rounded up it would never be reached.
        self.now_tick = match now {
            u64::MAX => self.tick.ceil(now),
            _ => self.tick.floor(now),
        };
        self.floor = self.tick.start(self.now_tick).saturating_add(1);
    }

    /// Puts an entry where its new deadline, earlier than the last, asks for.
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

    /// As [`bring_forward`](Self::bring_forward), where another level has part in it.
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
            // Where it lies is visited in time, if the slot knows.
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
