//! The settings of a map.

use super::follower::MapLimits;
use crate::broker::store::MapUpdate;
use crate::{error::Result, settings::check_range};

#[derive(Debug, Clone)]
pub(super) struct MapSettings {
    pub(super) max_entries: u64,
    pub(super) max_bytes: usize,
    pub(super) max_held: usize,
    pub(super) max_pending: usize,
}

impl Default for MapSettings {
    fn default() -> Self {
        MapSettings {
            max_entries: MapUpdate::DEFAULT_MAX_ENTRIES,
            max_bytes: 64 << 20,
            max_held: 100_000,
            max_pending: 16_384,
        }
    }
}

impl MapSettings {
    pub(super) fn check(&self) -> Result {
        check_range("max_entries", self.max_entries, 1.., "1 or more")?;
        check_range("max_bytes", self.max_bytes, 1.., "1 byte or more")?;
        check_range("max_held", self.max_held, 1.., "1 or more")?;
        check_range("max_pending", self.max_pending, 1.., "1 or more")
    }

    pub(super) fn limits(&self) -> MapLimits {
        MapLimits {
            entries: usize::try_from(self.max_entries).unwrap_or(usize::MAX),
            bytes: self.max_bytes,
            ahead_updates: 16_384,
            ahead_bytes: 16 << 20,
        }
    }
}
