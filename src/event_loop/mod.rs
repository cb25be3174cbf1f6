//! Event loops: one thread each, which polls its sockets, runs its tasks and timers, and serves its channels.
//!
//! [`EventLoop`] is the handle, which any thread may hold (`schedule` has its ways to run something later, `shutdown`
//! those to end it). The loop itself is in `turn` (the order of things) with `task_phase` and `timer_phase` (what runs
//! for how long, by `budget`), `selector` (the poll, wake causes), `sleep` (whether and how long), `spin` (turning in
//! vain), `guard` (panics that nobody has caught), `rebuild` (moving to a new poll), `io`
//! (closing a channel's socket), `linger` and `lingering`
//! (closing a socket slowly), `accept` (new connections), `datagrams` (channels of UDP), `foreign`
//! (event sources of the program's own), `task` and `tasks` (given, and scheduled ones, repeated
//! as `periodic` says, found by
//! `local`) and `shutdown`. `stopwatch`, `load` (how many connections, how long turns take), `metrics` and `watchdog`
//! look on. `manual` is the loop without a thread, `affinity` says where a thread runs.

mod accept;
mod accept_retry;
mod affinity;
mod broadcast;
mod budget;
mod datagrams;
#[cfg(unix)]
mod foreign;
mod guard;
mod io;
mod lanes;
mod linger;
mod lingering;
mod load;
mod local;
mod loop_settings;
mod loop_waker;
mod manual;
mod pace;
mod periodic;
mod poll_phase;
mod rebuild;
mod schedule;
mod selector;
mod shared;
mod shutdown;
mod sleep;
mod sources;
mod spin;
mod stopwatch;
mod task;
mod task_phase;
mod tasks;
mod timer_phase;
mod turn;
mod watchdog;

pub(crate) use accept_retry::AcceptRetry;
pub(crate) use affinity::Core;
pub(crate) use budget::UNLIMITED;
#[cfg(unix)]
pub use foreign::{Interest, Readiness, SourceAction, SourceContext, SourceHandle};
pub(crate) use io::Io;
pub(crate) use linger::Ended;
pub(crate) use load::Assignment;
pub(crate) use loop_settings::LoopSettings;
pub use manual::ManualEventLoop;
pub use periodic::{MissedRuns, Periodic};
pub use rebuild::{RebuildCause, RebuildReport};
pub(crate) use shared::{LifeState, LoopMail, LoopShared};
pub use shutdown::{ShutdownOptions, ShutdownReport};
pub(crate) use shutdown::{ShutdownRequest, end_and_report, end_gracefully};
pub use sources::Peer;
pub(crate) use sources::{
    Attempt, ChildSetup, Connected, Connecting, ListenerGuard, ListenerShared, Listening, ServerClosed,
    ServerShared,
};
pub use tasks::ScheduledTask;
pub(crate) use watchdog::WatchdogThread;
use watchdog::WatchedLoop;
pub use watchdog::{Stall, Watchdog};

use crate::{
    Error, Result,
    channel::{IoTime, LoopServices, MailSender, OutboundBudget, SharedBudget, driver::LoopIo},
    clock::{TimeSource, nanos},
    error::{Refused, caught},
    log_throttle::{LogAt, off_loop},
    metrics::LoopMetrics,
    sync::{
        Completion, Phase, completion,
        loop_id::{self, LoopIds},
        mailbox,
    },
    timer::Wheel,
    worker_pool::WorkerPool,
};
use broadcast::Broadcasts;
use pace::Pace;
use selector::Selector;
use sleep::Sleep;
use sources::Sources;
use spin::SpinGuard;
use std::{collections::VecDeque, fmt, panic::Location, sync::Arc, time::Duration};
use stopwatch::Stopwatch;
use task::Task;
use turn::Turn;

/// A handle to one event loop; can be cloned, sent and shared.
///
/// Its thread starts with the first thing that it is given to do. Everything here may be called from any thread,
/// the loop's own included; tasks run on the loop's thread, one after the other, in the order in which one
/// thread gave them.
#[derive(Clone)]
pub struct EventLoop {
    pub(crate) shared: Arc<LoopShared>,
}

