//! `TlsServer`: the TLS settings of a server.

use super::{
    MakeFilter,
    certificate::TlsCertificate,
    detect::Detect,
    endpoint::TlsEndpoint,
    filter::TlsFilter,
    host_name::HostName,
    info::TlsVersion,
    key_log::KeyLogFile,
    provider::{provider, versions_from},
    roots::TlsRoots,
    settings::{alpn, check_alpn},
    tickets::Tickets,
    tls_certificates::{CertificateChoice, TlsCertificates},
};
use crate::{
    channel::{Peer, filter::Filter},
    error::{Error, Result},
    worker_pool::WorkerPool,
};
use rustls::{
    ServerConfig,
    server::{NoServerSessionStorage, WebPkiClientVerifier},
};
use std::{collections::BTreeMap, fmt, path::PathBuf, sync::Arc};

/// The TLS settings of a server, for [`ServerBootstrap::tls`](crate::ServerBootstrap::tls) and
/// [`Context::start_tls`](crate::Context::start_tls). Cheap to clone; the clones share certificates
/// and sessions.
///
/// ```no_run
/// use netwheel::{
///     codec::Line,
///     prelude::*,
///     tls::{TlsCertificate, TlsServer},
/// };
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let certificate = TlsCertificate::from_pem_files("chain.pem", "key.pem")?;
/// let server = ServerBootstrap::new(&group)
///     .tls(TlsServer::builder(certificate).build()?)
///     .pipeline(|_peer| {
///         Pipeline::codec(Line::new()).on_read(|ctx, line: netwheel::bytes::Bytes| ctx.write(line))
///     })
///     .bind("0.0.0.0:7443")?;
/// # server.close().wait()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct TlsServer {
    config: Arc<ServerConfig>,
    certificates: Option<TlsCertificates>,
    sessions: Sessions,
    workers: Option<WorkerPool>,
    plaintext: bool,
}

/// How sessions are resumed. There is no store of sessions, so no session outlives its ticket's
/// key, and none is left of a client whose certificate is no longer accepted.
#[derive(Clone)]
enum Sessions {
    NotResumed,
    ByTickets(Arc<Tickets>),
    /// A configuration of rustls decides.
    #[cfg(any(feature = "rustls-023", test))]
    OfConfig,
}

/// A builder for a [`TlsServer`]. Returned by [`TlsServer::builder`].
///
/// | setting | default |
/// |---|---|
/// | `host` | one certificate for all names |
/// | `known_hosts_only` | off: unknown names get the default certificate |
/// | `alpn` | none |
/// | `client_certificates` | not asked for |
/// | `min_version` | TLS 1.2 |
/// | `resumption` | on, 2 tickets per TLS 1.3 handshake |
/// | `key_log_file` | none |
///
/// Early data (0-RTT) is neither offered nor accepted, because it can be replayed. Data that a
/// client sends nevertheless is skipped and the handshake goes on, within the limit of rustls: 16
/// KiB, where each read counts records again.
#[must_use]
pub struct TlsServerBuilder {
    default: TlsCertificate,
    hosts: Vec<(String, TlsCertificate)>,
    known_hosts_only: bool,
    alpn: Vec<String>,
    clients: ClientCertificates,
    min_version: TlsVersion,
    resumption: bool,
    key_log_file: Option<PathBuf>,
}

/// Whether a server asks its clients for certificates.
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub enum ClientCertificates {
    /// No.
    #[default]
    NotAskedFor,
    /// Clients may authenticate themselves. A certificate that is sent must be issued by one of
    /// these authorities.
    Optional(TlsRoots),
    /// Clients must send a certificate that is issued by one of these authorities.
    Required(TlsRoots),
}

impl TlsServer {
    /// Returns a builder with default settings. `certificate` is sent to clients that name no host,
    /// or one without a certificate of its own.
    pub fn builder(certificate: TlsCertificate) -> TlsServerBuilder {
        TlsServerBuilder {
            default: certificate,
            hosts: Vec::new(),
            known_hosts_only: false,
            alpn: Vec::new(),
            clients: ClientCertificates::NotAskedFor,
            min_version: TlsVersion::Tls12,
            resumption: true,
            key_log_file: None,
        }
    }

