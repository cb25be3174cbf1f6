//! The settings of a shutdown, with their defaults and ranges.
//!
//! Invariant: settings are checked when they are used, and a refused shutdown changes nothing. Runs
//! on the thread that requests the shutdown.

use crate::{Error, Result, clock::nanos};
use std::time::Duration;

/// How an [`EventLoop`](crate::EventLoop) or a group of them ends; taken by
/// [`EventLoopGroup::shut_down`](crate::EventLoopGroup::shut_down).
///
/// | setting | default | range |
/// |---|---|---|
/// | `quiet` | 2 s | |
/// | `timeout` | 15 s | at least `quiet` |
/// | `window` | 0 | at most `timeout` |
///
/// All are durations on the loop's clock, counted from when the loop hears of the shutdown.
///
/// ```
/// use netwheel::{EventLoopGroup, ShutdownOptions};
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(2).build()?;
/// // ... servers and clients ...
/// let options = ShutdownOptions::new()
///     .quiet(Duration::ZERO)
///     .window(Duration::from_secs(20))
///     .timeout(Duration::from_secs(30));
/// let report = group.shut_down(options).wait()?;
/// println!("{report}");
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct ShutdownOptions {
    quiet: Duration,
    timeout: Duration,
    window: Duration,
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
        ShutdownOptions {
            quiet: Duration::from_secs(2),
            timeout: Duration::from_secs(15),
            window: Duration::ZERO,
        }
    }
}

impl ShutdownOptions {
    /// The defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// How long no task may have come before the loop ends; with zero it ends as soon as its channels are closed.
    ///
    /// Sockets that [linger](crate::EventLoopGroupBuilder::max_lingering) are kept open for as
    /// long, counted from the end of the last channel, unless their peers end the connections
    /// before. With zero none lingers.
    pub fn quiet(mut self, quiet: Duration) -> Self {
        self.quiet = quiet;
        self
    }

    /// After how long the loop ends whatever is left: channels that are still open are closed as they are.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Over how long the channels are told that it ends, one after the other, so that clients do not all come back
    /// at the same instant.
    ///
    /// Of `n` channels that a loop has, number `i` (from 0) is told after `window × i / n`. Until then it works as
    /// before. Every loop of a group spreads its own channels over the same window.
    pub fn window(mut self, window: Duration) -> Self {
        self.window = window;
        self
    }

    pub(crate) fn check(&self) -> Result<ShutdownRequest> {
        let ShutdownOptions { quiet, timeout, window } = *self;
        if timeout < quiet {
            return Err(Error::setting("timeout", format!("{timeout:?}"), "at least the quiet period"));
        }
        if timeout < window {
            return Err(Error::setting("window", format!("{window:?}"), "at most the timeout"));
        }
        Ok(ShutdownRequest { quiet: nanos(quiet), timeout: nanos(timeout), window: nanos(window) })
    }
}
