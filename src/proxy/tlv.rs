//! The fields of type, length and value at the end of a header of version 2.

use super::{ProxyError, SslInfo};
use std::str;

pub(super) const ALPN: u8 = 0x01;
pub(super) const AUTHORITY: u8 = 0x02;
pub(super) const CRC32C: u8 = 0x03;
pub(super) const UNIQUE_ID: u8 = 0x05;
pub(super) const SSL: u8 = 0x20;
pub(super) const NETNS: u8 = 0x30;

/// The longest unique ID, from the specification.
const MAX_UNIQUE_ID: usize = 128;

/// A field of a header of version 2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tlv<'a> {
    /// The protocol that the client and the proxy have negotiated by ALPN.
    Alpn(&'a [u8]),
    /// The host name that the client has asked for, for example by SNI.
    Authority(&'a str),
    /// The checksum of the header, which has been verified.
    Crc32c(u32),
    /// An identifier of the connection, of at most 128 bytes.
    UniqueId(&'a [u8]),
    /// The TLS connection between the client and the proxy.
    Ssl(SslInfo<'a>),
    /// The name of the network namespace.
    NetworkNamespace(&'a str),
    /// Any other field: padding, and types of an application or a vendor.
    #[non_exhaustive]
    Other {
        /// The type.
        kind: u8,
        /// The value.
        value: &'a [u8],
    },
}

impl<'a> Tlv<'a> {
    pub(super) fn parse(kind: u8, value: &'a [u8]) -> Result<Self, ProxyError> {
        Ok(match kind {
            ALPN => Tlv::Alpn(value),
            AUTHORITY => Tlv::Authority(text(value)?),
            CRC32C => {
                let sum = value
                    .try_into()
                    .map_err(|_| ProxyError::Malformed("a checksum has another length than 4 bytes"))?;
                Tlv::Crc32c(u32::from_be_bytes(sum))
            }
            UNIQUE_ID if value.len() > MAX_UNIQUE_ID => {
                return Err(ProxyError::Malformed("a unique ID is longer than 128 bytes"));
            }
            UNIQUE_ID => Tlv::UniqueId(value),
            SSL => Tlv::Ssl(SslInfo::parse(value)?),
            NETNS => Tlv::NetworkNamespace(text(value)?),
            kind => Tlv::Other { kind, value },
        })
    }
}

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

/// An iterator over the fields of a header.
#[derive(Debug, Clone)]
pub struct Tlvs<'a> {
    /// Fields that were checked when the header was parsed.
    pub(super) rest: &'a [u8],
}

impl<'a> Iterator for Tlvs<'a> {
    type Item = Tlv<'a>;

    fn next(&mut self) -> Option<Tlv<'a>> {
        let (kind, value, rest) = split(self.rest).ok()?;
        self.rest = rest;
        Tlv::parse(kind, value).ok()
    }
}
