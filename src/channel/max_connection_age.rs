//! The maximum age of the connections of a server.
//!
//! Invariant: an [`AgeLimit`] is within its ranges. It is part of the configuration that all
//! channels of a server share, so a channel does not have a field for it. Pure: the loop keeps the
//! deadlines.

use crate::{clock::nanos, error::Result, settings::check_range, sync::Random};
use std::time::Duration;

/// The maximum age of the connections of a server, set by
/// [`ServerBootstrap::max_connection_age`](crate::ServerBootstrap::max_connection_age).
///
/// A connection that has reached its age is drained, as in a shutdown of its loop: its handler's
/// [`shutdown`](crate::Handler::shutdown) is called, and
/// [`Context::shutdown_cause`](crate::Context::shutdown_cause) returns
/// [`ShutdownCause::MaxAge`]. A WebSocket sends a Close frame with code 1001. An HTTP server
/// adds `Connection: close` to its next response. A connection that is still open after the grace
/// time is closed with [`CloseCause::TimedOut`](crate::channel::CloseCause::TimedOut).
///
/// Use it so that load spreads to new servers behind a load balancer, and so that connections do
/// not outlive certificates and addresses. The terms are those of gRPC (`MAX_CONNECTION_AGE`,
/// `MAX_CONNECTION_AGE_GRACE`, [proposal A9]).
///
/// | setting | default | range |
/// |---|---|---|
/// | `age` | | 1 s or more |
/// | `jitter` | a tenth of the age | less than the age |
/// | `grace_timeout` | 30 s | 0 or more |
///
/// # Spread
/// Jitter alone does not spread connections that were accepted at the same time: with a tenth of 60
/// s, 8 % of them would end in each second. Therefore each loop also notifies at most 2.5 % of its
/// connections per second, or one connection if that is more, in steps of 100 ms. In any second it
/// notifies at most 2.75 % of them (of 40, if it has fewer) and one more. Connections that have to
/// wait are notified in the order of their ages, at most 40 s and one step late. An age below 40 s
/// is therefore only reached by a part of the connections in time.
///
/// [proposal A9]: https://github.com/grpc/proposal/blob/master/A9-server-side-conn-mgt.md
///
/// ```
/// use netwheel::channel::MaxConnectionAge;
/// use std::time::Duration;
///
/// let age = MaxConnectionAge::new(Duration::from_secs(3600))
///     .jitter(Duration::from_secs(600))
///     .grace_timeout(Duration::from_secs(60));
/// # let _ = age;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
#[doc(alias = "MAX_CONNECTION_AGE")]
#[doc(alias = "MAX_CONNECTION_AGE_GRACE")]
pub struct MaxConnectionAge {
    age: Duration,
    /// `None` for a tenth of the age.
    jitter: Option<Duration>,
    grace_timeout: Duration,
}

/// The least age. Shorter ones would only measure the spread.
const LEAST_AGE: Duration = Duration::from_secs(1);

impl MaxConnectionAge {
    /// Returns the settings for connections that are drained at this age, counted from the accept.
    pub fn new(age: Duration) -> Self {
        MaxConnectionAge { age, jitter: None, grace_timeout: Duration::from_secs(30) }
    }

    /// Sets the largest random deviation from the age, in both directions. The default is a tenth
    /// of the age, as in gRPC. Each connection draws its own.
    pub fn jitter(mut self, deviation: Duration) -> Self {
        self.jitter = Some(deviation);
        self
    }

    /// Sets how long a connection may stay open after its handler was notified, for the responses
    /// in progress. The default is 30 s. Then it is reset, or closed if it is an idle HTTP
    /// connection.
    pub fn grace_timeout(mut self, timeout: Duration) -> Self {
        self.grace_timeout = timeout;
        self
    }

    /// # Errors
    /// [`Error::Setting`] if a setting is out of range.
    pub(crate) fn check(&self) -> Result<AgeLimit> {
        check_range("max_connection_age", self.age, LEAST_AGE.., "1 s or more")?;
        let jitter = self.jitter.unwrap_or(self.age / 10);
        check_range("jitter", jitter, ..self.age, "less than the age")?;
        let least = nanos(self.age - jitter);
        Ok(AgeLimit { least, spread: nanos(jitter).saturating_mul(2), grace: nanos(self.grace_timeout) })
    }
}

/// Why [`Handler::shutdown`](crate::Handler::shutdown) was called.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ShutdownCause {
    /// The event loop shuts down.
    LoopShutdown,
    /// The connection has reached its [`MaxConnectionAge`]. The server continues to serve others.
    MaxAge,
}

/// A checked [`MaxConnectionAge`], in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AgeLimit {
    least: u64,
    /// The width of the window in which ages end.
    spread: u64,
    pub(crate) grace: u64,
}

impl AgeLimit {
    /// Returns when a connection that was accepted at `now` reaches its age.
    pub(crate) fn draw(self, now: u64, random: &Random) -> u64 {
        now.saturating_add(self.least).saturating_add(random.below(self.spread.saturating_add(1)))
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use crate::error::Error;

    const MINUTE: Duration = Duration::from_secs(60);

    #[test]
    fn ages_are_drawn_from_the_whole_window_and_never_beyond_it() {
        let random = Random::new(1);
        let limit = MaxConnectionAge::new(MINUTE).check().unwrap();
        let drawn: Vec<u64> = (0..10_000).map(|_| limit.draw(7, &random) - 7).collect();
        let (least, most) = (nanos(MINUTE * 9 / 10), nanos(MINUTE * 11 / 10));
        assert!(drawn.iter().all(|age| (least..=most).contains(age)));
        for tenth in 0..10 {
            let from = least + (most - least) / 10 * tenth;
            let n = drawn.iter().filter(|age| (from..from + (most - least) / 10).contains(*age)).count();
            assert!((800..1200).contains(&n), "{n} of 10,000 in part {tenth}");
        }
        let exact = MaxConnectionAge::new(MINUTE).jitter(Duration::ZERO).check().unwrap();
        assert_eq!(exact.draw(7, &random), 7 + nanos(MINUTE));
    }

    #[test]
    fn settings_out_of_range_are_refused_by_name() {
        for (age, name) in [
            (MaxConnectionAge::new(Duration::from_millis(999)), "max_connection_age"),
            (MaxConnectionAge::new(MINUTE).jitter(MINUTE), "jitter"),
        ] {
            match age.check() {
                Err(Error::Setting(refused)) => assert_eq!(refused.setting(), name),
                other => panic!("{age:?}: {other:?}"),
            }
        }
        MaxConnectionAge::new(LEAST_AGE).grace_timeout(Duration::ZERO).check().unwrap();
        let longest = MaxConnectionAge::new(Duration::MAX).check().unwrap();
        assert_eq!(longest.draw(u64::MAX, &Random::new(1)), u64::MAX, "does not overflow");
        assert!((1..100).all(|seed| longest.draw(0, &Random::new(seed)) == u64::MAX), "never");
    }
}
