//! A timer with its own thread, for programs that have no event loop.
//!
//! `builder` holds the settings, `timeout` is one timeout, `shared` is the state that handles share
//! with the thread, and `worker` is the thread. Only the thread accesses the
//! [`Wheel`](super::Wheel). Additions reach it through one [`Mailbox`](crate::sync::Mailbox) and
//! cancellations through another. A [`WakeUp`](crate::sync::WakeUp) records whether the thread must
//! be woken.
//!
//! - A timeout is one `Arc` with its state, task and hook. Adding a timeout puts it into the first
//!   mailbox. The thread moves at most 100,000 per turn into the wheel. The state goes from
//!   *queued* to *armed*, and from either to *expired* or *cancelled*, by one compare-and-swap. The
//!   caller whose compare-and-swap succeeds owns the task.
//! - Cancelling drops the task at once. An *armed* timeout also goes into the second mailbox, and
//!   the thread removes it from the wheel when it next runs. For a *queued* timeout, the thread
//!   finds the state changed when it takes the timeout from the first mailbox. A cancel wakes the
//!   thread only if 16,384 cancelled timeouts are waiting, or to run a hook, because hooks run on
//!   the thread.
//! - The thread parks until the wheel's next expiry, which it publishes in `WakeUp`. Adding a
//!   timeout rounds its deadline up to a tick and wakes the thread only if that tick is earlier. On
//!   a manual clock the thread sleeps until it is woken.
//! - A turn transfers additions and cancellations, reads the clock, runs at most 1024 timeouts, and
//!   sleeps if none ran. A tick can begin between the transfer and the clock reading, while an
//!   addition for that tick is in flight. The wheel would delay this timeout by a tick. It is kept
//!   in a queue (`overdue`) instead, and runs after all timeouts that were due by then.
//! - Stopping closes the first mailbox, wakes the thread and joins it. The thread cancels the
//!   timeouts left in the wheel and the mailbox, and returns them. A timeout added before the close
//!   is among them. A later addition is refused. Dropping the last handle does the same without
//!   joining.
//!
//! # Invariants
//!
//! - A timeout either expires, on the thread, or is cancelled, by its holder or by the stop of the
//!   timer. One atomic step on its state decides which.
//! - While nothing is due, the thread sleeps until the next occupied tick and makes no system
//!   calls.
//! - Locks are never held while user code runs: tasks, hooks, executors, and destructors of the
//!   values that tasks capture.
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

use crate::error::{Error, Result, SendError, panic_message};
use shared::Handle;
use std::{fmt, panic::Location, sync::Arc, time::Duration};
use timeout::NoHook;
use worker::Worker;

