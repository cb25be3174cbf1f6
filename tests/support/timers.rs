//! A stand-alone timer on a clock that the test moves, and ways to wait for its thread.

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

/// A timer with this tick, and its clock.
pub(crate) fn manual(tick: Duration) -> (HashedWheelTimer, ManualClock) {
    with_slots(tick, 512)
}

pub(crate) fn with_slots(tick: Duration, slots: usize) -> (HashedWheelTimer, ManualClock) {
    let clock = ManualClock::new();
    let timer = HashedWheelTimer::builder().tick(tick).slots(slots).clock(clock.clone()).build().unwrap();
    (timer, clock)
}

/// What a task has to tell.
pub(crate) fn send<T>(to: &Sender<T>, what: T) -> Result {
    to.send(what).map_err(|_| "nobody listens".into())
}

/// A task that does nothing.
pub(crate) fn nothing(_: &Timeout) -> Result {
    Ok(())
}

/// Adds a timeout that is never meant to run.
#[track_caller]
pub(crate) fn far(timer: &HashedWheelTimer) -> Timeout {
    timer.new_timeout(HOUR, |_| panic!("nobody waits for an hour")).unwrap()
}

/// Moves the clock on, and waits until all has run that was added before and is due by then.
///
/// The timer runs what is due in the order of ticks, and of one tick in the order in which it was added: so a last
/// timeout of the last tick that is reached tells. Where no further tick is reached, nothing can come due.
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

/// Has the thread do something, so that it could do what it should not.
#[track_caller]
pub(crate) fn nudge(timer: &HashedWheelTimer) {
    let (sender, receiver) = channel();
    let hook = move |_: &Timeout| sender.send(()).unwrap();
    assert!(timer.new_timeout_with_hook(HOUR, nothing, hook).unwrap().cancel());
    receive(&receiver);
}

impl<T: Send + 'static> Journal<T> {
    /// A task that writes this down.
    pub(crate) fn note(&self, entry: T) -> impl FnOnce(&Timeout) -> Result + Send + 'static {
        let journal = self.clone();
        move |_| {
            journal.push(entry);
            Ok(())
        }
    }
}

impl Journal<u64> {
    /// A task that writes down the time, in milliseconds.
    pub(crate) fn stamp(&self, clock: &ManualClock) -> impl FnOnce(&Timeout) -> Result + Send + 'static {
        let (journal, clock) = (self.clone(), clock.clone());
        move |_| {
            journal.push(clock.elapsed().as_millis() as u64);
            Ok(())
        }
    }
}

/// The timer's thread, held up in a task until this is dropped or let go.
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

/// Holds the thread up in a task that is due in the next tick, to which the clock is moved.
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
