//! One timeout: its state, its task and its hook, in one allocation.
//!
//! Always holds: the state goes from queued to armed, or not, and from either to expired or cancelled, once.
//! Whoever made the last step is the only one to run or drop the task. The task is under a lock for no other reason
//! than that the compiler cannot see this; nobody ever waits for it. Any thread may call what is public here.

use super::{HashedWheelTimer, shared::TimerShared};
use crate::{
    Result,
    error::{caught, drop_guarded, panic_message},
    timer::WheelKey,
};
use std::{
    fmt,
    hash::{Hash, Hasher},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    time::Instant,
};

/// On its way to the wheel.
const QUEUED: u8 = 0;
/// In the wheel.
const ARMED: u8 = 1;
const EXPIRED: u8 = 2;
const CANCELLED: u8 = 3;

/// A task that a [`HashedWheelTimer`] runs later, as its holder sees it.
///
/// Clones stand for the same timeout, and are equal; that, and not its state, is what it is hashed by. Dropped, they
/// let the task run; what they keep alive is a few words. Every thread may hold one, and ask it.
#[derive(Clone)]
pub struct Timeout {
    pub(super) entry: Arc<TimeoutEntry<dyn TimerTask>>,
}

pub(super) struct TimeoutEntry<T: ?Sized> {
    state: AtomicU8,
    hooked: bool,
    /// What its handles are hashed by. The numbers of a timer repeat after 2^32.
    number: u32,
    /// Written and read by the timer's thread alone.
    key: OnceLock<WheelKey>,
    /// In nanoseconds of the timer's time.
    deadline: u64,
    origin: &'static Location<'static>,
    shared: Arc<TimerShared<Timeout>>,
    task: T,
}

/// What is run in the one case and in the other.
pub(super) struct Parts<F, H> {
    task: Option<F>,
    on_cancel: Option<H>,
}

/// The type of a hook that is not there.
pub(super) type NoHook = fn(&Timeout);

/// [`Parts`], whatever their types.
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
        let hook = lock(self).on_cancel.take();
        drop_guarded(hook);
        let task = lock(self).task.take();
        task.map_or(Ok(()), |task| task(timeout))
    }

    fn forget(&self) {
        let task = lock(self).task.take();
        drop(task);
    }

    fn run_hook(&self, timeout: &Timeout) {
        let hook = lock(self).on_cancel.take();
        if let Some(hook) = hook {
            hook(timeout);
        }
    }
}

fn lock<T>(parts: &Mutex<T>) -> MutexGuard<'_, T> {
    parts.lock().unwrap_or_else(PoisonError::into_inner)
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

    /// Task and hook of a timeout that nobody has seen yet.
    pub(super) fn take_back(&self) -> (Option<F>, Option<H>) {
        let mut parts = lock(&self.task);
        (parts.task.take(), parts.on_cancel.take())
    }
}

impl Timeout {
    /// Cancels it: true if the task will never run, false if it has expired or was cancelled before.
    ///
    /// The task is dropped here and now. In its own task a timeout has expired already.
    pub fn cancel(&self) -> bool {
        let Some(was) = self.leave_for_cancelled() else { return false };
        self.forget();
        let shared = &self.entry.shared;
        // One that has not reached the wheel is found cancelled on its way there.
        let crowded = was == ARMED && shared.unarm(self.clone());
        if crowded || self.entry.hooked {
            shared.wake(0);
        }
        true
    }

    /// Whether it was cancelled, by its holder or by the timer's stop.
    pub fn is_cancelled(&self) -> bool {
        self.state() == CANCELLED
    }

    /// Whether its time came before it was cancelled: the task has run, is running, or is about to.
    pub fn is_expired(&self) -> bool {
        self.state() == EXPIRED
    }

    /// When it is due, by the timer's clock: when it was added plus its delay. The task runs up to a tick later.
    pub fn deadline(&self) -> Instant {
        self.entry.shared.instant(self.entry.deadline)
    }

    /// The timer that it belongs to; `None` when all handles of that are gone.
    pub fn timer(&self) -> Option<HashedWheelTimer> {
        self.entry.shared.handle().map(HashedWheelTimer::of)
    }

