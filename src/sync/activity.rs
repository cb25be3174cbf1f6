//! What a loop is doing now, for whoever watches it from another thread.
//!
//! Always holds: only the loop's thread writes, with plain stores: no lock, no locked instruction, no clock. A
//! reader gets a channel together with that channel's own handler, and never one whose callback has returned:
//! what it cannot read in one piece it does not get (a sequence lock: `step` is odd while something is named).
//! It does not know the time; how long something lasts is the reader's business.

use crate::id::Key;
use crossbeam_utils::atomic::AtomicCell;
use std::{
    fmt,
    panic::Location,
    sync::atomic::{AtomicU64, Ordering},
};

/// Stands for "a task" where a channel's key would be; no loop has so many slots.
const NO_CHANNEL: u64 = u64::MAX;

/// Low bits of `place`, which hold the phase; the others count turns.
const PHASE_BITS: u32 = 3;

/// Readings before a loop that moves too fast to be read is taken to do nothing in particular.
const READINGS: usize = 16;

/// Tells a type's name; a word, where the name itself would be two.
pub(crate) type TypeName = fn() -> &'static str;

/// What a loop does in a turn, in this order, when it is not asleep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Phase {
    /// Reading from and writing to sockets that are ready, accepting, decoding, handlers' `read`, sending what they answer.
    Io = 1,
    /// Running tasks and what other threads have sent to channels.
    Tasks = 2,
    /// Running scheduled tasks and idle events.
    Timers = 3,
    /// Sending what else was written in the turn, closing, handlers' `inactive`.
    Flush = 4,
    /// Its last turn: running what was accepted before the end, closing what is open, dropping handlers.
    Shutdown = 5,
}

/// Where a loop is; one for each loop, shared with who watches it. On a cache line of its own, since it is written
/// at every callback.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Activity {
    /// The number of the turn, and in the low bits the phase; zero there: at rest.
    place: AtomicU64,
    /// Grows with every beginning and end of a callback or task; odd in between.
    step: AtomicU64,
    channel: AtomicU64,
    handler: AtomicCell<Option<TypeName>>,
    task: AtomicCell<Option<&'static Location<'static>>>,
}

/// Where a loop was at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivitySnapshot {
    pub(crate) turn: u64,
    /// None: asleep in poll, or between two turns.
    pub(crate) phase: Option<Phase>,
    /// Another one means another callback or task.
    pub(crate) step: u64,
    pub(crate) doing: Occupation,
}

/// Whose code a loop is running.
#[derive(Clone, Copy)]
pub(crate) enum Occupation {
    /// Nobody's that has a name.
    Nothing,
    /// The pipeline's of a channel.
    Channel(Key, Option<TypeName>),
    /// A task's, with its origin.
    Task(Option<&'static Location<'static>>),
}

/// Says that a task is over when it is dropped.
struct Leave<'a>(&'a Activity);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Activity {
    // ---- the loop's thread ---------------------------------------------------------------------------

    /// The poll has returned.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        let turns = (self.place.load(Ordering::Relaxed) >> PHASE_BITS) + 1;
        self.place.store(turns << PHASE_BITS | Phase::Io as u64, Ordering::Release);
    }

    /// The next phase of the turn.
    #[inline]
    pub(crate) fn enter_phase(&self, phase: Phase) {
        self.move_to(phase as u64);
    }

    /// The turn is over; the loop will sleep, or is not driven.
    #[inline]
    pub(crate) fn rest(&self) {
        self.move_to(0);
    }

    #[inline]
    fn move_to(&self, phase: u64) {
        let turn = self.place.load(Ordering::Relaxed) >> PHASE_BITS << PHASE_BITS;
        self.place.store(turn | phase, Ordering::Release);
    }

    /// A callback of this channel begins; [`leave`](Activity::leave) says that it is over.
    #[inline]
    pub(crate) fn enter_channel(&self, key: Key, handler: TypeName) {
        self.handler.store(Some(handler));
        self.channel.store(u64::from(key.index) << 32 | u64::from(key.generation), Ordering::Release);
        self.advance();
    }

    /// The callback or the task is over, however it ended.
    #[inline]
    pub(crate) fn leave(&self) {
        self.advance();
    }

    /// Runs a task.
    #[inline]
    pub(crate) fn in_task<T>(&self, origin: &'static Location<'static>, task: impl FnOnce() -> T) -> T {
        self.task.store(Some(origin));
        self.channel.store(NO_CHANNEL, Ordering::Release);
        self.advance();
        // Also if it panics, or from then on odd would be even.
        let _left = Leave(self);
        task()
    }

    #[inline]
    fn advance(&self) {
        let step = self.step.load(Ordering::Relaxed);
        self.step.store(step.wrapping_add(1), Ordering::Release);
    }

    // ---- any thread ----------------------------------------------------------------------------------

    /// Where the loop is now.
    pub(crate) fn look(&self) -> ActivitySnapshot {
        for _ in 0..READINGS {
            if let Some(sight) = self.try_look() {
                return sight;
            }
            std::hint::spin_loop();
        }
        let (turn, phase) = unpack(self.place.load(Ordering::Acquire));
        ActivitySnapshot { turn, phase, step: self.step.load(Ordering::Acquire), doing: Occupation::Nothing }
    }

    /// Fails if the loop has moved on meanwhile.
    fn try_look(&self) -> Option<ActivitySnapshot> {
        let place = self.place.load(Ordering::Acquire);
        let step = self.step.load(Ordering::Acquire);
        let doing = if step.is_multiple_of(2) { Occupation::Nothing } else { self.doing() };
        // The writer changes a name only after it has made `step` even. Whoever has read a later name (that load
        // acquires) reads a later step here.
        let unmoved =
            self.step.load(Ordering::Acquire) == step && self.place.load(Ordering::Relaxed) == place;
        let (turn, phase) = unpack(place);
        unmoved.then_some(ActivitySnapshot { turn, phase, step, doing })
    }

    fn doing(&self) -> Occupation {
        match self.channel.load(Ordering::Acquire) {
            NO_CHANNEL => Occupation::Task(self.task.load()),
            key => {
                let key = Key { index: (key >> 32) as u32, generation: key as u32 };
                Occupation::Channel(key, self.handler.load())
            }
        }
    }
}

