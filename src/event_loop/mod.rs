//! Event loops. Each one is a thread that polls its sockets, runs its tasks and timers, and serves
//! its channels.
//!
//! [`EventLoop`] is the handle, which any thread may hold. [`LoopShared`] is the state that handles
//! share with the loop, and `mail` has the messages that they send. The loop itself is a
//! `turn::Turn`.
//!
//! # Threads and ownership
//! - The loop's thread owns the `Turn`: poll, sources, heap, wheel, read buffers, and the receiving
//!   end of the queue. Nothing in it is shared, so nothing in it is locked.
//! - [`LoopShared`] has the sending end of the queue, the wake-up word, the waker, the life state
//!   and the metrics. The waker is behind a mutex, which is taken at most once per sleep.
//! - The queue is a [`Mailbox`](crate::sync::Mailbox): chunks of 128 entries behind a lock. The
//!   loop takes a whole chunk at a time. It sees without the lock that the queue is empty, so a
//!   turn that only moves bytes takes no lock.
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
//! | `accept/`, `lingering`, `event_source/` | kinds of sources besides channels |
//! | `tasks/`, `broadcast/`, `shutdown/` | scheduled tasks, waiting broadcasts, shutdown |
//! | `shared`, `mail` | what crosses threads |
//! | `io`, `source` | the interface between a loop and its sources |
//! | `closing/`, `connection` | sockets of closed channels, connections before they are channels |
//! | `poll/`, `budget/`, `load`, `watchdog/` | poll and sleep, time budgets, measurements |

mod accept;
mod broadcast;
mod budget;
mod closing;
mod connection;
#[cfg(unix)]
mod event_source;
mod io;
mod lingering;
mod load;
mod mail;
mod poll;
mod shared;
mod shutdown;
mod source;
mod sources;
mod task;
mod tasks;
mod thread;
mod turn;
mod watchdog;

pub(crate) use accept::{
    AcceptProgress, Attempt, CancelConnect, ChildLoops, Connecting, ListenerCommand, ListenerGuard,
    ListenerMail, ListenerShared, ListenerSource, ServerClosed, ServerShared,
};
pub(crate) use budget::UNLIMITED;
pub(crate) use closing::ClosedChannel;
pub use connection::Peer;
pub(crate) use connection::{ChildSetup, ConnectCallback, Connection};
#[cfg(unix)]
pub use event_source::{Interest, Readiness, SourceAction, SourceContext, SourceHandle};
pub(crate) use io::Io;
pub(crate) use load::Assignment;
pub(crate) use mail::LoopMail;
pub(crate) use poll::STREAM_INTEREST;
pub use poll::{PollRebuild, RebuildCause};
pub(crate) use shared::{LifeState, LoopShared};
pub use shutdown::{ShutdownOptions, ShutdownReport};
pub(crate) use shutdown::{ShutdownRequest, end_and_report, end_gracefully};
pub(crate) use source::{AtShutdown, LoopContext, NewSource, RegisterFn, Source, SourceMail, Transition};
pub use tasks::{MissedRuns, Periodic, ScheduledTask};
pub(crate) use thread::{Core, DrivenLoop, LoopConfig, LoopSettings};
pub(crate) use watchdog::WatchdogThread;
pub use watchdog::{Stall, Watchdog};

use crate::{
    Error, Result,
    error::SendError,
    metrics::LoopMetrics,
    sync::{Completion, completion, loop_id},
};
use std::{fmt, panic::Location, sync::Arc, time::Duration};
use task::Task;

/// A handle to one event loop; can be cloned, sent and shared.
///
/// Its thread starts with the first thing that it is given to do. Everything here may be called from any thread,
/// the loop's own included; tasks run on the loop's thread, one after the other, in the order in which one
/// thread gave them.
#[derive(Clone)]
pub struct EventLoop {
    pub(crate) shared: Arc<LoopShared>,
}

impl EventLoop {
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
    ) -> Result<(), SendError<Box<dyn FnOnce() + Send>>> {
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
    /// ([`ManualEventLoop`](crate::ManualEventLoop)), at once and even if there is room;
    /// with [`Error::Full`] if there was none until the time was up; with [`Error::ShutDown`] if the loop is shut
    /// down, also while this waits.
    #[track_caller]
    pub fn execute_timeout(
        &self,
        timeout: Duration,
        task: Box<dyn FnOnce() + Send>,
    ) -> Result<(), SendError<Box<dyn FnOnce() + Send>>> {
        if loop_id::is_own(self.shared.id) {
            return Err(SendError::new(task, Error::WouldDeadlock));
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
        submit: impl FnOnce(LoopMail) -> Result<(), SendError<LoopMail>>,
    ) -> Result<(), SendError<Box<dyn FnOnce() + Send>>> {
        submit(LoopMail::BoxedTask(task, origin)).map_err(|refused| match refused.into_parts() {
            (LoopMail::BoxedTask(task, _), error) => SendError::new(task, error),
            _ => unreachable!("the same mail comes back"),
        })
    }

    /// Opens a new poll on the loop and moves every source to it, as the loop does by itself (three times a minute at
    /// most) when its poll returns for no reason again and again. Completes with a report when that is done; with an
    /// error if no new poll can be opened, in which case the loop goes on with the old one.
    ///
    /// # Errors
    /// If the loop's queue is full, or the loop is shut down.
    pub fn rebuild_poll(&self) -> Result<Completion<PollRebuild>> {
        let (completer, completion) = completion(Some(self.shared.id));
        self.shared.submit(LoopMail::Rebuild(completer), 0)?;
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