    fn state(&self) -> u8 {
        self.entry.state.load(Ordering::Acquire)
    }

    /// Makes it a cancelled one, unless it is over; what it was before.
    fn leave_for_cancelled(&self) -> Option<u8> {
        let pending = |state| (state < EXPIRED).then_some(CANCELLED);
        let was = self.entry.state.fetch_update(Ordering::AcqRel, Ordering::Acquire, pending).ok()?;
        self.entry.shared.count_out();
        Some(was)
    }

    fn step(&self, from: u8, to: u8) -> bool {
        self.entry.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Drops the task; what it has captured may panic.
    fn forget(&self) {
        self.guarded(|| self.entry.task.forget(), "was dropped and");
    }

    fn guarded(&self, f: impl FnOnce(), what: &str) {
        if let Some(message) = caught(f) {
            self.complain(format_args!("{what} panicked: {message}"));
        }
    }

    /// Writes to the log, which may be the program's and panic, too.
    fn complain(&self, what: fmt::Arguments<'_>) {
        caught(|| log::error!("the timeout given at {} {what}", self.entry.origin));
    }
}

/// What the timer's thread does with it.
impl Timeout {
    pub(super) fn deadline_nanos(&self) -> u64 {
        self.entry.deadline
    }

    /// Whether it is to be put into the wheel: false if it was cancelled.
    pub(super) fn arm(&self) -> bool {
        self.step(QUEUED, ARMED)
    }

    /// Where it is in the wheel, which is said once.
    pub(super) fn set_key(&self, key: WheelKey) {
        let _ = self.entry.key.set(key);
    }

    pub(super) fn key(&self) -> Option<WheelKey> {
        self.entry.key.get().copied()
    }

    /// Whether its task is to be run now: false if it was cancelled.
    pub(super) fn expire(&self) -> bool {
        let expired = self.step(ARMED, EXPIRED);
        if expired {
            self.entry.shared.count_out();
        }
        expired
    }

    /// Runs its task, once; on the timer's thread or where the executor has it.
    pub(super) fn run(&self) {
        match catch_unwind(AssertUnwindSafe(|| self.entry.task.run(self))) {
            Ok(Ok(())) => {}
            // Dropped where a panic is caught: an error of the program's may do anything.
            Ok(Err(e)) => {
                caught(|| self.complain(format_args!("failed: {e:#}")));
                drop_guarded(e);
            }
            Err(panic) => self.complain(format_args!("panicked: {}", panic_message(panic))),
        }
    }

    /// Runs the hook of a cancelled one, if it has not run.
    pub(super) fn run_hook(&self) {
        if self.entry.hooked {
            self.guarded(|| self.entry.task.run_hook(self), "was cancelled and its hook");
        }
    }

    /// Cancels it because the timer stops; false if it was over before.
    pub(super) fn cancel_by_stop(&self) -> bool {
        let mine = self.leave_for_cancelled().is_some();
        if mine {
            self.forget();
        }
        mine
    }

    /// The executor did not take its task.
    pub(super) fn refused(&self, why: fmt::Arguments<'_>) {
        self.complain(format_args!("has expired, but its task was refused by the executor: {why}"));
    }
}

/// The task of an expired timeout on its way through an executor; where that drops it, the task goes, too.
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
        // Not the address, by which the order in a set would differ in each run.
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
    use crate::testing::ManualClock;
    use std::{hash::DefaultHasher, time::Duration};

    #[test]
    fn timeouts_are_hashed_by_their_numbers_which_each_timer_counts() {
        let hashes = || {
            let timer = HashedWheelTimer::builder().clock(ManualClock::new()).build().unwrap();
            let made = [(); 3].map(|()| timer.new_timeout(Duration::from_secs(1), |_| Ok(())).unwrap());
            assert!(made[0] == made[0].clone() && made[0] != made[1]);
            made.map(|timeout| {
                let hash_of = |timeout: &Timeout| {
                    // Its keys are the same in each run.
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
