//! The state that the handles of a timer share with its thread.
//!
//! Invariants: the life only moves forward (not started, running, ended), and there is at most one
//! thread. The thread publishes its sleep before it checks the mailboxes for the last time. A
//! caller adds an entry first and reads the published sleep afterwards. So one of the two sees the
//! other. Any thread may call everything here.

use super::live::Live;
use crate::{
    clock::{Clock, TimeSource, nanos},
    error::{Error, Resource, Result},
    machine::{self, JoinHandle, Mutex, Parker},
    sync::{Inbox, Mailbox, WakeUp, mailbox},
    timer::wheel::Wheel,
};
use std::{
    mem,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
    time::{Duration, Instant},
};

/// The number of waiting entries at which a sleeping thread is woken, although nothing is due. All
/// of them may have been cancelled, and moving them later would delay timeouts that are due.
pub(super) const CROWD: usize = 16_384;

/// A function that runs tasks elsewhere than on the timer's thread.
pub(super) type TimerExecutor = dyn Fn(Box<dyn FnOnce() + Send>) -> Result + Send + Sync;

/// The validated settings of a timer.
pub(super) struct TimerSettings<T> {
    pub(super) wheel: Wheel<T>,
    pub(super) thread_name: String,
    pub(super) max_pending: usize,
    pub(super) executor: Option<Arc<TimerExecutor>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) live: Live,
}

/// Shared by all handles of one timer. The timer stops when the last handle drops it.
pub(super) struct Handle<T> {
    pub(super) shared: Arc<TimerShared<T>>,
}

pub(super) struct TimerShared<T> {
    pub(super) additions: Mailbox<T>,
    /// Timeouts that were in the wheel when they were cancelled.
    cancelled: Mailbox<T>,
    wake_up: WakeUp,
    pending: AtomicUsize,
    /// The number of the next timeout.
    pub(super) next_number: AtomicU32,
    max_pending: usize,
    time: TimeSource,
    tick: u64,
    slots: usize,
    thread_name: String,
    /// Whether the thread was started. Set before anything can be added.
    is_started: AtomicBool,
    /// The thread, once it runs.
    thread: OnceLock<ThreadId>,
    /// What the thread sleeps in.
    parker: Arc<Parker>,
    stopping: AtomicBool,
    life: Mutex<TimerLife<T>>,
    handle: Weak<Handle<T>>,
}

pub(super) enum TimerLife<T> {
    NotStarted(Box<WorkerParts<T>>, Live),
    Running { thread: JoinHandle<Vec<T>>, _live: Live },
    Ended,
}

/// The state that moves to the timer's thread when it starts.
pub(super) struct WorkerParts<T> {
    pub(super) wheel: Wheel<T>,
    pub(super) additions: Inbox<T>,
    pub(super) cancelled: Inbox<T>,
    pub(super) executor: Option<Arc<TimerExecutor>>,
    pub(super) clock: Arc<dyn Clock>,
}

impl<T> Handle<T> {
    pub(super) fn new(settings: TimerSettings<T>) -> Arc<Self> {
        let TimerSettings { wheel, thread_name, max_pending, executor, clock, live } = settings;
        let (additions, added) = mailbox(usize::MAX);
        let (cancelled, unarmed) = mailbox(usize::MAX);
        let (tick, slots) = (wheel.tick(), wheel.slots());
        let time = TimeSource::new(clock.clone());
        let parts = WorkerParts { wheel, additions: added, cancelled: unarmed, executor, clock };
        Arc::new_cyclic(|handle| Handle {
            shared: Arc::new(TimerShared {
                additions,
                cancelled,
                wake_up: WakeUp::new(),
                pending: AtomicUsize::new(0),
                next_number: AtomicU32::new(0),
                max_pending,
                time,
                tick: nanos(tick),
                slots,
                thread_name,
                is_started: AtomicBool::new(false),
                thread: OnceLock::new(),
                parker: Arc::default(),
                stopping: AtomicBool::new(false),
                life: Mutex::new(TimerLife::NotStarted(Box::new(parts), live)),
                handle: handle.clone(),
            }),
        })
    }
}

impl<T> Drop for Handle<T> {
    /// Does not join the thread. The last handle may be dropped by a task on the thread itself.
    fn drop(&mut self) {
        drop(self.shared.end());
    }
}

