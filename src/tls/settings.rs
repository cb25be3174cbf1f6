//! Settings that servers and clients share.

use crate::error::{Error, Result};

/// # Errors
/// [`Error::Setting`] if a protocol name is out of range (RFC 7301, section 3.1).
pub(super) fn check_alpn(protocols: &[String]) -> Result {
    match protocols.iter().find(|name| !(1..=255).contains(&name.len())) {
        Some(name) => Err(Error::setting("alpn", format!("{name:?}"), "names of 1 to 255 bytes")),
        None => Ok(()),
    }
}

/// Returns the names as rustls expects them.
pub(super) fn alpn(protocols: &[String]) -> Vec<Vec<u8>> {
    protocols.iter().map(|name| name.as_bytes().to_vec()).collect()
}
