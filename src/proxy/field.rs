//! The fields (TLVs) at the end of a header of version 2: a type, a length of two bytes, and a
//! value.

use super::proxy_error::ProxyError;
use std::{ops::RangeInclusive, str};

pub(super) const AUTHORITY: u8 = 0x02;
pub(super) const CRC32C: u8 = 0x03;
pub(super) const UNIQUE_ID: u8 = 0x05;
const SSL: u8 = 0x20;
/// The fields inside of an SSL field that are text: version, common name and algorithms.
const SSL_TEXTS: RangeInclusive<u8> = 0x21..=0x27;
const NETNS: u8 = 0x30;

/// The longest unique ID, from the specification.
const MAX_UNIQUE_ID: usize = 128;

/// Checks the value of a field of a header.
pub(super) fn check(kind: u8, value: &[u8]) -> Result<(), ProxyError> {
    match kind {
        AUTHORITY | NETNS => check_text(value),
        CRC32C if value.len() != 4 => {
            Err(ProxyError::Malformed("a checksum has another length than 4 bytes"))
        }
        UNIQUE_ID if value.len() > MAX_UNIQUE_ID => {
            Err(ProxyError::Malformed("a unique ID is longer than 128 bytes"))
        }
        SSL => check_ssl(value),
        _ => Ok(()),
    }
}

fn check_ssl(value: &[u8]) -> Result<(), ProxyError> {
    // The flags of the client, and the result of the verification of its certificate.
    let (_, mut rest) = value
        .split_first_chunk::<5>()
        .ok_or(ProxyError::Malformed("an SSL field is shorter than 5 bytes"))?;
    while !rest.is_empty() {
        let (kind, value, next) = split(rest)?;
        match kind {
            // One level, as specified: no recursion, however the bytes are nested.
            SSL => return Err(ProxyError::Malformed("an SSL field contains an SSL field")),
            kind if SSL_TEXTS.contains(&kind) => check_text(value)?,
            _ => {}
        }
        rest = next;
    }
    Ok(())
}

fn check_text(value: &[u8]) -> Result<(), ProxyError> {
    str::from_utf8(value).map(drop).map_err(|_| ProxyError::Malformed("a text field is not UTF-8"))
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

/// Returns the value of the first field of a type.
pub(super) fn find(mut fields: &[u8], kind: u8) -> Option<&[u8]> {
    while let Ok((found, value, rest)) = split(fields) {
        if found == kind {
            return Some(value);
        }
        fields = rest;
    }
    None
}
