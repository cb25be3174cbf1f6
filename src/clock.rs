//! Sources of time.
//!
//! Each event loop group has one [`Clock`], real or manual, and its loops read no other. Inside a
//! loop an instant is a `u64` of nanoseconds since the loop's origin. [`TimeSource`] makes it, and
//! the number is passed down. It never goes back, whatever the clock does, and it never passes
//! [`END_OF_TIME`], 584 years after the origin. A saturated deadline is later than that, so it is
//! never due. A manual clock that is advanced by `Duration::MAX` leaves loops asleep.
//!
//! Loops on a manual clock sleep until they are woken, and the clock wakes them when it is
//! advanced. The system's poll sleeps by the monotonic clock. A clock that may get ahead of it
//! limits each sleep ([`Clock::longest_sleep`]).
//!
//! The heap is exact. mio sleeps in whole milliseconds, rounded up, so a timer on an idle loop is
//! up to a millisecond late and never early. The wheel rounds up to its tick.
//!
//! Some times are real whatever clock the loops have: how long a thread of the program waits
//! (`Completion::wait_timeout`, `EventLoop::execute_timeout`, the limit of
//! `ManualEventLoop::run_once`), how long an idle worker is kept, the watchdog, and the limit of
//! log lines outside of loops ([`process_time`]). clippy.toml refuses other uses.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use boot::BootClock;

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

/// The last time that a loop reaches, 584 years after its origin. A later deadline, such as
/// `u64::MAX`, never comes.
///
/// `WakeUp` represents a sleep without a deadline by `u64::MAX - 1`, so a timer at the end of time
/// must be earlier.
pub(crate) const END_OF_TIME: u64 = u64::MAX - 2;

/// A source of monotonic time; callable from any thread.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The time now.
    fn now(&self) -> Instant;

    /// Whether this time passes by itself, so that a loop may sleep until a deadline. Where it does not, loops
    /// sleep until they are woken ([`Clock::on_advance`]).
    fn is_real_time(&self) -> bool {
        true
    }

    /// Has `wake` called whenever the time was moved by hand; a clock of real time never calls it.
    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        drop(wake);
    }

    /// The longest that a loop may sleep towards a deadline without looking at this clock; at least a millisecond.
    ///
    /// For clocks that may get ahead of the one by which the system's poll sleeps, like one that goes on while the
    /// machine is suspended. None, which is the default: until the deadline. A loop that has no deadline sleeps
    /// until something happens in either case.
    fn longest_sleep(&self) -> Option<Duration> {
        None
    }
}

/// The operating system's monotonic clock.
///
/// While the machine is suspended it stands still on Linux (`CLOCK_MONOTONIC`) and macOS, so no timeout counts that
/// time; on Windows it goes on. On Linux and Android `BootClock` is the one that goes on, and tells what that means
/// for timeouts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that moves only when it is told to; clones share one time. Event loops that run on it wake up when it
/// moves.
///
/// ```
/// use netwheel::testing::ManualClock;
/// use netwheel::Clock;
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
/// assert_eq!(clock.now() - before, Duration::from_secs(60));
/// ```
#[derive(Clone)]
pub struct ManualClock {
    origin: Instant,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    offset: AtomicU64,
    wakes: Mutex<Vec<Box<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// A clock that stands still.
    #[expect(clippy::new_without_default, reason = "two clocks made by default would silently not agree")]
    pub fn new() -> Self {
        ManualClock { origin: Instant::now(), shared: Arc::default() }
    }

    /// Advances the time; saturates at 584 years. At that end of time loops still handle I/O and
    /// tasks. Timers that are due by then run; later deadlines never come.
    pub fn advance(&self, by: Duration) {
        let by = nanos(by);
        let add = |offset: u64| Some(offset.saturating_add(by));
        let _ = self.shared.offset.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        for wake in self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            wake();
        }
    }

    /// How far the clock was moved since it was made.
    pub fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.shared.offset.load(Ordering::SeqCst))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Instant {
        let offset = self.elapsed();
        self.origin.checked_add(offset).unwrap_or(self.origin)
    }

    fn is_real_time(&self) -> bool {
        false
    }

    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake);
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("elapsed", &self.elapsed()).finish()
    }
}

/// A clock with an origin: turns instants into nanoseconds since then.
#[derive(Debug, Clone)]
pub(crate) struct TimeSource {
    clock: Arc<dyn Clock>,
    origin: Instant,
}

impl TimeSource {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        let origin = clock.now();
        TimeSource { clock, origin }
    }

    /// Reads the clock: nanoseconds since the origin.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        nanos(self.clock.now().saturating_duration_since(self.origin)).min(END_OF_TIME)
    }

    /// A time of this source as an instant; the far future saturates.
    pub(crate) fn instant(&self, at: u64) -> Instant {
        self.origin.checked_add(Duration::from_nanos(at)).unwrap_or(self.origin)
    }
}

/// Returns the nanoseconds since the first call. Code outside event loops uses it, because it
/// cannot use a loop's clock.
pub(crate) fn process_time() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    nanos(ORIGIN.get_or_init(Instant::now).elapsed())
}

/// A duration in nanoseconds; 584 years and more become the maximum.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
