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
//! Slots, ticks and the hierarchy are schemes 6 and 7 of G. Varghese and T. Lauck, *Hashed and
//! Hierarchical Timing Wheels* (SOSP 1987). Placing by the highest differing digit and bitmaps to
//! skip empty slots are taken from later hierarchical wheels, tokio's among them. What is added
//! here: a slot of an upper level remembers the earliest tick put into it, so that a sleeper is
//! woken for a long delay when it is due, and not also to move it down a level.
//!
//! # What always holds
//!
//! - An entry is moved to a lower level at most once per level, then fires, is cancelled, or, if
//!   it was re-armed later meanwhile, is put where it belongs now.
//! - What is put in or re-armed during a pass does not fire within that pass, even with a deadline
//!   long past: it waits for the next tick. So a timeout may re-arm itself with no delay.
//! - Due entries come in the order of their ticks, and within a tick in the order of insertion
//!   (of relinking, for entries that were re-armed), however long the caller was away.
//! - Time given that is smaller than before counts as the largest seen. [`u64::MAX`] is the end of
//!   time: all that is left comes due, and what is put in then is due at once.
//!
//! # Memory
//!
//! An entry takes 24 bytes plus an `Option<T>`: 40 bytes for a `u64`. Entries live in one `Vec`,
//! which grows to the largest number held at once and is not shrunk. An empty wheel of 512 slots
//! takes 2.3 KiB; each further level 6 KiB, once, when first needed. Nothing else is allocated.
//!
//! # Cost that is not constant
//!
//! Entering a slot of an upper level moves all its entries, in one call of [`Wheel::expire`]. With
//! a great many entries choose slots × tick well above the common delay, so that this is rare.
//! Likewise one call puts back all re-armed entries that lie ahead of the next due one.
//!
//! The wheel does not own a clock or a thread, and does not run anything: its owner asks
//! [`Wheel::next_expiry`], sleeps, and takes what [`Wheel::expire`] hands out.

use std::fmt;
use std::time::Duration;

use super::level::{Level, NIL};
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
    tick_ns: u64,
    /// A tick's digits have this many bits; there are `1 << bits` slots.
    bits: u32,
    levels: Vec<Level>,
    entries: Vec<Entry<T>>,
    free: u32,
    len: usize,
    /// The tick that has been reached; placement is relative to it.
    current: u64,
    /// The largest time seen, and its tick. `current` trails it while due entries are waiting.
    now: u64,
    now_tick: u64,
    /// The first deadline that is not in a tick already begun; earlier ones are raised to it.
    floor: u64,
}

/// Names one entry of a [`Wheel`]; a key whose entry has gone names nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WheelKey {
    index: u32,
    generation: u32,
}

/// One armed timeout, or one free place of the slab, linked through `next`.
struct Entry<T> {
    deadline: u64,
    generation: u32,
    /// Level and slot as `level << bits | slot`, which orders lists by the time of their visit.
    list: u32,
    prev: u32,
    next: u32,
    value: Option<T>,
}

impl<T> Wheel<T> {
    /// Starts a wheel with a tick of 100 ms and 512 slots.
    pub fn builder() -> WheelBuilder {
        WheelBuilder::default()
    }

