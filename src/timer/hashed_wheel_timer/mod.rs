//! A timer with its own thread, for programs that have no event loop.
//!
//! `builder` holds the settings, `timeout` is one timeout, `shared` is what the handles share with
//! the thread, `worker` is the thread. The thread alone owns the [`Wheel`](super::Wheel). Additions
//! reach it through one [`Mailbox`](crate::sync::Mailbox), cancels through another, and a
//! [`WakeUp`](crate::sync::WakeUp) says whether it has to be woken.
//!
//! - A timeout is one `Arc`: state, task and hook. Adding puts it into the first mailbox; the
//!   thread moves at most 100,000 per turn into the wheel. The state goes from *queued* to *armed*,
//!   and from either to *expired* or *cancelled*, by one compare-and-swap. Whoever makes that step
//!   owns the task.
//! - A cancel drops the task at once. If the timeout was *armed*, it goes into the second mailbox,
//!   and the thread removes it from the wheel when it next runs. If it was *queued*, the thread
//!   finds out on the way. A cancel wakes the thread only when 16,384 wait, or for a hook, which
//!   runs on the thread.
//! - The thread parks until the wheel's next expiry, which it publishes in `WakeUp`. Adding rounds
//!   the deadline up to a tick and wakes the thread only if that is earlier. On a manual clock the
//!   thread sleeps until it is woken.
//! - A turn moves, reads the clock, runs at most 1024 timeouts, and sleeps if none ran. A tick may
//!   begin between the move and the reading while an addition for it is on its way. The wheel would
//!   delay that timeout by a tick, so it is kept beside the wheel (`overdue`) and runs after what
//!   was due by then.
//! - Stop closes the first mailbox, wakes the thread and joins it. The thread cancels what is in
//!   the wheel and the mailbox and returns it. An addition before the close is in that result; one
//!   after it is refused. Dropping the last handle does the same without joining.
//!
//! # Invariants
//!
//! - A timeout ends in one of two ways, decided by one atomic step on its state: it expires, on the
//!   thread, or it is cancelled, by its holder or by the timer's stop.
//! - While nothing is due the thread sleeps until the next occupied tick and makes no system call.
//! - No lock is held while the program's code runs: tasks, hooks, executors, and what tasks
//!   capture.
//!
//! Everything except `worker` may be called by any thread, including the timer's own.

mod adding;
mod builder;
mod live;
mod shared;
mod timeout;
mod worker;

pub use builder::HashedWheelTimerBuilder;
pub use timeout::Timeout;

use crate::{
    Error, Result,
    error::{SendError, panic_message},
};
use shared::Handle;
use std::{fmt, panic::Location, sync::Arc, time::Duration};
use timeout::NoHook;
use worker::Worker;

/// Runs tasks after a delay, on a thread of its own; for programs that only want the timer.
///
/// Delays are rounded up to a tick: a task never runs early, and late by at most one tick plus what the thread is kept
/// busy with. It is made for very many timeouts, most of which are cancelled. Programs that have an
/// [`EventLoop`](crate::EventLoop) do not need it: loops schedule by themselves, without another thread.
///
/// Clones are handles of one timer. When the last of them is dropped the timer stops as if by [`stop`](Self::stop),
/// but nobody waits for it. A task that has captured a handle keeps the timer alive as long as it is pending; for a
/// task that adds the next timeout, [`Timeout::timer`] does not.
///
/// # What it costs
///
/// - To add is one allocation (80 bytes and what the task has captured; the wheel takes another 40), one
///   lock held for a few instructions, and a system call only if the thread sleeps beyond the new timeout. To
///   cancel is one atomic step and, if it had reached the wheel, such a lock. Neither depends on how many are
///   pending.
/// - A cancelled task is dropped at once, on the cancelling thread. What is left of the timeout goes when the
///   thread next runs; it is woken for that only when 16,384 are left. While a task holds it up, they add up.
/// - Asleep, the thread makes no system call until the next occupied tick. With no timeout it sleeps for good.
///
/// # Tasks
///
/// Tasks run on the timer's thread, one after another, in the order of their ticks and within a tick in the order
/// in which they were added. One that takes long makes all others late; give such ones to an
/// [`executor`](HashedWheelTimerBuilder::executor). One that fails or panics is logged, with the place where it was
/// given, and costs nothing but itself. When the thread was held up over many ticks it runs what it has missed,
/// tick by tick.
///
/// ```
/// use netwheel::{Error, timer::HashedWheelTimer};
/// use std::{sync::mpsc, time::Duration};
///
/// let timer = HashedWheelTimer::builder().tick(Duration::from_millis(10)).build()?;
/// let (sender, receiver) = mpsc::channel();
/// timer.new_timeout(Duration::from_millis(25), move |_| {
///     sender.send("tea is ready").map_err(Error::other)
/// })?;
/// let minute = timer.new_timeout(Duration::from_secs(60), |_| Ok(()))?;
///
/// assert_eq!(receiver.recv().unwrap(), "tea is ready");
/// assert_eq!(timer.pending_timeouts(), 1);
/// assert_eq!(timer.stop()?, [minute]);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct HashedWheelTimer {
    handle: Arc<Handle<Timeout>>,
}