    /// Uses a configuration of rustls 0.23, for settings that the builder does not have.
    ///
    /// # Errors
    /// [`Error::Setting`] if it accepts early data, which can be replayed.
    #[cfg(any(feature = "rustls-023", test))]
    pub fn from_config(config: Arc<ServerConfig>) -> Result<Self> {
        if config.max_early_data_size > 0 {
            return Err(Error::setting("max_early_data_size", config.max_early_data_size, "0"));
        }
        Ok(TlsServer {
            config,
            certificates: None,
            sessions: Sessions::OfConfig,
            workers: None,
            plaintext: false,
        })
    }

    /// Returns the certificates, to replace them while the server runs. `None` if the settings were
    /// made [from a configuration](TlsServer::from_config) of rustls.
    pub fn certificates(&self) -> Option<TlsCertificates> {
        self.certificates.clone()
    }

    /// Makes all session tickets that were issued so far invalid. Clients that present one get a
    /// full handshake, in which their certificates are verified again. Sessions are resumed by
    /// tickets only, so this ends all of them.
    ///
    /// The keys rotate without this: tickets are accepted for six to twelve hours.
    ///
    /// # Errors
    /// [`Error::Other`] if the system has no random numbers. [`Error::Setting`] if the settings
    /// were made [from a configuration](TlsServer::from_config) of rustls, which owns its tickets
    /// and its store of sessions. Nothing changes then.
    pub fn invalidate_tickets(&self) -> Result {
        match &self.sessions {
            Sessions::NotResumed => Ok(()),
            Sessions::ByTickets(tickets) => tickets.renew(),
            #[cfg(any(feature = "rustls-023", test))]
            Sessions::OfConfig => {
                Err(Error::setting("invalidate_tickets", "from_config", "settings of TlsServer::builder"))
            }
        }
    }

    /// Runs the expensive steps of handshakes on a pool of workers: signatures and key exchanges.
    ///
    /// Event loops then stay responsive in a storm of new connections. A handshake takes longer by
    /// two handovers between threads. If the pool's queue is full, the loop does the work.
    ///
    /// [Overload control](crate::group::EventLoopGroupBuilder::overload_target) admits or refuses a
    /// handshake before the pool gets it, and does not measure the wait in the queue of the pool.
    /// [`max_pending`](crate::worker_pool::WorkerPoolBuilder::max_pending) bounds that wait.
    #[must_use]
    pub fn offload_handshakes(mut self, pool: &WorkerPool) -> Self {
        self.workers = Some(pool.clone());
        self
    }

    /// Accepts connections without TLS on the same port. Their pipeline factory sees no
    /// [`Peer::tls`]. Has no effect on [`Context::start_tls`](crate::Context::start_tls), behind
    /// which only TLS may follow.
    ///
    /// At most two bytes decide, and nothing is consumed: a TLS handshake begins with 0x16 0x03. A
    /// plaintext protocol in which the server speaks first does not work, because nothing can be
    /// decided before the client has sent a byte. Do not use it for a protocol whose first bytes a
    /// client of yours may send in plaintext by mistake.
    #[must_use]
    pub fn or_plaintext(mut self) -> Self {
        self.plaintext = true;
        self
    }

    fn filter(&self) -> Result<TlsFilter> {
        TlsFilter::server(self.config.clone(), self.certificates.clone(), self.workers.clone())
    }
}

impl MakeFilter for TlsServer {
    fn make_filter(&self, _: &Peer) -> Result<Box<dyn Filter>> {
        let tls = self.filter()?;
        Ok(if self.plaintext { Box::new(Detect::new(tls)) } else { Box::new(tls) })
    }

    /// Ignores `or_plaintext`: messages that wait for the handshake would be sent in plaintext.
    fn make_upgrade(&self, _: &Peer) -> Result<Box<dyn Filter>> {
        Ok(Box::new(self.filter()?))
    }
}

impl TlsEndpoint for TlsServer {}

