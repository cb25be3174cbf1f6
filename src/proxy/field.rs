//! The form of fields: a type, a length of two bytes, and a value.

use super::proxy_error::ProxyError;
use std::str;

pub(super) const ALPN: u8 = 0x01;
pub(super) const AUTHORITY: u8 = 0x02;
pub(super) const CRC32C: u8 = 0x03;
pub(super) const UNIQUE_ID: u8 = 0x05;
pub(super) const SSL: u8 = 0x20;
pub(super) const NETNS: u8 = 0x30;

/// Converts a value that the specification defines as text.
pub(super) fn text(value: &[u8]) -> Result<&str, ProxyError> {
    str::from_utf8(value).map_err(|_| ProxyError::Malformed("a text field is not UTF-8"))
}

/// Splits the first field off: its type and value, and the rest.
pub(super) fn split(fields: &[u8]) -> Result<(u8, &[u8], &[u8]), ProxyError> {
    let (&[kind, high, low], rest) =
        fields.split_first_chunk().ok_or(ProxyError::Malformed("the header ends inside of a field"))?;
    let (value, rest) = rest
        .split_at_checked(u16::from_be_bytes([high, low]).into())
        .ok_or(ProxyError::Malformed("a field is longer than the rest of the header"))?;
    Ok((kind, value, rest))
}
