//! `Refused`: the error of a message whose end is known.

use super::error::RespError;
use crate::error::PeerError;

/// The error of a message whose end is known. The codec continues behind it, if the error allows
/// that.
#[derive(Debug)]
pub(super) enum Refused {
    Invalid(RespError),
    TooLong(PeerError),
}

impl From<RespError> for Refused {
    fn from(error: RespError) -> Self {
        Refused::Invalid(error)
    }
}
