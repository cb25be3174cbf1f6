//! Event loops. Each one is a thread that polls its sockets, runs its tasks and timers, and serves
//! its channels.
//!
//! [`EventLoop`] is the handle, which any thread may hold. [`LoopShared`] is the state that handles
//! share with the loop, and `mail` has the messages that they send. The loop itself is a
//! `turn::Turn`.
//!
//! # Threads and ownership
//! - The loop's thread owns the `Turn`: poll, sources, heap, wheel, read buffers, and the receiving
//!   end of the queue. It does not share them, so they need no locks.
//! - [`LoopShared`] has the sending end of the queue, the published sleep, the waker, the life
//!   state and the metrics. A mutex guards the waker, and is taken at most once per sleep.
//! - The queue is a [`Mailbox`](crate::sync::Mailbox): chunks of 128 entries behind a lock. The
//!   loop takes a whole chunk at a time. It can check without the lock that the queue is empty, so
//!   a turn that only moves bytes does not take the lock.
//! - The loop writes its turn, phase, channel and task to [`Activity`](crate::sync::Activity) with
//!   plain stores, whether or not a watchdog reads them.
//! - The pipeline factory is called on the loop. Links and handler are used and dropped there too,
//!   so they need not be `Send`.
//! - A channel handle reaches the loop through [`MailSender`](crate::channel::MailSender), a trait
//!   of the channel layer that [`LoopShared`] implements. So the channel layer does not import this
//!   one.
//!
//! Keys carry a generation. Mail, events and timers for a channel that is gone meet another
//! generation and are dropped.
//!
//! | modules, from the top | subject |
//! |---|---|
//! | `thread/` | building a loop, the life of its thread, loops without a thread |
//! | `turn/` | the phases of a turn, which call sources, run tasks and timers, and shut down |
//! | `sources/` | the slots of everything that the poll watches; a channel in its slot |
//! | `accept/`, `lingering_source`, `event_source/` | kinds of sources besides channels |
//! | `tasks/`, `broadcast/`, `shutdown/`, `ages` | scheduled tasks, waiting broadcasts, shutdown, the maximum age of channels |
//! | `shared`, `mail` | state and messages that threads share |
//! | `io`, `source`, `source_inbox` | the interface between a loop and its sources, commands to sources |
//! | `closing/`, `connection`, `establish/` | sockets of closed channels, connections before they are channels, channels whose filters are established |
//! | `poll/`, `budget/`, `load`, `watchdog/` | poll and sleep, time budgets, measurements |

mod accept;
mod ages;
mod broadcast;
mod budget;
mod channel_loop;
mod closing;
mod completer;
mod connection;
mod establish;
#[cfg(unix)]
mod event_source;
mod filter_setup;
mod io;
mod lingering_source;
mod load;
mod mail;
mod poll;
mod shared;
mod shutdown;
mod source;
mod source_inbox;
mod sources;
mod task;
mod tasks;
mod thread;
mod turn;
mod watchdog;

pub(crate) use accept::{
    AcceptProgress, Attempt, ChildLoops, Connecting, ListenerCommand, ListenerGuard, ListenerShared,
    ListenerSource, ServerClosed, ServerShared,
};
pub(crate) use budget::UNLIMITED;
pub(crate) use closing::ClosedChannel;
pub(crate) use connection::{ChildSetup, ConnectCallback, Connection};
#[cfg(unix)]
pub use event_source::{Interest, Readiness, SourceAction, SourceContext, SourceHandle};
pub(crate) use filter_setup::{AnnouncesFor, FilterFactory, FilterSetup};
pub(crate) use io::Io;
pub(crate) use load::Assignment;
pub(crate) use mail::LoopMail;
#[cfg(feature = "simulation")]
pub(crate) use poll::simulated_ready;
pub(crate) use poll::{LISTENER_INTEREST, PollWaker, STREAM_INTEREST, Selector, WATCHING, WakeCause};
pub use poll::{PollRebuild, RebuildCause};
pub(crate) use shared::{LifeState, LoopShared};
pub(crate) use shutdown::{AcceptedShare, ShutdownRequest, end_and_report};
pub use shutdown::{ShutdownOptions, ShutdownReport};
pub(crate) use source::{AtShutdown, LoopContext, NewSource, RegisterFn, Source, Transition};
pub(crate) use source_inbox::{SourceCommand, SourceInbox};
pub(crate) use thread::{Core, DrivenLoop, LoopConfig, LoopSettings};
pub(crate) use watchdog::WatchdogThread;
pub use watchdog::{Stall, Watchdog};

use crate::{
    admission::Work,
    error::{Error, Result, SendError, panic_message},
    metrics::LoopMetrics,
    sync::{Completion, completion, loop_id},
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::Arc,
    time::Duration,
};
use task::Task;

