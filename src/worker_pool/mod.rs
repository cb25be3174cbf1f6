//! A pool of threads for blocking work, so that event loops do not block.
//!
//! Handlers submit work with [`Context::offload`](crate::Context::offload).

// A pool of threads for blocking work, so that event loops do not block.
//
// The pool is a queue and a few counters under one lock, and user code never runs under that lock.
// So the decisions to refuse work or to start a thread are exact. A group has a pool from the
// start; threads are started on demand. They may run on all cores that were allowed for the thread
// that built the pool. Otherwise, all threads started by a pinned loop would share its core.
//
// A thread is started when work finds none that is free. It ends when it has been idle for a
// while, or when the last handle is dropped and the queue is empty. A full queue drops cancelled
// work first; one of more than `MAX_LOOKS` items finds it within a few submissions.
//
// Invariants: at most `max_pending` work items wait, besides items that a thread is running or
// about to take. Accepted work runs once, or is dropped if its channel no longer wants it. A panic
// ends only the work item in which it happens. Any thread may submit, and blocks only on a short
// lock. The pool does not depend on channels or loops.

mod builder;
mod cores;
mod niceness;

pub use builder::WorkerPoolBuilder;

use crate::{
    error::{Error, Resource, Result, SendError, caught, drop_guarded},
    log_throttle::{PANICS, log_throttled, off_loop},
    machine::{self, Condvar, Mutex},
};
use cores::Cores;
use log::Level;
use std::{collections::VecDeque, fmt, sync::Arc};

/// A bounded pool of threads for blocking work: files, databases, password hashes, name lookups.
///
/// [`Context::offload`](crate::Context::offload) runs work on the pool of the group and passes the
/// result back to the handler. A group has a pool of its own unless one is set with
/// [`workers`](crate::group::EventLoopGroupBuilder::workers). The pool starts no threads until it
/// is used.
///
/// This is a handle, which can be cloned, sent and shared. Groups and event loops hold handles,
/// too. When the last handle is dropped, waiting work still runs, and then the threads end.
///
/// On Linux, the pool's threads may run on all cores that were allowed for the thread that built
/// it. This holds even if the loop that starts a thread is pinned to one core.
///
/// ```
/// use netwheel::{EventLoopGroup, worker_pool::WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().threads(8).max_pending(100).name("lookup").build()?;
/// let group = EventLoopGroup::builder().threads(1).workers(&pool).build()?;
/// // Handlers use it through `ctx.offload`. Other code can use it, too:
/// let (answer, answered) = std::sync::mpsc::channel();
/// pool.execute(move || answer.send(6 * 7))?;
/// assert_eq!(answered.recv_timeout(Duration::from_secs(10)), Ok(42));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
#[doc(alias = "EventExecutorGroup")]
#[doc(alias = "NIOThreadPool")]
#[doc(alias = "spawn_blocking")]
pub struct WorkerPool {
    owner: Arc<Owner>,
}

/// Metrics of a [`WorkerPool`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Current number of threads.
    pub threads: usize,
    /// Work items that are waiting for a thread.
    pub pending: usize,
    /// Work items that are running or about to be taken by a thread.
    pub running: usize,
    /// Work items that have run, including work that panicked.
    pub finished: u64,
    /// Work items dropped without running, because their channel was closed or had cancelled them.
    pub skipped: u64,
    /// Work items refused because the queue was full.
    pub refused: u64,
    /// Work items that panicked.
    pub panicked: u64,
}

/// A work item.
pub(crate) trait Work: Send {
    /// Returns whether the result is still wanted. Called before `run`.
    fn is_wanted(&self) -> bool;

    /// Runs the work. Returns whether it panicked.
    fn run(self: Box<Self>) -> bool;
}

/// Work that is never cancelled.
struct Plain<F>(F);

impl<T, F: FnOnce() -> T + Send> Work for Plain<F> {
    fn is_wanted(&self) -> bool {
        true
    }

    fn run(self: Box<Self>) -> bool {
        let panicked = caught(|| drop((self.0)()));
        if let Some(message) = &panicked {
            let name = std::any::type_name::<F>();
            caught(|| {
                log_throttled!(off_loop(), PANICS, Level::Error, "work of type {name} panicked: {message}")
            });
        }
        panicked.is_some()
    }
}

/// Shared by all handles. Dropping it closes the pool.
struct Owner {
    pool: Arc<Pool>,
}

struct Pool {
    settings: WorkerPoolBuilder,
    cores: Cores,
    state: Mutex<PoolQueue>,
    /// Notified when work was queued, or when the pool was closed.
    changed: Condvar,
}

/// The limit of waiting items that a submission checks for cancellation.
const MAX_LOOKS: usize = 1024;

