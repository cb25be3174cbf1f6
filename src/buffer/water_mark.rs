//! The marks between which a writer pauses and resumes.
//!
//! Invariant: `low <= high`, and both are at least 1.

use crate::{Error, Result};

/// What each message that waits outside the buffer counts besides its bytes, so that very many tiny writes
/// reach the mark as well.
pub(crate) const ENTRY_OVERHEAD: usize = 96;

/// High and low water mark of a channel's outbound bytes, with hysteresis.
///
/// Strictly above `high` the channel is no longer writable; strictly below `low` it is again; in between it
/// stays what it was. Units are bytes. The default is Netty's: 32 KiB and 64 KiB.
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
    /// Marks at `low` and `high` bytes.
    ///
    /// # Errors
    /// If `low` is 0 or greater than `high`.
    pub fn new(low: usize, high: usize) -> Result<Self> {
        if low == 0 {
            return Err(Error::setting("water_mark.low", low, "1 byte or more"));
        }
        if low > high {
            return Err(Error::setting("water_mark.low", low, "at most water_mark.high"));
        }
        Ok(WaterMark { low, high })
    }

    /// Marks that are known to be in order.
    pub(crate) const fn of(low: usize, high: usize) -> Self {
        assert!(0 < low && low <= high);
        WaterMark { low, high }
    }

    /// Below this many bytes a channel that was not writable is so again.
    pub fn low(&self) -> usize {
        self.low
    }

    /// Above this many bytes a channel is not writable.
    pub fn high(&self) -> usize {
        self.high
    }

    /// Returns these marks, lowered to `high`.
    pub(crate) fn capped(self, high: usize) -> Self {
        let high = self.high.min(high).max(1);
        WaterMark { low: self.low.min(high), high }
    }

    /// Returns the length up to which a buffer cannot exceed the high mark, including the weight of
    /// its chunks.
    ///
    /// Chunks add at most 192 bytes to every 1024 (a shared encoding and the small tail before it), so
    /// three quarters of the mark are safe.
    pub(crate) const fn certain_room(self) -> usize {
        self.high / 4 * 3
    }

    /// Whether a channel with `pending` bytes is writable, given what it was.
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
