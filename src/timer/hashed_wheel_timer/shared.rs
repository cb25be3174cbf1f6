//! What the handles of a timer share with its thread.
//!
//! Always holds: the life only moves forward (not started, running, ended); there is at most one thread. What waits for
//! the thread is looked at by it after it has published its sleep, and who puts something in looks at the sleep
//! afterwards: one of the two sees the other. Any thread may call everything here.

use super::{
    builder::Live,
    timeout::{Parts, Timeout, TimeoutEntry, TimerTask},
    worker::Worker,
};
use crate::{
    Clock, Error, Result,
    clock::{TimeSource, nanos},
    error::Refused,
    sync::{Inbox, Mailbox, WakeUp, mailbox},
    timer::{Wheel, deadline_after},
};
use std::{
    mem,
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering},
        mpsc,
    },
    thread::{self, JoinHandle, Thread},
    time::{Duration, Instant},
};

/// When so many wait for the sleeping thread, it is woken although nothing is due: they may all have been
/// cancelled, and to move them takes time that is missing when something is.
pub(super) const CROWD: usize = 16_384;

/// Where tasks run that shall not run on the timer's thread.
pub(super) type Executor = dyn Fn(Box<dyn FnOnce() + Send>) -> Result + Send + Sync;

/// What a timer is built from, checked.
pub(super) struct TimerSettings {
    pub(super) wheel: Wheel<Timeout>,
    pub(super) thread_name: String,
    pub(super) max_pending: usize,
    pub(super) executor: Option<Arc<Executor>>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) live: Live,
}

/// What all [`HashedWheelTimer`]s of one timer hold: with it, the timer ends.
pub(super) struct Handle {
    pub(super) shared: Arc<TimerShared>,
}

pub(super) struct TimerShared {
    additions: Mailbox<Timeout>,
    /// Those that were cancelled when they were in the wheel.
    cancelled: Mailbox<Timeout>,
    wake_up: WakeUp,
    pending: AtomicUsize,
    /// The number of the next timeout.
    next_number: AtomicU32,
    max_pending: usize,
    time: TimeSource,
    tick: u64,
    slots: usize,
    thread_name: String,
    /// The thread, once there is one; written before anything can be added.
    thread: OnceLock<Thread>,
    stopping: AtomicBool,
    life: Mutex<Life>,
    handle: Weak<Handle>,
}

enum Life {
    NotStarted(Box<Birth>),
    Running { thread: JoinHandle<Vec<Timeout>>, _live: Live },
    Ended,
}

/// What the thread will own.
struct Birth {
    wheel: Wheel<Timeout>,
    additions: Inbox<Timeout>,
    cancelled: Inbox<Timeout>,
    executor: Option<Arc<Executor>>,
    clock: Arc<dyn Clock>,
    live: Live,
}

impl Handle {
    pub(super) fn new(settings: TimerSettings) -> Arc<Self> {
        let TimerSettings { wheel, thread_name, max_pending, executor, clock, live } = settings;
        let (additions, added) = mailbox(usize::MAX);
        let (cancelled, unarmed) = mailbox(usize::MAX);
        let (tick, slots) = (wheel.tick(), wheel.slots());
        let time = TimeSource::new(clock.clone());
        let birth = Birth { wheel, additions: added, cancelled: unarmed, executor, clock, live };
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
                thread: OnceLock::new(),
                stopping: AtomicBool::new(false),
                life: Mutex::new(Life::NotStarted(Box::new(birth))),
                handle: handle.clone(),
            }),
        })
    }
}

impl Drop for Handle {
    /// Nobody waits for the thread: this may be the thread itself, in a task that had the last handle.
    fn drop(&mut self) {
        drop(self.shared.end());
    }
}

impl TimerShared {
    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn start(self: &Arc<Self>) -> Result {
        let mut life = self.life();
        let birth = match mem::replace(&mut *life, Life::Ended) {
            Life::NotStarted(birth) => birth,
            running @ Life::Running { .. } => {
                *life = running;
                return Ok(());
            }
            Life::Ended => return Err(Error::ShutDown),
        };
        // What the thread needs reaches it when it runs: where there is no thread to be had, it is kept for another
        // try.
        let (sender, receiver) = mpsc::sync_channel::<Worker>(1);
        let run = move || receiver.recv().map(Worker::run).unwrap_or_default();
        let thread = match thread::Builder::new().name(self.thread_name.clone()).spawn(run) {
            Ok(thread) => thread,
            Err(e) => {
                *life = Life::NotStarted(birth);
                return Err(Error::io("starting a timer's thread", e));
            }
        };
        let _ = self.thread.set(thread.thread().clone());
        let Birth { wheel, additions, cancelled, executor, clock, live } = *birth;
        if !clock.is_real_time() {
            let sleeper = thread.thread().clone();
            clock.on_advance(Box::new(move || sleeper.unpark()));
        }
        let pace = (clock.is_real_time(), clock.longest_sleep());
        let worker = Worker::new(self.clone(), wheel, additions, cancelled, executor, pace);
        let _ = sender.send(worker);
        *life = Life::Running { thread, _live: live };
        Ok(())
    }

