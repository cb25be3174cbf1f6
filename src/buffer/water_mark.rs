//! The limits between which a writer pauses and resumes.
//!
//! Invariant: `low <= high`, and both are at least 1.

use crate::error::{Error, Result};

/// The weight of each message or chunk outside the tail, in addition to its bytes. With it, many
/// tiny writes also reach the mark.
pub(crate) const ENTRY_OVERHEAD: usize = 96;

/// The low and high water marks of a channel's outbound bytes, with hysteresis.
///
/// A channel becomes unwritable when its pending bytes exceed `high`, and writable again when they
/// drop below `low`. In between, its writability does not change. The defaults are those of Netty:
/// 32 KiB and 64 KiB.
///
/// ```
/// use netwheel::buffer::WaterMark;
///
/// assert!(WaterMark::new(8 * 1024, 16 * 1024).is_ok());
/// assert!(WaterMark::new(16 * 1024, 8 * 1024).is_err());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WaterMark {
    low: usize,
    high: usize,
}

impl WaterMark {
    /// Creates marks at `low` and `high` bytes.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `low` is 0 or greater than `high`.
    pub fn new(low: usize, high: usize) -> Result<Self> {
        if low == 0 {
            return Err(Error::setting("water_mark.low", low, "1 byte or more"));
        }
        if low > high {
            return Err(Error::setting("water_mark.low", low, "at most water_mark.high"));
        }
        Ok(WaterMark { low, high })
    }

    /// Creates marks that are known to be valid.
    pub(crate) const fn of(low: usize, high: usize) -> Self {
        assert!(0 < low && low <= high);
        WaterMark { low, high }
    }

    /// Returns the number of pending bytes below which an unwritable channel becomes writable
    /// again.
    pub fn low(&self) -> usize {
        self.low
    }

    /// Returns the number of pending bytes above which a channel becomes unwritable.
    pub fn high(&self) -> usize {
        self.high
    }

    /// Returns these marks, lowered to `high`.
    pub(crate) fn capped(self, high: usize) -> Self {
        let high = self.high.min(high).max(1);
        WaterMark { low: self.low.min(high), high }
    }

    /// Returns the weight up to which a buffer does not exceed the high mark with a further message
    /// of the bytes that are asked for.
    ///
    /// Such a message adds at most two chunks to the weight: itself and the small tail before it.
    pub(crate) const fn certain_room(self) -> usize {
        self.high / 4 * 3
    }

    /// Returns whether a channel with `pending` bytes is writable. `was` is its previous state.
    #[inline]
    pub(crate) fn writable(&self, was: bool, pending: usize) -> bool {
        if was { pending <= self.high } else { pending < self.low }
    }
}

impl Default for WaterMark {
    fn default() -> Self {
        Self::of(32 * 1024, 64 * 1024)
    }
}
