//! `TlsRoots`: the certificate authorities that are trusted.

use super::pem;
use crate::error::{Error, Result};
use rustls::{RootCertStore, pki_types::CertificateDer};
use std::{fmt, path::Path, sync::Arc};

/// The certificate authorities whose certificates are accepted.
///
/// A client checks servers with them, and a server the certificates of clients. Cheap to clone.
#[derive(Clone)]
pub struct TlsRoots(pub(super) Arc<RootCertStore>);

impl TlsRoots {
    /// Returns the authorities that the operating system trusts. Blocks while it reads them. The
    /// environment variables `SSL_CERT_FILE` and `SSL_CERT_DIR` name other ones.
    ///
    /// Certificates of the system that are malformed are left out.
    ///
    /// # Errors
    /// [`Error::Setting`] if the system has none.
    pub fn system() -> Result<Self> {
        let found = rustls_native_certs::load_native_certs();
        for error in &found.errors {
            log::warn!("a trusted certificate of the system is left out: {error}");
        }
        let mut store = RootCertStore::empty();
        store.add_parsable_certificates(found.certs);
        Self::new(store, &"those of the system")
    }

    /// Reads authorities from a file in PEM format. Blocks.
    ///
    /// # Errors
    /// [`Error::Setting`] with the path if the file cannot be read, or holds no certificate or an
    /// invalid one.
    pub fn from_pem_file(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        Self::from_certificates(
            pem::certificates(&pem::read("trusted certificates", path)?, &path.display())?,
            &path.display(),
        )
    }

    /// Reads authorities in PEM format.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is no certificate or an invalid one.
    pub fn from_pem(pem: &[u8]) -> Result<Self> {
        Self::from_certificates(pem::certificates(pem, &"PEM text")?, &"PEM text")
    }

    /// Takes certificates of authorities in DER format.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is no certificate or an invalid one.
    pub fn from_der(certificates: impl IntoIterator<Item = Vec<u8>>) -> Result<Self> {
        Self::from_certificates(certificates.into_iter().map(CertificateDer::from).collect(), &"DER bytes")
    }

    /// Returns the authorities of both.
    pub fn and(mut self, other: &TlsRoots) -> Self {
        Arc::make_mut(&mut self.0).roots.extend_from_slice(&other.0.roots);
        self
    }

    fn from_certificates(
        certificates: Vec<CertificateDer<'static>>,
        name: &dyn fmt::Display,
    ) -> Result<Self> {
        let mut store = RootCertStore::empty();
        for certificate in certificates {
            store.add(certificate).map_err(|error| {
                Error::setting("trusted certificates", format_args!("{name} ({error})"), "valid certificates")
            })?;
        }
        Self::new(store, name)
    }

    fn new(store: RootCertStore, name: &dyn fmt::Display) -> Result<Self> {
        if store.is_empty() {
            return Err(Error::setting("trusted certificates", name, "one valid certificate or more"));
        }
        Ok(TlsRoots(Arc::new(store)))
    }
}

impl fmt::Debug for TlsRoots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TlsRoots({})", self.0.len())
    }
}
