//! A stand-alone timer on a manual clock, and ways to wait for its thread.

use super::{
    journal::Journal,
    wait::{HOUR, receive},
};
use netwheel::{
    Result,
    testing::ManualClock,
    timer::{HashedWheelTimer, Timeout},
};
use std::{
    sync::mpsc::{Sender, channel},
    time::Duration,
};

/// Returns a timer with the given tick, and its clock.
pub(crate) fn manual(tick: Duration) -> (HashedWheelTimer, ManualClock) {
    with_slots(tick, 512)
}

pub(crate) fn with_slots(tick: Duration, slots: usize) -> (HashedWheelTimer, ManualClock) {
    let clock = ManualClock::new();
    let timer = HashedWheelTimer::builder().tick(tick).slots(slots).clock(clock.clone()).build().unwrap();
    (timer, clock)
}

/// Sends a value from a task.
pub(crate) fn send<T>(to: &Sender<T>, what: T) -> Result {
    to.send(what).map_err(|_| "the receiver is gone".into())
}

/// A no-op task.
pub(crate) fn nothing(_: &Timeout) -> Result {
    Ok(())
}

/// Adds a timeout that must never run.
#[track_caller]
pub(crate) fn far(timer: &HashedWheelTimer) -> Timeout {
    timer.new_timeout(HOUR, |_| panic!("a timeout of an hour ran")).unwrap()
}

/// Advances the clock and waits until every timeout that was added before, and is now due, has run.
///
/// The timer runs timeouts in the order of ticks, and those of one tick in the order of insertion.
/// A timeout added last, in the last tick reached, therefore marks the end. If the clock reaches no
/// further tick, nothing becomes due.
#[track_caller]
pub(crate) fn advance(timer: &HashedWheelTimer, clock: &ManualClock, by: Duration) {
    let (tick, before) = (timer.tick().as_nanos(), clock.elapsed().as_nanos());
    let reached = (before + by.as_nanos()) / tick;
    let (sender, receiver) = channel();
    if reached > before / tick {
        let delay = Duration::from_nanos(u64::try_from(reached * tick - before).unwrap());
        timer.new_timeout(delay, move |_| send(&sender, ())).unwrap();
        clock.advance(by);
        receive(&receiver);
    } else {
        clock.advance(by);
        nudge(timer);
        nudge(timer);
    }
}

/// Makes the timer's thread process a cancellation, so that it had a chance to run something by
/// mistake.
#[track_caller]
pub(crate) fn nudge(timer: &HashedWheelTimer) {
    let (sender, receiver) = channel();
    let hook = move |_: &Timeout| sender.send(()).unwrap();
    assert!(timer.new_timeout_with_hook(HOUR, nothing, hook).unwrap().cancel());
    receive(&receiver);
}

impl<T: Send + 'static> Journal<T> {
    /// Returns a task that appends `entry`.
    pub(crate) fn note(&self, entry: T) -> impl FnOnce(&Timeout) -> Result + Send + 'static {
        let journal = self.clone();
        move |_| {
            journal.push(entry);
            Ok(())
        }
    }
}

impl Journal<u64> {
    /// Returns a task that appends the time in milliseconds.
    pub(crate) fn stamp(&self, clock: &ManualClock) -> impl FnOnce(&Timeout) -> Result + Send + 'static {
        let (journal, clock) = (self.clone(), clock.clone());
        move |_| {
            journal.push(clock.elapsed().as_millis() as u64);
            Ok(())
        }
    }
}

/// Blocks the timer's thread in a task until it is dropped or `let_go` is called.
pub(crate) struct Held(Option<Sender<()>>);

impl Held {
    pub(crate) fn let_go(self) {
        drop(self);
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.take();
    }
}

/// Blocks the timer's thread in a task that is due in the next tick, and advances the clock to that
/// tick.
#[track_caller]
pub(crate) fn hold(timer: &HashedWheelTimer, clock: &ManualClock) -> Held {
    let (entered, inside) = channel();
    let (holder, held) = channel::<()>();
    let task = move |_: &Timeout| {
        send(&entered, ())?;
        let _ = held.recv();
        Ok(())
    };
    timer.new_timeout(Duration::ZERO, task).unwrap();
    clock.advance(timer.tick());
    receive(&inside);
    Held(Some(holder))
}
