//! Messages of a broadcast that are encoded for each channel.

use crate::Error;
use std::fmt;

/// The error of a stage that must see a message for each channel.
#[derive(Debug)]
pub(super) struct NotShared;

impl NotShared {
    pub(super) fn is(error: &Error) -> bool {
        matches!(error, Error::Other(cause) if cause.is::<NotShared>())
    }
}

impl fmt::Display for NotShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the message is encoded for each channel")
    }
}

impl std::error::Error for NotShared {}
