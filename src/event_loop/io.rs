//! The part of a loop that the I/O of its sources needs.
//!
//! Plain data, owned by the loop's thread.

use super::{Selector, closing::ClosedChannel};
use crate::channel::driver::LoopIo;
use std::ops::{Deref, DerefMut};

/// The part of a loop that is needed to handle one source's I/O, besides the source.
pub(crate) struct Io {
    pub(crate) selector: Selector,
    /// The part that channel drivers use.
    pub(crate) drivers: LoopIo,
    /// Closed channels for which `inactive` has not been called yet.
    pub(crate) inactive: Vec<ClosedChannel>,
    /// The limit of lingering sockets. With zero, sockets close immediately instead of lingering.
    pub(crate) max_lingering: usize,
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
