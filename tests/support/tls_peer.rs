//! Certificates, and blocking TLS clients that trust them.

use netwheel::tls::TlsCertificate;
use rustls::{ClientConfig, ClientConnection, RootCertStore, crypto::ring, pki_types::ServerName};
use std::sync::Arc;

/// Returns the certificate of a server, and the root that clients have to trust.
pub(crate) fn certificate() -> (TlsCertificate, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    (certificate, made.cert.der().to_vec())
}

/// Returns the certificate of a server, and the settings of clients that trust it.
pub(crate) fn settings() -> (TlsCertificate, Arc<ClientConfig>) {
    let (certificate, root) = certificate();
    let mut roots = RootCertStore::empty();
    roots.add(root.into()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    (certificate, Arc::new(config))
}

pub(crate) fn client(config: &Arc<ClientConfig>) -> ClientConnection {
    ClientConnection::new(config.clone(), ServerName::try_from("localhost").unwrap()).unwrap()
}
