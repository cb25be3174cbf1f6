//! One timeout: its state, its task and its hook, in one allocation.
//!
//! Invariants: the state goes from queued to armed, and from either to expired or cancelled, once.
//! The thread that performs the last transition is the only one to run or drop the task. The task
//! is behind a mutex only because the compiler cannot verify this; the mutex is never contended.
//!
//! Any thread may call the public methods.

use super::{HashedWheelTimer, shared::TimerShared};
use crate::{
    error::{Result, caught, drop_guarded, panic_message},
    machine::Mutex,
    timer::entries::WheelKey,
};
use std::{
    fmt,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU8, Ordering},
    },
    time::Instant,
};

/// In the mailbox, not in the wheel yet.
const QUEUED: u8 = 0;
/// In the wheel.
const ARMED: u8 = 1;
const EXPIRED: u8 = 2;
const CANCELLED: u8 = 3;

/// A handle to a task scheduled on a [`HashedWheelTimer`].
///
/// Clones refer to the same timeout and compare equal. The hash depends on the identity of the
/// timeout, not on its state. Dropping a handle does not cancel the task. A handle keeps only a few
/// words alive and can be used on any thread.
#[derive(Clone)]
pub struct Timeout {
    pub(super) entry: Arc<TimeoutEntry<dyn TimerTask>>,
}

pub(super) struct TimeoutEntry<T: ?Sized> {
    state: AtomicU8,
    hooked: bool,
    /// The value that handles hash to. Numbers of one timer repeat after 2³² timeouts.
    number: u32,
    /// Accessed only by the timer's thread.
    key: OnceLock<WheelKey>,
    /// The deadline in nanoseconds of the timer's time.
    deadline: u64,
    origin: &'static Location<'static>,
    shared: Arc<TimerShared<Timeout>>,
    task: T,
}

/// A task and its optional cancellation hook.
pub(super) struct Parts<F, H> {
    task: Option<F>,
    on_cancel: Option<H>,
}

/// The type parameter for a timeout without a hook.
pub(super) type NoHook = fn(&Timeout);

/// Type-erased [`Parts`].
pub(super) trait TimerTask: Send + Sync {
    /// Runs the task, if it is still there, and drops the hook.
    fn run(&self, timeout: &Timeout) -> Result;
    /// Drops the task.
    fn forget(&self);
    /// Runs the hook, if there is one and it is still there.
    fn run_hook(&self, timeout: &Timeout);
}

impl<F, H> TimerTask for Mutex<Parts<F, H>>
where
    F: FnOnce(&Timeout) -> Result + Send,
    H: FnOnce(&Timeout) + Send,
{
    fn run(&self, timeout: &Timeout) -> Result {
        let hook = self.lock().on_cancel.take();
        drop_guarded(hook);
        let task = self.lock().task.take();
        task.map_or(Ok(()), |task| task(timeout))
    }

    fn forget(&self) {
        let task = self.lock().task.take();
        drop(task);
    }

    fn run_hook(&self, timeout: &Timeout) {
        let hook = self.lock().on_cancel.take();
        if let Some(hook) = hook {
            hook(timeout);
        }
    }
}

impl<F, H> TimeoutEntry<Mutex<Parts<F, H>>> {
    pub(super) fn new(
        task: F,
        on_cancel: Option<H>,
        deadline: u64,
        number: u32,
        origin: &'static Location<'static>,
        shared: Arc<TimerShared<Timeout>>,
    ) -> Self {
        TimeoutEntry {
            state: AtomicU8::new(QUEUED),
            hooked: on_cancel.is_some(),
            number,
            key: OnceLock::new(),
            deadline,
            origin,
            shared,
            task: Mutex::new(Parts { task: Some(task), on_cancel }),
        }
    }

    /// Returns the task and the hook of a timeout that was not shared yet.
    pub(super) fn take_back(&self) -> (Option<F>, Option<H>) {
        let mut parts = self.task.lock();
        (parts.task.take(), parts.on_cancel.take())
    }
}

impl Timeout {
    /// Cancels the timeout. Returns `true` if the task will never run, `false` if the timeout has
    /// expired or was cancelled before.
    ///
    /// The task is dropped before this returns, on the calling thread. Within its own task, a
    /// timeout has already expired.
    pub fn cancel(&self) -> bool {
        let Some(was) = self.leave_for_cancelled() else { return false };
        self.forget();
        let shared = &self.entry.shared;
        // A timeout that is still queued is recognised as cancelled when the thread receives it.
        let crowded = was == ARMED && shared.unarm(self.clone());
        if crowded || self.entry.hooked {
            shared.wake(0);
        }
        true
    }

    /// Returns whether the timeout was cancelled, by a handle or by the stop of the timer.
    pub fn is_cancelled(&self) -> bool {
        self.state() == CANCELLED
    }

    /// Returns whether the timeout expired: the task has run, is running, or is about to run.
    pub fn is_expired(&self) -> bool {
        self.state() == EXPIRED
    }

    /// Returns the deadline by the timer's clock: the time of the addition plus the delay. The task
    /// runs up to one tick later.
    pub fn deadline(&self) -> Instant {
        self.entry.shared.instant(self.entry.deadline)
    }

