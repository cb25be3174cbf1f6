//! A client and a server filter that are connected by memory, and their certificates.

use crate::{
    channel::filter::{FilterHarness, FilterState},
    error::Result,
    tls::{
        filter::TlsFilter,
        info::{TlsInfo, TlsVersion},
        provider::provider,
        tls_certificates::TlsCertificates,
    },
    worker_pool::WorkerPool,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig, SupportedProtocolVersion,
    client::Resumption,
    crypto::CryptoProvider,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName},
    server::WebPkiClientVerifier,
    version::{TLS12, TLS13},
};
use std::sync::{Arc, LazyLock};

pub(super) const HOST: &str = "chat.example";
pub(super) const VERSIONS: [TlsVersion; 2] = [TlsVersion::Tls12, TlsVersion::Tls13];

/// A certificate authority, and a certificate that it has issued for [`HOST`].
struct Certificates {
    root: CertificateDer<'static>,
    chain: Vec<CertificateDer<'static>>,
    key: Vec<u8>,
}

static CERTIFICATES: LazyLock<Certificates> = LazyLock::new(|| {
    let mut authority = CertificateParams::new(Vec::new()).expect("no names");
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let issuer =
        CertifiedIssuer::self_signed(authority, KeyPair::generate().expect("a key")).expect("an authority");
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(vec![HOST.to_owned()]).expect("a host name");
    let leaf = leaf.signed_by(&key, &issuer).expect("a certificate");
    Certificates { root: issuer.der().clone(), chain: vec![leaf.der().clone()], key: key.serialize_der() }
});

fn key() -> PrivateKeyDer<'static> {
    PrivatePkcs8KeyDer::from(CERTIFICATES.key.clone()).into()
}

fn roots() -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    roots.add(CERTIFICATES.root.clone()).expect("a root");
    Arc::new(roots)
}

fn versions(version: TlsVersion) -> [&'static SupportedProtocolVersion; 1] {
    [if version == TlsVersion::Tls12 { &TLS12 } else { &TLS13 }]
}

/// Returns the configuration of a server, without ALPN, tickets and client authentication.
pub(super) fn server_config(version: TlsVersion) -> ServerConfig {
    server_config_of(provider(), version)
}

/// Like [`server_config`], with this cryptography.
pub(super) fn server_config_of(provider: Arc<CryptoProvider>, version: TlsVersion) -> ServerConfig {
    ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&versions(version))
        .expect("a version")
        .with_no_client_auth()
        .with_single_cert(CERTIFICATES.chain.clone(), key())
        .expect("a certificate")
}

/// Returns the configuration of a server that requires a certificate of the client.
pub(super) fn server_config_with_client_auth(version: TlsVersion) -> ServerConfig {
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(), provider()).build().expect("roots");
    ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions(version))
        .expect("a version")
        .with_client_cert_verifier(verifier)
        .with_single_cert(CERTIFICATES.chain.clone(), key())
        .expect("a certificate")
}

/// Returns the configuration of a client without ALPN, resumption and a certificate.
pub(super) fn client_config(version: TlsVersion) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions(version))
        .expect("a version")
        .with_root_certificates(roots())
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    config
}

/// Returns the configuration of a client with a certificate.
pub(super) fn client_config_with_certificate(version: TlsVersion) -> ClientConfig {
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&versions(version))
        .expect("a version")
        .with_root_certificates(roots())
        .with_client_auth_cert(CERTIFICATES.chain.clone(), key())
        .expect("a certificate");
    config.resumption = Resumption::disabled();
    config
}

/// One end of a connection.
pub(super) type End = FilterHarness<TlsFilter>;

impl FilterHarness<TlsFilter> {
    pub(super) fn server(config: impl Into<Arc<ServerConfig>>) -> Self {
        Self::of(TlsFilter::server(config.into(), None, None))
    }

    pub(super) fn server_of(config: impl Into<Arc<ServerConfig>>, certificates: TlsCertificates) -> Self {
        Self::of(TlsFilter::server(config.into(), Some(certificates), None))
    }

    pub(super) fn server_with(config: impl Into<Arc<ServerConfig>>, workers: &WorkerPool) -> Self {
        Self::of(TlsFilter::server(config.into(), None, Some(workers.clone())))
    }

    pub(super) fn client(config: impl Into<Arc<ClientConfig>>) -> Self {
        Self::client_of(config, HOST)
    }

    pub(super) fn client_of(config: impl Into<Arc<ClientConfig>>, host: &'static str) -> Self {
        let name = ServerName::try_from(host).expect("a host name");
        Self::of(TlsFilter::client(config.into(), name, None))
    }

    fn of(filter: Result<TlsFilter>) -> Self {
        filter.and_then(FilterHarness::start).expect("a valid configuration")
    }

    /// Returns the result of the handshake, which is complete.
    pub(super) fn info(&self) -> &TlsInfo {
        self.peer().info().expect("the handshake is complete")
    }

    pub(super) fn is_established(&self) -> bool {
        self.peer().info::<TlsInfo>().is_some()
    }

    /// Returns whether a worker has the session.
    pub(super) fn is_with_worker(&self) -> bool {
        self.state() == FilterState::Waiting
    }

    /// Returns whether the peer has ended its stream with `close_notify`.
    pub(super) fn has_input_ended(&self) -> bool {
        self.state() == FilterState::InputEnded
    }
}

/// Moves all bytes from one end to the other, at most `segment` bytes at a time.
pub(super) fn transfer(from: &mut End, to: &mut End, segment: usize) -> Result {
    let bytes = std::mem::take(&mut from.output);
    bytes.chunks(segment).try_for_each(|segment| to.receive(segment))
}

/// Completes the handshake. Returns the first error with the end that found it.
pub(super) fn shake_hands(client: &mut End, server: &mut End, segment: usize) -> Result {
    while !client.output.is_empty() || !server.output.is_empty() {
        transfer(client, server, segment)?;
        transfer(server, client, segment)?;
    }
    Ok(())
}

/// Returns a client and a server that have completed their handshake.
pub(super) fn established(version: TlsVersion) -> (End, End) {
    let (mut client, mut server) = (End::client(client_config(version)), End::server(server_config(version)));
    shake_hands(&mut client, &mut server, usize::MAX).expect("a handshake");
    assert!(client.is_established() && server.is_established());
    (client, server)
}

/// Returns the text of an error with its causes.
pub(super) fn text<T>(result: Result<T>) -> String {
    result.err().map_or("no error".into(), |error| format!("{error:#}"))
}
