//! The watchdog: reports loops that are stuck, and what they are doing.
//!
//! [`Watchdog`] is the setting, and [`Stall`] the report. `observer` judges one loop by its
//! activity and has no clock. `watchdog_thread` looks at the loops of a group.

mod observer;
mod stall;
mod watchdog_thread;

pub use stall::Stall;
pub(crate) use watchdog_thread::{WatchdogThread, WatchedLoop};

use crate::{Error, Result};
use std::{fmt, sync::Arc, time::Duration};

/// The shortest limit: below it, a scheduler that has other things to do looks like a handler that blocks.
const MIN_LIMIT: Duration = Duration::from_millis(10);

/// The longest time between two looks at a loop.
const MAX_INTERVAL: Duration = Duration::from_secs(1);

/// A watch over the loops of a group: says which of them is stuck, in which phase, on which channel, in which
/// handler or task, and for how long.
///
/// A loop is stuck when it has been in one and the same turn, and not in poll, for longer than the limit. Each
/// stall is told once, however long it lasts, and once more when it is over. Nothing is told of a loop that
/// sleeps or turns, however busy it is.
///
/// It is off unless [`EventLoopGroupBuilder::watchdog`](crate::EventLoopGroupBuilder::watchdog) gets one. Then one
/// thread, `<name of the group>-watchdog`, looks at every loop of the group that runs, four times within the limit
/// and at least once a second, so a stall is told between 1 and 1.5 times the limit after it began; a shorter one
/// may not be seen. The thread starts with the first loop and ends with the last. It costs the loops nothing that
/// they do not do anyway: they write down where they are in plain stores, watched or not.
///
/// It measures by the operating system's monotonic clock, also where the loops' own clock is moved by hand. What
/// the loops cannot help is not held against them: when the watchdog's own thread was kept from running (the whole
/// process was stopped, or a debugger held it; the machine is overloaded), it takes all times anew and tells of no
/// stall that it has not itself seen to last.
///
/// It cannot do anything about a stall: a loop cannot be interrupted, and goes on when its callback returns. It
/// takes no backtrace; for that, let [`on_stall`](Watchdog::on_stall) ask a tool that can.
///
/// ```
/// use netwheel::{EventLoopGroup, Watchdog};
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
/// println!("{stall}"); // worker-0 has been stuck for 21ms in tasks: the task given at src/main.rs:9:14
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
    /// A watchdog that writes a line to the log, as a warning, when a loop is stuck for longer than `limit`, and
    /// another one when it goes on. A group refuses a limit below 10 ms.
    pub fn new(limit: Duration) -> Self {
        Watchdog {
            limit,
            on_stall: Arc::new(|stall| log::warn!("{stall}")),
            on_recovery: Arc::new(|stall| log::warn!("{}", stall.over())),
        }
    }

    /// What is done instead of the line in the log when a loop is stuck; once for each stall.
    ///
    /// Runs on the watchdog's thread: while it runs, no loop is watched. A panic in it is logged and goes no
    /// further.
    pub fn on_stall(mut self, callback: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_stall = Arc::new(callback);
        self
    }

    /// What is done instead of the line in the log when a stall that was told is over: the loop is in another turn,
    /// asleep, or has ended. It gets what `on_stall` got, with the whole time that passed meanwhile as
    /// [`elapsed`](Stall::elapsed).
    ///
    /// Runs on the watchdog's thread, as `on_stall` does.
    pub fn on_recovery(mut self, callback: impl Fn(&Stall) + Send + Sync + 'static) -> Self {
        self.on_recovery = Arc::new(callback);
        self
    }

    /// Refuses what is out of range.
    pub(crate) fn check(&self) -> Result {
        if self.limit < MIN_LIMIT {
            return Err(Error::setting("watchdog", format!("{:?}", self.limit), "a limit of 10 ms or more"));
        }
        Ok(())
    }

    /// The time between two looks.
    fn interval(&self) -> Duration {
        (self.limit / 4).min(MAX_INTERVAL)
    }
}

impl fmt::Debug for Watchdog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watchdog").field("limit", &self.limit).finish_non_exhaustive()
    }
}
