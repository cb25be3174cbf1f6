//! The result of one read.

use crate::channel::core::links::Batch;
use std::io::{self, ErrorKind};

/// The result of one read.
pub(super) enum Read {
    /// Bytes were read; they are the `last` ones for now. If `completed`, the handler's
    /// `read_complete` was called.
    Bytes {
        last: bool,
        completed: bool,
    },
    /// Bytes were read, and the filters keep them.
    Kept {
        last: bool,
    },
    Nothing,
    End,
    Failed(io::Error),
    /// The channel was closed because of the bytes.
    Broken,
    /// A traffic limit allows no read now.
    HeldUp,
}

impl Read {
    /// Returns the result of a read that has failed.
    pub(super) fn failed(error: io::Error) -> Self {
        if error.kind() == ErrorKind::WouldBlock { Read::Nothing } else { Read::Failed(error) }
    }
}

/// Returns how the bytes of a read are decoded.
#[inline]
pub(super) fn batch(last: bool) -> Batch {
    if last { Batch::Complete } else { Batch::Part }
}
