//! A token bucket: a rate limit that allows short bursts.

use std::time::{Duration, Instant};

/// Holds up to `burst` tokens and gains `rate` tokens per second.
///
/// The state is one instant: the time at which the bucket is full again. A debt is possible, so an
/// operation whose cost is known only afterwards can be charged as well.
#[derive(Debug, Clone)]
pub(crate) struct TokenBucket {
    /// The time for one token; zero for no limit.
    interval: Duration,
    /// The time in which an empty bucket becomes full.
    capacity: Duration,
    full_at: Option<Instant>,
}

impl TokenBucket {
    /// Returns a full bucket; a `rate` of zero disables the limit.
    pub(crate) fn new(rate: u32, burst: u32) -> Self {
        let interval = Duration::from_secs(1).checked_div(rate).unwrap_or_default();
        TokenBucket { interval, capacity: interval.saturating_mul(burst), full_at: None }
    }

    /// Takes one token; returns `false` and takes nothing if there is none.
    #[allow(dead_code, reason = "each program uses a part of this module")]
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        let before = self.full_at;
        let taken = self.charge(1, now).is_zero();
        if !taken {
            self.full_at = before;
        }
        taken
    }

    /// Takes `tokens`, and returns how long it takes until the debt is paid: zero if there were
    /// enough of them.
    #[allow(dead_code, reason = "each program uses a part of this module")]
    pub(crate) fn charge(&mut self, tokens: u32, now: Instant) -> Duration {
        let filled = self.full_at.map_or(now, |full_at| full_at.max(now));
        let cost = self.interval.saturating_mul(tokens);
        let full_at = filled.checked_add(cost).unwrap_or(filled);
        self.full_at = Some(full_at);
        (full_at - now).saturating_sub(self.capacity)
    }
}
