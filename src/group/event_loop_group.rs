//! A set of event loops.

use super::chooser::{Chooser, RoundRobin};
use crate::{
    error::{Error, Result, panic_message},
    event_loop::{
        AcceptedShare, Assignment, ChildLoops, EventLoop, LoopShared, ShutdownOptions, ShutdownReport,
        ShutdownRequest, end_and_report,
    },
    metrics::LoopMetrics,
    sync::{Completion, Locked, Waiters, completion_of_all},
    worker_pool::WorkerPool,
};
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

/// A set of event loops that share the channels of a program. Can be cloned, sent and shared.
///
/// Dropping the last handle does not end the loops. Use
/// [`shutdown`](EventLoopGroup::shutdown).
///
/// ```
/// use netwheel::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(2).name("worker").io_ratio(50).build()?;
/// let answer = group.next().schedule(Duration::from_millis(1), || 6 * 7)?;
/// assert_eq!(answer.completion().wait()?, 42);
/// group.shutdown(netwheel::shutdown::ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(1))).wait()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "NioEventLoopGroup")]
#[doc(alias = "MultiThreadedEventLoopGroup")]
#[doc(alias = "Runtime")]
pub struct EventLoopGroup {
    inner: Arc<GroupShared>,
}

struct GroupShared {
    loops: Vec<EventLoop>,
    /// `None` means round robin.
    chooser: Option<Arc<dyn Chooser>>,
    in_order: RoundRobin,
    /// Whether a failure of the chooser has been logged. Only the first one is.
    said: AtomicBool,
    /// Chooses the loops of timers, so that these do not take the turns of connections.
    for_timers: RoundRobin,
    workers: WorkerPool,
    /// Looks up names. The workers may all be waiting for the connections that need the addresses.
    lookups: WorkerPool,
    /// Whether a shutdown was requested. Only the first request reaches the loops: two at the same
    /// time would each get some of them, and those would not wait for the others.
    is_ending: AtomicBool,
    /// The end of all loops, once the program has asked for it.
    end: OnceLock<Arc<GroupEnd>>,
}

/// The end of a group: the remaining loops, the first failure, and the waiters for the end.
struct GroupEnd(Locked<Termination>);

struct Termination {
    loops_left: usize,
    failure: Option<Error>,
    waiters: Waiters,
}

impl EventLoopGroup {
    pub(super) fn of(
        loops: Vec<EventLoop>,
        chooser: Option<Arc<dyn Chooser>>,
        workers: WorkerPool,
        lookups: WorkerPool,
    ) -> Self {
        EventLoopGroup {
            inner: Arc::new(GroupShared {
                loops,
                chooser,
                in_order: RoundRobin::new(),
                for_timers: RoundRobin::new(),
                said: AtomicBool::new(false),
                workers,
                lookups,
                is_ending: AtomicBool::new(false),
                end: OnceLock::new(),
            }),
        }
    }

    /// Returns the loop that the group's [`Chooser`] selects for the next connection. The default
    /// chooser is [`RoundRobin`]. Returns a loop that is shutting down only if all loops are, and
    /// one that has ended only if all have.
    pub fn next(&self) -> &EventLoop {
        let GroupShared { loops, chooser, in_order, .. } = &*self.inner;
        let chosen = chooser.as_deref().and_then(|chooser| self.ask(chooser));
        let chosen = chosen.filter(|n| !loops[*n].is_shutting_down());
        &loops[chosen.unwrap_or_else(|| in_order.choose(loops))]
    }

    /// Returns the loop for the timers of an operation that belongs to no loop. Leaves the chooser
    /// alone, which selects the loops of connections.
    pub(crate) fn next_for_timers(&self) -> &EventLoop {
        let GroupShared { loops, for_timers, .. } = &*self.inner;
        &loops[for_timers.choose(loops)]
    }

    /// Returns the time by the clock of the group's first loop.
    pub(crate) fn now(&self) -> u64 {
        self.inner.loops[0].now()
    }

    /// Returns the loop for the next connection, and the assignment that counts the connection on
    /// it. Takes the chooser's loop, or the first other loop that has room if that one is full.
    ///
    /// # Errors
    /// The limit of connections per loop if all loops are full.
    pub(crate) fn assign(&self, weight: u32) -> Result<(&EventLoop, Assignment), usize> {
        let first = self.next();
        let assign = |event_loop: &'_ EventLoop| event_loop.shared.load.assign(weight);
        if let Some(assignment) = assign(first) {
            return Ok((first, assignment));
        }
        // In a shutdown, replies in flight may need another connection.
        let is_fit = |event_loop: &&EventLoop| match first.is_shutting_down() {
            true => !event_loop.is_shut_down(),
            false => !event_loop.is_shutting_down(),
        };
        let mut all = self.inner.loops.iter().filter(is_fit);
        let any = all.find_map(|event_loop| Some((event_loop, assign(event_loop)?)));
        any.ok_or_else(|| first.shared.load.limit())
    }

