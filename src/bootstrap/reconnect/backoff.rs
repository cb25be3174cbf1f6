//! The delay before the next connection attempt.
//!
//! Invariants: a delay is at most `max_delay`. It is also at most `initial` times `factor` for each
//! earlier delay since the last stable connection. With jitter it is anywhere between zero and that
//! bound. The hint of a server is added to it, at most `max_hint_delay`. Pure except for the random
//! numbers, which are an argument; has no timer and reads no clock.

use crate::{
    error::{Error, Result},
    settings::check_range,
};
use std::time::Duration;

/// Exponential backoff with full jitter: the delays between the connection attempts of a client.
///
/// The first delay is chosen between zero and `initial`, the next between zero and
/// `initial × factor`, and so on up to `max_delay`. This is the "full jitter" of the article
/// [Exponential Backoff And Jitter]. Of the methods compared there, it causes the least work for a
/// server whose clients all reconnect at the same time.
///
/// [Exponential Backoff And Jitter]:
/// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
///
/// | setting | default | range |
/// |---|---|---|
/// | `initial` | 500 ms | more than 0 |
/// | `factor` | 2 | 1 to 1000 |
/// | `max_delay` | 60 s | `initial` or more |
/// | `jitter` | on | |
/// | `max_attempts` | no limit | 1 or more |
/// | `reset_after` | 30 s | 0 or more |
/// | `max_hint_delay` | 5 min | 0 or more |
///
/// A server may ask its clients to wait: with `Retry-After` in the response that refuses a
/// WebSocket handshake, with a WebSocket Close frame of code 1012 or 1013, or with a message of the
/// program's own protocol, whose handler calls
/// [`Context::reconnect_after`](crate::Context::reconnect_after). The next delay then begins when
/// that time has passed. So clients with the same hint do not connect at the same time.
///
/// ```
/// use netwheel::reconnect::Backoff;
/// use std::time::Duration;
///
/// let patient = Backoff::new().initial(Duration::from_secs(1)).max_delay(Duration::from_secs(300));
/// let brief = Backoff::new().max_delay(Duration::from_secs(5)).max_attempts(10);
/// # let _ = (patient, brief);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[must_use]
pub struct Backoff {
    initial: Duration,
    factor: f64,
    max_delay: Duration,
    jitter: bool,
    max_attempts: Option<u32>,
    reset_after: Duration,
    max_hint_delay: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Backoff {
            initial: Duration::from_millis(500),
            factor: 2.0,
            max_delay: Duration::from_secs(60),
            jitter: true,
            max_attempts: None,
            reset_after: Duration::from_secs(30),
            max_hint_delay: Duration::from_secs(300),
        }
    }
}

impl Backoff {
    /// Returns the default settings.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the upper bound of the first delay. The default is 500 ms.
    pub fn initial(mut self, delay: Duration) -> Self {
        self.initial = delay;
        self
    }

    /// Sets the factor by which the upper bound grows with each delay. The default is 2.
    pub fn factor(mut self, factor: f64) -> Self {
        self.factor = factor;
        self
    }

    /// Sets the upper bound of all delays. The default is 60 s.
    pub fn max_delay(mut self, delay: Duration) -> Self {
        self.max_delay = delay;
        self
    }

    /// Sets whether each delay is random, evenly distributed between zero and its upper bound, or
    /// equals the upper bound. The default is random.
    ///
    /// Without jitter, clients that lose their server at the same time also reconnect at the same
    /// time.
    pub fn jitter(mut self, on: bool) -> Self {
        self.jitter = on;
        self
    }

    /// Gives up after this number of attempts without a stable connection. Unlimited
    /// by default.
    pub fn max_attempts(mut self, attempts: u32) -> Self {
        self.max_attempts = Some(attempts);
        self
    }

    /// Sets how long a connection must last to reset the count of attempts and the delays. The
    /// default is 30 s.
    ///
    /// A connection that is lost sooner counts as a failed attempt. A server that accepts
    /// connections and drops them is therefore not contacted more often than a server that refuses
    /// them. With zero, every connection counts as stable.
    pub fn reset_after(mut self, held: Duration) -> Self {
        self.reset_after = held;
        self
    }