    /// Ends the life; the thread, if there is one that nobody has been given yet.
    pub(super) fn end(&self) -> Option<JoinHandle<Vec<Timeout>>> {
        let ended = mem::replace(&mut *self.life(), Life::Ended);
        self.stopping.store(true, Ordering::SeqCst);
        self.additions.close();
        self.unpark();
        match ended {
            Life::Running { thread, .. } => Some(thread),
            Life::NotStarted(_) | Life::Ended => None,
        }
    }

    /// Takes no more additions, also if nobody has asked for that.
    pub(super) fn close(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.additions.close();
        self.cancelled.close();
    }

    #[inline]
    pub(super) fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    /// Whether this is the timer's thread.
    pub(super) fn is_here(&self) -> bool {
        self.thread.get().is_some_and(|thread| thread.id() == thread::current().id())
    }

    /// Adds a timeout, or hands back what it was to be made of.
    pub(super) fn add<F, H>(
        self: &Arc<Self>,
        delay: Duration,
        task: F,
        on_cancel: Option<H>,
        origin: &'static Location<'static>,
    ) -> Result<Timeout, Refused<(F, Option<H>)>>
    where
        F: FnOnce(&Timeout) -> Result + Send + 'static,
        H: FnOnce(&Timeout) + Send + 'static,
    {
        let running = if self.thread.get().is_some() { Ok(()) } else { self.start() };
        if let Err(reason) = running.and_then(|()| self.count_in()) {
            return Err(Refused { value: (task, on_cancel), reason });
        }
        // Without a delay it belongs to the tick that is running, also at the very moment in which that begins.
        let deadline = deadline_after(self.time.now(), delay.max(Duration::from_nanos(1)));
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        let entry: Arc<TimeoutEntry<Mutex<Parts<F, H>>>> =
            Arc::new(TimeoutEntry::new(task, on_cancel, deadline, number, origin, self.clone()));
        if let Err(refused) = self.additions.put(Timeout { entry: entry.clone() }) {
            self.count_out();
            let (Some(task), on_cancel) = entry.take_back() else {
                unreachable!("nobody else has seen it");
            };
            return Err(Refused { value: (task, on_cancel), reason: refused.reason });
        }
        let crowded = self.additions.len() >= CROWD;
        self.wake(if crowded { 0 } else { self.end_of_tick(deadline) });
        let entry: Arc<TimeoutEntry<dyn TimerTask>> = entry;
        Ok(Timeout { entry })
    }

    /// A timeout that is in the wheel was cancelled; whether so many are left there that the thread should see to it.
    pub(super) fn unarm(&self, timeout: &Timeout) -> bool {
        // Refused when the timer ends: then the wheel is emptied anyway.
        self.cancelled.put_always(timeout.clone()).is_ok() && self.cancelled.len() >= CROWD
    }

    /// Wakes the thread if it sleeps beyond `when`.
    pub(super) fn wake(&self, when: u64) {
        if self.wake_up.must_wake(when).is_some() {
            self.unpark();
        }
    }

    fn unpark(&self) {
        if let Some(thread) = self.thread.get() {
            thread.unpark();
        }
    }

    /// When the wheel gives out what has this deadline, at the earliest.
    fn end_of_tick(&self, deadline: u64) -> u64 {
        deadline.div_ceil(self.tick).saturating_mul(self.tick)
    }

    fn count_in(&self) -> Result {
        let room = |pending| (pending < self.max_pending).then_some(pending + 1);
        match self.pending.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room) {
            Ok(_) => Ok(()),
            Err(_) => Err(Error::Full { what: "pending timeouts", limit: self.max_pending }),
        }
    }

    /// One timeout is over; called by who has ended it.
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

    pub(super) fn handle(&self) -> Option<Arc<Handle>> {
        self.handle.upgrade()
    }
}
