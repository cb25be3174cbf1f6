//! Sources of time.
//!
//! Each event loop group has one [`Clock`], real or manual, and its loops read no other. Inside a
//! loop an instant is a `u64` of nanoseconds since the loop's origin. A [`TimeSource`] produces it,
//! and it is passed down as an argument. It never decreases, regardless of the clock, and never
//! exceeds [`END_OF_TIME`], 584 years after the origin. A saturated deadline is later than that, so
//! it is never due. A manual clock that is advanced by `Duration::MAX` leaves loops asleep.
//!
//! Loops on a manual clock sleep until they are woken, and the clock wakes them when it is
//! advanced. The system's poll sleeps by the monotonic clock. A clock that may get ahead of it
//! limits each sleep ([`Clock::longest_sleep`]).
//!
//! The heap is exact. mio sleeps in whole milliseconds, rounded up, so a timer on an idle loop is
//! up to a millisecond late and never early. The wheel rounds up to its tick.
//!
//! Some durations are always real time, regardless of the loop's clock:
//!
//! - timeouts of blocked program threads (`Completion::wait_timeout`, `EventLoop::execute_timeout`,
//!   the limit of `ManualEventLoop::run_once`),
//! - the `keep_alive` of workers, and the watchdog,
//! - the rate limit of log lines outside of loops ([`process_time`]).
//!
//! clippy.toml forbids other uses.

#[cfg(any(target_os = "linux", target_os = "android"))]
mod boot;
#[cfg(any(feature = "broker-sqlite", feature = "durable"))]
mod watch;

#[cfg(any(target_os = "linux", target_os = "android"))]
pub use boot::BootClock;
#[cfg(any(feature = "broker-sqlite", feature = "durable"))]
pub(crate) use watch::ClockWatch;

use std::{
    fmt,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicI64, AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime},
};

/// The largest time of a loop, 584 years after its origin. A later deadline, such as `u64::MAX`, is
/// never reached.
///
/// `WakeUp` represents a sleep without a deadline by `u64::MAX - 1`, so a timer at the end of time
/// must be earlier.
pub(crate) const END_OF_TIME: u64 = u64::MAX - 2;

/// The time of day at which a manual clock begins, after the Unix epoch.
const MANUAL_EPOCH: Duration = Duration::from_secs(1_000_000_000);

/// A source of monotonic time. Callable from any thread.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the current time.
    fn now(&self) -> Instant;

    /// Returns whether time passes by itself, so that loops can sleep until a deadline. Otherwise
    /// loops sleep until they are woken (see [`Clock::on_advance`]). The default is `true`.
    fn is_real_time(&self) -> bool {
        true
    }

    /// Registers a function to call whenever the time is advanced manually. Real clocks never
    /// call it.
    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        drop(wake);
    }

    /// Returns the longest time that a loop may sleep towards a deadline without reading this
    /// clock. At least one millisecond.
    ///
    /// Override this for a clock that may get ahead of the one used by the system's poll. An
    /// example is a clock that continues while the machine is suspended. The default is `None`:
    /// loops sleep until the deadline. A loop without a deadline sleeps until the next event in
    /// either case.
    fn longest_sleep(&self) -> Option<Duration> {
        None
    }

    /// Returns the time of day, for timestamps such as the `Date` of HTTP. It may jump. The default
    /// is the system's time.
    fn wall_time(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The operating system's monotonic clock.
///
/// On Linux (`CLOCK_MONOTONIC`) and macOS it stops while the machine is suspended, so timeouts do
/// not count that time. On Windows it continues. On Linux and Android, `BootClock` continues; its
/// documentation compares the effects on timeouts.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A clock that moves only when it is advanced, for tests.
///
/// Clones share one time. Event loops that run on the clock wake up when it moves. Its time of day
/// begins at 2001-09-09 01:46:40 UTC (1,000,000,000 s after the Unix epoch), and moves with it. It
/// can also be set, as an operator or NTP sets the clock of a machine
/// ([`set_wall_time`](ManualClock::set_wall_time)).
///
/// ```
/// use netwheel::testing::ManualClock;
/// use netwheel::time::Clock;
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
    /// The time of day at the offset zero, relative to its default. In nanoseconds.
    wall_shift: AtomicI64,
    wakes: Mutex<Vec<Arc<dyn Fn() + Send + Sync>>>,
}

