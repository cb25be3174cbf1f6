//! The settings of a shutdown, with their defaults and ranges.
//!
//! Invariant: settings are checked when they are used, and a refused shutdown changes nothing. Runs
//! on the thread that requests the shutdown.

use crate::{clock::nanos, error::Result, settings::check_range};
use std::time::Duration;

/// Options for shutting down an [`EventLoop`](crate::EventLoop) or a group, passed to
/// [`EventLoopGroup::shutdown`](crate::EventLoopGroup::shutdown).
///
/// | setting | default | range |
/// |---|---|---|
/// | `quiet_period` | 2 s, or `timeout` if that is shorter | at most `timeout` |
/// | `timeout` | 15 s | at least `quiet_period` and `drain_window` |
/// | `drain_window` | 0 s | at most `timeout` |
///
/// All are durations on the loop's clock, starting with the request.
///
/// ```
/// use netwheel::{EventLoopGroup, shutdown::ShutdownOptions};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(2).build()?;
/// // ... servers and clients ...
/// let options = ShutdownOptions::new()
///     .quiet_period(Duration::ZERO)
///     .drain_window(Duration::from_secs(20))
///     .timeout(Duration::from_secs(30));
/// let report = group.shutdown(options).wait()?;
/// println!("{report}");
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ShutdownOptions {
    /// `None` for the default.
    quiet_period: Option<Duration>,
    timeout: Duration,
    drain_window: Duration,
}

/// [`ShutdownOptions`], checked; in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ShutdownRequest {
    pub(crate) quiet: u64,
    pub(crate) timeout: u64,
    pub(crate) window: u64,
}

impl Default for ShutdownOptions {
    fn default() -> Self {
        ShutdownOptions { quiet_period: None, timeout: Duration::from_secs(15), drain_window: Duration::ZERO }
    }
}

impl ShutdownOptions {
    /// Returns the defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the quiet period: the time without new tasks after which the loop ends. With zero, the
    /// loop ends as soon as its channels are closed. The default is 2 s, or the timeout if that is
    /// shorter.
    ///
    /// Sockets that [linger](crate::group::EventLoopGroupBuilder::max_lingering) are kept open for
    /// the same time, counted from the end of the last channel, unless their peers end the
    /// connections earlier. With zero, no socket lingers.
    #[doc(alias = "quiet")]
    pub fn quiet_period(mut self, quiet_period: Duration) -> Self {
        self.quiet_period = Some(quiet_period);
        self
    }

    /// Sets the deadline after which the remaining channels are reset. It counts from the request,
    /// however much work waits in the loop's queue. The default is 15 s.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the window over which channels are notified of the shutdown, one after the other. This
    /// avoids that all clients reconnect at the same instant. The default is zero, which notifies
    /// all channels immediately.
    ///
    /// Of the `n` channels of a loop, number `i` (from 0) is notified after `window × i / n`. Until
    /// then it works as before. Every loop of a group spreads its own channels over the same
    /// window.
    #[doc(alias = "window")]
    pub fn drain_window(mut self, drain_window: Duration) -> Self {
        self.drain_window = drain_window;
        self
    }

    pub(crate) fn check(&self) -> Result<ShutdownRequest> {
        let ShutdownOptions { quiet_period, timeout, drain_window: window } = *self;
        let quiet = quiet_period.unwrap_or(Duration::from_secs(2).min(timeout));
        check_range("timeout", timeout, quiet.., "at least the quiet period")?;
        check_range("drain_window", window, ..=timeout, "at most the timeout")?;
        Ok(ShutdownRequest { quiet: nanos(quiet), timeout: nanos(timeout), window: nanos(window) })
    }
}