fn unpack(place: u64) -> (u64, Option<Phase>) {
    let phase = match place & ((1 << PHASE_BITS) - 1) {
        1 => Some(Phase::Io),
        2 => Some(Phase::Tasks),
        3 => Some(Phase::Timers),
        4 => Some(Phase::Flush),
        5 => Some(Phase::Shutdown),
        _ => None,
    };
    (place >> PHASE_BITS, phase)
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Phase::Io => "I/O",
            Phase::Tasks => "tasks",
            Phase::Timers => "timers",
            Phase::Flush => "flush",
            Phase::Shutdown => "shutdown",
        })
    }
}

impl fmt::Debug for Occupation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Occupation::Nothing => f.write_str("Nothing"),
            Occupation::Channel(key, handler) => {
                f.debug_tuple("Channel").field(key).field(&handler.map(|name| name())).finish()
            }
            Occupation::Task(origin) => f.debug_tuple("Task").field(origin).finish(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        any::type_name,
        sync::{
            Arc,
            atomic::{AtomicBool, AtomicU64},
        },
    };

    fn key(n: u32) -> Key {
        Key { index: n, generation: n + 1 }
    }

    #[test]
    fn names_are_stored_without_a_lock() {
        assert!(AtomicCell::<Option<TypeName>>::is_lock_free());
        assert!(AtomicCell::<Option<&'static Location<'static>>>::is_lock_free());
    }

    #[test]
    fn each_turn_goes_through_its_phases_and_comes_to_rest() {
        let loop_ = Activity::default();
        assert_eq!((loop_.look().turn, loop_.look().phase), (0, None));
        for turn in 1..4 {
            loop_.begin_turn();
            assert_eq!((loop_.look().turn, loop_.look().phase), (turn, Some(Phase::Io)));
            for phase in [Phase::Tasks, Phase::Timers, Phase::Flush, Phase::Shutdown] {
                loop_.enter_phase(phase);
                assert_eq!((loop_.look().turn, loop_.look().phase), (turn, Some(phase)));
            }
            loop_.rest();
            assert_eq!((loop_.look().turn, loop_.look().phase), (turn, None));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "`AtomicCell` keeps pointers as integers, which Miri does not let be called")]
    fn what_is_over_has_no_name_any_more() {
        let loop_ = Activity::default();
        loop_.begin_turn();
        loop_.enter_channel(key(7), type_name::<u8>);
        let Occupation::Channel(seen, Some(name)) = loop_.look().doing else { panic!("{:?}", loop_.look()) };
        assert_eq!((seen, name()), (key(7), "u8"));
        loop_.leave();
        assert!(matches!(loop_.look().doing, Occupation::Nothing));

        let here = Location::caller();
        loop_.in_task(here, || {
            let Occupation::Task(Some(origin)) = loop_.look().doing else { panic!("{:?}", loop_.look()) };
            assert_eq!(origin, here);
        });
        assert!(matches!(loop_.look().doing, Occupation::Nothing));
    }

    #[test]
    #[cfg_attr(miri, ignore = "`AtomicCell` keeps pointers as integers, which Miri does not let be called")]
    fn a_channel_is_never_seen_with_the_handler_of_another() {
        const NAMES: [TypeName; 3] = [type_name::<u8>, type_name::<u16>, type_name::<u32>];
        let loop_ = Arc::new(Activity::default());
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let writer = std::thread::spawn({
            let (loop_, stop) = (loop_.clone(), stop.clone());
            move || {
                for n in (0..3).cycle() {
                    loop_.begin_turn();
                    loop_.enter_channel(key(n), NAMES[n as usize]);
                    loop_.leave();
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                }
            }
        });
        while seen.load(Ordering::Relaxed) < 10_000 {
            if let Occupation::Channel(key, name) = loop_.look().doing {
                assert_eq!(name.map(|name| name()), Some(NAMES[key.index as usize]()));
                seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }
}
