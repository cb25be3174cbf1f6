//! The settings of a group, with their defaults and ranges.
//!
//! Invariant: settings are checked by `build`, which refuses with the name of the setting, the
//! value and the range. Runs on the thread that builds.

use super::{Chooser, EventLoopGroup, ManualEventLoop};
use crate::{
    Clock, Error, Result, Spawn,
    channel::SharedBudget,
    event_loop::{Core, EventLoop, LoopConfig, LoopSettings, UNLIMITED, Watchdog, WatchdogThread},
    executor::Executor,
    settings::check_range,
    sync::{Random, loop_id::LoopIds},
    worker_pool::WorkerPool,
};
use std::{fmt, sync::Arc, time::Duration};

/// Settings of an [`EventLoopGroup`]; refused values are reported by [`build`](EventLoopGroupBuilder::build).
///
/// | setting | default | range |
/// |---|---|---|
/// | `threads` | 0, which means twice the processors | 0 or more |
/// | `name` | "netwheel"; threads are called name-0, name-1, … | |
/// | `io_ratio` | 50 | 1 to 99 percent; 100 is the same as `unlimited_tasks` |
/// | `max_task_time` | 100 ms in each turn, for tasks and once more for timers | more than 0 |
/// | `max_io_time` | 100 ms in each turn | more than 0 |
/// | `max_pending_tasks` | 1,048,576 for each loop | 16 or more |
/// | `max_scheduled_tasks` | 1,048,576 for each loop | 16 or more |
/// | `max_connections` | 1,048,576 for each loop | 1 or more |
/// | `max_lingering` | 1024 for each loop | 0 or more; 0: no socket lingers |
/// | `max_event_sources` | 16,384 for each loop | 1 or more |
/// | `max_outbound` | 1 GiB for each loop | 1 B or more |
/// | `max_group_outbound` | none but those of its loops | 1 B or more |
/// | `wheel_tick` | 100 ms | more than 0; below 1 ms it becomes 1 ms |
/// | `wheel_slots` | 512 | 1 to 65,536, rounded up to a power of two |
/// | `rebuild_threshold` | 512 premature returns in a row | below 3: never |
/// | `chooser` | [`RoundRobin`](crate::RoundRobin) | |
/// | `pin_to` | threads run where they may | cores that the building thread may use |
/// | `busy_poll` | 0, which means never | 0 or more |
/// | `clock` | [`SystemClock`](crate::SystemClock) | |
/// | `executor` | none | |
/// | `seed` | a number from the operating system | |
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
    loop_ids: Option<Arc<LoopIds>>,
    workers: Option<WorkerPool>,
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
            loop_ids: None,
            workers: None,
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
    /// `t × (100 − ratio) / ratio`, at most [`max_task_time`](Self::max_task_time). Due timers get as much once more.
    ///
    /// The phase ends with the task that exceeds its time. Without any time it still runs 64 tasks, or as many as
    /// begin within 100 µs, and at least one.
    pub fn io_ratio(mut self, percent: u32) -> Self {
        self.settings.io_ratio = percent;
        self
    }

    /// Runs in each turn all tasks that wait when its I/O is done, and up to 1024 due timers, however long that takes.
    pub fn unlimited_tasks(self) -> Self {
        self.io_ratio(u32::from(UNLIMITED))
    }

    /// Sets the most time that tasks get in a turn, and timers once more, whatever the ratio gives. The default is
    /// 100 ms.
    ///
    /// A phase ends with the first task that exceeds its time. Short tasks share a reading of the clock: where a task
    /// turns slow although others from the same place in the source were short just before, up to 31 more run.
    pub fn max_task_time(mut self, time: Duration) -> Self {
        self.settings.max_task_time = time;
        self
    }

    /// Sets the most time that a turn spends on sockets: reading, decoding, the handlers' `read`, accepting. The
    /// default is 100 ms.
    ///
    /// Sources that are ready and have not had their turn by then come first in the next turn, in order. A channel is
    /// interrupted between two messages, and keeps what is not decoded. At least one message is handled in each turn.
    /// Quick requests share a reading of the clock: where they turn slow, up to 63 more are handled, once.
    ///
    /// Sending at the end of the turn is bounded by
    /// [`writes_per_turn`](crate::ChannelOptions::writes_per_turn) instead.
    pub fn max_io_time(mut self, time: Duration) -> Self {
        self.settings.max_io_time = time;
        self
    }

    /// Tasks that may wait in each loop's queue; more are refused.
    pub fn max_pending_tasks(mut self, tasks: usize) -> Self {
        self.settings.max_pending_tasks = tasks;
        self
    }

    /// Tasks that each loop may have scheduled for later, by [`EventLoop::schedule`] and its like; more are refused.
    pub fn max_scheduled_tasks(mut self, tasks: usize) -> Self {
        self.settings.max_scheduled_tasks = tasks;
        self
    }

    /// Connections that each loop may have, accepted ones and those of the program's own. One that is accepted when every
    /// loop of the group has as many is closed at once; one that the program wants to make fails with [`Error::Full`].
    ///
    /// If only the loop whose turn it is has as many, the next one that has room gets the connection. For limits of one
    /// server and of one address see [`Admission`](crate::Admission).
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Sets how many sockets of closed channels may linger on each loop. The default is 1024; with
    /// 0 none lingers.
    ///
    /// A channel that closes gracefully shuts down the write half of its socket. The socket then
    /// stays open until the peer ends the connection, at most until the channel's
    /// [`close_timeout`](crate::ChannelOptions::close_timeout) has passed, and the peer's further
    /// input is discarded. Without this, that input would make the kernel reset the connection, and
    /// the peer would lose the bytes that it has not read yet. Lingering sockets count as
    /// [connections](Self::max_connections). When a loop has one more than this limit, the oldest
    /// is closed at once and counted as [`lingering_cut`](crate::LoopMetrics::lingering_cut).
    pub fn max_lingering(mut self, sockets: usize) -> Self {
        self.settings.max_lingering = sockets;
        self
    }

    /// Sets the largest number of event sources that may be registered on each loop
    /// ([`EventLoop::register`]). Further ones are refused with [`Error::Full`].
    pub fn max_event_sources(mut self, sources: usize) -> Self {
        self.settings.max_event_sources = sources;
        self
    }

    /// Bytes that all channels of each loop together may have waiting to be sent, as a bound to what slow peers cost.
    ///
    /// When they have as much, a write to a channel that has more than its low water mark waiting meets with its
    /// [`overflow`](crate::ChannelOptions::overflow) policy, as if it had reached its own limit. Up to their low water mark all
    /// channels go on: so peers that keep up do not notice, and a loop may have that much per channel beyond this.
    pub fn max_outbound(mut self, bytes: usize) -> Self {
        self.settings.max_outbound = bytes;
        self
    }

    /// Bytes that all channels of all loops together may have waiting to be sent; otherwise as
    /// [`max_outbound`](Self::max_outbound).
    ///
    /// Loops tell each other at the end of their turns, to the nearest 64 KiB: so it may be exceeded by what each of them
    /// writes in a turn. Groups that are built from clones of this builder have a limit each.
    pub fn max_group_outbound(mut self, bytes: usize) -> Self {
        self.max_group_outbound = bytes;
        self
    }

    /// Granularity of idle timeouts: an event is at most this much late.
    pub fn wheel_tick(mut self, tick: Duration) -> Self {
        self.settings.wheel_tick = tick;
        self
    }

    /// Slots of the first level of each loop's wheel.
    pub fn wheel_slots(mut self, slots: usize) -> Self {
        self.settings.wheel_slots = slots;
        self
    }

    /// Premature returns of the poll in a row after which it is built anew; below 3 it never is.
    pub fn rebuild_threshold(mut self, returns: u32) -> Self {
        self.settings.rebuild_threshold = returns;
        self
    }

    /// Which loop gets the next connection: [`RoundRobin`](crate::RoundRobin) if nothing is said,
    /// [`LeastConnections`](crate::LeastConnections) where some live long, [`LeastLag`](crate::LeastLag) where some
    /// cost much, or a [`Chooser`] of the program's own.
    ///
    /// Groups that are built from clones of this builder share it.
    pub fn chooser(mut self, chooser: impl Chooser + 'static) -> Self {
        self.chooser = Some(Arc::new(chooser));
        self
    }

    /// Makes each loop's thread run on one core: the first loop on the first of these, and so on, and round again if
    /// they are fewer than the loops. Cores are numbered as the system does it, from 0.
    ///
    /// A thread that cannot be pinned when it starts logs that and runs where it may; on macOS this is only a hint to
    /// the system. Threads that a pinned loop starts stay on its core unless they are pinned themselves: that is how
    /// the system does it.
    pub fn pin_to(mut self, cores: impl IntoIterator<Item = usize>) -> Self {
        self.pin_to = Some(cores.into_iter().collect());
        self
    }

    /// For how long a loop polls without sleeping after its last work (I/O, tasks, timers), before it sleeps.
    ///
    /// That takes a whole core for each loop meanwhile, and saves the time that the system needs to wake a thread:
    /// for replies within a few microseconds where cores are to spare. Nobody has to wake a loop that polls.
    pub fn busy_poll(mut self, time: Duration) -> Self {
        self.settings.busy_poll = time;
        self
    }

    /// Where the loops take their time from; tests give a [`ManualClock`](crate::testing::ManualClock).
    pub fn clock(mut self, clock: impl Clock + 'static) -> Self {
        self.settings.clock = Arc::new(clock);
        self
    }

    /// Sets the seed of the random numbers that the loops draw: the jitter of idle timeouts, heartbeats
    /// and periodic tasks, and the delays of clients that [reconnect](crate::Backoff). By default the
    /// seed is a random number of the operating system.
    ///
    /// Each loop has a generator of its own, whose seed is derived from this one and the number of the
    /// loop. The generator returns the same numbers for the same seed, in the order in which it is
    /// asked. So a program that runs on a [`ManualClock`](crate::testing::ManualClock), one turn after
    /// the other, draws the same jitter in each run.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Watches the loops, and says when one of them is stuck; see [`Watchdog`]. Without one nobody does.
    pub fn watchdog(mut self, watchdog: Watchdog) -> Self {
        self.watchdog = Some(watchdog);
        self
    }

    /// Sets what numbers the loops, for a simulation that makes groups on one thread.
    #[allow(dead_code, reason = "for drivers other than the kernel")]
    pub(crate) fn loop_ids(mut self, ids: &Arc<LoopIds>) -> Self {
        self.loop_ids = Some(ids.clone());
        self
    }

    /// The threads that work which blocks is given to ([`Context::offload`](crate::Context::offload)); several groups may
    /// share them.
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

    /// The group; its threads start when they are first needed.
    ///
    /// # Errors
    /// If a setting is out of its range, or the operating system gives no poll.
    pub fn build(self) -> Result<EventLoopGroup> {
        let processors = || std::thread::available_parallelism().map_or(1, usize::from);
        let threads = if self.threads == 0 { processors() * 2 } else { self.threads };
        let cores = self.pin_to.as_deref().map(Core::all).transpose()?;
        let core = |n: usize| cores.as_ref().map(|cores| cores[n % cores.len()]);
        // Loops have no thread yet, so those built before a failure just go.
        let watchdog_thread = self.watchdog_thread()?;
        let outbound = self.outbound()?;
        let workers = self.workers.clone().unwrap_or_default();
        let seed = self.seed.unwrap_or_else(Random::system_seed);
        let build = |n| {
            let shared = (outbound.clone(), workers.clone(), seed);
            EventLoop::new(self.config(n, core(n), watchdog_thread.clone(), shared)?)
        };
        let loops = (0..threads).map(build).collect::<Result<Vec<_>>>()?;
        Ok(EventLoopGroup::of(loops, self.chooser, workers))
    }

    /// One loop without a thread, which the caller drives by hand on this thread.
    ///
    /// # Errors
    /// As [`build`](EventLoopGroupBuilder::build); and if `threads` is more than one, or `pin_to` is set: the thread
    /// is the caller's.
    pub fn build_manual(self) -> Result<ManualEventLoop> {
        if self.threads > 1 {
            return Err(Error::setting("threads", self.threads, "at most 1 where a loop is driven by hand"));
        }
        if let Some(cores) = self.pin_to {
            let allowed = "nothing where a loop is driven by hand";
            return Err(Error::setting("pin_to", format!("{cores:?}"), allowed));
        }
        let workers = self.workers.clone().unwrap_or_default();
        let seed = self.seed.unwrap_or_else(Random::system_seed);
        let config =
            self.config(0, None, self.watchdog_thread()?, (self.outbound()?, workers.clone(), seed))?;
        ManualEventLoop::new(config, |event_loop| EventLoopGroup::of(vec![event_loop], self.chooser, workers))
    }

    /// The settings of loop number `n`, checked.
    fn config(
        &self,
        n: usize,
        core: Option<Core>,
        watchdog_thread: Option<Arc<WatchdogThread>>,
        (group_outbound, workers, seed): (Arc<SharedBudget>, WorkerPool, u64),
    ) -> Result<LoopConfig> {
        self.settings.check()?;
        Ok(LoopConfig {
            name: format!("{}-{n}", self.name),
            settings: self.settings.clone(),
            group_outbound,
            core,
            seed: Random::derive(seed, n),
            watchdog_thread,
            loop_ids: self.loop_ids.clone(),
            workers,
        })
    }

    /// What all loops of the group may have waiting to be sent.
    fn outbound(&self) -> Result<Arc<SharedBudget>> {
        check_range("max_group_outbound", self.max_group_outbound, 1.., "1 byte or more")?;
        Ok(Arc::new(SharedBudget::new(self.max_group_outbound)))
    }

    /// Who watches all loops of the group.
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