/// What a loop is built with; see [`EventLoopGroupBuilder`](crate::EventLoopGroupBuilder).
#[derive(Debug, Clone)]
pub(crate) struct LoopConfig {
    pub(crate) name: String,
    /// Within their ranges.
    pub(crate) settings: LoopSettings,
    pub(crate) group_outbound: Arc<SharedBudget>,
    pub(crate) core: Option<Core>,
    /// Of the loop's random numbers.
    pub(crate) seed: u64,
    pub(crate) watchdog_thread: Option<Arc<WatchdogThread>>,
    /// Numbers the loop; without it the process does.
    pub(crate) loop_ids: Option<Arc<LoopIds>>,
    pub(crate) workers: WorkerPool,
}

/// Makes the loop itself, on the thread that will run it.
type MakeTurn = Box<dyn FnOnce(Arc<LoopShared>) -> Turn + Send>;

impl EventLoop {
    /// A loop whose thread starts with the first thing that it is given to do.
    pub(crate) fn new(config: LoopConfig) -> Result<Self> {
        let (core, watchdog_thread) = (config.core, config.watchdog_thread.clone());
        let (shared, make) = Self::prepare(config)?;
        // The seed is kept in what it refers to: a strong reference would keep a loop that never starts for ever.
        let weak = Arc::downgrade(&shared);
        shared.set_seed(Box::new(move || {
            let shared = weak.upgrade().expect("a loop is started through a handle to it");
            Box::new(move || {
                if let Some(core) = core {
                    core.pin(&shared.name);
                }
                live(make(shared), watchdog_thread);
            })
        }));
        Ok(EventLoop { shared })
    }

    /// What the handles of a loop share, and what becomes the loop on whatever thread will run it.
    fn prepare(config: LoopConfig) -> Result<(Arc<LoopShared>, MakeTurn)> {
        let settings = config.settings;
        let wheel =
            Wheel::<crate::id::Key>::builder().tick(settings.wheel_tick).slots(settings.wheel_slots).build();
        let wheel = wheel.map_err(as_setting_of_a_group)?;
        let (selector, waker) = Selector::new().map_err(|e| Error::io("opening a poll", e))?;
        let (mailbox, inbox) = mailbox(settings.max_pending_tasks);
        let time = TimeSource::new(settings.clock.clone());
        let (tasks, connections) = (settings.max_scheduled_tasks, settings.max_connections);
        let (id, name) = (config.loop_ids.map_or_else(loop_id::next, |ids| ids.next()), config.name);
        let shared = LoopShared::new(id, name, time.clone(), mailbox, tasks, connections, waker);
        let shared = shared.with_seed(config.seed);
        #[cfg(unix)]
        let shared = shared.with_max_event_sources(settings.max_event_sources);
        let shared = Arc::new(shared);
        if !settings.clock.is_real_time() {
            let weak = Arc::downgrade(&shared);
            settings.clock.on_advance(Box::new(move || {
                if let Some(shared) = weak.upgrade() {
                    shared.wake_if_asleep(0);
                }
            }));
        }
        let (group_outbound, workers) = (config.group_outbound, config.workers);
        let real_time = settings.clock.is_real_time();
        let sleep = Sleep::new(settings.clock.longest_sleep(), settings.busy_poll);
        let make = move |shared: Arc<LoopShared>| {
            let outlet: Arc<dyn MailSender> = shared.clone();
            let outbound = OutboundBudget::new(settings.max_outbound, group_outbound);
            let activity = shared.activity.clone();
            let log = shared.log.clone();
            let mut services = LoopServices::new(time, wheel, outlet, activity, log, outbound, workers);
            services.io_time = IoTime::limited(nanos(settings.max_io_time), real_time);
            services.random = shared.random.clone();
            let io = Io {
                selector,
                drivers: LoopIo::new(services, shared.metrics.clone()),
                inactive: Vec::new(),
                lingering: lingering::Lingering::new(settings.max_lingering),
            };
            let now = io.services.now;
            Turn {
                shared,
                inbox,
                sources: Sources::new(),
                io,
                budget: settings.budget(),
                task_pace: Pace::new(real_time),
                timer_pace: Pace::new(real_time),
                deliver_pace: Pace::of_deliveries(real_time),
                spin: SpinGuard::new(settings.rebuild_threshold),
                watch: Stopwatch::new(now),
                shutdown: None,
                sleep,
                real_time,
                timers_left: false,
                broadcasts: Broadcasts::default(),
                at_end: VecDeque::new(),
                rest_until: None,
                poll_failures: 0,
                failure_logged: false,
            }
        };
        Ok((shared, Box::new(make)))
    }

    /// The name of its thread.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether the calling thread is this loop's.
    pub fn in_event_loop(&self) -> bool {
        self.shared.is_in_event_loop()
    }