impl HashedWheelTimer {
    /// A timer with a tick of 100 ms and 512 slots.
    pub fn builder() -> HashedWheelTimerBuilder {
        HashedWheelTimerBuilder::new()
    }

    /// Runs `task` once, `delay` from now; at the end of the tick that is running, if there is no delay.
    ///
    /// Starts the thread if it does not run yet. What is answered need not be kept: dropped, it lets the task run.
    /// A delay beyond 584 years waits until it is cancelled. The task gets its own timeout, which has expired by
    /// then.
    ///
    /// # Errors
    /// With the task: if the timer was stopped ([`Error::ShutDown`]), if
    /// [`max_pending`](HashedWheelTimerBuilder::max_pending) timeouts are pending ([`Error::Full`]), or if the
    /// operating system gives no thread ([`Error::Io`]).
    #[track_caller]
    pub fn new_timeout<F>(&self, delay: Duration, task: F) -> Result<Timeout, SendError<F>>
    where
        F: FnOnce(&Timeout) -> Result + Send + 'static,
    {
        let added = self.handle.shared.add(delay, task, None::<NoHook>, Location::caller());
        added.map_err(|refused| refused.map(|(task, _)| task))
    }

    /// As [`new_timeout`](Self::new_timeout), with a hook that runs on the timer's thread if the timeout is
    /// cancelled, by its holder or because the timer stops.
    ///
    /// The hook runs at once, or as soon as the thread is free; the task has been dropped or is about to be.
    /// Exactly one of task and hook runs, unless an executor refuses the task. A hook that panics is logged.
    ///
    /// ```
    /// use netwheel::timer::HashedWheelTimer;
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let timer = HashedWheelTimer::builder().build()?;
    /// let (sender, receiver) = mpsc::channel();
    /// let retry = timer.new_timeout_with_hook(
    ///     Duration::from_secs(5),
    ///     |_| Ok(println!("trying again")),
    ///     move |_| drop(sender.send("given up")),
    /// )?;
    /// retry.cancel();
    /// assert_eq!(receiver.recv().unwrap(), "given up");
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// # Errors
    /// As of [`new_timeout`](Self::new_timeout), with both.
    #[track_caller]
    pub fn new_timeout_with_hook<F, H>(
        &self,
        delay: Duration,
        task: F,
        on_cancel: H,
    ) -> Result<Timeout, SendError<(F, H)>>
    where
        F: FnOnce(&Timeout) -> Result + Send + 'static,
        H: FnOnce(&Timeout) + Send + 'static,
    {
        let added = self.handle.shared.add(delay, task, Some(on_cancel), Location::caller());
        added.map_err(|refused| refused.map(|(task, hook)| (task, hook.expect("a refused hook comes back"))))
    }

    /// Starts the timer's thread; does nothing if it runs. The first timeout starts it, too.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the timer was stopped, which is final, and [`Error::Io`] if the operating system gives no
    /// thread.
    pub fn start(&self) -> Result {
        self.handle.shared.start(Worker::work)
    }

    /// Stops the timer for good, and answers the timeouts that had neither expired nor been cancelled.
    ///
    /// Each of these is cancelled: its task was dropped and its hook has run, both on the timer's thread. Waits for
    /// the thread to end, which is at once, whatever the tick; but a task that is running is waited for, so do not
    /// stop it where a lock is held that tasks take. Of a timer that never ran, or that somebody else stops or has
    /// stopped, there is nothing to answer. Tasks that an executor was given already are the executor's.
    ///
    /// # Errors
    /// [`Error::WouldDeadlock`] on the timer's own thread, in a task or a hook: then it goes on.
    pub fn stop(&self) -> Result<Vec<Timeout>> {
        let shared = &self.handle.shared;
        if shared.is_here() {
            return Err(Error::WouldDeadlock);
        }
        match shared.end() {
            Some(thread) => thread.join().map_err(|panic| Error::panicked(panic_message(panic))),
            None => Ok(Vec::new()),
        }
    }

    /// The number of timeouts that have neither expired nor been cancelled.
    pub fn pending_timeouts(&self) -> usize {
        self.handle.shared.pending()
    }

    /// The length of a tick, as the timer has it.
    pub fn tick(&self) -> Duration {
        self.handle.shared.tick()
    }

    /// The number of slots, a power of two.
    pub fn slots(&self) -> usize {
        self.handle.shared.slots()
    }

    fn of(handle: Arc<Handle<Timeout>>) -> Self {
        HashedWheelTimer { handle }
    }
}

impl fmt::Debug for HashedWheelTimer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashedWheelTimer")
            .field("thread_name", &self.handle.shared.thread_name())
            .field("tick", &self.tick())
            .field("slots", &self.slots())
            .field("pending", &self.pending_timeouts())
            .finish_non_exhaustive()
    }
}

/// What a program has of the timer's threads may go anywhere.
const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<HashedWheelTimer>();
    crosses_threads::<Timeout>();
};
