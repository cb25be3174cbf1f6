//! The settings of a group, with their defaults and ranges.
//!
//! Invariant: `build` checks the settings. An error names the setting, the value and the range.
//! Runs on the calling thread.

use super::{chooser::Chooser, event_loop_group::EventLoopGroup, manual::ManualEventLoop};
use crate::{
    channel::SharedBudget,
    clock::Clock,
    error::{Error, Result},
    event_loop::{Core, EventLoop, LoopConfig, LoopSettings, UNLIMITED, Watchdog, WatchdogThread},
    executor::{Executor, Spawn},
    machine,
    settings::check_range,
    sync::Random,
    worker_pool::WorkerPool,
};
use std::{fmt, sync::Arc, time::Duration};

/// The number of threads of a group that look up names.
const LOOKUP_THREADS: usize = 4;

/// The number of lookups of a group that wait for such a thread. Each pool and each reconnecting
/// client has at most one lookup at a time.
const MAX_LOOKUPS: usize = 1024;

/// A builder for an [`EventLoopGroup`]. [`build`](EventLoopGroupBuilder::build) validates the
/// settings.
///
/// | setting | default | range |
/// |---|---|---|
/// | `threads` | 0, which means twice the number of processors | 0 or more |
/// | `name` | "netwheel"; threads are named name-0, name-1, … | |
/// | `io_ratio` | 50 | 1 to 99 percent; 100 is the same as `unlimited_tasks` |
/// | `max_task_time` | 100 ms per turn for tasks, and another 100 ms for timers | more than 0 |
/// | `max_io_time` | 100 ms per turn | more than 0 |
/// | `handshakes_per_turn` | 8 per loop | 1 or more |
/// | `overload_target` | none, which means no overload control | 1 ms to 10 s |
/// | `max_pending_tasks` | 1,048,576 per loop | 16 or more |
/// | `max_scheduled_tasks` | 1,048,576 per loop | 16 or more |
/// | `max_connections` | 1,048,576 per loop | 1 or more |
/// | `max_lingering` | 1024 per loop | 0 or more; 0 disables lingering |
/// | `max_event_sources` | 16,384 per loop | 1 or more |
/// | `max_outbound` | 1 GiB per loop | 1 B or more |
/// | `max_group_outbound` | unlimited; only the limits of the loops apply | 1 B or more |
/// | `wheel_tick` | 100 ms | more than 0; below 1 ms it becomes 1 ms |
/// | `wheel_slots` | 512 | 1 to 65,536, rounded up to a power of two |
/// | `rebuild_threshold` | 512 consecutive premature wakeups | below 3: never |
/// | `chooser` | [`RoundRobin`](crate::group::RoundRobin) | |
/// | `pin_to` | not pinned | cores that the building thread may use |
/// | `busy_poll` | 0, which means never | 0 or more |
/// | `clock` | [`SystemClock`](crate::time::SystemClock) | |
/// | `executor` | none | |
/// | `seed` | a random number from the operating system | |
/// | `watchdog` | none | a limit of 10 ms or more |
/// | `workers` | a [`WorkerPool`] of its own with the default settings | |
#[derive(Clone)]
#[must_use]
pub struct EventLoopGroupBuilder {
    threads: usize,
    name: String,
    settings: LoopSettings,
    max_group_outbound: usize,
    chooser: Option<Arc<dyn Chooser>>,
    pin_to: Option<Vec<usize>>,
    seed: Option<u64>,
    watchdog: Option<Watchdog>,
    workers: Option<WorkerPool>,
}

impl EventLoopGroup {
    /// Creates a group with the default settings.
    ///
    /// # Errors
    /// [`Error::Io`] if the operating system refuses to create a poll.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Returns a builder with default settings.
    pub fn builder() -> EventLoopGroupBuilder {
        EventLoopGroupBuilder::new()
    }
}

impl EventLoopGroupBuilder {
    pub(super) fn new() -> Self {
        EventLoopGroupBuilder {
            threads: 0,
            name: "netwheel".to_owned(),
            settings: LoopSettings::default(),
            max_group_outbound: usize::MAX,
            chooser: None,
            pin_to: None,
            seed: None,
            watchdog: None,
            workers: None,
        }
    }