impl<T> TimerShared<T> {
    /// Starts the thread unless it was started before. The thread calls `run`, whose result is
    /// returned by the stop of the timer.
    pub(super) fn start(self: &Arc<Self>, run: fn(Arc<Self>, WorkerParts<T>) -> Vec<T>) -> Result
    where
        T: Send + 'static,
    {
        let mut life = self.life.lock();
        let (parts, live) = match mem::replace(&mut *life, TimerLife::Ended) {
            TimerLife::NotStarted(parts, live) => (parts, live),
            running @ TimerLife::Running { .. } => {
                *life = running;
                return Ok(());
            }
            TimerLife::Ended => return Err(Error::ShutDown),
        };
        // The thread takes its parts when it runs. If the thread cannot be started, the parts are
        // kept for another attempt.
        if !parts.clock.is_real_time() {
            let sleeper = self.parker.clone();
            parts.clock.on_advance(Box::new(move || sleeper.unpark()));
        }
        let place = Arc::new(Mutex::new(Some(parts)));
        let (shared, theirs) = (self.clone(), place.clone());
        let work = move || {
            let _ = shared.thread.set(thread::current().id());
            taken(&theirs).map(|parts| run(shared, *parts)).unwrap_or_default()
        };
        let thread = match machine::spawn(self.thread_name.clone(), work) {
            Ok(thread) => thread,
            Err(e) => {
                if let Some(parts) = taken(&place) {
                    *life = TimerLife::NotStarted(parts, live);
                }
                return Err(Error::io("starting a timer's thread", e));
            }
        };
        self.is_started.store(true, Ordering::Release);
        *life = TimerLife::Running { thread, _live: live };
        Ok(())
    }

    #[inline]
    pub(super) fn is_started(&self) -> bool {
        self.is_started.load(Ordering::Acquire)
    }

    /// Ends the life of the timer. Returns the thread if it is running and was not returned before.
    pub(super) fn end(&self) -> Option<JoinHandle<Vec<T>>> {
        let ended = mem::replace(&mut *self.life.lock(), TimerLife::Ended);
        self.stopping.store(true, Ordering::SeqCst);
        self.additions.close();
        self.unpark();
        match ended {
            TimerLife::Running { thread, .. } => Some(thread),
            TimerLife::NotStarted(..) | TimerLife::Ended => None,
        }
    }

    /// Closes both mailboxes. Also called if the thread ends without a request to stop.
    pub(super) fn close(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.additions.close();
        self.cancelled.close();
    }

    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Returns whether the calling thread is the timer's thread.
    pub(super) fn is_here(&self) -> bool {
        self.thread.get().is_some_and(|thread| *thread == thread::current().id())
    }

    /// Queues a cancelled timeout for removal from the wheel. Returns whether the thread should be
    /// woken because many cancelled timeouts are waiting.
    pub(super) fn unarm(&self, timeout: T) -> bool {
        // Refused when the timer has ended. The wheel is emptied in that case.
        self.cancelled.put_always(timeout).is_ok() && self.cancelled.len() >= CROWD
    }

    /// Wakes the thread if it sleeps beyond `when`.
    pub(super) fn wake(&self, when: u64) {
        if self.wake_up.must_wake(when).is_some() {
            self.unpark();
        }
    }

    fn unpark(&self) {
        self.parker.unpark();
    }

    /// Blocks the timer's thread until it is woken, at most for `timeout` if there is one.
    pub(super) fn park(&self, timeout: Option<Duration>) {
        self.parker.park(timeout);
    }

    /// Returns the earliest time at which the wheel expires an entry with this deadline.
    pub(super) fn end_of_tick(&self, deadline: u64) -> u64 {
        deadline.div_ceil(self.tick).saturating_mul(self.tick)
    }

    pub(super) fn count_in(&self) -> Result {
        let room = |pending| (pending < self.max_pending).then_some(pending + 1);
        match self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Full { resource: Resource::Timeouts, limit: self.max_pending }),
        }
    }

    /// Stops counting one timeout as pending. Called by the thread that expired or cancelled it.
    pub(super) fn count_out(&self) {
        self.pending.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Relaxed)
    }

    pub(super) fn tick(&self) -> Duration {
        Duration::from_nanos(self.tick)
    }

    pub(super) fn tick_nanos(&self) -> u64 {
        self.tick
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    pub(super) fn thread_name(&self) -> &str {
        &self.thread_name
    }

    pub(super) fn now(&self) -> u64 {
        self.time.now()
    }

    pub(super) fn instant(&self, at: u64) -> Instant {
        self.time.instant(at)
    }

    pub(super) fn wake_up(&self) -> &WakeUp {
        &self.wake_up
    }

    pub(super) fn handle(&self) -> Option<Arc<Handle<T>>> {
        self.handle.upgrade()
    }
}

fn taken<T>(place: &Mutex<Option<T>>) -> Option<T> {
    place.lock().take()
}
