//! A pool of threads for blocking work, so that event loops do not block.
//!
//! The pool is a queue and a few counters under one lock, and code of the program never runs under
//! that lock. So the decisions to refuse work or to start a thread are exact. A group has a pool
//! from the beginning; threads are started on demand. They may run on all cores that were allowed
//! for the thread which built the pool. Otherwise all threads that a pinned loop starts would share
//! its core.
//!
//! A thread is started when work finds none that is free. It ends when it has been idle for a
//! while, or when the last handle is dropped and the queue is empty. A full queue drops cancelled
//! work first.
//!
//! Invariants: besides the work that a thread has or is about to take, at most `max_pending` works
//! wait. Accepted work runs once, or is dropped if its channel no longer wants it. A panic ends
//! only the work in which it happens. Any thread may submit, and blocks only on a short lock. The
//! pool knows neither channels nor loops.

mod builder;
mod cores;

pub use builder::WorkerPoolBuilder;

use crate::{
    Error, Resource, Result,
    error::{SendError, caught, drop_guarded},
    log_throttle::{PANICS, log_throttled, off_loop},
};
use cores::Cores;
use log::Level;
use std::{
    collections::VecDeque,
    fmt,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread,
};

/// A bounded pool of threads for work that blocks: files, databases, password hashes, name look-ups.
///
/// [`Context::offload`](crate::Context::offload) runs work on the pool of the group and brings the answer back to the
/// handler. A group has a pool of its own unless one is given to it
/// ([`workers`](crate::EventLoopGroupBuilder::workers)); it starts no thread before it is used.
///
/// A handle; it can be cloned, sent and shared. When the last one is dropped (groups and event loops have some) what
/// waits is still run, then the threads end. Threads may run where the thread that built the pool could (Linux), whatever
/// core the loop that needs them is pinned to.
///
/// ```
/// use netwheel::{EventLoopGroup, WorkerPool};
/// use std::time::Duration;
///
/// let pool = WorkerPool::builder().threads(8).max_pending(100).name("lookup").build()?;
/// let group = EventLoopGroup::builder().threads(1).workers(&pool).build()?;
/// // Handlers use it by `ctx.offload`; everybody else may, too:
/// let (answer, answered) = std::sync::mpsc::channel();
/// pool.execute(move || answer.send(6 * 7))?;
/// assert_eq!(answered.recv_timeout(Duration::from_secs(10)), Ok(42));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct WorkerPool {
    owner: Arc<Owner>,
}

/// What a [`WorkerPool`] is doing, and has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct WorkerMetrics {
    /// Threads that there are now.
    pub threads: usize,
    /// Works that wait for a thread now.
    pub pending: usize,
    /// Works that a thread has now, or is about to take.
    pub running: usize,
    /// Works that have been run, those that panicked among them.
    pub finished: u64,
    /// Works that were dropped unrun, since the channel that wanted them was gone or had cancelled them.
    pub skipped: u64,
    /// Works that were refused because too many waited.
    pub refused: u64,
    /// Works that panicked.
    pub panicked: u64,
}

/// One thing to run.
pub(crate) trait Work: Send {
    /// Whether anybody still wants it: asked before it is run.
    fn is_wanted(&self) -> bool;

    /// Runs it; whether it panicked.
    fn run(self: Box<Self>) -> bool;
}

/// Work that somebody wants whatever happens.
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
                log_throttled!(off_loop(), PANICS, Level::Error, "a work of {name} panicked: {message}")
            });
        }
        panicked.is_some()
    }
}

/// All handles together; the pool ends with it.
struct Owner {
    pool: Arc<Pool>,
}

struct Pool {
    settings: WorkerPoolBuilder,
    cores: Cores,
    state: Mutex<PoolQueue>,
    /// Something is in the queue, or no more will come.
    changed: Condvar,
}

#[derive(Default)]
struct PoolQueue {
    queue: VecDeque<Box<dyn Work>>,
    threads: usize,
    /// Of the threads, those that have no work: they wait for some, or are just being started.
    free: usize,
    /// Threads that were ever started.
    started: usize,
    closed: bool,
    /// The log has heard that no thread could be started, and none was since.
    failure_logged: bool,
    finished: u64,
    skipped: u64,
    refused: u64,
    panicked: u64,
}

impl PoolQueue {
    /// Works that no thread is about to take.
    fn pending(&self) -> usize {
        self.queue.len().saturating_sub(self.free)
    }

