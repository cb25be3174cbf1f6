//! `When`: a time, or a delay.

use crate::durable::unix_millis::{LATEST, due_millis};
use std::time::{Duration, SystemTime};

/// When a timer is due: at a [`SystemTime`], or after a [`Duration`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct When(Kind);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    At(SystemTime),
    After(Duration),
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> Self {
        When(Kind::At(time))
    }
}

impl From<Duration> for When {
    fn from(delay: Duration) -> Self {
        When(Kind::After(delay))
    }
}

impl When {
    /// Returns the due time in milliseconds, rounded up.
    pub(super) fn due(self, now: SystemTime) -> i64 {
        match self.0 {
            Kind::At(time) => due_millis(time),
            Kind::After(delay) => {
                // A time that the clock cannot represent is after the latest one.
                now.checked_add(delay).map_or(LATEST, due_millis)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_beyond_all_times_mean_the_last_millisecond_of_9999() {
        for delay in [Duration::MAX, Duration::from_secs(u64::MAX / 4)] {
            assert_eq!(When::from(delay).due(SystemTime::now()), LATEST);
        }
    }
}
