//! `Maintenance`: the state of a store's own work.

use super::error::StoreError;

/// The work of a backup. See [`TimerStore::backup`](super::TimerStore::backup).
pub type BackupWork = Box<dyn FnOnce() -> Result<(), StoreError> + Send>;

/// What [`TimerStore::maintain`](super::TimerStore::maintain) has found, for the metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Maintenance {
    /// The bytes of the log that is copied to the database from time to time.
    pub log_bytes: u64,
    /// How often copying has failed and will be tried again, since the store was opened.
    pub failures: u64,
}

impl Maintenance {
    /// Creates the state, for stores.
    pub fn new(log_bytes: u64, failures: u64) -> Self {
        Maintenance { log_bytes, failures }
    }
}