#[derive(Default)]
struct PoolQueue {
    queue: VecDeque<Box<dyn Work>>,
    threads: usize,
    /// Threads without work, which are waiting or starting.
    free: usize,
    /// Total number of threads started.
    started: usize,
    closed: bool,
    /// Whether a failure to start a thread was logged, and no thread was started since.
    failure_logged: bool,
    finished: u64,
    skipped: u64,
    refused: u64,
    panicked: u64,
    /// The place in a long queue up to which cancelled work was looked for.
    looked_at: usize,
}

impl PoolQueue {
    /// Returns the number of work items that no thread is about to take.
    fn pending(&self) -> usize {
        self.queue.len().saturating_sub(self.free)
    }

    /// Removes cancelled work from the queue: all of it, or the next one of a long queue, of which
    /// each call looks at a part.
    fn take_unwanted(&mut self) -> Vec<Box<dyn Work>> {
        let length = self.queue.len();
        let unwanted = if length <= MAX_LOOKS {
            let all = std::mem::take(&mut self.queue);
            let (wanted, unwanted): (Vec<_>, Vec<_>) = all.into_iter().partition(|work| work.is_wanted());
            self.queue = wanted.into();
            unwanted
        } else {
            let from = if self.looked_at < length { self.looked_at } else { 0 };
            let to = length.min(from + MAX_LOOKS);
            let found = self.queue.range(from..to).position(|work| !work.is_wanted());
            self.looked_at = found.map_or(to, |found| from + found);
            found.and_then(|found| self.queue.remove(from + found)).into_iter().collect()
        };
        self.skipped += unwanted.len() as u64;
        unwanted
    }
}

impl WorkerPool {
    /// Creates a pool with default settings.
    pub fn new() -> Self {
        Self::of(WorkerPoolBuilder::new())
    }

    /// Returns a builder with default settings.
    pub fn builder() -> WorkerPoolBuilder {
        WorkerPoolBuilder::new()
    }

    /// Creates a pool without threads. Its work is run by [`WorkerPool::run_waiting`].
    pub(crate) fn by_hand() -> Self {
        Self::of(WorkerPoolBuilder { threads: 0, ..WorkerPoolBuilder::new() })
    }

    fn of(settings: WorkerPoolBuilder) -> Self {
        let pool = Pool {
            settings,
            cores: Cores::of_this_thread(),
            state: Mutex::default(),
            changed: Condvar::new(),
        };
        WorkerPool { owner: Arc::new(Owner { pool: Arc::new(pool) }) }
    }

    /// Runs `work` on one of the threads and drops its result.
    ///
    /// Does not wait for space in the queue. Work items start in the order of submission. A panic
    /// in the work is logged.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if `max_pending` work items are waiting, or [`Error::Io`] if the pool has no
    /// thread and cannot start one. The error carries the work.
    pub fn execute<T, F: FnOnce() -> T + Send + 'static>(&self, work: F) -> Result<(), SendError<F>> {
        self.submit(Plain(work)).map_err(|refused| refused.map(|Plain(work)| work))
    }

    /// Runs `work` on one of the threads, unless it was cancelled before it starts.
    ///
    /// # Errors
    ///
    /// The errors of [`WorkerPool::execute`].
    pub(crate) fn submit<W: Work + 'static>(&self, work: W) -> Result<(), SendError<W>> {
        let pool = &self.owner.pool;
        let mut unwanted = Vec::new();
        let mut state = pool.state.lock();
        let WorkerPoolBuilder { threads, max_pending: limit, .. } = pool.settings;
        if state.pending() >= limit {
            // Cancelled work must not prevent the submission of other work.
            unwanted = state.take_unwanted();
        }
        let mut failed = None;
        if state.queue.len() >= state.free && state.threads < threads {
            failed = pool.start(&mut state).err();
        }
        let refusal = if state.pending() >= limit {
            state.refused += 1;
            Some(Error::Full { resource: Resource::WorkerQueue, limit })
        } else if state.threads == 0 {
            // If there is another thread, it runs this work later.
            failed.take().map(|e| Error::io("starting a worker's thread", e))
        } else {
            None
        };
        let result = match refusal {
            Some(reason) => Err(SendError::new(work, reason)),
            None => {
                state.queue.push_back(Box::new(work));
                pool.changed.notify_one();
                Ok(())
            }
        };
        // Log the failure once, and not for each submission.
        let untold = failed.filter(|_| !std::mem::replace(&mut state.failure_logged, true));
        drop(state);
        unwanted.into_iter().for_each(drop_guarded);
        if let Some(e) = untold {
            log::warn!("{}: cannot start another thread: {e:#}", pool.settings.name);
        }
        result
    }

    /// Runs waiting work on the calling thread and returns the number of work items. Only for a
    /// pool without threads.
    pub(crate) fn run_waiting(&self) -> usize {
        let pool = &self.owner.pool;
        let mut run = 0;
        let mut waiting = pool.state.lock().queue.len();
        while waiting > 0 {
            waiting -= 1;
            let Some(work) = pool.state.lock().queue.pop_front() else { break };
            let done = run_one(work);
            pool.state.lock().note(done);
            run += 1;
        }
        run
    }

    /// Returns whether work is waiting for a thread.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.owner.pool.state.lock().queue.is_empty()
    }

    /// Returns the current metrics. Takes the pool's lock briefly.
    pub fn metrics(&self) -> WorkerMetrics {
        let state = self.owner.pool.state.lock();
        WorkerMetrics {
            threads: state.threads,
            pending: state.pending(),
            running: state.threads - state.free + state.queue.len().min(state.free),
            finished: state.finished,
            skipped: state.skipped,
            refused: state.refused,
            panicked: state.panicked,
        }
    }
}

