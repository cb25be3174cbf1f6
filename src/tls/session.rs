//! `Session`: a TLS connection with the state that the filter needs.
//!
//! Invariant: a session is at one place, on the loop or with a worker. It does not know where.

use super::{
    client_hello::{ALERT_RECORD, ClientHello, Look, is_close_notify, may_be_tls},
    connection::Connection,
    error::{NotTls, UnknownHost, failure},
    info::TlsInfo,
    tls_certificates::TlsCertificates,
};
use crate::error::{Error, PeerError, Result};
use rustls::{ClientConfig, InvalidMessage, ProtocolVersion, ServerConfig, pki_types::ServerName};
use std::sync::Arc;

/// The longest input of a server's last step in TLS 1.3 without a certificate of the client: a
/// ChangeCipherSpec and a Finished.
const CHEAP_INPUT: usize = 128;

/// The fatal alert `decode_error`, before anything is encrypted.
const DECODE_ERROR: [u8; 7] = [21, 3, 3, 0, 2, 2, 50];

/// The fatal alert `unrecognized_name`, likewise.
const UNRECOGNIZED_NAME: [u8; 7] = [21, 3, 3, 0, 2, 2, 112];

/// The error of a session whose keys have encrypted as much as they may. The peer is not to blame.
const KEYS_USED_UP: &str = "the keys of the TLS 1.2 session have encrypted as many records as they may";

#[derive(Debug)]
pub(super) struct Session {
    connection: Connection,
    opening: Opening,
    /// The host that the client has named.
    server_name: Option<Box<str>>,
    /// A server refuses hosts for which it has no certificate.
    certificates: Option<TlsCertificates>,
}

/// What is expected of the first bytes.
#[derive(Debug)]
enum Opening {
    ClientHello(ClientHello),
    ServerHello,
    Passed,
    Refused(Refusal),
}

/// Why the first bytes are refused.
#[derive(Debug, Clone, Copy)]
enum Refusal {
    NotTls,
    TooLong,
    UnknownHost,
    Closed,
}

impl Session {
    pub(super) fn server(config: Arc<ServerConfig>, certificates: Option<TlsCertificates>) -> Result<Self> {
        Ok(Session {
            connection: Connection::server(config).map_err(failure)?,
            opening: Opening::ClientHello(ClientHello::default()),
            server_name: None,
            certificates,
        })
    }

    pub(super) fn client(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self> {
        let server_name = match &name {
            ServerName::DnsName(name) => Some(name.as_ref().to_ascii_lowercase().into()),
            _ => None,
        };
        Ok(Session {
            connection: Connection::client(config, name).map_err(failure)?,
            opening: Opening::ServerHello,
            server_name,
            certificates: None,
        })
    }

    pub(super) fn is_handshaking(&self) -> bool {
        self.connection.common().is_handshaking()
    }

    pub(super) fn is_peer_closed(&self) -> bool {
        self.connection.is_peer_closed()
    }

    /// Returns the negotiated parameters, once the handshake is complete.
    pub(super) fn info(&mut self) -> Option<TlsInfo> {
        TlsInfo::of(&self.connection, self.server_name.take())
    }

    /// Appends a client's first message.
    pub(super) fn start(&mut self, output: &mut Vec<u8>) -> Result {
        match self.opening {
            Opening::ServerHello => self.connection.start(output).map_err(failure),
            _ => Ok(()),
        }
    }

    /// Returns whether `read` would compute signatures or key exchanges for this input.
    pub(super) fn is_expensive(&mut self, input: &[u8]) -> bool {
        if !self.is_handshaking() || !matches!(self.look(input), Ok(true)) {
            return false;
        }
        let version = self.connection.common().protocol_version();
        let finished = version == Some(ProtocolVersion::TLSv1_3) && input.len() <= CHEAP_INPUT;
        !finished && self.connection.has_complete_record(input)
    }

    /// Like [`Connection::read`].
    #[inline]
    pub(super) fn read(
        &mut self,
        input: &mut [u8],
        plain: &mut impl FnMut(&[u8]),
        output: &mut Vec<u8>,
    ) -> Result<usize> {
        match self.look(input) {
            Ok(true) => self.connection.read(input, plain, output).map_err(failure),
            Ok(false) => Ok(0),
            Err(refusal) => Err(refusal.refuse(output)),
        }
    }

    /// Like [`Connection::write`].
    pub(super) fn write(&mut self, plain: &[u8], output: &mut Vec<u8>) -> Result {
        self.connection.write(plain, output).map_err(|error| match error {
            rustls::Error::EncryptError => Error::other(KEYS_USED_UP),
            error => failure(error),
        })
    }

    /// Like [`Connection::close`].
    pub(super) fn close(&mut self, output: &mut Vec<u8>) {
        self.connection.close(output);
    }

    /// Like [`Connection::sealed_len`].
    pub(super) fn sealed_len(&self, plain: usize) -> usize {
        self.connection.sealed_len(plain)
    }

    /// Returns whether rustls can process `input`.
    #[inline]
    fn look(&mut self, input: &[u8]) -> Result<bool, Refusal> {
        if let Opening::Passed = self.opening { Ok(true) } else { self.look_at_opening(input) }
    }

    #[inline(never)]
    fn look_at_opening(&mut self, input: &[u8]) -> Result<bool, Refusal> {
        let refusal = match &mut self.opening {
            Opening::Passed => return Ok(true),
            Opening::ClientHello(hello) => match hello.look(input) {
                Look::Incomplete => return Ok(false),
                Look::NotTls => Some(Refusal::NotTls),
                Look::TooLong => Some(Refusal::TooLong),
                Look::Closed => Some(Refusal::Closed),
                Look::Ready => None,
                Look::ServerName(name) => {
                    let certificates = self.certificates.take();
                    let unknown = certificates.is_some_and(|all| all.find(Some(&name)).is_none());
                    self.server_name = Some(name);
                    unknown.then_some(Refusal::UnknownHost)
                }
            },
            Opening::ServerHello if !may_be_tls(input) => Some(Refusal::NotTls),
            Opening::ServerHello if is_close_notify(input) => Some(Refusal::Closed),
            // An alert is looked at when it is complete.
            Opening::ServerHello if input.len() < 2 || input[0] != 22 && input.len() < ALERT_RECORD => {
                return Ok(false);
            }
            Opening::ServerHello => None,
            Opening::Refused(refusal) => Some(*refusal),
        };
        self.opening = refusal.map_or(Opening::Passed, Opening::Refused);
        refusal.map_or(Ok(true), Err)
    }
}

impl Refusal {
    /// Appends the alert to `output`, and returns the error.
    #[cold]
    fn refuse(self, output: &mut Vec<u8>) -> Error {
        output.extend_from_slice(self.alert());
        self.error()
    }

    fn alert(self) -> &'static [u8] {
        match self {
            Refusal::NotTls | Refusal::TooLong => &DECODE_ERROR,
            Refusal::UnknownHost => &UNRECOGNIZED_NAME,
            // Nothing is left to say.
            Refusal::Closed => &[],
        }
    }

    /// Returns the error that rustls has for such input, or one that says more.
    fn error(self) -> Error {
        match self {
            Refusal::UnknownHost => failure(UnknownHost),
            Refusal::NotTls => failure(NotTls),
            Refusal::Closed => PeerError::Truncated.into(),
            Refusal::TooLong => {
                failure(rustls::Error::InvalidMessage(InvalidMessage::HandshakePayloadTooLarge))
            }
        }
    }
}