impl ManualClock {
    /// Creates a clock that stands still.
    #[expect(clippy::new_without_default, reason = "two default clocks would silently disagree")]
    pub fn new() -> Self {
        ManualClock { origin: Instant::now(), shared: Arc::default() }
    }

    /// Advances the time and wakes the loops. Saturates at 584 years. At that time, loops still
    /// handle I/O and tasks. Timers that are due by then run, and later deadlines are never
    /// reached.
    pub fn advance(&self, by: Duration) {
        let by = nanos(by);
        let add = |offset: u64| Some(offset.saturating_add(by));
        let _ = self.shared.offset.fetch_update(Ordering::SeqCst, Ordering::SeqCst, add);
        // Called without the lock, because they may use the clock or wait.
        let wakes = self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        wakes.iter().for_each(|wake| wake());
    }

    /// Sets the time of day, and leaves the monotonic time as it is. Limited to 292 years before
    /// and after the default.
    ///
    /// ```
    /// use netwheel::{testing::ManualClock, time::Clock};
    /// use std::time::{Duration, SystemTime};
    ///
    /// let clock = ManualClock::new();
    /// let (monotonic, tomorrow) = (clock.now(), clock.wall_time() + Duration::from_secs(86_400));
    /// clock.set_wall_time(tomorrow);
    /// assert_eq!((clock.now(), clock.wall_time()), (monotonic, tomorrow));
    /// ```
    pub fn set_wall_time(&self, time: SystemTime) {
        let default = SystemTime::UNIX_EPOCH.checked_add(MANUAL_EPOCH.saturating_add(self.elapsed()));
        let shift = match default.map(|default| time.duration_since(default)) {
            Some(Ok(later)) => i64::try_from(later.as_nanos()).unwrap_or(i64::MAX),
            Some(Err(earlier)) => i64::try_from(earlier.duration().as_nanos()).map_or(i64::MIN, |ns| -ns),
            None => 0,
        };
        self.shared.wall_shift.store(shift, Ordering::SeqCst);
    }

    /// Returns how far the clock was advanced since it was created.
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

    fn wall_time(&self) -> SystemTime {
        let start = SystemTime::UNIX_EPOCH + MANUAL_EPOCH;
        let unset = start.checked_add(self.elapsed()).unwrap_or(start);
        let shift = self.shared.wall_shift.load(Ordering::SeqCst);
        let by = Duration::from_nanos(shift.unsigned_abs());
        let set = if shift < 0 { unset.checked_sub(by) } else { unset.checked_add(by) };
        set.unwrap_or(unset)
    }

    fn on_advance(&self, wake: Box<dyn Fn() + Send + Sync>) {
        self.shared.wakes.lock().unwrap_or_else(PoisonError::into_inner).push(wake.into());
    }
}

impl fmt::Debug for ManualClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ManualClock").field("elapsed", &self.elapsed()).finish()
    }
}

/// A clock with an origin. Converts instants to nanoseconds since the origin.
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

    /// Reads the clock. Returns nanoseconds since the origin.
    #[inline]
    pub(crate) fn now(&self) -> u64 {
        nanos(self.clock.now().saturating_duration_since(self.origin)).min(END_OF_TIME)
    }

    /// Returns the clock.
    #[cfg(feature = "broker")]
    pub(crate) fn clock(&self) -> Arc<dyn Clock> {
        self.clock.clone()
    }

    /// Reads the time of day.
    pub(crate) fn wall_time(&self) -> SystemTime {
        self.clock.wall_time()
    }

    /// Converts a time of this source to an instant. Falls back to the origin if the instant is out
    /// of range.
    pub(crate) fn instant(&self, at: u64) -> Instant {
        self.origin.checked_add(Duration::from_nanos(at)).unwrap_or(self.origin)
    }
}

/// Returns the nanoseconds since the first call. For code outside event loops, which cannot use a
/// loop's clock.
pub(crate) fn process_time() -> u64 {
    static ORIGIN: OnceLock<Instant> = OnceLock::new();
    nanos(ORIGIN.get_or_init(Instant::now).elapsed())
}

/// Returns a duration in nanoseconds. Saturates at 584 years.
#[inline]
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
