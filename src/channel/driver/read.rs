//! The result of one read.

use crate::channel::links::Batch;
use std::io;

/// The result of one read.
pub(super) enum Read {
    /// Bytes came, for now the `last` ones. If `completed`, the handler's `read_complete` was called.
    Bytes {
        last: bool,
        completed: bool,
    },
    /// Bytes came that the filters keep.
    Kept {
        last: bool,
    },
    Nothing,
    End,
    Failed(io::Error),
    /// The channel was closed because of what came.
    Broken,
    /// A limit of traffic allows no read now.
    HeldUp,
}

/// Returns how the bytes of a read are decoded.
#[inline]
pub(super) fn batch(last: bool) -> Batch {
    if last { Batch::Complete } else { Batch::Part }
}
