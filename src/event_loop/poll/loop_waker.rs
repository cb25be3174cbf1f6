//! Ends a loop's sleep from another thread.
//!
//! Invariants: the waker belongs to the poll in use, so no wake goes to a closed poll. A resting
//! thread is unparked instead, because it is not in its poll. Any thread calls [`LoopWaker::wake`].
//! The loop's thread calls the other functions. Owns the waker, and no other part of the poll.

use crate::machine::Mutex;
#[cfg(feature = "simulation")]
use crate::machine::simulated::SimulatedWaker;
use mio::Waker;
use std::{
    io::{self, ErrorKind},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// Attempts to write to the waker before a wake fails.
const WAKE_ATTEMPTS: usize = 16;

/// The waker of one poll.
pub(crate) enum PollWaker {
    System(Waker),
    #[cfg(feature = "simulation")]
    Simulated(SimulatedWaker),
}

impl PollWaker {
    pub(crate) fn wake(&self) -> io::Result<()> {
        match self {
            PollWaker::System(waker) => waker.wake(),
            #[cfg(feature = "simulation")]
            PollWaker::Simulated(waker) => waker.wake(),
        }
    }
}

pub(in crate::event_loop) struct LoopWaker(Mutex<Target>);

/// The target of a wake.
struct Target {
    waker: PollWaker,
    /// The loop's thread while it is parked.
    parked: Option<Thread>,
}

impl LoopWaker {
    pub(in crate::event_loop) fn new(waker: PollWaker) -> Self {
        LoopWaker(Mutex::new(Target { waker, parked: None }))
    }

    /// Ends the sleep. Retries a few times: a signal may interrupt a write, and other errors may be
    /// transient too.
    pub(in crate::event_loop) fn wake(&self) -> io::Result<()> {
        // If the waker were swapped in mid-write, the wake would be lost with the dropped poll. The
        // lock prevents that.
        let mut target = self.0.lock();
        if let Some(thread) = target.parked.take() {
            thread.unpark();
            return Ok(());
        }
        let mut attempts = 1;
        loop {
            match target.waker.wake() {
                Err(e) if attempts == WAKE_ATTEMPTS => return Err(e),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(_) => thread::yield_now(),
                Ok(()) => return Ok(()),
            }
            attempts += 1;
        }
    }

    /// Directs later wakes to another poll.
    pub(in crate::event_loop) fn swap(&self, waker: PollWaker) {
        self.0.lock().waker = waker;
    }

    /// Parks the calling thread, which is the loop's, until [`wake`](LoopWaker::wake) is called,
    /// for at most `limit`.
    ///
    /// `is_asleep` returns whether the published sleep is still in effect. A submitter ends it
    /// before it calls `wake`, so a wake that came before this call is noticed.
    #[allow(clippy::disallowed_methods, reason = "the limit is the real time of the owner of a manual loop")]
    pub(in crate::event_loop) fn park(&self, limit: Option<Duration>, is_asleep: impl Fn() -> bool) {
        self.0.lock().parked = Some(thread::current());
        let begun = Instant::now();
        while is_asleep() {
            match limit {
                None => thread::park(),
                Some(limit) => match limit.checked_sub(begun.elapsed()) {
                    Some(left) if !left.is_zero() => thread::park_timeout(left),
                    _ => break,
                },
            }
        }
        self.0.lock().parked = None;
    }
}