    /// Sets the number of loops, each with its own thread. The default is 0, which means two per
    /// processor.
    pub fn threads(mut self, threads: usize) -> Self {
        self.threads = threads;
        self
    }

    /// Sets the name prefix of the threads, which are named `<name>-0`, `<name>-1` and so on. It
    /// must not contain a NUL.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// Sets the percentage of its busy time that a loop spends on I/O while tasks are waiting.
    /// After I/O that took `t`, tasks run for `t × (100 − ratio) / ratio`, at most
    /// [`max_task_time`](Self::max_task_time). Due timers get the same time once more. The default
    /// is 50.
    ///
    /// The phase ends with the task that exceeds its time. Even when its time is zero, the phase
    /// runs 64 tasks, or as many as start within 100 µs, and at least one.
    pub fn io_ratio(mut self, percent: u32) -> Self {
        self.settings.io_ratio = percent;
        self
    }

    /// Runs all waiting tasks in each turn after its I/O, and up to 1024 due timers, without a time
    /// limit.
    pub fn unlimited_tasks(self) -> Self {
        self.io_ratio(u32::from(UNLIMITED))
    }

    /// Sets the maximum time for tasks in a turn, regardless of the ratio. Timers have the same
    /// maximum of their own. The default is 100 ms.
    ///
    /// A phase ends with the first task that exceeds its time. Short tasks share a reading of the
    /// clock. If a task becomes slow although recent tasks from the same source location were
    /// short, up to 31 more tasks run before the phase ends.
    pub fn max_task_time(mut self, time: Duration) -> Self {
        self.settings.max_task_time = time;
        self
    }

    /// Sets the maximum time that a turn spends on socket I/O: reading, decoding, `read` of the
    /// handlers, and accepting. The default is 100 ms.
    ///
    /// Ready sources that were not served in that time come first in the next turn, in order. A
    /// channel is interrupted between two messages and keeps its undecoded input. Each turn handles
    /// at least one message. Quick requests share a reading of the clock. If they become slow, up
    /// to 63 more are handled once.
    ///
    /// Writing at the end of the turn is limited by
    /// [`writes_per_turn`](crate::channel::ChannelOptions::writes_per_turn) instead.
    pub fn max_io_time(mut self, time: Duration) -> Self {
        self.settings.max_io_time = time;
        self
    }

    /// Sets how many reads of connections whose byte filters (TLS) are not established a loop
    /// handles in one turn. The default is 8. A TLS handshake takes a few hundred microseconds of
    /// computation, in one of these reads.
    ///
    /// Further connections wait for the next turn. So a storm of new connections leaves the
    /// established ones their share of the loop. A higher number completes a storm a little sooner
    /// and delays the others longer.
    pub fn handshakes_per_turn(mut self, handshakes: usize) -> Self {
        self.settings.handshakes_per_turn = handshakes;
        self
    }

    /// Turns on overload control: sets the time in which a loop should handle a source that has
    /// become ready. The default is none. 50 ms suits a chat server.
    ///
    /// Each loop measures its delay. While the shortest delay of a window of two targets exceeds
    /// the target, the loop sheds [`Work`](crate::admission::Work), one class after the other: new
    /// connections, handshakes, requests that the program submits to
    /// [`Context::admit`](crate::Context::admit), and broadcasts of
    /// [bulk](crate::channel::ChannelGroupBuilder::bulk) groups. Each class is limited to the rate
    /// at which the loop serves it, and at least to one per window. Messages of established
    /// channels, pongs, timers, closes and shutdowns are never shed.
    ///
    /// Waiting handshakes begin newest first while their queue stands longer than the target. A
    /// handshake that waits for 20 targets, or for a minute, is refused, and accepting is limited
    /// while the queue would take 10 targets. A handshake that has begun continues before others
    /// begin. Without overload control all wait in order.
    ///
    /// Refusals are counted ([`LoopMetrics::shed_accepts`](crate::metrics::LoopMetrics) and the
    /// fields after it), and [`overload_level`](crate::metrics::LoopMetrics::overload_level) is the
    /// number of classes that are limited now. The limits are derived from measurements and cannot
    /// be set.
    ///
    /// ```
    /// # use netwheel::EventLoopGroup;
    /// # use std::time::Duration;
    /// let group = EventLoopGroup::builder().overload_target(Duration::from_millis(50)).build()?;
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn overload_target(mut self, target: Duration) -> Self {
        self.settings.overload_target = Some(target);
        self
    }

