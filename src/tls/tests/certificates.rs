//! Certificates for tests.

use crate::tls::{certificate::TlsCertificate, roots::TlsRoots};
use rcgen::{CertifiedKey, generate_simple_self_signed};

/// Returns a self-signed certificate for a host.
pub(in crate::tls) fn certificate_for(host: &str) -> TlsCertificate {
    self_signed(host).0
}

/// Returns a self-signed certificate for a host, and the roots that trust it.
pub(in crate::tls) fn self_signed(host: &str) -> (TlsCertificate, TlsRoots) {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed(vec![host.to_owned()]).expect("a host name");
    let certificate = TlsCertificate::from_pem(cert.pem().as_bytes(), signing_key.serialize_pem().as_bytes());
    (certificate.expect("a certificate"), TlsRoots::from_pem(cert.pem().as_bytes()).expect("a root"))
}
