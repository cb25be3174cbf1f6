//! Errors of TLS as errors of the crate.

use crate::error::{Error, PeerError};
use std::fmt;

/// The cause of a [`PeerError::Protocol`]: the peer speaks another protocol, for example HTTP
/// without TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotTls;

impl fmt::Display for NotTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not TLS: the first bytes of the peer are no TLS record")
    }
}

impl std::error::Error for NotTls {}

/// The client has named a host for which the server has no certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UnknownHost;

impl fmt::Display for UnknownHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the client asks for a host without a certificate")
    }
}

impl std::error::Error for UnknownHost {}

/// Creates the error of a handshake or record.
pub(super) fn failure(cause: impl std::error::Error + Send + Sync + 'static) -> Error {
    PeerError::protocol("TLS", cause).into()
}