    /// Sets the longest wait that a server can ask for, before the delay. The default is 5 minutes.
    /// With zero, hints are ignored.
    pub fn max_hint_delay(mut self, delay: Duration) -> Self {
        self.max_hint_delay = delay;
        self
    }

    /// # Errors
    /// [`Error::Setting`] if a setting is out of range.
    pub(crate) fn check(&self) -> Result {
        if self.initial.is_zero() {
            return Err(Error::setting("initial", "0", "more than 0"));
        }
        if !(1.0..=1000.0).contains(&self.factor) {
            return Err(Error::setting("factor", self.factor, "1 to 1000"));
        }
        check_range("max_delay", self.max_delay, self.initial.., "initial or more")?;
        if self.max_attempts == Some(0) {
            return Err(Error::setting("max_attempts", 0, "1 or more"));
        }
        Ok(())
    }
}

/// The counts of attempts and delays of a client.
#[derive(Debug)]
pub(crate) struct Retries {
    backoff: Backoff,
    /// Attempts since the last stable connection.
    attempts: u32,
    /// Delays since the last stable connection.
    delays: u32,
}

impl Retries {
    pub(crate) fn new(backoff: Backoff) -> Self {
        Retries { backoff, attempts: 0, delays: 0 }
    }

    /// Starts an attempt and returns its number, from 1.
    pub(crate) fn begin(&mut self) -> u32 {
        self.attempts = self.attempts.saturating_add(1);
        self.attempts
    }

    /// Records that an attempt has failed. Returns the delay before the next one, or `None` to give
    /// up.
    #[cfg(any(feature = "http", all(test, not(netwheel_loom))))]
    pub(crate) fn failed(&mut self, dice: &mut fastrand::Rng) -> Option<Duration> {
        self.failed_with_hint(Duration::ZERO, dice)
    }

    /// Records that an attempt has failed. Returns the delay before the next one, which begins
    /// behind the `hint` of the server, or `None` to give up.
    pub(crate) fn failed_with_hint(&mut self, hint: Duration, dice: &mut fastrand::Rng) -> Option<Duration> {
        if self.backoff.max_attempts.is_some_and(|most| self.attempts >= most) {
            return None;
        }
        let longest = self.longest();
        self.delays = self.delays.saturating_add(1);
        let hint = hint.min(self.backoff.max_hint_delay);
        if !self.backoff.jitter {
            return Some(hint.saturating_add(longest));
        }
        let nanos = u64::try_from(longest.as_nanos()).unwrap_or(u64::MAX);
        Some(hint.saturating_add(Duration::from_nanos(dice.u64(..=nanos))))
    }

    /// Records that a connection was lost after the time `held`. Returns the delay before the next
    /// attempt, behind the `hint` of the server, or `None` to give up.
    pub(crate) fn lost(
        &mut self,
        held: Duration,
        hint: Duration,
        dice: &mut fastrand::Rng,
    ) -> Option<Duration> {
        if self.is_stable(held) {
            (self.attempts, self.delays) = (0, 0);
        }
        self.failed_with_hint(hint, dice)
    }

    /// Returns whether a connection that has lasted for this time was stable.
    pub(crate) fn is_stable(&self, held: Duration) -> bool {
        held >= self.backoff.reset_after
    }

    /// Returns the upper bound of the next delay.
    fn longest(&self) -> Duration {
        let exponent = i32::try_from(self.delays).unwrap_or(i32::MAX);
        // May become infinite, but never NaN: both factors are finite and greater than zero.
        let seconds = self.backoff.initial.as_secs_f64() * self.backoff.factor.powi(exponent);
        let delay = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        // Rounding must not make the first delay shorter than `initial`.
        delay.max(self.backoff.initial).min(self.backoff.max_delay)
    }
}

#[cfg(all(test, not(netwheel_loom)))]
#[path = "backoff_tests.rs"]
mod tests;
