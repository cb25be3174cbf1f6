//! The current activity of a loop, for observers on other threads.
//!
//! Invariants: only the loop's thread writes, with plain stores. It uses no locks, no locked
//! instructions and no clock. A reader gets a channel together with the handler of that channel,
//! and never a channel whose callback has returned. An inconsistent reading is discarded (a
//! sequence lock: `step` is odd while a name is valid).
//!
//! Durations are not recorded. Readers measure them with their own clock.

use crate::id::Key;
use crossbeam_utils::atomic::AtomicCell;
use std::{
    fmt,
    panic::Location,
    sync::atomic::{AtomicU64, Ordering},
};

/// Marks a task in the field of the channel's key. Loops never have that many slots.
const NO_CHANNEL: u64 = u64::MAX;

/// The number of low bits of `place` that hold the phase. The other bits count turns.
const PHASE_BITS: u32 = 3;

/// The number of attempts to read a consistent state. After that, the reader assumes that the loop
/// runs no named code.
const READINGS: usize = 16;

/// Returns the name of a type. A function pointer takes one word, the name itself two.
pub(crate) type TypeName = fn() -> &'static str;

/// A phase of a loop's turn, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum LoopPhase {
    /// Reading from and writing to ready sockets, accepting connections, decoding, calling `read`
    /// of handlers, and sending their replies.
    Io = 1,
    /// Running tasks, and requests that other threads have sent to channels.
    Tasks = 2,
    /// Running scheduled tasks and idle events.
    Timers = 3,
    /// Sending the remaining output of the turn, closing channels, and calling `inactive` of
    /// handlers.
    Flush = 4,
    /// The last turn of the loop: running accepted tasks, closing channels and dropping handlers.
    Shutdown = 5,
}

/// The position of one loop in its turn, shared with observers. It occupies a cache line of its
/// own, because it is written at every callback.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct Activity {
    /// The number of the turn, with the phase in the low bits. Phase zero means at rest.
    place: AtomicU64,
    /// Incremented at the start and at the end of each callback or task. Odd while one runs.
    step: AtomicU64,
    channel: AtomicU64,
    handler: AtomicCell<Option<TypeName>>,
    task: AtomicCell<Option<&'static Location<'static>>>,
}

/// The activity of a loop at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ActivitySnapshot {
    pub(crate) turn: u64,
    /// The current phase, or `None` if the loop sleeps in poll or is between turns.
    pub(crate) phase: Option<LoopPhase>,
    /// The step counter. A different value means a different callback or task.
    pub(crate) step: u64,
    pub(crate) doing: Occupation,
}

/// The code that a loop is running.
#[derive(Clone, Copy)]
pub(crate) enum Occupation {
    /// No callback or task.
    Nothing,
    /// A callback of a channel, with the type name of its handler.
    Channel(Key, Option<TypeName>),
    /// A task, with its origin.
    Task(Option<&'static Location<'static>>),
}

/// A guard that records the end of a task when dropped.
struct Leave<'a>(&'a Activity);

impl Drop for Leave<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.leave();
    }
}

impl Activity {
    // ---- the loop's thread ----------------------------------------------------------------------

    /// Starts a turn. Called when the poll has returned.
    #[inline]
    pub(crate) fn begin_turn(&self) {
        let turns = (self.place.load(Ordering::Relaxed) >> PHASE_BITS) + 1;
        self.place.store(turns << PHASE_BITS | LoopPhase::Io as u64, Ordering::Release);
    }

    /// Starts the next phase of the turn.
    #[inline]
    pub(crate) fn enter_phase(&self, phase: LoopPhase) {
        self.move_to(phase as u64);
    }

    /// Ends the turn, before the loop sleeps or its driver stops driving it.
    #[inline]
    pub(crate) fn rest(&self) {
        self.move_to(0);
    }

    #[inline]
    fn move_to(&self, phase: u64) {
        let turn = self.place.load(Ordering::Relaxed) >> PHASE_BITS << PHASE_BITS;
        self.place.store(turn | phase, Ordering::Release);
    }

    /// Records the start of a callback of this channel. Must be followed by
    /// [`leave`](Activity::leave).
    #[inline]
    pub(crate) fn enter_channel(&self, key: Key, handler: TypeName) {
        self.handler.store(Some(handler));
        // In the order of the fields, so that the key is loaded as one word.
        self.channel.store(u64::from(key.generation) << 32 | u64::from(key.index), Ordering::Release);
        self.advance();
    }

    /// Records the end of the callback or task, including one that panicked.
    #[inline]
    pub(crate) fn leave(&self) {
        self.advance();
    }

