//! The TLS configuration of the Rust servers: ring, TLS 1.3, one P-256 certificate, tickets.

use rustls::{
    ServerConfig,
    crypto::ring::{Ticketer, default_provider},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    version::TLS13,
};
use std::{io, sync::Arc};

/// For measurements only: the key is public. The load generator trusts this certificate.
const CERTIFICATE: &[u8] = include_bytes!("../../tls/certificate.pem");
const KEY: &[u8] = include_bytes!("../../tls/key.pem");

pub(crate) fn config() -> io::Result<Arc<ServerConfig>> {
    let certificate = CertificateDer::from_pem_slice(CERTIFICATE).map_err(io::Error::other)?;
    let key = PrivateKeyDer::from_pem_slice(KEY).map_err(io::Error::other)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(&[&TLS13])
        .and_then(|builder| builder.with_no_client_auth().with_single_cert(vec![certificate], key))
        .map_err(io::Error::other)?;
    // Without a ticketer the server stores sessions, and only 256 of them.
    config.ticketer = Ticketer::new().map_err(io::Error::other)?;
    Ok(Arc::new(config))
}
