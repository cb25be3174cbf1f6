//! The disks of nodes: how long they take, and what fails.

use super::World;
use crate::machine::{failure::DiskError, simulated::fault::Fault};
use std::{ops::Range, time::Duration};

/// The time of a read, of a write and of a sync, in nanoseconds.
const READ: Range<u64> = 10_000..100_000;
const WRITE: Range<u64> = 10_000..200_000;
const SYNC: Range<u64> = 100_000..4_000_000;

/// How much longer a slow access takes.
const SLOW: Range<u64> = 10_000_000..3_000_000_000;

impl World {
    pub(crate) fn disk_read(&mut self) -> Duration {
        self.disk_time(READ)
    }

    pub(crate) fn disk_write(&mut self, node: usize) -> (Duration, Option<DiskError>) {
        let time = self.disk_time(WRITE);
        let is_full = self.nodes[node].disk_full_until > self.now();
        let error = if is_full {
            Some(DiskError::Full)
        } else {
            self.fails(Fault::DiskBusy).then_some(DiskError::Busy)
        };
        (time, error)
    }

    pub(crate) fn disk_sync(&mut self) -> (Duration, Option<DiskError>) {
        let time = self.disk_time(SYNC);
        (time, self.fails(Fault::SyncFails).then_some(DiskError::Failed))
    }

    fn disk_time(&mut self, usual: Range<u64>) -> Duration {
        let mut time = self.draw(usual);
        if self.fails(Fault::SlowDisk) {
            time += self.faults.size(Fault::SlowDisk, SLOW);
        }
        Duration::from_nanos(time)
    }
}