    /// Returns the chooser's index, unless it is out of range or the chooser panics. The chooser
    /// may run on a loop, which must survive a panic.
    fn ask(&self, chooser: &dyn Chooser) -> Option<usize> {
        let loops = &self.inner.loops;
        let why = match catch_unwind(AssertUnwindSafe(|| chooser.choose(loops))) {
            Ok(n) if n < loops.len() => return Some(n),
            Ok(n) => format!("chose {n} of {} loops", loops.len()),
            Err(panic) => format!("panicked: {}", panic_message(panic)),
        };
        if !self.inner.said.swap(true, Ordering::Relaxed) {
            log::error!("{}: the chooser {why}; using round robin instead", loops[0].name());
        }
        None
    }

    /// Returns all loops of the group.
    pub fn event_loops(&self) -> &[EventLoop] {
        &self.inner.loops
    }

    /// Returns the worker pool of this group, which runs the work passed to
    /// [`Context::offload`](crate::Context::offload).
    pub fn workers(&self) -> &WorkerPool {
        &self.inner.workers
    }

    /// Returns the threads that look up names for this group.
    pub(crate) fn lookups(&self) -> &WorkerPool {
        &self.inner.lookups
    }

    /// Returns a snapshot of the counters of each loop.
    pub fn metrics(&self) -> Vec<LoopMetrics> {
        self.inner.loops.iter().map(EventLoop::metrics).collect()
    }

    /// Shuts down every loop like [`EventLoop::shutdown`]. Completes when all loops have ended,
    /// with the merged report of all loops, or with the first failure.
    ///
    /// Each loop spreads its own channels over the same
    /// [`drain_window`](ShutdownOptions::drain_window).
    ///
    /// Completes with [`Error::Setting`] if the options contradict each other. The loops keep
    /// running in that case.
    #[doc(alias = "shutdownGracefully")]
    #[doc(alias = "shutdown_gracefully")]
    #[doc(alias = "syncShutdownGracefully")]
    pub fn shutdown(&self, options: ShutdownOptions) -> Completion<ShutdownReport> {
        let group = self.clone();
        let told = completion_of_all(self.loop_ids());
        end_and_report(options, |request| self.begin_shutdown(request), told, move || group.report())
    }

    fn begin_shutdown(&self, request: ShutdownRequest) -> Completion {
        if !self.inner.is_ending.swap(true, Ordering::AcqRel) {
            let loops: Vec<_> = self.inner.loops.iter().map(|event_loop| &event_loop.shared).collect();
            for (shared, share) in loops.iter().zip(AcceptedShare::of(&loops)) {
                shared.shut_down(request, share);
            }
        }
        self.terminated()
    }

    fn report(&self) -> ShutdownReport {
        let mut all = ShutdownReport::default();
        for event_loop in &self.inner.loops {
            all.merge(&event_loop.shared.report());
        }
        all
    }

    pub(crate) fn loop_ids(&self) -> Box<[u32]> {
        self.inner.loops.iter().map(|event_loop| event_loop.shared.id).collect()
    }

    /// Completes when every loop has ended. If loops failed, it completes with the first failure.
    pub fn terminated(&self) -> Completion {
        let loops = &self.inner.loops;
        let mut first = None;
        let end = self.inner.end.get_or_init(|| first.insert(GroupEnd::of(loops.len())).clone());
        // Only the first caller asks the loops, so that callers who drop their completions leave
        // nothing behind. Not during the initialisation, because code of the program may run.
        if let Some(end) = first {
            for event_loop in loops {
                let end = end.clone();
                event_loop.terminated().on_complete(move |result| end.loop_ended(result));
            }
        }
        end.completion(|| self.loop_ids())
    }
}

impl GroupEnd {
    fn of(loops: usize) -> Arc<Self> {
        let waiters = Waiters::default();
        Arc::new(GroupEnd(Locked::new(Termination { loops_left: loops, failure: None, waiters })))
    }

    fn loop_ended(&self, result: Result) {
        let ended = self.0.change(|end| {
            end.loops_left -= 1;
            if end.failure.is_none() {
                end.failure = result.err();
            }
            let is_last = end.loops_left == 0;
            (is_last.then(|| (end.waiters.take(), end.result())), ())
        });
        if let Some((waiters, result)) = ended {
            for completer in waiters {
                completer.complete(result.as_ref().copied().map_err(Error::clone));
            }
        }
    }

    fn completion(&self, loop_ids: impl FnOnce() -> Box<[u32]>) -> Completion {
        let waiting = self.0.change(|end| {
            if end.loops_left == 0 {
                return (Err(end.result()), None);
            }
            let (completer, completion) = completion_of_all(loop_ids());
            (Ok(completion), Some(end.waiters.push(completer)))
        });
        waiting.unwrap_or_else(Completion::ready)
    }
}

impl Termination {
    fn result(&self) -> Result {
        self.failure.clone().map_or(Ok(()), Err)
    }
}

impl ChildLoops for EventLoopGroup {
    fn assign(&self, weight: u32) -> Result<(Arc<LoopShared>, Assignment), usize> {
        let (child, assignment) = EventLoopGroup::assign(self, weight)?;
        Ok((child.shared.clone(), assignment))
    }
}

impl fmt::Debug for EventLoopGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoopGroup").field("loops", &self.inner.loops).finish()
    }
}
