//! Event loops: one thread each, which polls its sockets, runs its tasks and timers, and serves its channels.
//!
//! [`EventLoop`] is the handle, which any thread may hold. The loop itself is in `turn` (the order of things) with
//! `task_phase` and `timer_phase` (what runs for how long, by `budget`), `selector` (the poll, wake causes), `sleep`
//! (whether and how long), `spin` (turning in vain), `rebuild` (moving to a new poll), `io` (one channel's socket),
//! `accept` (new connections), `tasks` (scheduled tasks, repeated as `periodic` says, found by `local`) and `shutdown`.
//! `stopwatch`, `load` (how many connections, how long turns take), `metrics` and `watchdog` look on. `manual` is the
//! loop without a thread, `affinity` says where a thread runs.

mod accept;
mod affinity;
mod budget;
mod io;
mod load;
mod local;
mod manual;
mod metrics;
mod periodic;
mod rebuild;
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

pub(crate) use affinity::Core;
pub(crate) use budget::{Budget, DEFAULT_MAX_TASK_TIME, UNLIMITED};
pub use manual::ManualEventLoop;
pub use metrics::{Histogram, LoopMetrics};
pub use periodic::{MissedRuns, Periodic};
pub use rebuild::{RebuildCause, RebuildReport};
pub(crate) use shared::{LifeState, LoopMail};
pub(crate) use shutdown::ShutdownRequest;
pub use shutdown::{ShutdownOptions, ShutdownReport};
pub use sources::Peer;
pub(crate) use sources::{
    ChildSetup, Connected, Connecting, Listening, ServerClosed, ServerGuard, ServerShared,
};
pub(crate) use spin::DEFAULT_REBUILD_THRESHOLD;
pub use tasks::ScheduledTask;
pub(crate) use watchdog::Patrol;
use watchdog::Watch;
pub use watchdog::{Stall, Watchdog};

use crate::{
    Clock, Error, Result,
    buffer::ReceiveBuffers,
    channel::{LoopServices, Outlet, Scheduled},
    clock::{TimeSource, nanos},
    error::{Refused, caught},
    sync::{Completion, Phase, completion, loop_id, mailbox},
    timer::Wheel,
};
use io::Io;
use periodic::Repeat;
use selector::Selector;
use shared::LoopShared;
use sleep::Sleep;
use sources::Sources;
use spin::SpinGuard;
use std::{collections::VecDeque, fmt, panic::Location, sync::Arc, time::Duration};
use stopwatch::Stopwatch;
use task::Task;
use tasks::{Body, Entry, Permit};
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
    pub(crate) budget: Budget,
    pub(crate) max_pending_tasks: usize,
    pub(crate) max_scheduled_tasks: usize,
    pub(crate) wheel_tick: Duration,
    pub(crate) wheel_slots: usize,
    pub(crate) rebuild_threshold: u32,
    pub(crate) busy_poll: Duration,
    pub(crate) core: Option<Core>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) patrol: Option<Arc<Patrol>>,
}

/// Makes the loop itself, on the thread that will run it.
type MakeTurn = Box<dyn FnOnce(Arc<LoopShared>) -> Turn + Send>;

impl EventLoop {
    /// A loop whose thread starts with the first thing that it is given to do.
    pub(crate) fn new(config: LoopConfig) -> Result<Self> {
        let (core, patrol) = (config.core, config.patrol.clone());
        let (shared, make) = Self::prepare(config)?;
        // The seed is kept in what it refers to: a strong reference would keep a loop that never starts for ever.
        let weak = Arc::downgrade(&shared);
        shared.set_seed(Box::new(move || {
            let shared = weak.upgrade().expect("a loop is started through a handle to it");
            Box::new(move || {
                if let Some(core) = core {
                    core.pin(&shared.name);
                }
                live(make(shared), patrol);
            })
        }));
        Ok(EventLoop { shared })
    }