    /// Makes an empty wheel; the builder has checked both numbers.
    pub(super) fn with(tick_ns: u64, slots: usize) -> Self {
        Self {
            tick_ns,
            bits: slots.trailing_zeros(),
            levels: vec![Level::bottom(slots)],
            entries: Vec::new(),
            free: NIL,
            len: 0,
            current: 0,
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
    /// If 2³² − 1 entries are held already.
    pub fn insert(&mut self, deadline: u64, value: T) -> WheelKey {
        let deadline = deadline.max(self.floor);
        let index = self.allocate(deadline, value);
        self.link(index);
        self.len += 1;
        let generation = self.entries[index as usize].generation;
        WheelKey { index, generation }
    }

    /// Takes an entry out, in O(1), and returns its value.
    ///
    /// `None` if it was taken out before, by [`expire`](Self::expire) or by a cancel. One that is
    /// due but has not been handed out yet can still be cancelled.
    pub fn cancel(&mut self, key: WheelKey) -> Option<T> {
        self.find(key)?;
        self.remove(key.index)
    }

    /// Moves an entry to another deadline, in O(1); false if the key's entry has gone.
    ///
    /// To a later deadline this is a single store: the entry stays where it is and is put where it
    /// belongs when its old slot comes up. One that is due but not yet handed out is held again.
    pub fn rearm(&mut self, key: WheelKey, deadline: u64) -> bool {
        let deadline = deadline.max(self.floor);
        let Some(entry) = self.find(key) else {
            return false;
        };
        let (later, old) = (deadline >= entry.deadline, entry.list);
        self.entries[key.index as usize].deadline = deadline;
        if !later {
            let tick = self.target(deadline);
            let new = self.locate(tick);
            if new < old {
                self.unlink(key.index);
                self.link(key.index);
            } else if new == old {
                let (level, slot) = self.split(new);
                self.levels[level].remember(slot, tick);
            }
        }
        true
    }

    /// Returns the deadline of an entry in nanoseconds, or `None` if it has gone.
    ///
    /// Of a deadline given too late, in a tick that had begun, the start of that tick plus 1 ns.
    pub fn deadline(&self, key: WheelKey) -> Option<u64> {
        self.find(key).map(|entry| entry.deadline)
    }

    /// Says whether the entry is still held.
    pub fn contains(&self, key: WheelKey) -> bool {
        self.find(key).is_some()
    }

    /// Returns the value of an entry, or `None` if it has gone.
    pub fn get(&self, key: WheelKey) -> Option<&T> {
        self.find(key)?.value.as_ref()
    }

    /// Returns when [`expire`](Self::expire) should be called next, or `None` if nothing is held.
    ///
    /// While due entries are waiting this is the time last given, otherwise it is later than that.
    /// It is exact, save that an entry cancelled or re-armed later may have been the earliest of
    /// its slot: then it may be early, and moves on after `expire` was called. Never late.
    pub fn next_expiry(&self) -> Option<u64> {
        let (level, slot) = self.first_occupied()?;
        let tick = self.visit_tick(level, slot);
        if tick <= self.now_tick {
            return Some(self.now);
        }
        Some(tick.saturating_mul(self.tick_ns))
    }

    /// Moves time to `now` and takes out one due entry, or returns `None` if nothing is due.
    ///
    /// Call it until it returns `None`, or as often as there is time for: the rest stays due, and
    /// can still be cancelled. O(1) for each entry and level, empty slots are jumped over.
    pub fn expire(&mut self, now: u64) -> Option<T> {
        self.see(now);
        loop {
            if let Some(index) = self.next_due() {
                return self.remove(index);
            }
            if self.current == self.now_tick {
                return None;
            }
            match self.first_occupied() {
                Some((level, slot)) if self.start(level, slot) <= self.now_tick => {
                    self.current = self.visit_tick(level, slot).min(self.now_tick);
                    if level > 0 {
                        self.cascade(level, slot);
                    }
                }
                _ => self.current = self.now_tick,
            }
        }
    }

    /// The end of the tick whose entries [`Wheel::expire`] gives out, in nanoseconds: when they could be told at the
    /// earliest.
    pub(crate) fn current_time(&self) -> u64 {
        self.current.saturating_mul(self.tick_ns)
    }

    /// Returns how many entries are held, those that are due and waiting included.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Says whether no entry is held.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the length of a tick.
    pub fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick_ns)
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
            u64::MAX => now.div_ceil(self.tick_ns),
            _ => now / self.tick_ns,
        };
        self.floor = self.now_tick.saturating_mul(self.tick_ns).saturating_add(1);
    }

    /// Returns the first entry due in the current tick; puts re-armed ones before it in place.
    fn next_due(&mut self) -> Option<u32> {
        let (_, slot) = self.split(self.locate(self.current));
        loop {
            let index = self.levels[0].head(slot);
            if index == NIL {
                return None;
            }
            if self.target(self.entries[index as usize].deadline) <= self.current {
                return Some(index);
            }
            self.unlink(index);
            self.link(index);
        }
    }

    /// Distributes the entries of a slot that the current tick has entered over lower levels.
    fn cascade(&mut self, level: usize, slot: usize) {
        let first = self.levels[level].head(slot);
        self.levels[level].set_head(slot, NIL);
        let mut index = first;
        loop {
            let next = self.entries[index as usize].next;
            self.link(index);
            if next == first {
                return;
            }
            index = next;
        }
    }

    fn target(&self, deadline: u64) -> u64 {
        deadline.div_ceil(self.tick_ns)
    }

    /// Returns the list in which an entry with this target tick belongs now.
    fn locate(&self, tick: u64) -> u32 {
        let differing = tick ^ self.current;
        let level = differing.checked_ilog2().unwrap_or(0) / self.bits;
        let slot = (tick >> (level * self.bits)) & self.mask();
        (level << self.bits) | slot as u32
    }

    fn split(&self, list: u32) -> (usize, usize) {
        let slot = u64::from(list) & self.mask();
        ((list >> self.bits) as usize, slot as usize)
    }

    fn mask(&self) -> u64 {
        (1 << self.bits) - 1
    }

    /// Every occupied slot lies ahead of the current tick, or is it: the first bit is the next.
    fn first_occupied(&self) -> Option<(usize, usize)> {
        let mut levels = self.levels.iter().enumerate();
        levels.find_map(|(level, slots)| Some((level, slots.first()?)))
    }

    /// Returns the first tick that the slot spans.
    fn start(&self, level: usize, slot: usize) -> u64 {
        let shift = level as u32 * self.bits;
        let above = (self.current >> shift) & !self.mask();
        (above | slot as u64) << shift
    }

    /// Returns the tick for which the slot must be visited.
    fn visit_tick(&self, level: usize, slot: usize) -> u64 {
        match level {
            0 => self.start(level, slot),
            _ => self.levels[level].earliest(slot),
        }
    }

    fn link(&mut self, index: u32) {
        let tick = self.target(self.entries[index as usize].deadline);
        debug_assert!(tick >= self.current, "no list lies behind the current tick");
        let list = self.locate(tick);
        let (level, slot) = self.split(list);
        self.allocate_level(level);
        self.levels[level].remember(slot, tick);

        // Lists are circular, so that a slot needs no tail: it is the head's `prev`.
        let head = self.levels[level].head(slot);
        let (prev, next) = if head == NIL {
            self.levels[level].set_head(slot, index);
            (index, index)
        } else {
            let tail = self.entries[head as usize].prev;
            self.entries[tail as usize].next = index;
            self.entries[head as usize].prev = index;
            (tail, head)
        };
        let entry = &mut self.entries[index as usize];
        (entry.list, entry.prev, entry.next) = (list, prev, next);
    }

    fn unlink(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let (prev, next) = (entry.prev, entry.next);
        let (level, slot) = self.split(entry.list);
        if next == index {
            self.levels[level].set_head(slot, NIL);
            return;
        }
        self.entries[prev as usize].next = next;
        self.entries[next as usize].prev = prev;
        if self.levels[level].head(slot) == index {
            self.levels[level].set_head(slot, next);
        }
    }

    fn find(&self, key: WheelKey) -> Option<&Entry<T>> {
        let entry = self.entries.get(key.index as usize)?;
        (entry.generation == key.generation).then_some(entry)
    }

    fn allocate(&mut self, deadline: u64, value: T) -> u32 {
        if self.free != NIL {
            let index = self.free;
            let entry = &mut self.entries[index as usize];
            self.free = entry.next;
            entry.deadline = deadline;
            entry.value = Some(value);
            return index;
        }
        assert!(self.entries.len() < NIL as usize, "2^32 - 1 timeouts held");
        self.entries.push(Entry {
            deadline,
            generation: 0,
            list: 0,
            prev: NIL,
            next: NIL,
            value: Some(value),
        });
        (self.entries.len() - 1) as u32
    }

    fn allocate_level(&mut self, level: usize) {
        if level >= self.levels.len() {
            self.levels.resize_with(level + 1, Level::default);
        }
        if !self.levels[level].is_allocated() {
            self.levels[level] = Level::upper(self.slots());
        }
    }

    fn remove(&mut self, index: u32) -> Option<T> {
        self.unlink(index);
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = index;
        self.len -= 1;
        entry.value.take()
    }
}

impl<T> fmt::Debug for Wheel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Wheel")
            .field("tick", &self.tick())
            .field("slots", &self.slots())
            .field("len", &self.len)
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
#[path = "wheel_tests.rs"]
mod tests;
