//! Encoding and parsing of both versions.

use super::{
    binary, field,
    header::{Endpoints, ProxyCommand, ProxyHeader},
    proxy_error::ProxyError,
    proxy_version::ProxyVersion,
    text,
};
use crate::error::{Error, Result};
use bytes::BufMut;

impl ProxyHeader {
    /// Appends a field to a header of version 2. A checksum in the header is updated.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the header is of version 1 or announces no addresses. Also if the
    /// value is not valid for its type, or if the header becomes longer than
    /// [`MAX_LEN`](Self::MAX_LEN).
    pub fn tlv(self, kind: u8, value: &[u8]) -> Result<Self> {
        if kind == field::CRC32C {
            return Err(Error::setting("PROXY field", kind, "a checksum is added by `crc32c`"));
        }
        if field::check(kind, value).is_err() {
            let field = format!("{} bytes of type {kind}", value.len());
            return Err(Error::setting("PROXY field", field, "a value that is valid for its type"));
        }
        self.append(kind, value)
    }

    /// Appends a checksum of the header, of version 2. Does nothing if it has one.
    ///
    /// # Errors
    ///
    /// The errors of [`tlv`](Self::tlv).
    pub fn crc32c(self) -> Result<Self> {
        if self.tlv_value(field::CRC32C).is_some() {
            return Ok(self);
        }
        self.append(field::CRC32C, &[0; 4])
    }

    fn append(mut self, kind: u8, value: &[u8]) -> Result<Self> {
        if self.version == ProxyVersion::V1 {
            return Err(Error::setting("PROXY field", kind, "version 1 has no fields"));
        }
        if self.command == ProxyCommand::Proxy && self.endpoints == Endpoints::Unknown {
            let allowed = "a header without addresses has no fields";
            return Err(Error::setting("PROXY field", kind, allowed));
        }
        let length = binary::encoded_len(&self) + 3 + value.len();
        let value_len = u16::try_from(value.len()).ok().filter(|_| length <= Self::MAX_LEN);
        let Some(value_len) = value_len else {
            return Err(Error::setting("PROXY header length", length, "at most 65551 bytes"));
        };
        let mut tlvs = self.tlvs.to_vec();
        tlvs.put_u8(kind);
        tlvs.put_u16(value_len);
        tlvs.put_slice(value);
        self.tlvs = tlvs.into();
        binary::seal(&mut self);
        Ok(self)
    }

    /// Parses a header at the beginning of `input`. Returns it with its length in bytes, or `None`
    /// if the header is not complete yet.
    ///
    /// `max_len` limits a header of version 2. The limit of version 1 is 107, as specified. Memory
    /// is allocated only when the header is complete. Invalid bytes are refused as early as
    /// possible. The result does not depend on how the input is split.
    ///
    /// # Errors
    ///
    /// [`ProxyError`] if `input` does not begin with a valid header.
    pub fn parse(input: &[u8], max_len: usize) -> std::result::Result<Option<(Self, usize)>, ProxyError> {
        let begins = |prefix: &[u8]| input.iter().zip(prefix).all(|(byte, wanted)| byte == wanted);
        match input.first() {
            None => Ok(None),
            Some(b'P') if begins(text::PREFIX) => text::parse(input),
            Some(b'\r') if begins(binary::SIGNATURE) => binary::parse(input, max_len),
            Some(_) => Err(ProxyError::Absent),
        }
    }

    /// Appends the encoded header to `out`.
    pub fn encode(&self, out: &mut impl BufMut) {
        match self.version {
            ProxyVersion::V1 => text::encode(self, out),
            ProxyVersion::V2 => binary::encode(self, out),
        }
    }
}
