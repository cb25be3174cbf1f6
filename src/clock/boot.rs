//! The clock that continues while the machine is suspended.
//!
//! Invariant: all [`BootClock`]s of a process agree on the time, which never goes back. Any thread
//! may read it.

use super::Clock;
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// How late a loop notices that the machine was suspended, at most.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// When this clock was first read: by the clock that stands still in a suspend, and by the one that does not.
static ORIGIN: OnceLock<(Instant, Duration)> = OnceLock::new();

/// The system's clock that also counts the time in which the machine is suspended (`CLOCK_BOOTTIME`); on Linux and
/// Android.
///
/// What a timeout means over a suspend of an hour, on Linux:
///
/// - With [`SystemClock`](crate::SystemClock), which stands still, nothing has happened: an idle timeout of a minute
///   of which 40 s are left fires 40 s after the machine goes on. A fixed-rate task has missed nothing.
/// - With this clock the hour has passed: what came due in it fires within a second after the machine goes on, once.
///   Fixed-rate tasks skip the runs that they missed, unless they [catch up](crate::MissedRuns::CatchUp).
///
/// Elsewhere `SystemClock` is all there is: on macOS it stands still, on Windows it counts the suspended time.
///
/// The system's poll sleeps by the clock that stands still. So a loop on this clock that has a deadline looks at it
/// once a second ([`Clock::longest_sleep`]); a loop that waits for nothing but I/O sleeps on.
///
/// ```
/// use netwheel::{BootClock, EventLoopGroup};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(1).clock(BootClock).build()?;
/// let task = group.next().schedule(Duration::from_millis(5), || "five, suspended or not")?;
/// assert_eq!(task.completion().wait()?, "five, suspended or not");
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default)]
pub struct BootClock;

fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_nanos(u64::try_from(now.tv_nsec).unwrap_or(0))
}

impl Clock for BootClock {
    fn now(&self) -> Instant {
        let (instant, boot) = ORIGIN.get_or_init(|| (Instant::now(), since_boot()));
        let passed = since_boot().saturating_sub(*boot);
        instant.checked_add(passed).unwrap_or(*instant)
    }

    fn longest_sleep(&self) -> Option<Duration> {
        Some(LONGEST_SLEEP)
    }
}