impl Default for WorkerPool {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WorkerPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkerPool")
            .field("settings", &self.owner.pool.settings)
            .field("metrics", &self.metrics())
            .finish()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.pool.state.lock().closed = true;
        self.pool.changed.notify_all();
    }
}

impl Pool {
    /// Starts another thread.
    fn start(self: &Arc<Self>, state: &mut PoolQueue) -> std::io::Result<()> {
        let pool = self.clone();
        machine::spawn(format!("{}-{}", self.settings.name, state.started), move || pool.work())?;
        state.failure_logged = false;
        state.started += 1;
        state.threads += 1;
        state.free += 1;
        Ok(())
    }

    /// Runs work on the current thread until the pool is closed or the thread has been idle for
    /// `idle_timeout`.
    #[allow(clippy::disallowed_methods, reason = "how long an idle thread is kept is real time")]
    fn work(&self) {
        // Both log their failures, and the logger of the program may panic.
        caught(|| {
            self.cores.allow_this_thread();
            if let Some(niceness) = self.settings.niceness {
                niceness::set_niceness_of_this_thread(niceness);
            }
        });
        let mut state = self.state.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                state.free -= 1;
                drop(state);
                let done = run_one(work);
                state = self.state.lock();
                state.free += 1;
                state.note(done);
                continue;
            }
            if state.closed {
                break;
            }
            let timed_out;
            (state, timed_out) = self.changed.wait(&self.state, state, Some(self.settings.idle_timeout));
            if timed_out && state.queue.is_empty() {
                break;
            }
        }
        state.free -= 1;
        state.threads -= 1;
    }
}

/// The outcome of a work item.
enum Done {
    Finished,
    Panicked,
    Skipped,
}

impl PoolQueue {
    fn note(&mut self, done: Done) {
        match done {
            Done::Finished => self.finished += 1,
            Done::Panicked => {
                self.finished += 1;
                self.panicked += 1;
            }
            Done::Skipped => self.skipped += 1,
        }
    }
}

fn run_one(work: Box<dyn Work>) -> Done {
    if !work.is_wanted() {
        drop_guarded(work);
        return Done::Skipped;
    }
    let mut panicked = false;
    // A panic that the work did not catch itself must not end the thread.
    let message = caught(|| panicked = work.run());
    if panicked || message.is_some() { Done::Panicked } else { Done::Finished }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// Work that counts how often it was looked at.
    struct Looked {
        looks: Arc<AtomicUsize>,
        is_wanted: bool,
    }

    impl Work for Looked {
        fn is_wanted(&self) -> bool {
            self.looks.fetch_add(1, Ordering::Relaxed);
            self.is_wanted
        }

        fn run(self: Box<Self>) -> bool {
            false
        }
    }

    /// An overloaded pool refuses much work, so a refusal must be cheap.
    #[test]
    fn a_long_queue_is_searched_for_cancelled_work_in_parts() {
        let looks = Arc::new(AtomicUsize::new(0));
        let work = |is_wanted| Box::new(Looked { looks: looks.clone(), is_wanted });
        let mut queue = PoolQueue::default();
        for number in 0..5000 {
            queue.queue.push_back(work(![0, 1, 3000, 4999].contains(&number)));
        }
        let mut calls = 0;
        for left in (0..4).rev() {
            while queue.take_unwanted().is_empty() {
                calls += 1;
            }
            assert_eq!(queue.queue.len(), 4996 + left);
        }
        assert!((2..=6).contains(&calls), "{calls}");
        assert!(queue.take_unwanted().is_empty());
        assert!(looks.load(Ordering::Relaxed) <= (calls + 5) * MAX_LOOKS);
        assert_eq!(queue.skipped, 4);
        // A short queue is searched as a whole.
        queue.queue = (0..1000).map(|number| work(number % 2 == 0) as Box<dyn Work>).collect();
        assert_eq!(queue.take_unwanted().len(), 500);
    }
}
