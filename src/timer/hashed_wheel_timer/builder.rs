//! The settings of a timer, with their defaults and ranges; and how many timers there are.
//!
//! Always holds: nothing is refused before `build`, and `build` refuses with the name of the setting, the value and
//! the range. Runs on the thread that builds.

use super::{
    HashedWheelTimer,
    shared::{Executor, Handle, TimerSettings},
};
use crate::{Clock, Error, Result, SystemClock, timer::WheelBuilder};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// So many timers may live before it is taken for a mistake: each has a thread.
const MANY_TIMERS: usize = 64;

/// The most that are pending where there is no limit: with those that were cancelled, less than a wheel can hold.
const UNLIMITED: usize = 1 << 31;

// Of the process, because a warning about too many threads is. Nothing else depends on them.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static TOLD: AtomicBool = AtomicBool::new(false);

/// Settings of a [`HashedWheelTimer`]; refused values are reported by [`build`](HashedWheelTimerBuilder::build).
///
/// | setting | default | range |
/// |---|---|---|
/// | `tick` | 100 ms | more than 0, and less than `i64::MAX` ns / `slots`; below 1 ms it becomes 1 ms, with a warning |
/// | `slots` | 512 | 1 to 65,536, rounded up to a power of two |
/// | `thread_name` | "netwheel-timer" | no NUL |
/// | `max_pending` | 0, which means no limit | 0 or more |
/// | `executor` | none: tasks run on the timer's thread | |
/// | `clock` | [`SystemClock`] | |
#[derive(Clone)]
#[must_use]
pub struct HashedWheelTimerBuilder {
    wheel: WheelBuilder,
    thread_name: String,
    max_pending: usize,
    executor: Option<Arc<Executor>>,
    clock: Arc<dyn Clock>,
}

impl HashedWheelTimerBuilder {
    pub(super) fn new() -> Self {
        HashedWheelTimerBuilder {
            wheel: WheelBuilder::default(),
            thread_name: "netwheel-timer".to_owned(),
            max_pending: 0,
            executor: None,
            clock: Arc::new(SystemClock),
        }
    }

    /// The length of a tick: a task is at most this much late, and the thread wakes at most this often.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.wheel = self.wheel.tick(tick);
        self
    }

    /// Slots of the wheel's first level. A revolution (`tick` × `slots`) well above the common delay saves moving
    /// timeouts down from a further level; see [`Wheel`](crate::timer::Wheel).
    pub fn slots(mut self, slots: usize) -> Self {
        self.wheel = self.wheel.slots(slots);
        self
    }

    /// What the thread is called; systems show the first 15 bytes or so.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Timeouts that may be pending; more are refused. 0 means no limit (but for 2³¹, which a wheel can hold).
    ///
    /// One that was cancelled or has expired is not pending from that moment.
    pub fn max_pending(mut self, timeouts: usize) -> Self {
        self.max_pending = timeouts;
        self
    }

    /// Where tasks run, instead of on the timer's thread; for tasks that take long.
    ///
    /// `execute` is called on the timer's thread with the task of each timeout that expires, boxed, and should
    /// neither run it nor wait. What it refuses is logged and dropped; so it is if it panics. A task that it drops
    /// without a run just goes. Timers that are built from clones of this builder share it. Hooks of cancelled
    /// timeouts do not go this way.
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, timer::HashedWheelTimer};
    /// # use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let group = EventLoopGroup::builder().threads(1).name("worker").build()?;
    /// let event_loop = group.next().clone();
    /// let timer = HashedWheelTimer::builder()
    ///     .executor(move |task| Ok(event_loop.try_execute(task)?))
    ///     .build()?;
    /// # let (sender, receiver) = mpsc::channel();
    /// # timer.new_timeout(Duration::ZERO, move |_| {
    /// #     sender.send(thread::current().name().map(str::to_owned)).map_err(netwheel::Error::other)
    /// # })?;
    /// # assert_eq!(receiver.recv().unwrap().as_deref(), Some("worker-0"));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn executor(
        mut self,
        execute: impl Fn(Box<dyn FnOnce() + Send>) -> Result + Send + Sync + 'static,
    ) -> Self {
        self.executor = Some(Arc::new(execute));
        self
    }

    /// Where the timer takes its time from; tests give a [`ManualClock`](crate::testing::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// The timer; its thread starts when it is first needed. Its ticks are counted from now.
    ///
    /// Timers are meant to be shared. The first time that a process has more than 64 of them, that is logged as an
    /// error.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of its range.
    pub fn build(self) -> Result<HashedWheelTimer> {
        if self.thread_name.contains('\0') {
            return Err(Error::setting("thread_name", self.thread_name.escape_debug(), "a text without NUL"));
        }
        let settings = TimerSettings {
            wheel: self.wheel.build()?,
            thread_name: self.thread_name,
            max_pending: if self.max_pending == 0 { UNLIMITED } else { self.max_pending.min(UNLIMITED) },
            executor: self.executor,
            clock: self.clock,
            live: Live::new(),
        };
        Ok(HashedWheelTimer::of(Handle::new(settings)))
    }
}

impl fmt::Debug for HashedWheelTimerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HashedWheelTimerBuilder")
            .field("wheel", &self.wheel)
            .field("thread_name", &self.thread_name)
            .field("max_pending", &self.max_pending)
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

/// One timer among those that live in this process, until it is stopped.
pub(super) struct Live(());

impl Live {
    fn new() -> Self {
        let live = LIVE.fetch_add(1, Ordering::Relaxed) + 1;
        if live > MANY_TIMERS && !TOLD.swap(true, Ordering::Relaxed) {
            log::error!(
                "{live} HashedWheelTimers in this process, each with a thread: share one among many users"
            );
        }
        Live(())
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        LIVE.fetch_sub(1, Ordering::Relaxed);
    }
}
