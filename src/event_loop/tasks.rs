//! Tasks of a loop that wait for their time, and the handle to cancel them by.
//!
//! Always holds: a body runs on the loop's thread, never twice at once, never after a successful cancel; at
//! cancel it is dropped at once, whatever thread cancels; its place in the heap is given back by the loop later.
//! A periodic task is one entry that is put back, with its number, after each run.

use super::{LoopMail, shared::LoopShared};
use crate::{
    Error, Result,
    channel::Scheduled,
    clock::TimeSource,
    error::{drop_guarded, panic_message},
    sync::{Completer, Completion},
    timer::QueueKey,
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// What a fixed-rate task does about runs whose time passed while the loop was busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MissedRuns {
    /// They are left out; the next run is at the next multiple of the period (the default).
    #[default]
    Skip,
    /// They are made up for one after the other, as fast as the loop gets to it (as Netty does).
    CatchUp,
}

/// A task that was given to an [`EventLoop`](super::EventLoop) to run later; dropping this lets it run.
pub struct ScheduledTask<T = ()> {
    entry: Arc<Entry<T>>,
    shared: Arc<LoopShared>,
    completion: Completion<T>,
}

/// When a periodic task runs next.
#[derive(Debug, Clone, Copy)]
pub(super) enum Repeat {
    Rate(u64, MissedRuns),
    Delay(u64),
}

pub(super) struct Entry<T> {
    state: Mutex<State<T>>,
    /// Its place in the loop's heap; set and read by the loop only.
    place: Mutex<Option<QueueKey>>,
    /// Where the task was scheduled, for reports.
    origin: &'static Location<'static>,
}

enum State<T> {
    Waiting(Body<T>, Completer<T>),
    /// The body is being run by the loop.
    Running,
    /// Cancelled while it ran: not to be run again.
    CancelledRunning,
    Ended,
}

pub(super) enum Body<T> {
    Once(Box<dyn FnOnce() -> T + Send>),
    /// The body of a periodic task, which has no value: its completion can only fail, and `T` is `()`.
    Again {
        body: Box<dyn FnMut() -> Result + Send>,
        repeat: Repeat,
    },
}

impl<T: Send + 'static> Entry<T> {
    #[track_caller]
    pub(super) fn new(body: Body<T>, completer: Completer<T>) -> Self {
        Entry {
            state: Mutex::new(State::Waiting(body, completer)),
            place: Mutex::new(None),
            origin: Location::caller(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the task before its (next) run. What is dropped and completed runs after the lock is released.
    fn cancel(&self, why: Error) -> bool {
        let mut state = self.lock();
        match std::mem::replace(&mut *state, State::Ended) {
            State::Waiting(body, completer) => {
                drop(state);
                drop_guarded(body);
                completer.complete(Err(why));
                true
            }
            State::Running => {
                *state = State::CancelledRunning;
                true
            }
            other => {
                *state = other;
                false
            }
        }
    }
}

impl<T: Send + 'static> Scheduled for Entry<T> {
    fn run(&self, deadline: u64, time: &TimeSource) -> Option<u64> {
        let (body, completer) = {
            let mut state = self.lock();
            match std::mem::replace(&mut *state, State::Ended) {
                // A one-shot that has started can no longer be cancelled: its state is `Ended` from here on.
                State::Waiting(body, completer) => {
                    if matches!(body, Body::Again { .. }) {
                        *state = State::Running;
                    }
                    (body, completer)
                }
                other => {
                    *state = other;
                    return None;
                }
            }
        };
        match body {
            Body::Once(body) => {
                match catch_unwind(AssertUnwindSafe(body)) {
                    Ok(value) => completer.complete(Ok(value)),
                    Err(panic) => completer.complete(Err(self.panicked(&*panic))),
                }
                None
            }
            Body::Again { mut body, repeat } => {
                let result = match catch_unwind(AssertUnwindSafe(&mut body)) {
                    Ok(result) => result,
                    Err(panic) => Err(self.panicked(&*panic)),
                };
                let mut state = self.lock();
                if result.is_ok() && matches!(*state, State::Running) {
                    *state = State::Waiting(Body::Again { body, repeat }, completer);
                    return Some(repeat.next(deadline, time.now()));
                }
                *state = State::Ended;
                drop(state);
                drop_guarded(body);
                completer.complete(Err(result.err().unwrap_or(Error::Cancelled)));
                None
            }
        }
    }

    fn abandon(&self) {
        self.cancel(Error::ShutDown);
    }

    fn origin(&self) -> &'static Location<'static> {
        self.origin
    }

    fn is_waiting(&self) -> bool {
        matches!(*self.lock(), State::Waiting(..))
    }

    fn set_place(&self, place: Option<QueueKey>) {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner) = place;
    }

    fn place(&self) -> Option<QueueKey> {
        *self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entry<T> {
    #[cold]
    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> Error {
        let message = panic_message(panic);
        log::error!("the task scheduled at {} panicked: {message}", self.origin);
        Error::Panicked(message)
    }
}

impl Repeat {
    fn next(self, deadline: u64, now: u64) -> u64 {
        match self {
            Repeat::Delay(delay) => now.saturating_add(delay),
            Repeat::Rate(period, MissedRuns::CatchUp) => deadline.saturating_add(period),
            Repeat::Rate(period, MissedRuns::Skip) => {
                let next = deadline.saturating_add(period);
                if next > now {
                    return next;
                }
                let missed = (now - next) / period + 1;
                next.saturating_add(missed.saturating_mul(period))
            }
        }
    }
}

impl<T: Send + 'static> ScheduledTask<T> {
    pub(super) fn new(entry: Arc<Entry<T>>, shared: Arc<LoopShared>, completion: Completion<T>) -> Self {
        ScheduledTask { entry, shared, completion }
    }

    /// Cancels the task; callable from any thread.
    ///
    /// True if that ended it: a one-shot will not run, a periodic task will not run again. Its closure is dropped
    /// before this returns (after the running run, if there is one). False if it has run, is running for its only
    /// time, or was cancelled before.
    pub fn cancel(&self) -> bool {
        let cancelled = self.entry.cancel(Error::Cancelled);
        if cancelled {
            // Takes the empty entry out of the heap; nothing has to wake up for that.
            self.shared.submit_quietly(LoopMail::Unschedule(self.entry.clone()));
        }
        cancelled
    }

    /// Whether it has ended: run, failed or cancelled.
    pub fn is_done(&self) -> bool {
        self.completion.is_done()
    }

    /// What comes of it: the value of a one-shot; for a periodic task, the error that ended it. A cancelled one
    /// fails with [`Error::Cancelled`], one that shutdown has ended with [`Error::ShutDown`].
    pub fn completion(self) -> Completion<T> {
        self.completion
    }
}

impl<T> fmt::Debug for ScheduledTask<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScheduledTask").field("origin", &format_args!("{}", self.entry.origin)).finish()
    }
}
