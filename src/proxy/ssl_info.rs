//! The TLS connection between a client and the proxy.

use super::{
    field::{SSL, split, text},
    proxy_error::ProxyError,
};

const VERSION: u8 = 0x21;
const COMMON_NAME: u8 = 0x22;
const CIPHER: u8 = 0x23;
/// The last of the fields that are text. The fields between the cipher and this one have no
/// getters.
const SIGNATURE_SCHEME: u8 = 0x27;
const CLIENT_CERTIFICATE: u8 = 0x28;

/// The TLS connection between a client and the proxy, as described by the proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SslInfo<'a> {
    client: u8,
    verify: u32,
    /// Fields that were checked by `parse`.
    fields: &'a [u8],
}

impl<'a> SslInfo<'a> {
    pub(super) fn parse(value: &'a [u8]) -> Result<Self, ProxyError> {
        let (&[client, verify @ ..], fields) = value
            .split_first_chunk::<5>()
            .ok_or(ProxyError::Malformed("an SSL field is shorter than 5 bytes"))?;
        let mut rest = fields;
        while !rest.is_empty() {
            let (kind, value, next) = split(rest)?;
            match kind {
                // One level, as specified: no recursion, however the bytes are nested.
                SSL => {
                    return Err(ProxyError::Malformed("an SSL field contains an SSL field"));
                }
                VERSION..=SIGNATURE_SCHEME => {
                    text(value)?;
                }
                _ => {}
            }
            rest = next;
        }
        Ok(SslInfo { client, verify: u32::from_be_bytes(verify), fields })
    }

    /// Returns whether the client is connected by TLS.
    pub fn is_tls(&self) -> bool {
        self.client & 1 != 0
    }

    /// Returns whether the client has sent a certificate in this connection.
    pub fn has_certificate(&self) -> bool {
        self.client & 2 != 0
    }

    /// Returns whether the client has sent a certificate in this connection or in an earlier one
    /// of the same TLS session.
    pub fn has_session_certificate(&self) -> bool {
        self.client & 4 != 0
    }

    /// Returns whether the client has sent a certificate and the proxy has verified it.
    pub fn is_verified(&self) -> bool {
        self.client & (2 | 4) != 0 && self.verify == 0
    }

    /// Returns the TLS version, for example `TLSv1.3`.
    pub fn version(&self) -> Option<&'a str> {
        self.text(VERSION)
    }

    /// Returns the common name of the client's certificate.
    pub fn common_name(&self) -> Option<&'a str> {
        self.text(COMMON_NAME)
    }

    /// Returns the cipher suite.
    pub fn cipher(&self) -> Option<&'a str> {
        self.text(CIPHER)
    }

    /// Returns the client's certificate in DER.
    pub fn client_certificate(&self) -> Option<&'a [u8]> {
        self.field(CLIENT_CERTIFICATE)
    }

    /// Returns the value of the first field of a type.
    pub fn field(&self, kind: u8) -> Option<&'a [u8]> {
        let mut rest = self.fields;
        while let Ok((found, value, next)) = split(rest) {
            if found == kind {
                return Some(value);
            }
            rest = next;
        }
        None
    }

    fn text(&self, kind: u8) -> Option<&'a str> {
        self.field(kind).and_then(|value| text(value).ok())
    }
}
