//! An event loop without a thread of its own: its owner runs it, turn by turn.
//!
//! Always holds: it stays on the thread that made it, and runs only within [`ManualEventLoop::run_once`] and its
//! like, so callbacks run there and nowhere else; however it ends, dropped or shut down, its channels are told, what
//! waits is refused or run, and its termination completes. It owns the loop ([`Turn`]); handles own nothing of it.

use super::{
    EventLoop, LoopConfig, end, local, shared::LifeState, shared::LoopMail, shared::LoopShared, task::Task,
    turn::Turn, watchdog::WatchedLoop,
};
use crate::{
    Completion, Result,
    clock::nanos,
    error::caught,
    event_loop::ShutdownRequest,
    group::EventLoopGroup,
    sync::loop_id::{self, Owned},
};
use std::{
    fmt,
    future::Future,
    panic::Location,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
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
/// [`Error::WouldDeadlock`](crate::Error::WouldDeadlock), as it is in a callback; use
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
    /// None once it has ended.
    pub(super) turn: Option<Turn>,
    watch: Option<WatchedLoop>,
    event_loop: EventLoop,
    group: EventLoopGroup,
    _owned: Owned,
}

impl ManualEventLoop {
    pub(crate) fn new(
        config: LoopConfig,
        group: impl FnOnce(EventLoop) -> EventLoopGroup,
    ) -> Result<ManualEventLoop> {
        let watchdog_thread = config.watchdog_thread.clone();
        let (shared, make) = EventLoop::prepare(config)?;
        shared.advance(LifeState::Started);
        let watch = watchdog_thread
            .map(|watchdog_thread| watchdog_thread.watch(&shared.name, shared.id, shared.activity.clone()));
        let owned = loop_id::own(shared.id);
        let event_loop = EventLoop { shared: shared.clone() };
        let group = group(event_loop.clone());
        Ok(ManualEventLoop { turn: Some(make(shared)), watch, event_loop, group, _owned: owned })
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
        let Some(turn) = &mut self.turn else { return 0 };
        let _entered =
            (loop_id::enter(turn.shared.id), local::enter(turn.shared.id, turn.io.services.queue.clone()));
        let left = turn.io.services.attention.len() + turn.io.inactive.len();
        let before = things_run(&turn.shared);
        turn.sleep.at_most = max_wait.into().map(nanos);
        let mut last = false;
        let cause = caught(|| last = turn.turn());
        let ran = things_run(&turn.shared).wrapping_sub(before);
        if (last || cause.is_some())
            && let Some(turn) = self.turn.take()
        {
            end(turn, cause, self.watch.take());
        }
        left.saturating_add(usize::try_from(ran).unwrap_or(usize::MAX))
    }

    /// Runs the loop until it has been shut down.
    ///
    /// # Errors
    /// [`Error::Panicked`](crate::Error::Panicked) if the loop itself has failed.
    pub fn run(&mut self) -> Result {
        while self.turn.is_some() {
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
        let waker = Waker::from(Arc::new(WakeLoop(self.event_loop.shared.clone())));
        let mut context = Context::from_waker(&waker);
        loop {
            if let Poll::Ready(result) = completion.as_mut().poll(&mut context) {
                return result;
            }
            if self.turn.is_none() {
                let rest =
                    std::mem::replace(&mut *completion, Completion::ready(Err(crate::Error::ShutDown)));
                return rest.wait();
            }
            self.run_once(None);
        }
    }

    /// Whether the loop has ended: it runs no more turns.
    pub fn is_terminated(&self) -> bool {
        self.turn.is_none()
    }
}

/// What a loop has counted that it ran.
fn things_run(shared: &LoopShared) -> u64 {
    let metrics = &shared.metrics;
    let counters = [&metrics.ready, &metrics.tasks_run, &metrics.timers_fired, &metrics.wheel_fired];
    counters.into_iter().fold(0, |sum, counter| sum.wrapping_add(counter.read()))
}

/// Ends the sleep of the loop's turn, so that its owner looks at a completion again.
struct WakeLoop(Arc<LoopShared>);

impl Wake for WakeLoop {
    fn wake(self: Arc<Self>) {
        // On the loop its owner looks after the turn anyway. From elsewhere a bare wake could come just before the
        // loop falls asleep, and be lost: only what is in the queue is not.
        if !self.0.is_in_event_loop() {
            let nothing = Task::new(|| {}, Location::caller());
            // One that has ended is not asleep.
            let _ = self.0.submit_always(LoopMail::Task(nothing));
        }
    }
}

impl Drop for ManualEventLoop {
    fn drop(&mut self) {
        let Some(mut turn) = self.turn.take() else { return };
        let _entered =
            (loop_id::enter(turn.shared.id), local::enter(turn.shared.id, turn.io.services.queue.clone()));
        turn.shared.shut_down(ShutdownRequest { quiet: 0, timeout: 0, window: 0 });
        let cause = caught(|| turn.end_now());
        end(turn, cause, self.watch.take());
    }
}

impl fmt::Debug for ManualEventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualEventLoop").field("event_loop", &self.event_loop).finish()
    }
}
