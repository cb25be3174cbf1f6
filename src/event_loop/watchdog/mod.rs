//! The watchdog: reports stuck loops and their activity.
//!
//! [`Watchdog`] is the setting, and [`Stall`] the report. `observer` judges one loop by its
//! activity and has no clock. `watchdog_thread` inspects the loops of a group.

mod observer;
mod stall;
mod watchdog_thread;

pub use stall::Stall;
pub(crate) use watchdog_thread::{WatchdogThread, WatchedLoop};

use crate::{error::Result, settings::check_range};
use std::{fmt, sync::Arc, time::Duration};

/// The shortest limit. Below it, normal scheduling delays look like a blocked handler.
const MIN_LIMIT: Duration = Duration::from_millis(10);

/// The longest interval between two inspections of a loop.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// A watchdog for the loops of a group. Reports which loop is stuck, in which phase, on which
/// channel, in which handler or task, and for how long.
///
/// A loop is stuck when it has spent more than the limit in the same turn, not counting the poll.
/// Each stall is reported once, however long it lasts, and once more when it ends. A loop that
/// sleeps or makes progress is not reported, however busy it is.
///
/// The watchdog is off unless
/// [`EventLoopGroupBuilder::watchdog`](crate::group::EventLoopGroupBuilder::watchdog) is set. It
/// then has one thread per group, named `<name of the group>-watchdog`, which starts with the first
/// loop and ends with the last. The thread inspects every running loop four times per limit, and at
/// least once per second. So a stall is reported between 1 and 1.5 times the limit after it began.
/// A shorter stall may be missed. The loops have no extra cost: they record their activity with
/// plain stores, whether or not a watchdog reads them.
///
/// The watchdog uses the operating system's monotonic clock, even if the loops use a manual clock.
/// If the watchdog's own thread was delayed, because the process was stopped, by a debugger for
/// example, or the machine is overloaded, it restarts all measurements. It only reports stalls that
/// it has observed itself.
///
/// The watchdog cannot end a stall. A loop cannot be interrupted, and continues when its callback
/// returns. The watchdog takes no backtrace. To get one, call a suitable tool from
/// [`on_stall`](Watchdog::on_stall).
///
/// ```
/// use netwheel::{EventLoopGroup, diagnostics::Watchdog};
/// use std::{sync::mpsc, time::Duration};
///
/// let (stalls, stalled) = mpsc::channel();
/// let watchdog = Watchdog::new(Duration::from_millis(20)).on_stall(move |stall| drop(stalls.send(stall.clone())));
/// let group = EventLoopGroup::builder().threads(1).name("worker").watchdog(watchdog).build()?;
///
/// let (release, released) = mpsc::channel::<()>();
/// group.next().execute(move || drop(released.recv()))?;
///
/// let stall = stalled.recv().unwrap();
/// assert_eq!(stall.event_loop, "worker-0");
/// assert!(stall.elapsed > Duration::from_millis(20));
/// println!("{stall}"); // worker-0 has been stuck for 21ms in tasks: the task submitted at src/main.rs:9:14
/// # drop(release);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
#[must_use]
pub struct Watchdog {
    limit: Duration,
    on_stall: Arc<Callback>,
    on_recovery: Arc<Callback>,
}

type Callback = dyn Fn(&Stall) + Send + Sync;

impl Watchdog {
    /// Creates a watchdog that logs a warning when a loop is stuck for longer than `limit`, and
    /// another when the loop continues. The group builder refuses a limit below 10 ms.
    pub fn new(limit: Duration) -> Self {
        Watchdog {
            limit,
            on_stall: Arc::new(|stall| log::warn!("{stall}")),
            on_recovery: Arc::new(|stall| log::warn!("{}", stall.over())),
        }
    }

    /// Sets a callback that replaces the log line when a loop is stuck. It is called once per
    /// stall.
    ///
    /// Runs on the watchdog's thread. While it runs, no loop is watched. A panic in it is caught
    /// and logged.
    pub fn on_stall(mut self, callback: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_stall = Arc::new(callback);
        self
    }

    /// Sets a callback that replaces the log line when a reported stall ends, because the loop is
    /// in another turn, sleeps, or has ended. It receives the same report as `on_stall`, with the
    /// total duration of the stall as [`elapsed`](Stall::elapsed).
    ///
    /// Runs on the watchdog's thread, like `on_stall`.
    pub fn on_recovery(mut self, callback: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_recovery = Arc::new(callback);
        self
    }

    /// Refuses a limit that is out of range.
    pub(crate) fn check(&self) -> Result {
        check_range("watchdog", self.limit, MIN_LIMIT.., "a limit of 10 ms or more")
    }

    /// Returns the interval between two inspections.
    fn interval(&self) -> Duration {
        (self.limit / 4).min(MAX_INTERVAL)
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("limit", &self.limit).finish_non_exhaustive()
    }
}
