//! An event loop without a thread of its own: its owner runs it, turn by turn.
//!
//! The loop is a `Turn` that its owner holds, on a thread which it cannot leave. That thread is
//! inside the loop only within `run_once`. Outside of it the thread counts as the loop only where
//! it is about to wait (`loop_id::is_own`), because nothing else could complete what it waits for.
//! The limit that `run_once` sets to a sleep counts as a deadline.
//!
//! Invariants: callbacks run within [`ManualEventLoop::run_once`] and the methods that call it, and
//! nowhere else. However the loop ends, its channels are notified, its waiting mail is run or
//! refused, and its termination completes. Owns the loop ([`DrivenLoop`]); handles own no part of
//! it.

use super::EventLoopGroup;
use crate::{
    Completion, Error, Result,
    clock::nanos,
    event_loop::{DrivenLoop, EventLoop, LoopConfig},
};
use std::{
    fmt,
    future::Future,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

/// An event loop that its owner runs, one turn at a time: for tests that go step by step, and for programs that have
/// a main loop already.
///
/// Made by [`EventLoopGroupBuilder::build_manual`](crate::EventLoopGroupBuilder::build_manual). It cannot leave the
/// thread that made it; to run it on another one does not compile. Its handles ([`group`](ManualEventLoop::group),
/// [`event_loop`](ManualEventLoop::event_loop)) are those of every loop: bootstraps work with them, and other threads
/// may give it tasks and timers, which wake it if it sleeps in a turn and wait for the next turn otherwise.
///
/// Nothing happens between two turns. So to wait for a completion of this loop on its own thread is
/// [`Error::WouldDeadlock`], as it is in a callback; use
/// [`run_until`](ManualEventLoop::run_until).
///
/// Dropping it ends it as a shutdown without a quiet period and without patience does: handlers hear `shutdown`, what
/// the kernel takes at once is sent, then they hear `inactive`.
///
/// ```
/// use netwheel::{EventLoopGroup, testing::ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let mut by_hand = EventLoopGroup::builder().clock(clock.clone()).build_manual()?;
/// let tea = by_hand.event_loop().schedule(Duration::from_secs(180), || "ready")?;
///
/// by_hand.run_once(Duration::ZERO);
/// clock.advance(Duration::from_secs(179));
/// assert_eq!(by_hand.run_once(Duration::ZERO), 0);
/// clock.advance(Duration::from_secs(1));
/// assert_eq!(by_hand.run_once(Duration::ZERO), 1);
/// assert_eq!(by_hand.run_until(tea.completion())?, "ready");
///
/// // Until nothing is left to do:
/// while by_hand.run_once(Duration::ZERO) > 0 {}
/// # Ok::<(), netwheel::Error>(())
/// ```
pub struct ManualEventLoop {
    driven: DrivenLoop,
    event_loop: EventLoop,
    group: EventLoopGroup,
}

impl ManualEventLoop {
    pub(super) fn new(
        config: LoopConfig,
        group: impl FnOnce(EventLoop) -> EventLoopGroup,
    ) -> Result<ManualEventLoop> {
        let driven = DrivenLoop::new(config)?;
        let event_loop = driven.event_loop();
        let group = group(event_loop.clone());
        Ok(ManualEventLoop { driven, event_loop, group })
    }

    /// Returns the loop, for tests of its turns.
    #[cfg(all(test, not(netwheel_loom)))]
    pub(crate) fn driven(&mut self) -> &mut DrivenLoop {
        &mut self.driven
    }

    /// A handle to the loop.
    pub fn event_loop(&self) -> &EventLoop {
        &self.event_loop
    }

    /// A group that consists of this loop, for bootstraps.
    pub fn group(&self) -> &EventLoopGroup {
        &self.group
    }

    /// Runs one turn, and says how many things ran in it: sources that were ready, tasks and other mail, timers, idle
    /// entries, and channels that an earlier turn had left something of.
    ///
    /// If nothing waits, it sleeps first, until something happens but no longer than `max_wait`: not at all for zero,
    /// without a limit for `None`. The limit is real time, also on a [`ManualClock`](crate::testing::ManualClock);
    /// on such a clock a sleep without a limit ends only when another thread wakes the loop. A loop
    /// whose poll fails rests before it polls again, by its clock: until then a turn runs nothing unless
    /// there is work. Zero is returned if the
    /// time was up, if the sleep was for nothing, and at once if the loop has ended.
    pub fn run_once(&mut self, max_wait: impl Into<Option<Duration>>) -> usize {
        self.driven.run_turn(max_wait.into().map(nanos))
    }

    /// Runs the loop until it has been shut down.
    ///
    /// # Errors
    /// [`Error::Panicked`] if the loop itself has failed.
    pub fn run(&mut self) -> Result {
        while !self.driven.has_ended() {
            self.run_once(None);
        }
        self.event_loop.terminated().wait()
    }

    /// Runs the loop until `completion` is done, whoever completes it.
    ///
    /// ```no_run
    /// # use netwheel::prelude::*;
    /// # fn f(by_hand: &mut netwheel::ManualEventLoop) -> Result {
    /// let end = by_hand.event_loop().shutdown_gracefully(Default::default(), std::time::Duration::from_secs(5));
    /// by_hand.run_until(end)
    /// # }
    /// ```
    ///
    /// # Errors
    /// What the operation failed with. Should the loop end first, it is waited for what others have to complete.
    pub fn run_until<T>(&mut self, completion: Completion<T>) -> Result<T> {
        let mut completion = pin!(completion);
        let waker = self.driven.waker();
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = completion.as_mut().poll(&mut context) {
                return result;
            }
            if self.driven.has_ended() {
                let rest = std::mem::replace(&mut *completion, Completion::ready(Err(Error::ShutDown)));
                return rest.wait();
            }
            self.run_once(None);
        }
    }

    /// Whether the loop has ended: it runs no more turns.
    pub fn is_terminated(&self) -> bool {
        self.driven.has_ended()
    }
}

impl fmt::Debug for ManualEventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualEventLoop").field("event_loop", &self.event_loop).finish()
    }
}
