//! TLS options of the clients.

use netwheel::{
    Result,
    tls::{TlsClient, TlsRoots},
};
use std::path::PathBuf;

#[derive(clap::Args)]
pub(crate) struct TlsOptions {
    /// Encrypt with TLS. The server's certificate must be trusted by the system, or by --tls-ca.
    #[arg(long)]
    tls: bool,
    /// Encrypt with TLS, and trust the certificates in this PEM file instead of the system's.
    #[arg(long, value_name = "FILE")]
    tls_ca: Option<PathBuf>,
    /// Host name that the server's certificate must have. The default is the host of --connect.
    #[arg(long, value_name = "NAME")]
    tls_name: Option<String>,
}

impl TlsOptions {
    /// Returns the settings for a server at `address`, which is HOST:PORT, or `None` without TLS.
    /// `required`: another option asks for TLS. `resumption`: handshakes may resume sessions.
    ///
    /// # Errors
    /// Fails if the file holds no certificates, or if the host is not a valid name.
    pub(crate) fn client(
        &self,
        address: &str,
        required: bool,
        resumption: bool,
    ) -> Result<Option<TlsClient>> {
        let roots = match &self.tls_ca {
            Some(path) => TlsRoots::from_pem_file(path)?,
            None if self.tls || required => TlsRoots::system()?,
            None => return Ok(None),
        };
        let host = address.rsplit_once(':').map_or(address, |(host, _port)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = self.tls_name.as_deref().unwrap_or(host);
        TlsClient::builder(roots).server_name(name).resumption(resumption).build().map(Some)
    }
}
