//! The settings of a group, with their defaults and ranges.
//!
//! Always holds: nothing is refused before `build`, and `build` refuses with the name of the setting, the value and
//! the range. Runs on the thread that builds.

use super::EventLoopGroup;
use crate::{
    Clock, Error, Result, SystemClock,
    clock::nanos,
    event_loop::{
        Budget, DEFAULT_MAX_TASK_TIME, DEFAULT_REBUILD_THRESHOLD, EventLoop, LoopConfig, Patrol, UNLIMITED,
        Watchdog,
    },
};
use std::{sync::Arc, time::Duration};

/// Settings of an [`EventLoopGroup`]; refused values are reported by [`build`](EventLoopGroupBuilder::build).
///
/// | setting | default | range |
/// |---|---|---|
/// | `threads` | 0, which means twice the processors | 0 or more |
/// | `name` | "netwheel"; threads are called name-0, name-1, … | |
/// | `io_ratio` | 50 | 1 to 99 percent; 100 is the same as `unlimited_tasks` |
/// | `max_task_time` | 100 ms in each turn, for tasks and once more for timers | more than 0 |
/// | `max_pending_tasks` | 1,048,576 for each loop | 16 or more |
/// | `max_scheduled_tasks` | 1,048,576 for each loop | 16 or more |
/// | `wheel_tick` | 100 ms | more than 0; below 1 ms it becomes 1 ms |
/// | `wheel_slots` | 512 | 1 to 65,536, rounded up to a power of two |
/// | `rebuild_threshold` | 512 premature returns in a row | below 3: never |
/// | `clock` | [`SystemClock`] | |
/// | `watchdog` | none | a limit of 10 ms or more |
#[derive(Debug, Clone)]
#[must_use]
pub struct EventLoopGroupBuilder {
    threads: usize,
    name: String,
    io_ratio: u32,
    max_task_time: Duration,
    max_pending_tasks: usize,
    max_scheduled_tasks: usize,
    wheel_tick: Duration,
    wheel_slots: usize,
    rebuild_threshold: u32,
    clock: Arc<dyn Clock>,
    watchdog: Option<Watchdog>,
}

impl EventLoopGroupBuilder {
    pub(super) fn new() -> Self {
        EventLoopGroupBuilder {
            threads: 0,
            name: "netwheel".to_owned(),
            io_ratio: 50,
            max_task_time: DEFAULT_MAX_TASK_TIME,
            max_pending_tasks: 1 << 20,
            max_scheduled_tasks: 1 << 20,
            wheel_tick: Duration::from_millis(100),
            wheel_slots: 512,
            rebuild_threshold: DEFAULT_REBUILD_THRESHOLD,
            clock: Arc::new(SystemClock),
            watchdog: None,
        }
    }

    /// Number of loops, each with a thread of its own; 0 means two for every processor.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// What the threads are called, with `-0`, `-1`, … behind it.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Percent of its busy time that a loop spends on I/O while tasks wait: after I/O that took `t`, tasks run for
    /// `t × (100 − ratio) / ratio`, at most [`max_task_time`](Self::max_task_time), but 64 of them at least; due timers
    /// get as much once more. The clock is looked at after every 64 of them.
    pub fn io_ratio(mut self, percent: u32) -> Self {
        self.io_ratio = percent;
        self
    }

    /// Runs in each turn all tasks that wait when its I/O is done, and up to 1024 due timers, however long that takes.
    pub fn unlimited_tasks(self) -> Self {
        self.io_ratio(u32::from(UNLIMITED))
    }

    /// The most time that tasks get in a turn, and timers once more, whatever the ratio gives: so sockets are looked
    /// at at least so often.
    pub fn max_task_time(mut self, time: Duration) -> Self {
        self.max_task_time = time;
        self
    }

    /// Tasks that may wait in each loop's queue; more are refused.
    pub fn max_pending_tasks(mut self, tasks: usize) -> Self {
        self.max_pending_tasks = tasks;
        self
    }

    /// Tasks that each loop may have scheduled for later, by [`EventLoop::schedule`] and its like; more are refused.
    pub fn max_scheduled_tasks(mut self, tasks: usize) -> Self {
        self.max_scheduled_tasks = tasks;
        self
    }

    /// Granularity of idle timeouts: an event is at most this much late.
    pub fn wheel_tick(mut self, tick: Duration) -> Self {
        self.wheel_tick = tick;
        self
    }

    /// Slots of the first level of each loop's wheel.
    pub fn wheel_slots(mut self, slots: usize) -> Self {
        self.wheel_slots = slots;
        self
    }

    /// Premature returns of the poll in a row after which it is built anew; below 3 it never is.
    pub fn rebuild_threshold(mut self, returns: u32) -> Self {
        self.rebuild_threshold = returns;
        self
    }

    /// Where the loops take their time from; tests give a [`ManualClock`](crate::testing::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Watches the loops, and says when one of them is stuck; see [`Watchdog`]. Without one nobody does.
    pub fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// The group; its threads start when they are first needed.
    ///
    /// # Errors
    /// If a setting is out of its range, or the operating system gives no poll.
    pub fn build(self) -> Result<EventLoopGroup> {
        let io_ratio = u8::try_from(self.io_ratio).ok().filter(|ratio| (1..=100).contains(ratio));
        let io_ratio =
            io_ratio.ok_or_else(|| Error::setting("io_ratio", self.io_ratio, "1 to 100 percent"))?;
        if self.max_pending_tasks < 16 {
            return Err(Error::setting("max_pending_tasks", self.max_pending_tasks, "16 tasks or more"));
        }
        if self.max_scheduled_tasks < 16 {
            return Err(Error::setting("max_scheduled_tasks", self.max_scheduled_tasks, "16 tasks or more"));
        }
        if self.max_task_time.is_zero() {
            return Err(Error::setting("max_task_time", "0", "more than zero"));
        }
        let budget = Budget { io_ratio, cap: nanos(self.max_task_time) };
        self.watchdog.as_ref().map_or(Ok(()), Watchdog::check)?;
        let patrol = self.watchdog.map(|watchdog| Arc::new(Patrol::new(&self.name, watchdog)));
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { processors() * 2 } else { self.threads };
        let build = |n: usize| {
            EventLoop::new(LoopConfig {
                name: format!("{}-{n}", self.name),
                budget,
                max_pending_tasks: self.max_pending_tasks,
                max_scheduled_tasks: self.max_scheduled_tasks,
                wheel_tick: self.wheel_tick,
                wheel_slots: self.wheel_slots,
                rebuild_threshold: self.rebuild_threshold,
                clock: self.clock.clone(),
                patrol: patrol.clone(),
            })
        };
        // Loops have no thread yet, so those built before a failure just go.
        let loops = (0..threads).map(build).collect::<Result<Vec<_>>>()?;
        Ok(EventLoopGroup::of(loops))
    }
}
