//! `SharingSettings`: how the nodes of a store share its timers.

use crate::{error::Result, settings::check_range};
use std::time::Duration;

/// The largest number of partitions.
const MAX_PARTITIONS: u32 = 4096;

/// The shortest time limit of a request or a connection.
pub(super) const SHORTEST_TIMEOUT: Duration = Duration::from_millis(50);

/// The settings that all stores of several nodes have. [`check`](SharingSettings::check) refuses
/// values out of their ranges.
#[derive(Debug, Clone)]
pub(super) struct SharingSettings {
    /// The number of partitions of a new store. Later, the stored number applies.
    pub(super) partitions: u32,
    pub(super) lease: Duration,
    request_timeout: Option<Duration>,
    drain_timeout: Option<Duration>,
}

impl Default for SharingSettings {
    fn default() -> Self {
        SharingSettings {
            partitions: 64,
            lease: Duration::from_secs(6),
            request_timeout: None,
            drain_timeout: None,
        }
    }
}

impl SharingSettings {
    pub(super) fn set_request_timeout(&mut self, time: Duration) {
        self.request_timeout = Some(time);
    }

    pub(super) fn set_drain_timeout(&mut self, time: Duration) {
        self.drain_timeout = Some(time);
    }

    /// Returns the time limit for each request.
    pub(super) fn request_timeout(&self) -> Duration {
        self.request_timeout.unwrap_or(self.lease / 2)
    }

    /// Returns how long a partition that is to be given back is kept for runs without an answer.
    pub(super) fn drain_timeout(&self) -> Duration {
        self.drain_timeout.unwrap_or(self.lease)
    }

    /// # Errors
    ///
    /// [`Error::Setting`] for a value out of its range.
    pub(super) fn check(&self) -> Result {
        let longest = Duration::from_secs(600);
        check_range("lease", self.lease, Duration::from_millis(300)..=longest, "300 ms to 10 min")?;
        let timeout = self.request_timeout();
        check_range("request_timeout", timeout, SHORTEST_TIMEOUT..=self.lease, "50 ms to the lease")?;
        check_range("drain_timeout", self.drain_timeout(), ..=longest, "0 to 10 min")?;
        check_range("partitions", self.partitions, 1..=MAX_PARTITIONS, "1 to 4096")
    }
}
