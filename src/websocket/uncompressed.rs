//! Connections without compression, in builds without the feature `deflate`.

use super::error::WebSocketError;
use bytes::Bytes;

/// No agreement on compression exists.
#[derive(Debug, Clone, Copy)]
pub(super) enum Negotiated {}

/// Refuses compressed messages, and compresses none.
#[derive(Debug)]
pub(super) struct Compression;

impl Compression {
    /// No compression.
    pub(super) const OFF: Compression = Compression;

    pub(super) fn is_on(&self) -> bool {
        false
    }

    pub(super) fn inflate(&mut self, _: &[u8], _: usize) -> Result<Bytes, WebSocketError> {
        Err(WebSocketError::ReservedBits)
    }

    pub(super) fn deflate(&mut self, _: &[u8], _: impl FnOnce(&[u8])) -> bool {
        false
    }

    pub(super) fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }

    pub(super) fn forget_deflated(&mut self) {}
}

impl From<Option<Negotiated>> for Compression {
    fn from(_: Option<Negotiated>) -> Self {
        Compression::OFF
    }
}