/// A handle to one event loop. Can be cloned, sent and shared.
///
/// The loop's thread starts when the loop receives its first work. All methods may be called from
/// any thread, including the loop's own. Tasks run on the loop's thread, one after the other. Tasks
/// that one thread submits keep their order.
#[derive(Clone)]
pub struct EventLoop {
    pub(crate) shared: Arc<LoopShared>,
}

impl EventLoop {
    /// Returns the name of the loop's thread.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Returns whether the calling thread is the loop's thread.
    pub fn in_event_loop(&self) -> bool {
        self.shared.is_in_event_loop()
    }

    /// Returns a snapshot of the loop's counters.
    ///
    /// May be called from any thread and never blocks the loop. Reads about three hundred numbers,
    /// without a lock or a system call.
    #[doc(alias = "snapshot")]
    pub fn metrics(&self) -> LoopMetrics {
        let mut metrics = self.shared.metrics.snapshot();
        metrics.tasks_pending = self.shared.mailbox.len() as u64;
        metrics.tasks_refused = self.shared.mailbox.refused() as u64;
        metrics.log_lines_suppressed = self.shared.log.suppressed();
        if let Some(limits) = &self.shared.limits {
            metrics.shed_accepts = limits.refused(Work::Accept);
            metrics.shed_handshakes = limits.refused(Work::Handshake);
            metrics.shed_logins = limits.refused(Work::Login);
            metrics.shed_bulk = limits.refused(Work::Bulk);
            metrics.overload_level = limits.level();
        }
        metrics
    }

    /// Returns the number of connections of this loop. A connection counts from its assignment to
    /// the loop, when it is accepted or about to be opened. It counts until its handler is dropped
    /// and its socket is closed, or until it has failed. A socket that
    /// [lingers](crate::group::EventLoopGroupBuilder::max_lingering) still counts.
    pub fn connections(&self) -> usize {
        self.shared.load.connections()
    }

    /// Returns the sum of the weights of these connections
    /// ([`ChannelOptions::weight`](crate::channel::ChannelOptions::weight)). While all weights are
    /// 1, this is the number of connections.
    pub fn load(&self) -> usize {
        self.shared.load.weight()
    }

    /// Returns an estimate of how long a newly submitted task would wait: the duration of a turn,
    /// times the number of turns needed to drain the queue.
    ///
    /// The duration of a turn is a recent maximum, which decays over about a second. If the running
    /// turn is already longer, its duration counts instead. A blocked loop therefore reports its
    /// delay immediately. A loop that sleeps and had little to do reports close to zero. Reads the
    /// clock. Meant for comparing loops, not for precise measurements.
    pub fn lag(&self) -> Duration {
        let turn = self.shared.load.turn_time(self.shared.time.now());
        let turns = 1 + self.shared.mailbox.len() / budget::FLOOR as usize;
        Duration::from_nanos(turn.saturating_mul(turns as u64))
    }

