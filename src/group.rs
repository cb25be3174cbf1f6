//! Groups of event loops, and which of them serves the next channel.
//!
//! Always holds: a group has at least one loop; `next` goes round them in order. The group owns no channel; its
//! loops live until they are shut down, not until the last handle is dropped.

use crate::{
    Clock, Completion, Error, Result, SystemClock,
    event_loop::{DEFAULT_REBUILD_THRESHOLD, EventLoop, LoopConfig, LoopMetrics, shutdown_request},
    sync::completion_of_all,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Event loops that share the channels of a program; can be cloned, sent and shared.
///
/// Dropping the last handle does not end the loops: [`shutdown_gracefully`](EventLoopGroup::shutdown_gracefully)
/// does.
///
/// ```
/// use netwheel::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(2).name("worker").io_ratio(50).build()?;
/// let answer = group.next().schedule(Duration::from_millis(1), || 6 * 7)?;
/// assert_eq!(answer.completion().wait()?, 42);
/// group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(1)).wait()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct EventLoopGroup {
    inner: Arc<Inner>,
}

struct Inner {
    loops: Vec<EventLoop>,
    next: AtomicUsize,
}

/// Settings of an [`EventLoopGroup`]; refused values are reported by [`build`](EventLoopGroupBuilder::build).
///
/// | setting | default | range |
/// |---|---|---|
/// | `threads` | 0, which means twice the processors | 0 or more |
/// | `name` | "netwheel"; threads are called name-0, name-1, … | |
/// | `io_ratio` | 50 | 1 to 100 percent; 100: all tasks that wait are run |
/// | `max_pending_tasks` | 1,048,576 for each loop | 16 or more |
/// | `wheel_tick` | 100 ms | more than 0; below 1 ms it becomes 1 ms |
/// | `wheel_slots` | 512 | 1 to 65,536, rounded up to a power of two |
/// | `rebuild_threshold` | 512 premature returns in a row | below 3: never |
/// | `clock` | [`SystemClock`] | |
#[derive(Debug, Clone)]
#[must_use]
pub struct EventLoopGroupBuilder {
    threads: usize,
    name: String,
    io_ratio: u32,
    max_pending_tasks: usize,
    wheel_tick: Duration,
    wheel_slots: usize,
    rebuild_threshold: u32,
    clock: Arc<dyn Clock>,
}

impl EventLoopGroup {
    /// A group with the default settings.
    ///
    /// # Errors
    /// If the operating system gives no poll.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Settings first.
    pub fn builder() -> EventLoopGroupBuilder {
        EventLoopGroupBuilder {
            threads: 0,
            name: "netwheel".to_owned(),
            io_ratio: 50,
            max_pending_tasks: 1 << 20,
            wheel_tick: Duration::from_millis(100),
            wheel_slots: 512,
            rebuild_threshold: DEFAULT_REBUILD_THRESHOLD,
            clock: Arc::new(SystemClock),
        }
    }

    /// The loop whose turn it is to get a channel: each in order, round and round.
    pub fn next(&self) -> &EventLoop {
        let loops = &self.inner.loops;
        let step = |n: usize| Some((n + 1) % loops.len());
        // Counted modulo the size, so that the order holds for ever and not only until a counter wraps.
        let n = self.inner.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        &loops[n.unwrap_or(0)]
    }

    /// All loops.
    pub fn event_loops(&self) -> &[EventLoop] {
        &self.inner.loops
    }

    /// The counters of each loop.
    pub fn metrics(&self) -> Vec<LoopMetrics> {
        self.inner.loops.iter().map(EventLoop::metrics).collect()
    }

    /// Shuts every loop down as [`EventLoop::shutdown_gracefully`] does; completes when all have ended.
    ///
    /// Netty's defaults are a quiet period of 2 s and a timeout of 15 s; zero and a second end an idle group at
    /// once.
    pub fn shutdown_gracefully(&self, quiet: Duration, timeout: Duration) -> Completion {
        if let Err(e) = shutdown_request(quiet, timeout) {
            return Completion::ready(Err(e));
        }
        for event_loop in &self.inner.loops {
            event_loop.shutdown_gracefully(quiet, timeout).detach();
        }
        self.terminated()
    }

    /// Completes when every loop has ended, with the first failure if there was one.
    pub fn terminated(&self) -> Completion {
        let ids = self.inner.loops.iter().map(|event_loop| event_loop.shared.id).collect();
        let (completer, completion) = completion_of_all(ids);
        let left = Mutex::new((self.inner.loops.len(), None::<Error>, Some(completer)));
        let left = Arc::new(left);
        for event_loop in &self.inner.loops {
            let left = left.clone();
            event_loop.terminated().on_complete(move |result| {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.0 -= 1;
                if let Err(e) = result {
                    left.1.get_or_insert(e);
                }
                if left.0 == 0
                    && let Some(completer) = left.2.take()
                {
                    let result = left.1.take().map_or(Ok(()), Err);
                    drop(left);
                    completer.complete(result);
                }
            });
        }
        completion
    }
}

impl fmt::Debug for EventLoopGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoopGroup").field("loops", &self.inner.loops).finish()
    }
}

impl EventLoopGroupBuilder {
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

    /// Percent of its busy time that a loop spends on I/O while tasks wait; after I/O that took `t`, tasks run for
    /// `t × (100 − ratio) / ratio`. 100 runs all tasks that wait, however long that takes.
    pub fn io_ratio(mut self, percent: u32) -> Self {
        self.io_ratio = percent;
        self
    }

    /// Tasks that may wait in each loop's queue; more are refused.
    pub fn max_pending_tasks(mut self, tasks: usize) -> Self {
        self.max_pending_tasks = tasks;
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
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { processors() * 2 } else { self.threads };
        let build = |n: usize| {
            EventLoop::new(LoopConfig {
                name: format!("{}-{n}", self.name),
                io_ratio,
                max_pending_tasks: self.max_pending_tasks,
                wheel_tick: self.wheel_tick,
                wheel_slots: self.wheel_slots,
                rebuild_threshold: self.rebuild_threshold,
                clock: self.clock.clone(),
            })
        };
        // Loops have no thread yet, so those built before a failure just go.
        let loops = (0..threads).map(build).collect::<Result<Vec<_>>>()?;
        Ok(EventLoopGroup { inner: Arc::new(Inner { loops, next: AtomicUsize::new(0) }) })
    }
}