    /// What the handles of a loop share, and what becomes the loop on whatever thread will run it.
    fn prepare(config: LoopConfig) -> Result<(Arc<LoopShared>, MakeTurn)> {
        let wheel =
            Wheel::<crate::id::Key>::builder().tick(config.wheel_tick).slots(config.wheel_slots).build();
        let wheel = wheel.map_err(as_setting_of_a_group)?;
        let (selector, waker) = Selector::new().map_err(|e| Error::io("opening a poll", e))?;
        let (mailbox, inbox) = mailbox(config.max_pending_tasks);
        let time = TimeSource::new(config.clock.clone());
        let limit = config.max_scheduled_tasks;
        let shared = LoopShared::new(loop_id::next(), config.name, time.clone(), mailbox, limit, waker);
        let shared = Arc::new(shared);
        if !config.clock.is_real_time() {
            let weak = Arc::downgrade(&shared);
            config.clock.on_advance(Box::new(move || {
                if let Some(shared) = weak.upgrade() {
                    shared.wake_if_asleep(0);
                }
            }));
        }
        let (budget, real_time) = (config.budget, config.clock.is_real_time());
        let threshold = config.rebuild_threshold;
        let sleep = Sleep::new(config.clock.longest_sleep(), config.busy_poll);
        let make = move |shared: Arc<LoopShared>| {
            let outlet: Arc<dyn Outlet> = shared.clone();
            let io = Io {
                selector,
                services: LoopServices::new(time, wheel, outlet, shared.whereabouts.clone()),
                receive: ReceiveBuffers::new(),
                to_read: VecDeque::new(),
                turn_bytes: 0,
                listed: io::Listed::default(),
                inactive: Vec::new(),
            };
            let now = io.services.now;
            Turn {
                shared,
                inbox,
                sources: Sources::new(),
                io,
                budget,
                spin: SpinGuard::new(threshold),
                watch: Stopwatch::new(now),
                shutdown: None,
                sleep,
                real_time,
                timers_left: false,
                at_end: VecDeque::new(),
                poll_failures: 0,
                told_of_failure: false,
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
        metrics
    }

    /// Connections that the loop serves now, or will: each counts from the moment in which it is assigned to the
    /// loop (accepted, or about to be made) until its socket is closed, or it has failed.
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
        let turns = 1 + self.shared.mailbox.len() / budget::TASKS_PER_CHECK;
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

    /// Runs `task` on the loop after `delay`; its value is what the task's completion gets.
    ///
    /// Never early; late by the loop's lag (at most a millisecond of sleep granularity when it is idle). A delay
    /// beyond 584 years waits for ever. Scheduled by a task that runs because it was due, it waits for the next turn
    /// at least, even without a delay.
    ///
    /// # Errors
    /// If so many tasks are scheduled that there is no room for another one, if the loop's queue is full, or if the
    /// loop is shutting down.
    #[track_caller]
    pub fn schedule<T: Send + 'static>(
        &self,
        delay: Duration,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        let deadline = self.after(delay);
        self.submit_scheduled(
            Body::Once(Box::new(task)),
            |entry| LoopMail::Schedule(deadline, entry),
            deadline,
        )
    }

    /// Runs `task` after `initial_delay` and then every `period`, measured from start to start; runs that are
    /// missed are skipped.
    ///
    /// It ends when it is cancelled, when it returns an error or panics (its completion then fails with that),
    /// or with the loop.
    ///
    /// # Errors
    /// If `period` is zero, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_at_fixed_rate(
        &self,
        initial_delay: Duration,
        period: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        self.schedule_at_fixed_rate_with(Periodic::new(), initial_delay, period, task)
    }

