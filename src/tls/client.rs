//! `TlsClient`: the TLS settings of a client.

use super::{
    MakeFilter,
    certificate::TlsCertificate,
    endpoint::TlsEndpoint,
    filter::TlsFilter,
    info::TlsVersion,
    key_log::KeyLogFile,
    provider::{provider, versions_from},
    roots::TlsRoots,
    settings::{alpn, check_alpn},
};
use crate::{
    channel::{Peer, filter::Filter},
    error::{Error, Result},
    worker_pool::WorkerPool,
};
use rustls::{
    ClientConfig,
    client::{ResolvesClientCert, Resumption},
    pki_types::ServerName,
    sign::CertifiedKey,
};
use std::{fmt, path::PathBuf, sync::Arc};

/// The TLS settings of a client, for [`ClientBootstrap::tls`](crate::ClientBootstrap::tls) and
/// [`Context::start_tls`](crate::Context::start_tls). Cheap to clone; the clones share sessions, so
/// that later connections resume them.
///
/// The server must have a valid certificate for the host name that was passed to `connect`, or for
/// its IP address if an address was passed. There is no setting that skips this check. A program
/// that must skip it, for a test perhaps, implements rustls' `ServerCertVerifier` and uses
/// `TlsClient::from_config` (feature `rustls-023`). To trust a self-signed certificate, pass it as
/// [`TlsRoots`]. It must not be marked as an authority (`CA:TRUE`, the default of `openssl req
/// -x509`), because the verifier refuses an authority's own certificate as that of a server.
///
/// ```no_run
/// use netwheel::{codec::Line, prelude::*, tls::TlsClient};
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let client = ClientBootstrap::new(&group)
///     .tls(TlsClient::new()?)
///     .pipeline(|_peer| {
///         Pipeline::codec(Line::new()).on_read(|_ctx, line: netwheel::bytes::Bytes| {
///             println!("{line:?}");
///             Ok(())
///         })
///     });
/// let channel = client.connect("chat.example:7443").wait()?;
/// # drop(channel);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
    server_name: Option<ServerName<'static>>,
    workers: Option<WorkerPool>,
}

/// A builder for a [`TlsClient`]. Returned by [`TlsClient::builder`].
///
/// | setting | default |
/// |---|---|
/// | `server_name` | the host name passed to `connect`, or the peer's IP address |
/// | `alpn` | none |
/// | `certificate` | the client does not authenticate itself |
/// | `min_version` | TLS 1.2 |
/// | `resumption` | on |
/// | `key_log_file` | none |
#[must_use]
pub struct TlsClientBuilder {
    roots: TlsRoots,
    server_name: Option<String>,
    alpn: Vec<String>,
    certificate: Option<TlsCertificate>,
    min_version: TlsVersion,
    resumption: bool,
    key_log_file: Option<PathBuf>,
}

impl TlsClient {
    /// Returns default settings, with the authorities that the operating system trusts. Blocks
    /// while it reads them.
    ///
    /// # Errors
    /// [`Error::Setting`] if the system has none.
    pub fn new() -> Result<Self> {
        Self::builder(TlsRoots::system()?).build()
    }

    /// Returns a builder with default settings. Servers must have a certificate of one of these
    /// authorities.
    pub fn builder(roots: TlsRoots) -> TlsClientBuilder {
        TlsClientBuilder {
            roots,
            server_name: None,
            alpn: Vec::new(),
            certificate: None,
            min_version: TlsVersion::Tls12,
            resumption: true,
            key_log_file: None,
        }
    }

    /// Uses a configuration of rustls 0.23, for settings that the builder does not have.
    ///
    /// # Errors
    /// [`Error::Setting`] if it sends early data, which is not supported.
    #[cfg(any(feature = "rustls-023", test))]
    pub fn from_config(config: Arc<ClientConfig>) -> Result<Self> {
        if config.enable_early_data {
            return Err(Error::setting("enable_early_data", true, "off"));
        }
        Ok(TlsClient { config, server_name: None, workers: None })
    }

    /// Sets the name that the server's certificate must have, and that is sent to it (SNI). An IP
    /// address is checked and not sent.
    ///
    /// # Errors
    /// [`Error::Setting`] if it is neither a DNS name nor an IP address.
    pub fn with_server_name(mut self, name: impl Into<String>) -> Result<Self> {
        self.server_name = Some(server_name(name.into())?);
        Ok(self)
    }

    /// Runs the expensive steps of handshakes on a pool of workers. See
    /// [`TlsServer::offload_handshakes`](super::TlsServer::offload_handshakes).
    #[must_use]
    pub fn offload_handshakes(mut self, pool: &WorkerPool) -> Self {
        self.workers = Some(pool.clone());
        self
    }

