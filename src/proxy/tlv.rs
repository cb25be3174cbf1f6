//! The fields of type, length and value at the end of a header of version 2.

use super::{
    field::{ALPN, AUTHORITY, CRC32C, NETNS, SSL, UNIQUE_ID, split, text},
    proxy_error::ProxyError,
    ssl_info::SslInfo,
};

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