    /// Sets the maximum number of tasks in each loop's queue. Further tasks are refused. The
    /// default is 1,048,576.
    pub fn max_pending_tasks(mut self, tasks: usize) -> Self {
        self.settings.max_pending_tasks = tasks;
        self
    }

    /// Sets the maximum number of scheduled tasks of each loop, for example from
    /// [`EventLoop::schedule`]. Further ones are refused. The default is 1,048,576.
    pub fn max_scheduled_tasks(mut self, tasks: usize) -> Self {
        self.settings.max_scheduled_tasks = tasks;
        self
    }

    /// Sets the maximum number of connections of each loop, inbound and outbound. The default is
    /// 1,048,576. When every loop of the group is full, an accepted connection is closed
    /// immediately, and an outbound connection fails with [`Error::Full`].
    ///
    /// If only the chosen loop is full, the next loop with room gets the connection. A listener of
    /// [`listener_per_loop`](crate::ServerBootstrap::listener_per_loop) closes it instead. For
    /// limits per server and per address see [`Admission`](crate::admission::Admission).
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Sets how many sockets of closed channels may linger on each loop. The default is 1024. Zero
    /// disables lingering.
    ///
    /// A channel that closes gracefully shuts down the write half of its socket. The socket then
    /// stays open until the peer ends the connection, at most until the channel's
    /// [`close_timeout`](crate::channel::ChannelOptions::close_timeout) has passed, and further
    /// input of the peer is discarded. Without lingering, that input would make the kernel reset
    /// the connection, and the peer would lose the bytes that it has not read yet. Lingering
    /// sockets count as [connections](Self::max_connections). When a loop exceeds this limit, its
    /// oldest lingering socket is closed immediately and counted as
    /// [`lingering_cut`](crate::metrics::LoopMetrics::lingering_cut).
    pub fn max_lingering(mut self, sockets: usize) -> Self {
        self.settings.max_lingering = sockets;
        self
    }

    /// Sets the maximum number of event sources that may be registered on each loop
    /// ([`EventLoop::register`]). Further ones are refused with [`Error::Full`]. The default is
    /// 16,384.
    pub fn max_event_sources(mut self, sources: usize) -> Self {
        self.settings.max_event_sources = sources;
        self
    }

    /// Sets the maximum number of pending outbound bytes of all channels of a loop together. This
    /// bounds the memory that slow peers can occupy. The default is 1 GiB.
    ///
    /// When the limit is reached, the [`overflow`](crate::channel::ChannelOptions::overflow) policy
    /// applies to writes to channels with more pending bytes than their low water mark, as if they
    /// had reached their own limit. Channels below their low water mark are not affected, so peers
    /// that keep up do not notice. A loop may therefore exceed the limit by one low water mark per
    /// channel.
    pub fn max_outbound(mut self, bytes: usize) -> Self {
        self.settings.max_outbound = bytes;
        self
    }

    /// Sets the maximum number of pending outbound bytes of all channels of all loops together.
    /// Works like [`max_outbound`](Self::max_outbound). The default is unlimited.
    ///
    /// Loops publish their totals at the end of their turns, to the nearest 64 KiB. So the limit
    /// may be exceeded by the amount that each loop writes in a turn. Groups that are built from
    /// clones of this builder each have their own limit.
    pub fn max_group_outbound(mut self, bytes: usize) -> Self {
        self.max_group_outbound = bytes;
        self
    }

    /// Sets the granularity of idle timeouts. An idle event is late by at most this time. The
    /// default is 100 ms.
    pub fn wheel_tick(mut self, tick: Duration) -> Self {
        self.settings.wheel_tick = tick;
        self
    }

    /// Sets the number of slots in the first level of each loop's timer wheel. The default is 512.
    pub fn wheel_slots(mut self, slots: usize) -> Self {
        self.settings.wheel_slots = slots;
        self
    }

