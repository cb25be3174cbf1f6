//! The system clock that continues while the machine is suspended.
//!
//! Invariant: all [`BootClock`]s of a process agree on the time, which never decreases. Any thread
//! may read it.

use super::Clock;
use rustix::time::{ClockId, clock_gettime};
use std::{
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The maximum delay until a loop notices that the machine was suspended.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The time of the first reading, by the clock that stops during a suspend and by `CLOCK_BOOTTIME`.
static ORIGIN: OnceLock<(Instant, Duration)> = OnceLock::new();

/// The system's clock that also counts the time during which the machine is suspended
/// (`CLOCK_BOOTTIME`). Linux and Android only.
///
/// The clock determines the effect of a suspend of one hour on timeouts (on Linux):
///
/// - [`SystemClock`](crate::time::SystemClock) stops during the suspend. An idle timeout of a
///   minute with 40 s left expires 40 s after the machine resumes. A fixed-rate task has not missed
///   any runs.
/// - On this clock an hour has passed. Timers that were due in that hour expire once, within a
///   second after the machine resumes. Fixed-rate tasks skip the missed runs, except with
///   [`MissedRuns::CatchUp`](crate::time::MissedRuns::CatchUp).
///
/// Other systems have only `SystemClock`, which stops on macOS and continues on Windows.
///
/// The system's poll sleeps by the clock that stops. So a loop that uses this clock and has a
/// deadline wakes once a second to read it ([`Clock::longest_sleep`]). A loop that waits only for
/// I/O does not.
///
/// ```
/// use netwheel::{EventLoopGroup, time::BootClock};
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
