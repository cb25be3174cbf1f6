//! An event loop without its own thread: its owner runs it, turn by turn.
//!
//! The loop is a `Turn` that its owner holds. It cannot leave the owner's thread. That thread is
//! inside the loop only within `run_once`. Outside of `run_once` it counts as the loop only when it
//! is about to wait (`loop_id::is_own`), because nothing else could complete the operation that it
//! waits for. The limit that `run_once` sets for a sleep counts as a deadline.
//!
//! Invariants: callbacks run within [`ManualEventLoop::run_once`] and the methods that call it, and
//! nowhere else. However the loop ends, its channels are notified, its waiting mail is run or
//! refused, and its termination completes. Owns the loop ([`DrivenLoop`]). Handles own no part of
//! it.

use super::event_loop_group::EventLoopGroup;
use crate::{
    clock::nanos,
    error::{Error, Result},
    event_loop::{DrivenLoop, EventLoop, LoopConfig},
    sync::Completion,
};
use std::{
    fmt,
    future::Future,
    pin::pin,
    task::{Context, Poll},
    time::Duration,
};

/// An event loop that its owner runs, one turn at a time. Use it for step-by-step tests and for
/// programs that already have a main loop.
///
/// Created by
/// [`EventLoopGroupBuilder::build_manual`](crate::group::EventLoopGroupBuilder::build_manual). It
/// is not `Send`, so it stays on the thread that created it. Its handles
/// ([`group`](ManualEventLoop::group), [`event_loop`](ManualEventLoop::event_loop)) are ordinary
/// ones. Bootstraps work with them, and other threads may submit tasks and timers. These wake the
/// loop if it sleeps in a turn, and wait for the next turn otherwise.
///
/// Nothing happens between two turns. So waiting for a completion of this loop on its own thread
/// fails with [`Error::WouldDeadlock`], as it does in a callback. Use
/// [`run_until`](ManualEventLoop::run_until) instead.
///
/// Dropping it shuts the loop down with a quiet period and a timeout of zero: handlers receive
/// `shutdown`, bytes that the kernel accepts without blocking are sent, and handlers receive
/// `inactive`.
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

    /// Returns a handle to the loop.
    pub fn event_loop(&self) -> &EventLoop {
        &self.event_loop
    }

    /// Returns a group that consists of this loop, for bootstraps.
    pub fn group(&self) -> &EventLoopGroup {
        &self.group
    }

    /// Runs one turn. Returns the number of items that it handled: ready sources, tasks and other
    /// mail, timers, idle entries, and channels with work left over from an earlier turn.
    /// Broadcasts that are left over count as one item.
    ///
    /// If nothing is waiting, the turn first sleeps until something happens, but no longer than
    /// `max_wait`. `Duration::ZERO` does not sleep, and `None` sleeps without a limit. The limit is
    /// real time, also with a [`ManualClock`](crate::testing::ManualClock). With such a clock, a
    /// sleep without a limit ends only when another thread wakes the loop.
    ///
    /// Returns 0 if the time has passed, if the wakeup was spurious, or immediately if the loop has
    /// ended. A loop whose poll fails pauses before it polls again, by its own clock. Until then, a
    /// turn runs nothing unless there is work.
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

    /// Runs the loop until `completion` is done, on whichever thread it completes.
    ///
    /// ```no_run
    /// # use netwheel::prelude::*;
    /// # fn f(by_hand: &mut netwheel::group::ManualEventLoop) -> Result {
    /// let options = netwheel::shutdown::ShutdownOptions::new().quiet_period(std::time::Duration::ZERO);
    /// let end = by_hand.event_loop().shutdown(options);
    /// by_hand.run_until(end)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The error of the operation if it fails. If the loop ends first, this waits for operations
    /// that other threads have to complete.
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

    /// Returns whether the loop has ended. It does not run further turns then.
    pub fn is_terminated(&self) -> bool {
        self.driven.has_ended()
    }
}

impl fmt::Debug for ManualEventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualEventLoop").field("event_loop", &self.event_loop).finish()
    }
}