    /// Runs a task and records it as the current activity.
    #[inline]
    pub(crate) fn in_task<T>(&self, origin: &'static Location<'static>, task: impl FnOnce() -> T) -> T {
        self.task.store(Some(origin));
        self.channel.store(NO_CHANNEL, Ordering::Release);
        self.advance();
        // A guard, because a panic must not leave `step` odd.
        let _left = Leave(self);
        task()
    }

    #[inline]
    fn advance(&self) {
        let step = self.step.load(Ordering::Relaxed);
        self.step.store(step.wrapping_add(1), Ordering::Release);
    }

    // ---- any thread -----------------------------------------------------------------------------

    /// Returns the current activity of the loop.
    pub(crate) fn snapshot(&self) -> ActivitySnapshot {
        for _ in 0..READINGS {
            if let Some(sight) = self.try_look() {
                return sight;
            }
            std::hint::spin_loop();
        }
        let (turn, phase) = unpack(self.place.load(Ordering::Acquire));
        ActivitySnapshot { turn, phase, step: self.step.load(Ordering::Acquire), doing: Occupation::Nothing }
    }

    /// Returns `None` if the loop has moved on during the reading.
    fn try_look(&self) -> Option<ActivitySnapshot> {
        let place = self.place.load(Ordering::Acquire);
        let step = self.step.load(Ordering::Acquire);
        let doing = if step.is_multiple_of(2) { Occupation::Nothing } else { self.doing() };
        // The writer changes a name only after it has made `step` even. A reader of a later name
        // (that load acquires) therefore sees a later step here.
        let unmoved =
            self.step.load(Ordering::Acquire) == step && self.place.load(Ordering::Relaxed) == place;
        let (turn, phase) = unpack(place);
        unmoved.then_some(ActivitySnapshot { turn, phase, step, doing })
    }

    fn doing(&self) -> Occupation {
        match self.channel.load(Ordering::Acquire) {
            NO_CHANNEL => Occupation::Task(self.task.load()),
            key => {
                let key = Key { index: key as u32, generation: (key >> 32) as u32 };
                Occupation::Channel(key, self.handler.load())
            }
        }
    }
}

fn unpack(place: u64) -> (u64, Option<LoopPhase>) {
    let phase = match place & ((1 << PHASE_BITS) - 1) {
        1 => Some(LoopPhase::Io),
        2 => Some(LoopPhase::Tasks),
        3 => Some(LoopPhase::Timers),
        4 => Some(LoopPhase::Flush),
        5 => Some(LoopPhase::Shutdown),
        _ => None,
    };
    (place >> PHASE_BITS, phase)
}

impl fmt::Display for LoopPhase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LoopPhase::Io => "I/O",
            LoopPhase::Tasks => "tasks",
            LoopPhase::Timers => "timers",
            LoopPhase::Flush => "flush",
            LoopPhase::Shutdown => "shutdown",
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
    fn each_turn_goes_through_its_phases_and_rests() {
        let loop_ = Activity::default();
        assert_eq!((loop_.snapshot().turn, loop_.snapshot().phase), (0, None));
        for turn in 1..4 {
            loop_.begin_turn();
            assert_eq!((loop_.snapshot().turn, loop_.snapshot().phase), (turn, Some(LoopPhase::Io)));
            for phase in [LoopPhase::Tasks, LoopPhase::Timers, LoopPhase::Flush, LoopPhase::Shutdown] {
                loop_.enter_phase(phase);
                assert_eq!((loop_.snapshot().turn, loop_.snapshot().phase), (turn, Some(phase)));
            }
            loop_.rest();
            assert_eq!((loop_.snapshot().turn, loop_.snapshot().phase), (turn, None));
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "`AtomicCell` keeps pointers as integers, which Miri does not let be called")]
    fn a_finished_callback_or_task_is_not_reported() {
        let loop_ = Activity::default();
        loop_.begin_turn();
        loop_.enter_channel(key(7), type_name::<u8>);
        let Occupation::Channel(seen, Some(name)) = loop_.snapshot().doing else {
            panic!("{:?}", loop_.snapshot())
        };
        assert_eq!((seen, name()), (key(7), "u8"));
        loop_.leave();
        assert!(matches!(loop_.snapshot().doing, Occupation::Nothing));

        let here = Location::caller();
        loop_.in_task(here, || {
            let Occupation::Task(Some(origin)) = loop_.snapshot().doing else {
                panic!("{:?}", loop_.snapshot())
            };
            assert_eq!(origin, here);
        });
        assert!(matches!(loop_.snapshot().doing, Occupation::Nothing));
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
            if let Occupation::Channel(key, name) = loop_.snapshot().doing {
                assert_eq!(name.map(|name| name()), Some(NAMES[key.index as usize]()));
                seen.fetch_add(1, Ordering::Relaxed);
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
    }
}
