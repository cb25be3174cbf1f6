//! The part of a loop that the I/O of its sources needs.
//!
//! Plain data, owned by the loop's thread.

use super::{
    closing::{ClosedChannel, Lingering},
    poll::Selector,
};
use crate::channel::driver::LoopIo;
use std::ops::{Deref, DerefMut};

/// Everything of a loop that handling one source's I/O needs, besides the source.
pub(crate) struct Io {
    pub(crate) selector: Selector,
    /// What the drivers of channels need.
    pub(crate) drivers: LoopIo,
    /// Channels that are closed, and for which `inactive` has not been called yet.
    pub(crate) inactive: Vec<ClosedChannel>,
    pub(crate) lingering: Lingering,
}

impl Deref for Io {
    type Target = LoopIo;

    #[inline]
    fn deref(&self) -> &LoopIo {
        &self.drivers
    }
}

impl DerefMut for Io {
    #[inline]
    fn deref_mut(&mut self) -> &mut LoopIo {
        &mut self.drivers
    }
}