    /// As [`schedule_at_fixed_rate`](EventLoop::schedule_at_fixed_rate), with a choice about missed runs and jitter.
    ///
    /// # Errors
    /// If `period` is zero or shorter than the jitter, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_at_fixed_rate_with(
        &self,
        options: impl Into<Periodic>,
        initial_delay: Duration,
        period: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        let (repeat, first) = Repeat::at_rate(period, self.after(initial_delay), options.into())?;
        let body = Body::Again { body: Box::new(task), repeat };
        self.submit_scheduled(body, |entry| LoopMail::Schedule(first, entry), first)
    }

    /// Runs `task` after `initial_delay` and then again and again, `delay` after each run has ended.
    ///
    /// # Errors
    /// If `delay` is zero, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_with_fixed_delay(
        &self,
        initial_delay: Duration,
        delay: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        self.schedule_with_fixed_delay_with(Periodic::new(), initial_delay, delay, task)
    }

    /// As [`schedule_with_fixed_delay`](EventLoop::schedule_with_fixed_delay), with a choice about jitter.
    ///
    /// # Errors
    /// If `delay` is zero or shorter than the jitter, and as of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_with_fixed_delay_with(
        &self,
        options: impl Into<Periodic>,
        initial_delay: Duration,
        delay: Duration,
        task: impl FnMut() -> Result + Send + 'static,
    ) -> Result<ScheduledTask> {
        let (repeat, first) = Repeat::with_delay(delay, self.after(initial_delay), options.into())?;
        let body = Body::Again { body: Box::new(task), repeat };
        self.submit_scheduled(body, |entry| LoopMail::Schedule(first, entry), first)
    }

    /// Runs `task` once at the end of a turn: when the tasks and timers of the turn in which it reaches the loop have
    /// run, before what they wrote is sent. For what gathers up the work of a turn. If there are more of these than
    /// the timers' share of the turn has room for (64 have it always), the rest runs at the end of the next one.
    ///
    /// # Errors
    /// As of [`schedule`](EventLoop::schedule).
    #[track_caller]
    pub fn schedule_at_turn_end<T: Send + 'static>(
        &self,
        task: impl FnOnce() -> T + Send + 'static,
    ) -> Result<ScheduledTask<T>> {
        self.submit_scheduled(Body::Once(Box::new(task)), LoopMail::AtTurnEnd, 0)
    }

    /// The loop's time after `delay`.
    fn after(&self, delay: Duration) -> u64 {
        self.shared.time.now().saturating_add(nanos(delay))
    }

    /// Gives the loop a task that can be cancelled, which it has to know of before `when`.
    #[track_caller]
    fn submit_scheduled<T: Send + 'static>(
        &self,
        body: Body<T>,
        mail: impl FnOnce(Arc<dyn Scheduled>) -> LoopMail,
        when: u64,
    ) -> Result<ScheduledTask<T>> {
        if self.shared.state() >= LifeState::ShuttingDown {
            return Err(Error::ShutDown);
        }
        let permit = Permit::take(&self.shared)?;
        let (completer, completion) = completion(Some(self.shared.id));
        let entry = Arc::new(Entry::new(body, completer, permit));
        self.shared.submit(mail(entry.clone()), when).map_err(|refused| refused.reason)?;
        Ok(ScheduledTask::new(entry, completion))
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

    /// Ends the loop: as [`shut_down`](EventLoop::shut_down) with these two times and no window, for programs that
    /// do not ask what came of it.
    ///
    /// An error ([`Error::Setting`]) if `timeout` is shorter than `quiet`; the loop goes on then.
    pub fn shutdown_gracefully(&self, quiet: Duration, timeout: Duration) -> Completion {
        match ShutdownOptions::new().quiet(quiet).timeout(timeout).check() {
            Ok(request) => {
                self.shared.shut_down(request);
                self.terminated()
            }
            Err(e) => Completion::ready(Err(e)),
        }
    }

    /// Ends the loop, in phases; completes when it has ended, with what came of it.
    ///
    /// 1. At once: its listeners close, connections in the making fail, connections that come later are closed, and
    ///    the loop's scheduled tasks are cancelled. Tasks are still taken and run.
    /// 2. Over the [`window`](ShutdownOptions::window): one channel after the other has its own scheduled tasks
    ///    cancelled and its handler told ([`Handler::shutdown`](crate::Handler::shutdown)), which closes it after
    ///    what it wrote is sent, unless the handler says otherwise. At most 1024 are told in one turn. A channel
    ///    that is closing already is left to its `close_timeout`.
    /// 3. When no channel is left and no task came for the `quiet` period, or when the `timeout` is over: no more
    ///    tasks are taken, those that wait are run, channels that are left are told if they were not, sent what the
    ///    kernel takes at once, and closed.
    /// 4. Hooks run ([`on_shutdown`](EventLoop::on_shutdown)).
    ///
    /// The first request counts; later ones complete with the same report. One line of it is logged (info). A loop
    /// that never started ends at once.
    ///
    /// An error ([`Error::Setting`]) if the options contradict each other; the loop goes on then. With the loop's
    /// panic, should the loop itself have failed.
    pub fn shut_down(&self, options: ShutdownOptions) -> Completion<ShutdownReport> {
        let request = match options.check() {
            Ok(request) => request,
            Err(e) => return Completion::ready(Err(e)),
        };
        self.shared.shut_down(request);
        let (completer, completion) = completion(Some(self.shared.id));
        let shared = self.shared.clone();
        self.terminated().on_complete(move |ended| completer.complete(ended.map(|()| shared.report())));
        completion
    }

    /// Has `hook` run on the loop's thread when the loop has ended: after the last task, when its channels are closed
    /// and their handlers dropped.
    ///
    /// Hooks run once each, in the order in which they were given. A hook may give another one; it can give the loop
    /// nothing else to do. A panic in one is logged. They run as well should the loop itself have failed. As they need
    /// the loop's thread, the first one starts it. Not run: hooks of a loop that is never shut down.
    ///
    /// # Errors
    /// If the loop has run its hooks, or was given 1024 already; the hook is dropped.
    #[track_caller]
    pub fn on_shutdown(&self, hook: impl FnOnce() + Send + 'static) -> Result {
        self.shared.add_hook(Task::new(hook, Location::caller()))
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
fn live(mut turn: Turn, patrol: Option<Arc<Patrol>>) {
    let shared = turn.shared.clone();
    let _entered = loop_id::enter(shared.id);
    let _local = local::enter(shared.id, turn.io.services.queue.clone());
    let watch = patrol.map(|patrol| patrol.watch(&shared.name, shared.id, shared.whereabouts.clone()));
    let cause = caught(|| turn.run());
    end(turn, cause, watch);
}

/// What follows the last turn of a loop, on its thread; `cause` is what the loop itself has failed with, `watch` is
/// over when there is nothing left that could get stuck.
fn end(turn: Turn, cause: Option<String>, watch: Option<Watch>) {
    let shared = turn.shared.clone();
    // Those who wait for the end must hear of it, even if the log panics.
    if let Some(cause) = &cause {
        caught(|| log::error!("{}: the loop itself panicked and ends: {cause}", shared.name));
    }
    shared.advance(LifeState::ShutDown);
    shared.whereabouts.enter_phase(Phase::Shutdown);
    // Channels, handlers and what is left in the queue are dropped here, on their own thread.
    if let Some(message) = caught(move || drop(turn)) {
        caught(|| log::error!("{}: ending: {message}", shared.name));
    }
    shared.run_hooks();
    drop(watch);
    shared.advance(LifeState::Terminated);
    shared.set_terminated(cause);
}
