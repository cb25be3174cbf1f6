//! `TlsInfo`: the parameters that a handshake has negotiated.

use super::connection::Connection;
use crate::{
    channel::Peer,
    pipeline::{Context, Handler},
};
use bytes::Bytes;
use rustls::{HandshakeKind, ProtocolVersion};

/// A version of TLS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum TlsVersion {
    /// TLS 1.2.
    Tls12,
    /// TLS 1.3.
    Tls13,
}

/// The result of a TLS handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsInfo {
    version: TlsVersion,
    cipher_suite: &'static str,
    key_exchange: Option<&'static str>,
    alpn_protocol: Option<Box<str>>,
    server_name: Option<Box<str>>,
    peer_certificates: Box<[Bytes]>,
    resumed: bool,
}

impl TlsInfo {
    /// Reads what `connection` has negotiated. `None` if the handshake is not complete.
    pub(super) fn of(connection: &Connection, server_name: Option<Box<str>>) -> Option<Self> {
        let common = connection.common();
        let certificates = common.peer_certificates().unwrap_or_default();
        Some(TlsInfo {
            version: match common.protocol_version()? {
                ProtocolVersion::TLSv1_2 => TlsVersion::Tls12,
                _ => TlsVersion::Tls13,
            },
            cipher_suite: common.negotiated_cipher_suite()?.suite().as_str().unwrap_or("unknown"),
            key_exchange: common.negotiated_key_exchange_group().and_then(|group| group.name().as_str()),
            alpn_protocol: common.alpn_protocol().map(|name| String::from_utf8_lossy(name).into()),
            server_name,
            peer_certificates: certificates.iter().map(|der| Bytes::copy_from_slice(der)).collect(),
            resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
        })
    }

    /// Returns the version of TLS.
    pub fn version(&self) -> TlsVersion {
        self.version
    }

    /// Returns the name of the cipher suite, for example `TLS13_AES_128_GCM_SHA256`.
    pub fn cipher_suite(&self) -> &'static str {
        self.cipher_suite
    }

    /// Returns the name of the key exchange, for example `X25519` or `X25519MLKEM768`.
    ///
    /// A resumed TLS 1.2 session has none.
    pub fn key_exchange(&self) -> Option<&'static str> {
        self.key_exchange
    }

    /// Returns the protocol that both sides agreed on by ALPN, for example `h2`.
    ///
    /// Bytes that are not UTF-8 are replaced by U+FFFD.
    pub fn alpn_protocol(&self) -> Option<&str> {
        self.alpn_protocol.as_deref()
    }

    /// Returns the host name that the client has asked for (SNI), in lower case and without a
    /// trailing dot.
    ///
    /// A client that connects to an IP address sends no name.
    #[doc(alias = "sni")]
    pub fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Returns the certificates of the peer as DER, its own first.
    ///
    /// The list is empty on a server, unless the client has authenticated itself. The certificates
    /// are verified, also in a resumed session.
    pub fn peer_certificates(&self) -> &[Bytes] {
        &self.peer_certificates
    }

    /// Returns whether an earlier session was resumed, so that no certificate was sent.
    pub fn is_resumed(&self) -> bool {
        self.resumed
    }
}

impl Peer {
    /// Returns the result of the TLS handshake, or `None` on a connection without TLS. A pipeline
    /// factory can choose a pipeline by it, for example by the ALPN protocol.
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.info()
    }
}

impl<H: Handler> Context<'_, H> {
    /// Returns the result of the TLS handshake, or `None` on a connection without TLS.
    pub fn tls(&self) -> Option<&TlsInfo> {
        self.filter_info()
    }
}
