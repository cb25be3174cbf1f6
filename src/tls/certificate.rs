//! `TlsCertificate`: a certificate chain with its private key.

use super::{pem, provider::provider};
use crate::error::{Error, Result};
use rustls::{
    pki_types::{CertificateDer, PrivateKeyDer},
    sign::CertifiedKey,
};
use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

/// A certificate chain and its private key, for a server or for a client that authenticates itself.
///
/// The chain begins with the certificate of the key, followed by the intermediate ones. Cheap to
/// clone. `Debug` shows neither the key nor the certificates.
///
/// ```no_run
/// use netwheel::tls::TlsCertificate;
///
/// let certificate = TlsCertificate::from_pem_files("/etc/tls/chain.pem", "/etc/tls/key.pem")?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct TlsCertificate {
    pub(super) key: Arc<CertifiedKey>,
    /// Where it was read from.
    files: Option<Arc<(PathBuf, PathBuf)>>,
}

impl TlsCertificate {
    /// Reads a chain and a key from files in PEM format, which may be the same file. Blocks.
    ///
    /// # Errors
    /// [`Error::Setting`] with the path if a file cannot be read, holds no certificate or no key,
    /// or if the key does not belong to the first certificate.
    pub fn from_pem_files(chain: impl AsRef<Path>, key: impl AsRef<Path>) -> Result<Self> {
        let (chain, key) = (chain.as_ref(), key.as_ref());
        let certificate = Self::new(
            pem::certificates(&pem::read("certificate chain", chain)?, &chain.display())?,
            pem::private_key(&pem::read("private key", key)?, &key.display())?,
            &chain.display(),
        )?;
        let files = Some(Arc::new((chain.to_owned(), key.to_owned())));
        Ok(TlsCertificate { files, ..certificate })
    }

    /// Reads a chain and a key in PEM format.
    ///
    /// # Errors
    /// [`Error::Setting`] if there is no certificate or no key, or if they do not belong together.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Self> {
        let name = &"PEM text";
        Self::new(pem::certificates(chain, name)?, pem::private_key(key, name)?, name)
    }

    /// Takes a chain and a key in DER format. The key is PKCS #8, PKCS #1 or SEC1.
    ///
    /// # Errors
    /// [`Error::Setting`] if the chain is empty, or if the key is invalid or does not belong to the
    /// first certificate.
    pub fn from_der(chain: impl IntoIterator<Item = Vec<u8>>, key: Vec<u8>) -> Result<Self> {
        let name = &"DER bytes";
        let key = PrivateKeyDer::try_from(key)
            .map_err(|_| Error::setting("private key", name, "a PKCS #8, PKCS #1 or SEC1 key"))?;
        Self::new(chain.into_iter().map(CertificateDer::from).collect(), key, name)
    }

    fn new(
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
        name: &dyn fmt::Display,
    ) -> Result<Self> {
        if chain.is_empty() {
            return Err(Error::setting("certificate chain", name, "one certificate or more"));
        }
        let key = CertifiedKey::from_der(chain, key, &provider()).map_err(|error| {
            Error::setting(
                "certificate",
                format_args!("{name} ({error})"),
                "a valid certificate and the private key that belongs to it",
            )
        })?;
        Ok(TlsCertificate { key: Arc::new(key), files: None })
    }

    /// Reads the files again that it was read from. Returns a copy of itself if there are none.
    pub(super) fn read_again(&self) -> Result<Self> {
        match &self.files {
            Some(files) => Self::from_pem_files(&files.0, &files.1),
            None => Ok(self.clone()),
        }
    }

    /// Returns whether this is a clone of `other`.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.key, &other.key)
    }
}

impl fmt::Debug for TlsCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsCertificate")
            .field("certificates", &self.key.cert.len())
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}
