//! When a client tries again.

use clap::ValueEnum;
use std::time::Duration;

/// Behaviour of a client whose attempt has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Manners {
    /// Connects again immediately when it has given up an attempt, and after a constant delay when
    /// it was refused. Ignores the time that the server asks for.
    Naive,
    /// Like `Naive`, but waits for the time that the server asks for.
    Hinted,
    /// Exponential backoff with full jitter, or the time that the server asks for.
    Polite,
}

/// How an attempt has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The client has waited for its time limit.
    GaveUp,
    /// The server has refused it or closed the connection, and asks the client to wait.
    Refused(Option<Duration>),
}

/// Longest delay of a polite client that the server asks for nothing.
const MAX_DELAY: Duration = Duration::from_secs(30);

impl Manners {
    /// Returns the delay before the next attempt. `failures` is the number of failed attempts since
    /// the client was last in, `delay` the first delay, and `random` is between 0 and 1.
    pub(crate) fn delay(self, failure: Failure, failures: u32, delay: Duration, random: f64) -> Duration {
        match (self, failure) {
            (Manners::Hinted | Manners::Polite, Failure::Refused(Some(asked))) => asked,
            (Manners::Naive | Manners::Hinted, Failure::GaveUp) => Duration::ZERO,
            // Clients are not in step with each other.
            (Manners::Naive | Manners::Hinted, Failure::Refused(_)) => delay.mul_f64(0.5 + random),
            (Manners::Polite, _) => {
                let doubled = 1u32.checked_shl(failures.saturating_sub(1)).unwrap_or(u32::MAX);
                delay.saturating_mul(doubled).min(MAX_DELAY).mul_f64(random)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn a_naive_client_ignores_the_server_and_a_hinted_one_waits() {
        let refused = Failure::Refused(Some(7 * SECOND));
        assert_eq!(Manners::Naive.delay(refused, 1, SECOND, 0.5), SECOND);
        assert_eq!(Manners::Naive.delay(refused, 9, SECOND, 0.0), SECOND / 2);
        assert_eq!(Manners::Naive.delay(Failure::GaveUp, 9, SECOND, 0.5), Duration::ZERO);
        assert_eq!(Manners::Hinted.delay(refused, 1, SECOND, 0.5), 7 * SECOND);
        assert_eq!(Manners::Hinted.delay(Failure::Refused(None), 1, SECOND, 0.5), SECOND);
        assert_eq!(Manners::Polite.delay(refused, 20, SECOND, 0.5), 7 * SECOND);
    }

    #[test]
    fn the_backoff_of_a_polite_client_doubles_up_to_its_limit_and_is_all_jitter() {
        let delay = |failures, random| Manners::Polite.delay(Failure::GaveUp, failures, SECOND, random);
        assert_eq!(delay(1, 1.0), SECOND);
        assert_eq!(delay(3, 1.0), 4 * SECOND);
        assert_eq!(delay(3, 0.0), Duration::ZERO);
        assert_eq!(delay(40, 1.0), MAX_DELAY);
        assert_eq!(delay(u32::MAX, 0.5), MAX_DELAY / 2);
    }
}