    /// Takes out what nobody wants any more.
    fn take_unwanted(&mut self) -> Vec<Box<dyn Work>> {
        let all = std::mem::take(&mut self.queue);
        let (wanted, unwanted): (Vec<_>, Vec<_>) = all.into_iter().partition(|work| work.is_wanted());
        self.queue = wanted.into();
        self.skipped += unwanted.len() as u64;
        unwanted
    }
}

impl WorkerPool {
    /// A pool with the default settings.
    pub fn new() -> Self {
        Self::of(WorkerPoolBuilder::new())
    }

    /// Settings first.
    pub fn builder() -> WorkerPoolBuilder {
        WorkerPoolBuilder::new()
    }

    /// A pool without threads: somebody calls [`WorkerPool::run_waiting`].
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

    /// Runs `work` on one of the threads; what it returns is dropped.
    ///
    /// It does not wait for room. A panic in the work is logged. Works begin in the order in which they were taken on.
    ///
    /// # Errors
    /// The work comes back with [`Error::Full`] if `max_pending` works wait, with [`Error::Io`] if there is no thread and
    /// none can be started.
    pub fn execute<T, F: FnOnce() -> T + Send + 'static>(&self, work: F) -> Result<(), SendError<F>> {
        self.submit(Plain(work)).map_err(|refused| refused.map(|Plain(work)| work))
    }

    /// Runs `work` on one of the threads, unless it is not wanted by then.
    ///
    /// # Errors
    /// As [`WorkerPool::execute`].
    pub(crate) fn submit<W: Work + 'static>(&self, work: W) -> Result<(), SendError<W>> {
        let pool = &self.owner.pool;
        let mut unwanted = Vec::new();
        let mut state = pool.lock();
        let WorkerPoolBuilder { threads, max_pending: limit, .. } = pool.settings;
        if state.pending() >= limit {
            // What nobody wants must not keep out what somebody does.
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
            // Where there is one it comes to this work, too, only later.
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
        // Once, and not for each work that comes meanwhile.
        let untold = failed.filter(|_| !std::mem::replace(&mut state.failure_logged, true));
        drop(state);
        unwanted.into_iter().for_each(drop_guarded);
        if let Some(e) = untold {
            log::warn!("{}: one more thread cannot be started: {e:#}", pool.settings.name);
        }
        result
    }

    /// Runs what waits, on the calling thread; how many works that were. Only for a pool without threads.
    pub(crate) fn run_waiting(&self) -> usize {
        let pool = &self.owner.pool;
        let mut run = 0;
        let mut waiting = pool.lock().queue.len();
        while waiting > 0 {
            waiting -= 1;
            let Some(work) = pool.lock().queue.pop_front() else { break };
            let done = run_one(work);
            pool.lock().note(done);
            run += 1;
        }
        run
    }

    /// Whether work waits for a thread.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.owner.pool.lock().queue.is_empty()
    }

    /// What the pool is doing, and has done; takes its lock for a moment.
    pub fn metrics(&self) -> WorkerMetrics {
        let state = self.owner.pool.lock();
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
        self.pool.lock().closed = true;
        self.pool.changed.notify_all();
    }
}

impl Pool {
    fn lock(&self) -> MutexGuard<'_, PoolQueue> {
        // Nothing of the program's own runs under it, so the state is whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts one more thread.
    fn start(self: &Arc<Self>, state: &mut PoolQueue) -> std::io::Result<()> {
        let pool = self.clone();
        let thread = thread::Builder::new().name(format!("{}-{}", self.settings.name, state.started));
        thread.spawn(move || pool.work())?;
        state.failure_logged = false;
        state.started += 1;
        state.threads += 1;
        state.free += 1;
        Ok(())
    }

    /// The life of one thread.
    #[allow(clippy::disallowed_methods, reason = "how long an idle thread is kept is real time")]
    fn work(&self) {
        self.cores.allow_this_thread();
        let mut state = self.lock();
        loop {
            if let Some(work) = state.queue.pop_front() {
                state.free -= 1;
                drop(state);
                let done = run_one(work);
                state = self.lock();
                state.free += 1;
                state.note(done);
                continue;
            }
            if state.closed {
                break;
            }
            let waited = self.changed.wait_timeout(state, self.settings.keep_alive);
            let (again, time) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            if time.timed_out() && state.queue.is_empty() {
                break;
            }
        }
        state.free -= 1;
        state.threads -= 1;
    }
}

/// What became of a work.
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
    // Whatever the work has not caught itself must not end the thread.
    let message = caught(|| panicked = work.run());
    if panicked || message.is_some() { Done::Panicked } else { Done::Finished }
}
