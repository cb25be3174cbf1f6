//! The certificate of a server: from files, or a self-signed one for `localhost`.

use netwheel::{Error, Result, tls::TlsCertificate};
use std::{fs, path::PathBuf};

/// The options of the command line that choose the certificate.
#[derive(clap::Args)]
pub(crate) struct CertificateOptions {
    /// Certificate chain in PEM format. The default is a self-signed one for localhost.
    #[arg(long, requires = "key", value_name = "FILE")]
    cert: Option<PathBuf>,
    /// Private key of the certificate, in PEM format.
    #[arg(long, requires = "cert", value_name = "FILE")]
    key: Option<PathBuf>,
    /// Write the self-signed certificate to this file, so that clients can trust it.
    #[arg(long, conflicts_with = "cert", value_name = "FILE")]
    write_cert: Option<PathBuf>,
}

impl CertificateOptions {
    /// Reads the files, or makes a certificate. Blocks.
    ///
    /// # Errors
    /// Fails if a file cannot be read or written, or if the files do not belong together.
    pub(crate) fn certificate(&self) -> Result<TlsCertificate> {
        if let (Some(chain), Some(key)) = (&self.cert, &self.key) {
            return TlsCertificate::from_pem_files(chain, key);
        }
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(Error::other)?;
        let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        if let Some(path) = &self.write_cert {
            fs::write(path, &chain).map_err(|e| Error::other(format!("{}: {e}", path.display())))?;
        }
        TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes())
    }
}