    /// What the loop has counted, as it is now; from any thread, and never blocks the loop.
    ///
    /// It reads some three hundred numbers, without a lock or a system call, whatever the loop is doing.
    #[doc(alias = "snapshot")]
    pub fn metrics(&self) -> LoopMetrics {
        let mut metrics = self.shared.metrics.snapshot();
        metrics.tasks_pending = self.shared.mailbox.len() as u64;
        metrics.tasks_refused = self.shared.mailbox.refused() as u64;
        metrics.log_lines_suppressed = self.shared.log.suppressed();
        metrics
    }

    /// Connections that the loop serves now, or will: each counts from the moment in which it is assigned to the
    /// loop (accepted, or about to be made) until its handler is dropped and its socket is closed,
    /// or it has failed. A socket that [lingers](crate::EventLoopGroupBuilder::max_lingering) still
    /// counts.
    pub fn connections(&self) -> usize {
        self.shared.load.connections()
    }

    /// The weights of these connections ([`ChannelOptions::weight`](crate::ChannelOptions::weight)) together; as long
    /// as all weigh 1, their number.
    pub fn load(&self) -> usize {
        self.shared.load.weight()
    }

    /// About how long something that is given to the loop now would wait: the time that a turn takes, for as many
    /// turns as it may need to come to it through the queue.
    ///
    /// A turn takes as long as the longest of late, which is forgotten over about a second, or as the one that is
    /// running, if that is longer: so a loop that is held up by a task shows it at once. A loop that sleeps and had
    /// little to do shows next to nothing. Reads the clock; meant to compare loops, not to be precise.
    pub fn lag(&self) -> Duration {
        let turn = self.shared.load.turn_time(self.shared.time.now());
        let turns = 1 + self.shared.mailbox.len() / budget::FLOOR as usize;
        Duration::from_nanos(turn.saturating_mul(turns as u64))
    }

    /// Runs `task` on the loop.
    ///
    /// A panic in it is logged with the place of this call; the loop goes on.
    ///
    /// # Errors
    /// If the loop's queue is full, or the loop is shut down. The task is dropped; [`try_execute`] hands it back.
    ///
    /// [`try_execute`]: EventLoop::try_execute
    #[track_caller]
    pub fn execute(&self, task: impl FnOnce() + Send + 'static) -> Result {
        let origin = Location::caller();
        self.shared.submit_with(0, move || LoopMail::Task(Task::new(task, origin)))
    }

    /// As [`execute`](EventLoop::execute), but hands the task back if it is refused.
    ///
    /// # Errors
    /// If the loop's queue is full, or the loop is shut down.
    #[track_caller]
    pub fn try_execute(
        &self,
        task: Box<dyn FnOnce() + Send>,
    ) -> Result<(), Refused<Box<dyn FnOnce() + Send>>> {
        self.submit_boxed(task, Location::caller(), |mail| self.shared.submit(mail, 0))
    }

    /// As [`try_execute`](EventLoop::try_execute), but waits up to `timeout` for room in the loop's queue.
    ///
    /// The calling thread sleeps meanwhile; the time is real time, whatever clock the loop has. The task is in the
    /// queue, not run, when this returns. Tasks that one thread gives keep their order; among threads that wait,
    /// any may be the next. There is room when a turn of the loop has taken its share of tasks, not after each.
    ///
    /// ```
    /// # use netwheel::{EventLoopGroup, Error};
    /// # use std::time::Duration;
    /// let group = EventLoopGroup::builder().threads(1).max_pending_tasks(16).build()?;
    /// for n in 0..1000 {
    ///     // A producer that is faster than the loop is slowed down; nothing is lost.
    ///     group.next().execute_timeout(Duration::from_secs(10), Box::new(move || println!("{n}")))?;
    /// }
    /// # group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(10)).wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// The task comes back with [`Error::WouldDeadlock`] on the loop itself, and on the thread that drives it by hand
    /// ([`ManualEventLoop`]), at once and even if there is room;
    /// with [`Error::Full`] if there was none until the time was up; with [`Error::ShutDown`] if the loop is shut
    /// down, also while this waits.
    #[track_caller]
    pub fn execute_timeout(
        &self,
        timeout: Duration,
        task: Box<dyn FnOnce() + Send>,
    ) -> Result<(), Refused<Box<dyn FnOnce() + Send>>> {
        if loop_id::is_own(self.shared.id) {
            return Err(Refused { value: task, reason: Error::WouldDeadlock });
        }
        self.submit_boxed(task, Location::caller(), |mail| self.shared.submit_timeout(mail, timeout))
    }

