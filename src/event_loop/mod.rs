//! Event loops: one thread each, which polls its sockets, runs its tasks and timers, and serves its channels.
//!
//! [`EventLoop`] is the handle, which any thread may hold. The loop itself is in `turn` (the order of things) with
//! `task_phase` and `timer_phase` (what runs for how long, by `budget`), `selector` (the poll, wake causes), `spin`
//! (turning in vain), `rebuild` (moving to a new poll), `io` (one channel's socket), `accept` (new connections),
//! `tasks` (scheduled tasks, repeated as `periodic` says, found by `local`), `shutdown`, `stopwatch` and `metrics`.

mod accept;
mod budget;
mod io;
mod local;
mod metrics;
mod periodic;
mod rebuild;
mod selector;
mod shared;
mod shutdown;
mod sources;
mod spin;
mod stopwatch;
mod task_phase;
mod tasks;
mod timer_phase;
mod turn;

pub(crate) use budget::{Budget, DEFAULT_MAX_TASK_TIME, UNLIMITED};
pub use metrics::LoopMetrics;
pub use periodic::{MissedRuns, Periodic};
pub use rebuild::{RebuildCause, RebuildReport};
pub(crate) use shared::{LifeState, LoopMail, ShutdownRequest};
pub use sources::Peer;
pub(crate) use sources::{
    ChildSetup, Connected, Connecting, Listening, ServerClosed, ServerGuard, ServerShared,
};
pub(crate) use spin::DEFAULT_REBUILD_THRESHOLD;
pub use tasks::ScheduledTask;

use crate::{
    Clock, Error, Result,
    buffer::ReceiveBuffers,
    channel::{LoopServices, Outlet, Scheduled},
    clock::{TimeSource, nanos},
    error::{Refused, caught},
    sync::{Completion, completion, loop_id, mailbox},
    timer::Wheel,
};
use io::Io;
use periodic::Repeat;
use selector::Selector;
use shared::{LoopShared, Task};
use sources::Sources;
use spin::SpinGuard;
use std::{collections::VecDeque, fmt, panic::Location, sync::Arc, time::Duration};
use stopwatch::Stopwatch;
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
    pub(crate) clock: Arc<dyn Clock>,
}

impl EventLoop {
    pub(crate) fn new(config: LoopConfig) -> Result<Self> {
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
        // The seed is kept in what it refers to: a strong reference would keep a loop that never starts for ever.
        let weak = Arc::downgrade(&shared);
        shared.set_seed(Box::new(move || {
            let shared = weak.upgrade().expect("a loop is started through a handle to it");
            Box::new(move || {
                let outlet: Arc<dyn Outlet> = shared.clone();
                let io = Io {
                    selector,
                    services: LoopServices::new(time, wheel, outlet),
                    receive: ReceiveBuffers::new(),
                    to_read: VecDeque::new(),
                    turn_bytes: 0,
                    inactive: Vec::new(),
                };
                let now = io.services.now;
                live(Turn {
                    shared,
                    inbox,
                    sources: Sources::new(),
                    io,
                    budget,
                    spin: SpinGuard::new(threshold),
                    watch: Stopwatch::new(now),
                    shutdown: None,
                    real_time,
                    timers_left: false,
                    at_end: Vec::new(),
                    poll_failures: 0,
                    told_of_failure: false,
                });
            })
        }));
        Ok(EventLoop { shared })
    }

    /// The name of its thread.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Whether the calling thread is this loop's.
    pub fn in_event_loop(&self) -> bool {
        self.shared.is_in_event_loop()
    }

    /// The loop's counters, as they are now; never blocks the loop.
    pub fn metrics(&self) -> LoopMetrics {
        let mut metrics = self.shared.metrics.snapshot();
        metrics.tasks_pending = self.shared.mailbox.len() as u64;
        metrics.tasks_refused = self.shared.mailbox.refused() as u64;
        metrics
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
        self.submit_task(Box::new(task), Location::caller()).map_err(|refused| refused.reason)
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
        self.submit_task(task, Location::caller())
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
        let task = Task { body: Box::new(task), origin: Location::caller() };
        self.shared.submit(LoopMail::Task(task), u64::MAX).map_err(|refused| refused.reason)
    }

    fn submit_task(
        &self,
        body: Box<dyn FnOnce() + Send>,
        origin: &'static Location<'static>,
    ) -> Result<(), Refused<Box<dyn FnOnce() + Send>>> {
        self.shared.submit(LoopMail::Task(Task { body, origin }), 0).map_err(|refused| match refused.value {
            LoopMail::Task(task) => Refused { value: task.body, reason: refused.reason },
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
    /// run, before what they wrote is sent. For what gathers up the work of a turn.
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

    /// Ends the loop, after its channels have said goodbye and no task came for the `quiet` period, at the latest
    /// after `timeout`. The first request counts; the completion is done when the loop has ended.
    ///
    /// An error ([`Error::Setting`]) if `timeout` is shorter than `quiet`; the loop goes on then.
    pub fn shutdown_gracefully(&self, quiet: Duration, timeout: Duration) -> Completion {
        match shutdown_request(quiet, timeout) {
            Ok(request) => {
                self.shared.shut_down(request);
                self.terminated()
            }
            Err(e) => Completion::ready(Err(e)),
        }
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

pub(crate) fn shutdown_request(quiet: Duration, timeout: Duration) -> Result<ShutdownRequest> {
    if timeout < quiet {
        return Err(Error::setting("timeout", format!("{timeout:?}"), "at least the quiet period"));
    }
    Ok(ShutdownRequest { quiet: nanos(quiet), timeout: nanos(timeout) })
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
fn live(mut turn: Turn) {
    let shared = turn.shared.clone();
    let _entered = loop_id::enter(shared.id);
    let _local = local::enter(shared.id, turn.io.services.queue.clone());
    let cause = caught(|| turn.run());
    // Those who wait for the end must hear of it, even if the log panics.
    if let Some(cause) = &cause {
        caught(|| log::error!("{}: the loop itself panicked and ends: {cause}", shared.name));
    }
    shared.advance(LifeState::ShutDown);
    // Channels, handlers and what is left in the queue are dropped here, on their own thread.
    if let Some(message) = caught(move || drop(turn)) {
        caught(|| log::error!("{}: ending: {message}", shared.name));
    }
    shared.advance(LifeState::Terminated);
    shared.set_terminated(cause);
}
