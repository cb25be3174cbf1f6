//! The settings of a timer, with their defaults and ranges.
//!
//! Invariant: setters accept any value. `build` refuses invalid values and names the setting, the
//! value and the range. Runs on the calling thread.

use super::{
    HashedWheelTimer,
    live::Live,
    shared::{Handle, TimerExecutor, TimerSettings},
};
use crate::{
    clock::Clock,
    error::{Error, Result},
    machine,
    timer::wheel_builder::WheelBuilder,
};
use std::{fmt, sync::Arc, time::Duration};

/// The limit of pending timeouts if none is set. Together with cancelled timeouts that have not
/// been removed yet, this stays below the capacity of a wheel.
const UNLIMITED: usize = 1 << 31;

/// Settings of a [`HashedWheelTimer`]. [`build`](HashedWheelTimerBuilder::build) reports invalid
/// values.
///
/// | setting | default | range |
/// |---|---|---|
/// | `tick` | 100 ms | more than 0, and less than `i64::MAX` ns / `slots`; below 1 ms it becomes 1 ms, with a warning |
/// | `slots` | 512 | 1 to 65,536, rounded up to a power of two |
/// | `thread_name` | "netwheel-timer" | no NUL |
/// | `max_pending` | 0, which means no limit | 0 or more |
/// | `executor` | none: tasks run on the timer's thread | |
/// | `clock` | [`default_clock`](crate::time::default_clock) | |
#[derive(Clone)]
#[must_use]
pub struct HashedWheelTimerBuilder {
    wheel: WheelBuilder,
    thread_name: String,
    max_pending: usize,
    executor: Option<Arc<TimerExecutor>>,
    clock: Arc<dyn Clock>,
}

impl HashedWheelTimerBuilder {
    pub(super) fn new() -> Self {
        HashedWheelTimerBuilder {
            wheel: WheelBuilder::default(),
            thread_name: "netwheel-timer".to_owned(),
            max_pending: 0,
            executor: None,
            clock: machine::default_clock(),
        }
    }

    /// Sets the length of a tick. Tasks run late by at most one tick, and the thread wakes at most
    /// once per tick.
    pub fn tick(mut self, tick: Duration) -> Self {
        self.wheel = self.wheel.tick(tick);
        self
    }

    /// Sets the number of slots of the wheel's first level.
    ///
    /// If a revolution (`tick` × `slots`) is well above the usual delay, timeouts need not be moved
    /// down from a higher level.
    pub fn slots(mut self, slots: usize) -> Self {
        self.wheel = self.wheel.slots(slots);
        self
    }

    /// Sets the name of the thread. Most systems show about 15 bytes of it.
    pub fn thread_name(mut self, name: impl Into<String>) -> Self {
        self.thread_name = name.into();
        self
    }

    /// Sets the maximum number of pending timeouts. Further timeouts are refused.
    ///
    /// 0 means no limit except the wheel's own capacity of 2³¹. A timeout stops counting as soon as
    /// it is cancelled or expires.
    pub fn max_pending(mut self, timeouts: usize) -> Self {
        self.max_pending = timeouts;
        self
    }

    /// Sets an executor that runs the tasks instead of the timer's thread, for tasks that take
    /// long.
    ///
    /// `execute` is called on the timer's thread with the boxed task of each timeout that expires.
    /// It should neither run the task nor block. If it returns an error or panics, the task is
    /// dropped and the failure is logged. If it drops the task without running it, the task is lost
    /// silently. Hooks of cancelled timeouts always run on the timer's thread. Timers built from
    /// clones of this builder share the executor.
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, timer::HashedWheelTimer};
    /// # use std::{sync::mpsc, thread, time::Duration};
    ///
    /// let group = EventLoopGroup::builder().threads(1).name("worker").build()?;
    /// let event_loop = group.next().clone();
    /// let timer = HashedWheelTimer::builder()
    ///     .executor(move |task| Ok(event_loop.execute(task)?))
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

    /// Sets the clock. The default is [`default_clock`](crate::time::default_clock). Tests can use
    /// a [`ManualClock`](crate::testing::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Builds the timer. Its thread starts when it is first needed. Ticks are counted from this
    /// call.
    ///
    /// Timers are meant to be shared. An error is logged the first time that a process has more
    /// than 64 timers.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if a setting is out of range.
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