    /// Sets the number of consecutive premature wakeups after which a loop rebuilds its poll. The
    /// default is 512. Values below 3 disable rebuilding.
    pub fn rebuild_threshold(mut self, returns: u32) -> Self {
        self.settings.rebuild_threshold = returns;
        self
    }

    /// Sets the [`Chooser`] that selects the loop of each new connection. The default is
    /// [`RoundRobin`](crate::group::RoundRobin). Use
    /// [`LeastConnections`](crate::group::LeastConnections) if some connections live long, and
    /// [`LeastLag`](crate::group::LeastLag) if some are expensive.
    ///
    /// Groups that are built from clones of this builder share the chooser.
    pub fn chooser(mut self, chooser: impl Chooser + 'static) -> Self {
        self.chooser = Some(Arc::new(chooser));
        self
    }

    /// Pins each loop's thread to one core: the first loop to the first core of `cores`, and so on,
    /// starting over if there are more loops than cores. Cores have the numbers of the operating
    /// system, starting at 0. By default, threads are not pinned.
    ///
    /// If a thread cannot be pinned when it starts, it logs a warning and runs unpinned. On macOS
    /// pinning is only a hint. Threads that are started by a pinned loop inherit its core, unless
    /// they are pinned themselves.
    pub fn pin_to(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.pin_to = Some(cores.into_iter().collect());
        self
    }