impl TlsServerBuilder {
    /// Adds a certificate for clients that name this host (SNI). Names compare without case and
    /// without a trailing dot. `*.example.com` stands for all names with one more label.
    pub fn host(mut self, host: impl Into<String>, certificate: TlsCertificate) -> Self {
        self.hosts.push((host.into(), certificate));
        self
    }

    /// Refuses clients that name a host without a certificate of its own, with the alert
    /// `unrecognized_name`. Clients that name no host get the default certificate.
    pub fn known_hosts_only(mut self, on: bool) -> Self {
        self.known_hosts_only = on;
        self
    }

    /// Sets the application protocols (ALPN), by preference. A client that offers only other ones
    /// is refused with the alert `no_application_protocol`; one that offers none is accepted.
    ///
    /// A pipeline factory reads the result from [`TlsInfo::alpn_protocol`](super::TlsInfo).
    pub fn alpn<S: Into<String>>(mut self, protocols: impl IntoIterator<Item = S>) -> Self {
        self.alpn = protocols.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether clients are asked for certificates. The default is not.
    pub fn client_certificates(mut self, clients: ClientCertificates) -> Self {
        self.clients = clients;
        self
    }

    /// Sets the oldest version that is accepted. The default is TLS 1.2.
    pub fn min_version(mut self, version: TlsVersion) -> Self {
        self.min_version = version;
        self
    }

    /// Turns the resumption of sessions on or off. It is on by default: a client that comes back
    /// with a ticket saves the certificate and half of the computation. The server stores no
    /// sessions, so a client without support for tickets gets a full handshake.
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
    /// - a host is not a DNS name or occurs twice,
    /// - an ALPN protocol is empty or longer than 255 bytes, or
    /// - the key log file cannot be opened.
    pub fn build(self) -> Result<TlsServer> {
        check_alpn(&self.alpn)?;
        let mut hosts = BTreeMap::new();
        for (host, certificate) in self.hosts {
            if hosts.insert(HostName::parse(&host)?, certificate).is_some() {
                return Err(Error::setting("host", host, "a name that occurs once"));
            }
        }
        let certificates = TlsCertificates::new(self.default, hosts, self.known_hosts_only);
        let config = ServerConfig::builder_with_provider(provider())
            .with_protocol_versions(versions_from(self.min_version))
            .map_err(|error| Error::setting("min_version", error, "supported by the provider"))?;
        let verifier = |roots: TlsRoots| WebPkiClientVerifier::builder_with_provider(roots.0, provider());
        let config = match self.clients {
            ClientCertificates::NotAskedFor => Ok(config.with_no_client_auth()),
            ClientCertificates::Optional(roots) => verifier(roots)
                .allow_unauthenticated()
                .build()
                .map(|verifier| config.with_client_cert_verifier(verifier)),
            ClientCertificates::Required(roots) => {
                verifier(roots).build().map(|verifier| config.with_client_cert_verifier(verifier))
            }
        };
        let config =
            config.map_err(|error| Error::setting("client_certificates", error, "usable certificates"))?;
        let mut config = config.with_cert_resolver(Arc::new(CertificateChoice(certificates.clone())));
        config.alpn_protocols = alpn(&self.alpn);
        if let Some(path) = &self.key_log_file {
            config.key_log = KeyLogFile::open(path)?;
        }
        // The store of rustls would resume TLS 1.2 sessions by their ids.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        let sessions = if self.resumption {
            let tickets = Arc::new(Tickets::new()?);
            config.ticketer = tickets.clone();
            Sessions::ByTickets(tickets)
        } else {
            config.send_tls13_tickets = 0;
            Sessions::NotResumed
        };
        Ok(TlsServer {
            config: Arc::new(config),
            certificates: Some(certificates),
            sessions,
            workers: None,
            plaintext: false,
        })
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServer")
            .field("certificates", &self.certificates)
            .field("offloads", &self.workers.is_some())
            .field("plaintext", &self.plaintext)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for TlsServerBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TlsServerBuilder")
            .field("default", &self.default)
            .field("hosts", &self.hosts)
            .field("alpn", &self.alpn)
            .field("client_certificates", &self.clients)
            .finish_non_exhaustive()
    }
}