    /// Returns the timer of this timeout, or `None` if all handles to that timer have been dropped.
    pub fn timer(&self) -> Option<HashedWheelTimer> {
        self.entry.shared.handle().map(HashedWheelTimer::of)
    }

    fn state(&self) -> u8 {
        self.entry.state.load(Ordering::Acquire)
    }

    /// Sets the state to cancelled if the timeout is pending. Returns the previous state.
    fn leave_for_cancelled(&self) -> Option<u8> {
        let pending = |state| (state < EXPIRED).then_some(CANCELLED);
        let was = self.entry.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, pending).ok()?;
        self.entry.shared.count_out();
        Some(was)
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.entry.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Drops the task. Catches panics of destructors.
    fn forget(&self) {
        self.guarded(|| self.entry.task.forget(), "was dropped and");
    }

    fn guarded(&self, f: impl FnOnce(), what: &str) {
        if let Some(message) = caught(f) {
            self.complain(format_args!("{what} panicked: {message}"));
        }
    }

    /// Logs an error. The logger belongs to the program and may panic too.
    fn complain(&self, what: fmt::Arguments<'_>) {
        caught(|| log::error!("the timeout given at {} {what}", self.entry.origin));
    }
}

/// Methods for the timer's thread.
impl Timeout {
    pub(super) fn deadline_nanos(&self) -> u64 {
        self.entry.deadline
    }

    /// Sets the state to armed. Returns `false` if the timeout was cancelled and must not be put
    /// into the wheel.
    pub(super) fn arm(&self) -> bool {
        self.step(QUEUED, ARMED)
    }

    /// Stores the key of the timeout in the wheel. Called once.
    pub(super) fn set_key(&self, key: WheelKey) {
        let _ = self.entry.key.set(key);
    }

    pub(super) fn key(&self) -> Option<WheelKey> {
        self.entry.key.get().copied()
    }

    /// Sets the state to expired. Returns `false` if the timeout was cancelled and its task must
    /// not run.
    pub(super) fn expire(&self) -> bool {
        let expired = self.step(ARMED, EXPIRED);
        if expired {
            self.entry.shared.count_out();
        }
        expired
    }

    /// Runs the task, once. Called on the timer's thread or by the executor.
    pub(super) fn run(&self) {
        match catch_unwind(AssertUnwindSafe(|| self.entry.task.run(self))) {
            Ok(Ok(())) => {}
            // Dropped inside `caught`, because destroying the program's error may panic.
            Ok(Err(e)) => {
                caught(|| self.complain(format_args!("failed: {e:#}")));
                drop_guarded(e);
            }
            Err(panic) => self.complain(format_args!("panicked: {}", panic_message(panic))),
        }
    }

    /// Runs the hook of a cancelled timeout, unless it has run already.
    pub(super) fn run_hook(&self) {
        if self.entry.hooked {
            self.guarded(|| self.entry.task.run_hook(self), "was cancelled and its hook");
        }
    }

    /// Cancels the timeout because the timer stops. Returns `false` if it was not pending.
    pub(super) fn cancel_by_stop(&self) -> bool {
        let mine = self.leave_for_cancelled().is_some();
        if mine {
            self.forget();
        }
        mine
    }

    /// Logs that the executor refused the task.
    pub(super) fn refused(&self, why: fmt::Arguments<'_>) {
        self.complain(format_args!("has expired, but its task was refused by the executor: {why}"));
    }
}

/// An expired timeout's task while an executor has it. Dropping this without `run` drops the task.
pub(super) struct Errand(pub(super) Timeout);

impl Errand {
    pub(super) fn run(self) {
        self.0.run();
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        self.0.forget();
    }
}

impl PartialEq for Timeout {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(&self.entry), Arc::as_ptr(&other.entry))
    }
}

impl Eq for Timeout {}

impl Hash for Timeout {
    fn hash<S: Hasher>(&self, state: &mut S) {
        // The number instead of the address keeps the order of hash sets reproducible.
        self.entry.number.hash(state);
    }
}

impl fmt::Debug for Timeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state() {
            EXPIRED => "expired",
            CANCELLED => "cancelled",
            _ => "pending",
        };
        f.debug_struct("Timeout")
            .field("state", &state)
            .field("deadline", &self.deadline())
            .field("given_at", &format_args!("{}", self.entry.origin))
            .finish()
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use std::{hash::DefaultHasher, time::Duration};

    #[test]
    fn timeouts_hash_by_a_number_that_each_timer_counts() {
        let hashes = || {
            let timer = HashedWheelTimer::builder().clock(ManualClock::new()).build().unwrap();
            let made = [(); 3].map(|()| timer.new_timeout(Duration::from_secs(1), |_| Ok(())).unwrap());
            assert!(made[0] == made[0].clone() && made[0] != made[1]);
            made.map(|timeout| {
                let hash_of = |timeout: &Timeout| {
                    // A `DefaultHasher` created this way uses the same keys in each run.
                    let mut hasher = DefaultHasher::new();
                    timeout.hash(&mut hasher);
                    hasher.finish()
                };
                assert_eq!(hash_of(&timeout), hash_of(&timeout.clone()));
                hash_of(&timeout)
            })
        };
        let first = hashes();
        assert_eq!(first, hashes());
        assert!(first[0] != first[1] && first[1] != first[2]);
    }
}