    /// Sets how long a loop keeps polling without sleeping after its last I/O, task or timer. The
    /// default is 0, which means that an idle loop sleeps immediately.
    ///
    /// A polling loop occupies a whole core. In return, replies do not wait until the system has
    /// woken a thread, and other threads need no system call to wake the loop. Use it for latencies
    /// of a few microseconds on machines with spare cores.
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.settings.busy_poll = time;
        self
    }

    /// Sets the clock of the loops. Tests use a [`ManualClock`](crate::testing::ManualClock). The
    /// default is [`SystemClock`](crate::time::SystemClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Sets the seed of the random numbers that the loops draw: the jitter of idle timeouts,
    /// heartbeats and periodic tasks, and the delays of clients that
    /// [reconnect](crate::reconnect::Backoff). The default is a random seed from the operating
    /// system.
    ///
    /// Each loop has its own generator. The seed of a generator is derived from this one and the
    /// number of the loop. A generator returns the same sequence for the same seed. So a program
    /// that runs on a [`ManualClock`](crate::testing::ManualClock), one turn after the other, draws
    /// the same jitter in each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Watches the loops and reports loops that are stuck. See [`Watchdog`]. By default, loops are
    /// not watched.
    pub fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// Sets the worker pool that runs blocking work
    /// ([`Context::offload`](crate::Context::offload)). Several groups may share a pool. By
    /// default, each group has its own.
    pub fn workers(mut self, pool: &WorkerPool) -> Self {
        self.workers = Some(pool.clone());
        self
    }

    /// Sets the executor that runs the futures of [`Context::spawn`](crate::Context::spawn). The
    /// default is none.
    ///
    /// With the feature `tokio` it can be the handle of a tokio runtime:
    ///
    /// ```
    /// # #[cfg(feature = "tokio")]
    /// # fn main() -> netwheel::Result {
    /// # use netwheel::EventLoopGroup;
    /// let runtime = tokio::runtime::Builder::new_current_thread().build().map_err(netwheel::Error::other)?;
    /// let group = EventLoopGroup::builder().executor(runtime.handle().clone()).build()?;
    /// # Ok(())
    /// # }
    /// # #[cfg(not(feature = "tokio"))]
    /// # fn main() {}
    /// ```
    pub fn executor(mut self, executor: impl Spawn) -> Self {
        self.settings.executor = Executor::new(executor);
        self
    }

    /// Builds the group. Its threads start when they are first needed.
    ///
    /// # Errors
    /// [`Error::Setting`] if a setting is out of range. [`Error::Io`] if the operating system
    /// refuses to create a poll.
    pub fn build(self) -> Result<EventLoopGroup> {
        let threads = if self.threads == 0 { machine::processors() * 2 } else { self.threads };
        let cores = self.pin_to.as_deref().map(Core::all).transpose()?;
        let core = |n: usize| cores.as_ref().map(|cores| cores[n % cores.len()]);
        // Loops do not have threads yet, so loops that were built before a failure are simply
        // dropped.
        let watchdog_thread = self.watchdog_thread()?;
        let outbound = self.outbound()?;
        let workers = self.workers.clone().unwrap_or_default();
        let seed = self.seed.or_else(machine::seed).unwrap_or_else(Random::system_seed);
        let build = |n| {
            let shared = (outbound.clone(), workers.clone(), seed);
            EventLoop::new(self.config(n, core(n), watchdog_thread.clone(), shared)?)
        };
        let loops = (0..threads).map(build).collect::<Result<Vec<_>>>()?;
        let lookups = self.lookups()?;
        Ok(EventLoopGroup::of(loops, self.chooser, workers, lookups))
    }

    /// Builds a group of one loop without a thread. The caller runs the loop on the current thread.
    ///
    /// # Errors
    /// [`Error::Setting`] if `threads` is more than 1, or if `pin_to` is set, because the thread
    /// belongs to the caller. Otherwise the errors of [`build`](EventLoopGroupBuilder::build).
    pub fn build_manual(self) -> Result<ManualEventLoop> {
        machine::refuse_in_simulation("a manual event loop")?;
        if self.threads > 1 {
            return Err(Error::setting("threads", self.threads, "at most 1 for a manual loop"));
        }
        if let Some(cores) = self.pin_to {
            let allowed = "unset for a manual loop";
            return Err(Error::setting("pin_to", format!("{cores:?}"), allowed));
        }
        let workers = self.workers.clone().unwrap_or_default();
        let seed = self.seed.or_else(machine::seed).unwrap_or_else(Random::system_seed);
        let config =
            self.config(0, None, self.watchdog_thread()?, (self.outbound()?, workers.clone(), seed))?;
        let lookups = self.lookups()?;
        ManualEventLoop::new(config, |event_loop| {
            EventLoopGroup::of(vec![event_loop], self.chooser, workers, lookups)
        })
    }

    /// Checks the settings and returns those of loop number `n`.
    fn config(
        &self,
        n: usize,
        core: Option<Core>,
        watchdog_thread: Option<Arc<WatchdogThread>>,
        (group_outbound, workers, seed): (Arc<SharedBudget>, WorkerPool, u64),
    ) -> Result<LoopConfig> {
        if self.name.contains('\0') {
            return Err(Error::setting("name", format!("{:?}", self.name), "text without a NUL"));
        }
        self.settings.check()?;
        Ok(LoopConfig {
            name: format!("{}-{n}", self.name),
            settings: self.settings.clone(),
            group_outbound,
            core,
            seed: Random::derive(seed, n),
            watchdog_thread,
            workers,
        })
    }

    /// Returns the pool that looks up names.
    fn lookups(&self) -> Result<WorkerPool> {
        let pool = WorkerPool::builder().threads(LOOKUP_THREADS).max_pending(MAX_LOOKUPS);
        pool.name(format!("{}-lookup", self.name)).build()
    }

    /// Returns the outbound budget that all loops of the group share.
    fn outbound(&self) -> Result<Arc<SharedBudget>> {
        check_range("max_group_outbound", self.max_group_outbound, 1.., "1 byte or more")?;
        Ok(Arc::new(SharedBudget::new(self.max_group_outbound)))
    }

    /// Returns the watchdog of all loops of the group, if one is configured.
    fn watchdog_thread(&self) -> Result<Option<Arc<WatchdogThread>>> {
        let Some(watchdog) = &self.watchdog else { return Ok(None) };
        watchdog.check()?;
        Ok(Some(Arc::new(WatchdogThread::new(&self.name, watchdog.clone()))))
    }
}

impl fmt::Debug for EventLoopGroupBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoopGroupBuilder")
            .field("threads", &self.threads)
            .field("name", &self.name)
            .field("settings", &self.settings)
            .field("max_group_outbound", &self.max_group_outbound)
            .field("pin_to", &self.pin_to)
            .field("seed", &self.seed)
            .field("watchdog", &self.watchdog)
            .field("workers", &self.workers)
            .finish_non_exhaustive()
    }
}