    /// Runs `task` on the loop when that is awake the next time: does not wake it.
    ///
    /// For what is not urgent, like giving something back: a thousand of them cost no system call. They keep their
    /// order among all tasks that one thread gives.
    ///
    /// # Errors
    /// If the loop's queue is full, or the loop is shut down.
    #[track_caller]
    pub fn execute_lazily(&self, task: impl FnOnce() + Send + 'static) -> Result {
        let origin = Location::caller();
        self.shared.submit_with(u64::MAX, move || LoopMail::Task(Task::new(task, origin)))
    }

    fn submit_boxed(
        &self,
        task: Box<dyn FnOnce() + Send>,
        origin: &'static Location<'static>,
        submit: impl FnOnce(LoopMail) -> Result<(), Refused<LoopMail>>,
    ) -> Result<(), Refused<Box<dyn FnOnce() + Send>>> {
        submit(LoopMail::BoxedTask(task, origin)).map_err(|refused| match refused.value {
            LoopMail::BoxedTask(task, _) => Refused { value: task, reason: refused.reason },
            _ => unreachable!("the same mail comes back"),
        })
    }

    /// Opens a new poll on the loop and moves every source to it, as the loop does by itself (three times a minute at
    /// most) when its poll returns for no reason again and again. Completes with a report when that is done; with an
    /// error if no new poll can be opened, in which case the loop goes on with the old one.
    ///
    /// # Errors
    /// If the loop's queue is full, or the loop is shut down.
    pub fn rebuild_poll(&self) -> Result<Completion<RebuildReport>> {
        let (completer, completion) = completion(Some(self.shared.id));
        self.shared.submit(LoopMail::Rebuild(completer), 0).map_err(|refused| refused.reason)?;
        Ok(completion)
    }

    /// Completes when the loop has ended; with its panic, should the loop itself have failed.
    pub fn terminated(&self) -> Completion {
        self.shared.terminated()
    }

    /// Whether shutdown was asked for, or is over.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.state() >= LifeState::ShuttingDown
    }

    /// Whether the loop takes no more tasks.
    pub fn is_shut_down(&self) -> bool {
        self.shared.state() >= LifeState::ShutDown
    }

    /// Whether the loop's thread has ended.
    pub fn is_terminated(&self) -> bool {
        self.shared.state() >= LifeState::Terminated
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("name", &self.name()).field("state", &self.shared.state()).finish()
    }
}

/// Settings of the wheel, as they are called where a group is built.
fn as_setting_of_a_group(error: Error) -> Error {
    let Error::Setting(mut refused) = error else { return error };
    refused.setting = match refused.setting {
        "tick" => "wheel_tick",
        "slots" => "wheel_slots",
        other => other,
    };
    Error::Setting(refused)
}

/// The life of a loop's thread.
fn live(mut turn: Turn, watchdog_thread: Option<Arc<WatchdogThread>>) {
    let shared = turn.shared.clone();
    let _entered = loop_id::enter(shared.id);
    let _local = local::enter(shared.id, turn.io.services.queue.clone());
    let watch = watchdog_thread
        .map(|watchdog_thread| watchdog_thread.watch(&shared.name, shared.id, shared.activity.clone()));
    let cause = caught(|| turn.run());
    end(turn, cause, watch);
}

/// What follows the last turn of a loop, on its thread; `cause` is what the loop itself has failed with, `watch` is
/// over when there is nothing left that could get stuck.
fn end(turn: Turn, cause: Option<String>, watch: Option<WatchedLoop>) {
    let shared = turn.shared.clone();
    // Those who wait for the end must hear of it, even if the log panics.
    if let Some(cause) = &cause {
        caught(|| log::error!("{}: the loop itself panicked and ends: {cause}", shared.name));
    }
    shared.advance(LifeState::ShutDown);
    shared.activity.enter_phase(Phase::Shutdown);
    // Channels, handlers and what is left in the queue are dropped here, on their own thread.
    if let Some(message) = caught(move || drop(turn)) {
        caught(|| log::error!("{}: ending: {message}", shared.name));
    }
    shared.run_hooks();
    caught(|| {
        shared.log.finish(shared.time.now());
        let LogAt { log, now } = off_loop();
        log.finish(now);
    });
    drop(watch);
    shared.advance(LifeState::Terminated);
    shared.set_terminated(cause);
}
