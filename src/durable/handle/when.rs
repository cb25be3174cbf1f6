//! `When`: a time, or a delay.

use crate::durable::unix_millis::{due_millis, duration_millis};
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
                let end = now.checked_add(delay);
                end.map_or_else(|| due_millis(now).saturating_add(duration_millis(delay)), due_millis)
            }
        }
    }
}