/// A timer with its own thread, for programs that need only a timer.
///
/// Delays are rounded up to a tick. A task never runs early. It runs late by at most one tick plus
/// the time for which the thread is busy. The timer is designed for large numbers of timeouts, most
/// of which are cancelled. Programs that have an [`EventLoop`](crate::EventLoop) do not need it:
/// loops schedule tasks without another thread.
///
/// Clones are handles to the same timer. Dropping the last handle stops the timer like
/// [`stop`](Self::stop), but does not wait for the thread. A pending task that has captured a
/// handle keeps the timer alive. A task that adds the next timeout can use [`Timeout::timer`]
/// instead, which does not.
///
/// # Cost
///
/// - Adding a timeout takes one allocation (80 bytes plus the captured values; the wheel takes
///   another 40) and one short critical section. It makes a system call only if the thread sleeps
///   beyond the new deadline. Cancelling takes one atomic step and, if the timeout is in the wheel,
///   one short critical section. Neither cost depends on the number of pending timeouts.
/// - Cancelling drops the task at once, on the calling thread. The memory of the timeout itself is
///   freed when the thread next runs. The thread is woken for this only when 16,384 cancelled
///   timeouts are waiting. They accumulate while a slow task blocks the thread.
/// - While asleep, the thread makes no system calls until the next occupied tick. Without timeouts
///   it sleeps indefinitely.
///
/// # Tasks
///
/// Tasks run on the timer's thread, one at a time, in the order of their ticks. Within a tick they
/// run in the order in which they were added. A slow task delays all others; run slow tasks on an
/// [`executor`](HashedWheelTimerBuilder::executor). A task that fails or panics is logged with the
/// source location of its `new_timeout` call, and does not affect other tasks. If the thread was
/// blocked for several ticks, it runs the missed tasks tick by tick.
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
    /// Returns a builder with a tick of 100 ms and 512 slots.
    pub fn builder() -> HashedWheelTimerBuilder {
        HashedWheelTimerBuilder::new()
    }

    /// Schedules `task` to run once, after `delay`.
    ///
    /// With a delay of zero, the task runs at the end of the current tick. A delay beyond 584 years
    /// never expires and is held until it is cancelled. The thread is started if it is not running
    /// yet.
    ///
    /// Dropping the returned [`Timeout`] does not cancel the task. The task receives its own
    /// timeout, which is already in the expired state.
    ///
    /// # Errors
    ///
    /// - [`Error::ShutDown`] if the timer was stopped.
    /// - [`Error::Full`] if [`max_pending`](HashedWheelTimerBuilder::max_pending) timeouts are
    ///   pending.
    /// - [`Error::Io`] if the operating system could not start the thread.
    ///
    /// The error carries the refused task.
    #[track_caller]
    pub fn new_timeout<F>(&self, delay: Duration, task: F) -> Result<Timeout, SendError<F>>
    where
        F: FnOnce(&Timeout) -> Result + Send + 'static,
    {
        let added = self.handle.shared.add(delay, task, None::<NoHook>, Location::caller());
        added.map_err(|refused| refused.map(|(task, _)| task))
    }

    /// Like [`new_timeout`](Self::new_timeout), with a hook that runs on the timer's thread if the
    /// timeout is cancelled, either by its holder or because the timer stops.
    ///
    /// The hook runs as soon as the thread is free. At that time, the task has been dropped or is
    /// about to be. Exactly one of task and hook runs, unless an executor refuses the task. A panic
    /// of the hook is logged.
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
    ///
    /// The errors of [`new_timeout`](Self::new_timeout). They carry the task and the hook.
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

    /// Starts the timer's thread. Does nothing if the thread is running. Adding the first timeout
    /// also starts it.
    ///
    /// # Errors
    ///
    /// [`Error::ShutDown`] if the timer was stopped, which is permanent, or [`Error::Io`] if the
    /// operating system could not start the thread.
    pub fn start(&self) -> Result {
        self.handle.shared.start(Worker::work)
    }

    /// Stops the timer permanently and returns the timeouts that were pending.
    ///
    /// The timer's thread cancels these timeouts: it drops their tasks and runs their hooks. The
    /// returned handles have no tasks, unlike those of Netty. To run or save the unprocessed tasks,
    /// use [`new_timeout_with_hook`](Self::new_timeout_with_hook):
    ///
    /// ```
    /// use netwheel::timer::HashedWheelTimer;
    /// use std::{sync::mpsc, time::Duration};
    ///
    /// let timer = HashedWheelTimer::builder().build()?;
    /// let (sender, unprocessed) = mpsc::channel();
    /// for order in 1..=3 {
    ///     let sender = sender.clone();
    ///     timer.new_timeout_with_hook(
    ///         Duration::from_secs(1800),
    ///         move |_| Ok(println!("order {order} is cancelled")),
    ///         move |_| drop(sender.send(order)),
    ///     )?;
    /// }
    /// drop(sender);
    /// assert_eq!(timer.stop()?.len(), 3);
    /// let mut orders: Vec<i32> = unprocessed.iter().collect();
    /// orders.sort();
    /// assert_eq!(orders, [1, 2, 3]);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// `stop` waits for the thread to end. This does not depend on the tick, but includes the rest
    /// of a task that is running. Do not call `stop` while holding a lock that tasks acquire.
    ///
    /// Returns an empty list if the timer never ran, or if another call has stopped it or is
    /// stopping it. Tasks already handed to an executor are not cancelled.
    ///
    /// # Errors
    ///
    /// [`Error::WouldDeadlock`] if called on the timer's own thread, from a task or a hook. The
    /// timer then continues to run.
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

    /// Returns the number of timeouts that have neither expired nor been cancelled.
    pub fn pending_timeouts(&self) -> usize {
        self.handle.shared.pending()
    }

    /// Returns the length of a tick, after adjustment by the builder.
    pub fn tick(&self) -> Duration {
        self.handle.shared.tick()
    }

    /// Returns the number of slots, a power of two.
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

/// Handles can be sent to and shared with any thread.
const _: () = {
    const fn crosses_threads<T: Send + Sync>() {}
    crosses_threads::<HashedWheelTimer>();
    crosses_threads::<Timeout>();
};
