//! Reading PEM files. Errors name the file and never show its contents.

use crate::error::{Error, Result};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use std::{fmt, fs, path::Path};

/// Reads a whole file.
pub(super) fn read(setting: &'static str, path: &Path) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| {
        Error::setting(setting, format_args!("{} ({error})", path.display()), "a readable file in PEM format")
    })
}

/// Returns all certificates in `pem`, in order. `name` says where it is from.
pub(super) fn certificates(pem: &[u8], name: &dyn fmt::Display) -> Result<Vec<CertificateDer<'static>>> {
    let certificates = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
    certificates
        .ok()
        .filter(|certificates| !certificates.is_empty())
        .ok_or_else(|| Error::setting("certificates", name, "one certificate or more in PEM format"))
}

/// Returns the first private key in `pem`.
pub(super) fn private_key(pem: &[u8], name: &dyn fmt::Display) -> Result<PrivateKeyDer<'static>> {
    PrivateKeyDer::from_pem_slice(pem)
        .map_err(|_| Error::setting("private key", name, "a PKCS #8, PKCS #1 or SEC1 key in PEM format"))
}
