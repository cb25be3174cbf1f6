//! The TLS configuration of the generator: ring, TLS 1.3, and trust in one certificate.

use clap::ValueEnum;
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore,
    client::Resumption,
    crypto::ring::default_provider,
    pki_types::{CertificateDer, IpAddr, ServerName, pem::PemObject},
    version::TLS13,
};
use std::{io, net::Ipv4Addr, sync::Arc};

/// The certificate of all servers.
const CERTIFICATE: &[u8] = include_bytes!("../../tls/certificate.pem");

/// Sessions for which a slot keeps tickets: only one server is connected to.
const SESSIONS: usize = 1;

/// The handshakes of a run. A handshake of the other kind is an error.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Handshakes {
    /// With the certificate.
    Full,
    /// With a ticket of an earlier connection.
    Resumed,
}

/// A configuration for one connection after the other. Connections at the same time would compete
/// for tickets, because each ticket is used once.
#[derive(Clone)]
pub(crate) struct Tls {
    config: Arc<ClientConfig>,
    pub(crate) handshakes: Handshakes,
}

impl Tls {
    pub(crate) fn new(handshakes: Handshakes) -> io::Result<Self> {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).map_err(io::Error::other)?;
        roots.add(certificate).map_err(io::Error::other)?;
        let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
            .with_protocol_versions(&[&TLS13])
            .map_err(io::Error::other)?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = match handshakes {
            Handshakes::Full => Resumption::disabled(),
            Handshakes::Resumed => Resumption::in_memory_sessions(SESSIONS),
        };
        Ok(Tls { config: Arc::new(config), handshakes })
    }

    pub(crate) fn connection(&self) -> io::Result<ClientConnection> {
        let name = ServerName::IpAddress(IpAddr::from(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST)));
        ClientConnection::new(self.config.clone(), name).map_err(io::Error::other)
    }

    /// Returns whether the handshake was of the configured kind.
    pub(crate) fn is_kind(&self, kind: Option<HandshakeKind>) -> bool {
        let wanted = match self.handshakes {
            Handshakes::Full => HandshakeKind::Full,
            Handshakes::Resumed => HandshakeKind::Resumed,
        };
        kind == Some(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::{Handshakes, Tls};
    use rustls::HandshakeKind;

    #[test]
    fn only_a_handshake_of_the_configured_kind_counts() {
        let full = Tls::new(Handshakes::Full).unwrap();
        assert!(full.connection().unwrap().is_handshaking());
        assert!(full.is_kind(Some(HandshakeKind::Full)));
        assert!(!full.is_kind(Some(HandshakeKind::FullWithHelloRetryRequest)));
        assert!(!full.is_kind(Some(HandshakeKind::Resumed)));
        assert!(!full.is_kind(None));
        assert!(Tls::new(Handshakes::Resumed).unwrap().is_kind(Some(HandshakeKind::Resumed)));
    }
}