    /// Runs `task` on the loop.
    ///
    /// If the task panics, the panic is logged with the location of this call, and the loop
    /// continues.
    ///
    /// # Errors
    /// [`Error::Full`] if the loop's queue is full, or [`Error::ShutDown`] if the loop is shut
    /// down. The task is returned.
    #[doc(alias = "try_execute")]
    #[track_caller]
    pub fn execute<F: FnOnce() + Send + 'static>(&self, task: F) -> Result<(), SendError<F>> {
        let origin = Location::caller();
        self.shared.submit_with(0, task, move |task| LoopMail::Task(Task::new(task, origin)))
    }

    /// Like [`execute`](EventLoop::execute), but waits up to `timeout` for room in the loop's
    /// queue.
    ///
    /// Blocks the calling thread. The timeout is real time, even if the loop uses another clock.
    /// When this returns `Ok`, the task is in the queue but may not have run yet. Tasks that one
    /// thread submits keep their order. Among several waiting threads the order is unspecified.
    /// Room appears once per turn, when the loop has taken a batch of tasks from the queue.
    ///
    /// ```
    /// # use netwheel::{EventLoopGroup, Error};
    /// # use std::time::Duration;
    /// let group = EventLoopGroup::builder().threads(1).max_pending_tasks(16).build()?;
    /// for n in 0..1000 {
    ///     // A producer that is faster than the loop is slowed down, and no task is lost.
    ///     group.next().execute_timeout(Duration::from_secs(10), move || println!("{n}"))?;
    /// }
    /// # group.shutdown(netwheel::shutdown::ShutdownOptions::new().quiet_period(Duration::ZERO)).wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    /// - [`Error::WouldDeadlock`] on the loop itself, and on the thread that runs it as a
    ///   [`ManualEventLoop`](crate::group::ManualEventLoop). Returned immediately, even if there is
    ///   room.
    /// - [`Error::Full`] if the queue was full until the timeout.
    /// - [`Error::ShutDown`] if the loop is shut down, also during the wait.
    ///
    /// The task is returned.
    #[track_caller]
    pub fn execute_timeout<F: FnOnce() + Send + 'static>(
        &self,
        timeout: Duration,
        task: F,
    ) -> Result<(), SendError<F>> {
        if loop_id::is_own(self.shared.id) {
            return Err(SendError::new(task, Error::WouldDeadlock));
        }
        let origin = Location::caller();
        self.shared.submit_timeout(task, |task| LoopMail::Task(Task::new(task, origin)), timeout)
    }

    /// Queues `task` without waking the loop. It runs after the next wakeup.
    ///
    /// Use it for work that is not urgent, such as releasing a resource. A thousand such tasks cost
    /// no system call. They keep their order among all tasks that one thread submits.
    ///
    /// # Errors
    /// [`Error::Full`] if the loop's queue is full, or [`Error::ShutDown`] if the loop is shut
    /// down. The task is returned.
    #[track_caller]
    pub fn execute_lazily<F: FnOnce() + Send + 'static>(&self, task: F) -> Result<(), SendError<F>> {
        let origin = Location::caller();
        self.shared.submit_with(u64::MAX, task, move |task| LoopMail::Task(Task::new(task, origin)))
    }

    /// Queues `task`, ignoring the limit of the queue. Drops it if the loop is shut down.
    #[cfg(feature = "durable")]
    #[track_caller]
    pub(crate) fn execute_always(&self, task: impl FnOnce() + Send + 'static) {
        let task = Task::new(task, Location::caller());
        // The refused task is dropped here.
        let _ = self.shared.submit_always(LoopMail::Task(task));
    }

    /// Runs `f` on the loop. The completion gets its return value.
    ///
    /// The completion fails with [`Error::Panicked`] if `f` panics, with [`Error::Full`] if the
    /// loop's queue is full, and with [`Error::ShutDown`] if the loop is shut down.
    ///
    /// ```
    /// # use netwheel::EventLoopGroup;
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let name = group.next().call(|| std::thread::current().name().map(str::to_owned)).wait()?;
    /// assert_eq!(name.as_deref(), Some(group.next().name()));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    #[doc(alias = "submit")]
    #[track_caller]
    pub fn call<T: Send + 'static>(&self, f: impl FnOnce() -> T + Send + 'static) -> Completion<T> {
        let origin = Location::caller();
        let (completer, completion) = completion(Some(self.shared.id));
        let submitted = self.shared.submit_with(0, (f, completer), move |(f, completer)| {
            let task = move || {
                let called = catch_unwind(AssertUnwindSafe(f));
                completer.complete(called.map_err(|panic| Error::panicked(panic_message(panic))));
            };
            LoopMail::Task(Task::new(task, origin))
        });
        if let Err(refused) = submitted {
            let ((_, completer), error) = refused.into_parts();
            completer.complete(Err(error));
        }
        completion
    }

    /// Opens a new poll on the loop and moves every source to it. The loop does the same by itself,
    /// at most three times per minute, when its poll keeps returning without a reason.
    ///
    /// Completes with a report when the sources have been moved. Fails if no new poll can be
    /// opened. The loop then continues with the old one.
    ///
    /// The completion fails on Windows, where a poll cannot be replaced.
    ///
    /// # Errors
    /// [`Error::Full`] if the loop's queue is full, [`Error::ShutDown`] if the loop is shut down.
    pub fn rebuild_poll(&self) -> Result<Completion<PollRebuild>> {
        let (completer, completion) = completion(Some(self.shared.id));
        self.shared.submit(LoopMail::Rebuild(completer), 0)?;
        Ok(completion)
    }

    /// Completes when the loop has ended. Fails with the panic message if the loop itself has
    /// panicked.
    pub fn terminated(&self) -> Completion {
        self.shared.terminated()
    }

    /// Returns whether a shutdown has been requested, or has completed.
    pub fn is_shutting_down(&self) -> bool {
        self.shared.state() >= LifeState::ShuttingDown
    }

    /// Returns whether the loop refuses new tasks.
    pub fn is_shut_down(&self) -> bool {
        self.shared.state() >= LifeState::ShutDown
    }

    /// Returns whether the loop's thread has ended.
    pub fn is_terminated(&self) -> bool {
        self.shared.state() >= LifeState::Terminated
    }
}

impl fmt::Debug for EventLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoop").field("name", &self.name()).field("state", &self.shared.state()).finish()
    }
}
