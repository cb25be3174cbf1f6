//! `Refused`: why a message has no value.

use super::error::RespError;
use crate::error::PeerError;

/// Why a message whose end was found has no value.
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