    /// Returns the application protocols that are offered (ALPN).
    #[cfg(feature = "http")]
    pub(crate) fn alpn_protocols(&self) -> &[Vec<u8>] {
        &self.config.alpn_protocols
    }

    /// Returns the name that the server's certificate must have.
    fn name_of(&self, peer: &Peer) -> Result<ServerName<'static>> {
        if let Some(name) = &self.server_name {
            return Ok(name.clone());
        }
        if let Some(host) = peer.host() {
            return server_name(host.to_owned());
        }
        match peer.address() {
            Some(address) => Ok(ServerName::IpAddress(address.ip().into())),
            None => {
                Err(Error::setting("server_name", "not set", "set for a connection without an IP address"))
            }
        }
    }
}

fn server_name(name: String) -> Result<ServerName<'static>> {
    let plain = name.strip_suffix('.').unwrap_or(&name).to_owned();
    ServerName::try_from(plain)
        .map_err(|_| Error::setting("server_name", name, "a DNS name or an IP address"))
}

impl MakeFilter for TlsClient {
    fn make_filter(&self, peer: &Peer) -> Result<Box<dyn Filter>> {
        let name = self.name_of(peer)?;
        Ok(Box::new(TlsFilter::client(self.config.clone(), name, self.workers.clone())?))
    }
}

impl TlsEndpoint for TlsClient {}

impl TlsClientBuilder {
    /// Sets the name that the server's certificate must have, and that is sent to it (SNI).
    pub fn server_name(mut self, name: impl Into<String>) -> Self {
        self.server_name = Some(name.into());
        self
    }

    /// Sets the application protocols to offer (ALPN), by preference.
    pub fn alpn<S: Into<String>>(mut self, protocols: impl IntoIterator<Item = S>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the certificate that is sent to servers that ask for one.
    pub fn certificate(mut self, certificate: TlsCertificate) -> Self {
        self.certificate = Some(certificate);
        self
    }

    /// Sets the oldest version that is accepted. The default is TLS 1.2.
    pub fn min_version(mut self, version: TlsVersion) -> Self {
        self.min_version = version;
        self
    }

    /// Turns the resumption of sessions on or off. It is on by default, for the 256 last servers.
    pub fn resumption(mut self, on: bool) -> Self {
        self.resumption = on;
        self
    }

    /// Appends the secrets of all sessions to a file in the format of `SSLKEYLOGFILE`. With it,
    /// Wireshark decrypts a recording of the sessions. The default is `None`.
    ///
    /// Use it to find faults, and not in production: the file opens every connection to its
    /// readers. Handshakes write to it on their loop.
    pub fn key_log_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.key_log_file = Some(path.into());
        self
    }

    /// Creates the settings.
    ///
    /// # Errors
    /// [`Error::Setting`] if
    ///
    /// - the server name is neither a DNS name nor an IP address,
    /// - an ALPN protocol is empty or longer than 255 bytes, or
    /// - the key log file cannot be opened.
    pub fn build(self) -> Result<TlsClient> {
        check_alpn(&self.alpn)?;
        let config = ClientConfig::builder_with_provider(provider())
            .with_protocol_versions(versions_from(self.min_version))
            .map_err(|error| Error::setting("min_version", error, "supported by the provider"))?
            .with_root_certificates(self.roots.0);
        let mut config = match self.certificate {
            Some(certificate) => config.with_client_cert_resolver(Arc::new(OneCertificate(certificate.key))),
            None => config.with_no_client_auth(),
        };
        config.alpn_protocols = alpn(&self.alpn);
        if let Some(path) = &self.key_log_file {
            config.key_log = KeyLogFile::open(path)?;
        }
        if !self.resumption {
            config.resumption = Resumption::disabled();
        }
        let client = TlsClient { config: Arc::new(config), server_name: None, workers: None };
        match self.server_name {
            Some(name) => client.with_server_name(name),
            None => Ok(client),
        }
    }
}

/// Sends one certificate for every request of the server.
#[derive(Debug)]
struct OneCertificate(Arc<CertifiedKey>);

impl ResolvesClientCert for OneCertificate {
    fn resolve(&self, _: &[&[u8]], schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        self.0.key.choose_scheme(schemes).is_some().then(|| self.0.clone())
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClient").field("server_name", &self.server_name).finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsClientBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsClientBuilder")
            .field("roots", &self.roots)
            .field("server_name", &self.server_name)
            .field("alpn", &self.alpn)
            .field("certificate", &self.certificate)
            .finish_non_exhaustive()
    }
}
