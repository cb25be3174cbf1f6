//! A token bucket: a rate limit that allows short bursts.

use std::time::{Duration, Instant};

/// Holds up to `burst` tokens and gains `rate` tokens per second.
///
/// The only state is the time at which the bucket is full again. The balance may become negative,
/// so an operation whose cost is known only afterwards can be charged too.
#[derive(Debug, Clone)]
pub(crate) struct TokenBucket {
    /// Time to gain one token; zero disables the limit.
    interval: Duration,
    /// Time in which an empty bucket becomes full.
    capacity: Duration,
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Returns a full bucket; a `rate` of zero disables the limit.
    pub(crate) fn new(rate: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1).checked_div(rate).unwrap_or_default();
        TokenBucket { interval, capacity: interval.saturating_mul(burst), full_at: None }
    }

    /// Takes one token. Returns `false` and takes nothing if the bucket is empty.
    #[allow(dead_code, reason = "each program uses a part of this module")]
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let before = self.full_at;
        let taken = self.charge(1, now).is_zero();
        if !taken {
            self.full_at = before;
        }
        taken
    }

    /// Takes `tokens` and returns the time until the debt is paid off; zero if there were enough
    /// tokens.
    #[allow(dead_code, reason = "each program uses a part of this module")]
    pub(crate) fn charge(&mut self, tokens: u32, now: Instant) -> Duration {
        let filled = self.full_at.map_or(now, |full_at| full_at.max(now));
        let cost = self.interval.saturating_mul(tokens);
        let full_at = filled.checked_add(cost).unwrap_or(filled);
        self.full_at = Some(full_at);
        (full_at - now).saturating_sub(self.capacity)
    }
}
