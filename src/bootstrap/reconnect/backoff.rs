//! How long to wait before the next attempt.
//!
//! Always holds: a delay is never longer than `cap`, and never longer than `initial` times `factor` for each delay before
//! it since the last connection that held; with jitter it is anywhere from zero to that. Pure but for the dice, which
//! are an argument; owns no timer and reads no clock.

use crate::{Error, Result};
use std::time::Duration;

/// Exponential back-off with full jitter: how long a client waits before it tries to connect again.
///
/// The first delay is anywhere from zero to `initial`, the next from zero to `initial × factor`, and so on up to `cap`.
/// That is "full jitter" of the AWS Architecture Blog, [Exponential Backoff And Jitter]: of the ways compared there the
/// one with the least work for a server whose clients all come back at once.
///
/// [Exponential Backoff And Jitter]: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
///
/// | setting | default | range |
/// |---|---|---|
/// | `initial` | 500 ms | more than 0 |
/// | `factor` | 2 | 1 to 1000 |
/// | `cap` | 60 s | `initial` or more |
/// | `jitter` | on | |
/// | `max_attempts` | none: for ever | 1 or more |
/// | `reset_after` | 30 s | 0 or more |
///
/// ```
/// use netwheel::reconnect::Backoff;
/// use std::time::Duration;
///
/// let patient = Backoff::new().initial(Duration::from_secs(1)).cap(Duration::from_secs(300));
/// let brief = Backoff::new().cap(Duration::from_secs(5)).max_attempts(10);
/// # let _ = (patient, brief);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Backoff {
    initial: Duration,
    factor: f64,
    cap: Duration,
    jitter: bool,
    max_attempts: Option<u32>,
    reset_after: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            initial: Duration::from_millis(500),
            factor: 2.0,
            cap: Duration::from_secs(60),
            jitter: true,
            max_attempts: None,
            reset_after: Duration::from_secs(30),
        }
    }
}

impl Backoff {
    /// The defaults of the table above.
    pub fn new() -> Self {
        Self::default()
    }

    /// The longest that the first delay may be.
    pub fn initial(mut self, delay: Duration) -> Self {
        self.initial = delay;
        self
    }

    /// How many times longer each delay may be than the one before.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// The longest that any delay may be.
    pub fn cap(mut self, delay: Duration) -> Self {
        self.cap = delay;
        self
    }

    /// Whether each delay is chosen at random, evenly from zero to the longest that it may be, or is the longest.
    ///
    /// Without jitter, clients that lose their server at the same time come back at the same time, again and again.
    pub fn jitter(mut self, on: bool) -> Self {
        self.jitter = on;
        self
    }

    /// Gives up after so many attempts without a connection that held.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// How long a connection has to hold for the count of attempts and the delays to begin anew after it is lost.
    ///
    /// One that is lost sooner counts as an attempt that failed: a server that takes connections and drops them is not
    /// asked more often than one that refuses them. Zero: every connection counts as held.
    pub fn reset_after(mut self, held: Duration) -> Self {
        self.reset_after = held;
        self
    }

    /// # Errors
    /// If a setting is out of its range.
    pub(crate) fn check(&self) -> Result {
        if self.initial.is_zero() {
            return Err(Error::setting("initial", "0", "more than 0"));
        }
        if !(1.0..=1000.0).contains(&self.factor) {
            return Err(Error::setting("factor", self.factor, "1 to 1000"));
        }
        if self.cap < self.initial {
            return Err(Error::setting("cap", format!("{:?}", self.cap), "initial or more"));
        }
        if self.max_attempts == Some(0) {
            return Err(Error::setting("max_attempts", 0, "1 or more"));
        }
        Ok(())
    }
}

/// How far a client has come with its attempts.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    /// Attempts since the last connection that held.
    attempts: u32,
    /// Delays since then.
    delays: u32,
}

impl Retries {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Retries { backoff, attempts: 0, delays: 0 }
    }

    /// An attempt begins: its number, from 1.
    pub(crate) fn begin(&mut self) -> u32 {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts
    }

    /// The attempt came to nothing: how long to wait for the next; none to give up.
    pub(crate) fn failed(&mut self, dice: &mut fastrand::Rng) -> Option<Duration> {
        if self.backoff.max_attempts.is_some_and(|most| self.attempts >= most) {
            return None;
        }
        let longest = self.longest();
        self.delays = self.delays.saturating_add(1);
        if !self.backoff.jitter {
            return Some(longest);
        }
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Some(Duration::from_nanos(dice.u64(..=nanos)))
    }

    /// The connection was lost after it had held for so long: how long to wait; none to give up.
    pub(crate) fn lost(&mut self, held: Duration, dice: &mut fastrand::Rng) -> Option<Duration> {
        if held >= self.backoff.reset_after {
            (self.attempts, self.delays) = (0, 0);
        }
        self.failed(dice)
    }

    /// The longest that the next delay may be.
    fn longest(&self) -> Duration {
        let exponent = i32::try_from(self.delays).unwrap_or(i32::MAX);
        // Infinite at some point, and never not a number: both factors are finite and more than zero.
        let seconds = self.backoff.initial.as_secs_f64() * self.backoff.factor.powi(exponent);
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // Rounding must not make the first one shorter than it was set.
        delay.max(self.backoff.initial).min(self.backoff.cap)
    }
}

#[cfg(all(test, not(netwheel_loom)))]
#[path = "backoff_tests.rs"]
mod tests;
